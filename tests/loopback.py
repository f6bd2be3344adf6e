"""A raw HTTP server on 127.0.0.1 that replays given bytes, and can stall, reset and count."""

import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

SSE = {"content-type": "text/event-stream"}


def at_blank_lines(body: bytes) -> list[bytes]:
    """The body, cut after every blank line."""
    return [part for part in re.split(rb"(?<=\n\n)", body) if part]


@attrs.frozen
class Reply:
    """What the server answers: each chunk is sent on its own; then ``close``: eof, reset, or stall (stay open).

    ``raw`` replaces everything before ``close``.
    """

    chunks: list[bytes] = attrs.field(factory=list)
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=lambda: dict(SSE))
    close: str = "eof"
    chunked: bool = True
    raw: bytes | None = None


@attrs.frozen
class Request:
    """What the server got."""

    target: str
    headers: dict[str, str]
    body: bytes


class Loopback:
    """See `serve`. ``reply`` may be assigned; ``requests`` is what came in; ``open`` counts connections."""

    def __init__(self, reply: Reply | Callable[[Request], Reply]) -> None:
        self.reply = reply
        self.requests: list[Request] = []
        self.open = 0
        self.accepted = 0
        self.port = 0
        self._changed = trio.Event()
        self.stalled = trio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def wait_open(self, count: int) -> None:
        """Wait until exactly so many connections are open; five real seconds at most."""
        with trio.fail_after(5):
            while self.open != count:
                await self._changed.wait()

    def _count(self, change: int) -> None:
        self.open += change
        self._changed.set()
        self._changed = trio.Event()

    async def _handle(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        self._count(1)
        try:
            buffer = bytearray()
            while await self._serve_one(stream, buffer):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the client went away: what these tests are about
        finally:
            stream.socket.close()
            self._count(-1)

    async def _serve_one(self, stream: trio.SocketStream, buffer: bytearray) -> bool:
        request = await self._read_request(stream, buffer)
        if request is None:
            return False
        self.requests.append(request)
        reply = self.reply(request) if callable(self.reply) else self.reply
        if reply.raw is not None:
            await stream.send_all(reply.raw)
        else:
            lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers.items())]
            if reply.chunked:
                lines.append("transfer-encoding: chunked")
            else:
                lines.append("connection: close")
            await stream.send_all(("\r\n".join(lines) + "\r\n\r\n").encode())
            for chunk in reply.chunks:
                await stream.send_all(b"%x\r\n%b\r\n" % (len(chunk), chunk) if reply.chunked else chunk)
        if reply.close == "stall":
            self.stalled.set()
            return bool(await stream.receive_some())
        if reply.close == "reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if reply.raw is not None or not reply.chunked:
            return False
        await stream.send_all(b"0\r\n\r\n")
        return True

    async def _read_request(self, stream: trio.SocketStream, buffer: bytearray) -> Request | None:
        while b"\r\n\r\n" not in buffer:
            if not await self._more(stream, buffer):
                return None
        head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        buffer[:] = rest
        length = int(headers.get("content-length", "0"))
        while len(buffer) < length:
            if not await self._more(stream, buffer):
                return None
        body = bytes(buffer[:length])
        del buffer[:length]
        return Request(first.split(" ")[1], headers, body)

    async def _more(self, stream: trio.SocketStream, buffer: bytearray) -> bytes | bytearray:
        data = await stream.receive_some()
        buffer.extend(data)
        return data


@asynccontextmanager
async def serve(reply: Reply | Callable[[Request], Reply]) -> AsyncIterator[Loopback]:
    """Run a server for the block. ``reply``: the same for every request, or a function of the request."""
    server = Loopback(reply)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, server._handle, 0)
        server.port = listeners[0].socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()
