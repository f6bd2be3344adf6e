"""Every exception and warning the package raises on purpose, and whose fault each one is.

The caller's fault: ``TypeError`` / ``ValueError`` (configuration), `AgentBusyError`, `NothingToResumeError`.
The provider's fault: `ModelError` and its subclasses. A tool's own word to the model: `ToolError`.
Our fault: `GrammarError`.
"""

__all__ = [
    "AgentBusyError",
    "GrammarError",
    "ModelConnectionError",
    "ModelContextError",
    "ModelError",
    "ModelOutputError",
    "ModelProtocolError",
    "ModelRefusalError",
    "ModelStatusError",
    "ModelTimeoutError",
    "NothingToResumeError",
    "ObserverWarning",
    "RunAbortedError",
    "RunLimitError",
    "ToolError",
    "UnendableWarning",
]


class AgentBusyError(RuntimeError):
    """A run is active on this agent; nothing was changed.

    Wait for it (``await agent.wait_idle()``), end it (``agent.abort()``), or add to it
    (``agent.steer(...)``, ``agent.follow_up(...)``).
    """


class NothingToResumeError(RuntimeError):
    """``resume()`` found nothing to go on from: an empty transcript, or an answered one with empty queues."""


class ModelError(Exception):
    """The provider failed. The run ends with outcome ``error`` and keeps the text received so far.

    Attributes:
        retryable: may the same request succeed if it is simply sent again?
    """

    retryable: bool = False

    def __init__(self, message: str = "", *, retryable: bool | None = None) -> None:
        super().__init__(message)
        if retryable is not None:
            self.retryable = retryable


class ModelConnectionError(ModelError):
    """The server could not be reached, or the connection broke before the response was complete."""

    retryable = True


class ModelTimeoutError(ModelError):
    """The server did not answer, or did not go on answering, in time."""

    retryable = True


class ModelProtocolError(ModelError):
    """The server answered, but not in a form that is a complete and legal response. ``retryable`` where the response
    is legal as far as it goes, and cut off."""


class ModelRefusalError(ModelError):
    """The model, or a filter in front of it, will not answer. Sending the same again would not help."""


class ModelOutputError(ModelError):
    """The model did not give the value that ``output=`` asks for, and its corrections are used up."""


class ModelStatusError(ModelError):
    """The server refused the request.

    Attributes:
        status: the HTTP status code, or None if the refusal came inside a stream.
        code: what the server calls the error (``"rate_limit_exceeded"``, ``overloaded_error``, 503), or None.
        retry_after: how many seconds the server asks to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | int | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class ModelContextError(ModelStatusError):
    """The request is longer than the model's context. Shorten it (`trio_agent.context`); again would not help."""


class ToolError(Exception):
    """Raise this in a tool to give the model an error result with exactly this text."""


class RunAbortedError(Exception):
    """`RunResult.raise_for_error` on a run that was aborted, or ended by its deadline."""


class RunLimitError(Exception):
    """`RunResult.raise_for_error` on a run that reached a limit; its text names the limit."""


class GrammarError(AssertionError):
    """An event that may not follow the ones before it. A bug in trio_agent; please report it."""


class ObserverWarning(RuntimeWarning):
    """An observer raised. It was removed; the run was not affected. ``__cause__`` is what it raised."""


class UnendableWarning(RuntimeWarning):
    """A tool, a hook or a model still runs after the run was ended and its grace is over, because it shields itself,
    ignores its cancellation or sits in a thread. It cannot be ended in process, and the run is not over before it.
    The text names it and the line it waits at; for a tool a `ToolExecutionUpdate` says the same."""
