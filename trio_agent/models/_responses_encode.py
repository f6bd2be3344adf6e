"""A `ModelRequest` as the body of OpenAI's ``POST /responses``. Nothing is kept by the server (``store`` is false): the
transcript is ours.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

import base64
import json
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
from ._options import check_choice, has_only_required, refuse_options, unsendable
from ._responses_decode import ITEM_ID

__all__ = ["encode_request"]

_UNKNOWN = {
    "stop_sequences": "cut the text yourself, or use OpenAIChatModel",
    "thinking_budget": "use reasoning_effort",
    "prompt_caching": "this server caches by itself",
}


def encode_request(model: str, request: ModelRequest, options: ModelOptions, *, provider: str) -> dict[str, Any]:
    """The JSON body.

    Args:
        model: what the server calls it.
        options: these count, not ``request.options``.
        provider: whose reasoning and item ids can go back; those of others mean nothing here.

    Raises:
        TypeError: a message that has no form here, by its index.
        ValueError: an option has no form here; ``options.tool_choice`` names a tool that is not offered.
    """
    refuse_options(options, "OpenAI's Responses", _UNKNOWN)
    body: dict[str, Any] = {
        "model": model,
        "input": _encode_messages(request.messages, provider),
        "stream": True,
        "store": False,
    }
    if request.system_prompt:
        body["instructions"] = request.system_prompt
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    choice = check_choice(options.tool_choice, request.tools)
    if choice is not None:
        named = choice in [tool.name for tool in request.tools]
        body["tool_choice"] = {"type": "function", "name": choice} if named else choice
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.max_output_tokens is not None:
        body["max_output_tokens"] = options.max_output_tokens
    if options.reasoning_effort is not None:
        body["reasoning"] = {"effort": options.reasoning_effort, "summary": "auto"}
        # without it, reasoning cannot go back to a server that keeps nothing
        body["include"] = ["reasoning.encrypted_content"]
    if options.response_schema is not None:
        schema = thaw(options.response_schema)
        strict = has_only_required(schema)
        body["text"] = {"format": {"type": "json_schema", "name": "result", "schema": schema, "strict": strict}}
    body.update(options.extra_body)
    return body


def _encode_tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": thaw(tool.parameters),
        "strict": False,
    }


def _encode_messages(messages: tuple[Message, ...], provider: str) -> list[dict[str, Any]]:
    ids = call_ids(messages, "(?s).{1,64}")
    encoded: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if isinstance(message, UserMessage):
            content = [_encode_part(part, index) for part in message.content]
            encoded.append({"type": "message", "role": "user", "content": content})
        elif isinstance(message, AssistantMessage):
            encoded.extend(_encode_assistant(message, ids, provider))
        elif isinstance(message, ToolResultMessage):
            encoded.append(_encode_result(message, index, ids))
        else:
            raise unsendable(index, message)
    return encoded


def _encode_part(part: Part, index: int) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Image):
        url = f"data:{part.mime_type};base64,{base64.b64encode(part.data).decode()}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    raise TypeError(f"messages[{index}]: a user message cannot hold a {type(part).__name__}")


def _encode_assistant(message: AssistantMessage, ids: Mapping[str, str], provider: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    reasons = False
    for part in message.content:
        match part:
            case Text(text) if text:
                items.append({"type": "message", "role": "assistant", "content": text})
            case Thinking(thinking, str() as signature) if message.provider == provider:
                if (item := _reasoning(thinking, signature)) is not None:
                    reasons = True
                    items.append(item)
            case ToolCall(id, name, arguments):
                call = {"type": "function_call", "call_id": ids.get(id, id), "name": name}
                call["arguments"] = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
                # an item's own id is only good beside the reasoning it came with
                if reasons and message.provider == provider and ITEM_ID in part.extra:
                    call["id"] = part.extra[ITEM_ID]
                items.append(call)
    return items


def _reasoning(thinking: str, signature: str) -> dict[str, Any] | None:
    try:
        kept = json.loads(signature)
    except ValueError:
        return None
    if not isinstance(kept, dict) or "id" not in kept:
        return None
    summary = [{"type": "summary_text", "text": thinking}] if thinking else []
    return {"type": "reasoning", **kept, "summary": summary}


def _encode_result(message: ToolResultMessage, index: int, ids: Mapping[str, str]) -> dict[str, Any]:
    text = message.text or "(no output)"
    if message.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"  # the protocol has no other sign of it
    output: str | list[dict[str, Any]] = text
    if any(isinstance(part, Image) for part in message.content):
        output = [_encode_part(part, index) for part in message.content]
    id = message.tool_call_id
    return {"type": "function_call_output", "call_id": ids.get(id, id), "output": output}
