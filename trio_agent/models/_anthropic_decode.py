"""The events of an Anthropic message, as calls of a `MessageWriter`.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming. Dispatched by the JSON ``type``: proxies leave
the ``event:`` lines out.
"""

import logging
from collections.abc import Callable
from typing import Any

from trio_agent._errors import ModelRefusalError
from trio_agent._messages import StopReason, Usage
from trio_agent.abc import MessageWriter

from ._decode import ResponseEvents, count, mapping

__all__ = ["AnthropicEvents"]

_log = logging.getLogger("trio_agent.models")

_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
}


class AnthropicEvents(ResponseEvents):
    """Takes the events of one message; see `ResponseEvents`."""

    terminal_mark = "message_stop"

    def __init__(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> None:
        super().__init__(out, where, redact)
        self._stopped = False
        self._reason = ""
        self._usage: dict[str, Any] = {}
        self._inputs: dict[int, Any] = {}  # of calls whose input came whole, at their start

    @property
    def finished(self) -> bool:
        """Whether message_stop has arrived: only then is the response complete."""
        return self._stopped and bool(self._reason)

    async def take(self, value: dict[str, Any]) -> bool:
        """See `ResponseEvents.take`. Types that are not known are left alone: new ones may appear."""
        match value.get("type"):
            case "message_start":
                self._take_usage(mapping(value.get("message")).get("usage"))
            case "content_block_start":
                await self._start(_index(value), mapping(value.get("content_block")))
            case "content_block_delta":
                await self._delta(_index(value), mapping(value.get("delta")))
            case "content_block_stop":
                await self._stop(_index(value))
            case "message_delta":
                reason = mapping(value.get("delta")).get("stop_reason")
                self._reason = reason if isinstance(reason, str) else self._reason
                self._take_usage(value.get("usage"))
            case "message_stop":
                self._stopped = True
                return True
            case "message":
                await self._whole(value)
                return True
        return False

    async def end(self) -> None:
        """See `ResponseEvents.end`."""
        if not self.finished:
            raise self.incomplete()
        if self._reason == "refusal":
            raise ModelRefusalError(f"{self.where} ended the response with stop_reason 'refusal'")
        stop = _STOPS.get(self._reason)
        if stop is None:
            _log.warning("%s: unknown stop_reason %r, taken as the end", self.where, self._reason)
        await self.calls.end(cut_short=stop == "length")
        # whether there are calls decides, unless they may be incomplete
        self.out.finish("length" if stop == "length" else "tool_use" if self.calls else stop or "stop", self._reason)

    async def _start(self, index: int, block: dict[str, Any]) -> None:
        match block.get("type"):
            case "text":
                await self._write("text", block.get("text"))
            case "thinking":
                await self._write("thinking", block.get("thinking"), block.get("signature"))
            case "redacted_thinking":
                if isinstance(data := block.get("data"), str):
                    await self.calls.write("redacted_thinking", "", data)
            case "tool_use":
                self._inputs[index] = block.get("input")
                function = {"name": block.get("name")}
                await self.calls.add([{"index": index, "id": block.get("id"), "function": function}])

    async def _delta(self, index: int, delta: dict[str, Any]) -> None:
        match delta.get("type"):
            case "text_delta":
                await self._write("text", delta.get("text"))
            case "thinking_delta":
                await self._write("thinking", delta.get("thinking"))
            case "signature_delta":
                await self._write("thinking", "", delta.get("signature"))
            case "input_json_delta":
                fragment = delta.get("partial_json")
                if fragment and index in self._inputs:
                    self._inputs[index] = None
                    await self.calls.add([{"index": index, "function": {"arguments": fragment}}])

    async def _stop(self, index: int) -> None:
        whole = self._inputs.pop(index, None)
        if whole:
            await self.calls.add([{"index": index, "function": {"arguments": whole}}])

    async def _write(self, kind: Any, text: Any, signature: Any = None) -> None:
        signature = signature if isinstance(signature, str) and signature else None
        if isinstance(text, str) and (text or signature):
            await self.calls.write(kind, text, signature)

    async def _whole(self, message: dict[str, Any]) -> None:
        """A server that ignores ``stream`` sends the message itself."""
        self._take_usage(message.get("usage"))
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else []):
            await self._start(index, mapping(block))
            await self._stop(index)
        self._reason = str(message.get("stop_reason") or "")
        self._stopped = True

    def _take_usage(self, usage: Any) -> None:
        """Counts are totals so far, and the last value of each counts; input is told apart by its cache."""
        self._usage |= {name: value for name, value in mapping(usage).items() if value is not None}
        read, written = (
            count(self._usage.get("cache_read_input_tokens")),
            count(self._usage.get("cache_creation_input_tokens")),
        )
        details = mapping(self._usage.get("output_tokens_details"))
        found = Usage(
            count(self._usage.get("input_tokens")) + read + written,
            count(self._usage.get("output_tokens")),
            read,
            written,
            count(details.get("reasoning_tokens"), details.get("thinking_tokens")),
        )
        if found != Usage():
            self.out.usage(found)


def _index(value: dict[str, Any]) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else 0
