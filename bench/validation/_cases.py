"""The calls that every side validates: the functions, the JSON text a model sends, and what must come of it."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["CASES", "FUNCTIONS", "PARK", "WRONG_FIELDS", "Case", "bound", "problem_with"]


class _Park:
    """Suspends whoever awaits it: the user's function has been reached, and nothing of it has run."""

    def __await__(self) -> Any:
        yield "parked"


PARK = _Park()


@dataclass
class Span:
    """Lines of a file."""

    start: int
    end: int
    label: str = ""


@dataclass
class Item:
    """One of many."""

    id: int
    name: str
    price: float
    done: bool


async def small(path: str, limit: int, recursive: bool) -> str:
    """Three scalars."""
    await PARK
    return ""


async def medium(
    query: str,
    span: Span,
    tags: list[str],
    mode: Literal["fast", "full", "deep"] = "fast",
    limit: int = 10,
    threshold: float = 0.5,
) -> str:
    """A dataclass, a list, a choice, defaults."""
    await PARK
    return ""


async def large(items: list[Item]) -> str:
    """Many objects."""
    await PARK
    return ""


FUNCTIONS: dict[str, Callable[..., Any]] = {"small": small, "medium": medium, "large": large}
WRONG_FIELDS = ("mode", "limit")


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        function: which of `FUNCTIONS`.
        text: the arguments as the model sends them.
        expected: what the function is called with, defaults filled in; None if the call is to be refused.
        batch: calls between two looks at the clock.
    """

    function: str
    text: str
    expected: dict[str, Any] | None
    batch: int


_MEDIUM = {
    "query": "where is the cancel scope",
    "span": {"start": 1, "end": 80},
    "tags": ["a", "bb", "ccc"],
    "mode": "full",
}
_ITEMS = [{"id": n, "name": f"item {n}", "price": n + 0.25, "done": n % 2 == 0} for n in range(200)]
_SMALL = {"path": "src/main.py", "limit": 20, "recursive": True}

CASES = {
    "small": Case("small", json.dumps(_SMALL), _SMALL, 50),
    "medium": Case(
        "medium",
        json.dumps(_MEDIUM),
        {**_MEDIUM, "span": Span(1, 80, ""), "limit": 10, "threshold": 0.5},
        50,
    ),
    "large": Case("large", json.dumps({"items": _ITEMS}), {"items": [Item(**item) for item in _ITEMS]}, 5),
    "refused": Case("medium", json.dumps({**_MEDIUM, "mode": "slow", "limit": "many"}), None, 50),
}


def bound(case: Case, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What the function sees when it is called so."""
    found = inspect.signature(FUNCTIONS[case.function]).bind(*args, **kwargs)
    found.apply_defaults()
    return dict(found.arguments)


def problem_with(case: Case, outcome: Any) -> str | None:
    """Why an outcome is not what must come of the call: the bound arguments, or the text of the refusal."""
    if case.expected is None:
        if not isinstance(outcome, str) or not all(name in outcome for name in WRONG_FIELDS):
            return f"the refusal does not name both wrong fields: {outcome!r}"
        return None
    types = {name: type(value) for name, value in case.expected.items()}
    if outcome != case.expected or {name: type(value) for name, value in outcome.items()} != types:
        return f"expected {case.expected!r:.300}, got {outcome!r:.300}"
    return None
