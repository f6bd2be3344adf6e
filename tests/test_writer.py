"""MessageWriter: blocks, partial messages as of an event, arguments, linear cost."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from trio_agent import (
    AgentEvent,
    AssistantMessage,
    MessageStart,
    MessageUpdate,
    ModelProtocolError,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from trio_agent._json import parse_arguments
from trio_agent._writer import ResponseWriter


def writer() -> tuple[ResponseWriter, list[AgentEvent]]:
    events: list[AgentEvent] = []
    return ResponseWriter(events.append, trio.lowlevel.checkpoint_if_cancelled, "m", "p"), events


def kinds(events: list[AgentEvent]) -> list[str]:
    return [event.kind if isinstance(event, MessageUpdate) else event.type for event in events]


async def test_blocks_open_and_close_by_themselves() -> None:
    out, events = writer()
    await out.thinking("h")
    await out.thinking("m", "sig")
    await out.text("a")
    await out.text("b")
    await out.tool_call_start("1", "t")
    await out.tool_call_delta('{"x"')
    await out.tool_call_delta(":1}")
    await out.text("c")
    out.usage(Usage(1, 1))
    out.usage(Usage(5, 7))
    message = out.close()
    assert message == AssistantMessage(
        (Thinking("hm", "sig"), Text("ab"), ToolCall("1", "t", {"x": 1}), Text("c")),
        "tool_use",
        usage=Usage(5, 7),
        model="m",
        provider="p",
    )
    assert kinds(events) == [
        "message_start",
        *("thinking_start", "thinking_delta", "thinking_delta", "thinking_end"),
        *("text_start", "text_delta", "text_delta", "text_end"),
        *("tool_call_start", "tool_call_delta", "tool_call_delta", "tool_call_end"),
        *("text_start", "text_delta", "text_end"),
    ]
    assert events[0] == MessageStart(AssistantMessage((), model="m", provider="p"))


async def test_each_event_gives_the_message_as_of_that_event_also_when_read_late() -> None:
    out, events = writer()
    await out.text("a")
    await out.text("b")
    await out.tool_call("1", "t", {"x": 1})
    out.close()
    partials = [event.message.content for event in events if isinstance(event, MessageUpdate)]
    assert partials == [
        (Text(""),),
        (Text("a"),),
        (Text("ab"),),
        (Text("ab"),),
        (Text("ab"), ToolCall("1", "t")),
        (Text("ab"), ToolCall("1", "t")),
        (Text("ab"), ToolCall("1", "t", {"x": 1})),
    ]


async def test_deltas_merge_into_what_they_say_together() -> None:
    out, events = writer()
    for letter in "abcd":
        await out.text(letter)
    await out.thinking("t")
    deltas = [event for event in events if isinstance(event, MessageUpdate) and event.kind.endswith("_delta")]
    assert MessageUpdate.continues(deltas[2], deltas[1])
    assert not MessageUpdate.continues(deltas[4], deltas[3])
    assert not MessageUpdate.continues(deltas[1], deltas[2])
    assert not MessageUpdate.continues(events[0], deltas[0]), "no structural event merges"
    assert not MessageUpdate.continues(deltas[0], events[0])
    merged = MessageUpdate.merge(deltas[1], deltas[3])
    assert merged.delta == "bcd"
    assert merged.message.text == "abcd"


@pytest.mark.parametrize("failure", ["error", "aborted"])
async def test_a_message_cut_short_keeps_its_text_and_carries_no_calls(failure: str) -> None:
    out, _events = writer()
    await out.text("partly")
    await out.tool_call("1", "t", {})
    await out.tool_call_start("2", "t")
    message = out.close(failure, "cut")  # type: ignore[arg-type]
    assert message.content == (Text("partly"),)
    assert (message.stop_reason, message.error_message) == (failure, "cut")


@pytest.mark.parametrize(
    ("text", "arguments", "problem"),
    [
        ("", {}, None),
        ("{}", {}, None),
        ('{"a": [1]}', {"a": [1]}, None),
        ("[1]", {}, "must be a JSON object, not list"),
        ('{"a"', {}, "not valid JSON"),
        ('{"a": NaN}', {}, "NaN is not a JSON value"),
        ("[" * 100_000, {}, "nested too deeply"),
    ],
)
def test_arguments_are_parsed_once_and_the_problem_is_told(
    text: str, arguments: dict[str, object], problem: str | None
) -> None:
    parsed, error = parse_arguments(text)
    assert parsed == arguments
    assert (error is None) == (problem is None)
    assert problem is None or problem in (error or "")


async def test_a_call_with_bad_arguments_is_kept_with_the_reason() -> None:
    out, _events = writer()
    await out.tool_call_start("1", "t")
    await out.tool_call_delta("{oops")
    await out.tool_call_end()
    (call,) = out.close().tool_calls
    assert call.arguments == {}
    assert "not valid JSON" in (call.arguments_error or "")


@pytest.mark.parametrize(("id", "name"), [("", "t"), ("1", ""), ("0", "t")])
async def test_empty_or_repeated_ids_and_empty_names_are_the_models_fault(id: str, name: str) -> None:
    out, _events = writer()
    await out.tool_call("0", "t", {})
    with pytest.raises(ModelProtocolError):
        await out.tool_call_start(id, name)


async def test_misuse_is_told() -> None:
    out, _events = writer()
    with pytest.raises(ModelProtocolError, match="tool_call_start"):
        await out.tool_call_delta("{}")
    with pytest.raises(TypeError, match="text"):
        await out.text(b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Usage"):
        out.usage(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finish"):
        out.finish("end_turn")  # type: ignore[arg-type]
    out.close()
    writes: list[Callable[[], Awaitable[None]]] = [lambda: out.text("late"), lambda: out.tool_call_start("9", "t")]
    for write in writes:
        with pytest.raises(RuntimeError, match="response is over"):
            await write()


async def test_a_delta_is_recorded_before_it_may_wait() -> None:
    events: list[AgentEvent] = []
    out = ResponseWriter(events.append, trio.sleep_forever)
    with trio.move_on_after(0):
        await out.text("kept")
    assert out.close("aborted").text == "kept"


async def test_the_stop_reason_is_what_the_model_said_or_follows_from_the_calls() -> None:
    out, _ = writer()
    assert out.close().stop_reason == "stop"
    out, _ = writer()
    await out.tool_call("1", "t", {})
    out.finish("length")
    assert out.close().stop_reason == "length"


def test_an_update_made_by_hand_is_whole_enough_for_a_readers_test() -> None:
    event = MessageUpdate("text_delta", 0, "x")
    assert event.message.content == ()
    assert event == MessageUpdate("text_delta", 0, "x")
