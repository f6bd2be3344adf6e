"""The two steps between the transcript and a request, and what the functional layer starts from."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs

from ._messages import AssistantMessage, CustomMessage, Message, ToolResultMessage, Usage, UserMessage
from ._transcript import pair_up
from .abc import Tool

__all__ = [
    "AgentContext",
    "ContextUpdate",
    "ConvertToLlm",
    "TransformContext",
    "default_convert_to_llm",
    "to_messages",
]


def _to_inputs(messages: Sequence[Message]) -> tuple[Message, ...]:
    inputs = tuple(messages)
    for index, message in enumerate(inputs):
        if not isinstance(message, UserMessage | CustomMessage):
            raise TypeError(
                f"enter[{index}] must be a UserMessage or a CustomMessage, not {type(message).__name__}: what a model "
                "or a tool said can only be said by it"
            )
    return inputs


@attrs.frozen
class ContextUpdate:
    """What ``transform_context`` may return where a sequence of messages is not enough.

    Attributes:
        messages: what goes on to ``convert_to_llm``, as if it alone had been returned.
        enter: messages that enter the transcript, with their events, in the step in which the transform returns: a
            summary, for example. User messages and custom messages only.
        usage: tokens that the transform itself spent; they count as the run's.
    """

    messages: Sequence[Message]
    enter: tuple[Message, ...] = attrs.field(default=(), converter=_to_inputs)
    usage: Usage = attrs.field(factory=Usage, validator=attrs.validators.instance_of(Usage))


Transformed: TypeAlias = Sequence[Message] | ContextUpdate

TransformContext: TypeAlias = Callable[[Sequence[Message]], Transformed | Awaitable[Transformed]]
"""Step one: from our messages to our messages (drop, shorten, add). Sync or async."""

ConvertToLlm: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""Step two: from our messages to what a model accepts. Sync or async."""


def default_convert_to_llm(messages: Sequence[Message]) -> Sequence[Message]:
    """Drop custom messages, and make sure that calls and results pair up.

    A pure function; the transcript itself is never changed.
    """
    return pair_up([message for message in messages if not isinstance(message, CustomMessage)])


@attrs.frozen
class AgentContext:
    """What a run of the functional layer starts from. The lists given here are never changed."""

    system_prompt: str = attrs.field(default="", validator=attrs.validators.instance_of(str))
    messages: tuple[Message, ...] = attrs.field(default=(), converter=tuple)
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=tuple)


def to_messages(prompts: str | Message | Sequence[str | Message], argument: str = "prompt") -> tuple[Message, ...]:
    """Prompts in any accepted form, as messages.

    Raises:
        TypeError: something is neither text nor a message; the error names the argument and the place.
        ValueError: an empty prompt.
    """
    if isinstance(prompts, str | UserMessage | AssistantMessage | ToolResultMessage | CustomMessage):
        return (_to_message(prompts, argument),)
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes | bytearray):
        raise TypeError(f"{argument} must be a string, a message, or a sequence of these, not {type(prompts).__name__}")
    if not prompts:
        raise ValueError(f"{argument} is an empty sequence; give at least one message, or use resume()")
    return tuple([_to_message(item, f"{argument}[{index}]") for index, item in enumerate(prompts)])


def _to_message(item: object, argument: str) -> Message:
    if isinstance(item, str):
        if not item.strip():
            raise ValueError(f"{argument} is empty; say something, or use resume() to go on without a new message")
        return UserMessage(item)
    if isinstance(item, UserMessage | CustomMessage):
        if isinstance(item, UserMessage) and not item.content:
            raise ValueError(f"{argument} has no content; say something, or use resume()")
        return item
    if isinstance(item, AssistantMessage | ToolResultMessage):
        raise TypeError(
            f"{argument} is a {type(item).__name__}; a prompt is what the user says. "
            "Give earlier messages as Agent(messages=...)"
        )
    raise TypeError(f"{argument} must be a string or a message, not {type(item).__name__}")
