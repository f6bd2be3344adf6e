"""One run as the engine sees it: its books, its settings, its inboxes, its scope."""

from collections.abc import Callable
from typing import Any

import attrs
import trio

from ._budget import Budget
from ._config import MessageSource, RunSettings, takes_context
from ._context import to_messages
from ._limits import Limit
from ._messages import ToolCall
from ._output import OutputSlot
from ._queues import MessageQueue
from ._record import RunRecord
from ._scopes import bare, call, is_cancelled, leaves, own_error
from .abc import HookContext, Tool

__all__ = ["Inbox", "Run"]


@attrs.define
class Inbox:
    """A queue and, in the functional layer, the caller's function that fills it."""

    queue: MessageQueue
    fetch: MessageSource | None = None
    name: str = "get_steering_messages"


@attrs.define
class Run:
    """One run as the loop and the tool calls see it.

    Attributes:
        scope: what `abort` cancels; its deadline is the run's.
        looks_first: look at steering before the first request. False if the run was started from that queue.
        budget: what its limits leave it.
        limit: the limit that a call has reached; the run ends with its turn.
        truncated: how many responses in a row had calls and stopped at their length limit.
        running: the calls whose tools run right now, by id, each with the task it runs in.
        shields: what protects atomic tools; each gets a deadline when the run is being ended.
        loop_task: the task of the loop.
        outer_deadline: when the scopes around the run end it, as far as was known when it was opened.
        opener: the task that is opening the run, in its first step; None once its guard watches.
    """

    record: RunRecord
    settings: RunSettings
    steering: Inbox
    follow_ups: Inbox
    scope: trio.CancelScope
    budget: Budget = attrs.field()
    looks_first: bool = True
    limit: Limit | None = None
    truncated: int = 0
    running: dict[str, tuple[ToolCall, trio.lowlevel.Task]] = attrs.field(factory=dict)
    shields: set[trio.CancelScope] = attrs.field(factory=set)
    loop_task: trio.lowlevel.Task | None = None
    opener: trio.lowlevel.Task | None = attrs.field(factory=trio.lowlevel.current_task)
    outer_deadline: float = attrs.field(factory=trio.current_effective_deadline)
    _asked: dict[int, tuple[Callable[..., Any], bool]] = attrs.field(factory=dict, init=False)

    @budget.default
    def _own_budget(self) -> Budget:
        return Budget(self.settings.config.all_limits, self.record)

    @property
    def output(self) -> OutputSlot | None:
        """The place of the value that the run is to give, if it is to give one."""
        return self.record.output

    @property
    def grace(self) -> float:
        """Seconds that a shielded tool may go on once the run is being ended."""
        return self.settings.config.abort_grace

    async def look_for_steering(self) -> bool:
        """A steering point: other tasks get their turn first, so what they queued or cancelled is seen here."""
        await self.record.room()
        await trio.lowlevel.checkpoint()
        return await self._look(self.steering)

    async def look_for_follow_ups(self) -> bool:
        """The place where a run would end."""
        return await self._look(self.follow_ups)

    async def _look(self, inbox: Inbox) -> bool:
        if inbox.fetch is not None:
            fetched = await self.ask(inbox.fetch)
            if fetched:
                inbox.queue.extend(to_messages(fetched, f"{inbox.name}()"))
        return len(inbox.queue) > 0

    async def ask(self, hook: Callable[..., Any], *args: Any) -> Any:
        """Call a hook of the embedder's, sync or async; the one way to do so.

        No hook is called once the run has been cancelled. What a hook raises is a bug and ends the run: it is the
        cause from this moment on, whatever else has to be waited for.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return await call(hook, *args)
        except (Exception, trio.Cancelled, BaseExceptionGroup) as error:  # noqa: BLE001
            own = own_error(error)
            if not is_cancelled():
                self.fail(own)
            raise own from own.__cause__

    async def ask_hook(self, hook: Callable[..., Any], call: ToolCall, about: Any, tool: Tool) -> Any:
        """`ask` a hook around tool calls, with a `HookContext` if it takes one."""
        known = self._asked.get(id(hook))
        if known is None:
            known = self._asked[id(hook)] = hook, takes_context(hook)
        if not known[1]:
            return await self.ask(hook, call, about)
        return await self.ask(hook, call, about, HookContext(tool, self.settings.config.deps, steered=self._steered))

    async def _steered(self) -> None:
        if self.settings.config.steering_point == "turn":
            await trio.sleep_forever()
        await self.steering.queue.wait_not_empty()

    def take_call(self, call: ToolCall) -> bool:
        """May this call be taken up? Counts it; if not, `limit` says why. The run's own value is no tool's work."""
        if self.output is None or not self.output.takes(call.name):
            self.limit = self.budget.take_call(call)
        return self.limit is None

    def has_steering(self) -> bool:
        """Is steering queued right now? Does not wait and does not ask the caller's function."""
        return len(self.steering.queue) > 0

    def abort(self, reason: str | None) -> bool:
        """End the run on purpose. True iff this call decided the outcome."""
        in_first_step = self.opener is not None and trio.lowlevel.current_task() is self.opener
        if trio.current_time() >= self.outer_deadline or (in_first_step and is_cancelled()):
            self.end_from_outside()  # of which the guard cannot know yet
        if self.scope.cancel_called or not self.record.decide("aborted", reason=reason):
            return False
        self.scope.cancel(reason)
        return True

    def fail(self, error: BaseException) -> None:
        """An error is ending the run: whatever runs beside it is ended too, and has its grace from now on."""
        if not all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
            self.record.decide("error", bare(error))
            self.scope.cancel("an error ended the run")

    def end_from_outside(self) -> None:
        """The run's own scope, or one around it, has been cancelled in this very step. Sync; never raises."""
        # not scope.cancel_called: asking may cancel, and this is called from inside a cancellation
        own = self.scope.deadline <= self.outer_deadline and trio.current_time() >= self.scope.deadline
        self.record.decide("deadline" if own else "cancelled")
        for shield in self.shields:
            shield.deadline = min(shield.deadline, trio.current_time() + self.grace)
