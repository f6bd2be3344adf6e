"""`ScriptedModel`: a model whose every response is written down beforehand."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs
import trio

from trio_agent import (
    MessageWriter,
    ModelError,
    ModelRequest,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

__all__ = ["Fail", "ScriptedModel", "Step", "Stop", "Wait"]


@attrs.frozen
class Stop:
    """Finish the response with this stop reason."""

    reason: StopReason


def _to_error(error: str | BaseException) -> BaseException:
    return ModelError(error) if isinstance(error, str) else error


@attrs.frozen
class Fail:
    """Raise this error; a string stands for a `ModelError` with that text."""

    error: BaseException = attrs.field(converter=_to_error)


@attrs.frozen
class Wait:
    """Sleep for so many seconds on trio's clock."""

    seconds: float


Step: TypeAlias = str | Text | Thinking | ToolCall | Usage | Stop | Fail | Wait | Callable[[], Any]
"""One step of a response: a string or `Text` is one text delta, `Thinking` one thinking delta, a `ToolCall` a whole
call, a callable is called (and awaited if it is async)."""


class ScriptedModel:
    """Plays the n-th script for the n-th request.

    Args:
        *responses: one iterable of steps per response; a bare string is a response of one text delta.

    Attributes:
        requests: what it was sent, in order.

    ``stream`` raises `ModelError` when it is asked more often than it has responses.
    """

    def __init__(self, *responses: str | Iterable[Step], name: str = "scripted", provider: str = "testing") -> None:
        self.name = name
        self.provider = provider
        self.requests: list[ModelRequest] = []
        self._responses: list[tuple[Step, ...]] = [
            (response,) if isinstance(response, str) else tuple(response) for response in responses
        ]

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Play the next response."""
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._responses):
            raise ModelError(f"the script has {len(self._responses)} responses; this is request {number + 1}")
        for step in self._responses[number]:
            await _play(step, out)


async def _play(step: Step, out: MessageWriter) -> None:
    match step:
        case str(text) | Text(text):
            await out.text(text)
        case Thinking(thinking, signature):
            await out.thinking(thinking, signature)
        case ToolCall(id, name, arguments):
            await out.tool_call(id, name, arguments)
        case Usage():
            out.usage(step)
        case Stop(reason):
            out.finish(reason)
        case Fail(error):
            raise error
        case Wait(seconds):
            await trio.sleep(seconds)
        case _ if callable(step):
            value = step()
            if inspect.isawaitable(value):
                await value
        case _:
            raise TypeError(f"a script step must be one of trio_agent.testing's steps, not {type(step).__name__}")
