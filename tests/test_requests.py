"""Requests of all three protocols: every kind of message, valid by the types that the providers' own clients state."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import attrs
import pydantic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from trio_agent import (
    AssistantMessage,
    CustomMessage,
    Image,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.abc import ModelOptions, ModelRequest
from trio_agent.models import _anthropic_encode, _openai_encode, _responses_encode

PNG = Image(b"\x89PNG", "image/png")
DATA = base64.b64encode(PNG.data).decode()


async def nothing(arguments: Any, context: Any) -> None: ...


ADD = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, nothing)
NOW = Tool("now", "The time.", {}, nothing)
CALLS = (
    ToolCall("c1", "add", {"a": 1}, extra={"extra_content": {"google": {"thought_signature": "s"}}}),
    ToolCall("c2", "now"),
)
RESULTS = (
    ToolResultMessage("c1", "add", (Text("2"), PNG)),
    ToolResultMessage("c2", "now", "no clock", is_error=True),
)


def thought_by(provider: str, signature: str, **rest: Any) -> AssistantMessage:
    return AssistantMessage((Thinking("hm", signature, **rest), Text("Let me see."), *CALLS), provider=provider)


def history(thought: AssistantMessage) -> tuple[Any, ...]:
    return (
        UserMessage((Text("look"), PNG)),
        thought,
        *RESULTS,
        AssistantMessage("", "error", "it broke"),
        AssistantMessage("So."),
        UserMessage("go on"),
        AssistantMessage((Text("first half"),), "pause"),
    )


REASONING = json.dumps({"id": "rs_1", "encrypted_content": "xyz"})
ITEM = {"item_id": "fc_1"}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
ALL = ModelOptions(
    temperature=0.5,
    max_output_tokens=99,
    reasoning_effort="low",
    response_schema=SCHEMA,
    tool_choice="add",
)


def chat(request: ModelRequest, options: ModelOptions = ModelOptions(), host: str = "x") -> dict[str, Any]:  # noqa: B008
    return _openai_encode.encode_request("m", request, options, host=host)


def claude(request: ModelRequest, options: ModelOptions = ModelOptions()) -> dict[str, Any]:  # noqa: B008
    return _anthropic_encode.encode_request("m", request, options, provider="anthropic")


def responses(request: ModelRequest, options: ModelOptions = ModelOptions()) -> dict[str, Any]:  # noqa: B008
    return _responses_encode.encode_request("m", request, options, provider="openai-responses")


ENCODERS = {
    "chat": (chat, CompletionCreateParamsStreaming, "openai", "reasoning_content"),
    "anthropic": (claude, MessageCreateParamsStreaming, "anthropic", "sig"),
    "responses": (responses, ResponseCreateParamsStreaming, "openai-responses", REASONING),
}
ADAPTERS = {protocol: pydantic.TypeAdapter(entry[1]) for protocol, entry in ENCODERS.items()}
# what servers want beyond the published types
BEYOND = {"reasoning_content", "extra_content"}


def plain(value: Any) -> Any:
    """Validated values as they were sent; what a type does not know has been dropped from them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [plain(item) for item in value]


def known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: known(item) for key, item in value.items() if key not in BEYOND}
    return [known(item) for item in value] if isinstance(value, list) else value


def check(protocol: str, body: dict[str, Any]) -> None:
    sent = json.loads(json.dumps(body))
    validated = ADAPTERS[protocol].validate_python(sent)
    assert plain(validated) == known(sent)


@pytest.mark.parametrize("protocol", ENCODERS)
@pytest.mark.parametrize("source", ["openai", "anthropic", "openai-responses", ""])
def test_every_kind_of_message_is_valid_whoever_wrote_the_transcript(protocol: str, source: str) -> None:
    signature = {"openai": "reasoning_content", "anthropic": "sig", "openai-responses": REASONING, "": None}[source]
    encode, _, own, _ = ENCODERS[protocol]
    messages = history(thought_by(source, signature))  # type: ignore[arg-type]
    body = encode(ModelRequest("Be brief.", messages, (ADD, NOW)))  # type: ignore[operator]
    check(protocol, body)
    text = json.dumps(body)
    # reasoning goes back to whom it came from, and to nobody else
    assert ("hm" in text) == (source == own)
    assert "it broke" not in text
    assert DATA in text
    for said in ("look", "Let me see.", "no clock", "So.", "go on", "first half"):
        assert said in text


@pytest.mark.parametrize("protocol", ENCODERS)
def test_every_option_is_valid(protocol: str) -> None:
    encode = ENCODERS[protocol][0]
    request = ModelRequest("s", (UserMessage("hi"),), (ADD, NOW))
    for choice in (None, "auto", "none", "required", "add"):
        check(protocol, encode(request, ModelOptions(tool_choice=choice)))  # type: ignore[operator]
    # Anthropic's API has no temperature any more
    given = attrs.evolve(ALL, temperature=None) if protocol == "anthropic" else ALL
    body = encode(request, given)  # type: ignore[operator]
    check(protocol, body)
    assert ("0.5" in json.dumps(body)) == (protocol != "anthropic")
    extra = encode(request, ModelOptions(extra_body={"top_k": 3, "model": "other"}))  # type: ignore[operator]
    assert (extra["top_k"], extra["model"]) == (3, "other")
    with pytest.raises(ValueError, match="tool_choice is 'sub'"):
        encode(request, ModelOptions(tool_choice="sub"))  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"messages\[0\] is a CustomMessage"):
        encode(ModelRequest("", (CustomMessage("x"),)))  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"messages\[0\]: a user message cannot hold a ToolCall"):
        encode(ModelRequest("", (UserMessage(ToolCall("c", "add")),)))  # type: ignore[operator]


def test_what_anthropic_has_no_such_thing_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"options.temperature: Anthropic's API has no such thing; .* extra_body="):
        claude(ModelRequest("", (UserMessage("x"),)), ModelOptions(temperature=0))


def test_anthropics_own_options() -> None:
    request = ModelRequest("s", (UserMessage("hi"), AssistantMessage(CALLS), *RESULTS), (ADD, NOW))
    options = ModelOptions(thinking_budget=2000, stop_sequences=("x",), prompt_caching="1h")
    body = claude(request, options)
    check("anthropic", body)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert body["max_tokens"] > 2000
    assert claude(request)["max_tokens"] == 8192
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert body["tools"][-1]["cache_control"] == mark
    assert body["system"][-1]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark
    assert json.dumps(body).count("cache_control") == 3
    assert "cache_control" not in json.dumps(claude(request))


def test_hidden_reasoning_goes_back() -> None:
    message = AssistantMessage((Thinking("", "opaque", redacted=True), Text("x")), provider="anthropic")
    request = ModelRequest("", (UserMessage("hi"), message, UserMessage("go on")))
    assert claude(request)["messages"][1]["content"][0] == {"type": "redacted_thinking", "data": "opaque"}
    assert "opaque" not in json.dumps([chat(request), responses(request)])


def test_reasoning_items_and_the_calls_that_belong_to_them() -> None:
    call = ToolCall("c1", "add", {"a": 1}, extra=ITEM)
    beside = AssistantMessage((Thinking("hm", REASONING), call), provider="openai-responses")
    alone = AssistantMessage(call, provider="openai-responses")
    first, second = responses(ModelRequest("", (beside,)))["input"]
    assert first == {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "xyz",
        "summary": [{"type": "summary_text", "text": "hm"}],
    }
    assert second["id"] == "fc_1"
    assert "id" not in responses(ModelRequest("", (alone,)))["input"][0]
    assert "fc_1" not in json.dumps([chat(ModelRequest("", (beside,))), claude(ModelRequest("", (beside,)))])


@pytest.mark.parametrize(
    ("model", "provider", "back"), [("m", "openai", True), ("n", "openai", False), ("m", "x", False)]
)
def test_what_a_model_wants_back_goes_back_to_it_only(model: str, provider: str, back: bool) -> None:
    message = AssistantMessage((Thinking("hm", "reasoning_content"), *CALLS), model=model, provider=provider)
    text = json.dumps(chat(ModelRequest("", (UserMessage("hi"), message, *RESULTS))))
    assert ("thought_signature" in text) == ("reasoning_content" in text) == back


@pytest.mark.parametrize(
    ("host", "id", "legal"),
    [
        ("api.mistral.ai", "call_1234567890", "[a-zA-Z0-9]{9}"),
        ("api.mistral.ai", "abcdef123", "abcdef123"),
        ("api.openai.com", "x" * 41, "call_[0-9a-f]{24}"),
        ("x.example", "x" * 300, "x{300}"),
        ("anthropic", "call:1|fc_2", "call_[0-9a-f]{24}"),
        ("responses", "y" * 65, "call_[0-9a-f]{24}"),
    ],
)
def test_ids_are_made_valid_for_the_target_in_pairs(host: str, id: str, legal: str) -> None:
    request = ModelRequest(
        "", (UserMessage("x"), AssistantMessage(ToolCall(id, "add")), ToolResultMessage(id, "add", "1"))
    )
    match host:
        case "anthropic":
            _, first, second = claude(request)["messages"]
            pair = first["content"][0]["id"], second["content"][0]["tool_use_id"]
        case "responses":
            _, first, second = responses(request)["input"]
            pair = first["call_id"], second["call_id"]
        case _:
            _, first, second = chat(request, host=host)["messages"]
            pair = first["tool_calls"][0]["id"], second["tool_call_id"]
    assert pair[0] == pair[1]
    assert re.fullmatch(legal, pair[0])


def test_anthropic_wants_turns_that_alternate_and_begin_with_the_user() -> None:
    messages = (
        AssistantMessage("a"),
        AssistantMessage("b"),
        UserMessage("c"),
        UserMessage(("  ",) and Text("  ")),
        UserMessage("d"),
    )
    body = claude(ModelRequest("", messages))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [part["text"] for part in body["messages"][2]["content"]] == ["c", "d"]
    check("anthropic", body)


def test_what_the_responses_have_no_such_thing_for_is_refused() -> None:
    request = ModelRequest("", (UserMessage("x"),))
    for options in (
        ModelOptions(stop_sequences=("x",)),
        ModelOptions(thinking_budget=1),
        ModelOptions(prompt_caching="5m"),
    ):
        with pytest.raises(ValueError, match=r"options\.\w+: OpenAI's Responses has no such thing"):
            responses(request, options)
