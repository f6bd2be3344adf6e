"""Responses of the other quirks that WIRE.md names, made by hand: what must come of each."""

import json
from typing import Any

import pytest
from fake_writer import FakeWriter
from slow_client import SlowClient

from trio_agent import (
    ModelConnectionError,
    ModelProtocolError,
    ModelRefusalError,
    ModelRequest,
    ModelStatusError,
    Usage,
    UserMessage,
)
from trio_agent.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel

HELLO = ModelRequest("", (UserMessage("hello"),))


def events(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


async def play(kind: Any, *values: Any, status: int = 200) -> FakeWriter:
    out = FakeWriter()
    body = values[0] if isinstance(values[0], bytes) else events(*values)
    client = SlowClient((status, {}, [(0, body)]))
    await kind("m", base_url="http://127.0.0.1:1", client=client).stream(HELLO, out)
    return out


# Responses -----------------------------------------------------------------------------------------------------------


def done(status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, "output": [], **more}}


def item(kind: str, type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": 0, "item": {"type": type_, **fields}}


CALL = {"id": "fc", "call_id": "c", "name": "add"}
ARGUMENTS = {"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": '{"a":'}


async def test_a_call_that_was_cut_at_the_length_limit_is_there_and_has_no_arguments() -> None:
    out = await play(
        OpenAIResponsesModel,
        item("added", "function_call", **CALL),
        ARGUMENTS,
        done("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    assert (out.stop, out.raw_stop, out.calls) == ("length", "max_output_tokens", [["c", "add", '{"a":']])


async def test_a_response_that_is_completed_within_a_call_is_none() -> None:
    with pytest.raises(ModelProtocolError, match="in the middle of a function call"):
        await play(OpenAIResponsesModel, item("added", "function_call", **CALL), ARGUMENTS, done())


async def test_a_filtered_response_is_a_refusal() -> None:
    with pytest.raises(ModelRefusalError, match="content_filter"):
        await play(OpenAIResponsesModel, done("incomplete", incomplete_details={"reason": "content_filter"}))


@pytest.mark.parametrize(
    ("event", "code", "retryable"),
    [
        (done("failed", error={"code": "server_error", "message": "boom"}), "server_error", True),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "boom"}, "rate_limit_exceeded", True),
        ({"type": "error", "error": {"code": "bad_thing", "message": "boom"}}, "bad_thing", False),
    ],
)
async def test_failures_in_every_form(event: Any, code: str, retryable: bool) -> None:
    with pytest.raises(ModelStatusError, match="boom") as caught:
        await play(OpenAIResponsesModel, event)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


async def test_reasoning_comes_before_the_text_and_can_go_back() -> None:
    part = {"type": "response.reasoning_summary_part.added", "item_id": "rs"}
    out = await play(
        OpenAIResponsesModel,
        item("added", "reasoning", id="rs"),
        part,
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs", "delta": "one"},
        part,
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs", "delta": "two"},
        item("done", "reasoning", id="rs", encrypted_content="xyz", summary=[]),
        {"type": "response.output_text.delta", "item_id": "m", "delta": "hi"},
        done(),
    )
    assert out.blocks[0][:2] == ["thinking", "one\n\ntwo"]
    assert json.loads(out.blocks[0][2]) == {"id": "rs", "encrypted_content": "xyz"}
    assert out.blocks[1] == ["text", "hi"]


@pytest.mark.parametrize("streams", [False, True])
async def test_what_did_not_stream_is_written_from_the_whole(streams: bool) -> None:
    message = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]}
    call = {"type": "function_call", **CALL, "arguments": '{"a":1}'}
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"object": "response", "status": "completed", "output": [message, call], "usage": usage}
    if streams:
        first = [
            {"type": "response.output_item.done", "output_index": n, "item": i} for n, i in enumerate([message, call])
        ]
        out = await play(OpenAIResponsesModel, *first, {"type": "response.completed", "response": whole})
    else:
        out = await play(OpenAIResponsesModel, json.dumps(whole).encode())
    assert (out.prose("text"), out.calls, out.stop) == ("hi", [["c", "add", {"a": 1}]], "tool_use")
    assert out.extras == [{"item_id": "fc"}]
    assert out.usages == [Usage(3, 2)]


# Anthropic -----------------------------------------------------------------------------------------------------------


def block(index: int, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: int, kind: str, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **content}}


STOP = {"type": "message_stop"}


def reason(why: str, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": why}, "usage": usage}


async def test_thinking_keeps_its_signature_and_calls_their_order() -> None:
    out = await play(
        AnthropicModel,
        block(0, type="thinking", thinking=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        block(1, type="tool_use", id="a", name="add", input={}),
        block(2, type="tool_use", id="b", name="add", input={}),
        delta(2, "input_json_delta", partial_json='{"a": 2}'),
        delta(1, "input_json_delta", partial_json='{"a": 1}'),
        reason("tool_use"),
        STOP,
    )
    assert out.blocks[0] == ["thinking", "hm", "sig"]
    assert out.calls == [["a", "add", {"a": 1}], ["b", "add", {"a": 2}]]
    assert (out.stop, out.raw_stop) == ("tool_use", "tool_use")


async def test_the_last_counts_are_the_totals_and_input_includes_the_cache() -> None:
    start = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
    out = await play(
        AnthropicModel,
        {"type": "message_start", "message": {"usage": start}},
        block(0, type="text", text="hi"),
        reason("end_turn", output_tokens=7),
        STOP,
    )
    assert out.usages[-1] == Usage(125, 7, 100, 20)


@pytest.mark.parametrize("missing", [STOP, reason("end_turn")])
async def test_without_its_last_marks_it_is_incomplete(missing: Any) -> None:
    said = [block(0, type="text", text="hi"), reason("end_turn"), STOP]
    said.remove(missing)
    with pytest.raises(ModelProtocolError, match="it ended before message_stop") as caught:
        await play(AnthropicModel, *said)
    assert caught.value.retryable


async def test_a_message_that_did_not_stream() -> None:
    content = [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "a", "name": "add", "input": {"a": 1}}]
    whole = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 2}}
    out = await play(AnthropicModel, json.dumps(whole).encode())
    assert (out.prose("text"), out.calls, out.stop) == ("hi", [["a", "add", {"a": 1}]], "tool_use")


async def test_an_unknown_reason_is_the_end_and_is_kept() -> None:
    out = await play(AnthropicModel, block(0, type="text", text="hi"), reason("brand_new"), STOP)
    assert (out.stop, out.raw_stop) == ("stop", "brand_new")


# all -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel, AnthropicModel])
@pytest.mark.parametrize(
    ("body", "status", "error", "says"),
    [
        (b"", 200, ModelProtocolError, "incomplete"),
        (b"data:\n\n", 200, ModelProtocolError, "incomplete"),
        (b"<html>hi</html>", 200, ModelProtocolError, "a web page"),
        (b"data: [1]\n\n", 200, ModelProtocolError, "not a JSON object"),
        (b"data: {\n\n", 200, ModelProtocolError, "not JSON"),
        (b'{"detail": "no such model"}', 200, ModelStatusError, "no such model"),
        (b"event: error\ndata: boom\n\n", 200, ModelStatusError, "boom"),
        (b'error: {"message": "boom"}\n\n', 200, ModelStatusError, "boom"),
        (
            b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
            503,
            ModelStatusError,
            "Loading",
        ),
    ],
)
async def test_what_is_no_response_is_an_error_that_says_so(
    kind: Any, body: bytes, status: int, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        await play(kind, body, status=status)


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel, AnthropicModel])
async def test_a_server_that_is_not_there(kind: Any) -> None:
    with pytest.raises(ModelConnectionError, match="cannot connect to"):
        await kind("m", base_url="http://127.0.0.1:1").stream(HELLO, FakeWriter())
