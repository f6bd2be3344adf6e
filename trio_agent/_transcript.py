"""The law of a transcript: every tool call has exactly one result, right after its message, in call order.

Pure functions over messages; the run keeps the law, these state it.
"""

from collections.abc import Sequence

from ._messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResultMessage,
)

__all__ = ["UNANSWERED", "answer_open_calls", "check_transcript", "open_calls", "pair_up"]

UNANSWERED = "No result was recorded for this call: the program ended before it settled. Its effects are unknown."


def check_transcript(messages: Sequence[Message]) -> list[str]:
    """What is wrong with a transcript, in words; the one with the smallest witness first. Empty if nothing is.

    Checks guarantees G2 and G18: one result per call, right after its message, in call order; no result without
    a call; no empty id or name, no id twice in one message; no calls in a message that was cut short.
    """
    problems: list[tuple[int, int, str]] = []
    expected: list[ToolCall] = []
    since = 0

    def report(index: int, text: str) -> None:
        problems.append((index - since + 1, index, f"message {index}: {text}"))

    for index, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            if expected and expected[0].id == message.tool_call_id:
                expected.pop(0)
            else:
                wanted = f"the result of {expected[0].id!r} was due" if expected else "no call is open"
                report(index, f"result of {message.tool_call_id!r}, but {wanted}")
            continue
        for call in expected:
            report(index, f"follows before call {call.id!r} was answered")
        expected = []
        since = index
        if isinstance(message, AssistantMessage):
            expected = list(message.tool_calls)
            for text in _check_calls(message):
                report(index, text)
    for call in expected:
        report(len(messages), f"the transcript ends before call {call.id!r} was answered")
    return [text for _, _, text in sorted(problems)]


def _check_calls(message: AssistantMessage) -> list[str]:
    problems = []
    calls = message.tool_calls
    if calls and message.stop_reason in ("error", "aborted"):
        problems.append(f"was cut short ({message.stop_reason}) but carries tool calls")
    if len({call.id for call in calls}) != len(calls):
        problems.append("has two calls with one id")
    problems.extend(
        f"call {call.id!r} of {call.name!r} has an empty id or name" for call in calls if not (call.id and call.name)
    )
    return problems


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls at the end of a transcript that have no result yet (a process that was killed leaves some)."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            return tuple([call for call in message.tool_calls if call.id not in answered])
        else:
            break
    return ()


def answer_open_calls(messages: Sequence[Message]) -> list[ToolResultMessage]:
    """An error result for each of `open_calls`, saying that the effects are unknown."""
    return [ToolResultMessage(call.id, call.name, UNANSWERED, is_error=True) for call in open_calls(messages)]


def pair_up(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same messages with calls and results paired, for a request: a result without its call is left out, a
    call without its result gets one that says so, a call with an empty id or name is left out with its result.

    A legal transcript comes back as it is. A transform that drops old messages may cut a pair in two; providers
    refuse such a request for ever after.
    """
    if not check_transcript(messages):
        return tuple(messages)
    paired: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if isinstance(message, ToolResultMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.tool_calls:
            paired.append(message)
            continue
        results: dict[str, ToolResultMessage] = {}
        while index < len(messages) and isinstance(result := messages[index], ToolResultMessage):
            results.setdefault(result.tool_call_id, result)
            index += 1
        paired.extend(_pair(message, results))
    return tuple(paired)


def _pair(message: AssistantMessage, results: dict[str, ToolResultMessage]) -> list[Message]:
    calls = {call.id: call for call in message.tool_calls if call.id and call.name}
    if message.stop_reason in ("error", "aborted"):
        calls = {}
    content = [part for part in message.content if not isinstance(part, ToolCall)]
    whole = AssistantMessage(
        (*content, *calls.values()),
        message.stop_reason,
        message.error_message,
        message.usage,
        message.model,
        message.provider,
        timestamp=message.timestamp,
    )
    answers = [
        results.get(call.id) or ToolResultMessage(call.id, call.name, UNANSWERED, is_error=True)
        for call in calls.values()
    ]
    return [whole, *answers]
