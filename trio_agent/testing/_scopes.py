"""Which cancel scopes a traced run opened, cancelled and closed."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import trio

from ._trace import ScopeSpan, Trace

__all__ = ["recorded_scopes"]

_TRIO: Final = os.path.dirname(trio.__file__)


@contextmanager
def recorded_scopes(trace: Trace, born: Mapping[trio.lowlevel.Task, int]) -> Iterator[None]:
    """For the length of the block, record every cancel scope that a task opens in ``trace.scopes``, except those of
    nurseries, whose end trio does not tell.

    Args:
        born: the numbers of the tasks.

    The three public methods of `trio.CancelScope` are wrapped for one run, in one thread; they do what they did.
    """
    spans: dict[int, ScopeSpan] = {}
    kind = trio.CancelScope
    enter, leave, cancel = kind.__enter__, kind.__exit__, kind.cancel

    def recorded_enter(self: trio.CancelScope) -> trio.CancelScope:
        line = _caller()
        if line and trio.lowlevel.in_trio_task():
            task = born.get(trio.lowlevel.current_task(), 0)
            spans[id(self)] = span = ScopeSpan(task, trace.steps, shield=self.shield, line=line)
            trace.scopes.append(span)
            if self.cancel_called:
                span.cancelled = trace.steps
        return enter(self)

    def recorded_leave(
        self: trio.CancelScope,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        try:
            return leave(self, error_type, error, traceback)
        finally:
            span = spans.pop(id(self), None)
            if span is not None:
                span.closed = trace.steps
                span.caught = self.cancelled_caught

    def recorded_cancel(self: trio.CancelScope, *args: Any, **kwargs: Any) -> None:
        span = spans.get(id(self))
        if span is not None and span.cancelled is None:
            span.cancelled = trace.steps
        cancel(self, *args, **kwargs)

    _patch(kind, recorded_enter, recorded_leave, recorded_cancel)
    try:
        yield
    finally:
        _patch(kind, enter, leave, cancel)


def _patch(kind: Any, enter: Callable[..., Any], leave: Callable[..., Any], cancel: Callable[..., Any]) -> None:
    kind.__enter__, kind.__exit__, kind.cancel = enter, leave, cancel


def _caller() -> str:
    """Who opens a scope, as file:line; empty for a nursery."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_TRIO):
        if not frame.f_code.co_filename.endswith("_timeouts.py"):
            return ""
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
