"""The HTTP layer of all models: one request, its body fed to a callback, every error in our words.

A fact about httpx 0.28 shapes this file: a response left from outside its read (a break, a raise or a cancellation
in the body of the ``async for``) leaves a stack of async generators to the garbage collector, and trio complains.
So a response is left from its innermost await only. See also `_client`.
"""

import json
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from trio_agent._errors import ModelError, ModelProtocolError

from ._client import HttpClient, HttpResponse, Timeout, new_client, open_response
from ._http_errors import connection_failure, shorten
from ._refusals import status_failure
from ._sse import SSEDecoder, SSEEvent
from ._timeouts import Patience, Timeouts, timeouts_of
from ._url import BaseURL, check_headers

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpTransport", "encode_json"]

_LINGER_SECONDS = 0.25
_ERROR_BODY_BYTES = 64 * 1024
_PLAIN_BODY_BYTES = 16 * 1024 * 1024
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
# Shorter values are placeholders ("none", "test"); blanking those out would only garble messages.
_SECRET_LENGTH = 6


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8. Half a surrogate pair, which models do send, becomes U+FFFD instead of an error."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _secrets_in(headers: Mapping[str, str]) -> list[str]:
    return [value.split()[-1] for name, value in headers.items() if name.lower() in _SECRET_HEADERS and value]


def _is_ping(event: SSEEvent) -> bool:
    return event.event == "ping" or event.data.replace(" ", "") == '{"type":"ping"}'


class _Reader:
    """Feeds a response to a callback, and leaves the response from its innermost await only.

    The server's time stands still while the callback has a chunk; it lets ``patience`` go on when it has done with it.
    """

    def __init__(self, on_chunk: Callable[[bytes], Coroutine[Any, Any, bool]], patience: Patience) -> None:
        self._on_chunk = on_chunk
        self.patience = patience
        self.failure: BaseException | None = None
        self.done = False

    async def read(self, response: HttpResponse, linger: float) -> None:
        """Read to the end, or until the callback is done or has failed; its failure is kept, not raised.

        After ``done`` the rest is read for ``linger`` more seconds, so that the connection can be used again.
        """
        try:
            with trio.CancelScope() as scope:
                async for chunk in response.aiter_bytes():
                    if not self.done and self.failure is None:
                        await self._feed(chunk, scope, linger)
        except Exception:
            # Once the callback has all it wanted, or has failed, how the transport ends is of no interest.
            if not self.done and self.failure is None:
                raise

    async def _feed(self, chunk: bytes, scope: trio.CancelScope, linger: float) -> None:
        try:
            self.done = await self.patience.without(self._on_chunk(chunk))
        except BaseException as error:  # noqa: BLE001 - HttpTransport.stream raises it, after the response is left
            self.failure = error
            scope.cancel()
        if self.done:
            self.patience.scope.deadline = math.inf
            scope.deadline = trio.current_time() + linger


class HttpTransport:
    """Sends the requests of one model object.

    Without ``client`` every request opens a connection of its own and closes it, so nothing outlives it; inside
    ``async with transport:`` one client is kept and its connections are used again. A client that is passed in is
    used as it is and never closed.

    Args:
        base_url: ``http`` or ``https``; a query in it is kept on every request.
        headers: sent with every request. Values of the usual secret headers never appear in errors.
        client: see above; make it with ``httpx.Limits(max_connections=None)``.
        timeout: how long the server may be silent; a number bounds every silence, and connecting up to 10 s. None
            waits for ever.
        max_connections: how many requests may be under way at once; more wait for their turn.

    Raises:
        TypeError, ValueError: naming the argument.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        client: HttpClient | None = None,
        timeout: float | Timeouts | None = 600.0,
        max_connections: int = 100,
    ) -> None:
        self.url = BaseURL(base_url)
        self._headers = check_headers("headers", headers)
        self._secrets = [*_secrets_in(self._headers), *self.url.secrets]
        if self.url.authorization:
            self._headers["authorization"] = self.url.authorization
        if client is not None and not callable(getattr(client, "stream", None)):
            raise TypeError(f"client must have a stream() method like httpx.AsyncClient, not {type(client).__name__}")
        if isinstance(max_connections, bool) or not isinstance(max_connections, int):
            raise TypeError(f"max_connections must be an int, not {type(max_connections).__name__}")
        if max_connections < 1:
            raise ValueError(f"max_connections must be at least 1, not {max_connections}")
        self._timeouts = timeouts_of(timeout)
        # silence is measured here, by events; a client knows bytes only
        self._timeout: Timeout = (self._timeouts.connect, None, self._timeouts.first_event, None)
        self._client = client
        self._kept: httpx.AsyncClient | None = None
        self._holders = 0
        self.limiter = trio.CapacityLimiter(max_connections)

    async def __aenter__(self) -> None:
        """Keep one client until the block ends. May be entered again by others; the last one out closes it."""
        self._holders += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the kept client, also when cancelled."""
        self._holders -= 1
        if not self._holders:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the kept client, if there is one; requests under way on it fail. May be called again.

        Closing is not interrupted by a cancellation, and does not wait for the server.
        """
        kept, self._kept = self._kept, None
        if kept is not None:
            with trio.CancelScope(shield=True):
                await kept.aclose()

    async def events(
        self,
        path: str,
        body: Mapping[str, Any],
        on_event: Callable[[SSEEvent], Awaitable[bool]],
        *,
        headers: Mapping[str, str],
    ) -> None:
        """POST ``body`` as JSON and feed the events of the answer to ``on_event``; see `stream`.

        A body that is plain JSON instead of an event stream counts as one event: several servers answer so when
        they fail, and some ignore ``stream``.

        Raises:
            ModelProtocolError: the body is neither.
        """
        decoder = SSEDecoder(error_field=True)
        head = bytearray()
        seen = False

        async def feed(events: list[SSEEvent]) -> bool:
            nonlocal seen
            for event in events:
                seen = True
                if await on_event(event):
                    return True
            return False

        async def on_chunk(chunk: bytes) -> bool:
            limit = _PLAIN_BODY_BYTES if head.lstrip()[:1] == b"{" else _ERROR_BODY_BYTES
            if not seen and len(head) < limit:
                head.extend(chunk)
            decoded = decoder.feed(chunk)
            done = await feed(decoded)
            patience.go_on(event=not all(map(_is_ping, decoded)))
            return done

        patience = Patience(self._timeouts)
        await self._stream(path, body, on_chunk, headers, patience)
        if not seen:
            text = head.decode("utf-8", "replace").strip()
            if text.startswith("{"):
                await on_event(SSEEvent("message", text))
                return
            if text.startswith("<"):
                raise ModelProtocolError(
                    f"{self.url.shown} answered with a web page, not with an event stream; is base_url right? "
                    f"{shorten(text)}"
                )
        await feed(decoder.end())

    async def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        on_chunk: Callable[[bytes], Coroutine[Any, Any, bool]],
        *,
        headers: Mapping[str, str],
    ) -> None:
        """POST ``body`` as JSON to ``path`` under the base URL and feed the answer to ``on_chunk``.

        Args:
            on_chunk: awaited with each chunk; returns True when it wants no more. What it raises comes out as it is.

        Cancellation: takes effect at the next read at the latest. Whatever happens, the response is closed and the
        limiter's token given back before this returns.

        Raises:
            ModelConnectionError, ModelTimeoutError, ModelStatusError, ModelProtocolError: the server's fault.
        """
        patience = Patience(self._timeouts)

        async def on_bytes(chunk: bytes) -> bool:
            done = await on_chunk(chunk)
            patience.go_on(event=True)
            return done

        await self._stream(path, body, on_bytes, headers, patience)

    async def _stream(
        self,
        path: str,
        body: Mapping[str, Any],
        on_chunk: Callable[[bytes], Coroutine[Any, Any, bool]],
        headers: Mapping[str, str],
        patience: Patience,
    ) -> None:
        """See `stream`; ``on_chunk`` lets ``patience`` go on."""
        extra = check_headers("extra_headers", headers)
        merged = {"accept": "text/event-stream", "content-type": "application/json", **self._headers, **extra}
        content = encode_json(body)
        reader = _Reader(on_chunk, patience)
        # Not on behalf of the task: a task may have several models' requests nested in each other's callbacks.
        borrower = object()
        await self.limiter.acquire_on_behalf_of(borrower)
        try:
            with patience.scope:
                await self._exchange(self.url.join(path), content, merged, reader)
            if patience.scope.cancelled_caught:
                raise patience.failure(self.url.shown)
        except (Exception, trio.Cancelled) as error:
            # The callback failed first. A cancellation that came after it is not lost: trio raises it again at the
            # next checkpoint.
            if reader.failure is not None:
                raise reader.failure from None
            if isinstance(error, trio.Cancelled | ModelError):
                raise
            failure = connection_failure(error, self.url.shown)
            if failure is None:
                raise
            told = self.redact(str(failure), headers)
            if told == str(failure) and self.redact(str(error), headers) == str(error):
                raise failure from error
            failure.args = (told,)
            raise failure from None  # what the client raised has a secret in it
        finally:
            self.limiter.release_on_behalf_of(borrower)
        if reader.failure is not None:
            raise reader.failure

    async def _exchange(self, url: str, content: bytes, headers: Mapping[str, str], reader: _Reader) -> None:
        client = self._client or self._held_client()
        if client is not None:
            await self._request(client, url, content, headers, reader, _LINGER_SECONDS)
            return
        async with self._new_client() as own:
            await self._request(own, url, content, headers, reader, 0.0)

    async def _request(
        self,
        client: HttpClient,
        url: str,
        content: bytes,
        headers: Mapping[str, str],
        reader: _Reader,
        linger: float,
    ) -> None:
        async with open_response(client, url, content, headers, self._timeout) as response:
            if 200 <= response.status_code < 300:
                await reader.read(response, linger)
                return
            body = await self._error_body(response, reader.patience)
        body = self.redact(body.decode("utf-8", "replace"), headers).encode()
        failure = status_failure(response.status_code, response.headers, body, self.url.shown)
        failure.args = (self.redact(str(failure), headers),)
        raise failure

    async def _error_body(self, response: HttpResponse, patience: Patience) -> bytes:
        body = bytearray()

        async def collect(chunk: bytes) -> bool:
            body.extend(chunk)
            patience.go_on(event=True)
            return len(body) >= _ERROR_BODY_BYTES

        try:
            await _Reader(collect, patience).read(response, 0.0)
        except Exception as error:
            # The status is the news; a body that breaks off does not hide it.
            if connection_failure(error, self.url.shown) is None:
                raise
        return bytes(body[:_ERROR_BODY_BYTES])

    def redact(self, text: str, headers: Mapping[str, str]) -> str:
        """The text without the secrets of these headers and of the transport's own: servers do echo them."""
        for secret in [*self._secrets, *_secrets_in(headers)]:
            if len(secret) >= _SECRET_LENGTH:
                text = text.replace(secret, "***")
        return text

    def _held_client(self) -> HttpClient | None:
        if self._holders and self._kept is None:
            self._kept = self._new_client()
        return self._kept

    def _new_client(self) -> "httpx.AsyncClient":
        # A proxy from the environment cannot reach a server on this machine.
        return new_client(trust_env=not self.url.is_loopback)
