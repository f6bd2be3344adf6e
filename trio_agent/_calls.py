"""The tool calls of one assistant message, in order or side by side.

Sequential: start, run, record, answer, look at steering, next. Parallel: start events in call order, end events as
the tools finish, result messages in call order once all have settled. What one call does is in `_execute`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from ._execute import execute, prepare
from ._messages import AssistantMessage, ToolCall
from ._run import Run
from ._scopes import raise_bare
from ._verdicts import LENGTH_TEXT, SKIPPED_TEXT, limit_text
from .abc import Tool

__all__ = ["run_calls"]


@trio.lowlevel.enable_ki_protection
async def run_calls(run: Run, message: AssistantMessage) -> bool:
    """Give every call of ``message`` its result.

    Returns:
        True if the model is to be asked again because of them: there were calls, and not every result asked to end
        the run (`ToolResult.terminate`). False as well once the run has the value it was to give, or a limit.
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
    has_output = run.output is not None and run.output.is_filled
    return terminating < len(calls) and not has_output and run.limit is None


async def _run_sequential(run: Run, calls: Sequence[ToolCall]) -> int:
    terminating = 0
    for index, tool_call in enumerate(calls):
        await run.record.room()
        if not run.take_call(tool_call):
            _refuse_rest(run, calls[index:])
            break
        prepared = await prepare(run, tool_call)
        if prepared is not None:
            await execute(run, tool_call, *prepared)
        terminating += _terminates(run, tool_call)
        run.record.answer(tool_call)
        rest = calls[index + 1 :]
        if (not rest or run.settings.config.steering_point == "tool") and await run.look_for_steering():
            _refuse_rest(run, rest)
            break
    return terminating


async def _run_parallel(run: Run, calls: Sequence[ToolCall]) -> int:
    started: list[ToolCall] = []
    batch = _Batch()
    at_once = run.settings.config.max_parallel_tools or len(calls)
    try:
        async with trio.open_nursery() as nursery:
            with _ending_siblings(run):
                for index, tool_call in enumerate(calls):
                    await batch.wait_below(at_once)
                    if run.settings.config.steering_point == "tool" and index and run.has_steering():
                        break
                    await run.record.room()
                    if not run.take_call(tool_call):
                        break
                    prepared = await prepare(run, tool_call)
                    started.append(tool_call)
                    if prepared is not None:
                        batch.left += 1
                        name = f"tool {tool_call.name}"
                        nursery.start_soon(_execute_beside, run, batch, tool_call, *prepared, name=name)
                # waited for here and not in the nursery's exit: an interrupt there would end the batch alone, and
                # neither the guard nor the tools' graces would know of it
                await batch.wait_below(1)
    except BaseExceptionGroup as group:
        raise_bare(group)
    terminating = 0
    for tool_call in started:
        await run.record.room()
        terminating += _terminates(run, tool_call)
        run.record.answer(tool_call)
    _refuse_rest(run, calls[len(started) :])
    if run.limit is None:
        await run.look_for_steering()
    return terminating


class _Batch:
    """How many tools of a parallel batch still run."""

    def __init__(self) -> None:
        self.left = 0
        self._awaited = 0
        self._reached: trio.Event | None = None

    def end_one(self) -> None:
        """One of them has ended, however."""
        self.left -= 1
        if self._reached is not None and self.left < self._awaited:
            self._reached.set()

    async def wait_below(self, count: int) -> None:
        """Wait until fewer than ``count`` are left."""
        if self.left >= count:
            self._awaited, self._reached = count, trio.Event()
            await self._reached.wait()


def _refuse_rest(run: Run, calls: Sequence[ToolCall]) -> None:
    """The calls that are not taken up: steering came first, or a limit."""
    for tool_call in calls:
        if run.limit is not None:
            run.record.refuse_call(tool_call, limit_text(run.limit), "not_started")
        else:
            run.record.refuse_call(tool_call, SKIPPED_TEXT, "skipped")
        run.record.answer(tool_call)


def _terminates(run: Run, tool_call: ToolCall) -> bool:
    result = run.record.settled_result(tool_call)
    return result is not None and result.terminate


@trio.lowlevel.enable_ki_protection
async def _execute_beside(run: Run, batch: _Batch, tool_call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> None:
    """`execute` as one of several at a time, of which each waits for the readers before the next one ends."""
    try:
        with _ending_siblings(run):
            await execute(run, tool_call, tool, arguments)
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
