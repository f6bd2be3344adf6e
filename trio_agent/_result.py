"""What a run leaves behind, and what an agent looks like at a moment."""

from typing import TYPE_CHECKING, Any, Final, Generic, cast

import attrs

from ._errors import RunAbortedError, RunLimitError
from ._limits import Limit
from ._messages import AssistantMessage, Message, Outcome, Usage

__all__ = ["NO_OUTPUT", "AgentState", "OutputT", "RunResult"]

if TYPE_CHECKING:
    # its default lets a plain RunResult stand for any output; typing's own has one from Python 3.13 on
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")

NO_OUTPUT: Final[Any] = attrs.NOTHING
"""In the place of an output that was asked for and did not come."""


@attrs.frozen
class RunResult(Generic[OutputT]):
    """How a run ended and what it added.

    Attributes:
        outcome: why it ended; see `Outcome`.
        messages: what the run added to the transcript, in order.
        usage: the sum over its responses, those of nested agents and context steps included.
        error: the exception behind outcome ``error``, else None.
        abort_reason: what `Agent.abort` was given.
        turns: how many turns were begun.
        undelivered: messages that were still queued (steering first, then follow-ups) when the run ended.
        limit: the limit that was reached, with outcome ``limit``; see `Limits`.
    """

    outcome: Outcome
    messages: tuple[Message, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    error: BaseException | None = attrs.field(default=None, eq=False)
    abort_reason: str | None = None
    turns: int = 0
    undelivered: tuple[Message, ...] = ()
    limit: Limit | None = None
    _output: Any = attrs.field(default=None, alias="output")

    @property
    def output(self) -> OutputT:
        """The validated value that ``output=`` asked for; None if nothing was asked for.

        A run that completed has it. One that ended before it came has none, and says so here rather than let a
        None pass for a value.

        Raises:
            Exception: what `raise_for_error` raises, if the run ended without its output.
        """
        if self._output is NO_OUTPUT:
            self.raise_for_error()
            raise LookupError(f"the run ended with outcome {self.outcome!r} and without an output")
        return cast(OutputT, self._output)

    @property
    def text(self) -> str:
        """The text of the run's last assistant message; empty if there is none."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                return message.text
        return ""

    def raise_for_error(self) -> "RunResult[OutputT]":
        """Return self if the run completed.

        Raises:
            BaseException: the run's own ``error``.
            RunAbortedError: outcome ``aborted``, ``deadline`` or ``cancelled``.
            RunLimitError: outcome ``limit``.
        """
        if self.error is not None:
            raise self.error
        if self.outcome in ("aborted", "deadline", "cancelled"):
            raise RunAbortedError(self.abort_reason or f"the run ended with outcome {self.outcome!r}")
        if self.outcome == "limit":
            raise RunLimitError(f"the run reached its limit {self.limit!r} after {self.turns} turns")
        return self


@attrs.frozen
class AgentState:
    """A snapshot of an agent; it does not change afterwards.

    Attributes:
        is_running: a run is active.
        is_aborting: it has been told to end, and is not sealed yet.
        streaming_message: the response so far, while one streams.
        pending_tool_calls: ids of the calls that have no result yet, in order.
        queued_steering, queued_follow_ups: what is queued, oldest first.
        last_error: the ``error`` of the last run that ended, or None.
    """

    is_running: bool
    is_aborting: bool
    streaming_message: AssistantMessage | None
    pending_tool_calls: tuple[str, ...]
    queued_steering: tuple[Message, ...]
    queued_follow_ups: tuple[Message, ...]
    last_error: BaseException | None
