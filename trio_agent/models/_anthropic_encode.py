"""A `ModelRequest` as the body of Anthropic's ``POST /v1/messages``.

Source: https://platform.claude.com/docs/en/api/messages
"""

import base64
from collections.abc import Mapping
from typing import Any

from trio_agent._frozen import thaw
from trio_agent._messages import (
    AssistantMessage,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.abc import ModelOptions, ModelRequest, Tool

from ._ids import call_ids
from ._options import check_choice, refuse_options, unsendable

__all__ = ["encode_request"]

_MAX_TOKENS = 8192
_LEGAL_ID = "[a-zA-Z0-9_-]+"
_UNKNOWN = {"temperature": "older models and proxies take extra_body={'temperature': ...}"}
_LEFT_OUT = "(What was said before is not shown.)"


def encode_request(model: str, request: ModelRequest, options: ModelOptions, *, provider: str) -> dict[str, Any]:
    """The JSON body.

    Args:
        model: what the server calls it.
        options: these count, not ``request.options``.
        provider: whose reasoning can go back; that of others is left out, for its signature is no good here.

    Raises:
        TypeError: a message that has no form here, by its index.
        ValueError: ``options.tool_choice`` names a tool that is not offered; an option has no form here.
    """
    refuse_options(options, "Anthropic's API", _UNKNOWN)
    thinks = options.thinking_budget or 0
    body: dict[str, Any] = {
        "model": model,
        # the protocol has no default; thinking is part of it
        "max_tokens": options.max_output_tokens or _MAX_TOKENS + thinks,
        "messages": _encode_messages(request.messages, provider),
        "stream": True,
    }
    if request.system_prompt:
        body["system"] = [{"type": "text", "text": request.system_prompt}]
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    choice = check_choice(options.tool_choice, request.tools)
    if choice is not None:
        kinds = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
        named = {tool.name: {"type": "tool", "name": tool.name} for tool in request.tools}
        body["tool_choice"] = {**kinds, **named}[choice]
    if options.stop_sequences:
        body["stop_sequences"] = list(options.stop_sequences)
    if thinks:
        body["thinking"] = {"type": "enabled", "budget_tokens": thinks}
    config: dict[str, Any] = {}
    if options.reasoning_effort is not None:
        config["effort"] = options.reasoning_effort
    if options.response_schema is not None:
        config["format"] = {"type": "json_schema", "schema": thaw(options.response_schema)}
    if config:
        body["output_config"] = config
    if options.prompt_caching is not None:
        _mark_for_cache(body, options.prompt_caching)
    body.update(options.extra_body)
    return body


def _mark_for_cache(body: dict[str, Any], ttl: str) -> None:
    """The end of everything that will come again: the tools, the system prompt, the messages so far."""
    mark = {"type": "ephemeral", "ttl": ttl}
    for block in (body.get("tools", [])[-1:], body.get("system", [])[-1:]):
        for last in block:
            last["cache_control"] = mark
    for message in body["messages"][-1:]:
        markable = [part for part in message["content"] if part["type"] not in ("thinking", "redacted_thinking")]
        for last in markable[-1:]:
            last["cache_control"] = mark


def _encode_tool(tool: Tool) -> dict[str, Any]:
    schema = {"type": "object", **thaw(tool.parameters)}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _encode_messages(messages: tuple[Message, ...], provider: str) -> list[dict[str, Any]]:
    ids = call_ids(messages, _LEGAL_ID)
    encoded: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        content = _encode_content(message, index, ids, provider)
        if not content:
            continue  # a response that failed before its first word; the server refuses empty messages
        if encoded and encoded[-1]["role"] == role:
            encoded[-1]["content"] += content
        else:
            encoded.append({"role": role, "content": content})
    if encoded and encoded[0]["role"] == "assistant":
        encoded.insert(0, {"role": "user", "content": [{"type": "text", "text": _LEFT_OUT}]})
    return encoded


def _encode_content(message: Message, index: int, ids: Mapping[str, str], provider: str) -> list[dict[str, Any]]:
    if isinstance(message, ToolResultMessage):
        return [_encode_result(message, index, ids)]
    if isinstance(message, AssistantMessage):
        own = message.provider == provider
        blocks = [_encode_own(part, ids, own) for part in message.content]
        return [block for block in blocks if block is not None]
    if isinstance(message, UserMessage):
        return [_encode_part(part, index) for part in message.content if not _is_blank(part)]
    raise unsendable(index, message)


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()  # refused by the server


def _encode_part(part: Part, index: int) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        data = base64.b64encode(part.data).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": data}}
    raise TypeError(f"messages[{index}]: a user message cannot hold a {type(part).__name__}")


def _encode_own(part: Part, ids: Mapping[str, str], own: bool) -> dict[str, Any] | None:
    """A part of an assistant message; None if it has no form here."""
    match part:
        case Text(text):
            return None if not text.strip() else {"type": "text", "text": text}
        case ToolCall(id, name, arguments):
            return {"type": "tool_use", "id": ids.get(id, id), "name": name, "input": thaw(arguments)}
        case Thinking(thinking, signature) if own and signature:
            if part.redacted:
                return {"type": "redacted_thinking", "data": signature}
            return {"type": "thinking", "thinking": thinking, "signature": signature}
    return None


def _encode_result(message: ToolResultMessage, index: int, ids: Mapping[str, str]) -> dict[str, Any]:
    content = [_encode_part(part, index) for part in message.content if not _is_blank(part)]
    id = message.tool_call_id
    return {
        "type": "tool_result",
        "tool_use_id": ids.get(id, id),
        "content": content or [{"type": "text", "text": "(no output)"}],
        "is_error": message.is_error,
    }
