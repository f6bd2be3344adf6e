"""What a sweep or an exploration found: a table, JSON, a page."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from ._plan import Injection, Plan
from ._scenario import Scenario
from ._trace import Trace

__all__ = ["Entry", "Failure", "Report"]


@attrs.frozen
class Entry:
    """One run of a report, in short.

    Attributes:
        plan: what was injected where, and which order was taken.
        outcome: `Trace.outcome_class`.
        ok: no invariant had anything to say.
        fired: every injection was reached and did something.
    """

    plan: Plan
    outcome: str
    ok: bool
    fired: bool

    @property
    def row(self) -> tuple[str, str]:
        """Which row of the table it stands in: the actions, and where they were."""
        injections = self.plan.injections
        if not injections:
            return "none", "order" if self.plan.order != "arrival" else ""
        return " + ".join(i.action for i in injections), _where(injections)


def _where(injections: Sequence[Injection]) -> str:
    return " + ".join(dict.fromkeys(i.at for i in injections))


@attrs.frozen
class Failure:
    """One run in which something did not hold: the token that shows it again, and what was said."""

    token: str
    problems: tuple[str, ...]
    outcome: str
    plan: Plan


@attrs.define
class Report:
    """The runs of one scenario. Filled while they go on, so it can be printed at any time.

    Attributes:
        scenario: what was run.
        base: the plain run.
        entries: every run, in short.
        failures: those in which something did not hold.
        orders: how many orders of the ready tasks were run, where that was explored.
        exhausted: nothing was left out because of a limit, or an interrupt.
        seconds: how long it took.
        sites: where tasks waited at the moments of injection.
    """

    scenario: Scenario
    base: Trace | None = None
    entries: list[Entry] = attrs.field(factory=list)
    failures: list[Failure] = attrs.field(factory=list)
    orders: int = 0
    exhausted: bool = True
    seconds: float = 0.0
    sites: set[str] = attrs.field(factory=set)
    _started: float = attrs.field(factory=time.perf_counter)

    def add(self, trace: Trace) -> None:
        """Take a judged run into the report."""
        fired = len(trace.fired) == len(trace.plan.injections) and all(f.problem is None for f in trace.fired)
        self.entries.append(Entry(trace.plan, trace.outcome_class, not trace.problems, fired))
        self.sites |= trace.sites
        if trace.problems:
            token = self.scenario.token(trace.plan)
            self.failures.append(Failure(token, tuple(trace.problems), trace.outcome_class, trace.plan))
        self.seconds = time.perf_counter() - self._started

    @property
    def ok(self) -> bool:
        """Nothing failed."""
        return not self.failures

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return len(self.entries)

    def summary(self) -> str:
        """One line: runs, failures, speed."""
        rate = self.runs / self.seconds if self.seconds else 0.0
        orders = f", {self.orders} orders" if self.orders else ""
        rest = "" if self.exhausted else " (not all: stopped early)"
        return (
            f"{self.scenario.name}: {self.runs} runs{orders}, {len(self.failures)} failing, "
            f"{len(self.sites)} waiting places hit, {self.seconds:.1f} s, {rate:.0f} runs/s{rest}"
        )

    def table(self, *, failures: int = 10) -> str:
        """Actions and positions against outcome classes, with the first failures and their replay tokens below.

        ``without effect`` counts runs in which an action was not reached, or could do nothing at that moment.
        """
        classes = sorted({entry.outcome for entry in self.entries})
        head = ["action", "where", *classes, "without effect", "failing", "runs"]
        rows: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries:
            rows.setdefault(entry.row, []).append(entry)
        lines = [head]
        for (action, where), entries in rows.items():
            counts = Counter(entry.outcome for entry in entries)
            idle = sum(not entry.fired for entry in entries)
            failing = sum(not entry.ok for entry in entries)
            cells = [str(counts[name] or "-") for name in classes]
            lines.append([action, where, *cells, str(idle or "-"), str(failing or "-"), str(len(entries))])
        text = [self.summary(), _aligned(lines)]
        for failure in self.failures[:failures]:
            text += [f"replay: {failure.token}", *[f"    {problem}" for problem in failure.problems[:5]]]
        if len(self.failures) > failures:
            text.append(f"... and {len(self.failures) - failures} more failing runs")
        return "\n".join(text)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return {
            "scenario": self.scenario.name,
            "runs": self.runs,
            "orders": self.orders,
            "exhausted": self.exhausted,
            "seconds": round(self.seconds, 3),
            "steps": self.base.steps if self.base else 0,
            "sites": sorted(self.sites),
            "entries": [
                {
                    "token": self.scenario.token(entry.plan),
                    "injections": [[i.at, i.index, i.action] for i in entry.plan.injections],
                    "outcome": entry.outcome,
                    "ok": entry.ok,
                    "fired": entry.fired,
                }
                for entry in self.entries
            ],
            "failures": [
                {"token": failure.token, "outcome": failure.outcome, "problems": list(failure.problems)}
                for failure in self.failures
            ],
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)

    def write_html(self, path: str | Path, *, timelines: int = 400) -> Path:
        """Write one self-contained page: the table as a heat map, and a timeline for the points one clicks.

        Args:
            path: the file.
            timelines: for how many points a timeline is recorded, by running them once more: the failing ones
                first, then evenly over the rest.
        """
        from ._page import page

        target = Path(path)
        target.write_text(page(self, timelines), encoding="utf-8")
        return target


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    out = []
    for line in lines:
        texts = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        out.append("  ".join([*texts, *numbers]).rstrip())
    return "\n".join(out)
