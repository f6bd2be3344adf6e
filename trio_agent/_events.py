"""The nouns of a run: what happens, one immutable object per happening.

An event never aliases live state. `MessageUpdate.message` is built on demand from an append-only log and the
position that the log had when the event was made, so an event costs O(delta) and stays true when it is read late.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from ._limits import Limit
from ._messages import (
    AssistantMessage,
    Message,
    Outcome,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResult,
    ToolResultMessage,
)

__all__ = [
    "AgentEnd",
    "AgentEvent",
    "AgentStart",
    "MessageEnd",
    "MessageLog",
    "MessageStart",
    "MessageUpdate",
    "ModelRetry",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
    "UpdateKind",
    "continues",
    "merge",
]

UpdateKind: TypeAlias = Literal[
    "text_start",
    "text_delta",
    "text_end",
    "thinking_start",
    "thinking_delta",
    "thinking_end",
    "tool_call_start",
    "tool_call_delta",
    "tool_call_end",
]


@attrs.define
class Block:
    """One content part as it streams in: its deltas so far and, once it has ended, the finished part."""

    kind: Literal["text", "thinking", "tool_call"]
    chunks: list[str] = attrs.field(factory=list)
    signature: str | None = None
    redacted: bool = False
    call_id: str = ""
    call_name: str = ""
    call_extra: dict[str, Any] = attrs.field(factory=dict)
    finished: Part | None = None

    def as_of(self, chunk_count: int) -> Part:
        """The part as it was when ``chunk_count`` deltas had come."""
        if self.kind == "tool_call":
            return ToolCall(self.call_id, self.call_name)
        joined = "".join(self.chunks[:chunk_count])
        return Text(joined) if self.kind == "text" else Thinking(joined)


@attrs.define
class MessageLog:
    """The append-only record of one response while it streams. Only the message writer appends to it."""

    model: str = ""
    provider: str = ""
    blocks: list[Block] = attrs.field(factory=list)

    def parts(self, content_index: int, chunk_count: int, ended: bool) -> tuple[Part, ...]:
        """The content as of a position: whole blocks before ``content_index``, that one up to ``chunk_count``."""
        if content_index >= len(self.blocks):
            return ()  # an event that was made by hand, without a log
        done = [block.finished or block.as_of(len(block.chunks)) for block in self.blocks[:content_index]]
        last = self.blocks[content_index]
        return (*done, last.finished if ended and last.finished else last.as_of(chunk_count))


@attrs.frozen
class AgentStart:
    """The run has begun. Always the first event."""

    type: ClassVar[Literal["agent_start"]] = "agent_start"


@attrs.frozen
class TurnStart:
    """A turn begins; ``turn`` counts from 1 within the run."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"
    turn: int


@attrs.frozen
class ModelRetry:
    """A request failed before the first of its response was seen, and another one is sent.

    Attributes:
        attempt: which one comes now; the first retry is 2.
        delay: seconds before it is sent.
        error: what the failed one raised, a `ModelError`.
        model: who is asked now.
    """

    type: ClassVar[Literal["model_retry"]] = "model_retry"
    attempt: int
    delay: float
    error: BaseException = attrs.field(eq=False)
    model: str = ""


@attrs.frozen
class MessageStart:
    """A message enters the run. An assistant message is still empty here; any other is complete."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    message: Message


@attrs.frozen
class MessageUpdate:
    """The assistant message grew. ``delta`` is empty for the ``_start`` and ``_end`` kinds."""

    type: ClassVar[Literal["message_update"]] = "message_update"
    kind: UpdateKind
    content_index: int
    delta: str
    _log: MessageLog = attrs.field(factory=MessageLog, repr=False, eq=False, alias="log")
    _chunk_count: int = attrs.field(default=0, repr=False, eq=False, alias="chunk_count")

    @property
    def message(self) -> AssistantMessage:
        """The partial message as of this event. Costs O(length of the message); a call's arguments are
        empty until its ``tool_call_end``."""
        parts = self._log.parts(self.content_index, self._chunk_count, self.kind.endswith("_end"))
        return AssistantMessage(parts, model=self._log.model, provider=self._log.provider)

    @staticmethod
    def continues(later: object, earlier: object) -> bool:
        """True if ``later`` is a delta that directly extends ``earlier``, so that `merge` may stand for both."""
        return (
            type(later) is MessageUpdate
            and type(earlier) is MessageUpdate
            and later.kind == earlier.kind
            and later._log is earlier._log
            and later.content_index == earlier.content_index
            and earlier._chunk_count < later._chunk_count
        )

    @classmethod
    def merge(cls, first: "MessageUpdate", last: "MessageUpdate") -> "MessageUpdate":
        """One update that says what the adjacent deltas from ``first`` to ``last`` say together."""
        chunks = last._log.blocks[last.content_index].chunks[first._chunk_count : last._chunk_count]
        delta = first.delta + "".join(chunks)
        return cls(last.kind, last.content_index, delta, last._log, last._chunk_count)


@attrs.frozen
class MessageEnd:
    """The message is complete and in the transcript."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    message: Message


def _as_mapping(arguments: "Mapping[str, Any] | ToolCall") -> Mapping[str, Any]:
    return arguments.arguments if isinstance(arguments, ToolCall) else arguments


@attrs.frozen
class _ToolExecution:
    """What the events of a tool call share: the fields that name it.

    They carry the call in the place of its arguments: it may be that nobody ever looks at those, and then they are
    never parsed.
    """

    __match_args__ = ("tool_call_id", "tool_name", "arguments")
    tool_call_id: str
    tool_name: str
    _arguments: Mapping[str, Any] | ToolCall = attrs.field(eq=_as_mapping, repr=lambda value: repr(_as_mapping(value)))

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What the model sent, as `ToolCall.arguments`."""
        return _as_mapping(self._arguments)


@attrs.frozen
class ToolExecutionStart(_ToolExecution):
    """A tool call is taken up. A call that may not run (unknown, invalid, skipped) has this event too."""

    type: ClassVar[Literal["tool_execution_start"]] = "tool_execution_start"
    __match_args__ = _ToolExecution.__match_args__


@attrs.frozen
class ToolExecutionUpdate(_ToolExecution):
    """A running tool reported progress, or something happened in the run of an agent that is the tool.

    Attributes:
        partial_result: what the tool reported; empty for what happened in a nested run.
        path: for what happened in a nested run: the ids of the calls that lead to it, the outermost (which is
            `tool_call_id`) first. Empty for what a tool reported.
        event: what happened there, as that run said it; None for what a tool reported.
    """

    type: ClassVar[Literal["tool_execution_update"]] = "tool_execution_update"
    __match_args__ = (*_ToolExecution.__match_args__, "partial_result", "path", "event")
    partial_result: ToolResult
    path: tuple[str, ...] = ()
    event: "AgentEvent | None" = None


@attrs.frozen
class ToolExecutionEnd(_ToolExecution):
    """A tool call is settled.

    Attributes:
        outcome: ``completed`` (it returned), ``failed`` (it raised), ``rejected`` (unknown tool, bad arguments),
            ``skipped`` (steering came first), ``cancelled`` (cut while it ran: effects unknown),
            ``not_started`` (the run ended or reached a limit first: no effect).
        exception: what the tool raised, if it did.
        duration: seconds on trio's clock between the start of the tool and its end; 0.0 if it did not run.
    """

    type: ClassVar[Literal["tool_execution_end"]] = "tool_execution_end"
    __match_args__ = (*_ToolExecution.__match_args__, "result", "is_error", "outcome", "exception", "duration")
    result: ToolResult
    is_error: bool
    outcome: ToolOutcome
    exception: BaseException | None = attrs.field(default=None, eq=False)
    duration: float = attrs.field(default=0.0, eq=False)


@attrs.frozen
class TurnEnd:
    """A turn is over. ``message`` is its assistant message, or None if the run ended before there was one."""

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    message: AssistantMessage | None
    tool_results: tuple[ToolResultMessage, ...]


@attrs.frozen
class AgentEnd:
    """The run is over. Always the last event, exactly once. ``messages`` are those the run added; ``limit`` is the one
    that was reached, with outcome ``limit``."""

    type: ClassVar[Literal["agent_end"]] = "agent_end"
    messages: tuple[Message, ...]
    outcome: Outcome
    error: BaseException | None = attrs.field(default=None, eq=False)
    abort_reason: str | None = None
    limit: Limit | None = None


AgentEvent: TypeAlias = (
    AgentStart
    | TurnStart
    | ModelRetry
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | AgentEnd
)
"""Everything that an agent's event stream carries."""


def continues(later: object, earlier: object) -> bool:
    """May one event stand for both? True for deltas that directly extend each other, in nested runs too."""
    if type(later) is ToolExecutionUpdate and type(earlier) is ToolExecutionUpdate:
        return later.path == earlier.path and MessageUpdate.continues(later.event, earlier.event)
    return MessageUpdate.continues(later, earlier)


def merge(first: AgentEvent, last: AgentEvent) -> AgentEvent:
    """One event that says what the adjacent deltas from ``first`` to ``last`` say together; see `continues`."""
    if isinstance(first, ToolExecutionUpdate) and isinstance(last, ToolExecutionUpdate):
        assert isinstance(first.event, MessageUpdate)
        assert isinstance(last.event, MessageUpdate)
        return attrs.evolve(last, event=MessageUpdate.merge(first.event, last.event))
    assert isinstance(first, MessageUpdate)
    assert isinstance(last, MessageUpdate)
    return MessageUpdate.merge(first, last)
