"""The one thing about JSON that Python reads differently."""

from typing import NoReturn

__all__ = ["refuse_constant"]


def refuse_constant(name: str) -> NoReturn:
    """``parse_constant`` for `json.loads`: Python reads NaN and Infinity; JSON has no such thing, and no tool would
    expect it. Raises ValueError."""
    raise ValueError(f"{name} is not a JSON value")
