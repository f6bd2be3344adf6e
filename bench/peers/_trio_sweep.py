"""Stop a trio run before every step of a task, and at every moment of rest: the twin of ``_asyncio_sweep``.

Only trio's public instruments are used. A moment of rest is one at which every scheduled task has taken its step.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio
from trio.testing import MockClock

from ._judge import PATIENCE, SETTLE, SETTLE_TURNS, Observation, Point, Tally, Transcript, check_undisturbed
from ._scenario import World


class TrioSubject(Protocol):
    """One fresh agent in one world; see ``Subject`` of the asyncio side."""

    def run(self) -> Awaitable[object]:
        """The first prompt, to its end."""

    def stop(self) -> object:
        """The stop call."""

    def transcript(self) -> Transcript:
        """The record."""

    async def again(self) -> str:
        """A second prompt."""


class Injector(trio.abc.Instrument):
    """Counts the steps of the watched task and its children while armed, and calls ``action`` once at ``point``."""

    def __init__(self, point: Point | None) -> None:
        self.point = point
        self.steps = 0
        self.rests = 0
        self.action: Callable[[], object] = lambda: None
        self.root: trio.lowlevel.Task | None = None
        self._runnable: set[trio.lowlevel.Task] = set()
        self._last_rest = -1

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._runnable.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._runnable.discard(task)
        if self.root is not None and _is_under(task, self.root):
            self.steps += 1
            self._reached((self.steps, False))

    def before_io_wait(self, timeout: float) -> None:
        if self.root is not None and not self._runnable and self.steps != self._last_rest:
            self._last_rest = self.steps
            self.rests += 1
            self._reached((self.rests, True))

    def _reached(self, point: Point) -> None:
        if point == self.point:
            self.action()


def _is_under(task: trio.lowlevel.Task, root: trio.lowlevel.Task) -> bool:
    """trio's own system tasks are not steps of the run."""
    above: trio.lowlevel.Task | None = task
    while above is not None and above is not root:
        above = above.parent_nursery.parent_task if above.parent_nursery is not None else None
    return above is root


async def _observe(
    build: Callable[[World], TrioSubject], how: str, injector: Injector, world: World, seen: Observation
) -> None:
    subject = build(world)
    outer = trio.CancelScope()

    def stop() -> None:
        world.stopped_at = seen.stopped_at = len(world.effects)
        if how == "cancel":
            outer.cancel()
        else:
            subject.stop()

    injector.action = stop
    tasks = trio.lowlevel.current_statistics().tasks_living
    with trio.move_on_after(PATIENCE) as patience:
        with outer:
            injector.root = trio.lowlevel.current_task()
            try:
                await subject.run()
                seen.ended = "returned"
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                seen.ended = f"raised {type(error).__name__}"
            finally:
                injector.root = None
    if patience.cancelled_caught:
        seen.ended = "hung"
    elif outer.cancelled_caught:
        seen.ended = "cancelled"
    for _ in range(SETTLE_TURNS):
        await trio.lowlevel.checkpoint()
    seen.leaked = ["task"] * (trio.lowlevel.current_statistics().tasks_living - tasks)
    await trio.sleep(SETTLE)
    seen.transcript = subject.transcript()
    seen.effects, world.closed = list(world.effects), True
    seen.again = await _outcome_of(subject)


async def _outcome_of(subject: TrioSubject) -> str:
    try:
        with trio.fail_after(PATIENCE):
            return await subject.again()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{type(error).__name__}: {error}"[:160]


def _run_once(build: Callable[[World], TrioSubject], how: str, point: Point | None) -> Observation:
    injector, world, seen = Injector(point), World(), Observation()
    trio.run(_observe, build, how, injector, world, seen, clock=MockClock(autojump_threshold=0), instruments=[injector])
    seen.steps, seen.rests = injector.steps, injector.rests
    return seen


def sweep(mode: str, action: str, build: Callable[[World], TrioSubject], every: int = 1) -> Tally:
    """Stop the run at every point (or at every n-th) and judge each."""
    undisturbed = _run_once(build, action, None)
    check_undisturbed(undisturbed)
    tally = Tally(mode, action)
    for point in undisturbed.points()[::every]:
        tally.add(point, _run_once(build, action, point))
    return tally
