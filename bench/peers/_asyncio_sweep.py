"""Stop an asyncio run before every step of its event loop, and at every moment of rest.

A step is one handle that the loop runs. Time is virtual and moves only when nothing is runnable; the default executor
runs inline. So the n-th step is the same one in every run, and a point can be named by its number.
"""

import argparse
import asyncio
import json
import selectors
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, Protocol

from ._judge import PATIENCE, SETTLE, SETTLE_TURNS, Observation, Point, Tally, Transcript, check_undisturbed
from ._scenario import World

MAX_STEPS = 20_000
MAX_BUSY_TURNS = 200


class Subject(Protocol):
    """One fresh agent of a framework, in one world."""

    async def run(self) -> object:
        """The first prompt, to its end."""

    def stop(self) -> object:
        """The framework's own stop call."""

    def transcript(self) -> Transcript:
        """What the framework's own record says now."""

    async def again(self) -> str:
        """A second prompt on the same object or session: "ok", or what is wrong with the answer."""


@dataclass(frozen=True)
class Row:
    """One way to run a framework and one way to stop it."""

    mode: str
    action: str
    build: Callable[[World], Subject]
    how: Literal["cancel", "stop"] = "cancel"


@dataclass(frozen=True)
class Peer:
    """A framework, and what the reader of the table must know of it."""

    name: str
    packages: tuple[str, ...]
    stop_call: str
    record: str
    rows: tuple[Row, ...]


class EndlessError(BaseException):
    """The loop is busy without end; no ``except Exception`` of a framework may catch this."""


class _InlineExecutor(ThreadPoolExecutor):
    """Threads would make the number of steps a matter of chance."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is handed on, as an executor does
            future.set_exception(error)
        return future


class _VirtualSelector(selectors.SelectSelector):
    """Never waits: where the real one would, the clock is moved on."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout == 0:
            self.loop.count_busy_turn()
        elif not self.loop.at_rest():
            if timeout is None:
                raise EndlessError("nothing runnable and no timer")
            self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time which counts its steps and can be interrupted at each.

    Attributes:
        armed: whether steps are counted.
        interrupt: called before each counted step and at rest (with True); returns whether it did something.
    """

    def __init__(self, interrupt: Callable[[bool], bool]) -> None:
        selector = _VirtualSelector()
        selector.loop = self
        self.now = 0.0
        self.steps = 0
        self.armed = False
        self.interrupt = interrupt
        self._busy_turns = 0
        super().__init__(selector)
        self.set_default_executor(_InlineExecutor(1))
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self.now

    def before_step(self) -> None:
        """Called before each handle."""
        if self.armed:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise EndlessError("the run never stops working")
            self.interrupt(False)

    def at_rest(self) -> bool:
        """Called when nothing is runnable; whether that has just changed."""
        self._busy_turns = 0
        return self.armed and self.interrupt(True)

    def count_busy_turn(self) -> None:
        """A callback that schedules itself again each turn waits for the clock, which must move then too."""
        self._busy_turns += 1
        if self._busy_turns > MAX_BUSY_TURNS:
            self.now += 0.001


@contextmanager
def _counted_steps(loop: VirtualLoop) -> Iterator[None]:
    """asyncio has no hook for a step, so the method that runs a handle is replaced meanwhile."""
    run_handle = asyncio.events.Handle._run

    def counted(handle: asyncio.Handle) -> None:
        loop.before_step()
        run_handle(handle)

    asyncio.events.Handle._run = counted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        asyncio.events.Handle._run = run_handle  # type: ignore[method-assign]


class _Experiment:
    """One run, stopped at one point (or never)."""

    def __init__(self, row: Row, point: Point | None) -> None:
        self.row = row
        self.point = point
        self.world = World()
        self.seen = Observation(effects=self.world.effects)
        self.loop = VirtualLoop(self._interrupt)
        self.target: asyncio.Task[object] | None = None
        self._last_rest = -1

    def run(self) -> Observation:
        """Play it. The observation is complete even if the loop never comes to rest."""
        asyncio.set_event_loop(self.loop)
        try:
            with _counted_steps(self.loop), suppress(EndlessError):
                self.loop.run_until_complete(self._main())
        finally:
            self._close()
        return self.seen

    def _interrupt(self, resting: bool) -> bool:
        if resting and self._last_rest != self.loop.steps:
            self._last_rest = self.loop.steps
            self.seen.rests += 1
        here = (self.seen.rests if resting else self.loop.steps, resting)
        if here != self.point or self.world.stopped_at is not None:
            return False
        if self.target is None or self.target.done():
            return False
        self.world.stopped_at = self.seen.stopped_at = len(self.world.effects)
        if self.row.how == "cancel":
            self.target.cancel()
        else:
            self.subject.stop()
        return True

    async def _main(self) -> None:
        seen, loop = self.seen, self.loop
        self.subject = self.row.build(self.world)
        before = asyncio.all_tasks()
        self.target = asyncio.create_task(_as_coroutine(self.subject.run()))
        loop.armed = True
        done, _ = await asyncio.wait([self.target], timeout=PATIENCE)
        loop.armed = False
        seen.steps = loop.steps
        if done:
            seen.ended = _how_it_ended(self.target)
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - before - {self.target}
        seen.leaked = sorted(getattr(task.get_coro(), "__qualname__", "?") for task in left)
        # Late: what is recorded or done after the run has ended counts, the first in favour, the second against.
        await asyncio.sleep(SETTLE)
        seen.transcript = self.subject.transcript()
        seen.effects, self.world.closed = list(self.world.effects), True
        seen.again = await _outcome_of(self.subject.again())

    def _close(self) -> None:
        with warnings.catch_warnings(), suppress(Exception, EndlessError):
            warnings.simplefilter("ignore")
            if self.seen.again != "not tried":
                for task in asyncio.all_tasks(self.loop):
                    task.cancel()
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self.loop.close()


async def _as_coroutine(run: Awaitable[object]) -> object:
    return await run


def _how_it_ended(task: asyncio.Task[object]) -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return "returned" if error is None else f"raised {type(error).__name__}"


async def _outcome_of(again: Awaitable[str]) -> str:
    try:
        return await asyncio.wait_for(again, PATIENCE)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{type(error).__name__}: {error}"[:160]


def sweep(row: Row, every: int = 1) -> Tally:
    """Stop the run at every point (or at every n-th) and judge each."""
    undisturbed = _Experiment(row, None).run()
    check_undisturbed(undisturbed)
    # Before the first step the framework has not been entered.
    points = undisturbed.points()[1:]
    tally = Tally(row.mode, row.action)
    for point in points[::every]:
        tally.add(point, _Experiment(row, point).run())
    return tally


def main(peer: Peer) -> None:
    """Sweep all rows of a peer and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    every = parser.parse_args().every
    report = {
        "name": peer.name,
        "versions": {package: version(package) for package in peer.packages},
        "runtime": f"Python {sys.version.split()[0]}",
        "stop_call": peer.stop_call,
        "record": peer.record,
        "rows": [sweep(row, every).to_dict() for row in peer.rows],
    }
    sys.stdout.write(json.dumps(report) + "\n")
