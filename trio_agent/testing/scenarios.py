"""The built-in scenarios: small runs of agents, each with something in it that a cancellation can go wrong with.

``SCENARIOS`` maps names to `Scenario` objects; ``python -m trio_agent.testing sweep NAME`` sweeps one. All are judged
by every guarantee. What they are made of is in ``_cast``.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import trio_agent
from trio_agent import Limits, ModelError, ToolCall

from . import _cast as cast
from . import _company as company
from ._cast import calls, make, plain, racing, read, script, two_turns
from ._guarantees import guarantees_hold
from ._players import CleaningModel, FragmentModel
from ._probe import Probe
from ._scenario import Scenario
from ._scripted import Fail, Stop, Wait
from ._watch import AGENT_ACTIONS

__all__ = ["INTERRUPTED", "ORDERED", "ORDERED_AND_ENDED", "SCENARIOS", "SMALL"]

APPROVED: Final[Mapping[str, Any]] = {"before_tool_call": company.approve}
ERRORS = calls("failing", "grouping", "stale", "nosuch", "quick")

_FUNCTIONS: Final[Mapping[str, Callable[[Probe], Awaitable[None]]]] = {
    "sequential": make(two_turns),
    "parallel": make(two_turns, tool_execution="parallel"),
    "block": make(two_turns, read),
    "block_parallel": make(two_turns, read, tool_execution="parallel"),
    "small": make(script(["a", *calls("work")], "end")),
    "small_parallel": make(script(calls("work", "quick"), "end"), tool_execution="parallel"),
    "small_block": make(script(["a", *calls("work")], "end"), read, max_buffered_events=4),
    "small_atomic": make(script(calls("transfer"), "end"), abort_grace=0.6),
    "errors": make(script(ERRORS, "end")),
    "errors_parallel": make(script(ERRORS, "end"), read, tool_execution="parallel"),
    "cleanup": make(script(calls("cleaning", "work"), "end")),
    "cleanup_parallel": make(script(calls("cleaning", "transfer", "work"), "end"), tool_execution="parallel"),
    "atomic": make(script([ToolCall("1-long", "transfer", {"seconds": 20}), *calls("work")], "end"), abort_grace=2.0),
    "atomic_parallel": make(
        script([ToolCall("1-long", "transfer", {"seconds": 20}), *calls("work")], "end"),
        abort_grace=2.0,
        tool_execution="parallel",
    ),
    "stubborn": make(script(calls("stubborn", "work"), "end"), abort_grace=2.0),
    "timeouts": make(script(calls("timed", "work", "timed"), "end"), tool_execution="parallel"),
    "late": make(script(calls("late", "work"), "end")),
    "repeated_ids": make(script([ToolCall("0", "quick")], calls("work"), [ToolCall("0", "reporting")], "end")),
    "progress": make(script(calls("reporting", "quick"), "end"), read, max_buffered_events=6),
    "hooks": make(
        two_turns, transform_context=cast.transform, before_tool_call=cast.look_first, after_tool_call=cast.look_after
    ),
    "hooks_parallel": make(
        two_turns,
        read,
        transform_context=cast.transform,
        before_tool_call=cast.look_first,
        after_tool_call=cast.look_after,
        tool_execution="parallel",
    ),
    "sync_hooks": make(
        two_turns,
        convert_to_llm=cast.convert,
        before_tool_call=cast.look_first_at_once,
        after_tool_call=cast.look_after_at_once,
    ),
    "failing_hook": make(
        script(calls("transfer", "work", "quick"), "end"), after_tool_call=cast.fail_after, tool_execution="parallel"
    ),
    "raising_tool": make(
        script(calls("transfer", "failing", "work"), "end"), on_tool_error="raise", tool_execution="parallel"
    ),
    "steering": make(two_turns, cast.steered_in_the_middle),
    "queues": make(script("one", "two", "three", "four"), before=cast.steer_and_follow),
    "queues_all": make(
        script(calls("work", "work2"), "two", "three"), before=cast.steer_and_follow, follow_up_mode="all", max_turns=2
    ),
    "slow_reader": make(two_turns, cast.reading(pause=0.4), max_buffered_events=3),
    "leaving": make(two_turns, cast.reading(leave_after=12)),
    "deadline": make(two_turns, lambda watch: watch.prompt(timeout=0.45)),
    "deadline_block": make(two_turns, lambda watch: watch.read(timeout=1.05), tool_execution="parallel"),
    "model_error": make(script(["partial", Wait(0.1), ToolCall("1-x", "work"), Fail(ModelError("529"))])),
    "cut_response": make(script([*calls("work"), "x", Stop("length")], "end")),
    "race_steer": make(script(calls("work", "work"), "a", "b"), racing(plain, 0.5, cast.steer)),
    "race_abort": make(script(calls("work", "quick"), "a", "b"), racing(plain, 0.5, cast.abort, cast.steer)),
    "race_parallel": make(
        script(calls("work", "work"), "a", "b"), racing(plain, 0.5, cast.steer, cast.abort), tool_execution="parallel"
    ),
    "race_block": make(script(calls("work"), "a", "b"), racing(read, 0.5, cast.abort)),
    "race_deadline": make(script(calls("work"), "a", "b"), racing(cast.prompting(timeout=0.5), 0.5, cast.abort)),
    "bad_observer": make(two_turns, before=cast.shout),
    "strict_warnings": make(script(calls("work"), "end"), strict=True, before=cast.shout),
    "strict_warnings_block": make(script(calls("work"), "end"), read, strict=True, before=cast.shout),
    "failing_sibling": make(
        script([ToolCall("1-long", "transfer", {"seconds": 20}), *calls("failing")], "end"),
        abort_grace=2.0,
        tool_execution="parallel",
        on_tool_error="raise",
    ),
    "raising_cleanup": make(script(calls("cleaning", "work"), "end"), on_tool_error="raise"),
    "timed_cleanup": make(script(calls("timed_cleanup", "work"), "end"), on_tool_error="raise"),
    "late_observer": make(script(calls("work"), "end"), cast.late_observer),
    "hook_cleanup": make(script("end"), transform_context=cast.transform_with_cleanup),
    "model_cleanup": make(lambda: CleaningModel(["a", Wait(0.1), "b"], "end")),
    "grouping_hook": make(script(calls("work"), "end"), transform_context=cast.transform_in_nurseries),
    "queued_hooks": make(script("one", "two", "three"), before=cast.steer_and_follow, transform_context=cast.transform),
    "call_then_text": make(script([*calls("work"), Wait(0.1), "more", Wait(0.1)], "end")),
    "finished_first": make(script([*calls("work"), Stop("tool_use"), Wait(0.1)], ["a", Stop("stop"), Wait(0.1)])),
    "atomic_timeout": make(
        script(calls("patient"), [ToolCall("2-x", "patient", {"seconds": 9})], "end"), abort_grace=2.0
    ),
    "two_readers": make(two_turns, cast.two_readers, max_buffered_events=4),
    "two_waiters": make(script(calls("work"), *["a"] * 6), cast.two_waiters),
    "busy_resume": make(script(calls("work"), *["a"] * 6), cast.resumed_while_running, before=cast.steer_and_follow),
    "withdrawing": make(script(calls("work"), *["a"] * 6), cast.withdrawing),
    "impatient_reader": make(two_turns, cast.reading(patience=0.07), max_buffered_events=4),
    "waits_then_reads": make(two_turns, cast.reading(wait_first=0.05, pause=0.2), max_buffered_events=30),
    "overflows_then_reads": make(
        two_turns, cast.reading(wait_first=0.3, pause=0.2, may_miss_the_end=True), max_buffered_events=6
    ),
    "fragments": make(FragmentModel, cast.reading(pause=0.2), max_buffered_events=3),
    "chatty": make(script(calls("chatty"), "end"), cast.reading(pause=0.2), max_buffered_events=3),
    "bounded_parallel": make(
        script(calls("work", "quick", "transfer", "work", "timed"), "end"),
        tool_execution="parallel",
        max_parallel_tools=2,
    ),
    "approvals": make(
        script(calls("work", "transfer", "reporting", "quick", "work"), "end"), abort_grace=0.1, **APPROVED
    ),
    "approvals_parallel": make(
        script(calls("work", "transfer", "quick", "work"), "end"), read, tool_execution="parallel", **APPROVED
    ),
    "approvals_steered": make(
        script(calls("work", "quick", "work"), "end", "b"), racing(plain, 1.0, cast.steer), **APPROVED
    ),
    "limits": make(script(calls("work"), calls("work2", "transfer", "quick"), "end"), limits=Limits(tool_calls=3)),
    "limits_parallel": make(
        script(calls("work", "transfer", "quick", "quick"), "end"),
        limits=Limits(tool_calls=2, seconds=30),
        tool_execution="parallel",
    ),
    "repeated_calls": make(
        script(calls("work", "work", "work"), "end"), limits=Limits(repeated_calls=2), before=cast.steer_and_follow
    ),
    "output": make(
        script(["x", *calls("final_result", result="no")], "text", calls("work", "final_result", "quick", result=3)),
        cast.prompting(output=int),
        tool_execution="parallel",
    ),
    "nested": make(script(company.asks("ask", "work"), "end"), nested=company.ask_one),
    "nested_block": make(
        script(company.asks("ask", "work"), "end"), read, nested=company.ask_one, max_buffered_events=6
    ),
    "nested_parallel": make(
        script(company.asks("ask", "ask2", "work"), "end"), read, nested=company.ask_two, tool_execution="parallel"
    ),
    "nested_deep": make(script(company.asks("ask3", "quick"), "end"), nested=company.ask_deep, abort_grace=0.6),
    "nested_timeout": make(
        script(company.asks("ask", "work"), "end"), nested=company.ask_in_time, tool_execution="parallel"
    ),
    "wrapped": make(
        script(calls("retried", "bounded", "cached", "cached"), "end"),
        nested=company.wrapped,
        tool_execution="parallel",
    ),
    "retries": make(company.tried_again),
    "retries_block": make(company.tried_again, read, max_buffered_events=4),
    "body_raises": make(two_turns, cast.raising_body, after_tool_call=cast.fail_after, max_buffered_events=64),
}


def _name(name: str) -> str:
    return f"{__name__}:SCENARIOS.{name}"


_READ: Final = (
    "block",
    "read",
    "overflow",
    "fragments",
    "chatty",
    "body",
    "progress",
    "slow",
    "leaving",
    "errors_parallel",
    "hooks_parallel",
    "approvals_parallel",
    "nested_parallel",
)


_RAISING: Final = (
    "failing_hook",
    "raising_tool",
    "grouping_hook",
    "failing_sibling",
    "strict_warnings",
    "strict_warnings_block",
)


def _actions(name: str) -> tuple[str, ...]:
    if name == "fragments":  # long, and about nothing but its reader
        return "cancel", "abort", "reader_leaves", "reader_stops"
    reads = any(word in name for word in _READ)
    actions = tuple(action for action in AGENT_ACTIONS if reads or not action.startswith("reader"))
    return (*actions, "jump_then_abort") if "deadline" in name else actions


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        name: Scenario(
            function,
            (guarantees_hold,),
            _name(name),
            _actions(name),
            (trio_agent, contextlib),
            may_leak=True,
            may_raise=name in _RAISING,
        )
        for name, function in _FUNCTIONS.items()
    }
)
"""Every built-in scenario by name."""

SMALL: Final = ("small", "small_parallel", "small_block", "small_atomic")
"""Small enough for every pair of actions."""

ORDERED: Final = (
    "small_parallel",
    "small_block",
    "race_steer",
    "race_abort",
    "race_parallel",
    "race_block",
    "race_deadline",
)
"""Those of which every order of the ready tasks is run."""

ORDERED_AND_ENDED: Final = ("race_abort", "race_deadline", "small_parallel")
"""Those which are also cancelled and aborted before every step of every order."""

INTERRUPTED: Final = (
    "small_block",
    "atomic_parallel",
    "withdrawing",
    "deadline",
    "sequential",
    "block_parallel",
    "errors_parallel",
)
"""Those that are interrupted at every line."""
