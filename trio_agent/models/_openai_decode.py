"""The chunks of an OpenAI chat completion, as calls of a `MessageWriter`.

Source: https://platform.openai.com/docs/api-reference/chat-streaming, and what compatible servers make of it.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from trio_agent._errors import ModelProtocolError, ModelStatusError
from trio_agent._messages import Usage
from trio_agent.abc import MessageWriter

from ._call_slots import CallSlots
from ._http_errors import object_error_text, shorten
from ._openai_encode import REASONING_FIELDS
from ._sse import SSEEvent

__all__ = ["ChatChunks"]

_log = logging.getLogger("trio_agent.models")

_STOP = frozenset(
    {"stop", "eos", "eos_token", "end", "end_turn", "stop_sequence", "tool_calls", "function_call", "tool_use"}
)
_LENGTH = frozenset({"length", "max_tokens", "model_length"})
_FAILED = frozenset({"content_filter", "error", "insufficient_system_resource", "network_error", "sensitive"})


class ChatChunks:
    """Takes the events of one response.

    Args:
        out: gets the content.
        where: the server, as it may be shown.
        redact: takes the secrets out of a text of the server's.
    """

    def __init__(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> None:
        self._out = out
        self._where = where
        self._redact = redact
        self._calls = CallSlots(out)
        self._finish = ""
        self._usage: Usage | None = None
        self._has_content = False
        self._done = False

    @property
    def finished(self) -> bool:
        """Whether a finish_reason has arrived: only then is the response complete."""
        return bool(self._finish)

    async def event(self, event: SSEEvent) -> bool:
        """One event; True if it is the last one.

        Raises:
            ModelStatusError: the server reports an error.
            ModelProtocolError: this is not a chunk.
        """
        data = event.data.strip()
        if data == "[DONE]":
            self._done = True
            return True
        if not data:
            return False
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            if event.event == "error":
                raise self._refusal(shorten(data)) from None
            if self.finished:
                return False
            raise ModelProtocolError(f"{self._where} sent an event that is not JSON: {self._shown(data)}") from None
        self._check_error(event.event, chunk)
        if not isinstance(chunk, dict):
            raise ModelProtocolError(f"{self._where} sent an event that is not a JSON object: {self._shown(data)}")
        await self._chunk(chunk)
        return False

    async def end(self) -> None:
        """The body has ended: write what waits, and say why the response ended.

        Raises:
            ModelProtocolError: the response is not complete.
            ModelStatusError: the server broke it off, or a filter did.
        """
        if not self._finish:
            seen = "only [DONE]" if self._done else "neither a finish_reason nor [DONE]"
            raise ModelProtocolError(f"the response of {self._where} is incomplete: {seen} arrived before its end")
        if self._finish in _FAILED:
            raise ModelStatusError(f"{self._where} ended the response with finish_reason {self._finish!r}")
        cut_short = self._finish in _LENGTH
        if not cut_short and not self._has_content and not self._calls and not (self._usage or Usage()).output_tokens:
            raise ModelProtocolError(
                f"the response of {self._where} is empty; servers answer so when the prompt does not fit the context"
            )
        await self._calls.end(cut_short=cut_short)
        if not cut_short and self._finish not in _STOP:
            _log.warning("%s: unknown finish_reason %r, taken as the end", self._where, self._finish)
        # Whether there are calls decides, not the reason: servers say "stop" after calls, and the other way round.
        self._out.finish("length" if cut_short else "tool_use" if self._calls else "stop")

    def _shown(self, data: str) -> str:
        return self._redact(shorten(data, 200))

    def _refusal(self, text: str) -> ModelStatusError:
        return ModelStatusError(f"{self._where} reported an error in its response: {self._redact(text)}")

    def _check_error(self, event: str, value: Any) -> None:
        if isinstance(value, dict):
            marked = value.get("error") or value.get("object") == "error" or value.get("type") == "error"
            if not marked and "choices" not in value:
                # FastAPI's and other bodies without any mark: {"detail": ...}, {"message": ...}
                marked = value.get("detail") or value.get("message")
            if not marked and event != "error":
                return
        elif event != "error":
            return
        raise self._refusal(object_error_text(value) or shorten(json.dumps(value)))

    async def _chunk(self, chunk: dict[str, Any]) -> None:
        self._take_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self._take_usage(choice.get("usage"))
        # A server that ignores "stream" sends the whole message instead of its deltas.
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            await self._delta(delta)
        if choice.get("error"):
            raise self._refusal(object_error_text(choice) or "unknown")
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish

    async def _delta(self, delta: dict[str, Any]) -> None:
        for field in REASONING_FIELDS:
            reasoning = delta.get(field)
            if isinstance(reasoning, str) and reasoning:
                await self._thinking(reasoning, field)
                break  # some servers send the same text under both names
        content = delta.get("content")
        if isinstance(content, list):
            for part in content:
                await self._content_part(part)
        else:
            await self._text(content)
        await self._text(delta.get("refusal"))
        calls = delta.get("tool_calls")
        legacy = delta.get("function_call")
        if isinstance(calls, list) and calls:
            await self._calls.add(calls)
        elif isinstance(legacy, dict):
            await self._calls.add([{"index": -1, "function": legacy}])

    async def _content_part(self, part: Any) -> None:
        """Mistral's content is a list, and the text of its thinking parts is a list again."""
        if not isinstance(part, dict):
            await self._text(part)
        elif part.get("type") == "thinking":
            inner = part.get("thinking")
            for piece in inner if isinstance(inner, list) else [inner]:
                text = piece.get("text") if isinstance(piece, dict) else piece
                if isinstance(text, str) and text:
                    await self._thinking(text, None)
        else:
            await self._text(part.get("text"))

    async def _text(self, text: Any) -> None:
        if isinstance(text, str) and text:
            self._has_content = True
            await self._calls.write("text", text)

    async def _thinking(self, text: str, signature: str | None) -> None:
        self._has_content = True
        await self._calls.write("thinking", text, signature)

    def _take_usage(self, usage: Any) -> None:
        """The last one counts: some servers send a running total with every chunk."""
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        details = details if isinstance(details, dict) else {}
        found = Usage(
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            # OpenAI; DeepSeek; Moonshot
            _count(details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")),
            _count(details.get("cache_write_tokens")),  # OpenRouter
        )
        if found != Usage():
            self._usage = found
            self._out.usage(found)


def _count(*values: Any) -> int:
    return next((value for value in values if isinstance(value, int) and value > 0), 0)
