"""Hunt for every seeded defect in everything the kit has, and for comparison by chance; takes an hour.

    python tests/sweeps/hunt_all.py [--random RUNS] [NAME ...]

Prints one line a defect, as ``finds.py`` has them.
"""

import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sweeps.seeded_by_us import BY_US
from sweeps.seeded_from_outside import FROM_OUTSIDE
from sweeps.seeding import Defect, hunt


def look(defect: Defect, only: tuple[str, ...]) -> tuple[Defect, dict[str, Any]]:
    """One hunt, in a folder of its own."""
    with TemporaryDirectory() as folder:
        return defect, hunt(defect, Path(folder), *only, timeout=900)


def main(arguments: list[str]) -> None:
    """All hunts, two at a time."""
    only: tuple[str, ...] = ()
    if arguments[:1] == ["--random"]:
        only, arguments = ("random", arguments[1]), arguments[2:]
    wanted = [defect for defect in (*FROM_OUTSIDE, *BY_US) if not arguments or defect.name in arguments]
    with ThreadPoolExecutor(2) as pool:
        for future in as_completed([pool.submit(look, defect, only) for defect in wanted]):
            defect, found = future.result()
            where = (found.get("found"), found.get("scenario"))
            sys.stdout.write(
                f'    "{defect.name}": {where},  # {found.get("runs")} runs, {found.get("problems", "")}\n'
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
