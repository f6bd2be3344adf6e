"""`Probe`: what a scenario is handed, to say what can be done to it and what it observes."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock

from ._trace import Note, Trace

if TYPE_CHECKING:
    from ._engine import Controller

__all__ = ["Probe"]


class Probe:
    """The scenario's side of a controlled run. All methods are sync.

    Attributes:
        scope: a cancel scope around the whole scenario; the built-in action ``cancel`` cancels it.
        clock: the virtual clock; the built-in action ``clock_jump`` moves it by ``jump`` seconds.
        jump: see ``clock``.
        data: whatever the scenario's invariants want to look at; `Trace.data`.
    """

    def __init__(self, controller: "Controller", clock: MockClock) -> None:
        self.scope = trio.CancelScope()
        self.clock = clock
        self.jump = 0.35
        self._controller = controller
        self._afterwards: list[Callable[[], Awaitable[object]]] = []

    @property
    def trace(self) -> Trace:
        """The run so far."""
        return self._controller.trace

    @property
    def data(self) -> dict[str, Any]:
        """See the class."""
        return self.trace.data

    @property
    def step(self) -> int:
        """The current task step, from 1."""
        return self.trace.steps

    def action(self, name: str, function: Callable[[], object]) -> None:
        """Say what the action ``name`` does from now on: a sync function, called in between or inside task steps.

        What it returns is kept in `Fired.result`; an ``Exception`` that it raises is kept too, and is not raised.
        """
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"the action {name!r} must be a sync function, not {function!r}")
        self._controller.actions[name] = function

    def fire(self, name: str) -> None:
        """Call an action now, as an injection would; `Trace.fired` has it."""
        self._controller.fire(name, "by the scenario")

    def note(self, kind: str, data: Any = None) -> int:
        """Keep an observation; returns its place in the order of all that happened."""
        order = self._controller.next_order()
        self.trace.notes.append(Note(order, self.trace.steps, trio.current_time(), kind, data))
        return order

    def point(self, label: str = "") -> None:
        """Mark a position inside a task step at which an action may be injected."""
        self._controller.at_point(label)

    def count_lines(self, enabled: bool) -> None:
        """Whether lines count from here on, where a sweep counts them; from the start of the scenario they do.
        What only observes is better not interrupted."""
        if self._controller.lines is not None:
            self._controller.lines.enabled = enabled

    def afterwards(self, function: Callable[[], Awaitable[object]]) -> None:
        """Await ``function()`` when the scenario has ended, however it did: outside `scope`, without injections.
        What it raises is `Trace.after_error`."""
        self._afterwards.append(function)
