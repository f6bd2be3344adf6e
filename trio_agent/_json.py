"""JSON as a model sends it."""

import json
from typing import Any, NoReturn

import msgspec

from ._frozen import FrozenDict, freeze

__all__ = ["parse_arguments", "refuse_constant"]


def refuse_constant(name: str) -> NoReturn:
    """``parse_constant`` for `json.loads`: Python reads NaN and Infinity; JSON has no such thing, and no tool would
    expect it. Raises ValueError."""
    raise ValueError(f"{name} is not a JSON value")


def parse_arguments(text: str) -> tuple[FrozenDict, str | None]:
    """A call's arguments from their JSON text: the object, and None or why the text is not one.

    Empty text stands for no arguments: several servers send it for a tool without parameters.
    """
    if not text.strip():
        return FrozenDict(), None
    try:
        value = freeze(_parse(text))
    except ValueError as error:
        return FrozenDict(), f"the arguments are not valid JSON ({error}): {text[:200]}"
    except RecursionError:
        return FrozenDict(), f"the arguments are nested too deeply: {text[:200]}"
    if not isinstance(value, FrozenDict):
        kind = "list" if isinstance(value, list) else type(value).__name__
        return FrozenDict(), f"the arguments must be a JSON object, not {kind}: {text[:200]}"
    return value, None


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        # the standard library takes more (half of a surrogate pair), and says better what it does not take
        return json.loads(text, parse_constant=refuse_constant)
