"""One run of an agent, recorded: what the world saw beside what the agent says. The guarantees judge it."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import attrs

from trio_agent import (
    AgentEnd,
    AgentEvent,
    Message,
    ModelRequest,
    Outcome,
    Receipt,
    RunResult,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolResultMessage,
    UserMessage,
)

from ._trace import Note

CallKey: TypeAlias = tuple[int, str]
"""A call: the number of its turn, and its id."""

__all__ = ["Act", "Effect", "Phase", "RecordedRun", "texts_of"]

Phase: TypeAlias = Literal["begun", "returned", "raised", "cut", "interrupted"]
"""What a tool did: it began; returned; raised (its own errors, also beside a cancellation, also a stale
`trio.Cancelled`); was cut by a cancellation; met a KeyboardInterrupt."""


@attrs.frozen
class Effect:
    """Something a tool really did, as the tool itself saw it."""

    call_id: str
    tool_name: str
    phase: Phase
    value: Any = None


@attrs.frozen
class Act:
    """Something done to a run from outside, and what it returned."""

    action: str
    result: Any = None


@attrs.define
class RecordedRun:
    """What one run did, in one log, and what it left.

    Attributes:
        log: everything in the order in which it happened. Kinds: ``event`` (`AgentEvent`), ``effect`` (`Effect`),
            ``request`` (`ModelRequest`), ``hook`` (its name), ``hook_raised``
            (its error), ``act`` (`Act`), ``cause`` (an outcome that is decided
            from here on, unless another was before), ``read`` (an event that the reader took), ``left`` (the reader
            is gone), ``response`` (a model ``"returned"`` or was ``"cut"``), ``problem`` (a guarantee and what a
            scenario saw of it itself), ``late`` (a progress report that was accepted after its tool had returned).
        snapshots: each event, with `event_to_dict` of it at the moment at which it was said.
        seen_by_second: what another observer saw, subscribed after the one that records.
        messages: the transcript that was left; ``first``: where this run's messages begin.
        submitted_steering, submitted_follow_ups: the receipts of what was queued, in order.
        delivered: what counted as delivered when the run had ended.
        withdrawn: the receipts that were taken back.
        left_steering, left_follow_ups: what was still queued at the end.
        result: what the caller got; ``raised``: what came out instead.
        begun: the caller has begun to run it.
        ended: the run is over and the agent is idle.
        finished: the caller went on past a checkpoint after the run.
        stayed: the reader read to the end. None if nobody read.
        bound, burst: how many events may wait for the reader, and how many may come in one step beyond that.
        grace: seconds that an atomic tool may go on; None if something in the run cannot be ended at all.
        deadline: when the run's own timeout is over, in trio's time.
        output_tool: the tool that gives the run's value: the loop takes its calls itself, and it has no effects.
        atomic: names of atomic tools; ``timed``: timeouts of tools that have one of their own.
        body_error: what the body of the block raised; ``has_body_nursery``: it has a nursery of its own.
        open_streams: model streams that had not ended when the run had.
        leaked: tasks that outlived it.
        again: what went wrong when the agent was used once more; None if nothing did.
        undelivered_again: what had been queued and was not delivered even then.
        warned: how many observers were reported as removed; ``raising``: how many observers did raise.
        interrupted: a KeyboardInterrupt was injected; ``interrupted_at``: at this moment.
        is_unrecorded: the scenario runs an agent in a way that is not recorded, and says itself what is wrong.
        jumped: seconds that the clock was moved on.
    """

    log: list[Note] = attrs.field(factory=list)
    snapshots: list[tuple[AgentEvent, dict[str, Any]]] = attrs.field(factory=list)
    seen_by_second: list[AgentEvent] = attrs.field(factory=list)
    messages: tuple[Message, ...] = ()
    first: int = 0
    submitted_steering: list[Receipt] = attrs.field(factory=list)
    submitted_follow_ups: list[Receipt] = attrs.field(factory=list)
    delivered: list[Message] = attrs.field(factory=list)
    withdrawn: list[Receipt] = attrs.field(factory=list)
    left_steering: tuple[Message, ...] = ()
    left_follow_ups: tuple[Message, ...] = ()
    result: RunResult | None = None
    raised: BaseException | None = None
    begun: bool = False
    ended: bool = False
    finished: bool = False
    stayed: bool | None = None
    bound: int | None = None
    burst: int = 0
    grace: float | None = 5.0
    deadline: float | None = None
    output_tool: str | None = None
    atomic: frozenset[str] = frozenset()
    timed: dict[str, float] = attrs.field(factory=dict)
    body_error: BaseException | None = None
    has_body_nursery: bool = False
    open_streams: int = 0
    leaked: tuple[str, ...] = ()
    again: str | None = None
    undelivered_again: tuple[Message, ...] = ()
    warned: int = 0
    raising: int = 0
    interrupted: bool = False
    interrupted_at: float | None = None
    jumped: float = 0.0
    is_unrecorded: bool = False

    def data(self, kind: str) -> list[Any]:
        """What was logged of one kind."""
        return [note.data for note in self.log if note.kind == kind]

    def notes(self, kind: str) -> Iterator[Note]:
        """The log's entries of one kind."""
        return (note for note in self.log if note.kind == kind)

    @property
    def events(self) -> list[AgentEvent]:
        """What the recording observer saw."""
        return self.data("event")

    @property
    def requests(self) -> list[ModelRequest]:
        """What the model was sent."""
        return self.data("request")

    @property
    def end(self) -> AgentEnd | None:
        """The last event, if it is an ``agent_end``."""
        last = next((note.data for note in reversed(self.log) if note.kind == "event"), None)
        return last if isinstance(last, AgentEnd) else None

    @property
    def end_note(self) -> Note | None:
        """Where ``agent_end`` stands in the log."""
        return next((n for n in self.log if n.kind == "event" and isinstance(n.data, AgentEnd)), None)

    def by_turn(self) -> Iterator[tuple[int, Note]]:
        """The log, each entry with the number of its turn: a server may count its calls' ids anew in each."""
        turn = 0
        for note in self.log:
            turn += note.kind == "event" and note.data.type == "turn_start"
            yield turn, note

    def _said(self) -> Iterator[tuple[int, AgentEvent]]:
        """What was said, in this run and in those nested in it, each with the number of this run's turn."""
        for turn, note in self.by_turn():
            if note.kind == "event":
                inner = note.data.event if isinstance(note.data, ToolExecutionUpdate) else None
                yield turn, note.data if inner is None else inner

    @property
    def tool_ends(self) -> dict[CallKey, ToolExecutionEnd]:
        """The end event of each call, those of nested runs included: their ids must be their own."""
        return {(turn, e.tool_call_id): e for turn, e in self._said() if isinstance(e, ToolExecutionEnd)}

    @property
    def results(self) -> dict[CallKey, ToolResultMessage]:
        """The result message of each call."""
        ends = [(turn, event.message) for turn, event in self._said() if event.type == "message_end"]
        return {(turn, m.tool_call_id): m for turn, m in ends if isinstance(m, ToolResultMessage)}

    @property
    def nested(self) -> dict[tuple[int, *tuple[str, ...]], list[AgentEvent]]:
        """The events of each nested run, by the turn of this run and the path of calls that lead to it."""
        found: dict[tuple[int, *tuple[str, ...]], list[AgentEvent]] = {}
        for turn, note in self.by_turn():
            if note.kind == "event" and isinstance(note.data, ToolExecutionUpdate) and note.data.event is not None:
                found.setdefault((turn, *note.data.path), []).append(note.data.event)
        return found

    def phases(self) -> dict[CallKey, list[Effect]]:
        """What each call's tool did."""
        found: dict[CallKey, list[Effect]] = {}
        for turn, note in self.by_turn():
            if note.kind == "effect":
                found.setdefault((turn, note.data.call_id), []).append(note.data)
        return found

    @property
    def was_cancelled(self) -> bool:
        """The outer scope was cancelled."""
        return any(act.action == "cancel" for act in self.data("act"))

    def first_cause(self) -> Note | None:
        """What was the first to decide the outcome, by time; the run's own deadline counts from its moment on."""
        end = self.end_note
        causes = [n for n in self.notes("cause") if end is None or n.order < end.order]
        if self.deadline is None:
            return causes[0] if causes else None
        earlier = [cause for cause in causes if cause.time < self.deadline]
        if earlier:
            return earlier[0]
        if end is not None and end.time < self.deadline:
            return causes[0] if causes else None
        return Note(0, 0, self.deadline, "cause", "deadline")

    def stop(self) -> Note | None:
        """The first thing that ended the run from outside: an accepted abort, a cancellation, the deadline, a reader
        that left."""
        cause = self.first_cause()
        outcome: Outcome | None = None if cause is None else cause.data
        return cause if outcome in ("aborted", "cancelled", "deadline") else None


def texts_of(messages: Iterable[Message]) -> list[str]:
    """The texts of some messages, for a report."""
    return [m.text if isinstance(m, UserMessage) else m.role for m in messages]
