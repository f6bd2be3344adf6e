"""pi-agent-loop: ``Agent.prompt``, on the streams of pi-ai-client."""

import asyncio
from typing import Any

from pi_agent_loop.agent import Agent
from pi_agent_loop.tools import AgentTool, AgentToolResult
from pi_ai.event_stream import AssistantMessageEventStream
from pi_ai.types import (
    AssistantMessage,
    DoneEvent,
    ErrorEvent,
    Model,
    StartEvent,
    TextContent,
    TextDeltaEvent,
    ToolCall,
)
from pydantic import BaseModel

from ._asyncio_sweep import Peer, main
from ._pi_port import PiRun, both_modes
from ._scenario import CALLS, CONNECT_TURNS, PAUSE, World


def message_of(text: str, calls: dict[str, str] | None = None, stop_reason: Any = "stop") -> AssistantMessage:
    """One response in its types."""
    asked = [ToolCall(id=id, name=name, arguments={}) for name, id in (calls or {}).items()]
    content = [TextContent(text=text), *asked]
    return AssistantMessage(content=content, api="fake", provider="fake", model="fake", stop_reason=stop_reason)


def make_stream(world: World) -> Any:
    """Answers from the scenario in a task that is bound to the stream; a stop before it is sent is obeyed."""

    async def produce(stream: AssistantMessageEventStream, signal: Any) -> None:
        text = ""
        if signal is not None and signal.aborted:
            stream.push(ErrorEvent(reason="aborted", error=message_of("", stop_reason="aborted")))
            return
        try:
            for _ in range(CONNECT_TURNS):
                await asyncio.sleep(0)
            response = world.request()
            await asyncio.sleep(PAUSE)
            stream.push(StartEvent(partial=message_of("")))
            for chunk in response.chunks:
                await asyncio.sleep(PAUSE)
                text += chunk
                stream.push(TextDeltaEvent(content_index=0, delta=chunk, partial=message_of(text)))
            await asyncio.sleep(PAUSE)
        except asyncio.CancelledError:
            stream.push(ErrorEvent(reason="aborted", error=message_of(text, stop_reason="aborted")))
            raise
        reason: Any = "toolUse" if response.calls else "stop"
        stream.push(DoneEvent(reason=reason, message=message_of(text, response.calls, reason)))

    def stream(model: Any, context: Any, **options: Any) -> AssistantMessageEventStream:
        events = AssistantMessageEventStream()
        events.bind_producer(asyncio.ensure_future(produce(events, options.get("signal"))))
        return events

    return stream


class Nothing(BaseModel):
    """No parameters."""


def make_tool(world: World, tool_name: str) -> AgentTool:
    """The fake tool of this name."""

    class Fake(AgentTool):
        name = label = description = tool_name
        params = Nothing

        async def execute(self, id: str, params: Any, signal: Any = None, on_update: Any = None) -> AgentToolResult:
            text = await world.work(tool_name, asyncio.sleep, lambda: signal is not None and signal.aborted)
            return AgentToolResult(content=[TextContent(text=text)])

    return Fake()


class Run(PiRun):
    """``agent.prompt``."""

    def __init__(self, world: World, execution: Any) -> None:
        self.agent = Agent(
            model=Model.model_construct(id="fake", name="fake", api="fake", provider="fake"),
            stream_fn=make_stream(world),
            tools=[make_tool(world, name) for name in CALLS],
            tool_execution=execution,
        )


PEER = Peer(
    name="pi-agent-loop",
    packages=("pi-agent-loop", "pi-ai-client"),
    stop_call="agent.abort(): cancels the stream, sets a signal that tools may read",
    record="agent.state.messages",
    rows=both_modes(Run),
)

if __name__ == "__main__":
    main(PEER)
