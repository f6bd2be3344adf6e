"""Another try and another model: when, how long after, and never once something was seen."""

from typing import Any

import pytest
import trio
from slow_client import SlowClient

from trio_agent import (
    Agent,
    AgentEvent,
    ModelConnectionError,
    ModelContextError,
    ModelError,
    ModelProtocolError,
    ModelRefusalError,
    ModelRetry,
    ModelStatusError,
    ModelTimeoutError,
)
from trio_agent.models import OpenAIChatModel, fallback, retrying
from trio_agent.models._refusals import refusal
from trio_agent.testing import Fail, ScriptedModel, check_events

GOOD = [(0, b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n')]
PART = [(0, b'data: {"choices":[{"delta":{"content":"h"}}]}\n\n')]
GONE = ModelConnectionError("gone")


async def run(model: Any) -> tuple[Any, list[AgentEvent]]:
    events: list[AgentEvent] = []
    agent = Agent(model)
    agent.subscribe(events.append)
    result = await agent.prompt("hello")
    assert check_events(events) == []
    return result, events


def retries(events: list[AgentEvent]) -> list[tuple[int, float, str]]:
    return [(e.attempt, e.delay, e.model) for e in events if isinstance(e, ModelRetry)]


@pytest.mark.parametrize(
    "error",
    [
        GONE,
        ModelTimeoutError("slow"),
        ModelProtocolError("cut off", retryable=True),
        ModelStatusError("busy", status=503, retryable=True),
    ],
)
async def test_what_may_pass_is_tried_again_and_says_so(error: ModelError, autojump_clock: object) -> None:
    model = retrying(ScriptedModel([Fail(error)], [Fail(error)], "hi"), delay=1, jitter=lambda: 0.5)
    result, events = await run(model)
    assert (result.text, result.outcome) == ("hi", "completed")
    assert retries(events) == [(2, 0.875, "scripted"), (3, 1.75, "scripted")]
    assert trio.current_time() == pytest.approx(0.875 + 1.75)
    assert [event.error for event in events if isinstance(event, ModelRetry)] == [error, error]


@pytest.mark.parametrize(
    "error",
    [
        ModelError("?"),
        ModelProtocolError("a web page"),
        ModelRefusalError("no"),
        ModelContextError("too long", status=400),
        ModelStatusError("quota", status=429, retryable=False),
        ModelStatusError("wait for an hour", status=429, retry_after=3600, retryable=True),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(error: ModelError, autojump_clock: object) -> None:
    model = ScriptedModel([Fail(error)], "hi")
    result, events = await run(retrying(model))
    assert (result.outcome, result.error) == ("error", error)
    assert retries(events) == []
    assert len(model.requests) == 1
    assert trio.current_time() == 0


async def test_nothing_is_said_twice(autojump_clock: object) -> None:
    model = ScriptedModel(["h", Fail(GONE)], "hi")
    result, _ = await run(retrying(model))
    assert (result.text, result.outcome, len(model.requests)) == ("h", "error", 1)


async def test_the_last_error_is_the_runs(autojump_clock: object) -> None:
    last = ModelConnectionError("last")
    result, events = await run(retrying(ScriptedModel([Fail(GONE)], [Fail(last)]), 2))
    assert result.error is last
    assert len(retries(events)) == 1


async def test_a_server_that_says_how_long_is_obeyed(autojump_clock: object) -> None:
    error = ModelStatusError("busy", status=429, retry_after=7.5, retryable=True)
    _, events = await run(retrying(ScriptedModel([Fail(error)], "hi")))
    assert retries(events) == [(2, 7.5, "scripted")]
    assert trio.current_time() == 7.5


async def test_delays_have_a_bound_and_a_spread() -> None:
    spread = iter([0.0, 0.999] * 9)
    waited: list[float] = []
    with pytest.MonkeyPatch.context() as patch:

        async def note(seconds: float) -> None:
            waited.append(seconds)

        patch.setattr("trio_agent.models._retrying.trio.sleep", note)
        await run(retrying(ScriptedModel(*[[Fail(GONE)]] * 9, "hi"), 10, jitter=lambda: next(spread)))
    assert waited[::2] == [0.5, 2.0, 8.0, 8.0, 8.0]
    assert waited[1::2] == pytest.approx([0.75, 3.0, 6.0, 6.0], rel=0.01)


@pytest.mark.parametrize("how", ["abort", "cancel", "deadline"])
async def test_waiting_ends_at_once(how: str, autojump_clock: object) -> None:
    model = ScriptedModel([Fail(ModelStatusError("busy", retry_after=50, retryable=True))], "hi")
    agent = Agent(retrying(model))
    async with trio.open_nursery() as nursery:
        if how == "abort":
            nursery.start_soon(abort_later, agent)
        with trio.move_on_after(5 if how == "cancel" else 1000) as scope:
            result = await agent.prompt("hello", timeout=5 if how == "deadline" else None)
            assert result.outcome == ("aborted" if how == "abort" else "deadline")
        assert scope.cancelled_caught == (how == "cancel")
    assert trio.current_time() == 5
    assert len(model.requests) == 1


async def abort_later(agent: Agent) -> None:
    await trio.sleep(5)
    agent.abort("enough")


async def test_over_http_until_it_works(autojump_clock: object) -> None:
    client = SlowClient(
        (429, {"retry-after-ms": "250"}, [(0, b'{"error":{"message":"slow down"}}')]),
        (503, {}, [(0, b'{"error":{"message":"Loading model","code":503}}')]),
        [(0, b": nothing yet\n\n")],
        GOOD,
    )
    model = OpenAIChatModel("m", base_url="http://x", api_key="", client=client)
    result, events = await run(retrying(model, 5, jitter=lambda: 0.0))
    assert result.text == "hi"
    assert [delay for _, delay, _ in retries(events)] == [0.25, 1.0, 2.0]
    assert client.at == [0, 0.25, 1.25, 3.25]


async def test_another_model_answers_and_the_message_is_its_own(autojump_clock: object) -> None:
    other = ScriptedModel("hi")
    other.name, other.provider = "other", "elsewhere"
    result, events = await run(fallback(ScriptedModel([Fail(ModelRefusalError("no"))]), other))
    assert retries(events) == [(2, 0.0, "other")]
    message = result.messages[-1]
    assert (message.text, message.model, message.provider) == ("hi", "other", "elsewhere")


async def test_when_no_model_answers_the_error_tells_of_all(autojump_clock: object) -> None:
    result, _ = await run(fallback(ScriptedModel([Fail(GONE)]), ScriptedModel([Fail(ModelError("also"))])))
    assert str(result.error) == "also"
    assert result.error.__notes__ == ["before that, 'scripted' failed: gone"]


async def test_a_fallback_does_not_speak_twice_and_may_have_retries_inside(autojump_clock: object) -> None:
    second = ScriptedModel("no")
    result, _ = await run(fallback(ScriptedModel(["h", Fail(GONE)]), second))
    assert (result.text, second.requests) == ("h", [])
    model = fallback(retrying(ScriptedModel([Fail(GONE)], [Fail(GONE)]), 2, jitter=lambda: 0), ScriptedModel("hi"))
    result, events = await run(model)
    assert result.text == "hi"
    assert [attempt for attempt, _, _ in retries(events)] == [2, 2]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: retrying(3), "retrying: expected a model"),
        (lambda: retrying(ScriptedModel("x"), 0), "attempts must be"),
        (lambda: retrying(ScriptedModel("x"), delay=-1), "delay must be"),
        (lambda: retrying(ScriptedModel("x"), max_retry_after="1"), "max_retry_after must be"),
        (lambda: fallback(ScriptedModel("x")), "at least two"),
        (lambda: fallback(ScriptedModel("x"), 3), "fallback: expected a model"),
    ],
)
def test_wrong_arguments_are_named(make: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        make()


OVERFLOWS = [
    '{"error":{"message":"This model\'s maximum context length is 8192 tokens.","code":"context_length_exceeded"}}',
    '{"error":{"message":"Your input exceeds the context window of this model."}}',
    '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000"}}',
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    '{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed"}}',
    '{"error":{"code":400,"type":"exceed_context_size_error","message":"request exceeds"}}',
    "the request exceeds the available context size, try increasing it",
    "The number of tokens to keep from the initial prompt is greater than the context length",
    "The decoder prompt (length 9000) is longer than the maximum model length of 4096",
    "Please reduce the length of the messages or completion.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Input is too long for requested model.",
    "prompt token count of 130000 exceeds the limit of 128000",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "Invalid request: Your request exceeded model token limit: 8192",
    "invalid params, context window exceeds limit",
    "prompt too long; exceeded max context length by 100 tokens",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    '{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
]


@pytest.mark.parametrize("said", OVERFLOWS)
def test_a_request_that_is_too_long_is_known_by_its_wording(said: str) -> None:
    error = refusal("m", said, status=400)
    assert isinstance(error, ModelContextError)
    assert not error.retryable


@pytest.mark.parametrize(
    ("said", "status", "headers", "code", "retryable", "wait"),
    [
        ('{"error":{"type":"insufficient_quota","message":"x"}}', 429, {}, "insufficient_quota", False, None),
        ('{"error":{"details":{"error_code":"enforced_spend_limit_reached"},"type":"rate_limit_error"}}', 429, {},
         "rate_limit_error", False, None),
        ('{"error":{"message":"Your credit balance is too low"}}', 400, {}, None, False, None),
        ("Payment required", 402, {}, None, False, None),
        ('{"error":{"type":"rate_limit_error"}}', 429, {"retry-after": "3"}, "rate_limit_error", True, 3.0),
        ('{"error":{"code":"rate_limit_exceeded","message":"30000 tokens per minute. Please try again in 7.66s."}}',
         429, {}, "rate_limit_exceeded", True, 7.66),
        ('{"error":{"message":"Please try again in 20ms."}}', 429, {}, None, True, 0.02),
        ('[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay": "37s"}]}}]', 429, {}, 429, True,
         37.0),
        ('{"error":{"message":"maximum context length tokens per minute"}}', 429, {}, None, True, None),
        ('{"error":{"type":"overloaded_error"}}', None, {}, "overloaded_error", True, None),
        ('{"error":{"code":502,"message":"upstream"}}', None, {}, 502, True, None),
        ('{"error":{"code":"400","message":"bad"}}', None, {}, 400, False, None),
        ('{"error":"boom"}', None, {}, None, False, None),
        ("busy", 500, {"x-should-retry": "false"}, None, False, None),
        ("odd", 400, {"x-should-retry": "true"}, None, True, None),
        ("bad", 400, {}, None, False, None),
        ("gone", 404, {}, None, False, None),
        ("late", 408, {}, None, True, None),
        ("overloaded", 529, {}, None, True, None),
    ],
)  # fmt: skip
def test_what_a_refusal_means(
    said: str, status: int | None, headers: dict[str, str], code: Any, retryable: bool, wait: float | None
) -> None:
    error = refusal("m", said, status=status, headers=headers)
    assert type(error) is ModelStatusError
    assert (error.code, error.retryable, error.retry_after) == (code, retryable, wait)
