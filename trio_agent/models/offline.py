"""`OfflineModel`: a rule-based stand-in for a model that needs no key and no network and really calls tools."""

import json
import math
import re
from collections.abc import Iterable

import trio

from trio_agent._messages import AssistantMessage, Message, ToolCall, ToolResultMessage, Usage, UserMessage
from trio_agent.abc import MessageWriter, ModelRequest

from ._offline_report import report
from ._offline_words import TOOL_OF, Instruction, understand

__all__ = ["OfflineModel"]

_INTRODUCTION = (
    "I am OfflineModel, a small rule-based stand-in and not a language model: I match a few English phrases and call "
    "tools."
)
_SKILLS = (
    ("read_file", "read README.md; what does notes.txt say?; how many lines are in notes.txt?"),
    ("list_files", "list the files in src; how many files are there?"),
    ("search_files", "search for TODO in src; where is main?"),
    ("run_command", "run `ls -l`"),
    ("write_file", 'write "hello" to a.txt; create a.txt with "hello"'),
)
_FRAGMENT = 16


class OfflineModel:
    """Answers the newest user message by rules. Deterministic: the same request gives the same response.

    This is not a language model. It understands instructions to read, list, search, count, run and write, in a few
    English phrasings, several joined by "then" or "and". It calls the tools named ``read_file``, ``list_files``,
    ``search_files``, ``run_command`` and ``write_file`` where the request offers them, reads their results, and says
    what it found. Instructions joined by commas or "and" become calls of one response. One that comes after a
    "then" and may depend on what was written or run before it waits for that result. To anything else it
    answers what it is and what it can do.

    Its usage counts words, as if each were a token: the words of the system prompt and the messages as input, the
    words of its text and of its arguments as output.

    Args:
        delay: seconds to sleep before each delta, so that streaming can be watched. A cancellation cuts the
            response there.

    Raises:
        TypeError, ValueError: ``delay`` is not a finite number of seconds that is zero or more.
    """

    def __init__(self, delay: float = 0.0) -> None:
        if isinstance(delay, bool) or not isinstance(delay, int | float):
            raise TypeError(f"delay must be a number of seconds, not {type(delay).__name__}")
        if not 0 <= delay < math.inf:
            raise ValueError(f"delay must be zero or more seconds, not {delay!r}")
        self._delay = delay

    @property
    def name(self) -> str:
        """``offline``."""
        return "offline"

    @property
    def provider(self) -> str:
        """``trio_agent``."""
        return "trio_agent"

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Push one response: tool calls while something is left to do, then the answer. Never fails by itself."""
        wish, since = _newest_wish(request.messages)
        instructions, unclear = understand(wish)
        done, rest = _progress(instructions, since)
        offered = {tool.name for tool in request.tools}
        batch = _batch([item for item in rest if item.tool in offered])
        spoken = _announcement(batch) if batch else _answer(done, rest, unclear, offered)
        calls = _calls(batch, request.messages)
        await self._say(spoken, out)
        for call in calls:
            await self._call(call, out)
        written = len(spoken.split()) + sum(_words_of(call) for call in calls)
        out.usage(Usage(_words_in(request), written))

    async def _say(self, text: str, out: MessageWriter) -> None:
        for chunk in re.findall(r"(?:\s*\S+){1,3}\s*", text):
            await self._pause()
            await out.text(chunk)

    async def _call(self, call: ToolCall, out: MessageWriter) -> None:
        await out.tool_call_start(call.id, call.name)
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        for start in range(0, len(arguments), _FRAGMENT):
            await self._pause()
            await out.tool_call_delta(arguments[start : start + _FRAGMENT])
        await out.tool_call_end()

    async def _pause(self) -> None:
        if self._delay:
            await trio.sleep(self._delay)


def _newest_wish(messages: tuple[Message, ...]) -> tuple[str, tuple[Message, ...]]:
    """The text of the last user message, and what came after it."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage):
            return message.text, messages[index + 1 :]
    return "", ()


def _progress(
    instructions: list[Instruction], since: tuple[Message, ...]
) -> tuple[list[tuple[Instruction, ToolResultMessage | None]], list[Instruction]]:
    """The instructions for which a call was made, each with its result; and those still open."""
    results = {message.tool_call_id: message for message in since if isinstance(message, ToolResultMessage)}
    open_instructions = list(instructions)
    done: list[tuple[Instruction, ToolResultMessage | None]] = []
    for call in _calls_in(since):
        for item in open_instructions:
            # by what was called and not by position: a missing tool made no call, and tools may change in mid-run
            if item.tool == call.name and item.arguments == call.arguments:
                open_instructions.remove(item)
                done.append((item, results.get(call.id)))
                break
    return done, open_instructions


def _batch(open_instructions: list[Instruction]) -> list[Instruction]:
    """From the front, as many as do not depend on each other."""
    batch: list[Instruction] = []
    for item in open_instructions:
        if any(item.must_follow(earlier) for earlier in batch):
            break
        batch.append(item)
    return batch


def _calls(batch: list[Instruction], messages: tuple[Message, ...]) -> list[ToolCall]:
    """The calls, with ids that no call of the transcript has."""
    taken = {call.id for call in _calls_in(messages)}
    number = sum(1 for _ in _calls_in(messages))
    calls: list[ToolCall] = []
    for item in batch:
        number += 1
        while f"call_{number}" in taken:
            number += 1
        calls.append(ToolCall(f"call_{number}", item.tool, item.arguments))
    return calls


def _calls_in(messages: Iterable[Message]) -> Iterable[ToolCall]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            yield from message.tool_calls


def _announcement(batch: list[Instruction]) -> str:
    return f"I will {_joined([item.intent for item in batch])}."


def _joined(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _answer(
    done: list[tuple[Instruction, ToolResultMessage | None]],
    missing: list[Instruction],
    unclear: list[str],
    offered: set[str],
) -> str:
    paragraphs = [report(item, result) for item, result in done]
    paragraphs += [f"I cannot {item.intent}: there is no tool named {item.tool} here." for item in missing]
    if not paragraphs:
        return _help(unclear, offered)
    paragraphs += [f"I did not understand this part: {clause!r}. {_INTRODUCTION}" for clause in unclear]
    return "\n\n".join(paragraphs)


def _help(unclear: list[str], offered: set[str]) -> str:
    lines = [f"I did not understand: {'; '.join(unclear)!r}." if unclear else "There is no text to answer."]
    lines += [_INTRODUCTION, "You can say:"]
    lines += [f"- {examples}" for name, examples in _SKILLS if name in offered]
    absent = [name for name in dict.fromkeys(TOOL_OF.values()) if name not in offered]
    if len(absent) == len(_SKILLS):
        lines[-1] = "None of the tools that I know is here"
    if absent:
        lines.append(f"Not available here: {', '.join(absent)}.")
    lines.append('Join several with "then".')
    return "\n".join(lines)


def _words_of(call: ToolCall) -> int:
    return len(json.dumps(dict(call.arguments), ensure_ascii=False).split())


def _words_in(request: ModelRequest) -> int:
    texts = sum(len(message.text.split()) for message in request.messages)
    calls = sum(_words_of(call) for call in _calls_in(request.messages))
    return len(request.system_prompt.split()) + texts + calls
