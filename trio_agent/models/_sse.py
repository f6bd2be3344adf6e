"""Server-sent events: bytes in, events out. Pure and incremental; it does not matter where the bytes are cut.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html (section 9.2.6). Two deviations, both
needed by servers in use: an unfinished last event is given out when the stream ended cleanly, and, on request, an
``error:`` field counts as an event (llama.cpp before its pull request 16109).
"""

import re
from typing import NamedTuple

__all__ = ["SSEDecoder", "SSEEvent"]

# Not str.splitlines(): that one also splits at U+2028, U+0085 and others, which are legal inside JSON texts.
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SSEEvent(NamedTuple):
    """One dispatched event.

    Attributes:
        event: its type; ``"message"`` if the server named none.
        data: the data lines, joined with ``\\n``; never empty.
        id: the last event id the server has sent so far, or the empty string.
    """

    event: str
    data: str
    id: str = ""


class SSEDecoder:
    """Decodes one stream. ``retry`` and unknown fields are ignored, invalid UTF-8 is replaced.

    Args:
        error_field: treat the field ``error`` like ``event: error`` plus ``data``.
    """

    def __init__(self, *, error_field: bool = False) -> None:
        self._error_field = error_field
        self._partial: list[bytes] = []
        self._after_cr = False
        self._first_line = True
        self._is_fresh = False  # nothing of a next event has come
        self._event = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, data: bytes) -> list[SSEEvent]:
        """The events that these bytes complete, in order. Sync; costs O(length of ``data``) and no more."""
        if self._is_fresh and (event := self._whole(data)) is not None:
            return [event]
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        first, *others = _LINE_END.split(data)
        self._partial.append(first)
        events: list[SSEEvent] = []
        for following in others:
            self._line(b"".join(self._partial), events)
            self._partial = [following]
        self._is_fresh = not (self._after_cr or self._first_line or self._event or self._data or any(self._partial))
        return events

    def end(self) -> list[SSEEvent]:
        """The stream ended cleanly: the event it did not finish, if there is one."""
        events: list[SSEEvent] = []
        line = b"".join(self._partial)
        self._partial = []
        if line:
            self._line(line, events)
        self._dispatch(events)
        return events

    def _whole(self, data: bytes) -> SSEEvent | None:
        """One event in one piece, as most servers send most of theirs; None for all others."""
        if b"\r" in data:
            return None
        name = "message"
        if data.startswith(b"event: "):
            head, _, data = data.partition(b"\n")
            name = head[7:].decode("utf-8", "replace")
        size = len(data)
        if size < 9 or data[:6] != b"data: " or data.find(b"\n") != size - 2 or data[-1:] != b"\n":
            return None
        return SSEEvent(name or "message", data[6:-2].decode("utf-8", "replace"), self._id)

    def _line(self, line: bytes, events: list[SSEEvent]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "error" and self._error_field:
            self._event = "error"
            self._data.append(value)

    def _dispatch(self, events: list[SSEEvent]) -> None:
        data = "\n".join(self._data)
        if data:
            events.append(SSEEvent(self._event or "message", data, self._id))
        self._event = ""
        self._data = []
