"""One tool call: may its tool run, and what became of it.

`prepare` finds out whether it may, `execute` runs it in a cancel scope of its own. What a tool returned is recorded in
the task step in which it returned, and a `checkpoint_if_cancelled` stands in the step in which a tool starts: nothing
starts after an abort, and nothing finished is lost to one.
"""

import math
from collections.abc import Sequence
from typing import Any

import trio

from ._errors import ToolError
from ._messages import ToolCall, ToolResult
from ._output import ACCEPTED_TEXT, OutputSlot
from ._run import Run
from ._scopes import bare, is_cancelled, leaves, run_unprotected, say
from ._tools import check_arguments, check_call, to_result
from ._verdicts import GRACE_TEXT, SKIPPED_TEXT
from .abc import SKIP, Tool, ToolContext

__all__ = ["execute", "prepare"]


async def prepare(run: Run, tool_call: ToolCall) -> tuple[Tool, dict[str, Any]] | None:
    """Say the start of a call and find out whether its tool may run.

    Returns:
        The tool and its checked arguments; None if the call was refused, and is settled and ended.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    record = run.record
    record.start_call(tool_call)
    if run.output is not None and run.output.takes(tool_call.name):
        _take_output(run, run.output, tool_call)
        return None
    tool = run.settings.tools.get(tool_call.name)
    if tool is None:
        record.refuse_call(tool_call, f"Tool {tool_call.name} not found", "rejected")
        return None
    arguments = _checked(run, tool_call, tool)
    hook = run.settings.config.before_tool_call
    if arguments is None or hook is None:
        return None if arguments is None else (tool, arguments)
    verdict = await run.ask_hook(hook, tool_call, arguments, tool)
    await trio.lowlevel.checkpoint_if_cancelled()
    if verdict is None:
        return tool, arguments
    if verdict is SKIP:
        record.refuse_call(tool_call, SKIPPED_TEXT, "skipped")
        return None
    if isinstance(verdict, str):
        record.refuse_call(tool_call, verdict or "Blocked.", "rejected")
        return None
    if not isinstance(verdict, dict):
        raise TypeError(
            "before_tool_call must return None (go on), a string (the reason to block), a dict (other arguments) or "
            f"SKIP, not {type(verdict).__name__}"
        )
    replaced = _checked(run, tool_call, tool, verdict)
    return None if replaced is None else (tool, replaced)


def _checked(
    run: Run, tool_call: ToolCall, tool: Tool, replaced: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    try:
        return check_call(tool, tool_call) if replaced is None else check_arguments(tool, replaced)
    except (ValueError, RecursionError) as error:
        run.record.refuse_call(tool_call, f"Invalid arguments for tool {tool.name}: {say(error)}", "rejected")
        return None


def _take_output(run: Run, slot: OutputSlot, tool_call: ToolCall) -> None:
    """A call of the tool that ends the run: there is nothing to execute."""
    record = run.record
    if slot.is_filled:
        record.refuse_call(tool_call, "Not taken: the final result was given already.", "rejected")
        return
    try:
        if tool_call.arguments_error is not None:
            slot.fail(tool_call.arguments_error)
            raise ValueError(slot.problem)
        slot.fill(tool_call.arguments)
    except ValueError as error:
        record.refuse_call(tool_call, f"Invalid final result: {say(error)}", "rejected")
    else:
        record.settle(tool_call, ToolResult(ACCEPTED_TEXT), "completed")
        record.end_call(tool_call)


@trio.lowlevel.enable_ki_protection
async def execute(run: Run, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> None:
    """Run one tool in its scope, record what became of it, and say its end."""
    record = run.record
    context = ToolContext(
        tool_call.id,
        tool_call.name,
        report=lambda partial: record.report_progress(tool_call, partial),
        room=record.room,
        deps=run.settings.config.deps,
        run=run,
    )
    await trio.lowlevel.checkpoint_if_cancelled()
    record.observers.raise_interrupt()
    record.mark_running(tool_call)
    failure = await _run_in_scope(run, tool_call, tool, arguments, context)
    if failure is not None:
        run.fail(failure)
    hook = run.settings.config.after_tool_call
    if hook is not None and failure is None:
        replacement = await run.ask_hook(hook, tool_call, record.settled_result(tool_call), tool)
        if replacement is not None:
            record.replace_result(tool_call, to_result(replacement))
    record.end_call(tool_call)
    if failure is not None:
        raise failure


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
