"""Sweeps and explorations: which plans are run, one after the other, on one scenario."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Final, TypeAlias, get_args

import attrs

from ._engine import ScenarioFunction
from ._plan import Order, Plan, Position
from ._report import Report
from ._scenario import Invariant, Scenario, find_scenario, to_scenario
from ._trace import Trace

__all__ = ["Progress", "check_determinism", "explore", "replay", "sweep", "sweep_pairs"]

Progress: TypeAlias = Callable[[Report, int | None], None]
"""Called after each run with the report so far, and how many runs there will be if that is known."""

POSITIONS: Final[tuple[Position, ...]] = ("step", "idle", "point")


def sweep(
    scenario: Scenario | ScenarioFunction,
    actions: Iterable[str] | None = None,
    *,
    invariants: Iterable[Invariant] = (),
    positions: Sequence[Position] = POSITIONS,
    modules: Iterable[ModuleType | str] = (),
    base: Plan | None = None,
    every: int = 1,
    stop_at_first: bool = False,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Report:
    """Run a scenario once plainly, then once for every action at every position of the plain run.

    The scenario is an async function of a `Probe` and may be any trio code; every run has its own trio loop, its own
    virtual clock and a reproducible order of tasks. Sync: call it outside trio.

    Args:
        scenario: what to run. It registers its actions with `Probe.action`; ``cancel`` (the scope around the
            scenario), ``clock_jump`` and ``interrupt`` (a real SIGINT) are there already.
        actions: their names; the scenario's own by default.
        invariants: what each run is judged by, besides the scenario's own; see `Invariant`.
        positions: before each task ``"step"``; ``"idle"``, when every task waits; at each ``"point"``; at each
            ``"line"`` that runs in ``modules`` (for ``interrupt``; main thread only).
        modules: see `Scenario`; for functions that are not yet a `Scenario`.
        base: a plan to start from instead of the plain run.
        every: only each n-th position.
        stop_at_first: end with the first run in which something does not hold.
        progress: called after each run.
        report: a report to fill, so that a Ctrl-C leaves what is known so far.

    Raises:
        KeyboardInterrupt: Ctrl-C; the ``report`` holds what was run before.
        UnsupportedTrioError: this trio cannot be controlled.
    """
    subject = to_scenario(scenario, invariants=invariants, modules=modules)
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a whole number of at least 1, not {every!r}")
    _check_positions(positions, subject)
    report = _fresh(report, subject)
    report.base = plain = subject.run(base, lines="line" in positions)
    report.add(plain)
    wanted = subject.actions if actions is None else _names(actions, plain)
    if "line" in positions and not plain.lines:
        raise ValueError(f"no line of modules={subject.modules!r} runs in this scenario; there is nothing to interrupt")
    plans = [
        plain.plan.with_injection(at, index, action)
        for action in wanted
        for at in positions
        for index in positions_of(plain, at)[::every]
    ]
    _run_all(subject, plans, report, len(plans) + 1, stop_at_first, progress)
    return report


def _names(actions: Iterable[str], plain: Trace) -> tuple[str, ...]:
    """The actions, or an error that names one which the scenario does not have."""
    if isinstance(actions, str):
        raise TypeError(f"actions must be a sequence of names, such as [{actions!r}]")
    names = tuple(actions)
    for name in names:
        if name not in plain.actions and plain.outcome == "returned":
            raise ValueError(f"the scenario has no action {name!r}; it has: {', '.join(plain.actions)}")
    return names


def _check_positions(positions: Sequence[str], subject: Scenario) -> None:
    known = get_args(Position)
    if isinstance(positions, str) or not set(positions) <= set(known):
        raise ValueError(f"positions must be a sequence of {', '.join(map(repr, known))}, not {positions!r}")
    if "line" in positions and not subject.modules:
        raise ValueError("positions=['line'] needs modules=[...]: in which modules lines are counted")


def positions_of(trace: Trace, at: Position) -> Sequence[int]:
    """The positions of one kind in a run."""
    if at == "idle":
        return trace.idles
    return range(1, {"step": trace.steps, "point": trace.points, "line": trace.lines}[at] + 1)


def sweep_pairs(
    scenario: Scenario | ScenarioFunction,
    pairs: Iterable[tuple[str, str]] | None = None,
    *,
    invariants: Iterable[Invariant] = (),
    positions: Sequence[Position] = ("step", "idle"),
    limit: int | None = None,
    stop_at_first: bool = False,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Report:
    """Two actions in one run: the first at every position, the second at every later position *of that run*, and at
    the same one.

    Args:
        pairs: the actions, in order; every ordered pair of the scenario's actions by default.
        limit: at most so many runs; `Report.exhausted` says whether it was reached.

    The other arguments, and what is raised, are those of `sweep`.
    """
    subject = to_scenario(scenario, invariants=invariants)
    _check_positions(positions, subject)
    report = _fresh(report, subject)
    report.base = plain = subject.run()
    report.add(plain)
    wanted = [(a, b) for a in subject.actions for b in subject.actions] if pairs is None else list(pairs)
    for pair in wanted:
        if isinstance(pair, str) or len(pair) != 2:
            raise ValueError(f"pairs must be a sequence of two names each, such as [('cancel', 'abort')], not {pair!r}")
        _names(pair, plain)
    _run_all(subject, _pair_plans(subject, plain, wanted, positions), report, None, stop_at_first, progress, limit)
    return report


def _pair_plans(
    subject: Scenario, plain: Trace, pairs: list[tuple[str, str]], positions: Sequence[Position]
) -> Iterator[Plan]:
    seconds: dict[str, list[str]] = {}
    for first, second in pairs:
        seconds.setdefault(first, []).append(second)
    for first, followers in seconds.items():
        for at in positions:
            for index in positions_of(plain, at):
                plan = plain.plan.with_injection(at, index, first)
                after = subject.run(plan)
                for second in followers:
                    for later in positions:
                        for place in positions_of(after, later):
                            if place > index or (place == index and later != at):
                                yield plan.with_injection(later, place, second)


def explore(
    scenario: Scenario | ScenarioFunction,
    *,
    invariants: Iterable[Invariant] = (),
    order: Order = "any",
    bound: int | None = None,
    actions: Iterable[str] = (),
    limit: int | None = None,
    stop_at_first: bool = False,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Report:
    """Run a scenario in every order in which its ready tasks can be taken, depth first.

    Whenever several tasks are ready, somebody has to go first. A run takes a list of such decisions; the next run
    changes the last one that can still be changed. Nothing is remembered between runs but that list (the idea is
    that of stateless model checking; Godefroid, POPL 1997; the bound is that of delay-bounded scheduling; Emmi,
    Qadeer, Rakamaric, POPL 2011).

    Args:
        order: ``"any"`` permutation of each batch; or ``"trio"``: the two that today's trio can take.
        bound: at most so many decisions differ from the order of arrival; None: all orders.
        actions: also inject each of these before every step of every order.
        limit: at most so many runs; `Report.exhausted` says whether it was reached.

    The other arguments, and what is raised, are those of `sweep`.
    """
    subject = to_scenario(scenario, invariants=invariants)
    if bound is not None and bound < 0:
        raise ValueError(f"bound must be at least 0, or None for all orders, not {bound!r}")
    report = _fresh(report, subject)
    wanted: tuple[str, ...] | None = None
    prefix: list[int] = []
    while True:
        if limit is not None and report.runs >= limit:
            report.exhausted = False
            return report
        plan = Plan(order=order, choices=tuple((i, choice) for i, choice in enumerate(prefix) if choice))
        trace = subject.run(plan)
        report.base = report.base or trace
        report.add(trace)
        report.orders += 1
        wanted = _names(actions, trace) if wanted is None else wanted
        injected = [plan.with_injection("step", k, action) for action in wanted for k in range(1, trace.steps + 1)]
        if not _run_all(subject, injected, report, None, stop_at_first, progress, limit):
            return report
        if progress is not None:
            progress(report, None)
        following = _next_prefix(trace, bound)
        if following is None:
            return report
        prefix = following


def _next_prefix(trace: Trace, bound: int | None) -> list[int] | None:
    taken, arities = trace.taken, trace.arities
    for i in reversed(range(len(taken))):
        if taken[i] + 1 >= arities[i]:
            continue
        changed = sum(1 for choice in taken[:i] if choice)
        if bound is None or taken[i] > 0 or changed < bound:
            return [*taken[:i], taken[i] + 1]
    return None


def _run_all(
    subject: Scenario,
    plans: Iterable[Plan],
    report: Report,
    total: int | None,
    stop_at_first: bool,
    progress: Progress | None,
    limit: int | None = None,
) -> bool:
    """Run plans until one fails, if that is wanted, or the limit is reached; then False."""
    if stop_at_first and report.failures:
        report.exhausted = False
        return False
    for plan in plans:
        if limit is not None and report.runs >= limit:
            report.exhausted = False
            return False
        report.add(subject.run(plan))
        if progress is not None:
            progress(report, total)
        if stop_at_first and report.failures:
            report.exhausted = False
            return False
    return True


def _fresh(report: Report | None, subject: Scenario) -> Report:
    if report is None:
        return Report(subject)
    report.scenario = subject
    return report


def replay(token: str, scenario: Scenario | ScenarioFunction | None = None) -> Trace:
    """Run again what a token names, traced: `Trace.problems`, `Trace.timeline`, `Trace.scopes`, `Trace.fired`.

    Args:
        token: from a report.
        scenario: needed if the token's name cannot be imported (a function inside a function), or if the invariants
            were given to `sweep` and are not the scenario's own: a name alone leads to the bare function. Pass
            ``report.scenario``, or make a `Scenario` with `scenario`.

    What a token no longer reaches is told as a problem.

    Raises:
        ValueError: the token, or the scenario it names, cannot be read.
    """
    name, plan = Plan.parse(token)
    subject = find_scenario(name) if scenario is None else attrs.evolve(to_scenario(scenario), name=name)
    trace = subject.run(plan, traced=True)
    if len(trace.fired) < len(plan.injections):
        trace.problems.append(f"{len(plan.injections) - len(trace.fired)} injections of the token were not reached")
    trace.problems += [f"{fired.action} {fired.place}: {fired.problem}" for fired in trace.fired if fired.problem]
    return trace


def check_determinism(scenario: Scenario | ScenarioFunction, plan: Plan | None = None, *, runs: int = 2) -> list[str]:
    """Run one plan several times and say what differed; empty if nothing did.

    What cannot be run again cannot be swept: a scenario must not look at the real clock, at addresses, at a random
    generator that is not seeded, at threads or at the network.
    """
    subject = to_scenario(scenario)
    first = subject.run(plan)
    for _ in range(runs - 1):
        differences = first.differences(subject.run(plan))
        if differences:
            return differences
    return []
