"""The guard of a run: a task that waits inside the run's scope for nothing but the run's end from outside.

trio tells a waiting task of a cancellation synchronously, in the very step in which somebody cancels. So the guard
knows at once, and its first word stands: the outcome is the first cause by time, a later `Agent.abort` says False,
and the grace of shielded tools begins. Should something still run when the grace is over, it is named in public,
for in process it cannot be ended.
"""

import linecache
import os
import sys
import threading
import warnings
from collections.abc import Iterator

import trio

from ._errors import UnendableWarning
from ._messages import ToolResult
from ._run import Run

__all__ = ["Guard", "where_it_waits"]

MARGIN = 0.1
"""Seconds beyond the grace before something counts as not to be ended: what was cut by the grace may clean up."""

_TRIO = os.path.dirname(trio.__file__)
_CORE = os.path.dirname(__file__)


class Guard:
    """Watches over one run; `watch` is its task, `wait_posted` is for who opens the run.

    Attributes:
        warning: an `UnendableWarning` that is still to be raised, where warnings are errors.
    """

    def __init__(self, run: Run) -> None:
        self.warning: UnendableWarning | None = None
        self._run = run
        self._posted = False
        self._openers: list[trio.lowlevel.Task] = []
        self._over = trio.Event()
        self._task: trio.lowlevel.Task | None = None

    @trio.lowlevel.enable_ki_protection
    async def wait_posted(self) -> None:
        """Wait until the guard is at its post. To be awaited in the step in which the run began: a cancellation
        of the caller's scopes is noticed from that step on."""
        if self._posted:
            return

        def noticed(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._openers.remove(opener)
            try:
                raise_cancel()
            except trio.Cancelled:
                self._run.end_from_outside()
            except KeyboardInterrupt:
                pass  # is raised in the opener, which then ends the run
            return trio.lowlevel.Abort.SUCCEEDED

        opener = trio.lowlevel.current_task()
        self._openers.append(opener)
        self._run.opener = None
        await trio.lowlevel.wait_task_rescheduled(noticed)

    @trio.lowlevel.enable_ki_protection
    async def watch(self) -> None:
        """Wait for a cancellation or `dismiss`; then see that nothing outstays its grace unnamed."""
        self._posted = True
        for opener in self._openers:
            trio.lowlevel.reschedule(opener)
        self._openers.clear()
        if self._over.is_set():
            return

        def noticed(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._task = None
            self._run.end_from_outside()
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        try:
            await trio.lowlevel.wait_task_rescheduled(noticed)
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._run.grace + MARGIN) as patience:
                await self._over.wait()
            if patience.cancelled_caught:
                self._report()
            raise

    def dismiss(self) -> None:
        """The loop has ended. Sync."""
        self._over.set()
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def _report(self) -> None:
        run = self._run
        grace = f"{run.grace:g} s after the run was ended"
        for call, task in tuple(run.running.values()):
            place = where_it_waits(task)
            text = f"tool {call.name!r} (call {call.id!r}) still runs {grace} and cannot be ended in process; {place}"
            run.record.tell_unendable(call, ToolResult(text, is_error=True))
            self._warn(text)
        if not run.running and run.loop_task is not None:
            place = where_it_waits(run.loop_task)
            self._warn(f"the run still waits {grace} and cannot be ended in process; {place}")

    def _warn(self, text: str) -> None:
        try:
            warnings.warn(UnendableWarning(text), stacklevel=2)
        except UnendableWarning as as_error:
            # warnings are errors here. The run may never end, so the text is said now, and raised if it does end.
            sys.stderr.write(f"trio_agent: {text}\n")
            self.warning = self.warning or as_error


def where_it_waits(task: trio.lowlevel.Task) -> str:
    """The lines at which a task and the tasks below it wait, in words: the innermost ones that are neither trio's
    nor the loop's; for a sync tool the line of its own that its thread is at."""
    places = list(_lines(task))
    return f"it waits at {', '.join(dict.fromkeys(places))}" if places else "where it waits cannot be seen"


def _lines(task: trio.lowlevel.Task) -> Iterator[str]:
    innermost = None
    for frame, number in task.iter_await_frames():
        filename = frame.f_code.co_filename
        if os.path.dirname(filename) == _CORE:
            innermost = None  # what was outside belongs to whoever called us
        elif not filename.startswith(_TRIO):
            innermost = _line(filename, number)
    if innermost is not None:
        yield innermost
    yield from _lines_in_thread(task)
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _lines(child)


def _lines_in_thread(task: trio.lowlevel.Task) -> Iterator[str]:
    for thread in threading.enumerate():
        of_the_task = thread.name.startswith("tool ") and thread.name.endswith(f" {id(task):x}")
        frame = sys._current_frames().get(thread.ident or 0) if of_the_task else None
        own = None
        while frame is not None and not frame.f_code.co_filename.startswith((_TRIO, _CORE)):
            own, frame = frame, frame.f_back
        if own is not None:
            yield f"{_line(own.f_code.co_filename, own.f_lineno)} in its thread"


def _line(filename: str, number: int) -> str:
    source = linecache.getline(filename, number).strip()
    return f"{filename}:{number}" + (f" ({source})" if source else "")
