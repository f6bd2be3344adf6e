"""Tool -> Tool: timeout, retries, cache, audit."""

from typing import Any

import pytest
import trio

from trio_agent import Agent, Tool, ToolCall, ToolContext, ToolError, ToolResult, ToolResultMessage, tool
from trio_agent.testing import ScriptedModel
from trio_agent.tools import AuditRecord, with_audit, with_cache, with_retries, with_timeout

CONTEXT = ToolContext("1", "work")


def counting(*outcomes: Any, **settings: Any) -> tuple[Tool, list[Any]]:
    """A tool that raises or returns one of these after the other; a number is how long it sleeps."""
    tried: list[Any] = []

    @tool(**settings)
    async def work(key: str = "") -> Any:
        """Work."""
        tried.append(key)
        outcome = outcomes[min(len(tried), len(outcomes)) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, int):
            await trio.sleep(outcome)
        return outcome

    return work, tried


async def results(made: Tool, *arguments: dict[str, Any], **settings: Any) -> list[str]:
    calls = [ToolCall(str(number), made.name, item) for number, item in enumerate(arguments or ({},))]
    agent = Agent(ScriptedModel(calls, "end"), tools=[made], **settings)
    await agent.prompt("go")
    return [message.text for message in agent.messages if isinstance(message, ToolResultMessage)]


# timeout


async def test_a_timeout_bounds_the_call(autojump_clock: object) -> None:
    made, _ = counting(9)
    assert await results(with_timeout(made, 2)) == ["Timed out after 2 seconds; its effects are unknown."]
    assert trio.current_time() == 2
    assert with_timeout(with_timeout(made, 2), 5).timeout == 2
    assert with_timeout(with_timeout(made, 5), 2).timeout == 2
    assert made.timeout is None


# retries


async def test_it_is_tried_again_with_growing_pauses_and_says_so(autojump_clock: object) -> None:
    made, tried = counting(OSError("a"), OSError("b"), OSError("c"), "done")
    told: list[ToolResult] = []
    context = ToolContext("1", "work", report=lambda partial: not told.append(partial))
    assert await with_retries(made, 4, delay=2, max_delay=3).execute({}, context) == "done"
    assert (len(tried), trio.current_time()) == (4, 2 + 3 + 3)
    assert [partial.text for partial in told] == [
        "Attempt 1 of 4 failed (OSError: a); again in 2 s.",
        "Attempt 2 of 4 failed (OSError: b); again in 3 s.",
        "Attempt 3 of 4 failed (OSError: c); again in 3 s.",
    ]


async def test_the_last_error_is_the_calls(autojump_clock: object) -> None:
    made, tried = counting(OSError("a"), OSError("b"))
    with pytest.raises(OSError, match="b") as caught:
        await with_retries(made, 2).execute({}, CONTEXT)
    assert caught.value.__notes__ == ["tried 2 times"]
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("error", "on"),
    [
        (ToolError("no"), Exception),
        (KeyError("k"), OSError),
        (ExceptionGroup("g", [OSError("a"), KeyError("k")]), OSError),
        (ExceptionGroup("g", [ToolError("a")]), Exception),
    ],
)
async def test_what_is_not_worth_another_attempt_is_not_tried_again(error: Exception, on: type[Exception]) -> None:
    made, tried = counting(error, "never")
    with pytest.raises(type(error)):
        await with_retries(made, on=on).execute({}, CONTEXT)
    assert len(tried) == 1


async def test_a_group_of_what_is_is(autojump_clock: object) -> None:
    made, tried = counting(ExceptionGroup("g", [OSError("a")]), "done")
    assert await with_retries(made, on=OSError).execute({}, CONTEXT) == "done"
    assert len(tried) == 2


async def test_the_tools_timeout_bounds_each_attempt(autojump_clock: object) -> None:
    made, tried = counting(9, "done", timeout=2.0)
    assert await results(with_retries(made, delay=1)) == ["done"]
    assert (len(tried), trio.current_time()) == (2, 3)
    tried.clear()
    assert (await results(with_timeout(with_retries(made, delay=1), 2.5)))[0].startswith("Timed out after 2.5")
    made, tried = counting(9, timeout=2.0)
    assert (await results(with_retries(made, 2)))[0].startswith("TooSlowError: Timed out after 2.0 seconds")
    made, tried = counting(9, "done", timeout=2.0, atomic=True)
    assert (await results(with_retries(made)))[0].startswith("Timed out after 2.0 seconds")


async def test_a_cancellation_is_never_retried(autojump_clock: object) -> None:
    made, tried = counting(9)
    with trio.move_on_after(1) as scope:
        await with_retries(made).execute({}, CONTEXT)
    assert scope.cancelled_caught
    assert len(tried) == 1
    made, tried = counting(OSError("a"))
    with trio.move_on_after(1.5) as scope:
        await with_retries(made, 9, delay=1).execute({}, CONTEXT)
    assert scope.cancelled_caught
    assert len(tried) == 2


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"attempts": True}, {"delay": -1}, {"delay": 40}])
def test_numbers_of_retries_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"with_retries: {next(iter(wrong))}"):
        with_retries(counting("x")[0], **wrong)


# cache


async def test_equal_arguments_run_once(autojump_clock: object) -> None:
    made, tried = counting("a", "b", "c")
    cached = with_cache(made, max_entries=2)
    assert await results(cached, {"key": "x"}, {"key": "x"}, {"key": "y"}, {"key": "x"}) == ["a", "a", "b", "a"]
    assert await results(cached, {"key": "z"}, {"key": "y"}) == ["c", "c"], "the least recently used was forgotten"
    assert tried == ["x", "y", "z", "y"]


async def test_equal_calls_side_by_side_wait_for_one(autojump_clock: object) -> None:
    made, tried = counting(2)
    many = [{"key": "x"}] * 3
    assert await results(with_cache(made), *many, tool_execution="parallel") == ["2", "2", "2"]
    assert (len(tried), trio.current_time()) == (1, 2)


async def test_errors_and_cut_calls_are_not_kept(autojump_clock: object) -> None:
    made, tried = counting(OSError("a"), ToolResult("bad", is_error=True), 9, "good")
    cached = with_cache(made)
    for _ in range(2):
        assert (await results(cached))[0] in ("OSError: a", "bad")
    with trio.move_on_after(1):
        await cached.execute({}, CONTEXT)
    assert await results(cached) == ["good"]
    assert len(tried) == 4


async def test_arguments_that_no_text_can_tell_apart_are_not_cached() -> None:
    made, _ = counting("a", "b")
    cached = with_cache(made)
    for expected in ("a", "b"):
        assert await cached.execute({"key": object()}, CONTEXT) == expected
    with pytest.raises(ValueError, match="max_entries"):
        with_cache(made, max_entries=0)


# audit


async def test_every_call_that_runs_is_on_record_on_every_path(autojump_clock: object) -> None:
    made, _ = counting("done", OSError("a"), 9)
    log: list[AuditRecord] = []
    audited = with_audit(made, log.append)
    await results(audited, {"key": "x"}, {"key": "y"}, {"key": 3})
    with trio.move_on_after(1):
        await audited.execute({"key": "z"}, CONTEXT)
    said = [(record.phase, record.arguments.get("key"), record.seconds) for record in log]
    assert said == [
        ("begun", "x", 0),
        ("returned", "x", 0),
        ("begun", "y", 0),
        ("raised", "y", 0),
        ("begun", "z", 0),
        ("cut", "z", 1),
    ]
    assert log[1].value == "done"
    assert isinstance(log[3].error, OSError)
    assert isinstance(log[5].error, trio.Cancelled)
    assert log[0].tool_call_id == "0"


async def test_what_cannot_be_put_on_record_is_not_done() -> None:
    made, tried = counting("done")

    def full(record: AuditRecord) -> None:
        raise OSError("disk full")

    assert await results(with_audit(made, full)) == ["OSError: disk full"]
    assert tried == []
    with pytest.raises(TypeError, match="with_audit: log"):
        with_audit(made, "log")  # type: ignore[arg-type]


def test_wrappers_take_tools_and_keep_what_is_not_theirs() -> None:
    made, _ = counting("x", atomic=True, sequential=True)
    for wrapped in (with_timeout(made, 1), with_retries(made), with_cache(made), with_audit(made, print)):
        assert (wrapped.name, wrapped.parameters, wrapped.atomic, wrapped.sequential) == (
            "work",
            made.parameters,
            True,
            True,
        )
        assert wrapped.validate is made.validate
    for wrap in (lambda t: with_timeout(t, 1), with_retries, with_cache, lambda t: with_audit(t, print)):
        with pytest.raises(TypeError, match="expected a Tool"):
            wrap(print)
