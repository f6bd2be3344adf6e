"""What every side of ``bench.streaming`` does: one question a line in, the CPU seconds of one response out."""

import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

__all__ = ["serve"]

Read = Callable[[str, int], int]
"""Reads a response from a base URL with so many deltas; returns the number of characters of text."""


def serve(packages: tuple[str, ...], readers: dict[str, Read]) -> None:
    """Answer until there are no more questions.

    Args:
        readers: by ``"protocol/path"``.
    """
    for line in sys.stdin:
        question = json.loads(line)
        sys.stdout.write(json.dumps(_answer(packages, readers, question)) + "\n")
        sys.stdout.flush()


def _answer(packages: tuple[str, ...], readers: dict[str, Read], question: dict[str, Any]) -> Any:
    if question["ask"] == "hello":
        versions = {package: version(package) for package in packages} | {"python": platform.python_version()}
        return {"versions": versions, "readers": list(readers)}
    count = question["count"]
    expected = sum(len(f"word{number} ") for number in range(count))
    gc.collect()
    gc.disable()
    try:
        begun = time.process_time()
        found = readers[question["reader"]](question["url"], count)
        taken = time.process_time() - begun
    finally:
        gc.enable()
    return taken if found == expected else f"{found} characters instead of {expected}"
