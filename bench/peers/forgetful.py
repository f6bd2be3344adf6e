"""No framework but a loop with known faults, to see that the judge finds them (``--self-check``).

It keeps a turn's calls and results only when all of them are there, runs tools in tasks that it does not wait for,
and looks at its stop flag only after a request has been sent.
"""

import asyncio

from ._asyncio_sweep import Peer, Row, main
from ._judge import Transcript
from ._scenario import World


class Forgetful:
    """The broken loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.record = Transcript()
        self.stopped = False
        self.running = False

    async def run(self) -> None:
        """Two turns. ``running`` stays set when the run is cancelled: the fifth fault."""
        self.running = True
        while True:
            response = self.world.request()
            await asyncio.sleep(0.1)
            if self.stopped or not response.calls:
                break
            self.record.calls += response.calls.values()
            tasks = {
                id: asyncio.create_task(self.world.work(name, asyncio.sleep)) for name, id in response.calls.items()
            }
            await asyncio.wait(tasks.values())
            self.record.results.update({id: task.result() for id, task in tasks.items()})
        self.running = False

    def stop(self) -> None:
        """Set the flag."""
        self.stopped = True

    def transcript(self) -> Transcript:
        """What it remembers."""
        return self.record

    async def again(self) -> str:
        """A second prompt."""
        if self.running:
            return "still running"
        await self.run()
        return "ok"


class Deaf(Forgetful):
    """When stopped, it waits for what never comes."""

    async def run(self) -> None:
        """Two turns, and no end."""
        await super().run()
        if self.stopped:
            await asyncio.Event().wait()


PEER = Peer(
    name="a loop with known faults (self-check)",
    packages=(),
    stop_call="a flag that it looks at too late",
    record="a list that gets the results of a turn when all are there",
    rows=(
        Row("parallel", "cancel", Forgetful),
        Row("parallel", "abort", Forgetful, "stop"),
        Row("parallel, deaf", "abort", Deaf, "stop"),
    ),
)

if __name__ == "__main__":
    main(PEER)
