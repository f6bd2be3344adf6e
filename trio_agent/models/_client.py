"""The HTTP client we use: what we ask of one, how a request is opened on it, and how we make our own.

A fact about httpx 0.28 shapes this file: a request body is an async generator, read in an ``async for`` whose body
sends; a cancellation that lands there leaves the generator to the garbage collector, and trio complains. So the
body is replaced by one that is a plain iterator, wherever a client lets us build the request first.
"""

import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpClient", "HttpResponse", "Timeout", "new_client", "open_response"]

Timeout: TypeAlias = tuple[float | None, float | None, float | None, float | None]
"""Seconds to connect, to read, to write, and to wait for a pool; None is no limit."""


class HttpResponse(Protocol):
    """What is used of a response; `httpx.Response` has it."""

    @property
    def status_code(self) -> int:
        """The HTTP status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive."""

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The decoded body, as it arrives."""


class HttpClient(Protocol):
    """What is used of a client; `httpx.AsyncClient` has it, and so may a successor.

    If it has httpx's ``build_request`` and ``send`` too, those are used, for the reason above.
    """

    def stream(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], timeout: Timeout
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request; the context gives the response and closes it."""


class _OneChunk:
    """The body of a request, as an iterator without anything to close."""

    def __init__(self, content: bytes) -> None:
        self._left = [content]

    def __aiter__(self) -> "_OneChunk":
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


@functools.cache
def _body_class(base: type) -> type:
    # httpx checks that a body is of its own class; which class that is, only the client's library knows.
    def __aiter__(self: Any) -> _OneChunk:
        return _OneChunk(self.whole)

    return type("RequestBody", (base,), {"__aiter__": __aiter__})


class _Sending:
    """A request on its way; entering gives the response, leaving closes it."""

    def __init__(self, sending: Awaitable[Any]) -> None:
        self._sending = sending

    async def __aenter__(self) -> HttpResponse:
        self._response = await self._sending
        response: HttpResponse = self._response
        return response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._response.aclose()


def open_response(
    client: HttpClient, url: str, content: bytes, headers: Mapping[str, str], timeout: Timeout
) -> AbstractAsyncContextManager[HttpResponse]:
    """POST ``content``; the context gives the response, with its body still to be read, and closes it."""
    build, send = getattr(client, "build_request", None), getattr(client, "send", None)
    if build is None or send is None:
        return client.stream("POST", url, content=content, headers=headers, timeout=timeout)
    request = build("POST", url, content=content, headers=headers, timeout=timeout)
    base: Any = type(request.stream)
    body = _body_class(base)(content)
    body.whole = content
    request.stream = body
    return _Sending(send(request, stream=True))


def new_client(*, trust_env: bool) -> "httpx.AsyncClient":
    """A client of our own, with an unbounded pool: httpx 0.28 loses a place of a bounded one for good when a
    request is cancelled while it waits for it.

    Args:
        trust_env: use the proxies that the environment names.
    """
    import httpx  # here and not above: importing the package must stay cheap

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    return httpx.AsyncClient(limits=limits, verify=_ssl_context(), trust_env=trust_env)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    import httpx

    # Reading the certificates takes far longer than all the rest of making a client.
    return httpx.create_ssl_context()
