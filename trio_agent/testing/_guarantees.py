"""The guarantees of section 9 of the specification, each a pure function of a recorded run.

A function returns what is wrong, in words, the smallest witness first; an empty list says that the guarantee held in
this run, as far as one run can show it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from . import _guarantees_endings, _guarantees_parts
from ._recorded import RecordedRun
from ._trace import Trace

__all__ = ["GUARANTEES", "check_run", "guarantees_hold"]

_FUNCTIONS: Final[Mapping[str, Callable[[RecordedRun], list[str]]]] = {
    name: vars(module)[name] for module in (_guarantees_endings, _guarantees_parts) for name in module.__all__
}

GUARANTEES: Final = MappingProxyType({f"G{int(name[1:3])}": check for name, check in _FUNCTIONS.items()})
"""``"G1"`` ... ``"G21"``: the functions that check them."""


def check_run(run: RecordedRun) -> list[str]:
    """What is wrong with a recorded run, with the guarantee's name before each."""
    seen = [f"{name}: {problem}" for name, problem in run.data("problem")]
    if not run.begun:
        return seen
    if run.ended and not run.events and run.raised is not None:
        return GUARANTEES["G7"](run)  # it was refused, or interrupted, before it said anything
    return seen + [f"{name}: {problem}" for name, guarantee in GUARANTEES.items() for problem in guarantee(run)]


def guarantees_hold(trace: Trace) -> list[str]:
    """`check_run` for every run that an `AgentWatch` recorded in a scenario: an invariant for `sweep`."""
    problems = [problem for run in trace.data.get("runs", ()) for problem in check_run(run)]
    if trace.outcome == "returned" and not trace.plan.injections:
        runs = trace.data.get("runs", ())
        if not runs or not all(run.begun or run.is_unrecorded for run in runs):
            problems.append("nothing was recorded: run the agent of watch.agent(...) by watch.prompt() or watch.read()")
    return problems
