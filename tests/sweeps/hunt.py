"""Hunt for a defect in the package that is on the path: sweep the built-in scenarios until something does not hold.

    python hunt.py                 every scenario, the smallest first; then every order; then every third line
    python hunt.py PART SCENARIO   only one part of one scenario: single, orders or lines
    python hunt.py random RUNS     for comparison: what scripted tests with random timing find in so many runs

Prints one JSON object: how it was found, or that it was not.
"""

import json
import random
import sys
import time
from collections.abc import Iterator

import attrs
import trio

from trio_agent.testing import Plan, Probe, Report, Scenario, Trace, explore, sweep
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


def random_traces(runs: int, seed: int = 0) -> Iterator[Trace]:
    """Runs, each: a scenario, an action and a moment by chance, and the ready tasks in an order by chance: what a
    test does that sleeps for a random time and then aborts. Judged by the same guarantees."""
    generator = random.Random(seed)
    durations = {
        name: max([note.time for note in scenario.run().notes], default=1.0) for name, scenario in SCENARIOS.items()
    }
    for _ in range(runs):
        name = generator.choice(list(SCENARIOS))
        scenario = SCENARIOS[name]
        action, moment = generator.choice(scenario.actions), generator.uniform(0, durations[name])
        order = tuple((n, generator.randrange(4)) for n in range(60))

        async def disturbed(
            probe: Probe, scenario: Scenario = scenario, action: str = action, moment: float = moment
        ) -> None:
            async def disturb() -> None:
                await trio.sleep(moment)
                probe.fire(action)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(disturb)
                await scenario.function(probe)
                nursery.cancel_scope.cancel()

        yield attrs.evolve(scenario, function=disturbed, may_raise=True).run(Plan(order="any", choices=order))


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


def hunt_at_random(runs: int) -> dict[str, object]:
    """`hunt` by chance."""
    for done, trace in enumerate(random_traces(runs), 1):
        if trace.problems:
            return {"found": "random", "runs": done, "problems": trace.problems[:6]}
    return {"found": None, "runs": runs}


def main(arguments: list[str]) -> dict[str, object]:
    """What the command line asks for."""
    if arguments[:1] == ["random"]:
        return hunt_at_random(int(arguments[1]))
    return hunt([(arguments[0], arguments[1])] if arguments else list(parts()))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
