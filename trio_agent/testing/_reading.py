"""Ways to read a run: patient, slow, impatient, after waiting for its result, and leaving in the middle."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import attrs
import trio

from trio_agent import AgentEvent, EventStream, RunResult

if TYPE_CHECKING:
    from ._watch import AgentWatch

__all__ = ["Reading"]


@attrs.frozen
class Reading:
    """How a watched run is read.

    Attributes:
        pause: seconds that the reader takes for each event.
        leave_after: it leaves after so many events.
        patience: it waits so many seconds for an event, and then asks anew.
        wait_first: it waits so long for the result before it begins to read.
        may_miss_the_end: such a wait may have discarded what came beyond the bound.
    """

    pause: float = 0.0
    leave_after: int | None = None
    patience: float | None = None
    wait_first: float | None = None
    may_miss_the_end: bool = False

    async def read(self, watch: "AgentWatch", stream: EventStream[AgentEvent, RunResult]) -> None:
        """Read the stream, noting each event in the step in which it is taken."""
        run, taken = watch.run, 0
        run.stayed = False
        if self.may_miss_the_end:
            run.bound = None  # what is discarded does not wait
        if self.wait_first is not None:
            with trio.move_on_after(self.wait_first):
                await stream.result()
        reader = aiter(stream)
        while True:
            event = await self._next(watch, reader)
            if event is None:
                break
            taken += 1
            watch.note("read", event)
            watch.point("the reader has an event")
            if taken == self.leave_after:
                return
            if watch.stops_reading:
                await trio.sleep(60)
                return
            if self.pause:
                await trio.sleep(self.pause)
        run.stayed = not self.may_miss_the_end

    async def _next(self, watch: "AgentWatch", reader: AsyncIterator[AgentEvent]) -> AgentEvent | None:
        while True:
            try:
                if self.patience is None:
                    return await anext(reader)
                event: AgentEvent | None = None
                with trio.move_on_after(self.patience):
                    event = await anext(reader)
                if event is not None:
                    return event
            except StopAsyncIteration:
                return None
            except trio.BusyResourceError as error:
                watch.problem("G11", f"the reader cannot go on: {error}")
                return None
