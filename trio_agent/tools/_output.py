"""What a command prints: kept with a bound, and shown while it comes."""

import math

import trio

from trio_agent import ToolContext

__all__ = ["CommandOutput"]

KEPT_BYTES = 16_384
SNAPSHOT_BYTES = 2_000
SNAPSHOT_SECONDS = 0.1


class CommandOutput:
    """Keeps the first and the last ``KEPT_BYTES`` of a stream and reports snapshots of its end.

    Args:
        context: gets at most one update per ``SNAPSHOT_SECONDS``, with the last ``SNAPSHOT_BYTES``.
    """

    def __init__(self, context: ToolContext) -> None:
        self.total = 0
        self._context = context
        self._head = bytearray()
        self._tail = bytearray()
        self._due = -math.inf
        self._unshown = False
        self._over = False
        self._waiting: trio.CancelScope | None = None
        self._ended = trio.Event()

    async def follow(self, stream: trio.abc.ReceiveStream) -> None:
        """Read until the end. While the run's readers are behind it stops reading, and so the command waits too.

        A cancellation ends it; what was read is kept.
        """
        while True:
            chunk = None
            with trio.CancelScope(deadline=self._due if self._unshown else math.inf):
                chunk = await stream.receive_some(65_536)
            if chunk is not None:
                if not chunk:
                    break
                self.add(chunk)
            if trio.current_time() >= self._due and not self._over:
                await self._show()
        self._ended.set()

    async def drain(self, seconds: float) -> None:
        """The command is over: stop showing, and wait until what it left in the pipe is read.

        Args:
            seconds: the longest wait; a process that has left the group may hold the pipe open for ever.
        """
        self._over, self._unshown = True, False
        if self._waiting is not None:
            self._waiting.cancel()
        with trio.move_on_after(seconds):
            await self._ended.wait()

    def add(self, chunk: bytes | bytearray) -> None:
        """Take in more output. Costs O(chunk); memory stays within a few times ``KEPT_BYTES``."""
        self.total += len(chunk)
        self._unshown = not self._over
        room = KEPT_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 8 * KEPT_BYTES:
            del self._tail[:-KEPT_BYTES]

    @property
    def left_out(self) -> int:
        """How many bytes `text` leaves out."""
        return max(0, self.total - 2 * KEPT_BYTES)

    @property
    def text(self) -> str:
        """The output; of a long one the beginning and the end, and between them how much is missing."""
        if not self.left_out:
            return (self._head + self._tail).decode(errors="replace")
        head, tail = self._head.decode(errors="replace"), self._tail[-KEPT_BYTES:].decode(errors="replace")
        return f"{head}\n[{self.left_out} bytes left out]\n{tail}"

    async def _show(self) -> None:
        self._unshown = False
        self._due = trio.current_time() + SNAPSHOT_SECONDS
        snapshot = (self._tail if len(self._tail) >= SNAPSHOT_BYTES else self._head + self._tail)[-SNAPSHOT_BYTES:]
        self._context.update(snapshot.decode(errors="replace"))
        with trio.CancelScope() as self._waiting:
            await self._context.room()
