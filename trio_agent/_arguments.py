"""What a model sent, as what a function takes: lenient where models are known to err, and never with nonsense.

The text of a call becomes the function's values by one call into C, strictly and without anything in between. Only what
that refuses is looked at again: leniently as a whole, and then piece by piece (`_mend`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Union

import msgspec
from msgspec import inspect as mi

from ._frozen import thaw
from ._mend import ARRAYS, NO_NUMBER, OBJECTS, Mender, Types, bare, contains, items_of, options_of, type_of

__all__ = ["Converter"]

_UNSET: Final = msgspec.UNSET
# what msgspec raises for a text that is no JSON, that cannot be encoded, or that does not fit
_REFUSALS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class Converter:
    """Checks and converts the arguments of one tool; made once, with the tool.

    Args:
        struct: the closed type of all arguments.
    """

    __slots__ = ("_check_names", "_copies", "_decode", "_looks", "_optional", "_struct", "_type", "_types")

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct
        self._type: mi.StructType = mi.type_info(struct)  # type: ignore[assignment]
        self._types = Types()
        self._optional = [field.name for field in self._type.fields if not field.required]
        self._decode: Callable[[str], msgspec.Struct] | None = msgspec.json.Decoder(struct).decode
        self._check_names: Callable[[str], Any] | None = None
        kinds = {field.encode_name: field.type for field in self._type.fields}
        if any(contains(kind, OBJECTS) for kind in kinds.values()):
            try:
                self._check_names = msgspec.json.Decoder(_Closing().arguments(self._type)).decode
            except _CannotCloseError:
                self._decode = None
        # what msgspec would let through or pass on as it is; most tools have none of either
        self._looks = [(name, kind) for name, kind in kinds.items() if contains(kind, (mi.FloatType, *OBJECTS))]
        self._copies = any(contains(kind, (mi.AnyType, mi.RawType)) for kind in kinds.values())

    def from_text(self, text: str) -> dict[str, Any] | None:
        """The arguments to call the function with, from their JSON text: what `__call__` makes of the parsed text.

        Returns:
            A fresh dict; None if the text needs a closer look: parse it, and call.
        """
        if self._decode is None:
            return None
        try:
            values = self._decode(text)
            if self._check_names is not None:
                self._check_names(text)
        except _REFUSALS:
            return None
        return self._given(values)

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
                return self._given(msgspec.convert(given, self._struct, strict=False))
            except msgspec.ValidationError:
                pass
        mender = Mender(self._types)
        mended = mender.look(given, self._type, "")
        return self._given(mender.convert(mended, self._struct, ""))

    def _given(self, values: msgspec.Struct) -> dict[str, Any]:
        given = msgspec.structs.asdict(values)
        for name in self._optional:
            if given[name] is _UNSET:
                del given[name]
        return given


class _CannotCloseError(Exception):
    """A type of which no closed counterpart can be made: it contains itself, or is told from others by position."""


class _Closing:
    """Makes the closed counterpart of a type: the same shape, refusing every field that is not known, and looking at
    nothing else. msgspec itself drops what a dataclass or a TypedDict has no field for.

    Raises:
        _CannotCloseError: there is none.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()

    def arguments(self, kind: mi.StructType) -> type[msgspec.Struct]:
        """For the arguments as a whole, which are closed already: only what else in them must be."""
        fields = [field for field in kind.fields if contains(field.type, OBJECTS)]
        return msgspec.defstruct("Closed", [(field.name, self._of(field.type), None) for field in fields])

    def _object(self, kind: Any) -> type[msgspec.Struct]:
        if id(kind) in self._open or getattr(kind, "array_like", False):
            raise _CannotCloseError
        self._open.add(id(kind))
        fields = {f"f{n}": field for n, field in enumerate(kind.fields)}
        closed = msgspec.defstruct(
            "Closed",
            [(name, self._of(field.type), None) for name, field in fields.items()],
            rename={name: field.encode_name for name, field in fields.items()},
            forbid_unknown_fields=True,
            tag_field=getattr(kind, "tag_field", None),
            tag=getattr(kind, "tag", None),
        )
        self._open.discard(id(kind))
        return closed

    def _of(self, kind: Any, leaf: Callable[[Any], Any] = lambda kind: msgspec.Raw) -> Any:
        kind = bare(kind)
        if not contains(kind, OBJECTS):
            return leaf(kind)
        if isinstance(kind, OBJECTS):
            return self._object(kind)
        if isinstance(kind, mi.UnionType):
            return Union[tuple(self._of(option, type_of) for option in kind.types)]  # noqa: UP007 - made of a tuple
        if isinstance(kind, mi.DictType):
            return dict[str, self._of(kind.value_type)]  # type: ignore[misc]
        if isinstance(kind, mi.TupleType):
            return tuple[tuple(self._of(item) for item in kind.item_types)]  # type: ignore[misc]
        if isinstance(kind, mi.NamedTupleType):
            raise _CannotCloseError
        return list[self._of(kind.item_type)]  # type: ignore[misc]


def _is_plain(value: Any, kind: Any) -> bool:
    """May msgspec have the last word on this value? Not where it would take "nan" for a number, or drop what a
    class has no field for."""
    if isinstance(value, str):
        return NO_NUMBER.fullmatch(value) is None
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        for option in options_of(kind):
            if isinstance(option, OBJECTS):
                types = {field.encode_name: field.type for field in option.fields}
                tag = getattr(option, "tag_field", None)
                return all(
                    name == tag or (name in types and _is_plain(item, types[name])) for name, item in value.items()
                )
            if isinstance(option, mi.DictType):
                return all(_is_plain(item, option.value_type) for item in value.values())
    if isinstance(value, list | tuple):
        for option in options_of(kind):
            if isinstance(option, ARRAYS):
                inner = items_of(option, len(value))
                return inner is None or all(_is_plain(*pair) for pair in zip(value, inner, strict=True))
    return True
