"""Counting the lines that run in some files, and raising a real SIGINT at one of them."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType, ModuleType
from typing import Any

__all__ = ["LineWatch", "interruptible", "source_files"]


@cache
def source_files(modules: tuple[ModuleType | str, ...]) -> frozenset[str]:
    """The files of some modules; a package stands for every ``.py`` in its folder, a string for a file as it is.

    Looked up once: a sweep over lines asks in each of its thousands of runs.
    """
    files: set[str] = set()
    for module in modules:
        path = module if isinstance(module, str) else module.__file__ or ""
        if os.path.basename(path) == "__init__.py":
            folder = os.path.dirname(path)
            files |= {os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")}
        elif path:
            files.add(path)
    return frozenset(files)


class LineWatch:
    """A trace function for `sys.settrace` that counts lines and calls ``reached(n)`` at each.

    Line events come before a line runs. They are what an interrupt can be placed at in every Python; between two
    bytecodes of one line nothing is claimed.

    Attributes:
        count: how many lines have run while it was ``enabled``.
    """

    def __init__(self, files: frozenset[str], reached: Callable[[int, str], None], upto: int | None) -> None:
        self._files = files
        self._reached = reached
        self._upto = upto
        self.count = 0
        self.enabled = True

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self.enabled:
            self.count += 1
            self._reached(self.count, f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
            if self.count == self._upto:
                sys.settrace(None)
                return None
        return self._line

    def start(self) -> None:
        """Begin to count; frames that are already running are not seen."""
        sys.settrace(self._call)

    def stop(self) -> None:
        """Stop counting."""
        sys.settrace(None)


@contextmanager
def interruptible() -> Iterator[None]:
    """For the length of the block SIGINT means KeyboardInterrupt, as trio expects it; main thread only.

    Raises:
        RuntimeError: this is not the main thread, where no signal can be handled.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("KeyboardInterrupt can be injected in the main thread only; run the sweep there")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
