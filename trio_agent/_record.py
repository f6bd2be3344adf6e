"""The books of one run. Everything here is synchronous: what is decided is recorded in the same task step.

`RunRecord` is the only place where a run's transcript, queues and events change. Because none of it awaits, no
cancellation can fall between two of its lines; because its callers are protected, no KeyboardInterrupt can either.
`RunRecord.seal` ends the books from whatever position they are in, by asking the grammar for the shortest ending.
"""

from collections.abc import Callable, Iterable, Sequence

import attrs
import trio

from ._events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from ._grammar import CallState, RunGrammar, RunState
from ._limits import Limit
from ._messages import (
    AssistantMessage,
    Message,
    Outcome,
    StopReason,
    ToolCall,
    ToolOutcome,
    ToolResult,
    ToolResultMessage,
    Usage,
)
from ._observers import Observers, Outer
from ._output import OutputSlot
from ._queues import MessageQueue, Receipt
from ._result import RunResult
from ._scopes import say
from ._stream import EventSink
from ._transcript import answer_open_calls
from ._verdicts import CANCELLED_TEXT, NOT_STARTED_TEXT, Cause, Settled
from ._writer import ResponseWriter
from .abc import Model

__all__ = ["RunRecord"]


_NOTHING = ToolResult(())


class RunRecord:
    """The books of one run; see the module's text.

    Args:
        transcript: the messages so far; the run's are appended to this very list.
        sink: where events go.
        steering, follow_ups: the queues that `take` empties into the transcript.
        observers: called with each event, in order.
        unseen: receipts of messages that are in the transcript but in no request yet, also from earlier runs.
        on_end: called when the result exists and before the last event is said.
        output: the place of the value that the run is to give, if it is to give one.
        outer: the tool call that this run is, if it is one.
    """

    def __init__(
        self,
        transcript: list[Message],
        sink: EventSink[AgentEvent, RunResult],
        *,
        steering: MessageQueue,
        follow_ups: MessageQueue,
        observers: Observers | None = None,
        unseen: list[Receipt] | None = None,
        on_end: Callable[[], None] | None = None,
        output: OutputSlot | None = None,
        outer: Outer | None = None,
    ) -> None:
        self.transcript = transcript
        self.steering = steering
        self.follow_ups = follow_ups
        self.turns = 0
        self.result: RunResult | None = None
        self.cause: Cause | None = None
        self.pending_calls: dict[str, ToolCall] = {}
        self.writer: ResponseWriter | None = None
        self.output = output
        self._outer = outer
        self._sink = sink
        self.observers = observers if observers is not None else Observers()
        self._unseen = unseen if unseen is not None else []
        self._on_end = on_end
        self._grammar = RunGrammar()
        self._first = len(transcript)
        self.usage = Usage()
        self._open_message: Message | None = None
        self._assistant: AssistantMessage | None = None
        self._results: list[ToolResultMessage] = []
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._settled: dict[str, Settled] = {}

    # events -----------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def emit(self, event: AgentEvent) -> None:
        """Say an event: check it against the grammar, give it to the stream, then to every observer."""
        self._grammar.advance(event)
        self._sink.push(event)
        if self.observers:
            self.observers.tell(event)
        if self._outer is not None:
            self._outer.tell(event)

    @trio.lowlevel.enable_ki_protection
    async def room(self) -> None:
        """Wait while readers are behind; see `EventSink.room`."""
        await self._sink.room()
        if self._outer is not None:
            await self._outer.room()
        if self.observers.interrupt is not None:
            self.observers.raise_interrupt()

    # messages ---------------------------------------------------------------------------------------------------

    def begin(self, prompts: Sequence[Message] = (), receipts: Iterable[Receipt] = ()) -> None:
        """Say ``agent_start`` and the first ``turn_start``; complete an unanswered history; enter the prompts, or
        what was just taken from a queue."""
        self.emit(AgentStart())
        self.begin_turn(())
        self.enter((*answer_open_calls(self.transcript), *prompts))
        self.enter_receipts(receipts)

    def begin_turn(self, receipts: Iterable[Receipt]) -> None:
        """Say ``turn_start`` and enter what was just taken from a queue."""
        self.turns += 1
        self._assistant, self._results = None, []
        self._settled, self._running = {}, {}
        self.emit(TurnStart(self.turns))
        self.enter_receipts(receipts)

    def enter_receipts(self, receipts: Iterable[Receipt]) -> None:
        """Enter messages that were just taken from a queue; each counts as delivered with the next request."""
        for receipt in receipts:
            self._unseen.append(receipt)
            self._enter(receipt.message)

    def enter(self, messages: Iterable[Message]) -> None:
        """Enter messages that no queue held: prompts, and what a context step has to say."""
        for message in messages:
            self._enter(message)

    def _enter(self, message: Message) -> None:
        self.transcript.append(message)
        self._open_message = message
        self.emit(MessageStart(message))
        self.emit(MessageEnd(message))

    def add_usage(self, usage: Usage) -> None:
        """Tokens that the run spent beside its own responses: in a context step, in an agent that was a tool."""
        self.usage += usage
        if self._outer is not None:
            self._outer.spend(usage)

    def begin_response(self, model: Model) -> ResponseWriter:
        """A request is being sent in this step: what the transcript holds is delivered."""
        for receipt in self._unseen:
            receipt.mark_delivered()
        self._unseen.clear()
        self.writer = ResponseWriter(self.emit, self.room, model.name, model.provider)
        return self.writer

    def end_response(self, failure: StopReason | None = None, error_message: str | None = None) -> AssistantMessage:
        """The model has returned or failed: complete its message and enter it."""
        writer, self.writer = self.writer, None
        assert writer is not None
        message = writer.close(failure, error_message)
        self._assistant = message
        self.add_usage(message.usage)
        self.transcript.append(message)
        self.pending_calls = {call.id: call for call in message.tool_calls}
        self.emit(MessageEnd(message))
        return message

    def end_turn(self) -> None:
        """Say ``turn_end``."""
        self.emit(TurnEnd(self._assistant, tuple(self._results)))

    # tool calls -------------------------------------------------------------------------------------------------

    def start_call(self, call: ToolCall) -> None:
        """Say that a call is taken up; whether its tool has begun to run is for `mark_running`."""
        self.emit(ToolExecutionStart(call.id, call.name, call))

    def mark_running(self, call: ToolCall) -> None:
        """The tool begins in this very step: from here on its effects count as unknown until it settles."""
        self._running[call.id] = call, trio.current_time()

    def settle(
        self, call: ToolCall, result: ToolResult, outcome: ToolOutcome, exception: BaseException | None = None
    ) -> None:
        """Keep what became of a call. From here on it cannot be lost, whatever is cancelled."""
        started = self._running.get(call.id)
        duration = 0.0 if started is None else trio.current_time() - started[1]
        self._settled[call.id] = Settled(result, outcome, exception, duration)

    def settled_result(self, call: ToolCall) -> ToolResult | None:
        """What `settle` kept, if it was called for this call in this turn."""
        settled = self._settled.get(call.id)
        return None if settled is None else settled.result

    def replace_result(self, call: ToolCall, result: ToolResult) -> None:
        """Another result for a settled call, before its end is said."""
        self._settled[call.id] = attrs.evolve(self._settled[call.id], result=result)

    def end_call(self, call: ToolCall) -> None:
        """Say what became of a settled call."""
        settled = self._settled[call.id]
        self.emit(
            ToolExecutionEnd(
                call.id,
                call.name,
                call,
                settled.result,
                settled.result.is_error,
                settled.outcome,
                settled.exception,
                settled.duration,
            )
        )

    def refuse_call(self, call: ToolCall, text: str, outcome: ToolOutcome) -> None:
        """Settle and end a call whose tool does not run; the usual start and end are said."""
        if self._grammar.call_state(call.id) is CallState.WAITING:
            self.start_call(call)
        self.settle(call, ToolResult(text, is_error=True), outcome)
        self.end_call(call)

    def _runs(self, call: ToolCall) -> bool:
        # by identity: a later turn may use the same id again, and a late update is not that call's
        running, _ = self._running.get(call.id, (None, 0.0))
        return running is call and call.id not in self._settled and self.result is None

    @trio.lowlevel.enable_ki_protection
    def report_progress(self, call: ToolCall, partial: ToolResult) -> bool:
        """A tool's ``update()``. False, and nothing happens, once the call has settled or the readers are full."""
        if self._sink.is_full or not self._runs(call):
            return False
        self.emit(ToolExecutionUpdate(call.id, call.name, call, partial))
        return True

    def tell_nested(self, call: ToolCall, event: AgentEvent) -> None:
        """Something happened in the run that a running call is; from further inside, the path leads there."""
        if not self._runs(call):
            return
        path: tuple[str, ...] = (call.id,)
        inner: AgentEvent | None = event
        if isinstance(event, ToolExecutionUpdate) and event.path:
            path, inner = (call.id, *event.path), event.event
        self.emit(ToolExecutionUpdate(call.id, call.name, call, _NOTHING, path, inner))

    def tell_unendable(self, call: ToolCall, partial: ToolResult) -> None:
        """Say of a call that it outstays its grace: whatever the readers do, and while its tool still runs."""
        if self._grammar.state is RunState.CALLS and self._grammar.call_state(call.id) is CallState.RUNNING:
            self.emit(ToolExecutionUpdate(call.id, call.name, call, partial))

    def answer(self, call: ToolCall) -> None:
        """Enter the result message of an ended call."""
        result = self._settled[call.id].result
        message = ToolResultMessage(call.id, call.name, result.content, result.details, result.is_error)
        self.transcript.append(message)
        self._results.append(message)
        self._open_message = message
        self.pending_calls.pop(call.id, None)
        self.emit(MessageStart(message))
        self.emit(MessageEnd(message))

    # the end ----------------------------------------------------------------------------------------------------

    def decide(
        self,
        outcome: Outcome,
        error: BaseException | None = None,
        reason: str | None = None,
        limit: Limit | None = None,
    ) -> bool:
        """Name the cause of the run's end. True iff this call did: the first one stands."""
        if self.cause is not None:
            return False
        self.cause = Cause(outcome, error, reason, limit)
        return True

    def seal(self) -> None:
        """End the books, from wherever they are. Sync and idempotent; cannot be cancelled.

        Closes the open message (a cut response keeps its text and thinking, not its calls), gives every open call
        its result, ends the turn and the run.
        """
        if self.result is not None:
            return
        try:
            self._seal()
        except BaseException as error:
            # a bug of ours: nobody may wait for ever for the end of a run that cannot be ended properly, and the
            # agent must be usable again
            self.result = self._make_result(Cause("error", error))
            if self._on_end is not None:
                self._on_end()
            self._sink.fail(error)
            raise

    def _seal(self) -> None:
        self.decide("cancelled")
        if self._grammar.state is RunState.ASSISTANT:
            self._cut_response()
        elif self.writer is not None:
            self.writer.discard()
        while (step := self._grammar.exit()) is not None:
            self._take_exit(*step)

    def _cut_response(self) -> None:
        cause = self.cause
        assert cause is not None
        if cause.error is not None:
            self.end_response("error", say(cause.error))
        else:
            self.end_response("aborted", cause.reason or f"the run ended with outcome {cause.outcome!r}")

    def _take_exit(self, symbol: str, call_id: str | None) -> None:
        if call_id is not None:
            self._close_call(symbol, self.pending_calls[call_id])
        elif symbol == "agent_end":
            self._end_run()
        elif symbol == "turn_end":
            self.end_turn()
        elif symbol == "turn_start":
            self.begin_turn(())
        elif symbol == "agent_start":
            self.emit(AgentStart())
        else:
            assert self._open_message is not None
            self.emit(MessageEnd(self._open_message))

    def _close_call(self, symbol: str, call: ToolCall) -> None:
        if symbol == "tool_execution_start":
            self.start_call(call)
        elif symbol == "tool_execution_end":
            if call.id not in self._settled:
                ran = call.id in self._running
                text = CANCELLED_TEXT if ran else NOT_STARTED_TEXT
                self.settle(call, ToolResult(text, is_error=True), "cancelled" if ran else "not_started")
            self.end_call(call)
        elif symbol == "result_start":
            self.answer(call)
        else:
            assert self._open_message is not None
            self.pending_calls.pop(call.id, None)
            self.emit(MessageEnd(self._open_message))

    def _end_run(self) -> None:
        cause = self.cause
        assert cause is not None
        self.result = self._make_result(cause)
        if self._on_end is not None:
            self._on_end()
        self.emit(AgentEnd(self.result.messages, cause.outcome, cause.error, self.result.abort_reason, cause.limit))
        self._sink.end(self.result)

    def _make_result(self, cause: Cause) -> RunResult:
        return RunResult(
            cause.outcome,
            tuple(self.transcript[self._first :]),
            self.usage,
            cause.error,
            cause.reason if cause.outcome == "aborted" else None,
            self.turns,
            (*self.steering.messages, *self.follow_ups.messages),
            cause.limit,
            output=None if self.output is None else self.output.value,
        )

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The response so far, while one streams. Costs O(its length)."""
        return self.writer.partial if self.writer and self._grammar.state is RunState.ASSISTANT else None
