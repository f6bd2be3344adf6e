"""What the Python ports of Pi have in common: an ``Agent`` with ``prompt``, ``abort`` and ``state.messages``."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ._asyncio_sweep import Row
from ._judge import Transcript


class PiRun:
    """``agent.prompt``; a port's own class makes the agent."""

    agent: Any

    async def run(self) -> None:
        """The first prompt."""
        await self.agent.prompt("go")

    def stop(self) -> None:
        """``agent.abort()``."""
        self.agent.abort()

    def transcript(self) -> Transcript:
        """``agent.state.messages``."""
        record = Transcript()
        for message in self.agent.state.messages:
            if message.role == "assistant":
                record.calls += [part.id for part in message.content if part.type == "toolCall"]
            elif message.role in ("toolResult", "tool_result"):
                record.results[message.tool_call_id] = "".join(part.text for part in message.content)
        return record

    async def again(self) -> str:
        """A second prompt."""
        await self.agent.prompt("again")
        last = self.agent.state.messages[-1]
        return "ok" if last.role == "assistant" and last.stop_reason == "stop" else f"ended with {last!r}"[:160]


def both_modes(make: Callable[..., Any]) -> tuple[Row, ...]:
    """Rows for a run that is made with ``execution="sequential"`` or ``"parallel"``."""
    found = []
    for mode in ("sequential", "parallel"):
        build = partial(make, execution=mode)
        found += [Row(f"{mode}, prompt", "cancel", build), Row(f"{mode}, prompt", "abort", build, "stop")]
    return tuple(found)
