"""The events of an OpenAI response, as calls of a `MessageWriter`.

Source: https://platform.openai.com/docs/api-reference/responses-streaming. Dispatched by the JSON ``type``; items are
told apart by ``item_id``, else by ``output_index``, else it is the last one (llama.cpp sends neither).
"""

import json
from collections.abc import Callable, Hashable
from typing import Any

import attrs

from trio_agent._errors import ModelProtocolError, ModelRefusalError
from trio_agent._messages import Usage
from trio_agent.abc import MessageWriter

from ._decode import ResponseEvents, count, mapping

__all__ = ["ITEM_ID", "ResponsesEvents"]

ITEM_ID = "item_id"
"""The key in `ToolCall.extra` under which an item's own id is kept."""

_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@attrs.define(eq=False)
class _Item:
    """One item of the output, as far as it has come."""

    number: int
    has_content: bool = False
    summaries: int = 0
    is_done: bool = False
    is_call: bool = False


class ResponsesEvents(ResponseEvents):
    """Takes the events of one response; see `ResponseEvents`."""

    terminal_mark = "response.completed, response.incomplete or response.failed"

    def __init__(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> None:
        super().__init__(out, where, redact)
        self._items: dict[Hashable, _Item] = {}
        self._last: _Item | None = None
        self._response: dict[str, Any] = {}
        self._count = 0

    @property
    def finished(self) -> bool:
        """Whether a terminal event has arrived: only then is the response complete."""
        return bool(self._response)

    async def take(self, value: dict[str, Any]) -> bool:
        """See `ResponseEvents.take`. Types that are not known are left alone."""
        kind = value.get("type")
        if kind in _TERMINAL or (kind is None and value.get("object") == "response"):
            await self._terminal(str(kind or ""), mapping(value.get("response")) or value)
            return True
        match kind:
            case "response.output_item.added":
                await self._add(value, mapping(value.get("item")))
            case "response.output_item.done":
                await self._item_done(value, mapping(value.get("item")))
            case "response.output_text.delta" | "response.refusal.delta":
                await self._write(value, "text", value.get("delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                await self._write(value, "thinking", value.get("delta"))
            case "response.reasoning_summary_part.added":
                item = self._item(value)
                item.summaries += 1
                if item.summaries > 1:
                    await self._write(value, "thinking", "\n\n")
            case "response.function_call_arguments.delta":
                await self._arguments(self._item(value), value.get("delta"))
            case "response.function_call_arguments.done":
                item = self._item(value)
                if not item.has_content:
                    await self._arguments(item, value.get("arguments"))
                item.is_done = True
        return False

    def is_known(self, value: dict[str, Any]) -> bool:
        """See `ResponseEvents.is_known`."""
        return "type" in value or value.get("object") == "response"

    async def end(self) -> None:
        """See `ResponseEvents.end`."""
        if not self._response:
            raise self.incomplete()
        status = self._response.get("status")
        why = mapping(self._response.get("incomplete_details")).get("reason")
        if why == "content_filter":
            raise ModelRefusalError(f"{self.where} ended the response: content_filter")
        if status not in ("completed", "incomplete"):
            said = f"{self.where} ended the response with status {status!r}"
            raise ModelProtocolError(said, retryable=status == "cancelled")
        open_calls = [item for item in self._items.values() if item.is_call and not item.is_done]
        cut_short = status == "incomplete"
        if open_calls and not cut_short:
            raise ModelProtocolError(f"{self.where} completed its response in the middle of a function call")
        await self.calls.end(cut_short=cut_short)
        raw = str(why or status)
        self.out.finish("length" if cut_short else "tool_use" if self.calls else "stop", raw)

    def _item(self, value: dict[str, Any], item: dict[str, Any] | None = None) -> _Item:
        id = value.get("item_id") or (item or {}).get("id")
        index = value.get("output_index")
        key: Hashable = id if isinstance(id, str) and id else index if isinstance(index, int) else None
        if key is None and item is None and self._last is not None:
            return self._last
        if key is not None and key in self._items:
            return self._items[key]
        self._last = _Item(self._count)
        self._count += 1
        self._items[self._last if key is None else key] = self._last
        return self._last

    async def _add(self, value: dict[str, Any], item: dict[str, Any]) -> None:
        entry = self._item(value, item)
        if item.get("type") == "function_call":
            entry.is_call = True
            call = {"index": entry.number, "id": item.get("call_id"), "function": {"name": item.get("name")}}
            await self.calls.add([call | _own(item)])
            if item.get("arguments"):
                await self._arguments(entry, item.get("arguments"))

    async def _item_done(self, value: dict[str, Any], item: dict[str, Any]) -> None:
        """The authoritative copy: what did not stream is written from it."""
        entry = self._known(value, item)
        match item.get("type"):
            case "function_call":
                if not entry.is_call:
                    await self._add(value, item)
                elif not entry.has_content:
                    await self._arguments(entry, item.get("arguments"))
            case "message" if not entry.has_content:
                for part in item.get("content") or []:
                    text = mapping(part).get("text") or mapping(part).get("refusal")
                    if isinstance(text, str) and text:
                        await self.calls.write("text", text)
            case "reasoning":
                await self._reasoning_done(entry, item)
        entry.is_done = entry.has_content = True

    def _known(self, value: dict[str, Any], item: dict[str, Any]) -> _Item:
        # without any id it is the last one, if that can be it
        if not item.get("id") and not isinstance(value.get("output_index"), int) and self._last is not None:
            return self._last
        return self._item(value, item)

    async def _reasoning_done(self, entry: _Item, item: dict[str, Any]) -> None:
        summary = [mapping(part).get("text") for part in item.get("summary") or []]
        text = "" if entry.has_content else "\n\n".join([part for part in summary if isinstance(part, str)])
        if item.get("encrypted_content") or text:
            kept = {name: item[name] for name in ("id", "encrypted_content") if item.get(name)}
            signature = json.dumps(kept) if item.get("encrypted_content") else None
            await self.calls.write("thinking", text, signature)

    async def _write(self, value: dict[str, Any], kind: Any, text: Any) -> None:
        if isinstance(text, str) and text:
            self._item(value).has_content = True
            await self.calls.write(kind, text)

    async def _arguments(self, item: _Item, fragment: Any) -> None:
        if fragment:
            item.has_content = True
            await self.calls.add([{"index": item.number, "function": {"arguments": fragment}}])

    async def _terminal(self, kind: str, response: dict[str, Any]) -> None:
        status = response.get("status") or kind.removeprefix("response.") or "completed"
        if status == "failed":
            error = mapping(response.get("error"))
            text = f"{error.get('message') or 'the response failed'} ({error.get('code') or status})"
            raise self.refusal(text, json.dumps(response))
        if not self._items:  # a server that ignores "stream" sends the response itself
            for index, item in enumerate(response.get("output") or []):
                await self._item_done({"output_index": index}, mapping(item))
        self._response = response | {"status": status}
        usage = mapping(response.get("usage"))
        read = mapping(usage.get("input_tokens_details"))
        spent = mapping(usage.get("output_tokens_details"))
        found = Usage(
            count(usage.get("input_tokens")),
            count(usage.get("output_tokens")),
            count(read.get("cached_tokens")),
            0,
            count(spent.get("reasoning_tokens")),
        )
        if found != Usage():
            self.out.usage(found)


def _own(item: dict[str, Any]) -> dict[str, Any]:
    id = item.get("id")
    return {ITEM_ID: id} if isinstance(id, str) and id else {}
