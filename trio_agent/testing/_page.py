"""`Report.write_html`: one self-contained page with the heat map of a report and the timelines of its runs.

The page asks nobody for anything: style, script and data are in it, and its content security policy forbids the rest.
What comes from a run is in one JSON element, as integers and indexes into a table of texts, so that some ten thousand
runs stay a small file; the script beside this module draws it.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from importlib import resources
from typing import Any, Final, TypeVar

import attrs

from ._plan import Injection, Plan
from ._report import Entry, Report
from ._trace import Fired, Note, Trace

__all__ = ["page"]

_T = TypeVar("_T")

_STEPS: Final = 2000
"""Steps of one run that are drawn: a livelock has ten times as many, and all alike."""

_NOTES: Final = 1000
_TEXT: Final = 160


def page(report: Report, timelines: int = 400) -> str:
    """The page of a report.

    Args:
        report: what was found.
        timelines: how many runs are run once more, traced, to show a timeline for them: the failing ones first, then
            evenly over the rest.
    """
    parts = {
        "title": html.escape(report.scenario.name),
        "css": _resource("_page.css"),
        "js": _resource("_page.js"),
        "data": _script_safe(_data(report, timelines)),
    }
    # in one pass: a name in the data that looks like a placeholder stays what it is
    return re.sub(r"@@(title|css|js|data)@@", lambda match: parts[match[1]], _resource("_page.html"))


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _script_safe(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor open a comment there."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class _Texts:
    """A table of texts: each is stored once, and named by its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def _data(report: Report, timelines: int) -> dict[str, Any]:
    entries = report.entries
    counts = Counter(entry.outcome for entry in entries)
    classes = sorted(counts)
    numbers = {name: number for number, name in enumerate(classes)}
    problems = {failure.plan: list(failure.problems) for failure in report.failures}
    texts = _Texts()
    runs = {}
    for index in _chosen(entries, timelines):
        entry = entries[index]
        runs[index] = _run(report.scenario.run(entry.plan, traced=True), entry, texts)
    return {
        "scenario": report.scenario.name,
        "summary": report.summary(),
        "steps": report.base.steps if report.base else 0,
        "sites": len(report.sites),
        "exhausted": report.exhausted,
        "classes": [[name, counts[name]] for name in classes],
        "tokens": [report.scenario.token(entry.plan).removeprefix(report.scenario.name) for entry in entries],
        "outcomes": [numbers[entry.outcome] for entry in entries],
        "ok": "".join("01"[entry.ok] for entry in entries),
        "fired": "".join("01"[entry.fired] for entry in entries),
        "problems": {i: problems.get(entry.plan, []) for i, entry in enumerate(entries) if not entry.ok},
        "groups": _groups(report),
        "runs": runs,
        "texts": texts.all(),
    }


# which runs get a timeline -------------------------------------------------------------------------------------------


def _chosen(entries: Sequence[Entry], limit: int) -> list[int]:
    """The numbers of at most ``limit`` entries: the failing ones first, then evenly over the rest."""
    first: dict[Plan, int] = {}
    for index, entry in enumerate(entries):
        first.setdefault(entry.plan, index)  # two entries of one plan are one run
    failing = _spread([i for i in first.values() if not entries[i].ok], limit)
    return failing + _spread([i for i in first.values() if entries[i].ok], limit - len(failing))


def _spread(items: Sequence[_T], limit: int) -> list[_T]:
    if limit >= len(items):
        return list(items)
    return [items[number * len(items) // limit] for number in range(max(limit, 0))]


# where each run stands in the heat map -------------------------------------------------------------------------------


@attrs.define
class _Group:
    """One row of the table: its cells have a column and a line.

    A ``strip`` has a cell for each position; a ``matrix`` one for each pair of positions; ``orders`` have a column for
    each order of the ready tasks, and a line for each position; a ``block`` just counts.
    """

    action: str
    where: str
    kind: str
    columns: str
    lines: str = ""
    entries: list[int] = attrs.field(factory=list)
    x: list[int] = attrs.field(factory=list)
    y: list[int] = attrs.field(factory=list)


def _groups(report: Report) -> list[dict[str, Any]]:
    entries = report.entries
    orders: dict[Hashable, int] = {}
    for entry in entries:
        orders.setdefault(_order(entry.plan), len(orders) + 1)
    fixed = report.base.plan.injections if report.base else ()
    if not all(set(fixed) <= set(entry.plan.injections) for entry in entries):
        fixed = ()
    groups: dict[Hashable, _Group] = {}
    for index, entry in enumerate(entries):
        free = _without(entry.plan.injections, fixed)
        kind, columns, lines = _kind(free, many_orders=len(orders) > 1)
        key = (entry.row, kind, columns, lines)
        group = groups.setdefault(key, _Group(*entry.row, kind, columns, lines))
        group.entries.append(index)
        x, y = _place(kind, free, orders[_order(entry.plan)], len(group.entries))
        group.x.append(x)
        group.y.append(y)
    return [attrs.asdict(group) for group in groups.values()]


def _order(plan: Plan) -> Hashable:
    return plan.order, plan.choices


def _without(injections: Iterable[Injection], fixed: Iterable[Injection]) -> list[Injection]:
    """The injections that differ between runs; those of the plan a sweep started from are in all of them."""
    free = list(injections)
    for injection in fixed:
        free.remove(injection)
    return free


def _kind(free: Sequence[Injection], *, many_orders: bool) -> tuple[str, str, str]:
    if len(free) > 2 or (many_orders and len(free) > 1):
        return "block", "run", ""
    if many_orders:
        return "orders", "order", free[0].at if free else ""
    if len(free) == 2:
        first, second = free
        return "matrix", f"{second.action} at {second.at}", f"{first.action} at {first.at}"
    return "strip", free[0].at if free else "", ""


def _place(kind: str, free: Sequence[Injection], order: int, count: int) -> tuple[int, int]:
    if kind == "block":
        return count, 1
    if kind == "orders":
        return order, free[0].index if free else 1
    if kind == "matrix":
        return free[1].index, free[0].index
    return free[0].index if free else 1, 1


# one traced run ------------------------------------------------------------------------------------------------------


def _run(trace: Trace, entry: Entry, texts: _Texts) -> dict[str, Any]:
    shown = trace.timeline[:_STEPS]
    notes = trace.notes[:_NOTES]
    tools = _tools(notes)
    batches = [span.batch for span in shown]
    numbers = {call: number for number, call in enumerate(tools)}
    effects = [(note, _call(note)) for note in notes if note.kind == "effect"]
    return {
        "steps": trace.steps,
        "names": [texts(name) for name in trace.tasks],
        "task": [span.task for span in shown],
        # as differences: small numbers
        "batch": [after - before for before, after in zip([0, *batches], batches, strict=False)],
        "line": [texts(span.line) for span in shown],
        "time": [texts(_seconds(span.time)) for span in shown],
        "scopes": _scopes(trace, texts),
        "notes": [
            [note.order, note.step, texts(_seconds(note.time)), texts(note.kind), texts(_said(note.data))]
            for note in notes
        ],
        "more": len(trace.notes) - len(notes),
        "fired": [_fired(fired, texts) for fired in trace.fired],
        "tools": [
            [texts(tool.name), texts(call), tool.start.step, tool.start.order]
            + ([tool.end.step, tool.end.order] if tool.end else [])
            for call, tool in tools.items()
        ],
        "effects": [
            [numbers[call], note.step, note.order, texts(_text(note.data, "phase", "?"))]
            for note, call in effects
            if call in numbers
        ],
        "error": texts(_error(trace.error)) if trace.error is not None else -1,
        "left": [texts(_short(text)) for text in (*trace.stuck, *trace.leaked)],
        # a run that is not the same twice is worth knowing
        "differs": -1 if trace.outcome_class == entry.outcome else texts(trace.outcome_class),
    }


def _scopes(trace: Trace, texts: _Texts) -> list[list[int]]:
    own = [number for number, span in enumerate(trace.scopes[:2]) if span.line.startswith("_engine.py:")]
    found = []
    for number, span in enumerate(trace.scopes):
        if own == [0, 1] and number == 0:
            continue  # the kit's own scope, with which it ends a run that does not end
        line = "Probe.scope, around the scenario" if own == [0, 1] and number == 1 else span.line
        closed = -1 if span.closed is None else span.closed
        cancelled = -1 if span.cancelled is None else span.cancelled
        found.append([span.task, span.opened, closed, cancelled, span.caught + 2 * span.shield, texts(line)])
    return found


def _fired(fired: Fired, texts: _Texts) -> list[int]:
    position = "step" if fired.place.startswith("before") else "idle" if fired.place.startswith("at rest") else "in"
    result = -1 if fired.result is None else texts(_said(fired.result))
    problem = -1 if fired.problem is None else texts(_short(fired.problem))
    time = texts(_seconds(fired.time))
    return [fired.order, fired.step, time, texts(position), texts(fired.action), texts(fired.place), result, problem]


@attrs.define
class _Tool:
    name: str
    start: Note
    end: Note | None = None


def _tools(notes: Iterable[Note]) -> dict[str, _Tool]:
    """The tool calls of a run by id, from an agent's events."""
    tools: dict[str, _Tool] = {}
    for note in notes:
        if note.kind != "event":
            continue
        kind, call = _text(note.data, "type"), _text(note.data, "tool_call_id")
        if kind == "tool_execution_start":
            tools[call] = _Tool(_text(note.data, "tool_name", "?"), note)
        elif kind == "tool_execution_end" and call in tools:
            tools[call].end = note
    return tools


def _call(note: Note) -> str:
    return _text(note.data, "call_id")


def _text(thing: Any, name: str, default: str = "") -> str:
    """An attribute that is a text, of a thing that may be anything, and may raise when it is asked."""
    try:
        value = getattr(thing, name, default)
    except Exception:  # noqa: BLE001 - a property of somebody's object; a page is not the place to fail for it
        return default
    return _short(value) if isinstance(value, str) else default


def _said(data: Any) -> str:
    """What a note says, shortly."""
    try:
        if data is None:
            return ""
        if isinstance(data, str):
            return _short(data)
        if type(data) in (bool, int, float):
            return _short(repr(data))
    except Exception:  # noqa: BLE001 - as above; and there are ints too long to be printed
        return type(data).__name__
    kind = _text(data, "type") or type(data).__name__
    about = [_text(data, name) for name in ("tool_name", "action", "name", "phase", "call_id", "tool_call_id")]
    return _short(" ".join([kind, *dict.fromkeys(text for text in about if text)]))


def _error(error: BaseException) -> str:
    try:
        return _short(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - somebody's __str__
        return type(error).__name__


def _short(text: str) -> str:
    # str(): a subclass may have its own ideas of slicing
    text = str.__str__(text)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _seconds(time: float) -> str:
    return f"{time:.6g}"
