"""What many servers really send, over a loopback server: 70 responses, whole and cut off after every byte."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from fake_writer import FakeWriter
from loopback import Reply, at_blank_lines, serve
from slow_client import SlowClient

from trio_agent import (
    Agent,
    ModelConnectionError,
    ModelContextError,
    ModelError,
    ModelProtocolError,
    ModelRefusalError,
    ModelRequest,
    ModelStatusError,
    Tool,
    ToolExecutionEnd,
    Usage,
    UserMessage,
)
from trio_agent.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel

WIRE = Path(__file__).parent / "wire"
INDEX = json.loads((WIRE / "index.json").read_text())
MODELS = {"openai-chat": OpenAIChatModel, "openai-responses": OpenAIResponsesModel, "anthropic": AnthropicModel}
HELLO = ModelRequest("", (UserMessage("hello"),))
every_response = pytest.mark.parametrize("entry", INDEX, ids=[entry["name"] for entry in INDEX])


def body_of(entry: dict[str, Any]) -> bytes:
    return (WIRE / f"{entry['name']}.sse").read_bytes()


def reply_of(entry: dict[str, Any]) -> Reply:
    body = body_of(entry)
    match entry["split"]:
        case None:
            chunks = at_blank_lines(body)
        case "bytes":
            chunks = [body[at : at + 1] for at in range(len(body))]
        case _:
            chunks = [part for part in re.split(rb"(?<=\r)", body) if part]
    return Reply(chunks, entry["status"], entry["headers"], entry["close"])


def model_of(entry: dict[str, Any], url: str, **options: Any) -> Any:
    return MODELS[entry["api"]]("m1", base_url=url, **options)


@every_response
async def test_a_response(entry: dict[str, Any]) -> None:
    expect, out, error = entry["expect"], FakeWriter(), None
    async with serve(reply_of(entry)) as server:
        try:
            await model_of(entry, server.url).stream(HELLO, out)
        except ModelError as caught:
            error = caught
        await server.wait_open(0)
    if "error" in expect:
        check_failure(expect, out, error)
        return
    assert error is None
    for kind in ("text", "thinking"):
        if kind in expect:
            assert out.prose(kind) == expect[kind]
    assert out.stop == expect.get("stop", out.stop)
    if "error_or_stop" in expect:
        assert (out.stop, out.raw_stop) == ("stop", "eos")
    if "calls" in expect:
        ids = [got[0] for got in out.calls]
        wanted = [
            [id, *call[1:]] if call[0] == "<generated>" else call for id, call in zip(ids, expect["calls"], strict=True)
        ]
        assert out.calls == wanted
        assert all(ids)
        assert len(set(ids)) == len(ids)
    if "calls_any" in expect:
        assert [name for _, name, _ in out.calls] == expect["calls_any"]
    if "calls_failed" in expect:
        assert [call[1] for call in out.calls] == expect["calls_failed"]
        assert all(isinstance(call[2], str) for call in out.calls)
    if "usage" in expect:
        # the one response of the index with usage says 9 tokens of input, 3 of them cached; it counts 6 as ``in``, and
        # ours are all that were sent
        usage = expect["usage"]
        assert out.usages[-1] == Usage(usage["in"] + usage["cache_read"], usage["out"], usage["cache_read"])
    if "keep_extra" in expect:
        assert expect["keep_extra"] in json.dumps(out.extras)


KINDS = {
    "truncated": (ModelProtocolError, ModelConnectionError),
    "provider": ModelStatusError,
    "http": ModelStatusError,
    "context_overflow": ModelContextError,
    "refusal": ModelRefusalError,
}


def check_failure(expect: dict[str, Any], out: FakeWriter, error: Any) -> None:
    assert isinstance(error, KINDS[expect["error"]])  # type: ignore[arg-type]
    assert out.stop is None
    if expect["error"] == "truncated":
        assert error.retryable
    if "partial" in expect:
        assert out.prose("text") == expect["partial"]
    if "message" in expect:
        assert expect["message"] in str(error)
    for name in ("status", "code", "retryable"):
        if name in expect:
            assert getattr(error, name) == expect[name]
    if "retry_after_s" in expect:
        wanted = expect["retry_after_s"]
        assert error.retry_after == (wanted if isinstance(wanted, int | float) else 0.0)


@every_response
async def test_in_a_whole_run_no_call_runs_that_must_not_and_what_came_in_can_be_sent_again(
    entry: dict[str, Any],
) -> None:
    expect = entry["expect"]
    ran: list[str] = []

    def tool(name: str) -> Tool:
        async def execute(arguments: dict[str, Any], context: Any) -> str:
            ran.append(name)
            return "done"

        return Tool(name, "", {"type": "object"}, execute)

    requests: list[dict[str, Any]] = []

    def answer(request: Any) -> Reply:
        requests.append(json.loads(request.body))
        return reply_of(entry) if len(requests) == 1 else Reply([PLAIN[entry["api"]]])

    async with serve(answer) as server:
        agent = Agent(model_of(entry, server.url), tools=[tool(name) for name in ("add", "now", "say", "write")])
        async with agent.run("hello") as run:
            ends = [event async for event in run if isinstance(event, ToolExecutionEnd)]
            result = await run.result()
        await server.wait_open(0)
    failed = [*expect.get("must_not_run", []), *expect.get("calls_failed", [])]
    assert not set(ran) & set(failed)
    if "error" in expect:
        assert result.outcome == "error"
        assert ran == []
        return
    assert result.outcome == "completed"
    assert {end.outcome for end in ends if end.tool_name in failed} <= {"rejected", "skipped"}
    if "calls" in expect or "calls_failed" in expect or expect.get("stop") == "pause":
        assert len(requests) >= 2
        encoded = json.dumps(requests[1])
        assert all(name in encoded for _, name, _ in expect.get("calls", []))
        assert expect.get("keep_extra", "") in encoded


PLAIN = {
    "openai-chat": b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    "openai-responses": b'data: {"type":"response.output_text.delta","item_id":"m","delta":"ok"}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n',
    "anthropic": b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"ok"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\ndata: {"type":"message_stop"}\n\n',
}


@pytest.mark.parametrize("entry", [e for e in INDEX if e["status"] == 200], ids=lambda entry: entry["name"])
@pytest.mark.parametrize("how", ["ends", "breaks"])
async def test_cut_off_after_every_byte(entry: dict[str, Any], how: str, autojump_clock: object) -> None:
    body, client = body_of(entry), SlowClient()
    model = model_of(entry, "http://127.0.0.1:1", client=client)
    succeeded = []
    for length in range(len(body)):
        broken = [(0, httpx.ReadError("reset"))] if how == "breaks" else []
        client.left[:] = [[(0, body[:length]), *broken]]
        out = FakeWriter()
        with trio.fail_after(1), contextlib.suppress(ModelError):
            await model.stream(HELLO, out)
            succeeded.append(length)
        assert (out.stop is not None) == (length in succeeded)
    early = [length for length in succeeded if not TERMINAL[entry["api"]].search(body[:length])]
    assert early == []
    if "error" not in entry["expect"]:
        assert succeeded == list(range(succeeded[0], len(body))) if succeeded else True


TERMINAL = {
    "openai-chat": re.compile(rb'"finish_reason": ?"[a-z_]+'),
    "openai-responses": re.compile(rb"response.completed"),
    "anthropic": re.compile(rb"message_stop"),
}
