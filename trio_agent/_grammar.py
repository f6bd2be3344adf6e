"""What may follow what in a run, and how a run ends.

The grammar of a run, as one line (DESIGN.md section 4):

    agent_start (turn_start input* model_retry* [assistant message, then its calls] turn_end)+ agent_end

It is kept as two literal tables, in the manner of h11: one for the run and one for each tool call, because a
finite table cannot count calls. ``RUN`` maps a state and a symbol to the next state; a symbol is an event's type,
with the message's side added where it decides (`symbol_of`). ``CALL`` does the same for one call of the current
assistant message. Two rules tie the tables together and are the only ones outside them: results come in the order
of the calls, and a turn ends only when every call is answered.

``RUN_EXIT`` and ``CALL_EXIT`` name, for every state, the first symbol of the shortest way to the end. Following
them is how a run is sealed: whatever was going on, the missing events are asked for one by one until the end.
A test derives both from the tables by search, so they cannot drift apart.
"""

from enum import Enum, auto
from typing import Final

from ._errors import GrammarError
from ._events import AgentEvent
from ._messages import AssistantMessage, ToolCall, ToolResultMessage

__all__ = ["CALL", "CALL_EXIT", "RUN", "RUN_EXIT", "CallState", "RunGrammar", "RunState", "symbol_of"]


class RunState(Enum):
    """Where a run is."""

    IDLE = auto()  # nothing has happened yet
    STARTED = auto()  # agent_start, but no turn yet
    TURN = auto()  # in a turn, before its assistant message
    INPUT = auto()  # an input message is open
    ASSISTANT = auto()  # the assistant message is open
    CALLS = auto()  # the assistant message is complete; its calls run
    RESULT = auto()  # a tool result message is open
    BETWEEN = auto()  # after a turn
    ENDED = auto()  # agent_end has been said


class CallState(Enum):
    """Where one tool call of the current assistant message is."""

    WAITING = auto()  # announced by the model, not taken up
    RUNNING = auto()  # started
    SETTLED = auto()  # ended, its result not yet in the transcript
    ANSWERING = auto()  # its result message is open
    ANSWERED = auto()  # its result is in the transcript


_S = RunState
RUN: Final[dict[RunState, dict[str, RunState]]] = {
    _S.IDLE: {"agent_start": _S.STARTED},
    _S.STARTED: {"turn_start": _S.TURN},
    _S.TURN: {
        "input_start": _S.INPUT,
        "model_retry": _S.TURN,
        "assistant_start": _S.ASSISTANT,
        "turn_end": _S.BETWEEN,
    },
    _S.INPUT: {"input_end": _S.TURN},
    _S.ASSISTANT: {"message_update": _S.ASSISTANT, "assistant_end": _S.CALLS},
    _S.CALLS: {
        "tool_execution_start": _S.CALLS,
        "tool_execution_update": _S.CALLS,
        "tool_execution_end": _S.CALLS,
        "result_start": _S.RESULT,
        "turn_end": _S.BETWEEN,
    },
    _S.RESULT: {"result_end": _S.CALLS},
    _S.BETWEEN: {"turn_start": _S.TURN, "agent_end": _S.ENDED},
    _S.ENDED: {},
}

RUN_EXIT: Final[dict[RunState, str | None]] = {
    _S.IDLE: "agent_start",
    _S.STARTED: "turn_start",
    _S.TURN: "turn_end",
    _S.INPUT: "input_end",
    _S.ASSISTANT: "assistant_end",
    _S.CALLS: "turn_end",
    _S.RESULT: "result_end",
    _S.BETWEEN: "agent_end",
    _S.ENDED: None,
}

_C = CallState
CALL: Final[dict[CallState, dict[str, CallState]]] = {
    _C.WAITING: {"tool_execution_start": _C.RUNNING},
    _C.RUNNING: {"tool_execution_update": _C.RUNNING, "tool_execution_end": _C.SETTLED},
    _C.SETTLED: {"result_start": _C.ANSWERING},
    _C.ANSWERING: {"result_end": _C.ANSWERED},
    _C.ANSWERED: {},
}

CALL_EXIT: Final[dict[CallState, str | None]] = {
    _C.WAITING: "tool_execution_start",
    _C.RUNNING: "tool_execution_end",
    _C.SETTLED: "result_start",
    _C.ANSWERING: "result_end",
    _C.ANSWERED: None,
}


def symbol_of(event: AgentEvent, state: RunState) -> str:
    """The grammar's symbol for an event. A tool result counts as input before the turn's assistant message:
    that is how a history with unanswered calls is completed when a run begins."""
    kind = event.type
    if kind != "message_start" and kind != "message_end":
        return kind
    message = event.message  # type: ignore[union-attr]
    side = "input"
    if isinstance(message, AssistantMessage):
        side = "assistant"
    elif isinstance(message, ToolResultMessage) and state in (RunState.CALLS, RunState.RESULT):
        side = "result"
    return side + kind.removeprefix("message")


class RunGrammar:
    """The position of one run in the grammar. `advance` takes it along with each event."""

    __slots__ = ("_answered", "_calls", "_order", "state")

    def __init__(self) -> None:
        self.state = RunState.IDLE
        self._order: tuple[ToolCall, ...] = ()
        self._calls: dict[str, CallState] = {}
        self._answered = 0

    def advance(self, event: AgentEvent) -> None:
        """Take one step.

        Raises:
            GrammarError: the event may not come here. The position is unchanged.
        """
        if self.state is RunState.ASSISTANT and event.type == "message_update":
            return
        symbol = symbol_of(event, self.state)
        following = RUN[self.state].get(symbol)
        if following is None:
            raise GrammarError(f"{symbol} may not follow in state {self.state.name}; legal: {sorted(RUN[self.state])}")
        if symbol == "turn_end" and self._open_call() is not None:
            raise GrammarError(f"turn_end before the result of call {self._open_call()!r}")
        if self.state in (RunState.CALLS, RunState.RESULT) and symbol != "turn_end":
            self._advance_call(symbol, event)
        elif symbol == "assistant_end":
            self._announce(event.message)  # type: ignore[union-attr, arg-type]
        self.state = following

    def _announce(self, message: AssistantMessage) -> None:
        self._order = message.tool_calls
        self._calls = dict.fromkeys([call.id for call in self._order], CallState.WAITING)
        self._answered = 0
        if len(self._calls) != len(self._order):
            raise GrammarError("two calls of one message have the same id")

    def _advance_call(self, symbol: str, event: AgentEvent) -> None:
        in_message = symbol.startswith("result")
        call_id: str = event.message.tool_call_id if in_message else event.tool_call_id  # type: ignore[union-attr]
        state = self._calls.get(call_id)
        if state is None:
            raise GrammarError(f"{symbol} for {call_id!r}, which is no call of this turn's message")
        following = CALL[state].get(symbol)
        if following is None:
            raise GrammarError(f"{symbol} may not follow in state {state.name} of call {call_id!r}")
        if in_message and call_id != self._open_call():
            raise GrammarError(f"the result of {call_id!r} comes before that of {self._open_call()!r}")
        self._calls[call_id] = following
        if following is CallState.ANSWERED:
            self._answered += 1

    def _open_call(self) -> str | None:
        """The first call without an answer; results come in the order of the calls."""
        return self._order[self._answered].id if self._answered < len(self._order) else None

    def call_state(self, call_id: str) -> CallState | None:
        """Where a call of the current turn is; None if it is no call of it."""
        return self._calls.get(call_id)

    def exit(self) -> tuple[str, str | None] | None:
        """The next step of the shortest legal ending: a symbol and, where it is about a call, the call's id.
        None when the run has ended."""
        if self.state in (RunState.CALLS, RunState.RESULT) and (call_id := self._open_call()) is not None:
            symbol = CALL_EXIT[self._calls[call_id]]
            assert symbol is not None  # an answered call is never the open one
            return symbol, call_id
        symbol = RUN_EXIT[self.state]
        return None if symbol is None else (symbol, None)
