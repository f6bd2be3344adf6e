"""A call waits for a person: a ``before_tool_call`` hook, and nothing in the loop."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

import trio

from trio_agent import SKIP, HookContext, ToolCall

__all__ = ["approval"]

Answer: TypeAlias = bool | str | dict[str, Any]


def approval(
    ask: Callable[[ToolCall, dict[str, Any]], Awaitable[Answer]],
    *,
    tools: Collection[str] | None = None,
    timeout: float | None = None,
    on_timeout: str = "Nobody approved this call in time.",
) -> Callable[[ToolCall, dict[str, Any], HookContext], Awaitable[Any]]:
    """A ``before_tool_call`` hook that has a person decide about each call.

    While it waits the call has been started and its tool has not: an abort or a cancellation ends the wait at once,
    and the call's result says that the tool was not touched. A steering message skips the call (with
    ``steering_point="tool"``): what the person has to say is an answer too. Calls of a parallel batch are asked about
    one after the other, in their order, while those already approved run.

    Args:
        ask: ``await ask(call, arguments)``; what it returns is the answer: True lets the call run, False or a string
            (the reason, for the model) refuses it, a dict runs it with these arguments instead, which are checked.
            Its wait is cancelled when the call is skipped or the time is over.
        tools: the names of those to ask about; all of them by default.
        timeout: seconds after which a call is refused; None waits for ever.
        on_timeout: the reason that the model gets then.

    Raises:
        TypeError, ValueError: an argument is wrong; the error names it.
    """
    if not callable(ask):
        raise TypeError(f"approval: ask must be an async callable(call, arguments), not {ask!r}")
    if isinstance(tools, str):
        raise TypeError(f"approval: tools must be a collection of names, not one string; write [{tools!r}]")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"approval: timeout must be a positive number of seconds, not {timeout!r}")

    async def approve(call: ToolCall, arguments: dict[str, Any], context: HookContext) -> Any:
        if tools is not None and call.name not in tools:
            return None
        wait = _Wait(ask, call, arguments)
        await wait.until_answered(context, timeout)
        if wait.error is not None:
            raise wait.error
        if wait.answer is None:
            return SKIP if wait.is_steered else on_timeout
        if wait.answer is True:
            return None
        return "Not approved." if wait.answer is False else wait.answer

    return approve


class _Wait:
    """One wait for an answer, which steering and time may end."""

    def __init__(self, ask: Callable[..., Awaitable[Answer]], call: ToolCall, arguments: dict[str, Any]) -> None:
        self.answer: Answer | None = None
        self.error: Exception | None = None
        self.is_steered = False
        self._ask = ask
        self._call = call
        self._arguments = arguments

    async def until_answered(self, context: HookContext, timeout: float | None) -> None:
        with trio.CancelScope() as scope:
            if timeout is not None:
                scope.deadline = trio.current_time() + timeout
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_steering, context, nursery.cancel_scope)
                try:
                    self.answer = self._checked(await self._ask(self._call, self._arguments))
                except Exception as error:  # noqa: BLE001 - raised by the hook, and not in a group
                    self.error = error
                nursery.cancel_scope.cancel()

    async def _watch_steering(self, context: HookContext, scope: trio.CancelScope) -> None:
        await context.wait_steered()
        self.is_steered = True
        scope.cancel()

    def _checked(self, answer: object) -> Answer:
        if not isinstance(answer, bool | str | dict):
            raise TypeError(
                "approval: ask must return True, False, a reason (a string) or other arguments (a dict), "
                f"not {type(answer).__name__}"
            )
        return answer or False if isinstance(answer, str) else answer
