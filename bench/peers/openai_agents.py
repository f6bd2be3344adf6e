"""openai-agents: ``Runner.run`` and ``Runner.run_streamed`` with a session."""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ.setdefault("OPENAI_API_KEY", "none")

from agents import Agent, FunctionTool, ModelResponse, RunConfig, Runner, ToolExecutionConfig, Usage
from agents.items import TResponseOutputItem, TResponseStreamEvent
from agents.memory import SessionABC
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from ._asyncio_sweep import Peer, Row, main
from ._judge import Transcript
from ._scenario import CALLS, PAUSE, World

EMPTY_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}


class FakeModel(Model):
    """Answers from the scenario."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """The whole response."""
        return ModelResponse(output=await self._output(), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """The response as the one event that the runner needs."""
        response = Response(
            id="r",
            created_at=0,
            model="fake",
            object="response",
            output=await self._output(),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=response)

    async def _output(self) -> list[TResponseOutputItem]:
        response = self.world.request()
        for _ in range(4):
            await asyncio.sleep(PAUSE)
        text = ResponseOutputText(type="output_text", text=response.text, annotations=[])
        id = f"m{self.world.requests}"
        message = ResponseOutputMessage(id=id, type="message", role="assistant", status="completed", content=[text])
        calls = [
            ResponseFunctionToolCall(id=f"f{id}", call_id=id, type="function_call", name=name, arguments="{}")
            for name, id in response.calls.items()
        ]
        return [message, *calls]


class MemorySession(SessionABC):
    """A session in a list, with one checkpoint where a real one would write."""

    session_id = "s"
    session_settings = None

    def __init__(self) -> None:
        self.items: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """All."""
        return list(self.items)

    async def add_items(self, items: list[Any]) -> None:
        """Append."""
        await asyncio.sleep(0)
        self.items.extend(items)

    async def pop_item(self) -> Any:
        """Take the last."""
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        """Forget."""
        self.items.clear()


def make_tool(world: World, name: str) -> FunctionTool:
    """The fake tool of this name."""

    async def invoke(context: Any, arguments: str) -> str:
        return await world.work(name, asyncio.sleep)

    return FunctionTool(name=name, description=name, params_json_schema=EMPTY_SCHEMA, on_invoke_tool=invoke)


class Run:
    """``Runner.run``: can only be cancelled."""

    def __init__(self, world: World, concurrency: int | None) -> None:
        self.session = MemorySession()
        self.agent: Agent[Any] = Agent(name="a", model=FakeModel(world), tools=[make_tool(world, n) for n in CALLS])
        self.config = RunConfig(
            tracing_disabled=True, tool_execution=ToolExecutionConfig(max_function_tool_concurrency=concurrency)
        )

    async def run(self) -> None:
        """The first prompt."""
        await Runner.run(self.agent, "go", session=self.session, run_config=self.config)

    def stop(self) -> None:
        """There is none."""
        raise NotImplementedError

    def transcript(self) -> Transcript:
        """The items of the session."""
        record = Transcript()
        for item in self.session.items:
            if item.get("type") == "function_call":
                record.calls.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                record.results[item["call_id"]] = str(item["output"])
        return record

    async def again(self) -> str:
        """A second prompt in the same session."""
        result = await Runner.run(self.agent, "again", session=self.session, run_config=self.config)
        return "ok" if result.final_output == "All done." else f"answered {result.final_output!r}"


class Streamed(Run):
    """``Runner.run_streamed``, read to its end."""

    mode: Literal["immediate", "after_turn"] = "immediate"

    async def run(self) -> None:
        """The first prompt."""
        self.result = Runner.run_streamed(self.agent, "go", session=self.session, run_config=self.config)
        async for _ in self.result.stream_events():
            pass

    def stop(self) -> None:
        """``result.cancel()``."""
        self.result.cancel(self.mode)


class StreamedSoftly(Streamed):
    """The same, with the stop that lets the turn end first."""

    mode = "after_turn"


def rows() -> tuple[Row, ...]:
    """Sequential means one tool at a time, by the framework's own setting."""
    found = []
    for mode, concurrency in (("sequential", 1), ("parallel", None)):
        streamed = partial(Streamed, concurrency=concurrency)
        found += [
            Row(f"{mode}, run", "cancel", partial(Run, concurrency=concurrency)),
            Row(f"{mode}, run_streamed", "cancel", streamed),
            Row(f"{mode}, run_streamed", "abort", streamed, "stop"),
            Row(f"{mode}, run_streamed", "abort softly", partial(StreamedSoftly, concurrency=concurrency), "stop"),
        ]
    return tuple(found)


PEER = Peer(
    name="openai-agents",
    packages=("openai-agents", "openai"),
    stop_call="result.cancel() of run_streamed; softly: cancel('after_turn'), which means to let the turn's tools run",
    record="the items of the session; unanswered calls are dropped when the history is sent",
    rows=rows(),
)

if __name__ == "__main__":
    main(PEER)
