"""The scenario, and the world it happens in: the same for every framework.

Two turns. The first response says a few words and calls three tools, the second is plain text. Nothing here imports
a framework: the fake tools and the fake models of all adapters are built of this, so all of them do the same.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

Sleep = Callable[[float], Awaitable[object]]
EffectKind = Literal["request", "started", "returned"]

CALLS = {"coop": "t1", "pay": "t2", "quick": "t3"}
"""The tools the first response calls, with the ids of the calls."""

NAPS = {"coop": (0.3, 0.3), "pay": (0.2, 0.2), "quick": ()}
"""How long each tool sleeps. ``quick`` never awaits: what it does cannot be torn, only forgotten."""

PAUSE = 0.1
"""Between two pieces of a response."""

CONNECT_TURNS = 3
"""Where a model streams from a task of its own, the request leaves only after so many loop turns: a provider connects
first, so a stop that arrives at once is in time."""


class StoppedByFlagError(Exception):
    """What a tool raises when it sees the stop flag of a framework that has one."""


@dataclass(frozen=True)
class Response:
    """What the fake model answers."""

    chunks: tuple[str, str]
    calls: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The chunks, joined."""
        return "".join(self.chunks)


@dataclass
class World:
    """What tools and models really did, in order; the framework does not see it.

    Attributes:
        stopped_at: how many effects there were when the run was cancelled or aborted, or None.
        closed: the run has been judged; what a second prompt does is no longer written down.
    """

    effects: list[tuple[EffectKind, str]] = field(default_factory=list)
    stopped_at: int | None = None
    closed: bool = False
    requests: int = 0

    def request(self) -> Response:
        """The model is asked. The first answer of a run has the calls, every later one is text."""
        self.requests += 1
        self._note("request", f"r{self.requests}")
        if self.requests == 1 and not self.closed:
            return Response(("Let me ", "look."), CALLS)
        return Response(("All ", "done."))

    async def work(self, name: str, sleep: Sleep, stopped: Callable[[], bool] = lambda: False) -> str:
        """The body of the tool ``name``.

        Args:
            sleep: the framework's own.
            stopped: reads the stop flag, where tools are given one. ``coop`` obeys it, ``pay`` does not.
        """
        self._note("started", CALLS[name])
        for seconds in NAPS[name]:
            await sleep(seconds)
            if name == "coop" and stopped():
                raise StoppedByFlagError("stopped by the flag")
        self._note("returned", CALLS[name])
        return result_of(CALLS[name])

    def _note(self, kind: EffectKind, id: str) -> None:
        if not self.closed:
            self.effects.append((kind, id))


def result_of(call_id: str) -> str:
    """What the tool of this call returns. The judge looks for it in the transcript."""
    return f"result of {call_id}"
