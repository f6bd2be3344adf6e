"""The guarantees over the smaller scenarios, at every step; `.ci/run` proves them over all of them."""

import pytest

from trio_agent.testing import Injection, Plan, check_determinism, check_report, explore, sweep, sweep_pairs
from trio_agent.testing._prove import jobs, totals
from trio_agent.testing.scenarios import INTERRUPTED, ORDERED, ORDERED_AND_ENDED, SCENARIOS, SMALL

SWEPT = (*SMALL, "sequential", "parallel", "errors", "failing_hook", "leaving", "deadline", "queues", "late")


@pytest.mark.parametrize("name", SWEPT)
def test_every_action_at_every_position(name: str) -> None:
    report = sweep(SCENARIOS[name])
    assert report.base is not None
    assert report.base.steps > 5, "the sweep did not reach into the run"
    check_report(report)


def test_pairs_of_endings() -> None:
    pairs = [("cancel", "abort"), ("abort", "cancel"), ("steer", "abort"), ("abort", "steer")]
    check_report(sweep_pairs(SCENARIOS["small"], pairs))


@pytest.mark.parametrize("name", ORDERED)
def test_every_order_of_the_ready_tasks(name: str) -> None:
    report = explore(SCENARIOS[name])
    assert report.exhausted
    assert report.orders > 1, "there is nothing to order"
    check_report(report)


def test_an_interrupt_at_lines_of_the_loop() -> None:
    report = sweep(SCENARIOS["small_block"], ["interrupt"], positions=["line"], every=13)
    assert report.base is not None
    assert report.base.lines > 2000
    check_report(report)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_twice_in_the_same_way(name: str) -> None:
    assert check_determinism(SCENARIOS[name]) == []
    assert check_determinism(SCENARIOS[name], Plan((Injection("idle", 4, "abort"),))) == []


def test_the_proof_has_every_part_and_counts_them() -> None:
    full, quick = jobs(), jobs(quick=True)
    assert {job.part for job in full} == {"lines", "pairs", "single", "orders", "orders x cancel", "orders x abort"}
    assert {job.part for job in quick} == {job.part for job in full}
    assert [job.scenario for job in full if job.part == "single"] == list(SCENARIOS)
    assert all(name in SCENARIOS for name in (*SMALL, *ORDERED, *ORDERED_AND_ENDED, *INTERRUPTED))
    assert len(ORDERED) >= 4
    assert len(ORDERED_AND_ENDED) >= 2
    assert totals([]).splitlines()[-1].startswith("all")
