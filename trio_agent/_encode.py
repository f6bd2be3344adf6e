"""Events and messages as plain JSON values: what ``trio-agent --json`` prints and ``--transcript`` writes."""

import base64
from typing import Any

from ._events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from ._frozen import thaw
from ._messages import (
    AssistantMessage,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolResultMessage,
    Usage,
)

__all__ = ["event_to_dict", "message_to_dict"]


def event_to_dict(event: AgentEvent) -> dict[str, Any]:
    """An event as JSON values: its ``type`` and its fields.

    Messages are given as by `message_to_dict`, exceptions as ``{"type", "message"}``. A ``message_update`` has its
    delta, not the partial message. ``details`` of a tool result, which may be any object, are left out.
    """
    encoded: dict[str, Any] = {"type": event.type}
    match event:
        case AgentStart():
            pass
        case TurnStart(turn):
            encoded["turn"] = turn
        case MessageStart(message) | MessageEnd(message):
            encoded["message"] = message_to_dict(message)
        case MessageUpdate(kind, index, delta):
            encoded |= {"kind": kind, "content_index": index, "delta": delta}
        case ToolExecutionStart() | ToolExecutionUpdate() | ToolExecutionEnd():
            encoded |= _tool_event(event)
        case TurnEnd(turn_message, results):
            encoded["message"] = None if turn_message is None else message_to_dict(turn_message)
            encoded["tool_results"] = [message_to_dict(result) for result in results]
        case AgentEnd(messages, outcome, error, abort_reason):
            encoded |= {
                "messages": [message_to_dict(message) for message in messages],
                "outcome": outcome,
                "error": _error(error),
                "abort_reason": abort_reason,
            }
    return encoded


def _tool_event(event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "tool_call_id": event.tool_call_id,
        "tool_name": event.tool_name,
        "arguments": thaw(event.arguments),
    }
    if isinstance(event, ToolExecutionUpdate):
        encoded["partial_result"] = _result(event.partial_result)
    elif isinstance(event, ToolExecutionEnd):
        encoded |= {
            "result": _result(event.result),
            "is_error": event.is_error,
            "outcome": event.outcome,
            "exception": _error(event.exception),
            "duration": event.duration,
        }
    return encoded


def message_to_dict(message: Message) -> dict[str, Any]:
    """A message as JSON values: ``role``, ``content`` (a list of parts, each with a ``type``), ``timestamp``, and what
    its kind has besides. Fields that a subclass of `CustomMessage` added are left out."""
    encoded: dict[str, Any] = {"role": message.role, "content": [_part(part) for part in message.content]}
    if isinstance(message, AssistantMessage):
        encoded |= {
            "stop_reason": message.stop_reason,
            "error_message": message.error_message,
            "usage": usage_to_dict(message.usage),
            "model": message.model,
            "provider": message.provider,
        }
    elif isinstance(message, ToolResultMessage):
        encoded |= {
            "tool_call_id": message.tool_call_id,
            "tool_name": message.tool_name,
            "is_error": message.is_error,
        }
    encoded["timestamp"] = message.timestamp
    return encoded


def usage_to_dict(usage: Usage) -> dict[str, int]:
    """Token counts by name."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(thinking, signature):
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        case Image(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mime_type": mime_type}
        case ToolCall(id, name, arguments):
            return {
                "type": "tool_call",
                "id": id,
                "name": name,
                "arguments": thaw(arguments),
                "arguments_error": part.arguments_error,
            }


def _result(result: ToolResult) -> dict[str, Any]:
    return {
        "content": [_part(part) for part in result.content],
        "is_error": result.is_error,
        "terminate": result.terminate,
    }


def _error(error: BaseException | None) -> dict[str, str] | None:
    return None if error is None else {"type": type(error).__name__, "message": str(error)}
