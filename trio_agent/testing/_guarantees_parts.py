"""G11 to G21: readers, tools, observers, causes; see `_guarantees`."""

from typing import Final

from trio_agent import (
    AgentEnd,
    AssistantMessage,
    ModelError,
    event_to_dict,
)

from ._recorded import RecordedRun, texts_of

__all__ = [
    "g11_readers_see_a_prefix",
    "g12_memory_is_bounded",
    "g13_atomic_tools_have_their_grace",
    "g14_observers_do_no_harm",
    "g15_events_do_not_change",
    "g16_steering_cuts_no_tool",
    "g17_the_outcome_is_the_first_cause",
    "g18_cut_messages_carry_no_calls",
    "g19_delivered_means_sent",
    "g20_interrupts_tear_nothing",
    "g21_errors_of_tools_are_kept",
]

EPSILON: Final = 1e-6
CLEANUP: Final = 0.2
"""Seconds beyond the grace in which the scenarios' own tools may clean up."""


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
        if effect.phase != "cut" or effect.tool_name not in run.atomic or run.interrupted:
            continue
        if effect.tool_name in run.timed:
            allowed = _begun(run, effect.call_id) + run.timed[effect.tool_name] + grace
            if note.time < allowed - EPSILON and (cause is None or note.time < cause.time + grace - EPSILON):
                problems.append(f"atomic tool {effect.tool_name!r} was cut before its timeout and its grace were over")
        elif cause is None:
            problems.append(f"atomic tool {effect.tool_name!r} was cut, and nothing had ended the run")
        elif note.time < cause.time + grace - EPSILON and run.grace is not None:
            problems.append(f"atomic tool {effect.tool_name!r} was cut {note.time - cause.time:g} s after the stop")
    if run.grace is not None and run.interrupted_at is not None and end is not None:
        took = end.time - run.interrupted_at
        if took > grace + CLEANUP + run.jumped:
            problems.append(f"the run was over {took:g} s after an interrupt; its grace is {grace:g} s")
    if (
        run.grace is not None
        and cause is not None
        and end is not None
        and end.time - cause.time > grace + CLEANUP + run.jumped
    ):
        problems.append(f"the run was over {end.time - cause.time:g} s after {cause.data!r}; its grace is {grace:g} s")
    return problems


def _begun(run: RecordedRun, call_id: str) -> float:
    return max(n.time for n in run.notes("effect") if n.data.call_id == call_id and n.data.phase == "begun")


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
    return problems + _untrue_partials(run)


def _untrue_partials(run: RecordedRun) -> list[str]:
    """`MessageUpdate.message`, asked for late, must show the message as of that event."""
    said = ""
    for index, event in enumerate(run.events):
        if event.type == "message_start":
            said = ""
        elif event.type == "message_update" and not run.interrupted:
            said += event.delta if event.kind == "text_delta" else ""
            if event.message.text != said:
                return [f"event {index}: its partial message says {event.message.text!r}; {said!r} had been said"]
    return []


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
    """An assistant message that was cut short carries no tool calls, and says that it was cut."""
    problems = []
    how = None
    for note in run.log:
        if note.kind == "response":
            how = note.data
        elif (
            note.kind == "event" and note.data.type == "message_end" and isinstance(note.data.message, AssistantMessage)
        ):
            if how == "cut" and note.data.message.stop_reason not in ("error", "aborted"):
                problems.append(f"a response was cut, but its message says {note.data.message.stop_reason!r}")
            how = None
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
    for message in run.delivered if not run.interrupted else ():  # see G20: what an interrupt keeps
        if not any(message in request.messages for request in run.requests):
            problems.append(f"{texts_of([message])} counts as delivered, but no request had it")
    if run.again is None and run.undelivered_again:
        problems.append(f"{texts_of(run.undelivered_again)} was not delivered by the next run either")
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
    result = run.result
    if result is not None and result.outcome == "error" and not isinstance(result.error, ModelError):
        problems.append(f"the run ended with {result.error!r}, and it was not raised")
    return problems
