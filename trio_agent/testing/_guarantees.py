"""The guarantees of section 9 of the specification, each a pure function of a recorded run.

A function returns what is wrong, in words, the smallest witness first; an empty list says that the guarantee held in
this run, as far as one run can show it.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import trio

from trio_agent import (
    AgentEnd,
    AssistantMessage,
    Message,
    UserMessage,
    event_to_dict,
)

from ._checks import check_events, check_transcript
from ._recorded import RecordedRun
from ._trace import Note, Trace

__all__ = ["GUARANTEES", "check_run", "guarantees_hold"]

EPSILON: Final = 1e-6
CLEANUP: Final = 0.2
"""Seconds beyond the grace in which the scenarios' own tools may clean up."""


def g1_events_are_legal(run: RecordedRun) -> list[str]:
    """The event sequence is a sentence of the grammar; ``agent_end`` is last and unique."""
    return check_events(run.events)


def g2_every_call_has_one_result(run: RecordedRun) -> list[str]:
    """Every tool call in the transcript has exactly one result, right after its message, in call order; and the
    transcript is what the events said."""
    said = [event.message for event in run.events if event.type == "message_end"]
    kept = list(run.messages[run.first :])
    problems = check_transcript(run.messages)
    if said != kept:
        problems.append(f"{len(kept)} messages in the transcript, {len(said)} in the events, and they differ")
    turns = [event for event in run.events if event.type == "turn_end"]
    for turn in turns:
        if turn.message is not None and turn.message not in kept:
            problems.append("a turn_end tells of a message that is not in the transcript")
    told = [turn.message for turn in turns if turn.message is not None]
    if len(told) != len({id(message) for message in told}):
        problems.append("two turn_end events tell of one message")
    return problems


def g3_results_tell_the_truth(run: RecordedRun) -> list[str]:
    """``completed`` iff the tool returned; ``skipped``, ``not_started``, ``rejected`` iff it had no effect; nothing
    that finished is lost."""
    problems = []
    ends, phases, results = run.tool_ends, run.phases(), run.results
    for call_id, effects in phases.items():
        last = effects[-1].phase
        end = ends.get(call_id)
        if end is None or call_id not in results:
            problems.append(f"the tool of call {call_id!r} began, and nothing tells of it")
            continue
        wanted = {"returned": {"completed"}, "raised": {"failed"}, "interrupted": {"cancelled"}}.get(
            last, {"cancelled", "failed"} if end.tool_name in run.timed else {"cancelled"}
        )
        if end.outcome not in wanted:
            problems.append(f"the tool of call {call_id!r} {last}, but its outcome is {end.outcome!r}")
    for call_id, end in ends.items():
        untouched = {"skipped", "not_started", "rejected"} | ({"cancelled"} if run.interrupted else set())
        if call_id not in phases and end.outcome not in untouched:
            problems.append(f"call {call_id!r} never began, but its outcome is {end.outcome!r}")
        if call_id in results and results[call_id].content != end.result.content:
            problems.append(f"the result of call {call_id!r} is not what its end event said")
    return problems


def g4_nothing_new_after_the_stop(run: RecordedRun) -> list[str]:
    """After an abort or cancellation no tool starts, no request is sent, no hook is called."""
    stop = run.stop()
    if stop is None:
        return []
    late = [
        note
        for note in run.log
        if (note.kind in ("request", "hook") or (note.kind == "effect" and note.data.phase == "begun"))
        and _is_after(note, stop)
    ]
    return [f"{_what(note)} at step {note.step}, after {stop.data} at step {stop.step}" for note in late]


def _is_after(note: Note, stop: Note) -> bool:
    return note.order > stop.order if stop.order else note.time > stop.time + EPSILON


def _what(note: Note) -> str:
    if note.kind == "effect":
        return f"tool {note.data.tool_name!r} ({note.data.call_id!r}) began"
    return "a request was sent" if note.kind == "request" else f"hook {note.data!r} was called"


def g5_abort_is_linearizable(run: RecordedRun) -> list[str]:
    """`Agent.abort` returns True iff it decided the outcome; one outcome per run."""
    accepted = [act for act in run.data("act") if act.action == "abort" and act.result]
    if len(accepted) > 1:
        return [f"{len(accepted)} aborts returned True"]
    end = run.end
    if accepted and end is not None and (end.outcome != "aborted" or end.abort_reason != "injected"):
        return [f"abort() returned True, but the outcome is {end.outcome!r} ({end.abort_reason!r})"]
    if not accepted and end is not None and end.outcome == "aborted" and end.abort_reason == "injected":
        return ["abort() returned False, and yet it decided the outcome"]
    return []


def g6_cancellation_is_not_swallowed(run: RecordedRun) -> list[str]:
    """An outer cancellation is never swallowed: the caller does not get past its next checkpoint."""
    cancelled = any(act.action == "cancel" for act in run.data("act"))
    problems = []
    if cancelled and run.finished:
        problems.append("the outer scope was cancelled, and the caller went on past a checkpoint")
    end = run.end
    if end is not None and end.outcome == "cancelled" and run.raised is None and run.result is not None:
        problems.append("the run was cancelled, and the caller got a result and no Cancelled")
    cause = run.first_cause()
    if cause is not None and cause.data == "cancelled" and isinstance(run.raised, Exception):
        problems.append(f"the first cause was the cancellation, but {type(run.raised).__name__} came out of the run")
    return problems


def g7_exceptions_are_bare(run: RecordedRun) -> list[str]:
    """The embedder gets one exception, not a group, and no Cancelled that no outer scope explains."""
    if isinstance(run.raised, BaseExceptionGroup):
        return [f"a group came out: {run.raised!r}"]
    cancelled = any(act.action == "cancel" for act in run.data("act"))
    if isinstance(run.raised, trio.Cancelled) and not cancelled:
        return ["Cancelled came out, and nobody had cancelled the outer scope"]
    return []


def g8_the_agent_is_idle_and_usable(run: RecordedRun) -> list[str]:
    """However the run ended: it has a result, the agent is idle, and the next run works."""
    problems = []
    if not run.ended:
        problems.append("the agent is still running when the caller has control again")
    if run.end is None:
        problems.append("there is no agent_end")
    elif run.result is not None and run.result.outcome != run.end.outcome:
        problems.append(f"the result says {run.result.outcome!r}, agent_end says {run.end.outcome!r}")
    if run.again is not None:
        problems.append(run.again)
    return problems


def g9_nothing_outlives_the_run(run: RecordedRun) -> list[str]:
    """No task, no model stream, no tool is left when the run has ended."""
    problems = [f"a task outlives the run: {name}" for name in run.leaked]
    if run.open_streams:
        problems.append(f"{run.open_streams} model streams are still open")
    end = run.end_note
    for note in run.notes("effect"):
        if end is not None and note.order > end.order:
            problems.append(f"tool {note.data.tool_name!r} {note.data.phase} after agent_end")
    return problems


def g10_messages_are_conserved(run: RecordedRun) -> list[str]:
    """Submitted = delivered + queued; in order; each once."""
    problems = []
    transcript = [m for m in run.messages[run.first :] if isinstance(m, UserMessage)]
    for name, receipts, left in (
        ("steering", run.submitted_steering, run.left_steering),
        ("follow-ups", run.submitted_follow_ups, run.left_follow_ups),
    ):
        submitted: list[Message] = [receipt.message for receipt in receipts]
        entered: list[Message] = [m for m in transcript if any(m is one for one in submitted)]
        found = [*entered, *left]
        if [id(m) for m in found] != [id(m) for m in submitted]:
            problems.append(f"{name}: submitted {_texts(submitted)}, entered {_texts(entered)}, left {_texts(left)}")
    return problems


def _texts(messages: Iterable[Message]) -> list[str]:
    return [m.text if isinstance(m, UserMessage) else m.role for m in messages]


def g11_readers_see_a_prefix(run: RecordedRun) -> list[str]:
    """A reader sees a gap-free prefix of the events; all of them if it stays."""
    read, events = run.data("read"), run.events
    if any(mine is not theirs for mine, theirs in zip(read, events, strict=False)) or len(read) > len(events):
        index = next((i for i, (a, b) in enumerate(zip(read, events, strict=False)) if a is not b), len(events))
        return [f"the reader's event {index} is not the run's: there is a gap"]
    if run.stayed and len(read) != len(events):
        return [f"the reader stayed to the end and saw {len(read)} of {len(events)} events"]
    return []


def g12_memory_is_bounded(run: RecordedRun) -> list[str]:
    """No more events wait for the reader than its bound, and one step's burst."""
    if run.bound is None or run.stayed is None:
        return []
    waiting = peak = 0
    for note in run.log:
        if note.kind == "left":
            break
        waiting += (note.kind == "event") - (note.kind == "read")
        peak = max(peak, waiting)
    limit = run.bound + run.burst
    return (
        [f"{peak} events waited for the reader; the bound is {run.bound}, a burst {run.burst}"] if peak > limit else []
    )


def g13_atomic_tools_have_their_grace(run: RecordedRun) -> list[str]:
    """An atomic tool is cut only after its grace; a run settles within the grace."""
    cause, end = run.first_cause(), run.end_note
    problems = []
    grace = run.grace or 0.0
    for note in run.notes("effect"):
        effect = note.data
        if effect.phase != "cut" or effect.tool_name not in run.atomic or effect.tool_name in run.timed:
            continue
        if cause is None:
            problems.append(f"atomic tool {effect.tool_name!r} was cut, and nothing had ended the run")
        elif note.time < cause.time + grace - EPSILON and run.grace is not None:
            problems.append(f"atomic tool {effect.tool_name!r} was cut {note.time - cause.time:g} s after the stop")
    if run.grace is not None and cause is not None and end is not None and end.time - cause.time > grace + CLEANUP:
        problems.append(f"the run was over {end.time - cause.time:g} s after {cause.data!r}; its grace is {grace:g} s")
    return problems


def g14_observers_do_no_harm(run: RecordedRun) -> list[str]:
    """Every observer sees every event; one that raises is removed, once, and reported."""
    problems = []
    if [id(event) for event in run.seen_by_second[: len(run.events)]] != [id(event) for event in run.events]:
        problems.append(f"the second observer saw {len(run.seen_by_second)} of {len(run.events)} events, or others")
    if run.warned != run.raising and not run.interrupted:
        problems.append(f"{run.raising} observers raised, {run.warned} were reported")
    return problems


def g15_events_do_not_change(run: RecordedRun) -> list[str]:
    """Events are immutable; a progress report after the tool returned is ignored."""
    problems = [
        f"progress of call {call_id!r} was accepted after its tool had returned" for call_id in run.data("late")
    ]
    for index, (event, before) in enumerate(run.snapshots):
        if event_to_dict(event) != before:
            problems.append(f"event {index} ({event.type}) has changed since it was said")
            break
    return problems


def g16_steering_cuts_no_tool(run: RecordedRun) -> list[str]:
    """No tool is cut unless the run was ended, or its own time was over; and what steering may skip has not begun."""
    cause = run.first_cause()
    problems = []
    for note in run.notes("effect"):
        effect = note.data
        if effect.phase != "cut" or effect.tool_name in run.timed or run.interrupted:
            continue
        if cause is None or note.order < cause.order:
            problems.append(f"tool {effect.tool_name!r} ({effect.call_id!r}) was cut, and nothing had ended the run")
    skipped = [end for end in run.tool_ends.values() if end.outcome == "skipped"]
    if skipped and not run.submitted_steering:
        problems.append(f"call {skipped[0].tool_call_id!r} was skipped, and nobody had steered")
    return problems


def g17_the_outcome_is_the_first_cause(run: RecordedRun) -> list[str]:
    """The outcome is true: the first cause, by time, decides it."""
    end, cause = run.end, run.first_cause()
    if end is None or run.interrupted:
        return []
    natural = {"completed", "limit"} if cause is None else {cause.data}
    if end.outcome not in natural:
        said = "nothing had ended the run" if cause is None else f"the first cause was {cause.data!r}"
        return [f"the outcome is {end.outcome!r}, but {said}"]
    return []


def g18_cut_messages_carry_no_calls(run: RecordedRun) -> list[str]:
    """An assistant message that was cut short carries no tool calls; one that was not cut is not called so."""
    problems = []
    for index, message in enumerate(run.messages):
        if isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted"):
            if message.tool_calls:
                problems.append(f"message {index} was cut short and carries {len(message.tool_calls)} calls")
            cause = run.first_cause()
            ended = cause is not None and cause.data in ("aborted", "cancelled", "deadline")
            if ended and message.stop_reason != "aborted":
                problems.append(f"message {index} was cut by a stop, but its stop reason is 'error'")
    return problems


def g19_delivered_means_sent(run: RecordedRun) -> list[str]:
    """A message that counts as delivered is in a request that was sent; an abort never burns it."""
    problems = []
    sent = [*run.requests, *run.requests_again]
    for receipt in (*run.submitted_steering, *run.submitted_follow_ups):
        if receipt.delivered and not any(receipt.message in request.messages for request in sent):
            problems.append(f"{_texts([receipt.message])} counts as delivered, but no request had it")
    if run.again is None and run.undelivered_again:
        problems.append(f"{_texts(run.undelivered_again)} was not delivered by the next run either")
    return problems


def g20_interrupts_tear_nothing(run: RecordedRun) -> list[str]:
    """A KeyboardInterrupt comes out bare, and the books are even."""
    if not run.interrupted:
        return []
    problems = []
    if run.raised is not None and not isinstance(run.raised, KeyboardInterrupt):
        problems.append(f"an interrupt came in, and {type(run.raised).__name__} came out")
    if run.finished:
        problems.append("an interrupt came in, and the caller went on past a checkpoint")
    if isinstance(run.end, AgentEnd) and run.result is not None and run.result.outcome != run.end.outcome:
        problems.append("the result and agent_end tell of two outcomes")
    return problems


def g21_errors_of_tools_are_kept(run: RecordedRun) -> list[str]:
    """A stale Cancelled from a tool is that tool's error; errors beside a Cancelled are kept."""
    problems = []
    ends = run.tool_ends
    for call, effect in [(call, effect) for call, effects in run.phases().items() for effect in effects]:
        end = ends.get(call)
        if effect.phase != "raised" or end is None:
            continue
        if end.outcome != "failed":
            problems.append(f"the tool of call {effect.call_id!r} raised, but its outcome is {end.outcome!r}")
        elif end.exception is not effect.value:
            problems.append(f"what the tool of call {effect.call_id!r} raised is not on its end event")
    return problems


GUARANTEES: Final[Mapping[str, Callable[[RecordedRun], list[str]]]] = MappingProxyType(
    {
        function.__name__.partition("_")[0].upper(): function
        for function in (
            g1_events_are_legal,
            g2_every_call_has_one_result,
            g3_results_tell_the_truth,
            g4_nothing_new_after_the_stop,
            g5_abort_is_linearizable,
            g6_cancellation_is_not_swallowed,
            g7_exceptions_are_bare,
            g8_the_agent_is_idle_and_usable,
            g9_nothing_outlives_the_run,
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
    if not run.begun:
        return []
    if run.ended and not run.events and run.raised is not None:
        return g7_exceptions_are_bare(run)  # it was refused, or interrupted, before it said anything
    return [f"{name}: {problem}" for name, guarantee in GUARANTEES.items() for problem in guarantee(run)]


def guarantees_hold(trace: Trace) -> list[str]:
    """`check_run` for every run that an `AgentWatch` recorded in a scenario: an invariant for `sweep`."""
    return [problem for run in trace.data.get("runs", ()) for problem in check_run(run)]
