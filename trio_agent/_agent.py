"""`Agent`: a transcript, two queues and at most one run at a time."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar, overload

import trio

from ._config import AfterToolCall, AgentLoopConfig, BeforeToolCall, RunSettings, check_messages, check_tools
from ._context import ConvertToLlm, TransformContext, default_convert_to_llm, to_messages
from ._controls import AgentControls, DepsT
from ._drive import ProtectedBlock, drive, open_output, open_run_stream, open_scope, run_in_block
from ._errors import AgentBusyError, NothingToResumeError
from ._events import AgentEvent
from ._guard import Guard
from ._limits import Limits
from ._messages import AssistantMessage, Message
from ._nested import nested_tool
from ._output import Output
from ._queues import QueueMode
from ._record import RunRecord
from ._result import RunResult
from ._run import Inbox, Run
from ._stream import EventSink, EventStream
from ._transcript import open_calls
from .abc import Model, ModelOptions, Tool

__all__ = ["Agent"]

T = TypeVar("T")


class Agent(AgentControls[DepsT]):
    """An agent: a model, tools, a transcript, and one run at a time.

    Everything here belongs to one trio thread; from other threads and signal handlers use `abort_soon` and
    `steer_soon`.

    Args:
        model: see `trio_agent.abc.Model`.
        system_prompt, tools, messages: what it starts with. ``messages`` may come from an earlier agent.
        deps: what tools find as `ToolContext.deps`, and hooks as `HookContext.deps`.
        steering_mode, follow_up_mode: how many queued messages one poll takes: ``"one-at-a-time"`` or ``"all"``.
        transform_context, convert_to_llm, tool_execution, max_parallel_tools, before_tool_call, after_tool_call,
            max_turns, limits, abort_grace, max_buffered_events, options, steering_point, on_tool_error: see
            `AgentLoopConfig`.

    Raises:
        TypeError, ValueError: an argument is wrong; the error names it.
    """

    def __init__(
        self,
        model: Model,
        *,
        system_prompt: str = "",
        tools: Iterable[Tool] = (),
        messages: Iterable[Message] = (),
        deps: DepsT = None,  # type: ignore[assignment]
        transform_context: TransformContext | None = None,
        convert_to_llm: ConvertToLlm = default_convert_to_llm,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        tool_execution: Literal["sequential", "parallel"] = "sequential",
        max_parallel_tools: int | None = None,
        steering_point: Literal["tool", "turn"] = "tool",
        on_tool_error: Literal["result", "raise"] = "result",
        before_tool_call: BeforeToolCall | None = None,
        after_tool_call: AfterToolCall | None = None,
        max_turns: int | None = None,
        limits: Limits | None = None,
        abort_grace: float = 5.0,
        max_buffered_events: int = 1024,
        options: ModelOptions | None = None,
    ) -> None:
        config = AgentLoopConfig(
            model=model,
            transform_context=transform_context,
            convert_to_llm=convert_to_llm,
            tool_execution=tool_execution,
            max_parallel_tools=max_parallel_tools,
            steering_point=steering_point,
            on_tool_error=on_tool_error,
            before_tool_call=before_tool_call,
            after_tool_call=after_tool_call,
            max_turns=max_turns,
            limits=limits or Limits(),
            deps=deps,
            abort_grace=abort_grace,
            max_buffered_events=max_buffered_events,
            options=options or ModelOptions(),
        )
        settings = RunSettings(config, system_prompt, check_tools(tools))
        super().__init__(settings, check_messages(messages), steering_mode, follow_up_mode)

    # running ----------------------------------------------------------------------------------------------------

    @overload
    async def prompt(
        self, prompts: str | Message | Sequence[str | Message], *, output: None = None, timeout: float | None = None
    ) -> RunResult[None]: ...
    @overload
    async def prompt(
        self,
        prompts: str | Message | Sequence[str | Message],
        *,
        output: type[T] | Output[T],
        timeout: float | None = None,
    ) -> RunResult[T]: ...
    @overload
    async def prompt(
        self, prompts: str | Message | Sequence[str | Message], *, output: Any, timeout: float | None = None
    ) -> RunResult[Any]: ...
    @trio.lowlevel.enable_ki_protection
    async def prompt(
        self, prompts: str | Message | Sequence[str | Message], *, output: Any = None, timeout: float | None = None
    ) -> RunResult[Any]:
        """Run to the end with new messages.

        The messages are in the transcript before the first checkpoint. An abort or a deadline gives a result;
        an outer cancellation passes through, with the run sealed and the agent idle.

        Args:
            prompts: a string, a message, or a sequence of either.
            output: the type of the value that the run is to give as `RunResult.output`, or an `Output`. The model is
                corrected until it is valid, within bounds; what is said while it answers (steering, follow-ups) is
                answered first, and the value is the last word.
            timeout: seconds until the run ends with outcome ``deadline``.

        Raises:
            TypeError, ValueError: the prompt is empty, or neither text nor a message; ``output`` has no JSON Schema,
                or its tool has the name of another one.
            AgentBusyError: a run is active.
            Exception: a hook, a transform or a model raised what is not a `ModelError` (outcome ``error`` with a
                `ModelError` does not raise; see `RunResult.raise_for_error`).
        """
        messages = to_messages(prompts)
        run = self._open_run(EventSink(), timeout, output)
        run.record.begin(messages)
        return await self._to_the_end(run)

    @overload
    async def resume(self, *, output: None = None, timeout: float | None = None) -> RunResult[None]: ...
    @overload
    async def resume(self, *, output: type[T] | Output[T], timeout: float | None = None) -> RunResult[T]: ...
    @overload
    async def resume(self, *, output: Any, timeout: float | None = None) -> RunResult[Any]: ...
    @trio.lowlevel.enable_ki_protection
    async def resume(self, *, output: Any = None, timeout: float | None = None) -> RunResult[Any]:
        """Run to the end from the transcript as it is, without a new message; otherwise like `prompt`.

        Calls that a killed process left unanswered get an error result first. With an answered assistant message
        last, one batch of steering is taken, else one of follow-ups.

        Raises:
            NothingToResumeError: the transcript is empty, or answered with nothing queued.
            AgentBusyError: a run is active.
        """
        run = self._resume_run(EventSink(), timeout, output)
        return await self._to_the_end(run)

    @overload
    def run(
        self,
        prompts: str | Message | Sequence[str | Message] | None = None,
        *,
        output: None = None,
        timeout: float | None = None,
        max_buffered: int | None = None,
    ) -> ProtectedBlock[EventStream[AgentEvent, RunResult[None]]]: ...
    @overload
    def run(
        self,
        prompts: str | Message | Sequence[str | Message] | None = None,
        *,
        output: type[T] | Output[T],
        timeout: float | None = None,
        max_buffered: int | None = None,
    ) -> ProtectedBlock[EventStream[AgentEvent, RunResult[T]]]: ...
    @overload
    def run(
        self,
        prompts: str | Message | Sequence[str | Message] | None = None,
        *,
        output: Any,
        timeout: float | None = None,
        max_buffered: int | None = None,
    ) -> ProtectedBlock[EventStream[AgentEvent, RunResult[Any]]]: ...
    def run(
        self,
        prompts: str | Message | Sequence[str | Message] | None = None,
        *,
        output: Any = None,
        timeout: float | None = None,
        max_buffered: int | None = None,
    ) -> ProtectedBlock[EventStream[AgentEvent, RunResult[Any]]]:
        """Run and watch: ``async with agent.run("...") as run:`` gives the run's `EventStream`.

        Entering is a checkpoint: a cancellation that is pending comes out there, with the prompts in the transcript
        and the run sealed. Read it (``async for event in run``), await ``run.result()``, or both. Leaving the block
        early, in whatever way, aborts the run and waits until it is sealed; an exception of the block's body comes
        out unchanged.

        Args:
            prompts: as for `prompt`; None resumes, as `resume` does.
            output: as for `prompt`.
            timeout: seconds until the run ends with outcome ``deadline``.
            max_buffered: how many events may wait for the reader; the agent's ``max_buffered_events`` by default.
        """
        return ProtectedBlock(self._run_block(prompts, timeout, max_buffered, output))

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def _run_block(
        self,
        prompts: str | Message | Sequence[str | Message] | None,
        timeout: float | None,
        max_buffered: int | None,
        output: Any,
    ) -> AsyncIterator[EventStream[AgentEvent, RunResult]]:
        bound = self._settings.config.max_buffered_events if max_buffered is None else max_buffered
        sink, stream = open_run_stream(bound)
        if prompts is None:
            run = self._resume_run(sink, timeout, output)
        else:
            messages = to_messages(prompts)
            run = self._open_run(sink, timeout, output)
            run.record.begin(messages)
        try:
            async with run_in_block(run, stream):
                yield stream
        except BaseException as error:
            self._observers.warn(error)
            raise
        self._observers.warn()

    async def _to_the_end(self, run: Run) -> RunResult:
        try:
            await drive(run, Guard(run))
        except BaseException as error:
            self._observers.warn(error)
            raise
        self._observers.warn()
        assert run.record.result is not None  # drive() seals on every path
        return run.record.result

    def _open_run(self, sink: EventSink[AgentEvent, RunResult], timeout: float | None, output: Any) -> Run:
        if self._run is not None:
            raise AgentBusyError(
                "a run is active on this agent; await agent.wait_idle(), or use agent.steer(), agent.follow_up() "
                "or agent.abort()"
            )
        scope = open_scope(timeout)
        slot = open_output(output, self._settings.tools)
        record = RunRecord(
            self._messages,
            sink,
            steering=self._steering,
            follow_ups=self._follow_ups,
            observers=self._observers,
            unseen=self._unseen,
            on_end=self._run_ended,
            output=slot,
        )
        self._token = trio.lowlevel.current_trio_token()
        self._idle = trio.Event()
        self._run = Run(record, self._settings, Inbox(self._steering), Inbox(self._follow_ups), scope)
        return self._run

    def _resume_run(self, sink: EventSink[AgentEvent, RunResult], timeout: float | None, output: Any) -> Run:
        answered = (not self._messages or isinstance(self._messages[-1], AssistantMessage)) and not open_calls(
            self._messages
        )
        queue = self._steering if self._steering else self._follow_ups
        if self._run is None and answered and not (self._messages and queue):
            raise NothingToResumeError(
                "there is nothing to go on from: "
                + ("the transcript is empty" if not self._messages else "the last message is answered")
                + " and nothing is queued; use agent.prompt(...)"
            )
        run = self._open_run(sink, timeout, output)
        run.looks_first = not (answered and queue is self._steering)
        run.record.begin((), queue.take() if answered else ())
        return run

    def _run_ended(self) -> None:
        if self._run is not None and self._run.record.result is not None:
            self._last_error = self._run.record.result.error
        self._run = None
        self._idle.set()

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        prompt: Callable[..., Any] | None = None,
        output: Any = None,
        timeout: float | None = None,
        sequential: bool = False,
    ) -> Tool:
        """This agent as a tool of another one.

        Each call is a run of its own on a copy of this agent, with its settings and its transcript as they are at
        the call: calls may run side by side, and none changes this agent or is heard by its observers. The run is
        inside the tool call: whatever cuts the call (an abort, a cancellation, ``timeout``) ends it, and it is sealed
        before the call has its result. What happens in it is said by the outer run as `ToolExecutionUpdate`, with the
        path of calls that lead to it. Its tokens count as the outer run's, whose limits hold for it too. It has the
        outer agent's ``deps`` if this one has none.

        The result is the text of its last answer, or the value of ``output`` as JSON; ``details`` is its `RunResult`.
        A run that did not complete is an error result that says why.

        Args:
            name, description: for the model that calls it.
            prompt: a typed function that makes the prompt from the call's arguments, sync or async, as `tool` reads
                one; by default the model gives one string, ``prompt``.
            output: as for `prompt`.
            timeout, sequential: see `Tool`.

        Raises:
            TypeError, ValueError: an argument is wrong; the error names it.
        """
        open_output(output, self._settings.tools)
        return nested_tool(
            lambda: (self._settings, self.messages),
            name=name,
            description=description,
            prompt=prompt,
            output=output,
            timeout=timeout,
            sequential=sequential,
        )
