"""`Agent`: a transcript, two queues and at most one run at a time."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import trio

from ._config import (
    AfterToolCall,
    AgentLoopConfig,
    BeforeToolCall,
    RunSettings,
    check_messages,
    check_model,
    check_tools,
)
from ._context import ConvertToLlm, TransformContext, default_convert_to_llm, to_messages
from ._drive import ProtectedBlock, drive, open_run_stream, open_scope, run_in_block
from ._errors import AgentBusyError, NothingToResumeError
from ._events import AgentEvent
from ._guard import Guard
from ._messages import AssistantMessage, Message
from ._observers import Observers
from ._queues import MessageQueue, QueueMode, Receipt, check_mode
from ._record import RunRecord
from ._result import AgentState, RunResult
from ._run import Inbox, Run
from ._stream import EventSink, EventStream
from ._transcript import open_calls
from .abc import Model, ModelOptions, Observer, Tool

__all__ = ["Agent"]


class Agent:
    """An agent: a model, tools, a transcript, and one run at a time.

    Everything here belongs to one trio thread; from other threads and signal handlers use `abort_soon` and
    `steer_soon`.

    Args:
        model: see `trio_agent.abc.Model`.
        system_prompt, tools, messages: what it starts with. ``messages`` may come from an earlier agent.
        steering_mode, follow_up_mode: how many queued messages one poll takes: ``"one-at-a-time"`` or ``"all"``.
        transform_context, convert_to_llm, tool_execution, before_tool_call, after_tool_call, max_turns,
            abort_grace, max_buffered_events, options, steering_point, on_tool_error: see `AgentLoopConfig`.

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
        transform_context: TransformContext | None = None,
        convert_to_llm: ConvertToLlm = default_convert_to_llm,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        tool_execution: Literal["sequential", "parallel"] = "sequential",
        steering_point: Literal["tool", "turn"] = "tool",
        on_tool_error: Literal["result", "raise"] = "result",
        before_tool_call: BeforeToolCall | None = None,
        after_tool_call: AfterToolCall | None = None,
        max_turns: int | None = None,
        abort_grace: float = 5.0,
        max_buffered_events: int = 1024,
        options: ModelOptions | None = None,
    ) -> None:
        config = AgentLoopConfig(
            model=model,
            transform_context=transform_context,
            convert_to_llm=convert_to_llm,
            tool_execution=tool_execution,
            steering_point=steering_point,
            on_tool_error=on_tool_error,
            before_tool_call=before_tool_call,
            after_tool_call=after_tool_call,
            max_turns=max_turns,
            abort_grace=abort_grace,
            max_buffered_events=max_buffered_events,
            options=options or ModelOptions(),
        )
        self._settings = RunSettings(config, system_prompt, check_tools(tools))
        self._messages = check_messages(messages)
        self._steering = MessageQueue(check_mode("steering_mode", steering_mode))
        self._follow_ups = MessageQueue(check_mode("follow_up_mode", follow_up_mode))
        self._observers = Observers()
        self._unseen: list[Receipt] = []
        self._run: Run | None = None
        self._idle = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._last_error: BaseException | None = None

    # what it is -------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript. A copy; change it with `reset`, or make a new agent."""
        return tuple(self._messages)

    @property
    def model(self) -> Model:
        """The model of the next request; may be assigned, also in mid-run."""
        return self._settings.config.model

    @model.setter
    def model(self, model: Model) -> None:
        self._settings.config.model = check_model(model)

    @property
    def system_prompt(self) -> str:
        """The system prompt of the next request; may be assigned, also in mid-run."""
        return self._settings.system_prompt

    @system_prompt.setter
    def system_prompt(self, system_prompt: str) -> None:
        self._settings.system_prompt = system_prompt

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the next request; may be assigned, also in mid-run."""
        return tuple(self._settings.tools.values())

    @tools.setter
    def tools(self, tools: Iterable[Tool]) -> None:
        self._settings.tools = check_tools(tools)

    @property
    def state(self) -> AgentState:
        """A snapshot of what is going on. Costs O(length of the streaming message)."""
        run = self._run
        return AgentState(
            is_running=run is not None,
            is_aborting=run is not None and run.record.cause is not None,
            streaming_message=run.record.streaming_message if run is not None else None,
            pending_tool_calls=tuple(run.record.pending_calls) if run is not None else (),
            queued_steering=self._steering.messages,
            queued_follow_ups=self._follow_ups.messages,
            last_error=self._last_error,
        )

    # running ----------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def prompt(
        self, prompts: str | Message | Sequence[str | Message], *, timeout: float | None = None
    ) -> RunResult:
        """Run to the end with new messages.

        The messages are in the transcript before the first checkpoint. An abort or a deadline gives a result;
        an outer cancellation passes through, with the run sealed and the agent idle.

        Args:
            prompts: a string, a message, or a sequence of either.
            timeout: seconds until the run ends with outcome ``deadline``.

        Raises:
            TypeError, ValueError: the prompt is empty, or neither text nor a message.
            AgentBusyError: a run is active.
            Exception: a hook, a transform or a model raised what is not a `ModelError` (outcome ``error`` with a
                `ModelError` does not raise; see `RunResult.raise_for_error`).
        """
        messages = to_messages(prompts)
        run = self._open_run(EventSink(), timeout)
        run.record.begin(messages)
        return await self._to_the_end(run)

    @trio.lowlevel.enable_ki_protection
    async def resume(self, *, timeout: float | None = None) -> RunResult:
        """Run to the end from the transcript as it is, without a new message; otherwise like `prompt`.

        Calls that a killed process left unanswered get an error result first. With an answered assistant message
        last, one batch of steering is taken, else one of follow-ups.

        Raises:
            NothingToResumeError: the transcript is empty, or answered with nothing queued.
            AgentBusyError: a run is active.
        """
        run = self._resume_run(EventSink(), timeout)
        return await self._to_the_end(run)

    def run(
        self,
        prompts: str | Message | Sequence[str | Message] | None = None,
        *,
        timeout: float | None = None,
        max_buffered: int | None = None,
    ) -> ProtectedBlock[EventStream[AgentEvent, RunResult]]:
        """Run and watch: ``async with agent.run("...") as run:`` gives the run's `EventStream`.

        Entering is a checkpoint: a cancellation that is pending comes out there, with the prompts in the transcript
        and the run sealed. Read it (``async for event in run``), await ``run.result()``, or both. Leaving the block
        early, in whatever way, aborts the run and waits until it is sealed; an exception of the block's body comes
        out unchanged.

        Args:
            prompts: as for `prompt`; None resumes, as `resume` does.
            timeout: seconds until the run ends with outcome ``deadline``.
            max_buffered: how many events may wait for the reader; the agent's ``max_buffered_events`` by default.
        """
        return ProtectedBlock(self._run_block(prompts, timeout, max_buffered))

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def _run_block(
        self,
        prompts: str | Message | Sequence[str | Message] | None,
        timeout: float | None,
        max_buffered: int | None,
    ) -> AsyncIterator[EventStream[AgentEvent, RunResult]]:
        bound = self._settings.config.max_buffered_events if max_buffered is None else max_buffered
        sink, stream = open_run_stream(bound)
        if prompts is None:
            run = self._resume_run(sink, timeout)
        else:
            messages = to_messages(prompts)
            run = self._open_run(sink, timeout)
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

    def _open_run(self, sink: EventSink[AgentEvent, RunResult], timeout: float | None) -> Run:
        if self._run is not None:
            raise AgentBusyError(
                "a run is active on this agent; await agent.wait_idle(), or use agent.steer(), agent.follow_up() "
                "or agent.abort()"
            )
        scope = open_scope(timeout)
        record = RunRecord(
            self._messages,
            sink,
            steering=self._steering,
            follow_ups=self._follow_ups,
            observers=self._observers,
            unseen=self._unseen,
            on_end=self._run_ended,
        )
        self._token = trio.lowlevel.current_trio_token()
        self._idle = trio.Event()
        self._run = Run(record, self._settings, Inbox(self._steering), Inbox(self._follow_ups), scope)
        return self._run

    def _resume_run(self, sink: EventSink[AgentEvent, RunResult], timeout: float | None) -> Run:
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
        run = self._open_run(sink, timeout)
        run.looks_first = not (answered and queue is self._steering)
        run.record.begin((), queue.take() if answered else ())
        return run

    def _run_ended(self) -> None:
        if self._run is not None and self._run.record.result is not None:
            self._last_error = self._run.record.result.error
        self._run = None
        self._idle.set()

    # while it runs ----------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def steer(self, message: str | Message) -> Receipt:
        """Queue a message that changes the direction of the run. Sync.

        It waits for the running tool, the calls not yet started are skipped, and it goes to the model next. No
        tool is cut. Without a run it waits for the next one.

        Returns:
            A receipt: was it delivered, and the means to take it back.
        """
        return self._steering.put(_one_message(message))

    @trio.lowlevel.enable_ki_protection
    def follow_up(self, message: str | Message) -> Receipt:
        """Queue a message for when the run would otherwise end. Sync; see `steer`."""
        return self._follow_ups.put(_one_message(message))

    @trio.lowlevel.enable_ki_protection
    def abort(self, reason: str | None = None) -> bool:
        """End the run on purpose. Sync; the run is sealed once its tools and its request have been cut.

        Tools are cut at their next checkpoint; an atomic one may use its grace. Queued messages stay queued.

        Returns:
            True iff this call decided the run's outcome: a run was active and nothing had ended it before.
        """
        return self._run is not None and self._run.abort(reason)

    def abort_soon(self, reason: str | None = None) -> bool:
        """`abort` of the run that is active now, from any thread or signal handler. False if none is; True promises
        nothing more than that the request was passed on. A later run is never aborted by it."""
        run = self._run
        return self._soon(lambda: self._run is run and self.abort(reason))

    def steer_soon(self, message: str | Message) -> bool:
        """`steer`, from any thread or signal handler. False, and nothing is queued, if no run is active."""
        checked = _one_message(message)
        return self._soon(lambda: self.steer(checked))

    def _soon(self, action: Callable[[], object]) -> bool:
        token = self._token
        if self._run is None or token is None:
            return False
        try:
            token.run_sync_soon(action)
        except trio.RunFinishedError:
            return False
        return True

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Call ``observer`` with every event of every run from now on, in order, on every path. Sync.

        It cannot harm a run: one that raises is removed, and what it raised is said as an `ObserverWarning` when
        the run has ended.

        Returns:
            A function that removes it again; calling it twice is harmless.

        Raises:
            TypeError: it is not a sync callable.
        """
        if not callable(observer) or inspect.iscoroutinefunction(observer):
            raise TypeError(f"subscribe() takes a sync callable(event), not {observer!r}")

        return self._observers.add(observer)

    async def wait_idle(self) -> None:
        """Wait until no run is active; then a new one may start at once. A checkpoint in any case."""
        await trio.lowlevel.checkpoint()
        while self._run is not None:
            await self._idle.wait()

    @trio.lowlevel.enable_ki_protection
    def reset(self) -> tuple[Message, ...]:
        """Forget the transcript, and withdraw what is queued.

        Returns:
            What no request has had, so that nothing is silently lost: messages taken from a queue into the
            transcript of a run that ended before its request, then queued steering, then queued follow-ups.

        Raises:
            AgentBusyError: a run is active.
        """
        if self._run is not None:
            raise AgentBusyError("a run is active on this agent; await agent.wait_idle() before reset()")
        unseen = tuple([receipt.message for receipt in self._unseen])
        for receipt in self._unseen:
            receipt.forget()
        self._messages.clear()
        self._unseen.clear()
        self._last_error = None
        return (*unseen, *self._steering.clear(), *self._follow_ups.clear())


def _one_message(message: str | Message) -> Message:
    if isinstance(message, list | tuple):
        raise TypeError("message must be one string or one message; call again for each further one")
    return to_messages(message, "message")[0]
