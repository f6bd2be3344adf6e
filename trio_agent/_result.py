"""What a run leaves behind, and what an agent looks like at a moment."""

import attrs

from ._errors import RunAbortedError, RunLimitError
from ._messages import AssistantMessage, Message, Outcome, Usage

__all__ = ["AgentState", "RunResult"]


@attrs.frozen
class RunResult:
    """How a run ended and what it added.

    Attributes:
        outcome: why it ended; see `Outcome`.
        messages: what the run added to the transcript, in order.
        usage: the sum over its responses.
        error: the exception behind outcome ``error``, else None.
        abort_reason: what `Agent.abort` was given.
        turns: how many turns were begun.
        undelivered: messages that were still queued (steering first, then follow-ups) when the run ended.
    """

    outcome: Outcome
    messages: tuple[Message, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    error: BaseException | None = attrs.field(default=None, eq=False)
    abort_reason: str | None = None
    turns: int = 0
    undelivered: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """The text of the run's last assistant message; empty if there is none."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                return message.text
        return ""

    def raise_for_error(self) -> "RunResult":
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
            raise RunLimitError(f"the run reached its limit after {self.turns} turns")
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
