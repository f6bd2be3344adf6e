"""pi-ai-python: ``Agent.prompt`` of the ``pi_agent`` that it ships."""

import asyncio
from typing import Any

from pi_agent import Agent, AgentInitialState, AgentTool, AgentToolResult
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

from ._asyncio_sweep import Peer, main
from ._pi_port import PiRun, both_modes
from ._scenario import CALLS, CONNECT_TURNS, PAUSE, World


def message_of(text: str, calls: dict[str, str] | None = None, stop_reason: str = "stop") -> AssistantMessage:
    """One response in its types."""
    asked = [ToolCall(id=id, name=name, arguments={}) for name, id in (calls or {}).items()]
    content = [TextContent(text), *asked]
    return AssistantMessage(content, api="fake", provider="fake", model="fake", stop_reason=stop_reason)


def make_stream(world: World) -> Any:
    """Answers from the scenario in a task of the library's own stream, and obeys the signal, as its providers do."""

    async def produce(stream: AssistantMessageEventStream, signal: Any) -> None:
        text = ""
        for _ in range(CONNECT_TURNS):
            await asyncio.sleep(0)
        if signal is None or not signal.aborted:
            response = world.request()
            await asyncio.sleep(PAUSE)
            stream.push(StartEvent(message_of("")))
            for chunk in response.chunks:
                await asyncio.sleep(PAUSE)
                if signal is not None and signal.aborted:
                    break
                text += chunk
                stream.push(TextDeltaEvent(0, chunk, message_of(text)))
            else:
                await asyncio.sleep(PAUSE)
                reason = "toolUse" if response.calls else "stop"
                stream.push(DoneEvent(reason, message_of(text, response.calls, reason)))
                return
        stream.push(ErrorEvent("aborted", message_of(text, stop_reason="aborted")))

    def stream(model: Any, context: Any, options: Any) -> AssistantMessageEventStream:
        events = AssistantMessageEventStream()
        events.start(produce(events, options.get("signal")))
        return events

    return stream


def make_tool(world: World, name: str) -> AgentTool:
    """The fake tool of this name."""

    async def execute(id: str, params: Any, signal: Any = None, on_update: Any = None) -> AgentToolResult:
        text = await world.work(name, asyncio.sleep, lambda: signal is not None and signal.aborted)
        return AgentToolResult([TextContent(text)])

    return AgentTool(name, name, execute=execute)


class Run(PiRun):
    """``agent.prompt``."""

    def __init__(self, world: World, execution: Any) -> None:
        state = AgentInitialState(
            system_prompt="s",
            model=Model(id="fake", api="fake", provider="fake"),
            tools=[make_tool(world, name) for name in CALLS],
        )
        self.agent = Agent(initial_state=state, stream_fn=make_stream(world), tool_execution=execution)


PEER = Peer(
    name="pi-ai-python (pi_agent)",
    packages=("pi-ai-python",),
    stop_call="agent.abort(): sets a signal that tools and stream may read",
    record="agent.state.messages",
    rows=both_modes(Run),
)

if __name__ == "__main__":
    main(PEER)
