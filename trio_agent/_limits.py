"""How far a run may go on its own."""

from typing import Any, Literal, TypeAlias

import attrs

__all__ = ["Limit", "Limits"]

Limit: TypeAlias = Literal["turns", "input_tokens", "output_tokens", "tool_calls", "seconds", "repeated_calls"]
"""The name of a limit, as `RunResult.limit` gives it."""


def _positive(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    whole = attribute.name != "seconds"
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
        kind = "a whole number of at least 1" if whole else "a positive number of seconds"
        raise ValueError(f"Limits.{attribute.name} must be {kind}, or None, not {value!r}")


@attrs.frozen(kw_only=True)
class Limits:
    """How far a run may go before it ends with outcome ``limit`` and `RunResult.limit` naming the one it reached.

    A limit never cuts anything: it is looked at where the run would go on (before another turn; the last three also
    before each tool), so what was begun is finished and the run ends at a legal boundary. Queued messages stay
    queued. Use ``timeout`` of `Agent.prompt` to cut a run at a moment. None is no limit.

    Attributes:
        turns: no further turn begins after so many.
        input_tokens, output_tokens: no further turn begins once the run has used so many, those of its nested agents
            and context steps included.
        tool_calls: so many calls may be taken up; a further one is not started, nor is anything after it.
        seconds: of trio's clock since the run began; no further turn or tool begins after them.
        repeated_calls: so many identical calls (one tool, equal arguments) in a row may be taken up; a further one is
            not started.
    """

    turns: int | None = attrs.field(default=None, validator=_positive)
    input_tokens: int | None = attrs.field(default=None, validator=_positive)
    output_tokens: int | None = attrs.field(default=None, validator=_positive)
    tool_calls: int | None = attrs.field(default=None, validator=_positive)
    seconds: float | None = attrs.field(default=None, validator=_positive)
    repeated_calls: int | None = attrs.field(default=None, validator=_positive)
