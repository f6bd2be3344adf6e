"""One controlled run: a scenario, a plan, and a scheduler of our own in between.

Nothing random is left: trio's batches are ordered by arrival and birth (`_private`), time is a `MockClock`, and an
action of the plan is called at exactly one place. Three kinds of place are needed. Before a task's step is not enough,
because a task that sleeps has already been woken when its next step comes: what hits it asleep is the end of a batch,
when every task waits. And what a callback of the embedder's does comes in the middle of a step: a point, or a line.
"""

import ctypes
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

import trio
from trio.testing import MockClock

from ._lines import LineWatch, interruptible
from ._plan import Plan
from ._private import UnsupportedTrioError, controlled_order
from ._probe import Probe
from ._scopes import recorded_scopes
from ._trace import Fired, StepSpan, Trace, leaves

__all__ = ["Controller", "ScenarioFunction", "run_plan"]

ScenarioFunction: TypeAlias = Callable[[Probe], Awaitable[Any]]

_FOREIGN: Final = (os.path.dirname(trio.__file__), os.path.dirname(__file__))
_IDLE_LIMIT: Final = 3
_PATIENCE: Final = 1000
"""Batches that a run may go on for once it has been told to end."""


class KilledRunError(BaseException):
    """Raised inside trio's scheduler when a run neither ends nor can be ended by cancelling it."""


class Controller(trio.abc.Instrument):
    """Orders the batches of one run, counts its steps, and fires the actions of its plan."""

    def __init__(self, plan: Plan, *, max_steps: int, traced: bool) -> None:
        self.trace = Trace(plan)
        self.actions: dict[str, Callable[[], object]] = {}
        self.counting = False
        self.live: dict[trio.lowlevel.Task, None] = {}
        self.born: dict[trio.lowlevel.Task, int] = {}
        self.kill_scope = trio.CancelScope()
        self.lines: LineWatch | None = None
        self._at = {(i.at, i.index): i.action for i in plan.injections}
        self._choices = dict(plan.choices)
        self._order = plan.order
        self._max_steps = max_steps
        self._traced = traced
        self._arrival: dict[trio.lowlevel.Task, tuple[int, int]] = {}
        self._batches = 0
        self._happened = 0
        self._idle = 0
        self._idle_since = -1.0
        self._killed = 0
        self._main: trio.lowlevel.Task | None = None
        self._own_tasks = 0

    def next_order(self) -> int:
        """A number for the next thing that is noted or fired."""
        self._happened += 1
        return self._happened

    # the order of a batch ---------------------------------------------------------------------------------------

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Stands in for trio's shuffle: tasks of trio's own first, then the scenario's in the order of the plan."""
        if self._killed:
            self._killed += 1
            if self._killed > _PATIENCE:
                raise KilledRunError(self.trace.outcome)
        self._batches += 1
        if len(batch) < 2:
            return
        born, arrival = self.born, self._arrival
        batch.sort(key=lambda task: arrival.get(task, (0, born.get(task, 0))))
        ours = [task for task in batch if born.get(task, 0) >= 0]
        if len(ours) > 1 and self._order != "arrival":
            ours = self._ordered(ours)
        batch[:] = [*reversed(ours), *reversed([task for task in batch if born.get(task, 0) < 0])]

    def _ordered(self, tasks: list[trio.lowlevel.Task]) -> list[trio.lowlevel.Task]:
        if self._order == "trio":
            return tasks[::-1] if self._choose(2) else tasks
        out = []
        while len(tasks) > 1:
            out.append(tasks.pop(self._choose(len(tasks))))
        return out + tasks

    def _choose(self, arity: int) -> int:
        choice = min(self._choices.get(len(self.trace.arities), 0), arity - 1)
        self.trace.arities.append(arity)
        self.trace.taken.append(choice)
        return choice

    # what trio tells --------------------------------------------------------------------------------------------

    def is_main(self, task: trio.lowlevel.Task) -> None:
        """From here on, new tasks are the scenario's; those before are trio's own."""
        self._main = task
        self._adopt(task)

    @property
    def has_begun(self) -> bool:
        """trio runs, and the scenario's task was there."""
        return self._main is not None

    def begin(self, task: trio.lowlevel.Task) -> None:
        """The scenario begins in the middle of this step, which is its first."""
        self.counting = True
        self._count(task)

    def _adopt(self, task: trio.lowlevel.Task) -> None:
        self.born[task] = len(self.trace.tasks)
        self.trace.tasks.append(task.name.rsplit(".", 1)[-1])
        self.live[task] = None

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if self._main is None:
            self._own_tasks -= 1
            self.born[task] = self._own_tasks
        else:
            self._adopt(task)
        self.task_scheduled(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.live.pop(task, None)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        # by the step that woke it, then by birth: tasks woken by one event come out of a set, in order of address
        self._arrival[task] = (self.trace.steps, self.born.get(task, -99))

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._idle = 0
        if self.counting and self.born.get(task, -1) >= 0:
            self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        trace, number = self.trace, self.born[task]
        trace.steps += 1
        if (action := self._at.get(("step", trace.steps))) is not None:
            self.fire(action, f"before step {trace.steps}")
        trace.schedule.append(number)
        if self._traced:
            trace.timeline.append(StepSpan(trace.steps, self._batches, number, line_of(task), trio.current_time()))
        if trace.steps > self._max_steps:
            self._kill("livelock")

    def before_io_wait(self, timeout: float) -> None:
        if self.counting:
            step = self.trace.steps
            if not self.trace.idles or self.trace.idles[-1] != step:
                self.trace.idles.append(step)
                if (action := self._at.get(("idle", step))) is not None:
                    self.fire(action, f"at rest after step {step}")
        self._idle += 1
        if self._idle > _IDLE_LIMIT:
            now = trio.current_time()
            if now == self._idle_since:
                self._kill("deadlock")
            self._idle_since = now
            self._idle = 0

    def _kill(self, outcome: Any) -> None:
        # first by cancelling, so that everything unwinds as it should; if that does not help, from the scheduler
        if not self._killed:
            self._killed = 1
            self.trace.outcome = outcome
            self.trace.stuck = [f"{task.name.rsplit('.', 1)[-1]} at {line_of(task)}" for task in self.live]
            self.counting = False
            self.kill_scope.cancel("the run came to no end")

    # injections -------------------------------------------------------------------------------------------------

    def at_point(self, label: str) -> None:
        """The scenario has come to a point."""
        if self.counting:
            self.trace.points += 1
            if (action := self._at.get(("point", self.trace.points))) is not None:
                self.fire(action, f"at point {self.trace.points} {label}".rstrip())

    def at_line(self, number: int, line: str) -> None:
        """The n-th watched line is about to run."""
        if (action := self._at.get(("line", number))) is not None:
            self.fire(action, f"at line {line}")

    def fire(self, action: str, place: str) -> None:
        """Call an action and keep what it did."""
        trace = self.trace
        for task in self.live:
            trace.sites.add(line_of(task, function=True))
        entry = (self.next_order(), trace.steps, trio.current_time(), action, place)
        function = self.actions.get(action)
        if function is None:
            trace.fired.append(Fired(*entry, problem="no such action at this moment"))
            return
        index = len(trace.fired)
        # kept before it is called: an interrupt does not come back
        trace.fired.append(Fired(*entry))
        try:
            trace.fired[index] = Fired(*entry, result=function())
        except Exception as error:  # noqa: BLE001 - the scenario's action; what it raised is part of the record
            trace.fired[index] = Fired(*entry, problem=f"raised {type(error).__name__}: {error}")


def line_of(task: trio.lowlevel.Task, *, function: bool = False) -> str:
    """The innermost line at which a task waits that is neither trio's nor the kit's, as file:line."""
    found = ""
    for frame, number in task.iter_await_frames():
        filename = frame.f_code.co_filename
        if not filename.startswith(_FOREIGN):
            found = f"{os.path.basename(filename)}:{number}"
            if function:
                found += f":{frame.f_code.co_qualname}"
    return found


def run_plan(
    scenario: ScenarioFunction,
    plan: Plan | None = None,
    *,
    files: frozenset[str] = frozenset(),
    max_steps: int = 20_000,
    traced: bool = False,
) -> Trace:
    """Run a scenario once, as the plan says, and return what happened.

    The scenario gets a `Probe`. It must not use threads, processes or sockets: only what the scheduler and the
    virtual clock decide can be run again in the same way.

    Args:
        scenario: an async function of a `Probe`.
        plan: the plain run by default.
        files: where lines are counted (and may be interrupted); counting makes a run several times slower.
        max_steps: after so many task steps the run counts as a livelock.
        traced: also record the line of every step and every cancel scope, for a timeline.

    Raises:
        UnsupportedTrioError: this trio cannot be controlled.
        RuntimeError: called inside trio; or lines are counted outside the main thread.
    """
    controller = Controller(plan or Plan(), max_steps=max_steps, traced=traced)
    clock = MockClock(autojump_threshold=0)
    probe = Probe(controller, clock)
    controller.actions["cancel"] = lambda: probe.scope.cancel("injected")
    controller.actions["clock_jump"] = lambda: clock.jump(probe.jump)
    controller.actions["interrupt"] = lambda: signal.raise_signal(signal.SIGINT)
    trace = controller.trace
    if files:
        controller.lines = LineWatch(files, controller.at_line, _last_line(trace.plan))
    with ExitStack() as stack:
        stack.enter_context(controlled_order(controller))
        if files or any(injection.action == "interrupt" for injection in controller.trace.plan.injections):
            stack.enter_context(interruptible())
        if traced:
            stack.enter_context(recorded_scopes(trace, controller.born))
        try:
            trio.run(_main, scenario, probe, controller, clock=clock, instruments=[controller])
        except Exception as error:
            _bury(controller)
            if isinstance(error.__cause__, UnsupportedTrioError):
                raise error.__cause__ from None
            if not controller.has_begun:
                raise  # the kit was called in a wrong way
            # whatever the scenario raised has been recorded: this is trio's own word
            if not isinstance(error.__cause__, KilledRunError):
                trace.outcome, trace.error = "broken", error
        except KeyboardInterrupt as error:
            # delivered when everything had ended
            trace.outcome, trace.error = "interrupted", error
    trace.actions = tuple(controller.actions)
    if controller.lines is not None:
        trace.lines = controller.lines.count
    if trace.outcome == "interrupted" and not any(fired.action == "interrupt" for fired in trace.fired):
        raise KeyboardInterrupt  # not ours: somebody pressed Ctrl-C
    return trace


def _last_line(plan: Plan) -> int | None:
    return max([i.index for i in plan.injections if i.at == "line"], default=None)


async def _main(scenario: ScenarioFunction, probe: Probe, controller: Controller) -> None:
    trace = controller.trace
    task = trio.lowlevel.current_task()
    controller.is_main(task)
    with controller.kill_scope:
        with probe.scope:
            await _watched(scenario, probe, controller)
        if probe.scope.cancelled_caught and not controller.kill_scope.cancel_called:
            trace.outcome = "cancelled"
        trace.leaked += [other.name for other in controller.live if other is not task]
        for function in probe._afterwards:
            try:
                await function()
            except Exception as error:  # noqa: BLE001 - recorded, as promised
                trace.after_error = trace.after_error or f"{type(error).__name__}: {error}"


async def _watched(scenario: ScenarioFunction, probe: Probe, controller: Controller) -> None:
    trace = controller.trace
    controller.begin(trio.lowlevel.current_task())
    if controller.lines is not None:
        controller.lines.start()
    try:
        trace.value = await scenario(probe)
    except BaseException as error:
        trace.error = error
        if _holds(error, trio.Cancelled):
            raise
        trace.outcome = "interrupted" if _holds(error, KeyboardInterrupt) else "raised"
        if not isinstance(error, Exception | KeyboardInterrupt | BaseExceptionGroup):
            raise
    finally:
        if controller.lines is not None:
            controller.lines.stop()
        controller.counting = False


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    return any(isinstance(leaf, kind) for leaf in leaves(error))


def _bury(controller: Controller) -> None:
    """Keep what a killed run left for ever: its tasks cannot be ended in any proper way any more, and closing them
    would run code of theirs outside trio, or spin where they swallow everything."""
    for task in controller.born:
        for thing in (task, task.coro, *task.child_nurseries):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
