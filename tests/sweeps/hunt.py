"""Hunt for a defect in the package that is on the path: sweep the built-in scenarios until something does not hold.

    python hunt.py                 every scenario, the smallest first; then every order; then every third line
    python hunt.py PART SCENARIO   only one part of one scenario: single, orders or lines

Prints one JSON object: how it was found, or that it was not.
"""

import json
import sys
import time
from collections.abc import Iterator

from trio_agent.testing import Report, explore, sweep
from trio_agent.testing.scenarios import INTERRUPTED, ORDERED, SCENARIOS


def run_part(part: str, name: str) -> Report:
    """One part of a hunt."""
    if part == "orders":
        return explore(SCENARIOS[name], stop_at_first=True)
    if part == "lines":
        return sweep(SCENARIOS[name], ["interrupt"], positions=["line"], every=3, stop_at_first=True)
    return sweep(SCENARIOS[name], stop_at_first=True)


def parts() -> Iterator[tuple[str, str]]:
    """Every part and its scenario."""
    sizes = {name: trace.steps + trace.points for name, trace in ((n, s.run()) for n, s in SCENARIOS.items())}
    for name in sorted(SCENARIOS, key=sizes.__getitem__):
        yield "single", name
    for name in ORDERED:
        yield "orders", name
    for name in INTERRUPTED[:3]:
        yield "lines", name


def hunt(wanted: list[tuple[str, str]]) -> dict[str, object]:
    """Run the parts until one of them fails."""
    runs, started = 0, time.perf_counter()
    for part, name in wanted:
        report = run_part(part, name)
        runs += report.runs
        if report.failures:
            first = report.failures[0]
            return {
                "found": part,
                "scenario": name,
                "token": first.token,
                "problems": list(first.problems[:6]),
                "runs": runs,
                "seconds": round(time.perf_counter() - started, 1),
            }
    return {"found": None, "runs": runs, "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(hunt([(sys.argv[1], sys.argv[2])] if len(sys.argv) > 2 else list(parts()))) + "\n")
