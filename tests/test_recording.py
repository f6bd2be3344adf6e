"""Record and replay: a real exchange in a file without keys, played again alike."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Reply, serve

from trio_agent import (
    Agent,
    Image,
    Message,
    ModelContextError,
    ModelOptions,
    ModelStatusError,
    Text,
    UserMessage,
    message_to_dict,
    tool,
)
from trio_agent.models import OpenAIChatModel
from trio_agent.testing import Fail, ReplayModel, ScriptedModel, Wait, record

SECRET = "sk-very-secret"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


CALL = (
    b'data: {"choices":[{"delta":{"content":"Let me "}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"see."}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","x_sign":"s","function":'
    b'{"name":"add","arguments":"{\\"a\\": 1"}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":", \\"b\\": 2}"}}]},'
    b'"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\n'
)
ANSWER = b'data: {"choices":[{"delta":{"content":"3 \\u2713"},"finish_reason":"stop"}]}\n\n'


def shown(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [message_to_dict(message) | {"timestamp": 0} for message in messages]


async def recorded(path: Path) -> tuple[Any, list[str]]:
    """A run over HTTP, recorded."""
    options = ModelOptions(extra_headers={"x-key": SECRET}, extra_body={"token": SECRET}, temperature=0.5)
    replies = iter([CALL, ANSWER])
    async with serve(lambda request: Reply([next(replies)])) as server:
        model = record(OpenAIChatModel("m", base_url=server.url, api_key=SECRET, options=options), path)
        return await run(model, options)


async def run(model: Any, options: ModelOptions = ModelOptions(temperature=0.5)) -> tuple[Any, list[str]]:  # noqa: B008
    agent = Agent(model, tools=[add], system_prompt="Be exact.", options=options)
    async with agent.run(UserMessage((Text("add"), Image(b"\x89", "image/png")))) as events:
        kinds = [event.type + getattr(event, "kind", "") + getattr(event, "delta", "") async for event in events]
        return await events.result(), kinds


async def test_what_was_recorded_is_played_again_alike(tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    result, kinds = await recorded(path)
    assert result.text == "3 ✓"
    again, again_kinds = await run(ReplayModel(path))
    assert shown(again.messages) == shown(result.messages)
    assert (again.usage, again_kinds) == (result.usage, kinds)
    assert again.messages[1].tool_calls[0].extra == {"x_sign": "s"}


async def test_the_file_is_for_people_and_has_no_keys_in_it(tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    await recorded(path)
    text = path.read_text()
    assert SECRET not in text
    assert "3 ✓" in text
    content = json.loads(text)
    assert content["exchanges"][0]["request"]["options"] == {"temperature": 0.5}
    assert content["exchanges"][0]["response"][:2] == [["text", "Let me "], ["text", "see."]]
    assert os.listdir(tmp_path) == [path.name]


async def test_another_request_than_the_recorded_one_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    await recorded(path)
    agent = Agent(ReplayModel(path), tools=[add], system_prompt="Be exact.", options=ModelOptions(temperature=0.5))
    with pytest.raises(AssertionError, match=r"request 1 is not .* one: messages\[0\]\.content\[0\]\.text was"):
        await agent.prompt("subtract")
    agent = Agent(ReplayModel(path, compare=False), tools=[add])
    assert (await agent.prompt("anything")).text == "3 ✓"
    with pytest.raises(AssertionError, match="another exchange is wanted; only 2 were recorded"):
        await agent.prompt("more")


async def test_errors_are_played_again_with_all_they_said(tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    error = ModelStatusError("slow down", status=429, code="rate", retry_after=2.5, retryable=True)
    await Agent(record(ScriptedModel(["hm", Fail(error)], [Fail(ModelContextError("long"))]), path)).prompt("x")
    result = await Agent(ReplayModel(path)).prompt("x")
    again: Any = result.error
    assert (str(again), again.status, again.code, again.retry_after, again.retryable) == (
        "slow down",
        429,
        "rate",
        2.5,
        True,
    )
    assert result.text == "hm"


async def test_a_response_that_was_cut_is_none_when_it_is_played_again(tmp_path: Path, autojump_clock: object) -> None:
    path = tmp_path / "exchange.json"
    with trio.move_on_after(1):
        await Agent(record(ScriptedModel(["half", Wait(5)]), path)).prompt("x")
    result = await Agent(ReplayModel(path)).prompt("x")
    assert (result.outcome, result.text) == ("error", "half")
    assert "cut short here" in str(result.error)


async def test_what_must_not_be_kept_can_be_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    model = record(ScriptedModel("I know Ada."), path, redact=lambda text: text.replace("Ada", "***"))
    assert (await Agent(model).prompt("Who is Ada?")).text == "I know Ada."
    assert "Ada" not in path.read_text()
    assert (await Agent(ReplayModel(path)).prompt("Who is ***?")).text == "I know ***."


@pytest.mark.parametrize("content", ["", "[]", '{"model": 1}', '{"model": "m", "provider": "p", "exchanges": [1]}'])
def test_a_file_that_is_no_recording(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"other.json' is no recording of record\(\)"):
        ReplayModel(path)


def test_only_models_can_be_recorded(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="record: expected a model"):
        record(3, tmp_path / "x")  # type: ignore[arg-type]
