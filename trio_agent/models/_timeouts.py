"""How long a server may be silent: four bounds, and the scope that holds a request to them."""

import functools
import math
from collections.abc import Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

import attrs
import trio

from trio_agent._errors import ModelTimeoutError

__all__ = ["Patience", "Timeouts", "timeouts_of"]

T = TypeVar("T")
_SLACK: Final = 0.01


def _positive(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"timeout.{attribute.name} must be a number of seconds or None, not {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"timeout.{attribute.name} must be a positive number of seconds or None, not {value!r}")


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long a request may take, in seconds on trio's clock; None is for ever.

    The time in which the run's reader is behind does not count: it is not the server's. A silence may last one percent
    longer than its bound.

    Attributes:
        connect: to open the connection.
        first_event: from sending the request to the first event of the response; reasoning models think long.
        between_events: from one event to the next.
        total: the whole response.
        keep_alives_count: whether comments and ``ping`` events are signs of life. A server that hangs may go on
            sending them for ever.
    """

    connect: float | None = attrs.field(default=10.0, validator=_positive)
    first_event: float | None = attrs.field(default=600.0, validator=_positive)
    between_events: float | None = attrs.field(default=600.0, validator=_positive)
    total: float | None = attrs.field(default=None, validator=_positive)
    keep_alives_count: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))


def timeouts_of(timeout: "float | Timeouts | None") -> Timeouts:
    """What the ``timeout`` argument of a model means: one number bounds every silence, and connecting up to 10 s.

    Raises:
        TypeError, ValueError: naming ``timeout``.
    """
    if isinstance(timeout, Timeouts):
        return timeout
    if timeout is None:
        return Timeouts(connect=None, first_event=None, between_events=None)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, a Timeouts or None, not {type(timeout).__name__}")
    if not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, a Timeouts or None, not {timeout!r}")
    return Timeouts(connect=min(timeout, 10.0), first_event=timeout, between_events=timeout)


def _in(seconds: float | None) -> float:
    return math.inf if seconds is None else trio.current_time() + seconds


class Patience:
    """One request's time: its scope is cancelled when the server has been silent for too long.

    Args:
        timeouts: the bounds; ``connect`` is the client's business.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._total = _in(timeouts.total)
        self._has_event = False
        self.scope = trio.CancelScope(deadline=min(self._total, _in(timeouts.first_event)))

    async def without(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with what has arrived; the server's time does not run while that waits. `go_on` follows."""
        return await _Pausing(work, self.scope)

    def go_on(self, *, event: bool) -> None:
        """Wait for the server again.

        Args:
            event: what arrived was an event, and no mere sign of life.
        """
        if event:
            self._has_event = True
        elif not self._timeouts.keep_alives_count and self.scope.deadline < math.inf:
            return
        silence = self._timeouts.between_events if self._has_event else self._timeouts.first_event
        deadline = min(self._total, _in(silence))
        # moving a deadline costs as much as parsing an event: one that is nearly right stands, and is set a little late
        slack = 0.0 if silence is None else _SLACK * silence
        if not deadline <= self.scope.deadline <= deadline + slack:
            self.scope.deadline = min(self._total, deadline + slack)

    def failure(self, where: str) -> ModelTimeoutError:
        """The error for a scope that was cancelled."""
        if trio.current_time() >= self._total:
            bound = self._timeouts.total
            return ModelTimeoutError(f"{where} did not end its response within {bound} s (timeout.total)")
        name = "between_events" if self._has_event else "first_event"
        what = "another event" if self._has_event else "anything"
        return ModelTimeoutError(
            f"{where} did not send {what} within {getattr(self._timeouts, name)} s (timeout.{name})"
        )


class _Pausing(Generic[T]):
    """Awaits something; if that waits, a scope's deadline is taken away. Most of what is awaited here never waits, and
    then nothing is done to the scope."""

    __slots__ = ("_scope", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], scope: trio.CancelScope) -> None:
        self._work = work
        self._scope = scope

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            trap = self._work.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
        self._scope.deadline = math.inf
        while True:
            try:
                answer = yield trap
            except BaseException as error:  # noqa: BLE001 - goes to whom it is meant for
                step = functools.partial(self._work.throw, error)
            else:
                step = functools.partial(self._work.send, answer)
            try:
                trap = step()
            except StopIteration as done:
                value = done.value
                return value
