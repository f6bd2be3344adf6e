"""One run as the engine sees it: its books, its settings, its inboxes, its scope."""

import attrs
import trio

from ._config import MessageSource, RunSettings
from ._context import to_messages
from ._queues import MessageQueue
from ._record import RunRecord
from ._scopes import call

__all__ = ["Inbox", "Run"]


@attrs.define
class Inbox:
    """A queue and, in the functional layer, the caller's function that fills it."""

    queue: MessageQueue
    fetch: MessageSource | None = None
    name: str = "get_steering_messages"

    async def look(self) -> bool:
        """Is there something to deliver?"""
        if self.fetch is not None:
            fetched = await call(self.fetch)
            if fetched:
                self.queue.extend(to_messages(fetched, f"{self.name}()"))
        return len(self.queue) > 0


@attrs.define
class Run:
    """One run as the loop and the tool calls see it.

    Attributes:
        scope: what `abort` cancels; its deadline is the run's.
        looks_first: look at steering before the first request. False if the run was started from that queue.
        truncated: how many responses in a row had calls and stopped at their length limit.
    """

    record: RunRecord
    settings: RunSettings
    steering: Inbox
    follow_ups: Inbox
    scope: trio.CancelScope
    looks_first: bool = True
    truncated: int = 0

    async def look_for_steering(self) -> bool:
        """A steering point: other tasks get their turn first, so what they queued or cancelled is seen here."""
        await self.record.room()
        await trio.lowlevel.checkpoint()
        return await self.steering.look()

    async def look_for_follow_ups(self) -> bool:
        """The place where a run would end."""
        return await self.follow_ups.look()

    def has_steering(self) -> bool:
        """Is steering queued right now? Does not wait and does not ask the caller's function."""
        return len(self.steering.queue) > 0

    def abort(self, reason: str | None) -> bool:
        """End the run on purpose. True iff this call decided the outcome."""
        if self.scope.cancel_called or not self.record.decide("aborted", reason=reason):
            return False
        self.scope.cancel(reason)
        return True
