"""The judge: what really happened, against what the framework's own record says. One for all frameworks."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ._scenario import CALLS, EffectKind, result_of

Point: TypeAlias = tuple[int, bool]
"""Before the n-th step of the scheduler, or (with True) at the n-th moment of rest."""

SETTLE_TURNS = 25
"""So many turns of the loop a task may take to end after its run has."""

SETTLE = 30.0
"""So much virtual time passes after the end of a run before its record is read."""

PATIENCE = 600.0
"""So much virtual time a run may take before it counts as hung."""

FAULTS = {
    "unanswered": "calls in the transcript that have no result in it",
    "unrecorded": "a tool started, and the transcript has no result of any kind for its call",
    "lost": "a tool returned, and the transcript does not have what it returned",
    "new work": "a tool started or a request was sent after the stop",
    "leaked": f"tasks of the run still alive {SETTLE_TURNS} loop turns after it had ended",
    "unusable": "a second prompt on the same object or session failed",
    "hung": "the run did not end within ten minutes of virtual time",
}
"""What can be wrong at a point, in the order of the columns."""


@dataclass
class Transcript:
    """What the framework's own record says, reduced to what is judged."""

    calls: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)


@dataclass
class Observation:
    """One run and what came of it.

    Attributes:
        ended: "returned", "cancelled", "hung", or "raised" with the type of the exception.
        again: "ok", or what was wrong with the second prompt.
        steps: scheduler steps until the run ended.
        rests: how often nothing was runnable until then.
    """

    effects: list[tuple[EffectKind, str]] = field(default_factory=list)
    stopped_at: int | None = None
    transcript: Transcript | None = None
    leaked: list[str] = field(default_factory=list)
    ended: str = "hung"
    again: str = "not tried"
    steps: int = 0
    rests: int = 0

    def points(self) -> list[Point]:
        """Where a run like this one can be stopped."""
        steps = [(number, False) for number in range(1, self.steps + 1)]
        return steps + [(number, True) for number in range(1, self.rests + 1)]


def judge(seen: Observation) -> dict[str, str]:
    """The faults of a run, each with its witness. Empty: the world was quiet."""
    faults: dict[str, list[str]] = {}
    started = [id for kind, id in seen.effects if kind == "started"]
    returned = [id for kind, id in seen.effects if kind == "returned"]
    if seen.transcript is not None:
        calls, results = seen.transcript.calls, seen.transcript.results
        faults["unanswered"] = [id for id in calls if id not in results]
        faults["unrecorded"] = [id for id in started if id not in results]
        faults["lost"] = [id for id in returned if result_of(id) not in results.get(id, "")]
    if seen.stopped_at is not None:
        late = seen.effects[seen.stopped_at :]
        faults["new work"] = [f"{kind} {id}" for kind, id in late if kind != "returned"]
    faults["leaked"] = seen.leaked
    faults["unusable"] = [] if seen.again == "ok" else [seen.again]
    faults["hung"] = ["hung"] if seen.ended == "hung" else []
    return {name: ", ".join(witness) for name, witness in faults.items() if witness}


def check_undisturbed(seen: Observation) -> None:
    """Raise `RuntimeError` if the run that nobody stops is not the scenario: then a sweep would say nothing."""
    wanted = {("request", "r1"), ("request", "r2")}
    wanted |= {(kind, id) for kind in ("started", "returned") for id in CALLS.values()}
    if set(seen.effects) != wanted or len(seen.effects) != len(wanted):
        raise RuntimeError(f"the undisturbed run did {seen.effects}, ended: {seen.ended}")
    if seen.transcript is None or sorted(seen.transcript.calls) != sorted(CALLS.values()):
        raise RuntimeError(f"the undisturbed transcript is {seen.transcript}")
    if faults := judge(seen):
        raise RuntimeError(f"the undisturbed run has faults: {faults}")


@dataclass
class Tally:
    """One line of the table: one framework, one way to run it, one way to stop it."""

    mode: str
    action: str
    points: int = 0
    quiet: int = 0
    points_at_rest: int = 0
    quiet_at_rest: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    witnesses: dict[str, str] = field(default_factory=dict)

    def add(self, point: Point, seen: Observation) -> None:
        """Judge a run, unless it was over before the point came; the first witness of each fault is kept."""
        if seen.stopped_at is None:
            return
        number, resting = point
        found = judge(seen)
        self.points += 1
        self.quiet += not found
        self.points_at_rest += resting
        self.quiet_at_rest += resting and not found
        self.faults.update(found.keys())
        self.ended[seen.ended] += 1
        for name, witness in found.items():
            self.witnesses.setdefault(name, f"{'at rest no.' if resting else 'before step'} {number}: {witness}"[:200])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mode": self.mode,
            "action": self.action,
            "points": self.points,
            "quiet": self.quiet,
            "points_at_rest": self.points_at_rest,
            "quiet_at_rest": self.quiet_at_rest,
            "faults": {name: self.faults[name] for name in FAULTS},
            "ended": dict(self.ended.most_common()),
            "first": self.witnesses,
        }
