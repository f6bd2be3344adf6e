"""JSON values that cannot be changed: what events and messages carry, so that no reader can alter a run."""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

__all__ = ["FrozenDict", "FrozenList", "freeze", "thaw"]


# looked up before anything else is asked of a value: nearly all of them are one of these
_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("this value belongs to a transcript and cannot be changed; take a copy with thaw()")


class FrozenDict(dict[str, Any]):
    """A dict that refuses to be changed. It equals, encodes and matches like the plain dict."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A list that refuses to be changed. It equals, encodes and matches like the plain list."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def freeze(value: Any) -> Any:
    """A deep, unchangeable copy of a JSON-like value; what is not a mapping or a sequence is kept as it is."""
    kind = type(value)
    if kind in _ATOMS or kind is FrozenDict or kind is FrozenList:
        return value
    if kind is dict:
        return FrozenDict({key: item if type(item) in _ATOMS else freeze(item) for key, item in value.items()})
    if kind is list:
        return FrozenList([item if type(item) in _ATOMS else freeze(item) for item in value])
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item) for item in value])
    return value


def thaw(value: Any) -> Any:
    """A deep, plain copy of a JSON-like value, for code that wants to change it."""
    if isinstance(value, dict):
        return {key: item if type(item) in _ATOMS else thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _ATOMS else thaw(item) for item in value]
    return value
