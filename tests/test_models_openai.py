import gc
import json
import logging
import traceback
from pathlib import Path

import msgspec
import pytest
import trio
from fake_writer import FakeWriter
from loopback import Reply, at_blank_lines, serve

from trio_agent._errors import ModelProtocolError, ModelRefusalError, ModelStatusError
from trio_agent._messages import (
    AssistantMessage,
    CustomMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from trio_agent._parameters import closed_schema
from trio_agent.abc import Model, ModelOptions, ModelRequest, Tool
from trio_agent.models import OpenAIChatModel
from trio_agent.models._openai_decode import ChatChunks
from trio_agent.models._openai_encode import encode_request, openai_headers
from trio_agent.models._options import merge_options
from trio_agent.models._sse import SSEEvent

WIRE = Path(__file__).parent / "wire"
HELLO = ModelRequest("", (UserMessage("hello"),))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


async def nothing(arguments, context):
    return ""


ADD = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}, nothing)


@pytest.mark.parametrize("fixture", ["base_text", "base_tool", "tool_no_index_two_calls_separate_chunks"])
@pytest.mark.parametrize("kept", [False, True])
async def test_cancelled_at_every_write(fixture, kept):
    body = (WIRE / f"{fixture}.sse").read_bytes()
    whole = FakeWriter()
    async with serve(Reply(at_blank_lines(body))) as server:
        model = OpenAIChatModel("m1", base_url=server.url)
        await model.stream(HELLO, whole)
        for stop_at in range(1, 100):
            with trio.CancelScope() as scope:
                left = stop_at

                def on_write(scope: trio.CancelScope = scope) -> None:
                    nonlocal left
                    left -= 1
                    if not left:
                        scope.cancel()

                out = FakeWriter(on_write)
                if kept:
                    async with model:
                        await model.stream(HELLO, out)
                else:
                    await model.stream(HELLO, out)
            gc.collect()  # an async generator left behind is a ResourceWarning, and that is an error here
            await server.wait_open(0)
            assert model._http.limiter.borrowed_tokens == 0
            if left > 0:
                break
            assert scope.cancelled_caught
            assert out.blocks == whole.blocks[: len(out.blocks) - 1] + out.blocks[-1:]
        assert out.blocks == whole.blocks
        assert out.stop == whole.stop


# --- chunks, without a server


async def play(*chunks, end: bool = True) -> FakeWriter:
    """Feed chunks: a dict is a whole chunk; a list is the tool_calls of one; a string is a finish_reason."""
    out = FakeWriter()
    decoder = ChatChunks(out, "http://x", lambda text: text)
    for chunk in chunks:
        if isinstance(chunk, list):
            chunk = {"choices": [{"index": 0, "delta": {"tool_calls": chunk}}]}
        elif isinstance(chunk, str):
            chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": chunk}]}
        await decoder.event(SSEEvent("message", json.dumps(chunk)))
    if end:
        await decoder.end()
    return out


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields}]}


def call(arguments=None, *, name=None, **fields):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fields, "function": function}


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        # interleaved: each keeps its own arguments, and each is written in one piece
        (
            [
                [call('{"a"', index=0, id="c1", name="x"), call('{"b"', index=1, id="c2", name="y")],
                [call(":1}", index=0), call(":2}", index=1)],
            ],
            [["c1", "x", {"a": 1}], ["c2", "y", {"b": 2}]],
        ),
        (
            [
                [call("{", index=1, id="c1", name="x")],
                [call("{}", index=7, id="c2", name="y")],
                [call("{}", index=3, id="c3", name="z")],
                [call("}", index=1)],
            ],
            [["c1", "x", {}], ["c2", "y", {}], ["c3", "z", {}]],
        ),
        # every call with index 0: in one chunk; with the arguments in pieces; without arguments
        (
            [[call('{"a":1}', index=0, id="c1", name="x"), call('{"a":2}', index=0, id="c2", name="x")]],
            [["c1", "x", {"a": 1}], ["c2", "x", {"a": 2}]],
        ),
        (
            [
                [call('{"a":', index=0, id="c1", name="x")],
                [call("1}", index=0)],
                [call('{"a":', index=0, id="c2", name="x")],
                [call("2}", index=0)],
            ],
            [["c1", "x", {"a": 1}], ["c2", "x", {"a": 2}]],
        ),
        (
            [[call("", index=0, id="c1", name="x")], [call("", index=0, id="c2", name="y")]],
            [["c1", "x", {}], ["c2", "y", {}]],
        ),
        # no index and no id: whole calls after each other, and side by side
        ([[call('{"a":1}', name="x")], [call('{"a":2}', name="x")]], [[None, "x", {"a": 1}], [None, "x", {"a": 2}]]),
        ([[call("{}", name="x"), call("{}", name="y")]], [[None, "x", {}], [None, "y", {}]]),
        ([[call('{"a":', name="x")], [call("1}", name="x")]], [[None, "x", {"a": 1}]]),
        # no index, ids that come back
        (
            [
                [call('{"a":', id="c1", name="x")],
                [call('{"b":', id="c2", name="y")],
                [call("1}", id="c1")],
                [call("2}", id="c2")],
            ],
            [["c1", "x", {"a": 1}], ["c2", "y", {"b": 2}]],
        ),
        # the id is new with every delta, the name repeated or not
        (
            [
                [call('{"a"', index=0, id="c1", name="x")],
                [call(":", index=0, id="c2", name="x")],
                [call("1}", index=0, id="c3")],
            ],
            [["c1", "x", {"a": 1}]],
        ),
        # the id, or all of it, comes late
        (
            [[call('{"a":1}', index=0)], [call(index=0, id="c1", name="x")]],
            [["c1", "x", {"a": 1}]],
        ),
        ([[call('{"a":1}', index=0, name="x")], [call("", index=0, id="c9")]], [[None, "x", {"a": 1}]]),
        # arguments of other kinds
        ([[call({"a": {"b": [1]}}, id="c1", name="x")]], [["c1", "x", {"a": {"b": [1]}}]]),
        ([[call("null", index=0, id="c1", name="x")]], [["c1", "x", {}]]),
        ([[call("nu", index=0, id="c1", name="x")], [call("ll", index=0)]], [["c1", "x", {}]]),
        ([[call("nul", index=0, id="c1", name="x")]], [["c1", "x", "nul"]]),
        ([[call(" \n", index=0, id="c1", name="x")]], [["c1", "x", {}]]),
        ([[call('{}{"a":1}', index=0, id="c1", name="x")]], [["c1", "x", '{}{"a":1}']]),
        ([[call([1], index=0, id="c1", name="x")]], [["c1", "x", [1]]]),
        # rubbish beside a call
        ([[None, 3, {"index": 0, "function": None}, call("{}", index=1, id="c1", name="x")]], [["c1", "x", {}]]),
        # the deprecated form, alone
        (
            [delta(function_call={"name": "x", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"})],
            [[None, "x", {"a": 1}]],
        ),
    ],
)
async def test_calls(chunks, calls):
    out = await play(*chunks, "tool_calls")
    assert [[wanted[0] and got[0], *got[1:]] for got, wanted in zip(out.calls, calls, strict=True)] == calls
    assert all(id for id, _, _ in out.calls)
    assert len({id for id, _, _ in out.calls}) == len(calls)
    assert out.stop == "tool_use"


async def test_the_first_call_is_live_and_the_next_one_as_soon_as_it_can_be():
    out = FakeWriter()
    decoder = ChatChunks(out, "http://x", lambda text: text)

    async def feed(*entries) -> list[str]:
        await decoder.event(SSEEvent("message", json.dumps(delta(tool_calls=list(entries)))))
        return [block[1] for block in out.blocks]

    assert await feed(call('{"a"', index=0, id="c1", name="x")) == ['{"a"']
    assert await feed(call('{"b"', index=1, id="c2", name="y")) == ['{"a"']
    assert await feed(call(":1}", index=0)) == ['{"a":1}', '{"b"']
    assert await feed(call(":2}", index=1)) == ['{"a":1}', '{"b":2}']


async def test_text_amid_a_call_waits_for_its_end():
    out = await play(
        delta(content="before"),
        [call('{"a":', index=0, id="c1", name="x")],
        delta(content="amid"),
        [call("1}", index=0)],
        delta(content=" and after"),
        "stop",
    )
    assert [block[:2] for block in out.blocks] == [["text", "before"], ["call", '{"a":1}'], ["text", "amid and after"]]
    assert out.stop == "tool_use"


@pytest.mark.parametrize(
    "chunks",
    [
        [[call("{}", index=0, id="c1")]],  # no name at all
        [[call("{}", index=0, id="c1", name="x"), call("{}", index=1, id="c1", name="x")]],  # one id, two calls
        [
            [call("{}", index=0, id="c1", name="x")],
            [call("{}", index=1, id="c2", name="x")],
            [call("{}", index=0)],  # more, after the end
        ],
    ],
)
async def test_illegal_calls(chunks):
    with pytest.raises(ModelProtocolError):
        await play(*chunks, "tool_calls")


async def test_a_nameless_call_at_the_length_limit_is_no_fault():
    out = await play([call(index=0, id="c1")], "length")
    assert (out.calls, out.stop) == ([], "length")


@pytest.mark.parametrize(
    ("finish", "with_call", "stop"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_use"),
        ("tool_calls", True, "tool_use"),
        ("tool_calls", False, "stop"),
        ("function_call", True, "tool_use"),
        ("eos", False, "stop"),
        ("length", False, "length"),
        ("length", True, "length"),
        ("max_tokens", False, "length"),
    ],
)
async def test_finish(finish, with_call, stop, caplog):
    chunks = [[call("{}", index=0, id="c1", name="x")]] if with_call else [delta(content="x")]
    assert (await play(*chunks, finish)).stop == stop
    assert (await play(*chunks, finish, finish, "")).stop == stop
    assert caplog.records == []


async def test_an_unknown_finish_reason_is_logged(caplog):
    with caplog.at_level(logging.WARNING):
        assert (await play(delta(content="x"), "because")).stop == "stop"
    assert "'because'" in caplog.text


@pytest.mark.parametrize(("finish", "kind"), [("content_filter", ModelRefusalError), ("error", ModelStatusError)])
async def test_a_response_that_was_broken_off_is_an_error(finish, kind):
    with pytest.raises(kind, match=finish):
        await play(delta(content="x"), finish)


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([delta(content="x")], "it ended before a finish_reason"),
        ([delta(content="x"), ""], "it ended before a finish_reason"),
        (["stop"], "is empty"),
        ([[1]], "it ended before"),
        ([3], "not a JSON object"),
        ([None], "not a JSON object"),
    ],
)
async def test_incomplete_and_illegal_responses(chunks, text):
    with pytest.raises(ModelProtocolError, match=text):
        await play(*chunks)


async def test_an_empty_answer_that_cost_tokens_is_an_answer():
    assert (await play("stop", {"choices": [], "usage": {"completion_tokens": 1}})).stop == "stop"


async def test_not_json():
    decoder = ChatChunks(FakeWriter(), "http://x", lambda text: text)
    with pytest.raises(ModelProtocolError, match="not JSON: nonsense"):
        await decoder.event(SSEEvent("message", "nonsense"))


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": "boom"}},
        {"error": "boom"},
        {"object": "error", "message": "boom"},
        {"type": "error", "error": {"message": "boom"}},
        {"detail": "boom"},
        {"choices": [{"index": 0, "delta": {}, "error": {"message": "boom"}, "finish_reason": "error"}]},
    ],
)
async def test_errors_inside_the_stream(chunk):
    with pytest.raises(ModelStatusError, match="boom") as caught:
        await play(chunk)
    assert caught.value.status is None


async def test_no_error():
    out = await play({"error": None, **delta(content="x")}, {"error": {}, **delta(content="y")}, "stop")
    assert out.prose("text") == "xy"


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        (
            [{"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}],
            Usage(9, 4, 8),
        ),
        ([{"prompt_tokens": 9, "completion_tokens": 1}, {"prompt_tokens": 9, "completion_tokens": 2}], Usage(9, 2)),
        ([{"prompt_tokens": 9, "prompt_cache_hit_tokens": 3}], Usage(9, 0, 3)),
        ([{"prompt_tokens": 9, "prompt_tokens_details": None, "cached_tokens": 3}], Usage(9, 0, 3)),
        ([{"prompt_tokens": 9}, {}, None], Usage(9)),
    ],
)
@pytest.mark.parametrize("place", ["own chunk", "choice", "finish chunk"])
async def test_usage(usages, expected, place):
    chunks = []
    for usage in usages:
        if place == "own chunk":
            chunks.append({"choices": [], "usage": usage})
        elif place == "choice":
            chunks.append({"choices": [{"delta": {}, "usage": usage}]})
        else:
            chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})
    out = await play(delta(content="x"), "stop", *chunks)
    assert out.usages[-1] == expected


async def test_thinking_and_content_of_all_shapes():
    out = await play(
        delta(reasoning_content="a", reasoning="a", content=None),
        delta(reasoning="b", content=""),
        delta(
            content=[{"type": "thinking", "thinking": [{"type": "text", "text": "c"}]}, {"type": "text", "text": "d"}]
        ),
        delta(content=["e", None, {"type": "reference"}]),
        delta(refusal="f", tool_calls=[]),
        "stop",
    )
    assert out.prose("thinking") == "abc"
    assert out.prose("text") == "def"


async def test_a_server_that_does_not_stream():
    message = {"role": "assistant", "content": "Hi", "tool_calls": [call("{}", id="c1", name="x")]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}})
    out = FakeWriter()
    async with serve(Reply([body.encode()], headers={"content-type": "application/json"})) as server:
        await OpenAIChatModel("m", base_url=server.url).stream(HELLO, out)
    assert (out.prose("text"), out.calls, out.usages) == ("Hi", [["c1", "x", {}]], [Usage(3)])


@pytest.mark.parametrize("close", ["eof", "reset"])
async def test_a_finish_reason_makes_a_response_complete(close):
    body = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    out = FakeWriter()
    async with serve(Reply([body], close=close)) as server:
        await OpenAIChatModel("m", base_url=server.url).stream(HELLO, out)
    assert (out.prose("text"), out.stop) == ("Hi", "stop")


async def test_done_ends_the_response_also_if_the_server_does_not():
    body = (WIRE / "base_text.sse").read_bytes()
    out = FakeWriter()
    async with serve(Reply([body], close="stall")) as server:
        await OpenAIChatModel("m", base_url=server.url).stream(HELLO, out)
        await server.wait_open(0)
    assert out.stop == "stop"


# --- the request


def encode(request: ModelRequest, **options) -> dict:
    return encode_request("m", request, ModelOptions(**options), host="x")


def test_messages():
    png = Image(b"\x89PNG", "image/png")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    messages = (
        UserMessage("hello"),
        UserMessage([Text("look"), png]),
        AssistantMessage([Thinking("hm", "reasoning_content"), Text("ok"), ToolCall("c1", "add", {"a": "é"})]),
        ToolResultMessage("c1", "add", [Text("1"), png]),
        ToolResultMessage("c2", "add", "broken", is_error=True),
        ToolResultMessage("c3", "add", png),
        ToolResultMessage("c4", "add", ""),
        AssistantMessage((), "error", "failed before its first word"),
        AssistantMessage([Thinking("hm", "reasoning_content"), Text("fine")]),
        AssistantMessage([Thinking("of another server", "c2ln"), ToolCall("c5", "add")]),
    )
    arguments = '{"a":"é"}'
    assert encode(ModelRequest("Be brief.", messages))["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}],
            "reasoning_content": "hm",
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: broken"},
        {"role": "tool", "tool_call_id": "c3", "content": "(see the images below)"},
        {"role": "tool", "tool_call_id": "c4", "content": "(no output)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Images from the result of tool call c1 (add):"},
                picture,
                {"type": "text", "text": "Images from the result of tool call c3 (add):"},
                picture,
            ],
        },
        {"role": "assistant", "content": "fine"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c5", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        },
    ]


@pytest.mark.parametrize("message", [CustomMessage("x"), UserMessage(ToolCall("c", "x"))])
def test_a_message_without_a_form_is_named(message):
    with pytest.raises(TypeError, match=r"messages\[1\]"):
        encode(ModelRequest("", (UserMessage("x"), message)))


def test_body():
    plain = encode(HELLO)
    assert plain == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    full = encode(
        ModelRequest("", HELLO.messages, (ADD,)),
        temperature=0.0,
        max_output_tokens=7,
        stop_sequences=["X"],
        reasoning_effort="low",
        tool_choice="required",
        extra_body={"seed": 1, "stream_options": None},
    )
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert full == {
        **plain,
        "tools": [
            {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": parameters}},
        ],
        "temperature": 0.0,
        "max_tokens": 7,
        "stop": ["X"],
        "reasoning_effort": "low",
        "tool_choice": "required",
        "seed": 1,
        "stream_options": None,
    }


class Step(msgspec.Struct):
    """One of the steps."""

    why: str


class Answer(msgspec.Struct):
    """All of it."""

    steps: list[Step]
    sure: bool


class Loose(msgspec.Struct):
    """Something in it may be left out."""

    steps: list[Answer]
    note: str = ""


@pytest.mark.parametrize(("type_", "strict"), [(Answer, True), (Loose, False), (dict[str, int], False)])
def test_a_response_schema_is_strict_where_a_server_could_take_it_so(type_, strict):
    schema = closed_schema(type_)
    body = encode(HELLO, response_schema=schema)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "result", "schema": schema, "strict": strict},
    }
    assert "response_format" not in encode(HELLO)


def test_tool_choice():
    with_tool = ModelRequest("", HELLO.messages, (ADD,))
    assert encode(with_tool, tool_choice="add")["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert encode(with_tool, tool_choice="none")["tool_choice"] == "none"
    assert "tool_choice" not in encode(HELLO, tool_choice="auto")
    with pytest.raises(ValueError, match=r"options.tool_choice is 'sub', but the request offers \['add'\]"):
        encode(with_tool, tool_choice="sub")
    with pytest.raises(ValueError, match="offers no tools"):
        encode(HELLO, tool_choice="required")


def test_options_of_the_request_come_first():
    base = ModelOptions(temperature=1.0, stop_sequences=["a"], tool_choice="auto", extra_headers={"a": "1", "b": "2"})
    merged = merge_options(base, ModelOptions(temperature=0.0, extra_headers={"b": "3"}))
    assert merged == ModelOptions(
        temperature=0.0, stop_sequences=["a"], tool_choice="auto", extra_headers={"a": "1", "b": "3"}
    )


async def test_what_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    async with serve(Reply(at_blank_lines((WIRE / "base_text.sse").read_bytes()))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
        options = ModelOptions(max_output_tokens=5, extra_headers={"X-Title": "t"})
        await OpenAIChatModel("m1", options=options).stream(HELLO, FakeWriter())
        await OpenAIChatModel("m1", api_key="").stream(HELLO, FakeWriter())
    first, second = server.requests
    assert first.target == "/v1/chat/completions"
    assert (first.headers["authorization"], first.headers["x-title"]) == ("Bearer sk-environment", "t")
    assert json.loads(first.body) == {**encode(HELLO), "model": "m1", "max_tokens": 5}
    assert "authorization" not in second.headers


@pytest.mark.parametrize(
    ("host", "field"),
    [
        ("api.openai.com", "max_completion_tokens"),
        ("x.openai.azure.com", "max_completion_tokens"),
        ("openai.example", "max_tokens"),
    ],
)
def test_openais_own_servers_want_another_name_for_max_tokens(host, field):
    assert encode_request("m", HELLO, ModelOptions(max_output_tokens=5), host=host)[field] == 5


def test_azure_takes_its_key_under_another_name():
    assert openai_headers("k", "https://x.openai.azure.com/openai/v1") == {"api-key": "k"}
    assert openai_headers("k", "https://x.example/v1") == {"authorization": "Bearer k"}
    assert openai_headers("", "https://x.openai.azure.com") == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"thinking_budget": 5}, "options.thinking_budget: OpenAI's chat protocol has no such thing; use reasoning"),
        ({"prompt_caching": "5m"}, "options.prompt_caching: .*cache by themselves"),
    ],
)
def test_what_the_protocol_has_no_such_thing_for_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        encode(HELLO, **options)


# --- the model object


def test_it_is_a_model_and_shows_no_secret():
    model = OpenAIChatModel("gpt-4o", api_key="sk-secret", options=ModelOptions(extra_headers={"x": "sk-too"}))
    assert isinstance(model, Model)
    assert (model.name, model.provider) == ("gpt-4o", "openai")
    assert repr(model) == "OpenAIChatModel('gpt-4o', base_url='https://api.openai.com/v1')"


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({}, ValueError, "no api_key for https://api.openai.com/v1: pass api_key=.*OPENAI_API_KEY"),
        ({"base_url": "https://x/v1"}, ValueError, "no api_key for https://x/v1"),
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"name": None}, TypeError, "name must be a string"),
        ({"base_url": "x"}, ValueError, "base_url must start with"),
        ({"base_url": "http://localhost/v1/chat/completions/"}, ValueError, "use 'http://localhost/v1'"),
        ({"api_key": 3}, TypeError, "api_key must be a string"),
        ({"api_key": "sk-secret\n"}, ValueError, "api_key must be printable ASCII"),
        ({"api_key": "sk-secret\u2028x"}, ValueError, "api_key must be printable ASCII"),
        ({"options": {}}, TypeError, "options must be a ModelOptions"),
        ({"timeout": -1}, ValueError, "timeout must be"),
        ({"max_connections": 0}, ValueError, "max_connections must be"),
        ({"client": 1}, TypeError, "client must have"),
    ],
)
def test_bad_arguments(options, kind, text):
    with pytest.raises(kind, match=text) as caught:
        OpenAIChatModel(**{"name": "m", **options})
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["http://localhost:1/v1", "http://127.0.0.1", "http://[::1]:8080/v1"])
def test_a_server_on_this_machine_needs_no_key(url):
    OpenAIChatModel("m", base_url=url)


async def test_the_key_does_not_come_back_in_an_error_of_the_stream():
    echo = b'data: {"error":"bad key sk-secret"}\n\n'
    async with serve(Reply([echo])) as server:
        with pytest.raises(ModelStatusError, match=r"bad key \*\*\*$"):
            await OpenAIChatModel("m", base_url=server.url, api_key="sk-secret").stream(HELLO, FakeWriter())
