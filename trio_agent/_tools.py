"""From a typed function to a `Tool`, from a call's arguments to the function's, from what it returns to a result.

What the function takes is read by ``_parameters``, what a model sent is converted by ``_arguments``; jsonschema-rs
checks the arguments of tools that bring a raw schema.
"""

import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, overload

import msgspec
import trio

from ._arguments import Converter
from ._frozen import thaw
from ._messages import Content, Part, ToolCall, ToolResult
from ._parameters import innermost, parameters_of, whose_signature
from .abc import Tool, ToolContext

if TYPE_CHECKING:
    from jsonschema_rs import Validator

__all__ = ["check_arguments", "check_call", "check_schema", "to_result", "tool"]


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    atomic: bool = False,
    sequential: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    atomic: bool = False,
    sequential: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a typed function; usable with and without arguments.

    Also of a bound method, a closure, a `functools.partial` (what it binds by keyword is not the model's business) or
    an object with a typed ``__call__``. An async function runs in the scope of its call and is cut at its next
    checkpoint by an abort or a cancellation. A sync function runs in a worker thread and is always waited for. A
    parameter annotated `ToolContext` is filled in by the runtime and not shown to the model.

    The schema is a closed object: arguments that the function does not have are refused. The docstring (Google,
    NumPy or reST form) describes the function and its parameters; ``Annotated[int, "how many"]`` describes one too,
    and carries constraints (``msgspec.Meta(ge=1)``, or those of annotated_types). Numbers and booleans that a model
    sent as strings are converted, and so are lists and objects sent as JSON text; every field that fails is named in
    the result that the model gets.

    Args:
        function: every parameter needs an annotation that JSON can express.
        name, description: instead of the function's own.
        timeout, atomic, sequential: see `Tool`.

    Raises:
        TypeError: a parameter without annotation, ``*args`` / ``**kwargs`` / positional-only parameters, a type that
            JSON cannot express or an annotation that cannot be resolved (the message names the parameter); a
            generator, a class, a lambda without ``name=``.
    """
    if function is None:
        return functools.partial(
            _make_tool,
            name=name,
            description=description,
            timeout=timeout,
            atomic=atomic,
            sequential=sequential,
        )
    return _make_tool(function)


def _make_tool(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None, **settings: Any
) -> Tool:
    if not callable(function) or isinstance(function, type):
        kind = "the class " + function.__name__ if isinstance(function, type) else type(function).__name__
        raise TypeError(f"tool: expected a function or a callable object, got {kind}; use @tool or @tool(name=...)")
    tool_name = name if name is not None else _name_of(function)
    inner = innermost(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise TypeError(
            f"tool {tool_name!r}: a generator gives a model nothing; return the value, and report what comes before "
            "it with ToolContext.update()"
        )
    parameters = parameters_of(function, tool_name)
    return Tool(
        tool_name,
        description if description is not None else parameters.text,
        parameters.schema,
        _executor(function, parameters.contexts),
        validate=Converter(parameters.struct),
        **settings,
    )


def _name_of(function: Callable[..., Any]) -> str:
    named = whose_signature(function)
    name = getattr(named, "__name__", None) or type(named).__name__
    if name == "<lambda>":
        raise TypeError("tool: a lambda has no name; use tool(name=...)")
    return str(name)


def _executor(
    function: Callable[..., Any], contexts: tuple[str, ...]
) -> Callable[[dict[str, Any], ToolContext], Awaitable[Any]]:
    def bind(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {**arguments, **dict.fromkeys(contexts, context)} if contexts else arguments

    async def run_async(arguments: dict[str, Any], context: ToolContext) -> Any:
        # in one line: an interrupt between the call and the await would leave a coroutine that was never awaited
        return await value if inspect.isawaitable(value := function(**bind(arguments, context))) else value

    async def run_in_thread(arguments: dict[str, Any], context: ToolContext) -> Any:
        token = trio.lowlevel.current_trio_token()
        worker: list[int] = []

        def report(partial: ToolResult) -> bool:
            # a thread that the tool started itself is none of trio's, and may report when trio's run is over
            of_its_own = threading.get_ident() not in worker
            try:
                return trio.from_thread.run_sync(context.update, partial, trio_token=token if of_its_own else None)
            except trio.RunFinishedError:
                return False

        def call() -> Any:
            worker.append(threading.get_ident())
            try:
                return function(**bound)
            finally:
                worker.clear()

        bound = bind(arguments, context.in_thread(report))
        # the name is how the guard of a run finds the line at which a thread is that outstays its run
        task = trio.lowlevel.current_task()
        value = await trio.to_thread.run_sync(call, thread_name=f"tool {context.tool_name} {id(task):x}")
        return await value if inspect.isawaitable(value) else value

    return run_async if inspect.iscoroutinefunction(innermost(function)) else run_in_thread


def _refuse_remote(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is not part of the schema, and nothing is fetched")


@functools.lru_cache(maxsize=256)
def _validator(tool: "_ByIdentity") -> "Validator":
    import jsonschema_rs  # only raw schemas need it

    try:
        return jsonschema_rs.validator_for(thaw(tool.value.parameters), retriever=_refuse_remote)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"tool {tool.value.name!r}: parameters is not a valid JSON Schema: {error.message}") from error


class _ByIdentity:
    """A cache key for a tool: schemas are not hashable, and comparing them would cost more than checking."""

    __slots__ = ("value",)

    def __init__(self, value: Tool) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value


def check_schema(tool: Tool) -> None:
    """Raise ValueError if a tool's own schema is not valid JSON Schema; one that @tool made always is."""
    if tool.validate is None:
        _validator(_ByIdentity(tool))


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments to run ``tool`` with: a fresh, checked dict.

    Raises:
        ValueError: names every failing field and why, in words for the model.
    """
    if isinstance(tool.validate, Converter):
        return tool.validate(arguments)
    fresh: dict[str, Any] = thaw(arguments)
    if tool.validate is not None:
        return tool.validate(fresh)
    lines = [
        f"{'.'.join(map(str, error.instance_path))}: {error.message}" if error.instance_path else error.message
        for error in _validator(_ByIdentity(tool)).iter_errors(fresh)
    ]
    if lines:
        raise ValueError("; ".join(sorted(lines)))
    return fresh


def check_call(tool: Tool, call: ToolCall) -> dict[str, Any]:
    """The arguments to run ``tool`` with, of a call as the model sent it: a fresh, checked dict.

    Raises:
        ValueError: as `check_arguments`, or the model's text is not a JSON object.
    """
    if call.unparsed is not None and isinstance(tool.validate, Converter):
        arguments = tool.validate.from_text(call.unparsed)
        if arguments is not None:
            return arguments
    if call.arguments_error is not None:
        raise ValueError(call.arguments_error)
    return check_arguments(tool, call.arguments)


def to_result(value: Any) -> ToolResult:
    """What a tool returned, as a `ToolResult`: itself, a string, content parts, or the value as JSON.

    Raises:
        TypeError: the value is none of these and JSON cannot hold it.
    """
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(())
    if isinstance(value, str | Part) or (
        isinstance(value, tuple | list) and value and all(isinstance(item, Part) for item in value)
    ):
        content: Content = value
        return ToolResult(content)
    return ToolResult(msgspec.json.encode(value).decode())
