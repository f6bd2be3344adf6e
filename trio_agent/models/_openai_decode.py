"""The chunks of an OpenAI chat completion, as calls of a `MessageWriter`.

Source: https://platform.openai.com/docs/api-reference/chat-streaming, and what compatible servers make of it.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from trio_agent._errors import ModelProtocolError, ModelRefusalError, ModelStatusError
from trio_agent._messages import Usage
from trio_agent.abc import MessageWriter

from ._decode import ResponseEvents, count, mapping
from ._http_errors import object_error_text
from ._openai_encode import REASONING_FIELDS

__all__ = ["ChatChunks"]

_log = logging.getLogger("trio_agent.models")

_STOP = frozenset(
    {"stop", "eos", "eos_token", "end", "end_turn", "stop_sequence", "tool_calls", "function_call", "tool_use"}
)
_LENGTH = frozenset({"length", "max_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "sensitive"})
_FAILED = frozenset({"error", "insufficient_system_resource", "network_error"})


class ChatChunks(ResponseEvents):
    """Takes the chunks of one chat completion; see `ResponseEvents`."""

    terminal_mark = "a finish_reason"

    def __init__(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> None:
        super().__init__(out, where, redact)
        self._finish = ""
        self._usage: Usage | None = None
        self._has_content = False

    @property
    def finished(self) -> bool:
        """Whether a finish_reason has arrived: only then is the response complete."""
        return bool(self._finish)

    def is_known(self, value: dict[str, Any]) -> bool:
        """See `ResponseEvents.is_known`."""
        return "choices" in value

    async def end(self) -> None:
        """See `ResponseEvents.end`."""
        if not self._finish:
            raise self.incomplete()
        if self._finish in _FILTERED:
            raise ModelRefusalError(f"{self.where} ended the response with finish_reason {self._finish!r}")
        if self._finish in _FAILED:
            said = f"{self.where} ended the response with finish_reason {self._finish!r}"
            raise ModelStatusError(said, code=self._finish, retryable=True)
        cut_short = self._finish in _LENGTH
        if not cut_short and not self._has_content and not self.calls and not (self._usage or Usage()).output_tokens:
            raise ModelProtocolError(
                f"the response of {self.where} is empty; servers answer so when the prompt does not fit the context"
            )
        await self.calls.end(cut_short=cut_short)
        if not cut_short and self._finish not in _STOP:
            _log.warning("%s: unknown finish_reason %r, taken as the end", self.where, self._finish)
        # Whether there are calls decides, not the reason: servers say "stop" after calls, and the other way round.
        self.out.finish("length" if cut_short else "tool_use" if self.calls else "stop", self._finish)

    async def take(self, value: dict[str, Any]) -> bool:
        """See `ResponseEvents.take`."""
        self._take_usage(value.get("usage"))
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return False
        self._take_usage(choice.get("usage"))
        # A server that ignores "stream" sends the whole message instead of its deltas.
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            await self._delta(delta)
        if choice.get("error"):
            raise self.refusal(object_error_text(choice) or "unknown", json.dumps(choice))
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish
        return False

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
            await self.calls.add(calls)
        elif isinstance(legacy, dict):
            await self.calls.add([{"index": -1, "function": legacy}])

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
            await self.calls.write("text", text)

    async def _thinking(self, text: str, signature: str | None) -> None:
        self._has_content = True
        await self.calls.write("thinking", text, signature)

    def _take_usage(self, usage: Any) -> None:
        """The last one counts: some servers send a running total with every chunk."""
        if not isinstance(usage, dict):
            return
        details, spent = mapping(usage.get("prompt_tokens_details")), mapping(usage.get("completion_tokens_details"))
        found = Usage(
            count(usage.get("prompt_tokens")),
            count(usage.get("completion_tokens")),
            # OpenAI; DeepSeek; Moonshot
            count(details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")),
            count(details.get("cache_write_tokens")),  # OpenRouter
            count(spent.get("reasoning_tokens")),
        )
        if found != Usage():
            self._usage = found
            self.out.usage(found)
