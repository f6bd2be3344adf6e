"""``trio_agent.Agent``: the row that the others are compared with. Runs in this interpreter."""

import argparse
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Literal

import trio

from trio_agent import Agent, AssistantMessage, MessageWriter, ModelRequest, ToolCall, ToolResultMessage, tool

from ._judge import Transcript
from ._scenario import CALLS, PAUSE, World
from ._trio_sweep import TrioSubject, sweep

Mode = Literal["sequential", "parallel"]


class FakeModel:
    """Answers from the scenario."""

    name = "fake"
    provider = "bench"

    def __init__(self, world: World) -> None:
        self.world = world

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """One response of the scenario."""
        response = self.world.request()
        await trio.sleep(PAUSE)
        for chunk in response.chunks:
            await out.text(chunk)
            await trio.sleep(PAUSE)
        for name, id in response.calls.items():
            await out.tool_call(id, name, {})
        await trio.sleep(PAUSE)


def make_tool(world: World, name: str) -> Any:
    """The fake tool of this name."""

    @tool(name=name)
    async def fake() -> str:
        """Fake."""
        return await world.work(name, trio.sleep)

    return fake


class Prompted:
    """A run that nobody reads: ``await agent.prompt()``."""

    def __init__(self, world: World, execution: Mode) -> None:
        tools = [make_tool(world, name) for name in CALLS]
        self.agent = Agent(FakeModel(world), tools=tools, tool_execution=execution)

    async def run(self) -> None:
        """The first prompt."""
        await self.agent.prompt("go")

    def stop(self) -> None:
        """``agent.abort()``."""
        self.agent.abort()

    def transcript(self) -> Transcript:
        """``agent.messages``."""
        record = Transcript()
        for message in self.agent.messages:
            if isinstance(message, AssistantMessage):
                record.calls += [part.id for part in message.content if isinstance(part, ToolCall)]
            elif isinstance(message, ToolResultMessage):
                record.results[message.tool_call_id] = message.text
        return record

    async def again(self) -> str:
        """A second prompt."""
        result = await self.agent.prompt("again")
        return "ok" if result.outcome == "completed" else result.outcome


class Watched(Prompted):
    """A run read with ``async for``."""

    async def run(self) -> None:
        """The first prompt."""
        async with self.agent.run("go") as run:
            async for _ in run:
                pass


def report(every: int) -> dict[str, Any]:
    """All rows, as the peers report theirs."""
    rows = []
    kinds: dict[str, type[Prompted]] = {"prompt": Prompted, "run": Watched}
    modes: tuple[Mode, ...] = ("sequential", "parallel")
    for kind, subject in kinds.items():
        for mode in modes:
            for action in ("cancel", "abort"):
                rows.append(sweep(f"{mode}, {kind}", action, _builder(subject, mode), every).to_dict())
    return {
        "name": "trio_agent",
        "versions": {name: version(name) for name in ("trio-agent", "trio")},
        "runtime": f"Python {sys.version.split()[0]}",
        "stop_call": "agent.abort(); cancel is an outer trio.CancelScope",
        "record": "agent.messages",
        "rows": rows,
    }


def _builder(subject: type[Prompted], mode: Mode) -> Callable[[World], TrioSubject]:
    return lambda world: subject(world, mode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    sys.stdout.write(json.dumps(report(parser.parse_args().every)) + "\n")
