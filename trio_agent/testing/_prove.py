"""Every guarantee over every built-in scenario, in the ways of the specification; and the counts."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import attrs

from ._report import Failure
from ._sweep import explore, sweep, sweep_pairs
from .scenarios import INTERRUPTED, ORDERED, ORDERED_AND_ENDED, SCENARIOS, SMALL

__all__ = ["Job", "Proof", "jobs", "prove", "run_job", "totals"]

QUICK_PAIRS = (("cancel", "abort"), ("abort", "cancel"), ("steer", "abort"), ("abort", "steer"), ("cancel", "cancel"))


@attrs.frozen
class Job:
    """One part of the proof: what is done to which scenario.

    Attributes:
        part: ``single``, ``pairs``, ``orders``, ``orders x cancel``, ``orders x abort`` or ``lines``.
        every: only each n-th position; more than 1 only in the quick proof.
        quick: only the most telling pairs.
    """

    part: str
    scenario: str
    every: int = 1
    quick: bool = False


@attrs.frozen
class Proof:
    """What came of a job, small enough to be sent between processes: of the failures only the first ones."""

    job: Job
    runs: int
    orders: int
    seconds: float
    failing: int
    failures: tuple[Failure, ...]
    summary: str


def jobs(*, quick: bool = False) -> list[Job]:
    """All parts of the proof; the longest first, so that several processes end together.

    Args:
        quick: what a commit is checked with: all single injections and all orders; some pairs; every line of one
            scenario, and each seventh of the others.
    """
    small = SMALL[:1] if quick else SMALL
    return [
        *[Job("lines", name, 7 if quick and name != "small_block" else 1) for name in reversed(INTERRUPTED)],
        *[Job("pairs", name, quick=quick) for name in reversed(small)],
        *[Job("single", name) for name in SCENARIOS],
        *[Job("orders", name) for name in ORDERED],
        *[Job(f"orders x {action}", name) for name in ORDERED_AND_ENDED for action in ("cancel", "abort")],
    ]


def run_job(job: Job) -> Proof:
    """Run one part."""
    scenario = SCENARIOS[job.scenario]
    if job.part == "single":
        report = sweep(scenario)
    elif job.part == "pairs":
        report = sweep_pairs(scenario, QUICK_PAIRS if job.quick else None)
    elif job.part == "lines":
        report = sweep(scenario, ["interrupt"], positions=["line"], every=job.every)
    else:
        report = explore(scenario, actions=job.part.split(" x ")[1:])
    failures = report.failures
    return Proof(job, report.runs, report.orders, report.seconds, len(failures), tuple(failures[:5]), report.summary())


def prove(wanted: Sequence[Job], processes: int = 1) -> Iterator[Proof]:
    """Run the jobs, in several processes if wanted, and give each result as it comes in order."""
    if processes <= 1:
        yield from map(run_job, wanted)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield from pool.map(run_job, wanted)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def totals(proofs: Iterable[Proof]) -> str:
    """The counts, one line a part."""
    rows: dict[str, list[Proof]] = {}
    for proof in proofs:
        rows.setdefault(proof.job.part, []).append(proof)
    lines = [f"{'part':16}{'scenarios':>10}{'runs':>10}{'orders':>8}{'failing':>9}{'seconds':>9}"]
    everything = [proof for part in rows.values() for proof in part]
    for name, part in [*sorted(rows.items()), ("all", everything)]:
        failing = sum(proof.failing for proof in part)
        scenarios = len({proof.job.scenario for proof in part})
        orders = sum(proof.orders for proof in part)
        seconds = sum(proof.seconds for proof in part)
        runs = sum(proof.runs for proof in part)
        lines.append(f"{name:16}{scenarios:>10}{runs:>10}{orders or '-':>8}{failing or '-':>9}{seconds:>9.1f}")
    return "\n".join(lines)
