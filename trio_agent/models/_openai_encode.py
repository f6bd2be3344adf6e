"""A `ModelRequest` as the body of OpenAI's ``POST /chat/completions``.

Source: https://platform.openai.com/docs/api-reference/chat/create. Where compatible servers differ, the smallest
common form is used: plain strings instead of part lists, no field that has no value.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

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
from ._options import check_choice, has_only_required, refuse_options, unsendable

__all__ = ["REASONING_FIELDS", "encode_request", "openai_headers"]

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put reasoning. The field's name is kept as the signature of the `Thinking`, so that the text goes
back, under the same name, only to servers that sent it."""

_UNKNOWN = {
    "thinking_budget": "use reasoning_effort, or extra_body for what this server calls it",
    "prompt_caching": "these servers cache by themselves",
}
_OFFICIAL = (".openai.com", ".azure.com")


def openai_headers(key: str, base_url: Any) -> dict[str, str]:
    """How a key is sent: Azure takes one under a name of its own."""
    if not key:
        return {}
    host = urlsplit(base_url).hostname or "" if isinstance(base_url, str) else ""
    return {"api-key": key} if host.endswith(".azure.com") else {"authorization": f"Bearer {key}"}


def encode_request(model: str, request: ModelRequest, options: ModelOptions, *, host: str) -> dict[str, Any]:
    """The JSON body.

    Args:
        model: what the server calls it.
        options: these count, not ``request.options``.
        host: of the server: some want a field by another name, or ids of another form.

    Raises:
        TypeError: a message that has no form here, by its index.
        ValueError: ``options.tool_choice`` names a tool that is not offered; an option has no form here.
    """
    refuse_options(options, "OpenAI's chat protocol", _UNKNOWN)
    body: dict[str, Any] = {
        "model": model,
        "messages": _encode_messages(request, _Target(model, _new_ids(request.messages, host))),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    choice = _encode_choice(options.tool_choice, request.tools)
    if choice is not None:
        body["tool_choice"] = choice
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.max_output_tokens is not None:
        # OpenAI's newer models refuse max_tokens; most other servers know nothing else.
        name = "max_completion_tokens" if host.endswith(_OFFICIAL) else "max_tokens"
        body[name] = options.max_output_tokens
    if options.stop_sequences:
        body["stop"] = list(options.stop_sequences)
    if options.reasoning_effort is not None:
        body["reasoning_effort"] = options.reasoning_effort
    if options.response_schema is not None:
        body["response_format"] = _encode_schema(options.response_schema)
    body.update(options.extra_body)
    return body


def _encode_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    # strict mode knows no optional property; servers refuse a schema that has one
    described = {"name": "result", "schema": schema, "strict": has_only_required(schema)}
    return {"type": "json_schema", "json_schema": described}


def _encode_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _encode_choice(choice: str | None, tools: tuple[Tool, ...]) -> str | dict[str, Any] | None:
    choice = check_choice(choice, tools)
    if choice in [tool.name for tool in tools]:
        return {"type": "function", "function": {"name": choice}}
    return choice


def _new_ids(messages: tuple[Message, ...], host: str) -> Mapping[str, str]:
    if host.endswith(".mistral.ai"):
        return call_ids(messages, "[a-zA-Z0-9]{9}", "{}", 9)
    return call_ids(messages, ".{1,40}" if host.endswith(_OFFICIAL) else "(?s).+")


class _Target(NamedTuple):
    """Who is sent the transcript: the model, and the ids that its server takes for others."""

    model: str
    ids: Mapping[str, str]

    def wrote(self, message: AssistantMessage) -> bool:
        """Was it this model? What it wants back means nothing to another one, and may be refused by its server."""
        return message.provider in ("", "openai", "local") and message.model in ("", self.model)


def _encode_messages(request: ModelRequest, to: _Target) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []

    def flush_images() -> None:
        # A tool message cannot hold an image, and nothing may stand between the answers to one message's calls.
        if images:
            encoded.append({"role": "user", "content": list(images)})
            images.clear()

    if request.system_prompt:
        encoded.append({"role": "system", "content": request.system_prompt})
    for index, message in enumerate(request.messages):
        if isinstance(message, ToolResultMessage):
            encoded.append(_encode_result(message, images, to))
            continue
        flush_images()
        encoded.extend(_encode_message(message, index, to))
    flush_images()
    return encoded


def _encode_message(message: Message, index: int, to: _Target) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": _encode_user_content(message.content, index)}]
    if isinstance(message, AssistantMessage):
        return _encode_assistant(message, to)
    raise unsendable(index, message)


def _encode_user_content(parts: tuple[Part, ...], index: int) -> str | list[dict[str, Any]]:
    content = [_encode_part(part, index) for part in parts]
    if len(content) > 1 or any(part["type"] != "text" for part in content):
        return content
    return "".join(part["text"] for part in content)


def _encode_part(part: Part, index: int) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        return _encode_image(part)
    raise TypeError(f"messages[{index}]: a user message cannot hold a {type(part).__name__}")


def _encode_image(image: Image) -> dict[str, Any]:
    url = f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _encode_assistant(message: AssistantMessage, to: _Target) -> list[dict[str, Any]]:
    calls = message.tool_calls
    text = message.text
    if not text and not calls:
        return []  # a response that failed before its first word; servers refuse empty messages
    encoded: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        encoded["tool_calls"] = [_encode_call(call, to.wrote(message), to) for call in calls]
        # DeepSeek wants the reasoning back with tool calls, and refuses it elsewhere.
        for field in REASONING_FIELDS if to.wrote(message) else ():
            parts = [
                part.thinking for part in message.content if isinstance(part, Thinking) and part.signature == field
            ]
            if parts:
                encoded[field] = "".join(parts)
    return [encoded]


def _encode_call(call: ToolCall, own: bool, to: _Target) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _compact(call.arguments)}
    return {**(call.extra if own else {}), "id": to.ids.get(call.id, call.id), "type": "function", "function": function}


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)


def _encode_result(message: ToolResultMessage, images: list[dict[str, Any]], to: _Target) -> dict[str, Any]:
    pictures = [part for part in message.content if isinstance(part, Image)]
    if pictures:
        note = f"Images from the result of tool call {message.tool_call_id} ({message.tool_name}):"
        images.append({"type": "text", "text": note})
        images.extend(map(_encode_image, pictures))
    text = message.text or ("(see the images below)" if pictures else "(no output)")
    if message.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"  # the protocol has no other sign of it
    return {"role": "tool", "tool_call_id": to.ids.get(message.tool_call_id, message.tool_call_id), "content": text}
