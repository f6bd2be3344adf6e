"""A plan: everything that decides how one controlled run goes, as a small value with a readable name.

Between two runs nothing but the plan is remembered; a plan and a scenario give the same run again.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

import attrs

__all__ = ["Injection", "Order", "Plan", "Position"]

Position: TypeAlias = Literal["step", "idle", "point", "line"]
"""Where an action is injected: before the n-th task step; at the end of the batch whose last step is the n-th, when
every task waits; at the n-th `Probe.point`, inside a step; at the n-th line run in the files that are watched."""

Order: TypeAlias = Literal["arrival", "trio", "any"]
"""Which orders of a batch a plan may choose from: none but the order of arrival; the two that trio's own scheduler
takes today (arrival or its reverse); every permutation, which trio's documentation reserves the right to take."""

_LETTERS: Final[dict[str, Position]] = {"s": "step", "b": "idle", "p": "point", "l": "line"}
_LETTER_OF: Final[dict[str, str]] = {position: letter for letter, position in _LETTERS.items()}
_ACTION = re.compile(r"[A-Za-z_][\w.+-]*\Z")


@attrs.frozen(order=True)
class Injection:
    """An action at a position.

    Attributes:
        at: what kind of position.
        index: which one, counted from 1; for ``idle`` the number of the step after which every task waits.
        action: the name of the action.
    """

    at: Position
    index: int
    action: str

    def __attrs_post_init__(self) -> None:
        if self.at not in get_args(Position) or self.index < 1:
            raise ValueError(f"an injection is at a step, idle, point or line from 1 on, not {self.at} {self.index}")
        if not _ACTION.match(self.action):
            raise ValueError(f"an action's name is letters, digits and '_', '.', '+', '-', not {self.action!r}")

    def __str__(self) -> str:
        return f"{_LETTER_OF[self.at]}{self.index}={self.action}"


def _sorted(injections: Iterable[Injection]) -> tuple[Injection, ...]:
    return tuple(sorted(injections))


@attrs.frozen
class Plan:
    """What one run does differently from the plain one.

    Attributes:
        injections: which actions, where.
        order: see `Order`.
        choices: (n, c) pairs: at the n-th decision about an order, take choice c instead of 0 (arrival).
    """

    injections: tuple[Injection, ...] = attrs.field(default=(), converter=_sorted)
    order: Order = attrs.field(default="arrival", validator=attrs.validators.in_(get_args(Order)))
    choices: tuple[tuple[int, int], ...] = ()

    def with_injection(self, at: Position, index: int, action: str) -> "Plan":
        """The same plan with one more injection."""
        return attrs.evolve(self, injections=(*self.injections, Injection(at, index, action)))

    def token(self, scenario: str) -> str:
        """The plan and the scenario's name in one word; `parse` reads it."""
        parts = [scenario, *map(str, self.injections)]
        if self.order != "arrival":
            parts.append(f"order={self.order}")
        parts += [f"o{index}={choice}" for index, choice in self.choices]
        return "/".join(parts)

    @classmethod
    def parse(cls, token: str) -> tuple[str, "Plan"]:
        """The scenario's name and the plan of a token.

        Raises:
            ValueError: it is no token; the text names the part that is wrong.
        """
        scenario, *parts = token.strip().split("/")
        injections: list[Injection] = []
        choices: list[tuple[int, int]] = []
        order: Order = "arrival"
        for part in parts:
            match = re.fullmatch(r"(?:(order)|([sbplo])(\d+))=(.+)", part)
            if match is None:
                raise ValueError(f"{part!r} is no part of a replay token such as 'package.module:name/s12=abort'")
            word, letter, number, value = match.groups()
            if word:
                order = _order(value)
            elif letter == "o":
                if not value.isdigit():
                    raise ValueError(f"{part!r}: a choice is a number")
                choices.append((int(number), int(value)))
            else:
                injections.append(Injection(_LETTERS[letter], int(number), value))
        return scenario, cls(tuple(injections), order, tuple(sorted(choices)))


def _order(value: str) -> Order:
    allowed: Iterable[Order] = get_args(Order)
    for order in allowed:
        if value == order:
            return order
    raise ValueError(f"order must be one of {', '.join(allowed)}, not {value!r}")
