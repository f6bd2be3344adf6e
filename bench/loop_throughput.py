"""How fast does the whole loop carry deltas, against one trio memory channel with a send and a receive per item?

    python -m bench.loop_throughput [DELTAS] [ROUNDS]

Both sides are run in turn; the median of the rounds counts. CPU time of the process; the ratio is the result, the
absolute numbers belong to the machine. The events are checked against the grammar once: a fast illegal run does not
count. Not shown: a model that does any work, more than one reader, peers.
"""

import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import trio

from trio_agent import Agent, MessageWriter, ModelRequest
from trio_agent.testing import check_events


class Flood:
    """A model that streams one-word deltas as fast as it can."""

    name = "flood"
    provider = "bench"

    def __init__(self, deltas: int) -> None:
        self.deltas = deltas

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        for _ in range(self.deltas):
            await out.text("word ")


async def watched(deltas: int) -> None:
    """A run read to its end with ``async for``."""
    async with Agent(Flood(deltas)).run("go") as run:
        async for _ in run:
            pass


async def unwatched(deltas: int) -> None:
    """A run that nobody reads."""
    await Agent(Flood(deltas)).prompt("go")


async def channel(items: int) -> None:
    """The yardstick."""
    send, receive = trio.open_memory_channel[str](0)

    async def produce() -> None:
        async with send:
            for _ in range(items):
                await send.send("word ")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        async for _ in receive:
            pass


async def is_legal(deltas: int) -> bool:
    """Does the measured run keep the grammar?"""
    async with Agent(Flood(deltas)).run("go") as run:
        return check_events([event async for event in run]) == []


def seconds(workload: Callable[[int], Awaitable[None]], size: int) -> float:
    """CPU seconds of one round."""
    begun = time.process_time()
    trio.run(workload, size)
    return time.process_time() - begun


def main() -> int:
    """Measure and print."""
    deltas = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    if not trio.run(is_legal, deltas):
        sys.stderr.write("the run is not legal; nothing was measured\n")
        return 1
    workloads = {"channel": channel, "watched": watched, "unwatched": unwatched}
    taken: dict[str, list[float]] = {name: [] for name in workloads}
    for _ in range(rounds):
        for name, workload in workloads.items():
            taken[name].append(seconds(workload, deltas))
    yardstick = statistics.median(taken["channel"])
    for name, times in taken.items():
        median = statistics.median(times)
        spread = (max(times) - min(times)) / median
        line = f"{name:10} {deltas / median:12,.0f} items/s  x{yardstick / median:5.2f}  spread {spread:4.0%}\n"
        sys.stdout.write(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
