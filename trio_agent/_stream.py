"""EventStream: a synchronous push at one end, ``async for`` at the other, and bounded memory between them.

A trio memory channel of size one carries *batches*, not items. The first push into an empty lane sends a fresh
list; while the reader has not come for it, further pushes go into that same list, with no scheduler in between.
When the reader takes the list it is the reader's own. So an idle reader gets each event as it comes, and a busy
one gets many for the price of one wake-up.

Nothing is lost to a cancellation: an event leaves a lane in the very step in which `__anext__` returns it, and
every wait comes before that. The producer bounds memory by awaiting `EventSink.room` where it may wait anyway.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, Literal, TypeVar
from weakref import finalize, ref

import attrs
import trio

__all__ = ["Coalescer", "EventSink", "EventStream", "open_event_stream"]

E = TypeVar("E")
R = TypeVar("R")
E_co = TypeVar("E_co")

SCHEDULE_EVERY: Final = 64
"""At the latest after this many events other tasks get a turn, on both sides."""


@attrs.frozen
class Coalescer(Generic[E_co]):
    """How adjacent events are merged for a slow reader.

    Attributes:
        continues: ``continues(later, earlier)``: may one event stand for both? Asked of any two events; must
            not raise.
        merge: ``merge(first, last)``: the one event for a run of such events.
    """

    continues: Callable[[Any, Any], bool]
    merge: Callable[[Any, Any], E_co]


@attrs.define
class _Span:
    """A run of merged events, by its two ends: O(1) memory however many lie between."""

    first: Any
    last: Any


class _Lane(Generic[E]):
    """One reader's way through: the batch on its way, and how many events are not yet taken.

    While it is ``waived`` (somebody awaits the result and nobody reads) the producer does not wait for it. What is
    within the bound stays; the first event beyond cuts the lane: nothing more enters, so what a reader may still
    take is a prefix without a gap.
    """

    __slots__ = ("_coalescer", "_send", "batch", "bound", "buffered", "cut", "receive", "room", "waived")

    def __init__(self, bound: int, coalescer: Coalescer[E] | None) -> None:
        self._send, self.receive = trio.open_memory_channel[list[E]](1)
        self._coalescer = coalescer
        self.batch: list[E] | None = None
        self.bound = bound
        self.buffered = 0
        self.cut = False
        self.waived = 0
        self.room: trio.Event | None = None

    def push(self, event: E) -> None:
        if self.cut:
            return
        if self.waived and self.buffered > self.bound:
            self.close()
            return
        batch = self.batch
        if batch is None:
            self.batch = [event]
            self._send.send_nowait(self.batch)
        elif self._coalescer is not None and self.buffered >= self.bound and self._merge(batch, event):
            return
        else:
            batch.append(event)
        self.buffered += 1

    def _merge(self, batch: list[Any], event: E) -> bool:
        assert self._coalescer is not None
        tail = batch[-1]
        newest = tail.last if type(tail) is _Span else tail
        if not self._coalescer.continues(event, newest):
            return False
        if type(tail) is _Span:
            tail.last = event
        else:
            batch[-1] = _Span(tail, event)
        return True

    def take(self, entry: Any) -> E:
        """An entry of a batch as the reader sees it."""
        if type(entry) is _Span:
            assert self._coalescer is not None
            entry = self._coalescer.merge(entry.first, entry.last)
        self.buffered -= 1
        if self.room is not None and self.buffered <= self.bound:
            self._open_room()
        result: E = entry
        return result

    @property
    def is_full(self) -> bool:
        # a coalescing lane holds merged deltas at its bound; only events that cannot merge take it further
        limit = self.bound if self._coalescer is None else 2 * self.bound
        return self.buffered > limit and not self.cut and not self.waived

    def waive(self) -> None:
        """Somebody awaits the result and nobody reads: the producer need not wait."""
        self.waived += 1
        self._open_room()

    def discard(self) -> None:
        """The reader has left: forget what is here and what comes, and let the producer go on."""
        self.close()
        if self.batch is not None:
            self.batch.clear()
        self.buffered = 0

    def close(self) -> None:
        """Nothing more enters; what is here may still be taken."""
        self.cut = True
        self._send.close()
        self._open_room()

    def _open_room(self) -> None:
        if self.room is not None:
            self.room.set()
            self.room = None


class EventSink(Generic[E, R]):
    """The producer's end: made by `open_event_stream`."""

    __slots__ = ("_done", "_ended", "_error", "_lanes", "_pushed", "_result")

    def __init__(self) -> None:
        self._lanes: list[_Lane[E]] = []
        self._done = trio.Event()
        self._ended = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._pushed = 0

    def push(self, event: E) -> None:
        """Append an event for every reader. Sync: never waits, and never fails because of a reader.

        Raises:
            trio.ClosedResourceError: after `end` or `fail`; that is the producer's mistake.
        """
        if self._ended:
            raise trio.ClosedResourceError("push() after end()")
        for lane in self._lanes:
            lane.push(event)

    def end(self, result: R) -> None:
        """Close the stream; readers get what is buffered, then the end. Later calls change nothing."""
        if not self._ended:
            self._result = result
            self._close()

    def fail(self, error: BaseException) -> None:
        """Close the stream with an error, which readers meet after what is buffered. Later calls change nothing."""
        if not self._ended:
            self._error = error
            self._close()

    def _close(self) -> None:
        self._ended = True
        for lane in self._lanes:
            lane.close()
        self._done.set()

    @property
    def is_full(self) -> bool:
        """True while a reader is over its bound: `room` would wait."""
        return any(lane.is_full for lane in self._lanes)

    async def room(self) -> None:
        """Wait while a reader is over its bound. A cancellation point always; a schedule point when it waits
        and at the latest every 64 calls. Nothing is lost when it is cancelled."""
        self._pushed += 1
        if self._pushed >= SCHEDULE_EVERY:
            self._pushed = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        for lane in tuple(self._lanes):
            while lane.is_full:
                if lane.room is None:
                    lane.room = trio.Event()
                await lane.room.wait()

    def _open_lane(self, bound: int, coalescer: Coalescer[E] | None) -> _Lane[E]:
        lane = _Lane(bound, coalescer)
        if self._ended:
            lane.close()
        else:
            self._lanes.append(lane)
        return lane


class _Reader(Generic[E, R]):
    """What ``async for`` holds: the stream notices when it is dropped (its weak reference dies)."""

    __slots__ = ("__weakref__", "_stream")

    def __init__(self, stream: "EventStream[E, R]") -> None:
        self._stream = stream

    def __aiter__(self) -> "_Reader[E, R]":
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> E:
        return await self._stream._next()


class EventStream(Generic[E, R]):
    """The reader's end: ``async for event in stream``, ``await stream.result()``; made by `open_event_stream`.

    One task iterates at a time; use `subscribe` for more readers. A reader sees a gap-free prefix of what was
    pushed since its stream was opened, and all of it if it stays.
    """

    def __init__(self, sink: EventSink[E, R], bound: int, coalescer: Coalescer[E] | None = None) -> None:
        self._sink = sink
        self._lane = sink._open_lane(bound, coalescer)
        self._default_bound = bound
        self._coalescer: Coalescer[E] | None = None
        self._batch: list[Any] = []
        self._position = 0
        self._reader: ref[_Reader[E, R]] | None = None
        self._reader_task: trio.lowlevel.Task | None = None
        self._taken = 0
        self._reading = False
        self._waiting_for_result = 0

    def __aiter__(self) -> "_Reader[E, R]":
        """Iterate. A later iteration goes on where an earlier one stopped.

        Each step is a cancellation point, and a schedule point at the latest every 64 events. An event that was
        taken is never lost to a cancellation.
        """
        reader = _Reader(self)
        self._reader = ref(reader, self._reader_dropped)
        if trio.lowlevel.in_trio_task():
            self._reader_task = trio.lowlevel.current_task()
        return reader

    async def _next(self) -> E:
        if self._reading:
            raise trio.BusyResourceError("another task is iterating this stream; use subscribe() for a second reader")
        self._taken += 1
        if self._taken >= SCHEDULE_EVERY:
            self._taken = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while self._position >= len(self._batch):
            self._reader_task = trio.lowlevel.current_task()
            await self._receive()
        position = self._position
        entry = self._batch[position]
        self._batch[position] = None  # a taken event is the reader's alone
        self._position = position + 1
        return self._lane.take(entry)

    async def _receive(self) -> None:
        self._reading = True
        try:
            self._batch = await self._lane.receive.receive()
            self._position = 0
            self._lane.batch = None
            self._taken = 0
        except trio.EndOfChannel:
            if self._sink._error is not None:
                raise self._sink._error from None
            raise StopAsyncIteration from None
        finally:
            self._reading = False

    @trio.lowlevel.enable_ki_protection
    async def result(self) -> R:
        """Wait for the end and return what the producer ended with; any number of tasks may wait.

        Needs no reader: if nobody is iterating, what does not fit the buffer is discarded. An iteration counts as
        going on while another task holds it (inside its ``async for``). After a cancelled wait a reader can go on;
        if events had to be discarded meanwhile, it gets those before them and then the end.

        Raises:
            BaseException: what the producer failed with.
        """
        self._waiting_for_result += 1
        try:
            self._waive_if_unread()
            await self._sink._done.wait()
        finally:
            self._waiting_for_result -= 1
            if not self._waiting_for_result:
                self._lane.waived = 0
        if self._sink._error is not None:
            raise self._sink._error
        result: Any = self._sink._result
        return result  # type: ignore[no-any-return]

    @trio.lowlevel.enable_ki_protection
    def _reader_dropped(self, dead: object) -> None:
        if self._reader is dead:
            self._reader = None
            if self._waiting_for_result:
                self._lane.waive()

    def _waive_if_unread(self) -> None:
        reader = self._reader() if self._reader is not None else None
        if reader is None or (self._reader_task is trio.lowlevel.current_task() and not self._reading):
            self._lane.waive()

    @trio.lowlevel.enable_ki_protection
    def close(self) -> None:
        """The reader leaves: drop what is buffered and what is still to come, so that nobody waits for it.

        Sync and idempotent. `result` still works; an iteration ends.
        """
        self._batch, self._position = [], 0
        self._lane.discard()

    def subscribe(
        self, *, max_buffered: int | None = None, overflow: Literal["block", "coalesce"] = "block"
    ) -> "EventStream[E, R]":
        """A stream of its own for one more reader, from the next event on.

        Args:
            max_buffered: its bound, in events; the first stream's by default.
            overflow: ``"block"`` makes the producer wait when it is full. ``"coalesce"`` merges adjacent deltas
                instead; events that cannot merge are never dropped, and count up to twice the bound.

        Raises:
            ValueError: ``overflow="coalesce"`` on a stream that was opened without a coalescer.
        """
        if overflow not in ("block", "coalesce"):
            raise ValueError(f"overflow must be 'block' or 'coalesce', not {overflow!r}")
        if overflow == "coalesce" and self._coalescer is None:
            raise ValueError("overflow='coalesce' needs a stream opened with coalescer=...")
        bound = self._default_bound if max_buffered is None else _check_bound(max_buffered)
        stream = EventStream(self._sink, bound, self._coalescer if overflow == "coalesce" else None)
        stream._coalescer = self._coalescer
        # a stream that nobody holds can never be read: the producer must not wait for it
        finalize(stream, stream._lane.discard).atexit = False
        return stream

    async def __aenter__(self) -> "EventStream[E, R]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_bound(max_buffered: int) -> int:
    if not isinstance(max_buffered, int) or isinstance(max_buffered, bool) or max_buffered < 1:
        raise ValueError(f"max_buffered must be a whole number of events, at least 1, not {max_buffered!r}")
    return max_buffered


def open_event_stream(
    max_buffered: int, *, coalescer: Coalescer[E] | None = None
) -> tuple[EventSink[E, R], EventStream[E, R]]:
    """A stream of events from any push source to any number of readers.

    Args:
        max_buffered: how many events may wait for the reader before `EventSink.room` waits for it.
        coalescer: how adjacent events merge; needed for ``subscribe(overflow="coalesce")``.

    Returns:
        The producer's end and the reader's end.

    Raises:
        ValueError: ``max_buffered`` is not a whole number of at least 1.
    """
    sink: EventSink[E, R] = EventSink()
    stream: EventStream[E, R] = EventStream(sink, _check_bound(max_buffered))
    stream._coalescer = coalescer
    return sink, stream
