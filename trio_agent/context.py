"""What a long transcript becomes before a request: plain functions for ``transform_context``.

Each function here makes a step from our messages to our messages; `chain` puts several into one. None of them changes
the transcript: what they leave out is left out of the request. `summarise` alone enters something, a message of its
own that everybody can see. No step splits a call from its result, drops what has not been answered yet, or lets a
request begin with what the assistant said if there is a message of the user's to begin with.

The sync steps have no checkpoint: a cancellation falls before or after them.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from trio_agent import (
    AssistantMessage,
    ContextUpdate,
    CustomMessage,
    Image,
    Message,
    Model,
    ModelError,
    ModelRequest,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    complete,
)

__all__ = [
    "SummaryMessage",
    "chain",
    "drop_old_tool_output",
    "estimate_tokens",
    "keep_last_turns",
    "summarise",
    "token_budget",
]

Step: TypeAlias = Callable[[Sequence[Message]], Sequence[Message]]
AnyStep: TypeAlias = Callable[[Sequence[Message]], Any]

_PER_MESSAGE: Final = 4
_PER_IMAGE: Final = 1000
_CHARACTERS_PER_TOKEN: Final = 4
_INSTRUCTIONS: Final = (
    "You shorten the record of a conversation between a user and an assistant with tools, so that the assistant can go "
    "on with the work from your text alone. Keep what was asked, what was decided and why, what was done and found "
    "(names, paths, numbers, errors, word for word where it matters) and what is still to do. Leave out what is "
    "settled and will not be needed. Write the summary and nothing else."
)
_MARK: Final = "Summary of the conversation so far:\n\n"


def _whole(function: str, name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{function}: {name} must be a whole number of at least {least}, not {value!r}")


def estimate_tokens(message: Message) -> int:
    """About how many tokens a message is: four characters each, a few per message, a thousand per image.

    An estimate; give `token_budget` and `summarise` a function of your own where it must be exact.
    """
    characters = images = 0
    for part in message.content:
        if isinstance(part, Image):
            images += 1
        elif isinstance(part, ToolCall):
            characters += len(part.name) + len(json.dumps(part.arguments, default=str))
        else:
            characters += len(part.text if isinstance(part, Text) else part.thinking)
    return _PER_MESSAGE + images * _PER_IMAGE + -(-characters // _CHARACTERS_PER_TOKEN)


def keep_last_turns(turns: int) -> Step:
    """Keep the last turns: an assistant message, its tool results, and what was said before it since the turn before.

    What was said since the last of them is kept too.

    Args:
        turns: how many.

    Raises:
        ValueError: it is not a whole number of at least 1.
    """
    _whole("keep_last_turns", "turns", turns, 1)
    return lambda messages: _kept(messages, _cut(messages, turns))


def token_budget(tokens: int, *, count: Callable[[Message], int] = estimate_tokens) -> Step:
    """Keep the newest messages that fit a number of tokens.

    What is not answered yet (what was said last, the last results with the message that asked for them) is kept even
    if it alone is more than that.

    Args:
        tokens: how many the messages may have together; the system prompt and the tools are not counted.
        count: how many a message has.

    Raises:
        ValueError: ``tokens`` is not a whole number of at least 1.
    """
    _whole("token_budget", "tokens", tokens, 1)

    def step(messages: Sequence[Message]) -> Sequence[Message]:
        best = _last_group(messages)
        size = 0
        for index in range(len(messages) - 1, -1, -1):
            size += count(messages[index])
            if index > best or isinstance(messages[index], ToolResultMessage):
                continue
            lead = _lead(messages, index)
            if size + sum(map(count, lead)) <= tokens:
                best = index
            elif size > tokens:
                break
        return _kept(messages, best)

    return step


def drop_old_tool_output(*, keep: int, longer_than: int = 0) -> Step:
    """Replace what old tool results said by a note of how long it was; the calls and the fact of a result stay.

    Args:
        keep: the last so many results stay whole.
        longer_than: results of at most so many characters stay whole too; one with an image never does.

    Raises:
        ValueError: a number is out of its range.
    """
    _whole("drop_old_tool_output", "keep", keep, 0)
    _whole("drop_old_tool_output", "longer_than", longer_than, 0)

    def shortened(message: ToolResultMessage) -> ToolResultMessage:
        has_image = any(isinstance(part, Image) for part in message.content)
        if len(message.text) <= longer_than and not has_image:
            return message
        images = " and an image" if has_image else ""
        note = f"[Output of {len(message.text)} characters{images} left out.]"
        return attrs.evolve(message, content=(Text(note),))

    def step(messages: Sequence[Message]) -> Sequence[Message]:
        results = [index for index, message in enumerate(messages) if isinstance(message, ToolResultMessage)]
        old = set(results[: max(len(results) - keep, 0)])
        return [
            shortened(message) if index in old and isinstance(message, ToolResultMessage) else message
            for index, message in enumerate(messages)
        ]

    return step


def chain(*steps: AnyStep) -> Callable[[Sequence[Message]], Awaitable[ContextUpdate]]:
    """One step that takes several, sync or async, one after the other; what they enter and spend adds up.

    Raises:
        TypeError: a step cannot be called.
    """
    for index, one in enumerate(steps):
        if not callable(one):
            raise TypeError(f"chain: step {index} must be a callable(messages), not {one!r}")

    async def step(messages: Sequence[Message]) -> ContextUpdate:
        enter: tuple[Message, ...] = ()
        usage = Usage()
        for one in steps:
            made = one(messages)
            made = await made if inspect.isawaitable(made) else made
            if isinstance(made, ContextUpdate):
                enter, usage, made = (*enter, *made.enter), usage + made.usage, made.messages
            messages = made
        return ContextUpdate(messages, enter, usage)

    return step


@attrs.frozen
class SummaryMessage(CustomMessage):
    """A summary in the transcript, in place of what stands before it.

    Attributes:
        kept: how many of the messages right before it are still told word for word.
    """

    role: ClassVar[str] = "summary"
    kept: int = attrs.field(default=0, kw_only=True)


def summarise(
    model: Model,
    *,
    above: int,
    keep_turns: int = 4,
    count: Callable[[Message], int] = estimate_tokens,
    instructions: str = _INSTRUCTIONS,
) -> Callable[[Sequence[Message]], Awaitable[ContextUpdate]]:
    """Have a model summarise what is old once there is too much of it.

    The summary is a `SummaryMessage` in the transcript, with its events, and its tokens are the run's. From there on
    a model gets it as a message of the user's, then the turns that were kept, then what came after. The transcript
    itself keeps everything. A later summary includes the earlier one.

    An abort or a cancellation cuts the request for a summary like any other, and nothing is entered. A `ModelError` of
    it ends the run and is raised, as what any step raises.

    Args:
        model: who writes the summary; may be another one than the agent's.
        above: tokens of messages beyond which there is a summary.
        keep_turns: the last so many turns are kept word for word.
        count: how many tokens a message has.
        instructions: the system prompt of the request for a summary.

    Raises:
        ValueError: a number is out of its range.
    """
    _whole("summarise", "above", above, 1)
    _whole("summarise", "keep_turns", keep_turns, 1)

    async def step(messages: Sequence[Message]) -> ContextUpdate:
        at = max((i for i, message in enumerate(messages) if isinstance(message, SummaryMessage)), default=None)
        earlier = "" if at is None else messages[at].text
        start = 0 if at is None else at - messages[at].kept  # type: ignore[union-attr]
        places = [i for i in range(start, len(messages)) if not isinstance(messages[i], SummaryMessage)]
        visible = [messages[i] for i in places]
        told = [*([UserMessage(_MARK + earlier)] if earlier else []), *visible]
        cut = _cut(visible, keep_turns)
        if cut == 0 or sum(map(count, told)) <= above:
            return ContextUpdate(told)
        record = "\n\n".join([*([_MARK + earlier] if earlier else []), *map(_as_text, visible[:cut])])
        answer = await complete(model, ModelRequest(instructions, (UserMessage(record),)))
        if not answer.text.strip():
            raise ModelError(f"summarise: the model {model.name!r} gave an empty summary")
        summary = SummaryMessage(answer.text, kept=len(messages) - places[cut])
        return ContextUpdate([UserMessage(_MARK + answer.text), *visible[cut:]], (summary,), answer.usage)

    return step


def _as_text(message: Message) -> str:
    if isinstance(message, ToolResultMessage):
        return f"Result of {message.tool_name}{' (error)' if message.is_error else ''}:\n{message.text}"
    said = message.text
    if isinstance(message, AssistantMessage):
        calls = [f"[calls {call.name} {json.dumps(call.arguments, default=str)}]" for call in message.tool_calls]
        said = "\n".join([*([said] if said else []), *calls])
    return f"{message.role.capitalize()}:\n{said}"


# where a transcript may be cut ---------------------------------------------------------------------------------------


def _is_input(message: Message) -> bool:
    return isinstance(message, UserMessage | CustomMessage)


def _cut(messages: Sequence[Message], turns: int) -> int:
    """Where the last turns begin."""
    index = len(messages)
    while index and _is_input(messages[index - 1]):
        index -= 1  # said since, and not answered yet
    for _ in range(turns):
        while index and not isinstance(messages[index - 1], AssistantMessage):
            index -= 1  # its results
        index = max(index - 1, 0)
        while index and _is_input(messages[index - 1]):
            index -= 1
    return index


def _last_group(messages: Sequence[Message]) -> int:
    """Where what is not answered yet begins; where nothing is open, the last answer."""
    index = len(messages)
    while index and _is_input(messages[index - 1]):
        index -= 1
    has_results = index > 0 and isinstance(messages[index - 1], ToolResultMessage)
    if index == len(messages) or has_results:
        while index and not isinstance(messages[index - 1], AssistantMessage):
            index -= 1
        index = max(index - 1, 0)
    return index


def _lead(messages: Sequence[Message], cut: int) -> list[Message]:
    """The user's message to begin with, where what is kept would begin with the assistant's."""
    first = next((message for message in messages[cut:] if not isinstance(message, CustomMessage)), None)
    if first is None or isinstance(first, UserMessage):
        return []
    said: list[Message] = [message for message in messages[:cut] if isinstance(message, UserMessage)]
    return said[-1:]


def _kept(messages: Sequence[Message], cut: int) -> Sequence[Message]:
    return [*_lead(messages, cut), *messages[cut:]]
