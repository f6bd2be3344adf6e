"""A seeded defect: a small change of our own source that breaks one guarantee, to be found by a sweep."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

import trio_agent

__all__ = ["Defect", "hunt"]


@attrs.frozen
class Defect:
    """A text replacement in one module of the package.

    Attributes:
        name: what it is called in reports.
        guarantee: the one it breaks, ``"G1"`` ... ``"G21"``.
        why: how a programmer comes to make it, and when it shows.
        module: the file in the package, ``"_calls.py"``.
        old, new: the replacement; ``old`` stands exactly once in the file.
    """

    name: str
    guarantee: str
    why: str
    module: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The source with the defect in it.

        Raises:
            ValueError: ``old`` does not stand in it exactly once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"defect {self.name!r}: its old text stands {source.count(self.old)} times in {self.module}"
            )
        return source.replace(self.old, self.new)


def hunt(defect: Defect, folder: Path, *only: str, timeout: float = 300) -> dict[str, Any]:
    """Seed the defect into a copy of the package and run a hunting script on it, in a process of its own.

    Returns:
        What the script printed; ``{"found": "crash"}`` with its last words if it printed nothing.
    """
    package = Path(trio_agent.__file__).parent
    copy = folder / defect.name / "trio_agent"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    module = copy / defect.module
    module.write_text(defect.apply(module.read_text()))
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(Path(__file__).parent / "hunt.py"), *only]
    try:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"found": None, "hung": timeout}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"found": "crash", "problems": done.stderr.strip().splitlines()[-2:]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
