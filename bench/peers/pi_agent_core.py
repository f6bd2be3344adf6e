"""pi-agent-core (Python): ``Agent.prompt``. Its tools run one after another."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pi_agent_core.agent import Agent, AgentOptions
from pi_agent_core.types import (
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    Model,
    StreamDoneEvent,
    StreamErrorEvent,
    StreamStartEvent,
    StreamTextDeltaEvent,
    TextContent,
    ToolCall,
)

from ._asyncio_sweep import Peer, Row, main
from ._pi_port import PiRun
from ._scenario import CALLS, PAUSE, World


def message_of(text: str, calls: dict[str, str] | None = None, stop_reason: str = "stop") -> AssistantMessage:
    """One response in its types."""
    asked = [ToolCall(id=id, name=name, arguments={}) for name, id in (calls or {}).items()]
    return AssistantMessage(content=[TextContent(text=text), *asked], stop_reason=stop_reason)


def make_stream(world: World) -> Any:
    """Answers from the scenario, and obeys the stop flag before it sends and between chunks, as a provider does."""

    async def events(final: AssistantMessage, flag: asyncio.Event | None) -> AsyncIterator[Any]:
        text = ""
        if flag is None or not flag.is_set():
            response = world.request()
            await asyncio.sleep(PAUSE)
            yield StreamStartEvent(partial=message_of(""))
            for chunk in response.chunks:
                await asyncio.sleep(PAUSE)
                if flag is not None and flag.is_set():
                    break
                text += chunk
                yield StreamTextDeltaEvent(content_index=0, delta=chunk, partial=message_of(text))
            else:
                await asyncio.sleep(PAUSE)
                whole = message_of(text, response.calls, "toolUse" if response.calls else "stop")
                final.content, final.stop_reason = whole.content, whole.stop_reason
                yield StreamDoneEvent(reason=final.stop_reason, message=final)
                return
        final.content, final.stop_reason = [TextContent(text=text)], "aborted"
        yield StreamErrorEvent(reason="aborted", error=final)

    async def stream(model: Any, context: Any, options: Any) -> Any:
        final = message_of("")

        async def result() -> AssistantMessage:
            return final

        return {"events": events(final, options.cancel_event), "result": result}

    return stream


def make_tool(world: World, name: str) -> AgentTool:
    """The fake tool of this name."""

    async def execute(id: str, params: Any, cancel_event: asyncio.Event | None = None, on_update: Any = None) -> Any:
        stopped = cancel_event.is_set if cancel_event is not None else lambda: False
        return AgentToolResult(content=[TextContent(text=await world.work(name, asyncio.sleep, stopped))])

    return AgentTool(name=name, description=name, execute=execute)


class Run(PiRun):
    """``agent.prompt``."""

    def __init__(self, world: World) -> None:
        state = {
            "model": Model(api="fake", provider="fake", id="fake"),
            "tools": [make_tool(world, name) for name in CALLS],
        }
        self.agent = Agent(AgentOptions(initial_state=state, stream_fn=make_stream(world)))


PEER = Peer(
    name="pi-agent-core (Python)",
    packages=("pi-agent-core",),
    stop_call="agent.abort(): sets a flag that tools and stream may read",
    record="agent.state.messages",
    rows=(Row("sequential, prompt", "cancel", Run), Row("sequential, prompt", "abort", Run, "stop")),
)

if __name__ == "__main__":
    main(PEER)
