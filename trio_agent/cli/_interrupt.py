"""Ctrl-C: the first ends the run, the second ends the program."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from trio_agent import Agent

from ._show import Printer

__all__ = ["abort_on_signal", "end_at_once_on_the_second", "signals_to_watch"]


def signals_to_watch() -> list[signal.Signals]:
    """What counts as Ctrl-C. Not a hang-up that our parent told us to ignore, as nohup does."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


async def abort_on_signal(signals: AsyncIterator[int], agent: Agent, printer: Printer) -> None:
    """Abort the run at a signal, and say so. Runs until it is cancelled, which loses no signal."""
    async for number in signals:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if agent.abort(f"interrupted by {name}"):
            printer.say(f"({name}: ending the run; once more ends the program at once)")


def end_at_once_on_the_second(numbers: Iterable[signal.Signals], save: Callable[[], None]) -> None:
    """End the process, with status 130, at the second signal: kill what the tools started, and `save`.

    For use inside `trio.open_signal_receiver`, which gets every signal that does not end the process, and puts the
    handlers of before back when it ends.
    """
    first = signal.getsignal(signal.SIGINT)
    assert callable(first)
    groups: set[int] = set()
    seen = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        # remembered from the first signal on: a group whose leader has ended cannot be told from others later
        groups.update(_groups_of_ours())
        if seen > 1:
            _end_at_once(groups, save)
        first(number, frame)

    # a handler and not a task: it runs also while a write to a full pipe or a tool keeps trio from running
    for number in numbers:
        signal.signal(number, handler)


def _groups_of_ours() -> set[int]:
    """The process groups whose leaders are our children: what the shell tool started. Empty without ``/proc``."""
    me = os.getpid()
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == me and int(fields[2]) == int(stat.parent.name):
            found.add(int(fields[2]))
    return found


def _end_at_once(groups: Iterable[int], save: Callable[[], None]) -> NoReturn:
    """Kill what our tools started, and leave without waiting for anything."""
    try:
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        save()
    finally:
        # also when the transcript could not be written: there is nobody left who could do something about it
        os._exit(130)
