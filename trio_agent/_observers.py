"""The observers of an agent: told of every event, in order, and unable to harm a run."""

import warnings
from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs

from ._errors import ObserverWarning
from ._events import AgentEvent
from ._messages import Usage
from ._scopes import call_sync, leaves, say, was_called
from .abc import Observer

__all__ = ["Observers", "Outer"]


@attrs.frozen(eq=False)
class _Entry:
    """One subscription; the same observer may have several."""

    observer: Observer


class Observers:
    """Observers in the order in which they came, and what went wrong with them. All sync.

    Attributes:
        interrupt: a KeyboardInterrupt or SystemExit that fell into an observer and is still to be raised.
    """

    def __init__(self) -> None:
        self.interrupt: BaseException | None = None
        self._entries: list[_Entry] = []
        self._errors: list[BaseException] = []
        self._untold: deque[AgentEvent] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, observer: Observer) -> Callable[[], None]:
        """Add one; returns a function that removes it again, and may be called twice."""
        entry = _Entry(observer)
        self._entries.append(entry)

        def remove() -> None:
            if entry in self._entries:
                self._entries.remove(entry)

        return remove

    def tell(self, event: AgentEvent) -> None:
        """Call every observer. One that causes an event itself (a tool's progress) must not overtake this one for
        the others, so that event waits its turn."""
        self._untold.append(event)
        if len(self._untold) > 1:
            return
        while self._untold:
            for entry in tuple(self._entries):
                self._tell(entry, self._untold[0])
            self._untold.popleft()

    def _tell(self, entry: _Entry, event: AgentEvent) -> None:
        try:
            # no function of ours in between: an interrupt in it would cost the observer this event
            call_sync(entry.observer, event)
        except BaseException as error:  # noqa: BLE001
            interrupts = [leaf for leaf in leaves(error) if isinstance(leaf, KeyboardInterrupt | SystemExit)]
            if interrupts:
                # raised by `raise_interrupt` as soon as the run's books are even
                self.interrupt = self.interrupt or interrupts[0]
                if not was_called(interrupts[0]):
                    self._tell(entry, event)
                return
            # also a Cancelled: a sync function cannot be cancelled, so it is the observer's own, and as much its fault
            self._errors.append(error)
            if entry in self._entries:
                self._entries.remove(entry)

    def raise_interrupt(self) -> None:
        """Raise the interrupt that fell into an observer, if one did."""
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            raise interrupt

    def warn(self, in_flight: BaseException | None = None) -> None:
        """One `ObserverWarning` for each observer that raised; said to the embedder after the run.

        Where warnings are errors, one that would take the place of an exception in flight becomes a note on it.
        """
        errors, self._errors = self._errors, []
        raised: Warning | None = None
        for error in errors:
            text = f"an observer raised and was removed: {type(error).__name__}: {say(error)}"
            warning = ObserverWarning(text)
            warning.__cause__ = error
            try:
                warnings.warn(warning, stacklevel=4)
            except ObserverWarning as as_error:
                raised = raised or as_error
                if in_flight is not None:
                    in_flight.add_note(text)
        if raised is not None and in_flight is None:
            raise raised


class Outer(Protocol):
    """The tool call that a nested run is, as the nested run sees it."""

    def tell(self, event: AgentEvent) -> None:
        """Something happened in the nested run."""

    def spend(self, usage: Usage) -> None:
        """The nested run spent tokens."""

    async def room(self) -> None:
        """Wait while the outer run's readers are behind."""
