"""The nouns of a transcript: content parts, messages, usage, tool results. Immutable, pure data."""

import time
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal, TypeAlias

import attrs

from ._frozen import FrozenDict, freeze
from ._json import parse_arguments

__all__ = [
    "AssistantMessage",
    "Content",
    "CustomMessage",
    "Image",
    "Message",
    "Outcome",
    "Part",
    "Prices",
    "StopReason",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolOutcome",
    "ToolResult",
    "ToolResultMessage",
    "Usage",
    "UserMessage",
]

StopReason: TypeAlias = Literal["stop", "length", "tool_use", "pause", "error", "aborted"]
"""Why a *response* ended. After ``pause`` the model wants to go on: the run asks it again at once."""

Outcome: TypeAlias = Literal["completed", "aborted", "error", "limit", "deadline", "cancelled"]
"""Why a *run* ended. The first cause, by time, decides."""

ToolOutcome: TypeAlias = Literal["completed", "failed", "rejected", "skipped", "cancelled", "not_started"]
"""What became of one tool call."""

_set: Final = object.__setattr__
_NOTHING: Final = FrozenDict()


@attrs.frozen
class Text:
    """Plain text."""

    text: str = attrs.field(validator=attrs.validators.instance_of(str))


@attrs.frozen
class Thinking:
    """A model's reasoning.

    Attributes:
        signature: what some providers want back to accept it again.
        redacted: the provider hides the text; ``signature`` stands for it.
    """

    thinking: str = attrs.field(validator=attrs.validators.instance_of(str))
    signature: str | None = None
    redacted: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Image:
    """An image: the bytes of the file, and its media type (``image/png``)."""

    data: bytes = attrs.field(validator=attrs.validators.instance_of(bytes), repr=lambda b: f"<{len(b)} bytes>")
    mime_type: str = attrs.field(validator=attrs.validators.instance_of(str))


@attrs.frozen
class ToolCall:
    """What the model asks for: run the tool ``name`` with ``arguments``; ``id`` pairs it with its result.

    Attributes:
        arguments: a JSON object, unchangeable. Empty while the call is still streaming.
        arguments_error: why the text the model sent is not a JSON object, or None. Such a call is rejected.
        extra: what else the server said of the call and wants back with it, by its own names.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=freeze)
    arguments_error: str | None = attrs.field(default=None, kw_only=True)
    extra: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=freeze, kw_only=True)
    _text: str | None = attrs.field(default=None, init=False, eq=False, repr=False)

    @classmethod
    def from_text(cls, id: str, name: str, text: str, extra: Mapping[str, Any] = _NOTHING) -> "ToolCall":
        """A call as a model sends it: ``text`` is the JSON text of the arguments. It is parsed when ``arguments`` or
        ``arguments_error`` is first looked at, which a run need not do."""
        call = cls.__new__(cls)
        _set(call, "id", id)
        _set(call, "name", name)
        _set(call, "_text", text)
        _set(call, "extra", freeze(extra))
        return call

    def __getattr__(self, field: str) -> Any:
        # asked only for a slot that is empty: those two, as long as nobody has asked
        if field not in ("arguments", "arguments_error"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {field!r}", name=field, obj=self)
        arguments, problem = parse_arguments(self._text or "")
        _set(self, "arguments", arguments)
        _set(self, "arguments_error", problem)
        return getattr(self, field)

    @property
    def unparsed(self) -> str | None:
        """The text of the arguments, if the call was made of text."""
        return self._text

    @arguments.validator
    def _check_arguments(self, attribute: object, value: object) -> None:
        if not isinstance(value, dict):
            raise TypeError(f"ToolCall.arguments must be a mapping, not {type(value).__name__}")


Part: TypeAlias = Text | Thinking | Image | ToolCall
"""One piece of a message's content."""

Content: TypeAlias = str | Part | Iterable[Part]
"""What a message constructor accepts as ``content``; it is kept as a tuple of parts."""


def to_parts(content: Content) -> tuple[Part, ...]:
    """Content as a tuple of parts. Raises TypeError naming what is not one."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, bytes) or not isinstance(content, Iterable):
        raise TypeError(f"content must be a string or content parts, not {type(content).__name__}")
    parts = tuple(content)
    for index, part in enumerate(parts):
        if not isinstance(part, Part):
            raise TypeError(f"content[{index}] must be a Text, Thinking, Image or ToolCall, not {type(part).__name__}")
    return parts


def text_of(parts: Iterable[Part]) -> str:
    """The text parts, joined."""
    return "".join([part.text for part in parts if type(part) is Text])


def _price(value: Any) -> Any:
    return value if value is None else Decimal(str(value))


@attrs.frozen(kw_only=True)
class Prices:
    """What a provider asks for a million tokens, in any currency. Data of yours: providers change theirs.

    Attributes:
        input, output: of ordinary tokens; strings and floats are taken as the decimal numbers they show.
        cache_read, cache_write: of those read from and written to a cache; by default as ``input``.
    """

    input: Decimal = attrs.field(converter=_price)
    output: Decimal = attrs.field(converter=_price)
    cache_read: Decimal | None = attrs.field(default=None, converter=_price)
    cache_write: Decimal | None = attrs.field(default=None, converter=_price)


@attrs.frozen
class Usage:
    """Tokens of one response, or of a whole run; add two with ``+``.

    ``input_tokens`` includes those read from and written to a cache, as OpenTelemetry's GenAI conventions count;
    ``output_tokens`` includes those of reasoning.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def cost(self, prices: Prices) -> Decimal:
        """What these tokens cost, exactly."""
        read = prices.input if prices.cache_read is None else prices.cache_read
        written = prices.input if prices.cache_write is None else prices.cache_write
        ordinary = self.input_tokens - self.cache_read_tokens - self.cache_write_tokens
        million = (
            ordinary * prices.input
            + self.cache_read_tokens * read
            + self.cache_write_tokens * written
            + self.output_tokens * prices.output
        )
        return million / 1_000_000


def _timestamp() -> Any:
    return attrs.field(factory=time.time, kw_only=True, eq=False, repr=False)


@attrs.frozen
class UserMessage:
    """What the user said. ``timestamp``: seconds since the epoch; it does not take part in equality."""

    role: ClassVar[Literal["user"]] = "user"
    content: tuple[Part, ...] = attrs.field(converter=to_parts)
    timestamp: float = _timestamp()

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.content)


@attrs.frozen
class AssistantMessage:
    """One response of a model. With stop reason ``error`` or ``aborted`` it carries no tool calls.

    ``raw_stop_reason`` is what the server called the end, if it said so.
    """

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: tuple[Part, ...] = attrs.field(converter=to_parts)
    stop_reason: StopReason = "stop"
    error_message: str | None = None
    usage: Usage = attrs.field(factory=Usage)
    model: str = ""
    provider: str = ""
    raw_stop_reason: str | None = attrs.field(default=None, kw_only=True, eq=False)
    timestamp: float = _timestamp()

    @property
    def text(self) -> str:
        """The text parts, joined; thinking is not part of it."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple([part for part in self.content if type(part) is ToolCall])


@attrs.frozen
class ToolResultMessage:
    """The one answer that a tool call gets."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str
    tool_name: str
    content: tuple[Part, ...] = attrs.field(converter=to_parts)
    details: Any = None
    is_error: bool = False
    timestamp: float = _timestamp()

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.content)


@attrs.frozen
class CustomMessage:
    """A message of the application's own: kept in the transcript, never sent to a model.

    Subclass it (with ``@attrs.frozen``) to add fields and a ``role``. To let a model see one, pass a
    ``convert_to_llm`` that turns it into a message the model knows.
    """

    role: ClassVar[str] = "custom"
    content: tuple[Part, ...] = attrs.field(default=(), converter=to_parts)
    timestamp: float = _timestamp()

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.content)


Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage | CustomMessage
"""Anything a transcript may hold."""


@attrs.frozen
class ToolResult:
    """What a tool returns when a plain value is not enough.

    Attributes:
        content: what the model sees; a string is accepted.
        details: anything for the application (a diff, a path); never sent to a model.
        is_error: the model is told that the call failed.
        terminate: if every result of a batch says so, the run ends after it.
    """

    content: tuple[Part, ...] = attrs.field(converter=to_parts)
    details: Any = None
    is_error: bool = False
    terminate: bool = False

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return text_of(self.content)
