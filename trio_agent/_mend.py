"""A value looked at piece by piece, when it does not fit its type as it is: every field that is wrong is named, and
what is known to be mendable is mended: a list or an object that was sent as JSON text.

This costs Python for each piece; `_arguments` comes here only with what one call into C has refused.
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

__all__ = [
    "ARRAYS",
    "NO_NUMBER",
    "OBJECTS",
    "Mender",
    "Types",
    "bare",
    "contains",
    "convert_to",
    "items_of",
    "options_of",
    "type_of",
]

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
OBJECTS: Final = (mi.StructType, mi.DataclassType, mi.TypedDictType)
ARRAYS: Final = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType, mi.TupleType, mi.NamedTupleType)
_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
NO_NUMBER: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_PLACE: Final = re.compile(r"(?s)(.*) - at `\$\.?(.*)`")


class Types:
    """The Python types that msgspec's descriptions stand for, each put together once."""

    __slots__ = ("_known", "_plain")

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}
        self._plain: dict[int, tuple[Any, bool]] = {}

    def of(self, kind: Any) -> Any:
        """The type; see `type_of`."""
        known = self._known.get(id(kind))
        if known is None:
            known = self._known[id(kind)] = (kind, type_of(kind))  # the kind too: an id is good while it lives
        return known[1]

    def fits(self, value: Any, kind: Any) -> bool:
        """Is a value of a type as it is, and can nothing in it be hidden from msgspec's eyes? A quick look first."""
        entry = self._plain.get(id(kind))
        if entry is None:
            entry = self._plain[id(kind)] = (kind, not contains(kind, (mi.FloatType, *OBJECTS)))
        if not entry[1]:
            return False
        try:
            msgspec.convert(value, self.of(kind))
        except msgspec.ValidationError:
            return False
        return True

    def problem_with(self, value: Any, kind: Any) -> str | None:
        """Why a value cannot become of a type, in msgspec's words."""
        try:
            msgspec.convert(value, self.of(kind), strict=False)
        except msgspec.ValidationError as error:
            return str(error)
        return None


class Mender:
    """One look through arguments: what is wrong with them, all of it, and the same arguments with JSON text read.

    Args:
        types: kept by whoever looks more than once.
    """

    def __init__(self, types: Types) -> None:
        self.problems: list[str] = []
        self._types = types

    def look(self, value: Any, kind: Any, path: str) -> Any:
        """The value as msgspec is to see it; what is wrong with it is in ``problems``."""
        if self._types.fits(value, kind):
            return value
        options = options_of(kind)
        refusals: list[str] = []
        if isinstance(value, str):
            refusals = self._refusals(value, options)
            if not refusals:
                return value
            value = _read_json(value, options)
        if isinstance(value, Mapping):
            objects = [option for option in options if isinstance(option, (*OBJECTS, mi.DictType))]
            if objects:
                return self._look_at_object(value, _tagged(objects, value), path)
        if isinstance(value, list | tuple):
            for option in options:
                if isinstance(option, ARRAYS):
                    return self._look_at_array(value, option, path)
        if isinstance(value, float) and not math.isfinite(value):
            self._add(path, f"Expected a finite number, got {value}")
        elif refusals := refusals or self._refusals(value, options):
            self._add(path, _refusal(value, options, refusals))
        return value

    def convert(self, value: Any, type_: Any, path: str) -> Any:
        """The value that was looked at, as its type.

        Raises:
            ValueError: names every failing field and why, in words for the model.
        """
        if not self.problems:
            try:
                return msgspec.convert(value, type_, strict=False)
            except msgspec.ValidationError as error:
                self.problems.append(_say(error, path))
        raise ValueError("; ".join(self.problems))

    def _refusals(self, value: Any, options: tuple[Any, ...]) -> list[str]:
        """Why none of the options takes a value, one reason each; empty if one does."""
        refusals = []
        for option in options:
            if isinstance(option, mi.FloatType) and isinstance(value, str) and NO_NUMBER.fullmatch(value):
                refusals.append(f"Expected a finite number, got {value!r}")
                continue
            refusal = self._types.problem_with(value, option)
            if refusal is None:
                return []
            refusals.append(refusal)
        return refusals

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
        inner = items_of(kind, len(value))
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
            msgspec.convert(value, self._types.of(kind), strict=False)
        except msgspec.ValidationError as error:
            self.problems.append(_say(error, path))


def _tagged(objects: list[Any], value: Mapping[str, Any]) -> Any:
    if len(objects) == 1:
        return objects[0]
    fitting = [kind for kind in objects if value.get(getattr(kind, "tag_field", None) or "") == kind.tag]
    return fitting[0] if fitting else None


def type_of(kind: Any) -> Any:
    """The Python type that msgspec described."""
    kind = bare(kind)
    if isinstance(kind, mi.LiteralType):
        return Literal[kind.values]
    if isinstance(kind, mi.DictType):
        base: Any = dict[type_of(kind.key_type), type_of(kind.value_type)]  # type: ignore[misc]
    elif isinstance(kind, mi.TupleType):
        return tuple[tuple(type_of(item) for item in kind.item_types)]  # type: ignore[misc]
    elif isinstance(kind, mi.VarTupleType):
        base = tuple[type_of(kind.item_type), ...]  # type: ignore[misc]
    elif isinstance(kind, mi.SetType | mi.FrozenSetType):
        base = (set if isinstance(kind, mi.SetType) else frozenset)[type_of(kind.item_type)]
    elif isinstance(kind, mi.ListType):
        base = list[type_of(kind.item_type)]  # type: ignore[misc]
    elif isinstance(kind, mi.UnionType):
        union: Any = type_of(kind.types[0])
        for option in kind.types[1:]:
            union = union | type_of(option) if union is not None else type_of(option) | None
        return union
    elif hasattr(kind, "cls"):
        return kind.cls
    else:
        base = _LEAVES[type(kind)]
    limits = {name: getattr(kind, name) for name in kind.__struct_fields__ if name in _LIMITS}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[base, msgspec.Meta(**limits)] if limits else base


def _refusal(value: Any, options: tuple[Any, ...], refusals: list[str]) -> str:
    """Why none of the options takes a value, in one sentence."""
    allowed = [item for option in options for item in _allowed(option)]
    if allowed and all(isinstance(option, mi.LiteralType | mi.EnumType | mi.NoneType) for option in options):
        return f"Invalid value {value!r}, allowed: {', '.join(map(repr, allowed))}"
    if isinstance(value, str) and NO_NUMBER.fullmatch(value):
        return f"Expected a finite number, got {value!r}"
    if len(refusals) == 1:
        return refusals[0]
    expected = [text.removeprefix("Expected ").split(",")[0] for text in refusals if text.startswith("Expected ")]
    return f"Expected {' or '.join(dict.fromkeys(expected))}, got {value!r}" if expected else ", or ".join(refusals)


def _allowed(kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, mi.EnumType):
        return tuple(member.value for member in kind.cls)
    return kind.values if isinstance(kind, mi.LiteralType) else ()


def _read_json(text: str, options: tuple[Any, ...]) -> Any:
    """What JSON text stands for, if it stands for an object or a list and one of these is wanted; else the text."""
    objects = any(isinstance(option, (*OBJECTS, mi.DictType)) for option in options)
    arrays = any(isinstance(option, ARRAYS) for option in options)
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


def bare(kind: Any) -> Any:
    """A description without what its annotations add."""
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def options_of(kind: Any) -> tuple[Any, ...]:
    """What a union may be; a type that is none is its only option."""
    kind = bare(kind)
    return tuple(bare(option) for option in kind.types) if isinstance(kind, mi.UnionType) else (kind,)


def items_of(kind: Any, length: int) -> list[Any] | None:
    """The types of an array's items; None if there cannot be so many."""
    if isinstance(kind, mi.TupleType):
        return list(kind.item_types) if len(kind.item_types) == length else None
    if isinstance(kind, mi.NamedTupleType):
        least = sum(field.required for field in kind.fields)
        return [field.type for field in kind.fields[:length]] if least <= length <= len(kind.fields) else None
    return [kind.item_type] * length


def contains(kind: Any, wanted: tuple[type, ...]) -> bool:
    """Is one of the wanted sorts of type anywhere in a type?"""
    return _contains(kind, wanted, set())


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


def convert_to(type_: Any, value: Any, path: str = "") -> Any:
    """One value as a type: as lenient as a tool's arguments are, and as strict.

    Raises:
        ValueError: names every failing field and why, in words for the model; ``path`` is where the value stands.
    """
    mender = Mender(Types())
    return mender.convert(mender.look(thaw(value), mi.type_info(type_), path), type_, path)
