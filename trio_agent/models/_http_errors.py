"""What went wrong over HTTP, in our words: the one place where foreign errors become `ModelError` kinds.

Foreign exceptions are recognised by the names in their class hierarchy, not by identity: a client handed in by the
user may be of a library that only has the same shape as httpx.
"""

import html
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from trio_agent._errors import ModelConnectionError, ModelError, ModelProtocolError, ModelTimeoutError

__all__ = ["connection_failure", "error_text", "object_error_text", "retry_after", "shorten"]

_TIMEOUTS = frozenset({"TimeoutException", "TimeoutError", "TooSlowError"})
_CONNECTS = frozenset({"ConnectError", "ConnectionRefusedError", "gaierror"})
_BROKEN = frozenset({"TransportError", "OSError", "BrokenResourceError", "ClosedResourceError"})
_PROTOCOL = frozenset({"RemoteProtocolError", "DecodingError"})
_SHOWN = 300
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def shorten(text: str, limit: int = _SHOWN) -> str:
    """The text on one line, at most ``limit`` characters and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def connection_failure(error: Exception, where: str) -> ModelError | None:
    """The `ModelError` that an exception of an HTTP client stands for, or None if it is not about the network.

    Args:
        error: what the client raised.
        where: the server, as it may be shown.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    text = shorten(str(error)) or type(error).__name__
    if names & _TIMEOUTS:
        phase = "accept a connection" if "ConnectTimeout" in names else "send anything"
        return ModelTimeoutError(f"{where} did not {phase} in time ({type(error).__name__})")
    if names & _CONNECTS:
        return ModelConnectionError(
            f"cannot connect to {where}: {_connect_reason(error) or text}. "
            "Is the server running there, and is base_url right?"
        )
    if "RemoteProtocolError" in names and re.search("disconnected|closed connection|incomplete", text):
        return ModelConnectionError(f"the connection to {where} broke: {text}")
    if names & _PROTOCOL:
        return ModelProtocolError(f"{where} does not answer in proper HTTP: {text}")
    if names & _BROKEN:
        return ModelConnectionError(f"the connection to {where} broke: {text}")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__


def _connect_reason(error: Exception) -> str:
    for cause in _causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if type(cause).__name__ == "gaierror":
            return f"the host name cannot be resolved ({shorten(str(cause))})"
    return ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks to wait, or None; never negative.

    ``retry-after-ms`` comes first, then ``retry-after`` as seconds or as an HTTP date (RFC 9110, 10.2.3).
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def error_text(body: bytes) -> str:
    """What an error body says, on one short line: from JSON of every shape in use, from HTML, or the text itself."""
    text = body.decode("utf-8", "replace").strip()
    if text.startswith(("{", "[")):
        try:
            found = object_error_text(json.loads(text))
        except (ValueError, RecursionError):
            found = None
        if found:
            return found
    if text.startswith("<"):
        text = html.unescape(_MARKUP.sub(" ", text))
    return shorten(text)


def object_error_text(value: Any) -> str | None:
    """The message of a JSON error object, with its type and code in brackets; None if ``value`` is not one.

    Knows ``{"error": {...}}``, ``{"error": "..."}``, ``{"object": "error", ...}``, ``{"type": "error", ...}``,
    ``{"detail": ...}``, ``{"message": ...}``, and a list that holds one of these.
    """
    if isinstance(value, list):
        return next((text for text in map(object_error_text, value) if text), None)
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, str) and error:
        return shorten(error)
    if isinstance(error, dict):
        value = error
    text = next((value[key] for key in ("message", "msg", "detail", "error") if value.get(key)), None)
    if isinstance(text, list):
        text = "; ".join(filter(None, map(object_error_text, text)))
    if text is None:
        # An error object without a message still says something, if only to a person.
        text = json.dumps(value) if error or value.get("object") == "error" or value.get("type") == "error" else ""
    marks = [str(value[key]) for key in ("type", "code") if value.get(key) not in (None, "", "error")]
    shown = shorten(text if isinstance(text, str) else json.dumps(text))
    if isinstance(failed := value.get("failed_generation"), str) and failed:
        shown += f"; the model had written: {shorten(failed)}"  # Groq, for a call that it could not read
    return (f"{shown} ({', '.join(dict.fromkeys(marks))})" if marks else shown) if shown else None
