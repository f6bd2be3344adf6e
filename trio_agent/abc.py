"""The ports: what the runtime asks of a model, a tool, an observer; and what it hands to them. Types only."""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias, runtime_checkable

import attrs

from ._errors import ModelError
from ._events import AgentEvent
from ._frozen import FrozenDict, freeze
from ._messages import Content, Message, StopReason, ToolResult, Usage

__all__ = [
    "SKIP",
    "HookContext",
    "MessageWriter",
    "Model",
    "ModelOptions",
    "ModelRequest",
    "Observer",
    "Tool",
    "ToolContext",
]

if TYPE_CHECKING:
    # its default lets a plain ToolContext stand for any dependencies; typing's own has one from Python 3.13 on
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")

Observer: TypeAlias = Callable[[AgentEvent], None]
"""A sync callable that sees every event; it cannot change the run."""


def _optional(kind: Any) -> Any:
    return attrs.validators.optional(attrs.validators.instance_of(kind))


@attrs.frozen(kw_only=True)
class ModelOptions:
    """Settings of a request; None leaves the server's default. A model refuses what its server has no such thing for.

    Attributes:
        temperature: sampling temperature.
        max_output_tokens: the longest response, in tokens.
        stop_sequences: texts at which the response ends.
        reasoning_effort: ``"minimal"``, ``"low"``, ``"medium"``, ``"high"`` or what the server knows.
        thinking_budget: tokens for reasoning, where a server takes a number.
        prompt_caching: mark what comes again and again (tools, system prompt, the transcript so far) to be kept by
            the server for so long, where it must be marked. Other servers cache by themselves.
        response_schema: a JSON Schema, of type object, that a text answer must fit; see `Output`.
        tool_choice: ``"auto"``, ``"none"``, ``"required"``, or the name of a tool.
        extra_body, extra_headers: passed through as they are.
    """

    temperature: float | None = attrs.field(default=None, validator=_optional((int, float)))
    max_output_tokens: int | None = attrs.field(default=None, validator=_optional(int))
    stop_sequences: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    reasoning_effort: str | None = attrs.field(default=None, validator=_optional(str))
    thinking_budget: int | None = attrs.field(default=None, validator=_optional(int))
    prompt_caching: Literal["5m", "1h"] | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.in_(("5m", "1h")))
    )
    tool_choice: str | None = attrs.field(default=None, validator=_optional(str))
    response_schema: Mapping[str, Any] | None = attrs.field(
        default=None, converter=freeze, validator=_optional(Mapping), repr=False
    )
    extra_body: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=freeze)
    # headers may hold keys, and a repr ends up in logs
    extra_headers: Mapping[str, str] = attrs.field(factory=FrozenDict, converter=freeze, repr=False)


@attrs.frozen
class ToolContext(Generic[DepsT]):
    """What a running tool knows about its call. Annotate it as ``ToolContext[MyDeps]`` to have `deps` typed.

    Attributes:
        tool_call_id, tool_name: which call this is.
        deps: what the agent was given as ``deps``: database handles, the user, what would else be a global. Not
            copied; the run never looks into it.
    """

    tool_call_id: str
    tool_name: str = ""
    deps: DepsT = attrs.field(default=None, kw_only=True, repr=False, eq=False)
    _report: Callable[[ToolResult], bool] = attrs.field(
        default=lambda partial: False, alias="report", repr=False, eq=False
    )
    _room: Callable[[], Awaitable[None]] | None = attrs.field(default=None, alias="room", repr=False, eq=False)
    _run: Any = attrs.field(default=None, alias="run", repr=False, eq=False, kw_only=True)

    def update(self, partial: Content | ToolResult) -> bool:
        """Report progress: one `ToolExecutionUpdate`. Never blocks, never fails because of a reader.

        Returns:
            False if nothing was reported: the tool has already returned, or the reader is so far behind that
            more progress would only fill memory (``await room()`` waits for it).
        """
        return self._report(partial if isinstance(partial, ToolResult) else ToolResult(partial))

    async def room(self) -> None:
        """Wait while the run's readers are behind. A checkpoint; only for async tools."""
        if self._room is not None:
            await self._room()

    def in_thread(self, report: Callable[[ToolResult], bool]) -> "ToolContext[DepsT]":
        """The same context for code in a worker thread: nothing of trio's is in reach but ``report``."""
        return ToolContext(self.tool_call_id, self.tool_name, report, deps=self.deps)


@attrs.frozen
class Tool:
    """A tool as the model and the loop see it. Usually made with the `tool` decorator.

    Args:
        name: what the model calls; letters, digits, ``_`` and ``-``.
        description: for the model.
        parameters: a JSON Schema of type object for the arguments.
        execute: ``async execute(arguments, context)``. Gets a fresh dict that passed validation. Returns a
            string, content parts, a `ToolResult`, or any value that JSON can hold. An exception becomes an error
            result; raise `ToolError` to choose its text. It runs in its own cancel scope.
        timeout: seconds after which a call is cut and gets an error result.
        atomic: once started, an abort or a cancellation lets it go on for up to the agent's ``abort_grace``
            seconds before it is cut.
        sequential: a batch with this tool in it runs one call at a time, also with ``tool_execution="parallel"``.
        validate: replaces the check against ``parameters``: returns the arguments to use, or raises ValueError
            with a text for the model.
    """

    name: str = attrs.field()
    description: str = attrs.field(validator=attrs.validators.instance_of(str))
    parameters: Mapping[str, Any] = attrs.field(converter=freeze, repr=False)
    execute: Callable[[dict[str, Any], ToolContext], Awaitable[Any]] = attrs.field(repr=False)
    timeout: float | None = attrs.field(default=None, kw_only=True)
    atomic: bool = attrs.field(default=False, kw_only=True)
    sequential: bool = attrs.field(default=False, kw_only=True)
    validate: Callable[[dict[str, Any]], dict[str, Any]] | None = attrs.field(default=None, kw_only=True, repr=False)

    @name.validator
    def _check_name(self, attribute: object, value: object) -> None:
        if not isinstance(value, str) or not value or not all(c.isalnum() or c in "_-" for c in value):
            raise ValueError(f"Tool name must be letters, digits, '_' and '-', not {value!r}")

    @parameters.validator
    def _check_parameters(self, attribute: object, value: object) -> None:
        if not isinstance(value, dict) or value.get("type", "object") != "object":
            raise TypeError(f"Tool {self.name!r}: parameters must be a JSON Schema of type object")

    @execute.validator
    def _check_execute(self, attribute: object, value: object) -> None:
        if not callable(value):
            raise TypeError(f"Tool {self.name!r}: execute must be an async callable(arguments, context)")

    @timeout.validator
    def _check_timeout(self, attribute: object, value: float | None) -> None:
        if value is not None and not value > 0:
            raise ValueError(f"Tool {self.name!r}: timeout must be a positive number of seconds, not {value!r}")


async def _for_ever() -> None:
    # ports know nothing of trio; whoever makes a HookContext by hand waits for nothing
    raise RuntimeError("this HookContext belongs to no run")


class _Verdict(Enum):
    """What a hook may say of a call besides letting it go on, blocking it and changing its arguments."""

    SKIP = "skip"


SKIP: Final[Literal[_Verdict.SKIP]] = _Verdict.SKIP
"""What a ``before_tool_call`` hook returns to have the call skipped for a steering message that came while it waited
(`HookContext.wait_steered`): the call gets the result that skipped calls have."""


@attrs.frozen
class HookContext:
    """What a hook around tool calls knows besides the call, if it has a third parameter.

    Attributes:
        tool: the tool that is called.
        deps: what the agent was given as ``deps``.
    """

    tool: Tool
    deps: Any = attrs.field(default=None, repr=False)
    _steered: Callable[[], Awaitable[None]] = attrs.field(default=_for_ever, alias="steered", repr=False, eq=False)

    async def wait_steered(self) -> None:
        """Wait until a steering message is queued that would skip calls not yet started; for ever with
        ``steering_point="turn"``. A checkpoint; cancelling the wait changes nothing. Return `SKIP` then."""
        await self._steered()


@attrs.frozen
class ModelRequest:
    """One request: what `convert_to_llm` returned, and what stood beside it at that moment."""

    system_prompt: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    options: ModelOptions = attrs.field(factory=ModelOptions)


class MessageWriter(Protocol):
    """Where a model puts its response, piece by piece. Blocks open and close by themselves.

    Each awaited method is a checkpoint: it takes effect at once, then may wait for the run's readers.
    """

    async def text(self, delta: str) -> None:
        """More text."""

    async def thinking(self, delta: str, signature: str | None = None) -> None:
        """More reasoning; a signature, once given, belongs to the block."""

    async def tool_call_start(self, id: str, name: str) -> None:
        """Open a tool call. Raises `ModelProtocolError` for an empty or repeated id, or an empty name."""

    async def tool_call_delta(self, json_fragment: str) -> None:
        """More of the open call's arguments, as JSON text."""

    async def tool_call_end(self, extra: Mapping[str, Any] = FrozenDict()) -> None:
        """Close the open call. ``extra``: what else the server said of it and wants back; see `ToolCall.extra`."""

    async def tool_call(self, id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """A whole call at once."""

    async def redacted_thinking(self, signature: str) -> None:
        """Reasoning whose text the provider hides: a block of its own, with what stands for it."""

    def usage(self, usage: Usage) -> None:
        """Tokens of this response; the last value counts."""

    def finish(self, stop_reason: StopReason, raw: str | None = None) -> None:
        """Why the response ended, and what the server called that. Without it: ``tool_use`` if there are calls, else
        ``stop``."""

    def retrying(self, error: ModelError, *, attempt: int, delay: float, model: "Model") -> None:
        """A request failed before anything of its response was written, and ``model`` is asked after ``delay``
        seconds: one `ModelRetry`. The message will be that model's."""


@runtime_checkable
class Model(Protocol):
    """A model: anything with a name, a provider and this one coroutine."""

    @property
    def name(self) -> str:
        """What the provider calls it."""

    @property
    def provider(self) -> str:
        """Who serves it."""

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Push the response into ``out`` and return; when it has returned, it is over.

        Raises:
            ModelError: the provider failed; what was written is kept. Anything else counts as a bug.
        """
