"""`OpenAIChatModel`: OpenAI's chat completions, and every server that speaks them."""

import os
from types import TracebackType

from trio_agent._errors import ModelConnectionError, ModelTimeoutError
from trio_agent.abc import MessageWriter, ModelOptions, ModelRequest

from ._client import HttpClient
from ._http import HttpTransport
from ._openai_decode import ChatChunks
from ._openai_encode import encode_request, merge_options
from ._timeouts import Timeouts
from ._url import check_headers

__all__ = ["OpenAIChatModel"]

_PATH = "/chat/completions"
_DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIChatModel:
    """A model behind OpenAI's ``POST /chat/completions``, streamed.

    Made for OpenAI and for compatible servers (vLLM, llama.cpp, Ollama, OpenRouter, DeepSeek, Mistral, ...), whose
    deviations are understood. Each request uses a connection of its own, so no connection outlives a run; inside
    ``async with model:`` connections are kept and used again.

    Source: https://platform.openai.com/docs/api-reference/chat

    Args:
        name: what the server calls the model.
        base_url: up to, and without, ``/chat/completions``. Default: the environment variable ``OPENAI_BASE_URL``,
            else OpenAI's.
        api_key: default: the environment variable ``OPENAI_API_KEY``. A server on this machine (a loopback address)
            needs none; for another server that wants none, pass ``""``.
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

    provider = "openai"

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
            raise ValueError("name must not be empty; it is what the server calls the model, such as 'gpt-4o'")
        if not isinstance(options, ModelOptions):
            raise TypeError(f"options must be a ModelOptions, not {type(options).__name__}")
        if api_key is not None and not isinstance(api_key, str):
            raise TypeError(f"api_key must be a string, not {type(api_key).__name__}")
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or _DEFAULT_BASE_URL
        key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        try:
            headers = check_headers("headers", {"authorization": f"Bearer {key}"} if key else {})
        except ValueError:
            source = "api_key" if api_key is not None else "OPENAI_API_KEY"
            raise ValueError(f"{source} must be printable ASCII without blanks around it; is it all there?") from None
        self._http = HttpTransport(
            base_url, headers=headers, client=client, timeout=timeout, max_connections=max_connections
        )
        url = self._http.url
        if url.shown.endswith(_PATH):
            raise ValueError(f"base_url must end before {_PATH!r}; use {url.shown.removesuffix(_PATH)!r}")
        if api_key is None and not key and not url.is_loopback:
            raise ValueError(
                f"no api_key for {url.shown}: pass api_key=..., or set the environment variable OPENAI_API_KEY "
                "(api_key='' for a server that wants none)"
            )
        self._name = name
        self._options = options
        check_headers("options.extra_headers", options.extra_headers)
        # OpenAI's newer models refuse max_tokens; most other servers know nothing else.
        official = url.host.endswith((".openai.com", ".openai.azure.com"))
        self._max_tokens_field = "max_completion_tokens" if official else "max_tokens"

    @property
    def name(self) -> str:
        """What the server calls the model."""
        return self._name

    def __repr__(self) -> str:
        return f"OpenAIChatModel({self._name!r}, base_url={self._http.url.shown!r})"

    async def __aenter__(self) -> "OpenAIChatModel":
        """Keep connections between requests until the block ends. Blocks may overlap; the last one closes."""
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the kept connections, also when cancelled."""
        await self._http.__aexit__(kind, error, traceback)

    async def aclose(self) -> None:
        """Close the kept connections now; requests under way fail. May be called again, and without a block.

        Not interrupted by a cancellation; it does not wait for the server.
        """
        await self._http.aclose()

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Send the request and write the response to ``out``; see `Model.stream`. Nothing is tried twice.

        Cancellation: takes effect at the next read or write; the connection is closed (or, inside the model's
        ``async with``, given up) before this returns. What was written stays written.

        Raises:
            ModelConnectionError: no connection, or it broke before a finish_reason came.
            ModelTimeoutError: the server was silent for longer than ``timeout``.
            ModelStatusError: the server refused, at once or inside the response.
            ModelProtocolError: the response is incomplete or not a chat completion.
            TypeError, ValueError: a message or an option that has no form in this protocol.
        """
        options = merge_options(self._options, request.options)
        body = encode_request(self._name, request, options, max_tokens_field=self._max_tokens_field)
        headers = options.extra_headers
        chunks = ChatChunks(out, self._http.url.shown, lambda text: self._http.redact(text, headers))
        try:
            await self._http.events(_PATH, body, chunks.event, headers=headers)
        except (ModelConnectionError, ModelTimeoutError):
            # Many servers end without [DONE], and some by dropping the connection.
            if not chunks.finished:
                raise
        await chunks.end()
