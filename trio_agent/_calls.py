"""The tool calls of one assistant message, each in its own cancel scope.

Sequential: start, run, record, answer, look at steering, next. Parallel: start events in call order, end events as
the tools finish, result messages in call order once all have settled. In both, what a tool returned is recorded
in the task step in which it returned, and a `checkpoint_if_cancelled` stands in the step in which a tool starts:
nothing starts after an abort, and nothing finished is lost to one.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from ._errors import ToolError
from ._messages import AssistantMessage, ToolCall, ToolResult
from ._record import SKIPPED_TEXT
from ._run import Run
from ._scopes import bare, is_cancelled, leaves, raise_bare, run_unprotected, say
from ._tools import check_arguments, to_result
from .abc import Tool, ToolContext

__all__ = ["LENGTH_TEXT", "run_calls"]

LENGTH_TEXT = (
    "Not run: the response reached its length limit, so the arguments of this call may be cut off. "
    "Send the call again, with shorter arguments if need be."
)
GRACE_TEXT = "Cut: the run was ended and the tool did not finish within its grace. Its effects are unknown."


@trio.lowlevel.enable_ki_protection
async def run_calls(run: Run, message: AssistantMessage) -> bool:
    """Give every call of ``message`` its result.

    Returns:
        True if the model is to be asked again because of them: there were calls, and not every result asked to end
        the run (`ToolResult.terminate`).
    """
    calls = message.tool_calls
    if not calls:
        return False
    if message.stop_reason == "length":
        for tool_call in calls:
            run.record.refuse_call(tool_call, LENGTH_TEXT, "rejected")
            run.record.answer(tool_call)
        await run.look_for_steering()
        return True
    tools = run.settings.tools
    called = [tools[tool_call.name] for tool_call in calls if tool_call.name in tools]
    one_by_one = any(tool.sequential for tool in called)
    if run.settings.config.tool_execution == "parallel" and len(calls) > 1 and not one_by_one:
        terminating = await _run_parallel(run, calls)
    else:
        terminating = await _run_sequential(run, calls)
    return terminating < len(calls)


async def _run_sequential(run: Run, calls: Sequence[ToolCall]) -> int:
    terminating = 0
    for index, tool_call in enumerate(calls):
        await run.record.room()
        prepared = await _prepare(run, tool_call)
        if prepared is not None:
            await _execute(run, tool_call, *prepared)
        terminating += _terminates(run, tool_call)
        run.record.answer(tool_call)
        rest = calls[index + 1 :]
        if (not rest or run.settings.config.steering_point == "tool") and await run.look_for_steering():
            _skip(run, rest)
            break
    return terminating


async def _run_parallel(run: Run, calls: Sequence[ToolCall]) -> int:
    started: list[ToolCall] = []
    batch = _Batch()
    try:
        async with trio.open_nursery() as nursery:
            with _ending_siblings(run):
                for index, tool_call in enumerate(calls):
                    if run.settings.config.steering_point == "tool" and index and run.has_steering():
                        break
                    await run.record.room()
                    prepared = await _prepare(run, tool_call)
                    started.append(tool_call)
                    if prepared is not None:
                        batch.left += 1
                        name = f"tool {tool_call.name}"
                        nursery.start_soon(_execute_beside, run, batch, tool_call, *prepared, name=name)
                # waited for here and not in the nursery's exit: an interrupt there would end the batch alone, and
                # neither the guard nor the tools' graces would know of it
                await batch.wait_ended()
    except BaseExceptionGroup as group:
        raise_bare(group)
    terminating = 0
    for tool_call in started:
        await run.record.room()
        terminating += _terminates(run, tool_call)
        run.record.answer(tool_call)
    _skip(run, calls[len(started) :])
    await run.look_for_steering()
    return terminating


class _Batch:
    """How many tools of a parallel batch still run."""

    def __init__(self) -> None:
        self.left = 0
        self._ended: trio.Event | None = None

    def end_one(self) -> None:
        """One of them has ended, however."""
        self.left -= 1
        if not self.left and self._ended is not None:
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until none is left."""
        if self.left:
            self._ended = trio.Event()
            await self._ended.wait()


def _skip(run: Run, calls: Sequence[ToolCall]) -> None:
    for tool_call in calls:
        run.record.refuse_call(tool_call, SKIPPED_TEXT, "skipped")
        run.record.answer(tool_call)


def _terminates(run: Run, tool_call: ToolCall) -> bool:
    result = run.record.settled_result(tool_call)
    return result is not None and result.terminate


async def _prepare(run: Run, tool_call: ToolCall) -> tuple[Tool, dict[str, Any]] | None:
    """Say the start of a call and find out whether its tool may run.

    Returns:
        The tool and its checked arguments; None if the call was refused, and is settled and ended.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    record = run.record
    record.start_call(tool_call)
    tool = run.settings.tools.get(tool_call.name)
    if tool is None:
        record.refuse_call(tool_call, f"Tool {tool_call.name} not found", "rejected")
        return None
    if tool_call.arguments_error is not None:
        record.refuse_call(tool_call, f"Invalid arguments: {tool_call.arguments_error}", "rejected")
        return None
    arguments = _checked(run, tool_call, tool, tool_call.arguments)
    hook = run.settings.config.before_tool_call
    if arguments is None or hook is None:
        return None if arguments is None else (tool, arguments)
    verdict = await run.ask(hook, tool_call, arguments)
    await trio.lowlevel.checkpoint_if_cancelled()
    if verdict is None:
        return tool, arguments
    if isinstance(verdict, str):
        record.refuse_call(tool_call, verdict or "Blocked.", "rejected")
        return None
    if not isinstance(verdict, dict):
        raise TypeError(
            "before_tool_call must return None (go on), a string (the reason to block) or a dict (other arguments), "
            f"not {type(verdict).__name__}"
        )
    replaced = _checked(run, tool_call, tool, verdict)
    return None if replaced is None else (tool, replaced)


def _checked(run: Run, tool_call: ToolCall, tool: Tool, arguments: Any) -> dict[str, Any] | None:
    try:
        return check_arguments(tool, arguments)
    except (ValueError, RecursionError) as error:
        run.record.refuse_call(tool_call, f"Invalid arguments for tool {tool.name}: {say(error)}", "rejected")
        return None


@trio.lowlevel.enable_ki_protection
async def _execute(run: Run, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> None:
    """Run one tool in its scope, record what became of it, and say its end."""
    record = run.record
    context = ToolContext(
        tool_call.id,
        tool_call.name,
        report=lambda partial: record.report_progress(tool_call, partial),
        room=record.room,
    )
    await trio.lowlevel.checkpoint_if_cancelled()
    record.observers.raise_interrupt()
    record.mark_running(tool_call)
    failure = await _run_in_scope(run, tool_call, tool, arguments, context)
    if failure is not None:
        run.fail(failure)
    hook = run.settings.config.after_tool_call
    if hook is not None and failure is None:
        replacement = await run.ask(hook, tool_call, record.settled_result(tool_call))
        if replacement is not None:
            record.replace_result(tool_call, to_result(replacement))
    record.end_call(tool_call)
    if failure is not None:
        raise failure


@trio.lowlevel.enable_ki_protection
async def _execute_beside(run: Run, batch: _Batch, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> None:
    """`_execute` as one of several at a time, of which each waits for the readers before the next one ends."""
    try:
        with _ending_siblings(run):
            await _execute(run, tool_call, tool, arguments)
            await run.record.room()
    finally:
        batch.end_one()


@contextmanager
@trio.lowlevel.enable_ki_protection
def _ending_siblings(run: Run) -> Iterator[None]:
    """What ends one call of a batch ends the run: atomic siblings have their grace from that moment on."""
    try:
        yield
    except BaseException as error:
        run.fail(error)
        raise


async def _run_in_scope(
    run: Run, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any], context: ToolContext
) -> BaseException | None:
    """Settle the call in the step in which its tool returns or raises.

    Returns:
        An exception that is to end the run (``on_tool_error="raise"``), or None.
    """
    record = run.record
    scope = trio.CancelScope(deadline=math.inf if tool.timeout is None else trio.current_time() + tool.timeout)
    failure = None
    run.running[tool_call.id] = tool_call, trio.lowlevel.current_task()
    try:
        with scope:
            if tool.atomic:
                failure = await _run_with_grace(run, tool_call, tool, arguments, context, scope)
            else:
                failure = await _attempt(run, tool_call, tool, arguments, context)
    finally:
        del run.running[tool_call.id]
    if record.settled_result(tool_call) is None:
        text = f"Timed out after {tool.timeout} seconds; its effects are unknown."
        record.settle(tool_call, ToolResult(text, is_error=True), "failed", trio.TooSlowError(text))
    return failure


async def _attempt(
    run: Run, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any], context: ToolContext
) -> BaseException | None:
    """Run the tool and settle its call, unless a real cancellation cuts it; see `_run_in_scope`."""
    record = run.record
    try:
        value = await run_unprotected(tool.execute, arguments, context)
    except (Exception, trio.Cancelled, BaseExceptionGroup) as error:
        errors = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)]
        cancelled = is_cancelled()
        if any(not isinstance(leaf, Exception) for leaf in errors) or (not errors and cancelled):
            raise
        # What is left is the tool's own: its errors, or a stale Cancelled that no cancelled scope explains. Where
        # errors came together with a real Cancelled they are kept; the cancellation comes again at the next
        # checkpoint, for it is level-triggered, and it was first: the errors do not end the run.
        record.settle(tool_call, ToolResult(_describe(errors or [error]), is_error=True), "failed", error)
        ends_run = run.settings.config.on_tool_error == "raise" and errors and not cancelled
        if not ends_run or record.cause is not None or all(isinstance(leaf, ToolError) for leaf in errors):
            return None
        return bare(error)
    _settle_value(run, tool_call, value)
    return None


def _settle_value(run: Run, tool_call: ToolCall, value: Any) -> None:
    """The tool has returned: whatever it returned, the call is completed."""
    try:
        run.record.settle(tool_call, to_result(value), "completed")
    except (TypeError, ValueError, RecursionError) as error:
        text = f"The tool returned a {type(value).__name__} that cannot be given to the model: {say(error)}"
        run.record.settle(tool_call, ToolResult(text, is_error=True), "completed", error)


def _describe(errors: Sequence[BaseException]) -> str:
    """Errors in words for the model; a `ToolError` chose its own."""
    texts = []
    for error in errors:
        text = say(error)
        if isinstance(error, trio.Cancelled):
            texts.append("The tool raised a cancellation that nobody had asked for.")
        elif isinstance(error, ToolError) or text.startswith(type(error).__name__):
            texts.append(text)
        else:
            texts.append(f"{type(error).__name__}: {text}")
    return "; ".join(texts)


async def _run_with_grace(
    run: Run, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any], context: ToolContext, scope: trio.CancelScope
) -> BaseException | None:
    """Run an atomic tool: shielded, but cut once its grace is over after an abort, a cancellation or its timeout.

    The run's guard gives the shield its deadline when the run is being ended; a timeout is known beforehand.
    """
    failure = None
    with trio.CancelScope(shield=True, deadline=scope.deadline + run.grace) as shield:
        run.shields.add(shield)
        try:
            failure = await _attempt(run, tool_call, tool, arguments, context)
        finally:
            run.shields.discard(shield)
    if scope.cancel_called:
        failure = None  # its own time was over first: as for a tool that is not shielded
    if shield.cancelled_caught and (run.record.cause is not None or not scope.cancel_called):
        run.record.settle(tool_call, ToolResult(GRACE_TEXT, is_error=True), "cancelled")
    return failure
