"""Deltas in, message events out: how a model's response becomes one assistant message.

Every method records first and waits afterwards, so a cancellation can fall only between whole steps. A delta
costs O(delta): the partial message is a view on an append-only log, never a copy.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import trio

from ._errors import ModelError, ModelProtocolError
from ._events import AgentEvent, Block, MessageLog, MessageStart, MessageUpdate, ModelRetry
from ._frozen import FrozenDict
from ._messages import AssistantMessage, Part, StopReason, Text, Thinking, ToolCall, Usage
from .abc import Model, ModelRequest

__all__ = ["ResponseWriter", "complete"]

_NON_FINAL: frozenset[str] = frozenset({"error", "aborted"})
_STOP_REASONS: frozenset[str] = frozenset({"stop", "length", "tool_use", "pause", "error", "aborted"})


class ResponseWriter:
    """Implements `MessageWriter` for one response.

    Args:
        emit: appends an event to the run; sync.
        room: waits while the run's readers are behind.
        model, provider: recorded in the message.
    """

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        room: Callable[[], Awaitable[None]],
        model: str = "",
        provider: str = "",
    ) -> None:
        self._emit = emit
        self._room = room
        self._log = MessageLog(model, provider)
        self._open: Block | None = None
        self._ids: set[str] = set()
        self._usage = Usage()
        self._stop_reason: StopReason | None = None
        self._raw_stop_reason: str | None = None
        self._started = False
        self._closed = False

    @trio.lowlevel.enable_ki_protection
    async def text(self, delta: str) -> None:
        """See `MessageWriter.text`."""
        self._write("text", delta)
        await self._room()

    @trio.lowlevel.enable_ki_protection
    async def thinking(self, delta: str, signature: str | None = None) -> None:
        """See `MessageWriter.thinking`."""
        block = self._write("thinking", delta)
        if signature is not None:
            block.signature = signature
        await self._room()

    @trio.lowlevel.enable_ki_protection
    async def tool_call_start(self, id: str, name: str) -> None:
        """See `MessageWriter.tool_call_start`."""
        self._check_open()
        if not isinstance(id, str) or not id:
            raise ModelProtocolError(f"the model sent a tool call without an id (tool {name!r})")
        if not isinstance(name, str) or not name:
            raise ModelProtocolError(f"the model sent tool call {id!r} without a tool name")
        if id in self._ids:
            raise ModelProtocolError(f"the model sent two tool calls with the id {id!r} in one message")
        self._ids.add(id)
        self._begin(Block("tool_call", call_id=id, call_name=name))
        await self._room()

    @trio.lowlevel.enable_ki_protection
    async def tool_call_delta(self, json_fragment: str) -> None:
        """See `MessageWriter.tool_call_delta`."""
        self._append(self._open_call("tool_call_delta"), json_fragment)
        await self._room()

    @trio.lowlevel.enable_ki_protection
    async def tool_call_end(self, extra: Mapping[str, Any] = FrozenDict()) -> None:
        """See `MessageWriter.tool_call_end`."""
        self._open_call("tool_call_end").call_extra.update(extra)
        self._end_block()
        await self._room()

    @trio.lowlevel.enable_ki_protection
    async def tool_call(self, id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """See `MessageWriter.tool_call`."""
        await self.tool_call_start(id, name)
        await self.tool_call_delta(json.dumps(arguments, separators=(",", ":"), ensure_ascii=False))
        await self.tool_call_end()

    @trio.lowlevel.enable_ki_protection
    async def redacted_thinking(self, signature: str) -> None:
        """See `MessageWriter.redacted_thinking`."""
        self._check_open()
        self._begin(Block("thinking", signature=signature, redacted=True))
        self._end_block()
        await self._room()

    @trio.lowlevel.enable_ki_protection
    def usage(self, usage: Usage) -> None:
        """See `MessageWriter.usage`."""
        if not isinstance(usage, Usage):
            raise TypeError(f"usage() takes a Usage, not {type(usage).__name__}")
        self._usage = usage

    @trio.lowlevel.enable_ki_protection
    def finish(self, stop_reason: StopReason, raw: str | None = None) -> None:
        """See `MessageWriter.finish`."""
        if stop_reason not in _STOP_REASONS:
            raise ValueError(f"finish() takes one of {sorted(_STOP_REASONS)}, not {stop_reason!r}")
        self._check_open()
        self._stop_reason = stop_reason
        self._raw_stop_reason = raw

    @trio.lowlevel.enable_ki_protection
    def retrying(self, error: ModelError, *, attempt: int, delay: float, model: Model) -> None:
        """See `MessageWriter.retrying`."""
        self._check_open()
        if self._started:
            raise RuntimeError("a response that has begun cannot be tried again: its events have been said")
        self._log.model, self._log.provider = model.name, model.provider
        self._emit(ModelRetry(attempt, delay, error, model.name))

    def close(self, failure: StopReason | None = None, error_message: str | None = None) -> AssistantMessage:
        """End the response and build its message; sync. The events of ``message_start`` and of an open block's
        end are said here if they are still due; ``message_end`` is the caller's.

        Args:
            failure: ``error`` or ``aborted``. Text and thinking are kept, tool calls are not: the arguments of a
                message that was cut short may be incomplete.
            error_message: what went wrong.
        """
        self._end_block()
        self._start_message()
        self._closed = True
        content: list[Part] = [block.finished for block in self._log.blocks if block.finished is not None]
        has_calls = any(isinstance(part, ToolCall) for part in content)
        reason = failure or self._stop_reason or ("tool_use" if has_calls else "stop")
        if reason in _NON_FINAL:
            content = [part for part in content if not isinstance(part, ToolCall)]
        elif has_calls and reason == "stop":
            reason = "tool_use"
        return AssistantMessage(
            content,
            reason,
            error_message,
            self._usage,
            self._log.model,
            self._log.provider,
            raw_stop_reason=self._raw_stop_reason,
        )

    @property
    def stop_reason(self) -> StopReason | None:
        """What `finish` was given."""
        return self._stop_reason

    def discard(self) -> None:
        """The run ended before the response began: nothing may be written any more."""
        self._closed = True

    @property
    def partial(self) -> AssistantMessage:
        """The message so far. Costs O(length of the message)."""
        blocks = self._log.blocks
        parts = self._log.parts(len(blocks) - 1, len(blocks[-1].chunks), True) if blocks else ()
        return AssistantMessage(parts, usage=self._usage, model=self._log.model, provider=self._log.provider)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this response is over; a model may not write after its stream() has returned")

    def _write(self, kind: Literal["text", "thinking"], delta: str) -> Block:
        if not isinstance(delta, str):
            raise TypeError(f"{kind}() takes a string, not {type(delta).__name__}")
        block = self._open
        if block is None or block.kind != kind:
            block = Block(kind)
            self._check_open()
            self._begin(block)
        self._append(block, delta)
        return block

    def _append(self, block: Block, delta: str) -> None:
        blocks = self._log.blocks
        block.chunks.append(delta)
        self._emit(
            MessageUpdate(f"{block.kind}_delta", len(blocks) - 1, delta, self._log, len(block.chunks))  # type: ignore[arg-type]
        )

    def _begin(self, block: Block) -> None:
        self._end_block()
        self._start_message()
        self._log.blocks.append(block)
        self._open = block
        self._emit(MessageUpdate(f"{block.kind}_start", len(self._log.blocks) - 1, "", self._log, 0))  # type: ignore[arg-type]

    def _end_block(self) -> None:
        block, self._open = self._open, None
        if block is None:
            return
        joined = "".join(block.chunks)
        if block.kind == "text":
            block.finished = Text(joined)
        elif block.kind == "thinking":
            block.finished = Thinking(joined, block.signature, redacted=block.redacted)
        else:
            block.finished = ToolCall.from_text(block.call_id, block.call_name, joined, block.call_extra)
        index = len(self._log.blocks) - 1
        self._emit(MessageUpdate(f"{block.kind}_end", index, "", self._log, len(block.chunks)))  # type: ignore[arg-type]

    def _start_message(self) -> None:
        if not self._started:
            self._started = True
            self._emit(MessageStart(AssistantMessage((), model=self._log.model, provider=self._log.provider)))

    def _open_call(self, method: str) -> Block:
        block = self._open
        if block is None or block.kind != "tool_call":
            raise ModelProtocolError(f"{method}() without an open tool call; call tool_call_start() first")
        return block


async def complete(model: Model, request: ModelRequest) -> AssistantMessage:
    """One response of a model as a message, outside of any run: for a summary, a judge, a test.

    Runs in the caller's task and scopes; a cancellation passes through, and nothing is kept of the response.

    Args:
        model: any `Model`.
        request: what it is asked.

    Raises:
        ModelError: the provider failed, or the response ended with stop reason ``error`` or ``aborted``.
    """
    writer = ResponseWriter(lambda event: None, trio.lowlevel.checkpoint, model.name, model.provider)
    try:
        await model.stream(request, writer)
    finally:
        message = writer.close()
    if message.stop_reason in _NON_FINAL:
        raise ModelError(f"the model {model.name!r} ended its response with {message.stop_reason!r}")
    return message
