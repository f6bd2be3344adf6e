"""The two private names of trio that reproducible scheduling needs; nothing else in the package uses any.

trio shuffles each batch of ready tasks on purpose. Two module globals of ``trio._core._run`` decide how: the random
generator ``_r`` and the switch ``_ALLOW_DETERMINISTIC_SCHEDULING`` (which pytest-trio and Hypothesis use as well).
With the switch on, trio sorts the batch and calls ``_r.shuffle(batch)``, and runs it from its end. Putting an object
of ours in the place of ``_r`` for the length of one run makes every order ours to choose.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import trio

__all__ = ["SUPPORTED", "Scheduler", "UnsupportedTrioError", "controlled_order"]

SUPPORTED = ((0, 31), (0, 36))
"""Versions of trio, from (inclusive) to (exclusive), with which the kit's own tests have passed. An older one is
refused. A newer one is let through only if its run loop still has what is used here, in the same words."""


class UnsupportedTrioError(RuntimeError):
    """This trio schedules in another way than the testing kit knows; the kit cannot reproduce an order with it.

    `trio_agent` itself does not depend on it. Use a trio within the versions that the text names, or a newer kit.
    """


class Scheduler(Protocol):
    """What stands in for trio's random generator."""

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Put a batch of ready tasks into the order in which it is to run, last first."""


class _InPlaceOfRandom:
    """trio asks its generator for two things only; ``random`` is reached if the switch does not work."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.shuffle = scheduler.shuffle

    def random(self) -> float:
        raise UnsupportedTrioError(_explain("it did not heed _ALLOW_DETERMINISTIC_SCHEDULING"))


def _explain(reason: str) -> str:
    first, last = (".".join(map(str, version)) for version in SUPPORTED)
    return (
        f"trio {trio.__version__} cannot be scheduled by trio_agent.testing: {reason}. "
        f"Tested with trio >= {first}, < {last}. Sweeps and explorations need this; agents do not."
    )


def _check() -> None:
    version = tuple(int(part) for part in trio.__version__.split(".")[:2] if part.isdigit())
    if version < SUPPORTED[0]:
        raise UnsupportedTrioError(_explain("it is too old"))
    run = trio._core._run
    for name in ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING"):
        if not hasattr(run, name):
            raise UnsupportedTrioError(_explain(f"it has no trio._core._run.{name} any more"))
    source = " ".join(inspect.getsource(run.unrolled_run).split())
    for line in ("if _ALLOW_DETERMINISTIC_SCHEDULING:", "_r.shuffle(batch)", "task = batch.pop()"):
        if line not in source:
            raise UnsupportedTrioError(_explain(f"its run loop no longer says {line!r}"))


_checked = False


@contextmanager
def controlled_order(scheduler: Scheduler) -> Iterator[None]:
    """For the length of the block, let ``scheduler`` order every batch of ready tasks.

    Raises:
        UnsupportedTrioError: this trio does not work as expected; nothing was changed.
    """
    global _checked
    if not _checked:
        _check()
        _checked = True
    run: Any = trio._core._run
    before = run._r, run._ALLOW_DETERMINISTIC_SCHEDULING
    run._r, run._ALLOW_DETERMINISTIC_SCHEDULING = _InPlaceOfRandom(scheduler), True
    try:
        yield
    finally:
        run._r, run._ALLOW_DETERMINISTIC_SCHEDULING = before
