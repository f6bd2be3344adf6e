"""What the readers of all protocols share: an event is JSON, may be an error, and only some marks end a response."""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from trio_agent._errors import ModelProtocolError, ModelStatusError
from trio_agent.abc import MessageWriter

from ._call_slots import CallSlots
from ._http_errors import object_error_text, shorten
from ._refusals import refusal
from ._sse import SSEEvent

__all__ = ["ResponseEvents", "count", "mapping"]


def count(*values: Any) -> int:
    """The first of these that is a positive whole number, or 0."""
    return next((value for value in values if isinstance(value, int) and value > 0), 0)


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one: servers send null, and worse, where an object belongs."""
    return value if isinstance(value, dict) else {}


class ResponseEvents:
    """Takes the events of one response and writes what they mean. A subclass knows the protocol.

    Args:
        out: gets the content.
        where: the server, as it may be shown.
        redact: takes the secrets out of a text of the server's.
    """

    terminal_mark = "its end"
    """What must have arrived for the response to be complete, in words."""

    def __init__(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> None:
        self.out = out
        self.where = where
        self.calls = CallSlots(out)
        self.done_marker = False
        self._redact = redact

    @property
    def finished(self) -> bool:
        """Whether the protocol's terminal mark has arrived: only then is the response complete."""
        raise NotImplementedError

    async def take(self, value: dict[str, Any]) -> bool:
        """One event that is a JSON object and no error; True if it is the last one."""
        raise NotImplementedError

    async def end(self) -> None:
        """The body has ended: write what waits, and say why the response ended.

        Raises:
            ModelProtocolError: the response is not complete.
            ModelStatusError, ModelRefusalError: the server broke it off, or a filter did.
        """
        raise NotImplementedError

    def is_known(self, value: dict[str, Any]) -> bool:
        """Does an object look like an event of this protocol? If not, ``message`` and ``detail`` mark an error."""
        return "type" in value

    async def event(self, event: SSEEvent) -> bool:
        """One event; True if it is the last one.

        Raises:
            ModelStatusError: the server reports an error.
            ModelProtocolError: this is no event of the protocol.
        """
        data = event.data.strip()
        if data == "[DONE]":
            self.done_marker = True
            return True
        if not data:
            return False
        try:
            value = _parse(data)
        except (ValueError, RecursionError):
            if event.event == "error":
                raise self.refusal(shorten(data), data) from None
            if self.finished:
                return False
            raise ModelProtocolError(f"{self.where} sent an event that is not JSON: {self._shown(data)}") from None
        self._check_error(event.event, value, data)
        if not isinstance(value, dict):
            raise ModelProtocolError(f"{self.where} sent an event that is not a JSON object: {self._shown(data)}")
        return await self.take(value)

    def incomplete(self) -> ModelProtocolError:
        """The error for a response that ended before its terminal mark."""
        seen = "[DONE] came" if self.done_marker else "it ended"
        said = f"the response of {self.where} is incomplete: {seen} before {self.terminal_mark}"
        return ModelProtocolError(said, retryable=True)

    def refusal(self, text: str, said: str) -> ModelStatusError:
        """The error for what the server said inside the stream."""
        return refusal(f"{self.where} reported an error in its response: {self._redact(text)}", said)

    def _shown(self, data: str) -> str:
        return self._redact(shorten(data, 200))

    def _check_error(self, event: str, value: Any, said: str) -> None:
        if isinstance(value, dict):
            marked = value.get("error") or value.get("object") == "error" or value.get("type") == "error"
            if not marked and not self.is_known(value):
                # FastAPI's and other bodies without any mark: {"detail": ...}, {"message": ...}
                marked = value.get("detail") or value.get("message")
            if not marked and event != "error":
                return
        elif event != "error":
            return
        raise self.refusal(object_error_text(value) or shorten(said), said)


def _parse(data: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(data)  # takes more: half of a surrogate pair, NaN
