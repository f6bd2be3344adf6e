"""Servers that are not ours: llmock, which also judges how a client bears faults, and aimock where Node.js has it."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_agent import (
    Agent,
    MessageUpdate,
    ModelContextError,
    ModelError,
    ModelRetry,
    ModelStatusError,
    ModelTimeoutError,
    tool,
)
from trio_agent.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel, Timeouts, retrying
from trio_agent.testing import check_transcript

KINDS = [OpenAIChatModel, OpenAIResponsesModel, AnthropicModel]
every_model = pytest.mark.parametrize("kind", KINDS)


@tool
async def get_weather(location: str) -> str:
    """The weather at a place."""
    return f"sunny in {location}"


async def watch(model: Any, prompt: str = "What is the weather in Oslo?") -> tuple[Any, list[Any]]:
    agent = Agent(model, tools=[get_weather])
    async with agent.run(prompt) as run:
        events = [event async for event in run]
        result = await run.result()
    assert check_transcript(agent.messages) == []
    return result, events


def patient(kind: Any, **options: Any) -> Any:
    return retrying(kind("m", **options), 4, delay=0.1)


# llmock: its fixture points the environment at a server of its own, and gives a verdict


@every_model
async def test_a_whole_run(kind: Any, llmock: Any) -> None:
    llmock.call_tool("get_weather", {"location": "Oslo"}).reply("It is sunny.")
    result, events = await watch(kind("m"))
    assert (result.outcome, result.text) == ("completed", "It is sunny.")
    assert result.messages[2].text == "sunny in Oslo"
    assert result.usage.input_tokens > 0
    assert sum(1 for event in events if isinstance(event, MessageUpdate) and event.kind == "text_delta") >= 2
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@every_model
async def test_a_transcript_goes_on_with_every_other_provider(kind: Any, llmock: Any) -> None:
    agent = Agent(kind("m"), tools=[get_weather])
    for number, following in enumerate([kind, *(other for other in KINDS if other is not kind), kind]):
        agent.model = following("m")
        llmock.call_tool("get_weather", {"location": f"place {number}"}).reply(f"answer {number}")
        result = await agent.prompt("And now?")
        assert (result.outcome, result.text) == ("completed", f"answer {number}"), result.error
        assert result.messages[1].provider == following.provider
    assert check_transcript(agent.messages) == []
    last = json.dumps(llmock.last_request.body)
    assert all(f"place {number}" in last and f"answer {number}" in last for number in range(3))


@every_model
@pytest.mark.parametrize("fault", ["rate limit", "outage", "no answer", "busy"])
async def test_faults_before_the_first_word_are_borne(kind: Any, fault: str, llmock: Any) -> None:
    match fault:
        case "rate limit":
            llmock.rate_limit(times=2, retry_after=0.1)
        case "outage":
            llmock.fail(503, times=2)
        case "busy":
            llmock.fail(529 if kind is AnthropicModel else 500, times=1)
        case _:
            llmock.disconnect(after_chunks=0)
    llmock.reply("Hello.", times=None)
    result, events = await watch(patient(kind), "hi")
    assert (result.outcome, result.text) == ("completed", "Hello.")
    assert any(isinstance(event, ModelRetry) for event in events)
    llmock.assert_resilient()


@every_model
@pytest.mark.parametrize("fault", ["truncate", "disconnect", "corrupt"])
async def test_a_stream_that_breaks_is_no_success_and_is_not_said_twice(kind: Any, fault: str, llmock: Any) -> None:
    getattr(llmock, fault)(after_chunks=6)
    llmock.reply("one two three four five six seven eight", times=None)
    result, _ = await watch(patient(kind), "hi")
    assert result.outcome == "error"
    assert isinstance(result.error, ModelError)
    # its verdict takes this for acceptance: it sees only that nobody tried again, and not that the run failed
    assert len(llmock.requests) == 1


@every_model
async def test_what_cannot_succeed_is_not_tried_again(kind: Any, llmock: Any) -> None:
    llmock.context_overflow()
    result, _ = await watch(patient(kind), "hi")
    assert isinstance(result.error, ModelContextError)
    llmock.reset().fail(401)
    result, _ = await watch(patient(kind), "hi")
    assert isinstance(result.error, ModelStatusError)
    assert len(llmock.requests) == 1
    llmock.assert_resilient()


@every_model
async def test_a_stream_that_stalls_ends_in_time_and_a_slow_one_is_waited_for(kind: Any, llmock: Any) -> None:
    llmock.stall(after_chunks=4, seconds=5).reply("one two three four five six", times=None)
    result, _ = await watch(kind("m", timeout=Timeouts(between_events=0.2)), "hi")
    assert isinstance(result.error, ModelTimeoutError)
    llmock.reset().pace(20).reply("one two three four five six", times=None)
    result, _ = await watch(kind("m", timeout=Timeouts(between_events=2)), "hi")
    assert result.outcome == "completed"


@every_model
async def test_a_broken_call_is_answered_and_the_run_goes_on(kind: Any, llmock: Any) -> None:
    llmock.break_tool_call().call_tool("get_weather", {"location": "Oslo"}).reply("Sorry.", times=None)
    result, _ = await watch(kind("m"))
    assert (result.outcome, result.text) == ("completed", "Sorry.")
    assert "Invalid arguments" in result.messages[2].text


# aimock ----------------------------------------------------------------------------------------------------

AIMOCK = Path(__file__).parent / ".aimock" / "node_modules" / ".bin" / "llmock"
needs_aimock = pytest.mark.skipif(
    shutil.which("node") is None or not AIMOCK.exists(),
    reason="aimock is not there: npm install --prefix tests/.aimock @copilotkit/aimock@1.43.0 (needs Node.js)",
)
FIXTURES = {
    "fixtures": [
        {"match": {"userMessage": "hello"}, "response": {"content": "Hello! How can I help you today, dear friend?"}},
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {"toolCalls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]},
        },
        {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "Take your sunglasses."}},
    ]
}


@contextmanager
def aimock(folder: Path, *options: str) -> Iterator[str]:
    """A server on a free port, with our fixtures; gives OpenAI's base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fixtures = folder / "fixtures.json"
    fixtures.write_text(json.dumps(FIXTURES))
    command = [
        str(AIMOCK),
        "--port",
        str(port),
        "--fixtures",
        str(fixtures),
        "--chunk-size",
        "4",
        "--log-level",
        "silent",
    ]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            give_up = time.monotonic() + 30
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError("aimock did not start")
                time.sleep(0.05)  # another process starts meanwhile; there is nothing to wait on
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def _listens(port: int) -> bool:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=1)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@needs_aimock
@every_model
async def test_aimock_text_tools_and_a_whole_run(kind: Any, tmp_path: Path) -> None:
    with aimock(tmp_path, "--latency", "5") as url:
        async with kind("m", base_url=url, api_key="k") as model:
            result, events = await watch(model, "hello")
            assert result.text == "Hello! How can I help you today, dear friend?"
            assert sum(1 for event in events if isinstance(event, MessageUpdate) and event.delta) >= 8
            result, _ = await watch(model, "What is the weather?")
    assert (result.outcome, result.text) == ("completed", "Take your sunglasses.")
    assert result.messages[2].text == "sunny in Oslo"


@needs_aimock
@every_model
@pytest.mark.parametrize(
    ("fault", "status"), [("--chaos-ratelimit", 429), ("--chaos-drop", 500), ("--chaos-disconnect", None)]
)
async def test_aimock_faults(kind: Any, fault: str, status: int | None, tmp_path: Path) -> None:
    with aimock(tmp_path, fault, "1") as url:
        result, events = await watch(retrying(kind("m", base_url=url, api_key="k"), 2, delay=0.0), "hello")
    assert result.outcome == "error"
    assert getattr(result.error, "status", None) == status
    assert result.error.retryable
    assert len([event for event in events if isinstance(event, ModelRetry)]) == 1


@needs_aimock
@every_model
async def test_aimock_an_abort_in_a_slow_stream(kind: Any, tmp_path: Path) -> None:
    with aimock(tmp_path, "--latency", "200") as url:
        agent = Agent(kind("m", base_url=url, api_key="k"))
        with trio.fail_after(10):
            async with agent.run("hello") as run:
                async for event in run:
                    if isinstance(event, MessageUpdate) and event.delta:
                        agent.abort("enough")
                result = await run.result()
    assert result.outcome == "aborted"
    assert 0 < len(result.text) < 40
