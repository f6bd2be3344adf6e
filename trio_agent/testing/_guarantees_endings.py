"""G1 to G10: what a run leaves behind, however it ended; see `_guarantees`."""

from typing import Final

import trio

from trio_agent import (
    Message,
    UserMessage,
)

from ._checks import check_events, check_transcript
from ._recorded import RecordedRun, texts_of
from ._trace import Note, leaves

__all__ = [
    "g01_events_are_legal",
    "g02_every_call_has_one_result",
    "g03_results_tell_the_truth",
    "g04_nothing_new_after_the_stop",
    "g05_abort_is_linearizable",
    "g06_cancellation_is_not_swallowed",
    "g07_exceptions_are_bare",
    "g08_the_agent_is_idle_and_usable",
    "g09_nothing_outlives_the_run",
    "g10_messages_are_conserved",
]

EPSILON: Final = 1e-6


def g01_events_are_legal(run: RecordedRun) -> list[str]:
    """The event sequence is a sentence of the grammar; ``agent_end`` is last and unique. So is that of every nested
    run, and it is over before its call is."""
    problems = check_events(run.events)
    for (_, *path), events in run.nested.items():
        problems += [f"the run in call {'/'.join(path)}: {problem}" for problem in check_events(events)]
    return problems


def g02_every_call_has_one_result(run: RecordedRun) -> list[str]:
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


def g03_results_tell_the_truth(run: RecordedRun) -> list[str]:
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
        if call_id not in phases and end.outcome not in untouched and end.tool_name != run.output_tool:
            problems.append(f"call {call_id!r} never began, but its outcome is {end.outcome!r}")
        if call_id in results and results[call_id].content != end.result.content:
            problems.append(f"the result of call {call_id!r} is not what its end event said")
    return problems


def g04_nothing_new_after_the_stop(run: RecordedRun) -> list[str]:
    """After an abort or cancellation no tool starts, no request is sent, no hook is called."""
    stop = run.stop()
    if stop is None:
        return []
    late = [
        note
        for note in run.log
        if (
            note.kind in ("request", "nested_request", "hook") or (note.kind == "effect" and note.data.phase == "begun")
        )
        and _is_after(note, stop)
    ]
    return [f"{_what(note)} at step {note.step}, after {stop.data} at step {stop.step}" for note in late]


def _is_after(note: Note, stop: Note) -> bool:
    return note.order > stop.order if stop.order else note.time > stop.time + EPSILON


def _what(note: Note) -> str:
    if note.kind == "effect":
        return f"tool {note.data.tool_name!r} ({note.data.call_id!r}) began"
    return "a request was sent" if "request" in note.kind else f"hook {note.data!r} was called"


def g05_abort_is_linearizable(run: RecordedRun) -> list[str]:
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


def g06_cancellation_is_not_swallowed(run: RecordedRun) -> list[str]:
    """An outer cancellation is never swallowed: the caller does not get past its next checkpoint."""
    problems = []
    if run.was_cancelled and run.finished:
        problems.append("the outer scope was cancelled, and the caller went on past a checkpoint")
    end = run.end
    if end is not None and end.outcome == "cancelled" and run.raised is None and run.result is not None:
        problems.append("the run was cancelled, and the caller got a result and no Cancelled")
    cause = run.first_cause()
    # an error of the embedder's own in the cleanup comes out, as it does in trio; the scope stays cancelled
    own = any(run.raised is leaf for error in (run.body_error, *run.data("hook_raised")) for leaf in leaves(error))
    if cause is not None and cause.data == "cancelled" and isinstance(run.raised, Exception) and not own:
        problems.append(f"the first cause was the cancellation, but {type(run.raised).__name__} came out of the run")
    return problems


def g07_exceptions_are_bare(run: RecordedRun) -> list[str]:
    """The embedder gets one exception, not a group, and no Cancelled that no outer scope explains."""
    if isinstance(run.raised, BaseExceptionGroup):
        # a nursery in the body of the block may raise a group of its own, which comes out unchanged
        of_the_body = run.has_body_nursery and run.raised.split(trio.Cancelled)[1] is None
        return [] if of_the_body else [f"a group came out: {run.raised!r}"]
    if run.body_error is not None and run.raised is not run.body_error and not run.interrupted:
        return [f"the body raised {run.body_error!r}, but {run.raised!r} came out"]
    if isinstance(run.raised, trio.Cancelled) and not run.was_cancelled:
        return ["Cancelled came out, and nobody had cancelled the outer scope"]
    return []


def g08_the_agent_is_idle_and_usable(run: RecordedRun) -> list[str]:
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


def g09_nothing_outlives_the_run(run: RecordedRun) -> list[str]:
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
        withdrawn = [receipt.message for receipt in receipts if receipt in run.withdrawn]
        submitted = [message for message in submitted if not any(message is one for one in withdrawn)]
        found = [*entered, *left]
        if [id(m) for m in found] != [id(m) for m in submitted]:
            problems.append(
                f"{name}: submitted {texts_of(submitted)}, entered {texts_of(entered)}, left {texts_of(left)}"
            )
    return problems
