"""What every model behind an HTTP server is: a name, a key, one transport, and one way to read a response."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from trio_agent._errors import ModelConnectionError, ModelTimeoutError
from trio_agent.abc import MessageWriter, ModelOptions, ModelRequest

from ._client import HttpClient
from ._decode import ResponseEvents
from ._http import HttpTransport
from ._options import merge_options
from ._timeouts import Timeouts
from ._url import check_headers

__all__ = ["ServerModel"]

_Self = TypeVar("_Self", bound="ServerModel")


class ServerModel:
    """A model behind a server. Each request uses a connection of its own, so no connection outlives a run; inside
    ``async with model:`` connections are kept and used again.

    Args:
        name: what the server calls the model.
        base_url: the server; default: the environment variable of the class, else the provider's own.
        api_key: default: the environment variable of the class. A server on this machine (a loopback address) needs
            none; for another server that wants none, pass ``""``.
        client: an `httpx.AsyncClient`, or an object with the same ``stream`` method, to use instead of our own. It
            is never closed. Make it with ``httpx.Limits(max_connections=None)``: httpx 0.28 loses the places of a
            bounded pool when a waiting request is cancelled.
        options: for every request; a request's own options come first.
        timeout: how long the server may be silent: a `Timeouts`, or one number of seconds for every silence (and up
            to 10 s to connect); None waits for ever.
        max_connections: how many requests of this object may be under way at once; more wait for their turn.

    Raises:
        TypeError, ValueError: naming the argument. No message ever shows the key.
    """

    provider = ""
    _path: ClassVar[str]
    _default_url: ClassVar[str]
    _url_variable: ClassVar[str]
    _key_variable: ClassVar[str]
    _example: ClassVar[str]

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: HttpClient | None = None,
        options: ModelOptions = ModelOptions(),  # noqa: B008 - immutable
        timeout: float | Timeouts | None = 600.0,
        max_connections: int = 100,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {type(name).__name__}")
        if not name.strip():
            raise ValueError(
                f"name must not be empty; it is what the server calls the model, such as {self._example!r}"
            )
        if not isinstance(options, ModelOptions):
            raise TypeError(f"options must be a ModelOptions, not {type(options).__name__}")
        if api_key is not None and not isinstance(api_key, str):
            raise TypeError(f"api_key must be a string, not {type(api_key).__name__}")
        if base_url is None:
            variable = os.environ.get(self._url_variable)
            base_url = self._url_from(variable) if variable else self._default_url
        key = api_key if api_key is not None else os.environ.get(self._key_variable, "")
        try:
            headers = check_headers("headers", self._headers_for(key, base_url))
        except ValueError:
            source = "api_key" if api_key is not None else self._key_variable
            raise ValueError(f"{source} must be printable ASCII without blanks around it; is it all there?") from None
        self._http = HttpTransport(
            base_url, headers=headers, client=client, timeout=timeout, max_connections=max_connections
        )
        url = self._http.url
        if url.shown.endswith(self._path):
            raise ValueError(f"base_url must end before {self._path!r}; use {url.shown.removesuffix(self._path)!r}")
        if api_key is None and not key and not url.is_loopback:
            raise ValueError(
                f"no api_key for {url.shown}: pass api_key=..., or set the environment variable {self._key_variable} "
                "(api_key='' for a server that wants none)"
            )
        check_headers("options.extra_headers", options.extra_headers)
        self._name = name
        self._options = options

    def _url_from(self, variable: str) -> str:
        """The base URL that stands in the environment."""
        return variable

    def _headers_for(self, key: str, base_url: Any) -> dict[str, str]:
        """What is sent with every request."""
        raise NotImplementedError

    def _encode(self, request: ModelRequest, options: ModelOptions) -> dict[str, Any]:
        """The JSON body; ``options`` count, not the request's own."""
        raise NotImplementedError

    def _events(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> ResponseEvents:
        """What reads the response."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What the server calls the model."""
        return self._name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, base_url={self._http.url.shown!r})"

    async def __aenter__(self: _Self) -> _Self:
        """Keep connections between requests until the block ends. Blocks may overlap; the last one closes."""
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the kept connections, also when cancelled."""
        await self._http.__aexit__(kind, error, traceback)

    async def aclose(self) -> None:
        """Close the kept connections; requests under way on them fail. Not interrupted by a cancellation."""
        await self._http.aclose()

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Send the request and write the response to ``out``; see `Model.stream`. Nothing is tried twice.

        Cancellation: takes effect at the next read or write; the connection is closed (or, inside the model's
        ``async with``, given up) before this returns. What was written stays written.

        Raises:
            ModelConnectionError: no connection, or it broke before the response was complete.
            ModelTimeoutError: the server was silent for longer than ``timeout`` allows.
            ModelStatusError: the server refused, at once or inside the response; `ModelContextError` if the request is
                too long.
            ModelRefusalError: the model, or a filter, will not answer.
            ModelProtocolError: the response is incomplete, or not of this protocol.
            TypeError, ValueError: a message or an option that has no form in this protocol.
        """
        options = merge_options(self._options, request.options)
        body = self._encode(request, options)
        headers = options.extra_headers
        events = self._events(out, self._http.url.shown, lambda text: self._http.redact(text, headers))
        try:
            await self._http.events(self._path, body, events.event, headers=headers)
        except (ModelConnectionError, ModelTimeoutError):
            # Many servers end without a last sign, and some by dropping the connection.
            if not events.finished:
                raise
        await events.end()
