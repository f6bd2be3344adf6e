"""Another try, and another model: functions of models. Both only before anything of a response was seen."""

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from trio_agent._errors import ModelError
from trio_agent._frozen import FrozenDict
from trio_agent._messages import StopReason, Usage
from trio_agent.abc import MessageWriter, Model, ModelRequest

__all__ = ["fallback", "retrying"]


class _Watching:
    """A `MessageWriter` that notes whether anything went through it; see there."""

    def __init__(self, out: MessageWriter) -> None:
        self.has_begun = False
        self._out = out

    def _begun(self) -> MessageWriter:
        self.has_begun = True
        return self._out

    async def text(self, delta: str) -> None:
        """See `MessageWriter.text`."""
        await self._begun().text(delta)

    async def thinking(self, delta: str, signature: str | None = None) -> None:
        """See `MessageWriter.thinking`."""
        await self._begun().thinking(delta, signature)

    async def redacted_thinking(self, signature: str) -> None:
        """See `MessageWriter.redacted_thinking`."""
        await self._begun().redacted_thinking(signature)

    async def tool_call_start(self, id: str, name: str) -> None:
        """See `MessageWriter.tool_call_start`."""
        await self._begun().tool_call_start(id, name)

    async def tool_call_delta(self, json_fragment: str) -> None:
        """See `MessageWriter.tool_call_delta`."""
        await self._begun().tool_call_delta(json_fragment)

    async def tool_call_end(self, extra: Mapping[str, Any] = FrozenDict()) -> None:
        """See `MessageWriter.tool_call_end`."""
        await self._begun().tool_call_end(extra)

    async def tool_call(self, id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """See `MessageWriter.tool_call`."""
        await self._begun().tool_call(id, name, arguments)

    def usage(self, usage: Usage) -> None:
        """See `MessageWriter.usage`."""
        self._out.usage(usage)

    def finish(self, stop_reason: StopReason, raw: str | None = None) -> None:
        """See `MessageWriter.finish`."""
        self._begun().finish(stop_reason, raw)

    def retrying(self, error: ModelError, *, attempt: int, delay: float, model: Model) -> None:
        """See `MessageWriter.retrying`."""
        self._out.retrying(error, attempt=attempt, delay=delay, model=model)


class _Wrapped:
    """A model made of others, and known by the first of them."""

    def __init__(
        self, first: Model, shown: str, stream: Callable[[ModelRequest, MessageWriter], Awaitable[None]]
    ) -> None:
        self._first = first
        self._shown = shown
        self._stream = stream

    @property
    def name(self) -> str:
        """That of the (first) model."""
        return self._first.name

    @property
    def provider(self) -> str:
        """That of the (first) model."""
        return self._first.provider

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """See `Model.stream`, and the function that made this model."""
        await self._stream(request, out)

    def __repr__(self) -> str:
        return self._shown


def retrying(
    model: Model,
    attempts: int = 3,
    *,
    delay: float = 0.5,
    max_delay: float = 8.0,
    max_retry_after: float = 60.0,
    jitter: Callable[[], float] = random.random,
) -> Model:
    """The model, asked again when its request failed and may succeed later.

    Only before the first of a response was seen: what has been said is not taken back. Only errors with ``retryable``:
    connections, timeouts, cut-off responses, 408, 409, 429, 5xx and overload; never a quota that is used up, a spend
    cap, a bad request, a refusal or a request that is too long. Each retry is one `ModelRetry` event. Waiting is on
    trio's clock, and a checkpoint: an abort or a cancellation ends it at once.

    Args:
        model: who is asked.
        attempts: how many requests there are at most, at least 1.
        delay, max_delay: seconds before the second attempt, doubled for each further one, up to a bound; less up to a
            quarter of it, so that many clients do not come back together.
        max_retry_after: a server that says how long to wait is obeyed, up to so many seconds; if it asks for more,
            the error is raised at once.
        jitter: a number from 0 up to 1, each time another one.

    Raises:
        TypeError, ValueError: an argument is wrong; the error names it.
    """
    _check_model("retrying", model)
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"retrying: attempts must be a whole number of at least 1, not {attempts!r}")
    for name, value in (("delay", delay), ("max_delay", max_delay), ("max_retry_after", max_retry_after)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ValueError(f"retrying: {name} must be a number of seconds, not {value!r}")

    def wait_for(error: ModelError, attempt: int) -> float | None:
        if not error.retryable or attempt >= attempts:
            return None
        asked = getattr(error, "retry_after", None)
        if asked is not None:
            return None if asked > max_retry_after else float(asked)
        whole: float = min(max_delay, delay * 2 ** min(attempt - 1, 60))
        return whole * (1 - jitter() / 4)

    async def stream(request: ModelRequest, out: MessageWriter) -> None:
        attempt = 1
        while True:
            watching = _Watching(out)
            try:
                await model.stream(request, watching)
            except ModelError as error:
                wait = wait_for(error, attempt)
                if watching.has_begun or wait is None:
                    raise
                failure = error
            else:
                return
            attempt += 1
            await trio.lowlevel.checkpoint_if_cancelled()
            out.retrying(failure, attempt=attempt, delay=wait, model=model)
            await trio.sleep(wait)

    return _Wrapped(model, f"retrying({model!r}, {attempts})", stream)


def fallback(*models: Model) -> Model:
    """The first of some models that answers: when one fails before the first of its response was seen, the next is
    asked, whatever the error was. Each time there is one `ModelRetry` event, and the message is of the model that
    wrote it. What the last one raises is raised, with what the others raised as its notes.

    Wrap the parts in `retrying`, not the whole: ``fallback(retrying(a), b)``.

    Args:
        models: at least two, the preferred one first.

    Raises:
        TypeError, ValueError: an argument is wrong.
    """
    if len(models) < 2:
        raise ValueError("fallback: takes at least two models")
    for model in models:
        _check_model("fallback", model)

    async def stream(request: ModelRequest, out: MessageWriter) -> None:
        notes: list[str] = []
        for number, model in enumerate(models, 1):
            watching = _Watching(out)
            try:
                await model.stream(request, watching)
            except ModelError as error:
                if watching.has_begun or number == len(models):
                    for note in notes:
                        error.add_note(note)
                    raise
                failure = error
            else:
                return
            notes.append(f"before that, {model.name!r} failed: {failure}")
            await trio.lowlevel.checkpoint_if_cancelled()
            out.retrying(failure, attempt=number + 1, delay=0.0, model=models[number])

    return _Wrapped(models[0], f"fallback({', '.join(map(repr, models))})", stream)


def _check_model(function: str, model: object) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"{function}: expected a model (name, provider, stream), not {type(model).__name__}")
