"""The kit finds defects that others seeded into the loop. ``FINDS`` says in which scenario a full hunt found each;
here only that one is swept. ``python tests/sweeps/hunt_all.py`` hunts for each in all of them, and by chance."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sweeps.finds import FINDS, NOT_FOUND
from sweeps.seeded_by_us import BY_US
from sweeps.seeded_from_outside import FROM_OUTSIDE
from sweeps.seeding import Defect, hunt

from trio_agent.testing import GUARANTEES

DEFECTS = [*FROM_OUTSIDE, *BY_US]


@cache
def hunts() -> dict[str, dict[str, Any]]:
    """Every defect hunted for where it was found, two at a time."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:

        def look(defect: Defect) -> dict[str, Any]:
            return hunt(defect, Path(folder), *FINDS[defect.name])

        known = [defect for defect in DEFECTS if defect.name in FINDS]
        return {defect.name: found for defect, found in zip(known, pool.map(look, known), strict=True)}


@pytest.mark.parametrize("name", FINDS)
def test_a_seeded_defect_is_found(name: str) -> None:
    found = hunts()[name]
    assert found["found"] is not None, f"a sweep of {FINDS[name]} does not find it any more"
    assert found["found"] != "crash", found


def test_without_a_defect_nothing_is_found_where_they_are() -> None:
    harmless = Defect("harmless", "G1", "", "_calls.py", "import trio\n", "import trio  # nothing else\n")
    parts = sorted(set(FINDS.values()))[:6]
    with TemporaryDirectory() as folder:
        for number, part in enumerate(parts):
            where = Path(folder) / str(number)
            where.mkdir()
            assert hunt(harmless, where, *part)["found"] is None, part


def test_every_guarantee_has_two_defects_that_are_found_and_every_defect_is_accounted_for() -> None:
    names = [defect.name for defect in DEFECTS]
    assert len(set(names)) == len(names)
    assert set(names) == {*FINDS, *NOT_FOUND}
    found = [defect.guarantee for defect in DEFECTS if defect.name in FINDS]
    assert {name: found.count(name) for name in GUARANTEES if found.count(name) < 2} == {}
    assert len(FROM_OUTSIDE) >= 10
