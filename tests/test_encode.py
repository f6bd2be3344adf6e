"""Events and messages as JSON values: every class, every part, nothing that JSON cannot hold."""

import json
import typing

import attrs

from trio_agent import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    CustomMessage,
    Image,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelConnectionError,
    ModelRetry,
    Text,
    Thinking,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
    event_to_dict,
    message_to_dict,
)
from trio_agent._events import MessageLog

ASSISTANT = AssistantMessage(
    (Thinking("hm", "sig"), Text("hi"), ToolCall("a", "t", {"x": [1]}, extra={"server": "wants it"})),
    "tool_use",
    usage=Usage(1, 2, reasoning_tokens=1),
    raw_stop_reason="tool_calls",
    timestamp=5.0,
)
RESULT = ToolResultMessage("a", "t", "ok", details=object(), timestamp=6.0)
DONE = ToolResult("ok", details=object())
EVENTS: dict[type, tuple[AgentEvent, dict[str, object]]] = {
    AgentStart: (AgentStart(), {}),
    TurnStart: (TurnStart(2), {"turn": 2}),
    ModelRetry: (
        ModelRetry(2, 0.5, ModelConnectionError("gone"), "m"),
        {"attempt": 2, "delay": 0.5, "error": {"type": "ModelConnectionError", "message": "gone"}, "model": "m"},
    ),
    MessageStart: (MessageStart(ASSISTANT), {"message": message_to_dict(ASSISTANT)}),
    MessageUpdate: (
        MessageUpdate("text_delta", 1, "x", MessageLog(), 1),
        {"kind": "text_delta", "content_index": 1, "delta": "x"},
    ),
    MessageEnd: (MessageEnd(RESULT), {"message": message_to_dict(RESULT)}),
    ToolExecutionStart: (
        ToolExecutionStart("a", "t", {"x": 1}),
        {"tool_call_id": "a", "tool_name": "t", "arguments": {"x": 1}},
    ),
    ToolExecutionUpdate: (
        ToolExecutionUpdate("a", "t", {}, DONE),
        {"partial_result": {"content": [{"type": "text", "text": "ok"}], "is_error": False, "terminate": False}},
    ),
    ToolExecutionEnd: (
        ToolExecutionEnd("a", "t", {}, DONE, False, "failed", KeyError("k"), 0.5),
        {"outcome": "failed", "exception": {"type": "KeyError", "message": "'k'"}, "duration": 0.5},
    ),
    TurnEnd: (TurnEnd(None, (RESULT,)), {"message": None, "tool_results": [message_to_dict(RESULT)]}),
    AgentEnd: (
        AgentEnd((RESULT,), "aborted", None, "why"),
        {"outcome": "aborted", "abort_reason": "why", "error": None},
    ),
}


def test_every_event_class_has_its_form() -> None:
    assert set(EVENTS) == set(typing.get_args(AgentEvent))
    for event, fields in EVENTS.values():
        encoded = event_to_dict(event)
        json.dumps(encoded)
        assert encoded["type"] == event.type
        assert {key: encoded[key] for key in fields} == fields


def test_no_field_is_forgotten() -> None:
    left_out = {"_log", "_chunk_count"}
    for event, _ in EVENTS.values():
        names = {field.name for field in attrs.fields(type(event))} - left_out
        assert {name.lstrip("_") for name in names} | {"type"} == set(event_to_dict(event))


def test_messages_in_every_form() -> None:
    assert message_to_dict(ASSISTANT) == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig", "redacted": False},
            {"type": "text", "text": "hi"},
            {
                "type": "tool_call",
                "id": "a",
                "name": "t",
                "arguments": {"x": [1]},
                "arguments_error": None,
                "extra": {"server": "wants it"},
            },
        ],
        "stop_reason": "tool_use",
        "raw_stop_reason": "tool_calls",
        "error_message": None,
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "reasoning_tokens": 1,
        },
        "model": "",
        "provider": "",
        "timestamp": 5.0,
    }
    image = message_to_dict(UserMessage(Image(b"\x00\xff", "image/png")))
    assert image["content"] == [{"type": "image", "data": "AP8=", "mime_type": "image/png"}]
    assert message_to_dict(RESULT)["tool_call_id"] == "a"
    assert message_to_dict(CustomMessage("note"))["role"] == "custom"


def test_what_json_has_no_form_for_becomes_a_string() -> None:
    call = ToolCall("a", "t", {"x": [float("nan"), 1.5, True, None], "y": {"z": float("inf")}})
    (part,) = message_to_dict(AssistantMessage(call))["content"]
    assert part["arguments"] == {"x": ["nan", 1.5, True, None], "y": {"z": "inf"}}
    json.dumps(event_to_dict(ToolExecutionStart("a", "t", call.arguments)), allow_nan=False)
