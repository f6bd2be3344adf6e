"""What a side is, and how it answers the parent: one line in, one line of JSON out."""

import gc
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ._cases import CASES, FUNCTIONS, problem_with

__all__ = ["FULL", "MAKE", "Side", "check", "seconds_per_call", "serve", "serve_one"]

FULL = "tool layer"
MAKE = "make"


@dataclass(frozen=True)
class Side:
    """One framework.

    Attributes:
        packages: whose versions are reported.
        included: for each path, what is in the measured time.
        make: a function to a tool; called anew each time.
        calls: (case, path) to one validation.
        read: what such a call returned, as bound arguments or the text of a refusal; outside of the measured time.
        builders: names of what builds a schema or a validator; none of them may run in a call.
    """

    packages: tuple[str, ...]
    included: dict[str, str]
    make: Callable[[Callable[..., Any]], Any]
    calls: dict[tuple[str, str], Callable[[], Any]]
    read: Callable[[str, str, Any], Any]
    builders: frozenset[str]


def check(side: Side) -> list[str]:
    """Every wrong outcome, in words."""
    problems = []
    for (case, path), call in side.calls.items():
        for attempt in range(2):
            problem = problem_with(CASES[case], side.read(case, path, call()))
            if problem is not None:
                problems.append(f"{case}, {path}, call {attempt + 1}: {problem}")
    return problems


def seconds_per_call(call: Callable[[], Any], read: Callable[[Any], Any], batch: int, batches: int) -> float:
    """CPU seconds of one call; what the calls leave behind is kept, and read after the clock has stopped."""
    taken = 0.0
    steps = range(batch)
    gc.collect()
    gc.disable()
    try:
        for _ in range(batches):
            begun = time.process_time()
            results = [call() for _ in steps]
            taken += time.process_time() - begun
            for result in results:
                read(result)
    finally:
        gc.enable()
    return taken / (batch * batches)


def built_by(work: Callable[[], Any], builders: frozenset[str]) -> int:
    """How often a builder ran, Python or C."""
    seen: Counter[str] = Counter()

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            seen[getattr(argument, "__qualname__", "")] += 1

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sum(count for name, count in seen.items() if name in builders)


def _builds(side: Side) -> dict[str, int]:
    """Builders that ran when a tool was made (so the watch sees them), and in 100 calls of each case."""
    counts = {MAKE: built_by(lambda: side.make(FUNCTIONS["medium"]), side.builders)}
    for case in CASES:
        call = side.calls[case, FULL]
        results: list[Any] = []
        counts[case] = built_by(lambda call=call, to=results: to.extend(call() for _ in range(100)), side.builders)
        for result in results:
            side.read(case, FULL, result)
    return counts


def serve_one(side: Side, question: dict[str, Any]) -> Any:
    """The answer to one question."""
    if question["ask"] == "hello":
        versions = {package: version(package) for package in side.packages}
        return {
            "versions": versions | {"python": platform.python_version()},
            "included": side.included,
            "problems": check(side),
            "builds": _builds(side),
            "paths": [list(key) for key in side.calls],
        }
    if question["ask"] == MAKE:
        function = FUNCTIONS[question["case"]]
        return seconds_per_call(lambda: side.make(function), lambda made: None, 1, question["batches"])
    case, path = question["case"], question["path"]
    return seconds_per_call(
        side.calls[case, path], lambda result: side.read(case, path, result), CASES[case].batch, question["batches"]
    )


def serve(side: Side) -> None:
    """Answer until there are no more questions."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(serve_one(side, json.loads(line))) + "\n")
        sys.stdout.flush()
