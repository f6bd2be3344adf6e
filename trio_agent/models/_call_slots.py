"""Which tool call does a delta belong to? And: interleaved calls, written one after the other.

Servers that speak OpenAI's protocol agree on little here: the index may be missing, or zero for every call; the id
may be missing, repeated with every delta, or a new one each time; the name may come last; the arguments may be an
object. The rules, with the servers that need them, are in the tests.
"""

import json
import uuid
from collections.abc import Hashable
from typing import Any, Literal, TypeAlias

from trio_agent._errors import ModelProtocolError
from trio_agent.abc import MessageWriter

__all__ = ["CallSlots"]

# any other key of a call is kept: Gemini wants its thought signature back
_KNOWN = frozenset({"index", "id", "type", "function"})

_Kind: TypeAlias = Literal["text", "thinking", "redacted_thinking"]


class _Slot:
    """One call, as far as it has come."""

    __slots__ = ("_complete", "_counted", "closed", "extra", "fragments", "id", "name", "passed", "started", "written")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.extra: dict[str, Any] = {}
        self.fragments: list[str] = []
        self.written = 0
        self.started = self.passed = self.closed = False
        self._complete = False
        self._counted = 0

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object, so that only blanks could follow."""
        if self._counted != len(self.fragments):
            self._counted = len(self.fragments)
            # The look at the last character keeps this cheap for arguments that arrive in many pieces.
            last = next((fragment for fragment in reversed(self.fragments) if not fragment.isspace()), "")
            self._complete = last.rstrip().endswith("}") and _is_object("".join(self.fragments))
        return self._complete

    @property
    def pending(self) -> str:
        """The arguments that are not written yet."""
        return "".join(self.fragments[self.written :])


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _fragment(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)


class CallSlots:
    """Sorts deltas into calls and writes them to ``out``, which has one open block at a time.

    The first unfinished call is written live; later ones, and text, wait until its arguments are a whole JSON
    object and something else has begun, or until the end.
    """

    def __init__(self, out: MessageWriter) -> None:
        self._out = out
        self._slots: list[_Slot] = []
        self._by_index: dict[Hashable, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._live = 0
        self._waiting: list[tuple[_Kind, str, str | None]] = []

    def __bool__(self) -> bool:
        """Whether there has been any call."""
        return bool(self._slots)

    async def add(self, deltas: list[Any]) -> None:
        """The ``tool_calls`` list of one chunk. Entries that are not objects are ignored.

        Raises:
            ModelProtocolError: more arguments for a call whose arguments were already whole and written.
        """
        touched: list[_Slot] = []
        for delta in deltas:
            if not isinstance(delta, dict):
                continue
            function = delta.get("function")
            function = function if isinstance(function, dict) else {}
            id, name = _string(delta.get("id")), _string(function.get("name"))
            fragment = _fragment(function.get("arguments"))
            slot = self._find(delta.get("index"), id, name, fragment, touched)
            touched.append(slot)
            # Assigned once, never joined: several servers repeat both with every delta.
            slot.id = slot.id or id
            slot.name = slot.name or name
            slot.extra.update({key: value for key, value in delta.items() if key not in _KNOWN})
            if fragment:
                self._extend(slot, fragment)
        await self._advance()

    async def write(self, kind: _Kind, delta: str, signature: str | None = None) -> None:
        """Text or thinking, now or after the open call."""
        if kind == "text" and not self._slots:
            await self._out.text(delta)
            return
        self._waiting.append((kind, delta, signature))
        await self._advance()

    async def end(self, *, cut_short: bool) -> None:
        """Write what waits, and close every call.

        Args:
            cut_short: the response reached its length limit: a last call without a name is no fault then.

        Raises:
            ModelProtocolError: from the writer, for a call without a name or with the id of another one.
        """
        while self._live < len(self._slots):
            slot = self._slots[self._live]
            self._live += 1
            if not slot.name and (cut_short or not (slot.id or slot.fragments)):
                continue
            await self._write(slot)
            await self._close(slot)
        await self._flush_waiting()

    def _find(self, index: Any, id: str, name: str, fragment: str, touched: list[_Slot]) -> _Slot:
        if isinstance(index, int) and not isinstance(index, bool):
            slot = self._by_index.get(index)
            if slot is None or self._is_another(slot, id, name, fragment):
                slot = self._by_index[index] = self._open()
        elif id in self._by_id:
            slot = self._by_id[id]
        else:
            slot = self._slots[-1] if self._slots else None
            if slot is None or self._is_new(slot, id, name, fragment, touched):
                slot = self._open()
        if id:
            self._by_id.setdefault(id, slot)
        return slot

    def _is_new(self, last: _Slot, id: str, name: str, fragment: str, touched: list[_Slot]) -> bool:
        """The same question for a delta without an index and with no id or a new one; ``last`` is the last call."""
        if id:
            return bool(name) or last.complete
        return bool(name) and (last in touched or self._is_another(last, id, name, fragment))

    def _is_another(self, slot: _Slot, id: str, name: str, fragment: str) -> bool:
        """Whether a delta that came under the place of ``slot`` begins another call.

        It must bring a name, and an id that is not this call's; and this call must be over, or of another name.
        """
        if not name or not slot.name or (id and (id == slot.id or self._by_id.get(id) is slot)):
            return False
        if id and slot.id and name != slot.name:
            return True
        return slot.complete and (bool(id) or bool(fragment.strip()))

    def _open(self) -> _Slot:
        slot = _Slot()
        self._slots.append(slot)
        return slot

    def _extend(self, slot: _Slot, fragment: str) -> None:
        if slot.closed:
            if fragment.strip():
                raise ModelProtocolError(f"the server sent more arguments for tool call {slot.id!r} after their end")
            return
        slot.fragments.append(fragment)

    async def _advance(self) -> None:
        """Write all that can be written now."""
        while self._live < len(self._slots):
            slot = self._slots[self._live]
            if not slot.name:
                return
            await self._write(slot)
            more = self._waiting or self._live + 1 < len(self._slots)
            if not (more and slot.complete):
                return
            await self._close(slot)
            self._live += 1
            await self._flush_waiting()
        await self._flush_waiting()

    async def _write(self, slot: _Slot) -> None:
        if not slot.started:
            slot.started = True
            slot.id = slot.id or f"call_{uuid.uuid4().hex}"
            await self._out.tool_call_start(slot.id, slot.name)
        # "null" stands for no arguments, so its letters wait until it is clear that they are something else.
        pending = slot.pending
        if not slot.passed and "null".startswith(pending.strip()):
            return
        slot.passed = True
        slot.written = len(slot.fragments)
        if pending:
            await self._out.tool_call_delta(pending)

    async def _close(self, slot: _Slot) -> None:
        slot.closed = True
        if slot.pending.strip() not in ("", "null"):
            await self._out.tool_call_delta(slot.pending)
        await self._out.tool_call_end(slot.extra)

    async def _flush_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, delta, signature in waiting:
            if kind == "text":
                await self._out.text(delta)
            elif kind == "redacted_thinking":
                await self._out.redacted_thinking(signature or "")
            else:
                await self._out.thinking(delta, signature)
