"""From a typed function to a `Tool`: name, description, JSON Schema, checked and converted arguments.

msgspec builds the schema and converts, because it knows attrs classes, dataclasses, TypedDict, Literal and
Annotated constraints; jsonschema checks the arguments of tools that bring a raw schema.
"""

import functools
import inspect
import threading
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import msgspec
import trio

from ._frozen import thaw
from ._messages import Content, Part, ToolResult
from .abc import Tool, ToolContext

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["check_arguments", "check_schema", "to_result", "tool"]


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

    An async function runs in the scope of its call and is cut at its next checkpoint by an abort or a
    cancellation. A sync function runs in a worker thread and is always waited for. A parameter annotated
    `ToolContext` is filled in by the runtime and not shown to the model.

    Args:
        function: every parameter needs an annotation; its docstring is the description.
        name, description: instead of the function's own.
        timeout, atomic, sequential: see `Tool`.

    Raises:
        TypeError: a parameter without annotation, ``*args`` / ``**kwargs`` / positional-only parameters, or a
            type that JSON cannot express; the message names the parameter.
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
    if not callable(function):
        raise TypeError(f"tool: expected a function, got {type(function).__name__}; use @tool or @tool(name=...)")
    return _make_tool(function)


def _make_tool(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None, **settings: Any
) -> Tool:
    tool_name: str = name or str(getattr(function, "__name__", ""))
    arguments_type, context_parameter = _arguments_type(function, tool_name)
    return Tool(
        tool_name,
        description if description is not None else inspect.getdoc(function) or "",
        _schema_of(arguments_type, tool_name),
        _executor(function, context_parameter),
        validate=_converter(arguments_type),
        **settings,
    )


def _arguments_type(function: Callable[..., Any], tool_name: str) -> tuple[type[msgspec.Struct], str | None]:
    """The function's parameters as a closed msgspec type, and the name of its ToolContext parameter."""
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {tool_name!r}: parameter {parameter} cannot be named by a model; "
                "use parameters that can be passed by keyword"
            )
        if parameter.name not in hints:
            raise TypeError(
                f"tool {tool_name!r}: parameter {parameter.name!r} has no annotation; "
                f"write {parameter.name}: str, for example"
            )
        hint = hints[parameter.name]
        if hint is ToolContext:
            context_parameter = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            default = parameter.default
            if isinstance(default, list | dict | set | bytearray):
                default = msgspec.field(default_factory=functools.partial(type(default), default))
            fields.append((parameter.name, hint, default))
    struct = msgspec.defstruct(tool_name, fields, kw_only=True, forbid_unknown_fields=True)
    return struct, context_parameter


def _schema_of(arguments_type: type[msgspec.Struct], tool_name: str) -> dict[str, Any]:
    try:
        schema = msgspec.json.schema(arguments_type)
    except Exception as error:
        raise TypeError(f"tool {tool_name!r}: a parameter's type has no JSON Schema: {error}") from error
    definitions = schema.get("$defs", {})
    root = dict(definitions.pop(schema["$ref"].rsplit("/", 1)[-1])) if "$ref" in schema else schema
    root.pop("title", None)
    if definitions:
        root["$defs"] = definitions
    return root


def _converter(arguments_type: type[msgspec.Struct]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    fields = msgspec.structs.fields(arguments_type)
    known = {field.name for field in fields}

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        """Each field by itself, so that the model is told of every failing one and not of the first."""
        problems = [f"{name}: unknown argument" for name in arguments if name not in known]
        values: dict[str, Any] = {}
        for field in fields:
            if field.name not in arguments:
                if field.required:
                    problems.append(f"{field.name}: required argument is missing")
                continue
            try:
                values[field.name] = msgspec.convert(arguments[field.name], field.type, strict=False)
            except msgspec.ValidationError as error:
                problems.append(f"{field.name}: {error}")
        if problems:
            raise ValueError("; ".join(problems))
        return values

    return convert


def _executor(
    function: Callable[..., Any], context_parameter: str | None
) -> Callable[[dict[str, Any], ToolContext], Awaitable[Any]]:
    def bind(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return arguments if context_parameter is None else {**arguments, context_parameter: context}

    async def run_async(arguments: dict[str, Any], context: ToolContext) -> Any:
        return await function(**bind(arguments, context))

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

        outside = ToolContext(context.tool_call_id, context.tool_name, report=report)
        bound = bind(arguments, outside)
        # the name is how the guard of a run finds the line at which a thread is that outstays its run
        task = trio.lowlevel.current_task()
        return await trio.to_thread.run_sync(call, thread_name=f"tool {context.tool_name} {id(task):x}")

    target = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    is_async = inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 - a callable object with an async __call__
    )
    return run_async if is_async else run_in_thread


@functools.lru_cache(maxsize=256)
def _validator(tool: "_ByIdentity") -> "Validator":
    import jsonschema  # costs as much as trio to import, and only raw schemas need it

    schema = thaw(tool.value.parameters)
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        cls.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"tool {tool.value.name!r}: parameters is not a valid JSON Schema: {error.message}") from error
    return cls(schema)


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
    fresh: dict[str, Any] = thaw(arguments)
    if tool.validate is not None:
        return tool.validate(fresh)
    errors = sorted(_validator(_ByIdentity(tool)).iter_errors(fresh), key=lambda error: list(error.absolute_path))
    if errors:
        lines = [
            f"{'.'.join(map(str, error.absolute_path))}: {error.message}" if error.absolute_path else error.message
            for error in errors
        ]
        raise ValueError("; ".join(lines))
    return fresh


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
