"""A `MessageWriter` that keeps what it is given: the semantics of abc.MessageWriter and nothing more."""

import json
from typing import Any

import trio

from trio_agent._errors import ModelProtocolError
from trio_agent._messages import Usage


class FakeWriter:
    """``blocks`` is a list of ``[kind, text]`` and ``["call", text, id, name]``, in order."""

    def __init__(self, on_write: Any = None) -> None:
        self.blocks: list[list[str]] = []
        self.usages: list[Usage] = []
        self.stop: str | None = None
        self.raw_stop: str | None = None
        self.extras: list[dict[str, Any]] = []
        self.retries: list[Any] = []
        self._open: list[str] | None = None
        self._on_write = on_write

    async def _wait(self) -> None:
        if self._on_write is not None:
            self._on_write()
        await trio.lowlevel.checkpoint()

    async def _prose(self, kind: str, delta: str) -> None:
        assert isinstance(delta, str)
        if self._open is None or self._open[0] != kind:
            self._open = [kind, ""]
            self.blocks.append(self._open)
        self._open[1] += delta
        await self._wait()

    async def text(self, delta: str) -> None:
        await self._prose("text", delta)

    async def thinking(self, delta: str, signature: str | None = None) -> None:
        await self._prose("thinking", delta)
        if signature is not None:
            self._open[2:] = [signature]  # type: ignore[index]

    async def tool_call_start(self, id: str, name: str) -> None:
        if not id or not name or id in [block[2] for block in self.blocks if block[0] == "call"]:
            raise ModelProtocolError(f"bad tool call {id!r} {name!r}")
        self._open = ["call", "", id, name]
        self.blocks.append(self._open)
        await self._wait()

    async def tool_call_delta(self, json_fragment: str) -> None:
        if self._open is None or self._open[0] != "call":
            raise ModelProtocolError("no open call")
        self._open[1] += json_fragment
        await self._wait()

    async def tool_call_end(self, extra: Any = {}) -> None:  # noqa: B006
        self.extras.append(dict(extra))
        if self._open is None or self._open[0] != "call":
            raise ModelProtocolError("no open call")
        self._open = None
        await self._wait()

    async def tool_call(self, id: str, name: str, arguments: Any) -> None:
        await self.tool_call_start(id, name)
        await self.tool_call_delta(json.dumps(arguments))
        await self.tool_call_end()

    def usage(self, usage: Usage) -> None:
        self.usages.append(usage)

    async def redacted_thinking(self, signature: str) -> None:
        self._open = None
        self.blocks.append(["redacted", "", signature])
        await self._wait()

    def finish(self, stop_reason: Any, raw: str | None = None) -> None:
        self.stop = stop_reason
        self.raw_stop = raw

    def retrying(self, error: Any, *, attempt: int, delay: float, model: Any) -> None:
        self.retries.append((error, attempt, delay, model.name))

    def prose(self, kind: str) -> str:
        return "".join(block[1] for block in self.blocks if block[0] == kind)

    @property
    def calls(self) -> list[list[Any]]:
        """``[id, name, arguments]``; arguments that are not an object stay text."""
        found = []
        for block in self.blocks:
            if block[0] == "call":
                try:
                    arguments = json.loads(block[1]) if block[1].strip() else {}
                except ValueError:
                    arguments = block[1]
                found.append([block[2], block[3], arguments])
        return found
