"""What a function takes, as a model must be told: its parameters as a closed msgspec type and as a JSON Schema.

msgspec builds the schema and later converts the arguments, because it knows attrs classes, dataclasses, TypedDict,
Literal and Annotated constraints, and does both in C.
"""

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

import attrs
import msgspec

from ._docstrings import Described, describe
from .abc import ToolContext

__all__ = ["Parameters", "check_nested", "closed_schema", "innermost", "parameters_of", "readable", "whose_signature"]

_CONSTRAINTS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


@attrs.frozen
class Parameters:
    """A function's parameters.

    Attributes:
        struct: what the model sends, as a type.
        schema: the same as a JSON Schema: a closed object, nothing of it behind a ``$ref`` at the root.
        contexts: names of the parameters that take the `ToolContext`.
        text: what the docstring says about the function.
    """

    struct: type[msgspec.Struct]
    schema: dict[str, Any]
    contexts: tuple[str, ...]
    text: str


def parameters_of(function: Callable[..., Any], tool_name: str) -> Parameters:
    """Read a function's parameters.

    Raises:
        TypeError: see `trio_agent.tool`; the message names the parameter and the fix.
    """
    described = _description_of(function)
    hints = _hints(function, tool_name)
    fields: list[tuple[str, Any, Any]] = []
    notes: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    contexts: list[str] = []
    for parameter in _visible_parameters(function, tool_name):
        name, hint = parameter.name, _hint_of(parameter, hints, tool_name)
        if _is_context(hint):
            contexts.append(name)
            continue
        try:
            hint, note = readable(hint), _note_in(hint)
            check_nested(hint)
            if parameter.default is None:
                hint = Union[hint, None]  # noqa: UP007 - `x: int = None` means this, whatever hint is
            msgspec.json.schema(hint)
        except Exception as error:
            raise TypeError(f"tool {tool_name!r}: parameter {name!r}: its type has no JSON Schema: {error}") from error
        notes[name] = note or described.parameters.get(name, "")
        if parameter.default is parameter.empty:
            fields.append((name, hint, msgspec.NODEFAULT))
        else:
            # the function has its own default; this one is never looked at
            fields.append((name, hint, msgspec.UNSET))
            defaults[name] = parameter.default
    struct = msgspec.defstruct(tool_name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = closed_schema(struct)
    for name, note in notes.items():
        shown = schema["properties"][name]
        shown.pop("default", None)
        if note and "description" not in shown:
            shown["description"] = note
        if name in defaults and (default := _as_json(defaults[name])) is not msgspec.UNSET:
            shown["default"] = default
    return Parameters(struct, schema, tuple(contexts), described.text)


# the function --------------------------------------------------------------------------------------------------------


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a partial, a method or a decorated function leads to, or a callable object's ``__call__``."""
    inner: Any = function
    while True:
        if isinstance(inner, functools.partial):
            inner = inner.func
        elif inspect.ismethod(inner):
            inner = inner.__func__
        elif hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        elif not inspect.isroutine(inner) and not isinstance(inner, type):
            inner = type(inner).__call__
        else:
            return inner


def whose_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """What gives a function its name and its docstring: itself, or what a partial was made of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _description_of(function: Callable[..., Any]) -> Described:
    named = whose_signature(function)
    if inspect.isroutine(named) or hasattr(named, "__wrapped__"):
        return describe(named)
    call = type(named).__call__
    # asked of the method itself: getdoc() would find what Python says about every __call__ there is
    return describe(call if call.__doc__ else type(named))


def _hints(function: Callable[..., Any], tool_name: str) -> dict[str, Any]:
    inner = innermost(function)
    # the return annotation is nothing to a model, and may name what exists for type checkers only
    named = {name: hint for name, hint in getattr(inner, "__annotations__", {}).items() if name != "return"}
    cells = getattr(inner, "__closure__", None) or ()
    around = {}
    for name, cell in zip(getattr(getattr(inner, "__code__", None), "co_freevars", ()), cells, strict=False):
        try:
            around[name] = cell.cell_contents
        except ValueError:
            continue  # an empty cell: a name that is bound later
    try:
        return typing.get_type_hints(
            types.SimpleNamespace(__annotations__=named),
            globalns=getattr(inner, "__globals__", {}),
            localns=around,
            include_extras=True,
        )
    except Exception as error:
        raise TypeError(
            f"tool {tool_name!r}: an annotation cannot be resolved: {error}; a type that is named in a string must be "
            "defined at the level of its module"
        ) from error


def _visible_parameters(function: Callable[..., Any], tool_name: str) -> Iterator[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise TypeError(f"tool {tool_name!r}: {error}; wrap it in a function with annotations") from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    for parameter in parameters:
        if parameter.name in bound:
            continue  # whoever bound it did not mean it for the model
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {tool_name!r}: parameter {parameter} cannot be named by a model; "
                "use parameters that can be passed by keyword"
            )
        yield parameter


def _hint_of(parameter: inspect.Parameter, hints: Mapping[str, Any], tool_name: str) -> Any:
    if parameter.name in hints:
        return hints[parameter.name]
    if parameter.name in ("self", "cls"):
        raise TypeError(
            f"tool {tool_name!r}: it takes {parameter.name!r}, so it is a method of no object yet; make the tool of a "
            "bound method: tool(obj.method)"
        )
    raise TypeError(
        f"tool {tool_name!r}: parameter {parameter.name!r} has no annotation; write {parameter.name}: str, for example"
    )


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated or get_origin(hint) in (Union, types.UnionType):
        return any(_is_context(part) for part in get_args(hint))
    return hint is ToolContext or get_origin(hint) is ToolContext


# annotations ---------------------------------------------------------------------------------------------------------


def readable(hint: Any) -> Any:
    """A hint with every constraint in msgspec's form: annotated_types and pydantic's ``Field`` are understood too."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metas = [meta for extra in arguments[1:] for meta in _metas(extra)]
        inner = readable(arguments[0])
        return Annotated[(inner, *metas)] if metas else inner
    if origin in (Union, types.UnionType):
        return Union[tuple(readable(part) for part in arguments)]  # noqa: UP007 - made of a tuple
    if origin in (list, dict, set, frozenset, tuple) or getattr(origin, "__module__", "") == "collections.abc":
        return origin[tuple(part if part is ... else readable(part) for part in arguments)]
    return hint


def _metas(extra: Any) -> Iterator[msgspec.Meta]:
    if isinstance(extra, msgspec.Meta):
        yield extra
        return
    limits = _limits(extra)
    if limits:
        yield msgspec.Meta(**limits)


def _limits(extra: Any) -> dict[str, Any]:
    """The constraints of an annotated_types object, or of what gathers several (pydantic's ``Field``)."""
    if isinstance(extra, str | type):
        return {}
    parts = [extra, *extra.metadata] if isinstance(getattr(extra, "metadata", None), list | tuple) else [extra]
    limits: dict[str, Any] = {}
    for part in parts:
        found = {name: getattr(part, name, None) for name in _CONSTRAINTS}
        limits |= {name: limit for name, limit in found.items() if limit is not None and not callable(limit)}
    if limits.get("min_length") == 0:
        del limits["min_length"]  # no limit at all, and not one that a number could have
    return limits


def _note_in(hint: Any) -> str:
    """A parameter's description: a string in its Annotated, a ``Doc``, or what has a ``description``."""
    if get_origin(hint) is not Annotated:
        return ""
    for extra in get_args(hint)[1:]:
        note = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
        note = note or getattr(extra, "description", None)
        if isinstance(note, str) and note:
            return note
    return ""


def check_nested(hint: Any) -> None:
    """Raise TypeError for a class with constraints that are not msgspec's own: it would ignore them, and we cannot put
    others in their place."""
    for kind in _object_types(msgspec.inspect.type_info(hint), set()):
        cls = get_origin(kind.cls) or kind.cls
        for name, inner in typing.get_type_hints(cls, include_extras=True).items():
            for part in _annotations(inner):
                if not isinstance(part, msgspec.Meta) and _limits(part):
                    raise TypeError(f"{cls.__name__}.{name}: write the constraint {part!r} as msgspec.Meta(...)")


def _annotations(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from get_args(hint)[1:]
    for part in get_args(hint):
        if get_origin(part) is not None:
            yield from _annotations(part)


def _object_types(kind: Any, seen: set[int]) -> Iterator[Any]:
    if id(kind) in seen:
        return
    seen.add(id(kind))
    if isinstance(
        kind,
        msgspec.inspect.StructType
        | msgspec.inspect.DataclassType
        | msgspec.inspect.TypedDictType
        | msgspec.inspect.NamedTupleType,
    ):
        yield kind
    for name in getattr(kind, "__struct_fields__", ()):
        value = getattr(kind, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
                yield from _object_types(part, seen)


# schemas -------------------------------------------------------------------------------------------------------------


def closed_schema(type_: Any) -> dict[str, Any]:
    """The JSON Schema of a type: its root inlined, and every object in it closed."""
    schema = msgspec.json.schema(type_)
    definitions = schema.get("$defs", {})
    root: dict[str, Any] = schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        root = dict(definitions[name])
        if not _mentions(definitions, schema["$ref"]):
            del definitions[name]
    root.pop("title", None)
    if definitions:
        root["$defs"] = definitions
    _close(root)
    return root


def _mentions(value: Any, reference: str) -> bool:
    if isinstance(value, dict):
        return value.get("$ref") == reference or any(_mentions(item, reference) for item in value.values())
    return isinstance(value, list) and any(_mentions(item, reference) for item in value)


def _close(value: Any) -> None:
    if isinstance(value, dict):
        if value.get("type") == "object" and isinstance(value.get("properties"), dict):
            value.setdefault("additionalProperties", False)
        for name, item in value.items():
            if name not in ("default", "enum", "const", "examples"):
                _close(item)
    elif isinstance(value, list):
        for item in value:
            _close(item)


def _as_json(default: Any) -> Any:
    """A default as the schema shows it; UNSET if JSON cannot express it."""
    try:
        value = msgspec.to_builtins(default)
    except (TypeError, ValueError, RecursionError):
        return msgspec.UNSET
    return msgspec.UNSET if isinstance(value, float) and not math.isfinite(value) else value
