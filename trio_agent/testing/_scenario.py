"""A scenario with what it is judged by, and how a replay token finds it again."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TypeAlias

import attrs

from ._engine import ScenarioFunction, run_plan
from ._lines import source_files
from ._plan import Plan
from ._trace import Trace

__all__ = ["Invariant", "Scenario", "find_scenario", "scenario", "to_scenario"]

Invariant: TypeAlias = Callable[[Trace], list[str]]
"""A pure function of a run: what is wrong with it, in words, the smallest witness first; empty if nothing is."""


@attrs.frozen
class Scenario:
    """Something to run again and again, and what must hold however it is disturbed.

    Args:
        function: an async function of a `Probe`.
        invariants: what every run is judged by.
        name: ``"package.module:name"``; a replay token finds the scenario by it.
        actions: the actions that make sense for it; those of `sweep` by default.
        modules: where ``interrupt`` at every line is injected: modules, packages, or files.
        may_leak, may_hang: by default a task that outlives the scenario, and a deadlock or livelock, are faults.
        may_raise: by default a scenario that raises when nothing disturbs it is a fault.
    """

    function: ScenarioFunction
    invariants: tuple[Invariant, ...] = ()
    name: str = ""
    actions: tuple[str, ...] = ("cancel",)
    modules: tuple[ModuleType | str, ...] = ()
    may_leak: bool = False
    may_hang: bool = False
    may_raise: bool = False

    def run(self, plan: Plan | None = None, *, lines: bool = False, traced: bool = False) -> Trace:
        """Run it once and judge it: `Trace.problems`.

        Args:
            lines: count the lines that run in `modules`; needed for injections at lines.
        """
        plan = plan or Plan()
        wants_lines = lines or any(injection.at == "line" for injection in plan.injections)
        files = source_files(self.modules) if wants_lines else frozenset()
        trace = run_plan(self.function, plan, files=files, traced=traced)
        trace.problems = self.judge(trace)
        return trace

    def judge(self, trace: Trace) -> list[str]:
        """What is wrong with a run."""
        if trace.outcome == "broken":
            return [f"trio itself was broken: {trace.error!r}, caused by {trace.error and trace.error.__cause__!r}"]
        if trace.outcome in ("deadlock", "livelock"):
            return [] if self.may_hang else [f"{trace.outcome}: {'; '.join(trace.stuck)}"]
        if trace.error is not None and trace.outcome == "raised" and not trace.plan.injections and not self.may_raise:
            error = f"{type(trace.error).__name__}: {trace.error}"
            return [f"the scenario raises when nothing disturbs it (set may_raise=True if it should): {error}"]
        problems = [f"a task outlives the scenario: {name}" for name in trace.leaked if not self.may_leak]
        for invariant in self.invariants:
            try:
                said = invariant(trace)
                if not isinstance(said, list | tuple):
                    raise TypeError(f"an invariant is a sync function that returns a list of texts, not {said!r}")
                problems += said
            except Exception as error:  # noqa: BLE001 - a judge that fails is a finding, and must not end the sweep
                name = getattr(invariant, "__name__", "an invariant")
                problems.append(f"{name} could not be evaluated: {type(error).__name__}: {error}")
        if trace.after_error is not None:
            problems.append(f"afterwards: {trace.after_error}")
        return problems

    def token(self, plan: Plan) -> str:
        """The replay token of a plan."""
        return plan.token(self.name)


def scenario(
    *,
    invariants: Iterable[Invariant] = (),
    actions: Iterable[str] = ("cancel",),
    modules: Iterable[ModuleType | str] = (),
) -> Callable[[ScenarioFunction], Scenario]:
    """Make a `Scenario` of an async function of a `Probe`; see there for the arguments.

    ``@scenario(invariants=[...])`` on a module-level function gives replay tokens that work on their own.
    """

    def decorate(function: ScenarioFunction) -> Scenario:
        return to_scenario(function, invariants=invariants, actions=actions, modules=modules)

    return decorate


def to_scenario(
    what: Scenario | ScenarioFunction,
    *,
    invariants: Iterable[Invariant] = (),
    actions: Iterable[str] = ("cancel",),
    modules: Iterable[ModuleType | str] = (),
) -> Scenario:
    """A scenario as it is, with more invariants if any are given; or one made of a function."""
    if isinstance(what, Scenario):
        return attrs.evolve(what, invariants=(*what.invariants, *invariants)) if invariants else what
    if not inspect.iscoroutinefunction(what) and not inspect.iscoroutinefunction(getattr(what, "__call__", None)):  # noqa: B004
        raise TypeError(f"a scenario is an async function of a Probe, or a Scenario, not {what!r}")
    for name, many in (("invariants", invariants), ("actions", actions), ("modules", modules)):
        if isinstance(many, str) or callable(many):
            raise TypeError(f"{name} must be a sequence, such as [{many!r}]")
    name = f"{getattr(what, '__module__', '?')}:{getattr(what, '__qualname__', type(what).__name__)}"
    return Scenario(what, tuple(invariants), name.replace("/", "."), tuple(actions), tuple(modules))


def find_scenario(name: str) -> Scenario:
    """The scenario that a name such as ``"package.module:attribute"`` stands for. Mappings are looked into, so
    ``"package.module:SCENARIOS.first"`` works.

    Raises:
        ValueError: there is no such thing; the text says which part was not found.
    """
    module_name, _, path = name.partition(":")
    if not path or "<locals>" in path:
        raise ValueError(
            f"{name!r} cannot be imported; pass the scenario itself, or name it 'package.module:attribute'"
        )
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{name!r}: there is no module {error.name!r} (the current folder is on the path)") from error
    for part in path.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif hasattr(found, part):
            found = getattr(found, part)
        else:
            known = ", ".join(map(str, found)) if isinstance(found, Mapping) else ""
            raise ValueError(f"{name!r}: {part!r} is not there" + (f"; there are: {known}" if known else ""))
    # what @swept made is a test; its scenario is beside it
    found = found.scenario if isinstance(getattr(found, "scenario", None), Scenario) else found  # type: ignore[attr-defined]
    made = to_scenario(found)  # type: ignore[arg-type]
    return attrs.evolve(made, name=name)
