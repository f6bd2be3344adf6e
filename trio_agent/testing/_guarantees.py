"""The guarantees of section 9 of the specification, each a pure function of a recorded run.

A function returns what is wrong, in words, the smallest witness first; an empty list says that the guarantee held in
this run, as far as one run can show it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ._guarantees_endings import (
    g01_events_are_legal,
    g02_every_call_has_one_result,
    g03_results_tell_the_truth,
    g04_nothing_new_after_the_stop,
    g05_abort_is_linearizable,
    g06_cancellation_is_not_swallowed,
    g07_exceptions_are_bare,
    g08_the_agent_is_idle_and_usable,
    g09_nothing_outlives_the_run,
    g10_messages_are_conserved,
)
from ._guarantees_parts import (
    g11_readers_see_a_prefix,
    g12_memory_is_bounded,
    g13_atomic_tools_have_their_grace,
    g14_observers_do_no_harm,
    g15_events_do_not_change,
    g16_steering_cuts_no_tool,
    g17_the_outcome_is_the_first_cause,
    g18_cut_messages_carry_no_calls,
    g19_delivered_means_sent,
    g20_interrupts_tear_nothing,
    g21_errors_of_tools_are_kept,
)
from ._recorded import RecordedRun
from ._trace import Trace

__all__ = ["GUARANTEES", "check_run", "guarantees_hold"]

GUARANTEES: Final[Mapping[str, Callable[[RecordedRun], list[str]]]] = MappingProxyType(
    {
        f"G{int(function.__name__[1:3])}": function
        for function in (
            g01_events_are_legal,
            g02_every_call_has_one_result,
            g03_results_tell_the_truth,
            g04_nothing_new_after_the_stop,
            g05_abort_is_linearizable,
            g06_cancellation_is_not_swallowed,
            g07_exceptions_are_bare,
            g08_the_agent_is_idle_and_usable,
            g09_nothing_outlives_the_run,
            g10_messages_are_conserved,
            g11_readers_see_a_prefix,
            g12_memory_is_bounded,
            g13_atomic_tools_have_their_grace,
            g14_observers_do_no_harm,
            g15_events_do_not_change,
            g16_steering_cuts_no_tool,
            g17_the_outcome_is_the_first_cause,
            g18_cut_messages_carry_no_calls,
            g19_delivered_means_sent,
            g20_interrupts_tear_nothing,
            g21_errors_of_tools_are_kept,
        )
    }
)
"""``"G1"`` ... ``"G21"``: the functions that check them."""


def check_run(run: RecordedRun) -> list[str]:
    """What is wrong with a recorded run, with the guarantee's name before each."""
    seen = [f"{name}: {problem}" for name, problem in run.data("problem")]
    if not run.begun:
        return seen
    if run.ended and not run.events and run.raised is not None:
        return g07_exceptions_are_bare(run)  # it was refused, or interrupted, before it said anything
    return seen + [f"{name}: {problem}" for name, guarantee in GUARANTEES.items() for problem in guarantee(run)]


def guarantees_hold(trace: Trace) -> list[str]:
    """`check_run` for every run that an `AgentWatch` recorded in a scenario: an invariant for `sweep`."""
    return [problem for run in trace.data.get("runs", ()) for problem in check_run(run)]
