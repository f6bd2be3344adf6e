"""Driving a run: to its end in the caller's task, or in a nursery beside a block that reads it.

`drive` is the one place where a run is closed. `run_in_block` puts it beside an ``async with`` block;
`agent_loop` and `agent_loop_continue` are the functional layer on top.
"""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

import trio

from ._config import AgentLoopConfig, RunSettings, check_tools
from ._context import AgentContext, to_messages
from ._errors import NothingToResumeError
from ._events import AgentEvent, continues, merge
from ._guard import Guard
from ._loop import run_turns
from ._messages import AssistantMessage, Message
from ._output import OutputSlot
from ._queues import MessageQueue
from ._record import RunRecord
from ._result import RunResult
from ._run import Inbox, Run
from ._scopes import bare, is_cancelled, own_error, say
from ._stream import Coalescer, EventSink, EventStream, open_event_stream
from .abc import Tool

__all__ = [
    "ProtectedBlock",
    "agent_loop",
    "agent_loop_continue",
    "drive",
    "open_output",
    "open_run_stream",
    "open_scope",
    "run_in_block",
]


T_co = TypeVar("T_co", covariant=True)


@trio.lowlevel.enable_ki_protection
async def drive(run: Run, guard: Guard) -> None:
    """Run the loop to its end and seal it, whatever happens: the one place where a run is closed.

    Raises:
        trio.Cancelled: an outer scope was cancelled; never swallowed.
        BaseException: a hook, a transform or a model raised what is not a `ModelError`; it is bare, and it is
            also the result's ``error``.
    """
    record = run.record
    try:
        # an abort and the run's deadline end here: its scope takes their Cancelled out
        with run.scope:
            await _drive_guarded(run, guard)
    except BaseException as error:  # noqa: BLE001 - raised again, bare
        failure = bare(own_error(error))
        if not isinstance(failure, trio.Cancelled):
            record.decide("error", failure)
        if guard.warning is not None:
            failure.add_note(str(guard.warning))
        raise failure from failure.__cause__
    finally:
        record.seal()
        record.observers.raise_interrupt()
    if guard.warning is not None:
        raise guard.warning


async def _drive_guarded(run: Run, guard: Guard) -> None:
    run.loop_task = trio.lowlevel.current_task()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guard.watch, name="guard of the run")
        try:
            await guard.wait_posted()
            run.record.decide(await run_turns(run))
            run.record.seal()
        except BaseException as error:  # noqa: BLE001 - raised again
            failure = own_error(error)
            run.fail(failure)
            raise failure from failure.__cause__
        finally:
            guard.dismiss()


def open_run_stream(max_buffered: int) -> tuple[EventSink[AgentEvent, RunResult], EventStream[AgentEvent, RunResult]]:
    """The stream of a run: slow readers may have adjacent deltas merged."""
    return open_event_stream(max_buffered, coalescer=Coalescer(continues, merge))


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def run_in_block(
    run: Run, stream: EventStream[AgentEvent, RunResult]
) -> AsyncIterator[EventStream[AgentEvent, RunResult]]:
    """The loop in a nursery, its stream in the ``async with`` block.

    Leaving the block early, in whatever way, ends the run and waits until it is sealed. What comes out is bare:
    the body's own exception unchanged, else the run's, else the cancellation.
    """
    failure: BaseException | None = None
    body: BaseException | None = None
    guard = Guard(run)

    async def keep_failure() -> None:
        nonlocal failure
        try:
            await drive(run, guard)
        except Exception as error:  # noqa: BLE001
            # raised when the body has ended: until then the body may read the events to their end
            failure = error

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_failure, name="agent loop")
            try:
                await guard.wait_posted()
                yield stream
            except GeneratorExit:
                raise
            except BaseException as error:
                if isinstance(error, trio.Cancelled) and is_cancelled():
                    run.record.decide("cancelled")
                    raise
                body = error
            run.abort("the reader left the block" if body is None else "the body of the block raised")
            stream.close()
    except BaseExceptionGroup as group:
        chosen = bare(group)
        if failure is not None and isinstance(chosen, trio.Cancelled):
            # the run had failed before; the scope that is cancelled stays so
            raise failure from failure.__cause__
        if body is None or not isinstance(chosen, Exception | trio.Cancelled):
            raise chosen from chosen.__cause__
    finally:
        run.record.decide("cancelled")
        run.record.seal()
    if body is not None:
        if failure is not None:
            body.add_note(f"the run also raised: {type(failure).__name__}: {say(failure)}")
        raise body
    if failure is not None:
        raise failure


class ProtectedBlock(Generic[T_co]):
    """An async context manager with Ctrl-C kept out of its entry and its exit, contextlib's own lines included:
    an interrupt between them and the nursery inside would tear trio's nursery stack. The body is not protected."""

    def __init__(self, manager: AbstractAsyncContextManager[T_co]) -> None:
        self._manager = manager

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> T_co:
        return await self._manager.__aenter__()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)


def open_scope(timeout: float | None) -> trio.CancelScope:
    """The scope that bounds a run: `Agent.abort` cancels it, ``timeout`` is its deadline."""
    if timeout is None:
        return trio.CancelScope()
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, at least 0, or None, not {timeout!r}")
    return trio.CancelScope(deadline=trio.current_time() + timeout if timeout < math.inf else math.inf)


def open_output(wanted: Any, tools: Mapping[str, Tool]) -> OutputSlot | None:
    """The place of the value that a run is to give; None if it is to give none. Raises as `OutputSlot` does, and
    ValueError if a tool has its name."""
    if wanted is None:
        return None
    slot = OutputSlot(wanted)
    slot.check_name(tools)
    return slot


def _functional_run(context: AgentContext, config: AgentLoopConfig) -> tuple[Run, EventStream[AgentEvent, RunResult]]:
    sink, stream = open_run_stream(config.max_buffered_events)
    steering, follow_ups = MessageQueue("all"), MessageQueue("all")
    tools = check_tools(context.tools)
    output = open_output(config.output, tools)
    record = RunRecord(list(context.messages), sink, steering=steering, follow_ups=follow_ups, output=output)
    run = Run(
        record,
        RunSettings(config, context.system_prompt, tools),
        Inbox(steering, config.get_steering_messages),
        Inbox(follow_ups, config.get_follow_up_messages, "get_follow_up_messages"),
        open_scope(None),
    )
    return run, stream


def agent_loop(
    prompts: str | Message | Sequence[str | Message], context: AgentContext, config: AgentLoopConfig
) -> ProtectedBlock[EventStream[AgentEvent, RunResult]]:
    """Run the loop on ``context`` with new prompts, without an `Agent`.

    ``async with agent_loop(prompts, context, config) as stream:`` then read the stream or await its result;
    ``result.messages`` is what the run added. Nothing that was passed in is changed. Leaving the block ends the
    run and waits until it is sealed.

    Raises:
        TypeError, ValueError: see `AgentLoopConfig`; an empty prompt, or one that is neither text nor a message.
        Exception: a hook, a transform or a model raised; said when the block ends.
    """
    return ProtectedBlock(_run_functional(to_messages(prompts, "prompts"), context, config))


def agent_loop_continue(
    context: AgentContext, config: AgentLoopConfig
) -> ProtectedBlock[EventStream[AgentEvent, RunResult]]:
    """Run the loop on ``context`` as it is, without a new message; see `agent_loop`.

    Raises:
        NothingToResumeError: the context has no messages, or its last one is an assistant message that calls no
            tool.
    """
    last = context.messages[-1] if context.messages else None
    if last is None or (isinstance(last, AssistantMessage) and not last.tool_calls):
        raise NothingToResumeError("the context ends with nothing to answer; use agent_loop(prompts, ...)")
    return ProtectedBlock(_run_functional((), context, config))


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def _run_functional(
    messages: Sequence[Message], context: AgentContext, config: AgentLoopConfig
) -> AsyncIterator[EventStream[AgentEvent, RunResult]]:
    run, stream = _functional_run(context, config)
    run.record.begin(messages)
    async with run_in_block(run, stream):
        yield stream
