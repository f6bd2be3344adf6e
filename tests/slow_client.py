"""An HTTP client of httpx's shape whose response comes piece by piece on trio's clock, without a network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio


class SlowResponse:
    def __init__(self, pieces: list[tuple[float, Any]], status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.headers = {"content-type": "text/event-stream"} | headers
        self._pieces = pieces

    def aiter_bytes(self) -> "SlowResponse":
        return self

    def __aiter__(self) -> "SlowResponse":
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        delay, piece = self._pieces.pop(0)
        await trio.sleep(delay)
        if isinstance(piece, Exception):
            raise piece
        return piece


class SlowClient:
    """``responses``: each is a list of seconds and bytes (or an exception), or an exception, or a status, headers and
    such a list."""

    def __init__(self, *responses: Any, headers_after: float = 0) -> None:
        self.left = list(responses)
        self.sent: list[bytes] = []
        self.at: list[float] = []
        self._headers_after = headers_after

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes, headers: Any, timeout: Any
    ) -> AsyncIterator[SlowResponse]:
        self.sent.append(content)
        self.at.append(trio.current_time())
        await trio.sleep(self._headers_after)
        response = self.left.pop(0)
        if isinstance(response, Exception):
            raise response
        status, extra, pieces = response if isinstance(response, tuple) else (200, {}, response)
        yield SlowResponse(list(pieces), status, extra)
