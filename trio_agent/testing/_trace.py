"""What one controlled run left behind."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import attrs

from ._plan import Plan

__all__ = ["Fired", "Note", "Outcome", "ScopeSpan", "StepSpan", "Trace", "leaves"]

Outcome: TypeAlias = Literal["returned", "raised", "cancelled", "interrupted", "deadlock", "livelock", "broken"]
"""How a scenario ended: it returned; raised; was ended by `Probe.scope`; raised KeyboardInterrupt; all its tasks
waited and nothing could wake them; it ran on without end; it broke trio itself (its nursery stack,
for example)."""


@attrs.frozen
class Note:
    """Something a scenario observed, with `Probe.note`.

    Attributes:
        order: its place among everything that was noted or fired in this run.
        step, time: the task step and the (virtual) second in which it was.
    """

    order: int
    step: int
    time: float
    kind: str
    data: Any = None


@attrs.frozen
class Fired:
    """An action that was injected.

    Attributes:
        result: what the action returned.
        problem: why it had no effect: no such action at this moment, or what it raised.
    """

    order: int
    step: int
    time: float
    action: str
    place: str
    result: Any = None
    problem: str | None = None


@attrs.frozen
class StepSpan:
    """One task step of a traced run: which task, in which batch of the scheduler, resumed at which line."""

    step: int
    batch: int
    task: int
    line: str
    time: float


@attrs.define
class ScopeSpan:
    """One cancel scope of a traced run: opened and closed by which task, in which steps, and what became of it."""

    task: int
    opened: int
    closed: int | None = None
    cancelled: int | None = None
    caught: bool = False
    shield: bool = False
    line: str = ""


@attrs.define
class Trace:
    """One controlled run.

    Attributes:
        plan: what it did.
        outcome, value, error: how the scenario ended.
        steps: how many task steps it took (tasks of trio's own are not counted).
        idles: the steps after which every task waited.
        points, lines: how many points it passed; how many lines ran in the watched files, where that was counted.
        arities, taken: for each decision about an order, how many choices there were and which was taken.
        fired: the injected actions.
        actions: the names of the actions that the scenario knew at its end.
        notes: what the scenario observed.
        tasks: the names of its tasks, in order of birth.
        schedule: which task took each step.
        leaked: tasks still alive when the scenario had ended.
        stuck: for a deadlock, each task and the line it waits at.
        after_error: what `Probe.afterwards` met.
        sites: where tasks waited at the moment of an injection, as file:line:function.
        data: whatever the scenario wants to be judged by.
        timeline, scopes: only where the run was traced.
        problems: what the invariants said.
    """

    plan: Plan
    outcome: Outcome = "returned"
    value: Any = None
    error: BaseException | None = None
    steps: int = 0
    idles: list[int] = attrs.field(factory=list)
    points: int = 0
    lines: int = 0
    arities: list[int] = attrs.field(factory=list)
    taken: list[int] = attrs.field(factory=list)
    fired: list[Fired] = attrs.field(factory=list)
    actions: tuple[str, ...] = ()
    notes: list[Note] = attrs.field(factory=list)
    tasks: list[str] = attrs.field(factory=list)
    schedule: list[int] = attrs.field(factory=list)
    leaked: list[str] = attrs.field(factory=list)
    stuck: list[str] = attrs.field(factory=list)
    after_error: str | None = None
    sites: set[str] = attrs.field(factory=set)
    data: dict[str, Any] = attrs.field(factory=dict)
    timeline: list[StepSpan] = attrs.field(factory=list)
    scopes: list[ScopeSpan] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)

    @property
    def outcome_class(self) -> str:
        """The outcome in a word or two, with the exception's type where there is one."""
        if self.outcome == "raised" and self.error is not None:
            return f"raised {type(self.error).__name__}"
        return self.outcome

    def differences(self, other: "Trace") -> list[str]:
        """What two runs of one plan did differently, the first difference first; empty if they are the same run."""
        found = []
        for step, (mine, theirs) in enumerate(zip(self.schedule, other.schedule, strict=False), 1):
            if mine != theirs:
                names = [_name(trace, task) for trace, task in ((self, mine), (other, theirs))]
                found.append(f"step {step} was taken by {names[0]} in one run and by {names[1]} in the other")
                break
        for name in ("tasks", "steps", "idles", "points", "lines", "arities", "outcome_class"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                found.append(f"{name}: {mine!r} in one run, {theirs!r} in the other")
        notes = [[(note.step, note.kind, _said(note.data)) for note in trace.notes] for trace in (self, other)]
        for mine_note, their_note in zip(*notes, strict=False):
            if mine_note != their_note:
                found.append(f"note {mine_note} in one run, {their_note} in the other")
                break
        return found


def leaves(error: BaseException | None) -> Iterator[BaseException]:
    """The exceptions in a group, however nested; the exception itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    elif error is not None:
        yield error


def _said(data: Any) -> str:
    # an address or a wall-clock stamp in a repr is no difference in behaviour
    return data if isinstance(data, str) else type(data).__name__


def _name(trace: Trace, task: int) -> str:
    return f"{trace.tasks[task]!r}" if 0 <= task < len(trace.tasks) else f"task {task}"
