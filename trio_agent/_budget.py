"""How much of its limits a run has used."""

import math
from collections.abc import Mapping
from typing import Any

import trio

from ._limits import Limit, Limits
from ._messages import ToolCall, Usage
from ._record import RunRecord

__all__ = ["Budget"]


class Budget:
    """What a run may still do. A nested run has that of the run around it to keep to as well.

    Args:
        limits: the run's own.
        record: where its turns and tokens stand.
        outer: the budget of the run that it is nested in: its tokens, its time and its calls are shared.
    """

    __slots__ = ("_calls", "_deadline", "_last", "_limits", "_outer", "_record", "_repeats")

    def __init__(self, limits: Limits, record: RunRecord, outer: "Budget | None" = None) -> None:
        self._limits = limits
        self._record = record
        self._outer = outer
        self._deadline = math.inf if limits.seconds is None else trio.current_time() + limits.seconds
        self._calls = 0
        self._last: tuple[str, Mapping[str, Any]] | None = None
        self._repeats = 0

    def before_turn(self) -> Limit | None:
        """The limit that forbids another turn, if one does."""
        if self._limits.turns is not None and self._record.turns >= self._limits.turns:
            return "turns"
        return self._spent()

    def take_call(self, call: ToolCall) -> Limit | None:
        """Count a call that is about to be taken up; or the limit that forbids it, and nothing is counted."""
        limit = self._forbids(call)
        if limit is None:
            self._count(call)
        return limit

    def _spent(self) -> Limit | None:
        usage: Usage = self._record.usage
        if self._limits.input_tokens is not None and usage.input_tokens >= self._limits.input_tokens:
            return "input_tokens"
        if self._limits.output_tokens is not None and usage.output_tokens >= self._limits.output_tokens:
            return "output_tokens"
        if trio.current_time() >= self._deadline:
            return "seconds"
        return None if self._outer is None else self._outer._spent()

    def _forbids(self, call: ToolCall) -> Limit | None:
        budget: Budget | None = self
        while budget is not None:
            if budget._limits.tool_calls is not None and budget._calls >= budget._limits.tool_calls:
                return "tool_calls"
            if trio.current_time() >= budget._deadline:
                return "seconds"
            budget = budget._outer
        allowed = self._limits.repeated_calls
        if allowed is None or self._repeats < allowed:
            return None
        return "repeated_calls" if self._last == (call.name, call.arguments) else None

    def _count(self, call: ToolCall) -> None:
        budget: Budget | None = self
        while budget is not None:
            budget._calls += 1
            budget = budget._outer
        if self._limits.repeated_calls is not None:
            this = (call.name, call.arguments)
            self._repeats = self._repeats + 1 if this == self._last else 1
            self._last = this
