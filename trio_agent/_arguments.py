"""What a model sent, as what a function takes: lenient where models are known to err, and never with nonsense.

The whole object is converted by one call into C. Only if that fails is it looked at piece by piece, to name *every*
field that is wrong, and to mend what is known to be mendable: a list or an object that was sent as JSON text.
"""

import datetime
import decimal
import json
import math
import re
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import inspect as mi

from ._frozen import thaw
from ._json import refuse_constant

__all__ = ["Converter", "convert_to"]

_LEAVES: Final[Mapping[type, Any]] = {
    mi.AnyType: Any,
    mi.NoneType: None,
    mi.BoolType: bool,
    mi.IntType: int,
    mi.FloatType: float,
    mi.StrType: str,
    mi.BytesType: bytes,
    mi.ByteArrayType: bytearray,
    mi.MemoryViewType: memoryview,
    mi.RawType: msgspec.Raw,
    mi.DateTimeType: datetime.datetime,
    mi.DateType: datetime.date,
    mi.TimeType: datetime.time,
    mi.TimeDeltaType: datetime.timedelta,
    mi.UUIDType: uuid.UUID,
    mi.DecimalType: decimal.Decimal,
}
_OBJECTS: Final = (mi.StructType, mi.DataclassType, mi.TypedDictType)
_ARRAYS: Final = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType, mi.TupleType, mi.NamedTupleType)
_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_NO_NUMBER: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_PLACE: Final = re.compile(r"(?s)(.*) - at `\$\.?(.*)`")


class Converter:
    """Checks and converts the arguments of one tool; made once, with the tool.

    Args:
        struct: the closed type of all arguments.
    """

    __slots__ = ("_copies", "_looks", "_struct", "_type")

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct
        self._type = mi.type_info(struct)
        fields = {field.encode_name: field.type for field in self._type.fields}  # type: ignore[attr-defined]
        # what msgspec would let through or pass on as it is; most tools have none of either
        self._looks = [
            (name, kind) for name, kind in fields.items() if _contains(kind, (mi.FloatType, *_OBJECTS), set())
        ]
        self._copies = any(_contains(kind, (mi.AnyType, mi.RawType), set()) for kind in fields.values())

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments to call the function with, a fresh dict: only what the model gave.

        Raises:
            ValueError: names every failing field and why, in words for the model.
        """
        given: Mapping[str, Any] = thaw(arguments) if self._copies else arguments
        for name, kind in self._looks:
            if name in given and not _is_plain(given[name], kind):
                break
        else:
            try:
                values = msgspec.convert(given, self._struct, strict=False)
            except msgspec.ValidationError:
                pass
            else:
                return {name: getattr(values, name) for name in given}
        return self._mended(given)

    def _mended(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        search = _Search()
        mended = search.look(arguments, self._type, "")
        if not search.problems:
            try:
                values = msgspec.convert(mended, self._struct, strict=False)
                return {name: getattr(values, name) for name in arguments}
            except msgspec.ValidationError as error:
                search.problems.append(_say(error, ""))
        raise ValueError("; ".join(search.problems))


def convert_to(type_: Any, value: Any, path: str = "") -> Any:
    """One value as a type: as lenient as a tool's arguments are, and as strict.

    Raises:
        ValueError: names every failing field and why, in words for the model; ``path`` is where the value stands.
    """
    search = _Search()
    mended = search.look(thaw(value), mi.type_info(type_), path)
    if not search.problems:
        try:
            return msgspec.convert(mended, type_, strict=False)
        except msgspec.ValidationError as error:
            search.problems.append(_say(error, path))
    raise ValueError("; ".join(search.problems))


def _contains(kind: Any, wanted: tuple[type, ...], seen: set[int]) -> bool:
    if isinstance(kind, wanted):
        return True
    if id(kind) in seen:
        return False
    seen.add(id(kind))
    return any(_contains(part, wanted, seen) for part in _parts(kind))


def _parts(kind: Any) -> list[Any]:
    """The types directly inside a type."""
    found = []
    for name in getattr(kind, "__struct_fields__", ()):
        value = getattr(kind, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, mi.Field):
                found.append(part.type)
            elif isinstance(part, mi.Type):
                found.append(part)
    return found


def _bare(kind: Any) -> Any:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def _options(kind: Any) -> tuple[Any, ...]:
    kind = _bare(kind)
    return tuple(_bare(option) for option in kind.types) if isinstance(kind, mi.UnionType) else (kind,)


def _is_plain(value: Any, kind: Any) -> bool:
    """May msgspec have the last word on this value? Not where it would take "nan" for a number, or drop what a
    class has no field for."""
    if isinstance(value, str):
        return _NO_NUMBER.fullmatch(value) is None
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        for option in _options(kind):
            if isinstance(option, _OBJECTS):
                types = {field.encode_name: field.type for field in option.fields}
                tag = getattr(option, "tag_field", None)
                return all(
                    name == tag or (name in types and _is_plain(item, types[name])) for name, item in value.items()
                )
            if isinstance(option, mi.DictType):
                return all(_is_plain(item, option.value_type) for item in value.values())
    if isinstance(value, list | tuple):
        for option in _options(kind):
            if isinstance(option, _ARRAYS):
                inner = _items(option, len(value))
                return inner is None or all(_is_plain(*pair) for pair in zip(value, inner, strict=True))
    return True


def _items(kind: Any, length: int) -> list[Any] | None:
    """The types of an array's items; None if there cannot be so many."""
    if isinstance(kind, mi.TupleType):
        return list(kind.item_types) if len(kind.item_types) == length else None
    if isinstance(kind, mi.NamedTupleType):
        least = sum(field.required for field in kind.fields)
        return [field.type for field in kind.fields[:length]] if least <= length <= len(kind.fields) else None
    return [kind.item_type] * length


class _Search:
    """One look through arguments: what is wrong with them, all of it, and the same arguments with JSON text read."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def look(self, value: Any, kind: Any, path: str) -> Any:
        """The value as msgspec is to see it; what is wrong with it is in ``problems``."""
        options = _options(kind)
        if isinstance(value, str) and not any(self._takes(value, option) for option in options):
            value = _read_json(value, options)
        if isinstance(value, Mapping):
            objects = [option for option in options if isinstance(option, (*_OBJECTS, mi.DictType))]
            if objects:
                return self._look_at_object(value, _tagged(objects, value), path)
        if isinstance(value, list | tuple):
            for option in options:
                if isinstance(option, _ARRAYS):
                    return self._look_at_array(value, option, path)
        if isinstance(value, float) and not math.isfinite(value):
            self._add(path, f"Expected a finite number, got {value}")
        elif not any(self._takes(value, option) for option in options):
            self._add(path, _refusal(value, options))
        return value

    def _takes(self, value: Any, kind: Any) -> bool:
        if isinstance(kind, mi.FloatType) and isinstance(value, str) and _NO_NUMBER.fullmatch(value):
            return False
        return _problem(value, kind) is None

    def _add(self, path: str, text: str) -> None:
        self.problems.append(f"{path}: {text}" if path else text)

    def _look_at_object(self, value: Mapping[str, Any], kind: Any, path: str) -> dict[str, Any]:
        before = len(self.problems)
        at = f"{path}." if path else ""
        if kind is None:
            self._add(path, "the field that tells its kinds apart is missing or has an unknown value")
            return dict(value)
        if isinstance(kind, mi.DictType):
            mended = {name: self.look(item, kind.value_type, f"{at}{name}") for name, item in value.items()}
        else:
            tag = getattr(kind, "tag_field", None)
            known = {field.encode_name: field for field in kind.fields}
            for name in value:
                if name not in known and name != tag:
                    self._add(f"{at}{name}", "unknown argument" if not path else f"unknown field of {path}")
            mended = dict(value)
            for name, field in known.items():
                if name in value:
                    mended[name] = self.look(value[name], field.type, f"{at}{name}")
                elif field.required:
                    self._add(
                        f"{at}{name}", "required argument is missing" if not path else "required field is missing"
                    )
        if len(self.problems) == before and path:
            self._convert_whole(mended, kind, path)
        return mended

    def _look_at_array(self, value: Any, kind: Any, path: str) -> list[Any]:
        before = len(self.problems)
        inner = _items(kind, len(value))
        if inner is None:
            expected = len(kind.item_types) if isinstance(kind, mi.TupleType) else len(kind.fields)
            self._add(path, f"Expected `array` of length {expected}, got {len(value)}")
            return list(value)
        mended = [
            self.look(item, item_kind, f"{path}[{index}]")
            for index, (item, item_kind) in enumerate(zip(value, inner, strict=True))
        ]
        if len(self.problems) == before:
            self._convert_whole(mended, kind, path)
        return mended

    def _convert_whole(self, value: Any, kind: Any, path: str) -> None:
        """What is right in each part may still be wrong as a whole: a length, a key, a class's own check."""
        try:
            msgspec.convert(value, _type_of(kind), strict=False)
        except msgspec.ValidationError as error:
            self.problems.append(_say(error, path))


def _tagged(objects: list[Any], value: Mapping[str, Any]) -> Any:
    if len(objects) == 1:
        return objects[0]
    fitting = [kind for kind in objects if value.get(getattr(kind, "tag_field", None) or "") == kind.tag]
    return fitting[0] if fitting else None


def _type_of(kind: Any) -> Any:
    """The Python type that msgspec described."""
    kind = _bare(kind)
    if isinstance(kind, mi.LiteralType):
        return Literal[kind.values]
    if isinstance(kind, mi.DictType):
        base: Any = dict[_type_of(kind.key_type), _type_of(kind.value_type)]  # type: ignore[misc]
    elif isinstance(kind, mi.TupleType):
        return tuple[tuple(_type_of(item) for item in kind.item_types)]  # type: ignore[misc]
    elif isinstance(kind, mi.VarTupleType):
        base = tuple[_type_of(kind.item_type), ...]  # type: ignore[misc]
    elif isinstance(kind, mi.SetType | mi.FrozenSetType):
        base = (set if isinstance(kind, mi.SetType) else frozenset)[_type_of(kind.item_type)]
    elif isinstance(kind, mi.ListType):
        base = list[_type_of(kind.item_type)]  # type: ignore[misc]
    elif isinstance(kind, mi.UnionType):
        union: Any = _type_of(kind.types[0])
        for option in kind.types[1:]:
            union = union | _type_of(option) if union is not None else _type_of(option) | None
        return union
    elif hasattr(kind, "cls"):
        return kind.cls
    else:
        base = _LEAVES[type(kind)]
    limits = {name: getattr(kind, name) for name in kind.__struct_fields__ if name in _LIMITS}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[base, msgspec.Meta(**limits)] if limits else base


def _problem(value: Any, kind: Any) -> str | None:
    try:
        msgspec.convert(value, _type_of(kind), strict=False)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _refusal(value: Any, options: tuple[Any, ...]) -> str:
    """Why none of the options takes a value."""
    allowed = [item for option in options for item in _allowed(option)]
    if allowed and all(isinstance(option, mi.LiteralType | mi.EnumType | mi.NoneType) for option in options):
        return f"Invalid value {value!r}, allowed: {', '.join(map(repr, allowed))}"
    if isinstance(value, str) and _NO_NUMBER.fullmatch(value):
        return f"Expected a finite number, got {value!r}"
    if len(options) == 1:
        return _problem(value, options[0]) or f"Invalid value {value!r}"
    problems = [_problem(value, option) or "" for option in options]
    expected = [text.removeprefix("Expected ").split(",")[0] for text in problems if text.startswith("Expected ")]
    return f"Expected {' or '.join(dict.fromkeys(expected))}, got {value!r}" if expected else ", or ".join(problems)


def _allowed(kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, mi.EnumType):
        return tuple(member.value for member in kind.cls)
    return kind.values if isinstance(kind, mi.LiteralType) else ()


def _read_json(text: str, options: tuple[Any, ...]) -> Any:
    """What JSON text stands for, if it stands for an object or a list and one of these is wanted; else the text."""
    objects = any(isinstance(option, (*_OBJECTS, mi.DictType)) for option in options)
    arrays = any(isinstance(option, _ARRAYS) for option in options)
    if not (objects and text.lstrip().startswith("{")) and not (arrays and text.lstrip().startswith("[")):
        return text
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except ValueError:
        return text


def _say(error: msgspec.ValidationError, path: str) -> str:
    """msgspec's text, with the place first and seen from the arguments."""
    placed = _PLACE.fullmatch(str(error))
    text, place = placed.groups() if placed is not None else (str(error), "")
    whole = f"{path}.{place}" if path and place and not place.startswith("[") else f"{path}{place}"
    return f"{whole}: {text}" if whole else text
