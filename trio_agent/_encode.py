"""Events and messages as plain JSON values: what ``trio-agent --json`` prints and ``--transcript`` writes."""

import base64
import math
from collections.abc import Mapping
from typing import Any

from ._events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelRetry,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
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
    """An event as JSON values: its ``type`` and its fields. Never fails, and keeps nothing of the event alive.

    ====================== =======================================================================================
    ``type``               other fields
    ====================== =======================================================================================
    agent_start            none
    turn_start             turn
    model_retry            attempt, delay, error, model
    message_start          message
    message_update         kind, content_index, delta (the partial message is left out)
    message_end            message
    tool_execution_start   tool_call_id, tool_name, arguments
    tool_execution_update  the same, partial_result, path, event (as here, or null)
    tool_execution_end     the same as start, and result, is_error, outcome, exception, duration
    turn_end               message (or null), tool_results (messages)
    agent_end              messages, outcome, error, abort_reason, limit
    ====================== =======================================================================================

    Messages and their parts are given as by `message_to_dict`; a result as ``content`` (parts), ``is_error`` and
    ``terminate``; an exception as ``type`` and ``message``, or null. A result's ``details``, which may be any object,
    are left out. What JSON has no form for in arguments (NaN) becomes a string.
    """
    encoded: dict[str, Any] = {"type": event.type}
    match event:
        case AgentStart():
            pass
        case TurnStart(turn):
            encoded["turn"] = turn
        case ModelRetry(attempt, delay, error, model):
            encoded |= {"attempt": attempt, "delay": delay, "error": _error(error), "model": model}
        case MessageStart(message) | MessageEnd(message):
            encoded["message"] = message_to_dict(message)
        case MessageUpdate(kind, index, delta):
            encoded |= {"kind": kind, "content_index": index, "delta": delta}
        case ToolExecutionStart() | ToolExecutionUpdate() | ToolExecutionEnd():
            encoded |= _tool_event(event)
        case TurnEnd(turn_message, results):
            encoded["message"] = None if turn_message is None else message_to_dict(turn_message)
            encoded["tool_results"] = [message_to_dict(result) for result in results]
        case AgentEnd(messages, outcome, error, abort_reason, limit):
            encoded |= {
                "messages": [message_to_dict(message) for message in messages],
                "outcome": outcome,
                "error": _error(error),
                "abort_reason": abort_reason,
                "limit": limit,
            }
    return encoded


def _tool_event(event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "tool_call_id": event.tool_call_id,
        "tool_name": event.tool_name,
        "arguments": _json(event.arguments),
    }
    if isinstance(event, ToolExecutionUpdate):
        encoded |= {
            "partial_result": _result(event.partial_result),
            "path": list(event.path),
            "event": None if event.event is None else event_to_dict(event.event),
        }
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
    """A message as JSON values: ``role``, ``content`` (a list of parts), ``timestamp``, and what its kind has besides.

    Parts have a ``type``: text (text), thinking (thinking, signature, redacted), image (data in base64, mime_type),
    tool_call (id, name, arguments, arguments_error, extra). An assistant message has stop_reason, raw_stop_reason,
    error_message, usage, model and provider; a tool_result has tool_call_id, tool_name and is_error. Fields that a
    subclass of `CustomMessage` added are left out.
    """
    encoded: dict[str, Any] = {"role": message.role, "content": [_part(part) for part in message.content]}
    if isinstance(message, AssistantMessage):
        encoded |= {
            "stop_reason": message.stop_reason,
            "raw_stop_reason": message.raw_stop_reason,
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
        "reasoning_tokens": usage.reasoning_tokens,
    }


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(thinking, signature):
            return {"type": "thinking", "thinking": thinking, "signature": signature, "redacted": part.redacted}
        case Image(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mime_type": mime_type}
        case ToolCall(id, name, arguments):
            return {
                "type": "tool_call",
                "id": id,
                "name": name,
                "arguments": _json(arguments),
                "arguments_error": part.arguments_error,
                "extra": _json(part.extra),
            }


def _result(result: ToolResult) -> dict[str, Any]:
    return {
        "content": [_part(part) for part in result.content],
        "is_error": result.is_error,
        "terminate": result.terminate,
    }


def _json(value: Any) -> Any:
    """Arguments as JSON values. Models do send NaN, which Python's json reads and strict readers refuse."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _error(error: BaseException | None) -> dict[str, str] | None:
    return None if error is None else {"type": type(error).__name__, "message": str(error)}
