"""pydantic-ai: ``agent.run``, with ``capture_run_messages`` and with a ``CancellationToken``."""

import asyncio
from functools import partial
from typing import Any

from pydantic_ai import Agent, CancellationToken, RunCancelled, Tool, capture_run_messages
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ._asyncio_sweep import Peer, Row, main
from ._judge import Transcript
from ._scenario import CALLS, PAUSE, World


def make_model(world: World) -> FunctionModel:
    """Answers from the scenario."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = world.request()
        for _ in range(4):
            await asyncio.sleep(PAUSE)
        calls = [ToolCallPart(name, {}, tool_call_id=id) for name, id in response.calls.items()]
        return ModelResponse(parts=[TextPart(response.text), *calls])

    return FunctionModel(answer)


def make_tool(world: World, name: str) -> Tool[Any]:
    """The fake tool of this name."""

    async def fake() -> str:
        return await world.work(name, asyncio.sleep)

    return Tool(fake, name=name, description=name)


class Run:
    """``agent.run`` of an agent in the given mode; the history is what was captured until it ended."""

    def __init__(self, world: World, parallel: bool) -> None:
        self.agent: Agent[Any, str] = Agent(make_model(world), tools=[make_tool(world, name) for name in CALLS])
        self.mode: Any = "parallel" if parallel else "sequential"
        self.token = CancellationToken()
        self.messages: list[ModelMessage] = []

    async def run(self) -> None:
        """The first prompt."""
        with capture_run_messages() as self.messages, self.agent.parallel_tool_call_execution_mode(self.mode):
            await self.agent.run("go")

    def stop(self) -> None:
        """Fire the token."""
        self.token.cancel()

    def transcript(self) -> Transcript:
        """The captured messages."""
        record = Transcript()
        for message in self.messages:
            for part in message.parts:
                if part.part_kind == "tool-call":
                    record.calls.append(part.tool_call_id)
                elif part.part_kind in ("tool-return", "retry-prompt"):
                    record.results[part.tool_call_id] = str(part.content)
        return record

    async def again(self) -> str:
        """A second prompt with the captured history."""
        result = await self.agent.run("again", message_history=list(self.messages))
        return "ok" if result.output == "All done." else f"answered {result.output!r}"


class RunWithToken(Run):
    """The same with a token; the history is the one that `RunCancelled` carries."""

    async def run(self) -> None:
        """The first prompt."""
        with capture_run_messages() as self.messages, self.agent.parallel_tool_call_execution_mode(self.mode):
            try:
                await self.agent.run("go", cancellation_token=self.token)
            except RunCancelled as error:
                self.messages = error.all_messages()
                raise


def rows() -> tuple[Row, ...]:
    """Sequential by the framework's own setting."""
    found = []
    for mode, parallel in (("sequential", False), ("parallel", True)):
        found.append(Row(f"{mode}, run", "cancel", partial(Run, parallel=parallel)))
        found.append(Row(f"{mode}, run", "abort", partial(RunWithToken, parallel=parallel), "stop"))
    return tuple(found)


PEER = Peer(
    name="pydantic-ai",
    packages=("pydantic-ai-slim",),
    stop_call="CancellationToken.cancel()",
    record="cancel: capture_run_messages(); abort: RunCancelled.all_messages(); unanswered calls are answered "
    "when the history is sent",
    rows=rows(),
)

if __name__ == "__main__":
    main(PEER)
