"""Hunt for a defect in the package that is on the path: sweep the built-in scenarios until something does not hold.

``python hunt.py`` prints one JSON object: how it was found, or that it was not.
"""

import json
import sys
import time
from collections.abc import Iterator

from trio_agent.testing import Report, explore, sweep
from trio_agent.testing.scenarios import INTERRUPTED, ORDERED, SCENARIOS, SMALL


def reports() -> Iterator[tuple[str, Report]]:
    """The parts of a hunt, the quickest first."""
    names = [*SMALL, "sequential", "block_parallel", *SCENARIOS]
    for name in dict.fromkeys(names):
        yield "single", sweep(SCENARIOS[name], stop_at_first=True)
    for name in ORDERED:
        yield "orders", explore(SCENARIOS[name], stop_at_first=True)
    for name in INTERRUPTED[:3]:
        yield "lines", sweep(SCENARIOS[name], ["interrupt"], positions=["line"], every=3, stop_at_first=True)


def hunt() -> dict[str, object]:
    """Run the parts until one of them fails."""
    runs, started = 0, time.perf_counter()
    for part, report in reports():
        runs += report.runs
        if report.failures:
            first = report.failures[0]
            return {
                "found": part,
                "token": first.token,
                "problems": list(first.problems[:6]),
                "runs": runs,
                "seconds": round(time.perf_counter() - started, 1),
            }
    return {"found": None, "runs": runs, "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(hunt()) + "\n")
