"""Whole agent runs on real input: real files, real processes, and a server that is not ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from llmock_server import llmock
from processes import is_running

from trio_agent import (
    Agent,
    AgentEvent,
    ModelConnectionError,
    ModelError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from trio_agent.models import OfflineModel, OpenAIChatModel
from trio_agent.testing import check_events, check_transcript
from trio_agent.tools import default_tools


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with llmock() as root:
        yield f"{root}/v1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("buy milk\ncall Ada\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print('TODO')\n")
    return tmp_path


async def test_the_offline_model_says_what_is_in_real_files(folder: Path) -> None:
    agent = Agent(OfflineModel(), tools=default_tools(folder))
    async with agent.run("Read notes.txt, search for TODO, then run `wc -l notes.txt`") as run:
        events = [event async for event in run]
        result = await run.result()
    assert check_events(events) == []
    assert check_transcript(agent.messages) == []
    assert result.outcome == "completed"
    assert "buy milk" in result.text
    assert "main.py" in result.text
    assert {e.tool_name for e in events if isinstance(e, ToolExecutionStart)} == {
        "read_file",
        "search_files",
        "run_command",
    }


async def test_a_server_that_is_not_ours_with_a_tool_call_in_the_run(url: str, folder: Path) -> None:
    events: list[AgentEvent] = []
    tools = [tool for tool in default_tools(folder) if tool.name == "list_files"]
    agent = Agent(OpenAIChatModel("gpt-4o", base_url=url), tools=tools, system_prompt="Be brief.")
    agent.subscribe(events.append)
    result = await agent.prompt("List the files in .")
    assert result.outcome == "completed", result.error
    assert check_events(events) == []
    assert check_transcript(agent.messages) == []
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.tool_name == "list_files"
    assert result.usage.input_tokens > 0
    assert result.text
    assert (await agent.prompt("And again")).outcome == "completed"


async def test_a_stream_that_breaks_is_an_error_and_not_a_short_answer(folder: Path) -> None:
    with llmock("--stream-fault", "truncate=1", tool_mode="off") as root:
        agent = Agent(OpenAIChatModel("gpt-4o", base_url=f"{root}/v1"))
        events: list[AgentEvent] = []
        agent.subscribe(events.append)
        result = await agent.prompt("Tell me a story about the sea and a lighthouse")
    assert result.outcome == "error"
    assert isinstance(result.error, ModelError)
    assert check_events(events) == []


async def test_a_server_that_is_not_there_is_named_with_the_fix() -> None:
    agent = Agent(OpenAIChatModel("gpt-4o", base_url="http://127.0.0.1:9/v1"))
    result = await agent.prompt("hello")
    assert isinstance(result.error, ModelConnectionError)
    assert "127.0.0.1:9" in str(result.error)
    assert "base_url" in str(result.error)


async def test_an_abort_during_a_shell_command_leaves_no_process_and_answers_every_call(folder: Path) -> None:
    agent = Agent(OfflineModel(), tools=default_tools(folder))
    group = 0
    async with agent.run("run `echo $$; exec sleep 1000`") as run:
        async for event in run:
            if isinstance(event, ToolExecutionUpdate) and event.partial_result.text.strip().isdigit():
                group = int(event.partial_result.text)
                assert agent.abort("enough")
    assert group
    assert not is_running(group)
    assert check_transcript(agent.messages) == []
    assert (await run.result()).outcome == "aborted"
    assert "Cancelled" in agent.messages[-1].text


async def test_an_aborted_request_leaves_no_connection(url: str) -> None:
    model = OpenAIChatModel("gpt-4o", base_url=url)
    agent = Agent(model)
    for _ in range(20):
        async with agent.run("hello there") as run:
            async for _ in run:
                break
        assert not agent.state.is_running
    assert (await agent.prompt("still there?")).outcome == "completed"
    await trio.lowlevel.checkpoint()
