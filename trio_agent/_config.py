"""What a run is told: models, tools, hooks, limits; checked when it is said, not when it is used."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from ._context import ConvertToLlm, TransformContext, default_convert_to_llm
from ._limits import Limits
from ._messages import Message
from ._tools import check_schema
from .abc import HookContext, Model, ModelOptions, Tool

__all__ = [
    "AfterToolCall",
    "AgentLoopConfig",
    "BeforeToolCall",
    "MessageSource",
    "RunSettings",
    "check_messages",
    "check_model",
    "check_tools",
    "takes_context",
]

MessageSource: TypeAlias = Callable[[], Sequence[Message | str] | Awaitable[Sequence[Message | str]]]
BeforeToolCall: TypeAlias = Callable[..., Any]
"""``(call, arguments)`` or ``(call, arguments, context)``; see `AgentLoopConfig`."""

AfterToolCall: TypeAlias = Callable[..., Any]
"""``(call, result)`` or ``(call, result, context)``; see `AgentLoopConfig`."""


def check_model(model: object) -> Model:
    """The model, or a TypeError that names what it lacks."""
    for attribute in ("stream", "name", "provider"):
        if not hasattr(model, attribute):
            raise TypeError(
                f"model must have name, provider and 'async def stream(request, out)'; "
                f"{type(model).__name__} has no {attribute!r}"
            )
    return model  # type: ignore[return-value]


def check_messages(messages: Iterable[Message]) -> list[Message]:
    """A list of its own of the messages, or a TypeError that names the one that is none."""
    checked = list(messages)
    for index, message in enumerate(checked):
        if not isinstance(message, Message):
            raise TypeError(f"messages[{index}] must be a message, not {type(message).__name__}")
    return checked


def check_tools(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by name.

    Raises:
        TypeError: something is not a `Tool`.
        ValueError: two tools have one name, or a schema is not valid.
    """
    by_name: dict[str, Tool] = {}
    for index, item in enumerate(tools):
        if not isinstance(item, Tool):
            raise TypeError(
                f"tools[{index}] must be a Tool, not {type(item).__name__}; decorate the function with @tool"
            )
        if item.name in by_name:
            raise ValueError(f"tools: two tools have the name {item.name!r}; give one of them another name")
        check_schema(item)
        by_name[item.name] = item
    return by_name


def takes_context(hook: Callable[..., Any]) -> bool:
    """Does a hook around tool calls want its `HookContext`? If it has a third parameter, and that one no default,
    which would show that it is for something else (unless it is annotated as one)."""
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (TypeError, ValueError):
        return False
    if len(parameters) < 3 or parameters[2].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        return False
    hint = parameters[2].annotation
    return parameters[2].default is parameters[2].empty or hint is HookContext or "HookContext" in str(hint)


def _one_of(*allowed: str) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value not in allowed:
            raise ValueError(f"{attribute.name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")

    return check


def _optional_callable(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{attribute.name} must be a callable or None, not {type(value).__name__}")


def _at_least(least: float, *, none: bool = False) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value is None and none:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            raise ValueError(f"{attribute.name} must be a number of at least {least}, not {value!r}")

    return check


@attrs.define
class AgentLoopConfig:
    """What a run is told besides its context.

    Args:
        model: see `Model`.
        transform_context, convert_to_llm: the two steps before each request, in this order; sync or async.
        get_steering_messages, get_follow_up_messages: where the functional layer gets queued messages from; sync
            or async; called at the steering points and before the run would end. `Agent` uses its queues instead.
        options: settings of the requests.
        tool_execution: ``"sequential"`` or ``"parallel"``.
        steering_point: look at steering after each ``"tool"``, or only when a ``"turn"``'s whole batch is done.
        on_tool_error: ``"result"`` gives the model an error result; ``"raise"`` ends the run with whatever a tool
            raised, except `ToolError`.
        max_parallel_tools: at most so many tools of a parallel batch run at a time; a further call is taken up, and
            steering is looked at for it, when one of them has ended.
        before_tool_call: ``(call, arguments)``, sync or async: None lets the call go on, a string blocks it with
            that reason, a dict replaces the arguments (they are checked again), `SKIP` skips it as steering does.
            One with a third parameter gets a `HookContext` there.
        after_tool_call: ``(call, result)``, sync or async: None keeps the result, anything else replaces it. It may
            take a `HookContext` too.
        max_turns: the same as ``limits=Limits(turns=...)``; the smaller one counts.
        limits: how far the run may go; see `Limits`.
        output: what value a functional run is to give, a type or an `Output`; with an `Agent` it is said per run.
        deps: what tools find as `ToolContext.deps`, and hooks as `HookContext.deps`.
        abort_grace: seconds that an atomic tool may go on after an abort or a cancellation.
        max_buffered_events: how many events may wait for a reader before the run waits for it.
    """

    model: Model = attrs.field(converter=check_model)
    transform_context: TransformContext | None = attrs.field(default=None, validator=_optional_callable)
    convert_to_llm: ConvertToLlm = attrs.field(default=default_convert_to_llm, validator=attrs.validators.is_callable())
    get_steering_messages: MessageSource | None = attrs.field(default=None, validator=_optional_callable)
    get_follow_up_messages: MessageSource | None = attrs.field(default=None, validator=_optional_callable)
    options: ModelOptions = attrs.field(factory=ModelOptions, validator=attrs.validators.instance_of(ModelOptions))
    tool_execution: Literal["sequential", "parallel"] = attrs.field(
        default="sequential", validator=_one_of("sequential", "parallel")
    )
    steering_point: Literal["tool", "turn"] = attrs.field(default="tool", validator=_one_of("tool", "turn"))
    on_tool_error: Literal["result", "raise"] = attrs.field(default="result", validator=_one_of("result", "raise"))
    before_tool_call: BeforeToolCall | None = attrs.field(default=None, validator=_optional_callable)
    after_tool_call: AfterToolCall | None = attrs.field(default=None, validator=_optional_callable)
    max_turns: int | None = attrs.field(default=None, validator=_at_least(1, none=True))
    max_parallel_tools: int | None = attrs.field(default=None, validator=_at_least(1, none=True))
    limits: Limits = attrs.field(factory=Limits, validator=attrs.validators.instance_of(Limits))
    output: Any = None
    deps: Any = None
    abort_grace: float = attrs.field(default=5.0, validator=_at_least(0.0))
    max_buffered_events: int = attrs.field(default=1024, validator=_at_least(1))

    @property
    def all_limits(self) -> Limits:
        """`limits` with `max_turns` in them."""
        if self.max_turns is None:
            return self.limits
        turns = min(self.max_turns, self.limits.turns or self.max_turns)
        return attrs.evolve(self.limits, turns=turns)


@attrs.define
class RunSettings:
    """What the loop reads anew before each request: a change takes effect at the next one, also in mid-run."""

    config: AgentLoopConfig
    system_prompt: str = attrs.field(default="", validator=attrs.validators.instance_of(str))
    tools: dict[str, Tool] = attrs.field(factory=dict)
