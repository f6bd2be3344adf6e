"""What becomes of runs and calls, and the words in which a model is told why a tool did not run or was cut."""

from typing import Final

import attrs

from ._limits import Limit
from ._messages import Outcome, ToolOutcome, ToolResult

__all__ = [
    "CANCELLED_TEXT",
    "GRACE_TEXT",
    "LENGTH_TEXT",
    "NOT_STARTED_TEXT",
    "SKIPPED_TEXT",
    "Cause",
    "Settled",
    "limit_text",
]

SKIPPED_TEXT: Final = "Skipped due to queued user message."
CANCELLED_TEXT: Final = "Cancelled: the run was ended while this tool was running. Its effects are unknown."
NOT_STARTED_TEXT: Final = "Not started: the run was ended before this tool began."
GRACE_TEXT: Final = "Cut: the run was ended and the tool did not finish within its grace. Its effects are unknown."
LENGTH_TEXT: Final = (
    "Not run: the response reached its length limit, so the arguments of this call may be cut off. "
    "Send the call again, with shorter arguments if need be."
)


def limit_text(limit: Limit) -> str:
    """What a call is told that stands behind a limit of its run."""
    return f"Not started: the run reached its limit {limit!r} before this tool began."


@attrs.frozen
class Cause:
    """Why a run ends; the first one stands."""

    outcome: Outcome
    error: BaseException | None = None
    reason: str | None = None
    limit: Limit | None = None


@attrs.frozen
class Settled:
    """What became of a call, before its end event is said."""

    result: ToolResult
    outcome: ToolOutcome
    exception: BaseException | None = None
    duration: float = 0.0
