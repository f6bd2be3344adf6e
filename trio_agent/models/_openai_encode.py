"""A `ModelRequest` as the body of OpenAI's ``POST /chat/completions``.

Source: https://platform.openai.com/docs/api-reference/chat/create. Where compatible servers differ, the smallest
common form is used: plain strings instead of part lists, no field that has no value.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

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

__all__ = ["REASONING_FIELDS", "encode_request", "merge_options"]

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put reasoning. The field's name is kept as the signature of the `Thinking`, so that the text goes
back, under the same name, only to servers that sent it."""

_BUILT_IN_CHOICES = frozenset({"auto", "none", "required"})


def merge_options(base: ModelOptions, request: ModelOptions) -> ModelOptions:
    """The request's options, and the model's where the request leaves one open; extras are merged by key."""
    chosen = {
        field.name: getattr(request, field.name) or getattr(base, field.name)
        if field.name == "stop_sequences"
        else _first_given(getattr(request, field.name), getattr(base, field.name))
        for field in attrs.fields(ModelOptions)
    }
    chosen["extra_body"] = {**base.extra_body, **request.extra_body}
    chosen["extra_headers"] = {**base.extra_headers, **request.extra_headers}
    return ModelOptions(**chosen)


def _first_given(first: Any, second: Any) -> Any:
    return second if first is None else first


def encode_request(
    model: str, request: ModelRequest, options: ModelOptions, *, max_tokens_field: str
) -> dict[str, Any]:
    """The JSON body.

    Args:
        model: what the server calls it.
        options: these count, not ``request.options``.
        max_tokens_field: how the server spells the limit of output tokens.

    Raises:
        TypeError: a message that has no form here, by its index.
        ValueError: ``options.tool_choice`` names a tool that is not offered.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": _encode_messages(request),
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
        body[max_tokens_field] = options.max_output_tokens
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
    described = {"name": "result", "schema": schema, "strict": _has_only_required(schema)}
    return {"type": "json_schema", "json_schema": described}


def _has_only_required(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(_has_only_required(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(properties) != set(schema.get("required", ())):
            return False
    return all(_has_only_required(item) for name, item in schema.items() if name not in ("default", "enum", "const"))


def _encode_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _encode_choice(choice: str | None, tools: tuple[Tool, ...]) -> str | dict[str, Any] | None:
    if choice is None or (not tools and choice in ("auto", "none")):
        return None  # servers refuse a tool_choice without tools
    names = [tool.name for tool in tools]
    if choice in names:
        return {"type": "function", "function": {"name": choice}}
    if choice in _BUILT_IN_CHOICES and tools:
        return choice
    raise ValueError(
        f"options.tool_choice is {choice!r}, but the request offers {names or 'no tools'}; "
        "use 'auto', 'none', 'required' or the name of an offered tool"
    )


def _encode_messages(request: ModelRequest) -> list[dict[str, Any]]:
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
            encoded.append(_encode_result(message, images))
            continue
        flush_images()
        encoded.extend(_encode_message(message, index))
    flush_images()
    return encoded


def _encode_message(message: Message, index: int) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": _encode_user_content(message.content, index)}]
    if isinstance(message, AssistantMessage):
        return _encode_assistant(message)
    raise TypeError(
        f"messages[{index}] is a {type(message).__name__}, which a model cannot be sent; "
        "convert_to_llm must drop it or turn it into a UserMessage"
    )


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


def _encode_assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    calls = message.tool_calls
    text = message.text
    if not text and not calls:
        return []  # a response that failed before its first word; servers refuse empty messages
    encoded: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        encoded["tool_calls"] = [_encode_call(call) for call in calls]
        # DeepSeek wants the reasoning back with tool calls, and refuses it elsewhere.
        for field in REASONING_FIELDS:
            parts = [
                part.thinking for part in message.content if isinstance(part, Thinking) and part.signature == field
            ]
            if parts:
                encoded[field] = "".join(parts)
    return [encoded]


def _encode_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _compact(call.arguments)}}


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)


def _encode_result(message: ToolResultMessage, images: list[dict[str, Any]]) -> dict[str, Any]:
    pictures = [part for part in message.content if isinstance(part, Image)]
    if pictures:
        note = f"Images from the result of tool call {message.tool_call_id} ({message.tool_name}):"
        images.append({"type": "text", "text": note})
        images.extend(map(_encode_image, pictures))
    text = message.text or ("(see the images below)" if pictures else "(no output)")
    if message.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"  # the protocol has no other sign of it
    return {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
