"""The grammar: every row of the tables, legal and illegal, and the shortest way to the end."""

from collections import deque

import pytest

from trio_agent import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    GrammarError,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelConnectionError,
    ModelRetry,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from trio_agent._events import MessageLog
from trio_agent._grammar import CALL, CALL_EXIT, RUN, RUN_EXIT, CallState, RunGrammar, RunState
from trio_agent.testing import check_events

USER = UserMessage("hi")
CALLS = (ToolCall("a", "t"), ToolCall("b", "t"))
ASKS = AssistantMessage(CALLS, "tool_use")
DONE = ToolResult("ok")


def result(call_id: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "t", "ok")


def start(call_id: str) -> ToolExecutionStart:
    return ToolExecutionStart(call_id, "t", {})


def update(call_id: str) -> ToolExecutionUpdate:
    return ToolExecutionUpdate(call_id, "t", {}, DONE)


def end(call_id: str) -> ToolExecutionEnd:
    return ToolExecutionEnd(call_id, "t", {}, DONE, False, "completed")


DELTA = MessageUpdate("text_delta", 0, "x", MessageLog(), 1)
OPENING: list[AgentEvent] = [AgentStart(), TurnStart(1), MessageStart(USER), MessageEnd(USER)]
RETRY = ModelRetry(2, 0.5, ModelConnectionError("gone"), "m")
SENTENCE: list[AgentEvent] = [
    *OPENING,
    RETRY,
    MessageStart(ASKS),
    DELTA,
    MessageEnd(ASKS),
    start("a"),
    update("a"),
    end("a"),
    MessageStart(result("a")),
    MessageEnd(result("a")),
    start("b"),
    end("b"),
    MessageStart(result("b")),
    MessageEnd(result("b")),
    TurnEnd(ASKS, (result("a"), result("b"))),
    AgentEnd((), "completed"),
]


def at(*events: AgentEvent) -> RunGrammar:
    grammar = RunGrammar()
    for event in events:
        grammar.advance(event)
    return grammar


def test_a_whole_run_is_a_sentence_and_each_prefix_a_prefix() -> None:
    assert check_events(SENTENCE) == []
    for length in range(len(SENTENCE)):
        assert check_events(SENTENCE[:length], complete=False) == []
        assert check_events(SENTENCE[:length]) != []


def test_no_event_can_be_left_out_or_doubled() -> None:
    optional = {DELTA.type, RETRY.type, "tool_execution_update"}
    for index, event in enumerate(SENTENCE):
        if event.type in optional or event in OPENING[2:]:
            continue
        assert check_events(SENTENCE[:index] + SENTENCE[index + 1 :]) != [], event
        assert check_events(SENTENCE[: index + 1] + SENTENCE[index:]) != [], event


def test_parallel_calls_may_end_in_any_order_but_answer_in_theirs() -> None:
    opening: list[AgentEvent] = [
        *OPENING,
        MessageStart(ASKS),
        MessageEnd(ASKS),
        start("a"),
        start("b"),
        end("b"),
        end("a"),
    ]
    grammar = at(*opening)
    with pytest.raises(GrammarError, match="'b' comes before that of 'a'"):
        grammar.advance(MessageStart(result("b")))
    grammar.advance(MessageStart(result("a")))


@pytest.mark.parametrize(
    ("events", "illegal", "says"),
    [
        ([*OPENING, MessageStart(ASKS)], RETRY, "model_retry may not follow"),
        ([], TurnStart(1), "state IDLE"),
        ([AgentStart()], AgentEnd((), "completed"), "state STARTED"),
        (OPENING, DELTA, "state TURN"),
        (OPENING, start("a"), "state TURN"),
        ([*OPENING, MessageStart(ASKS)], TurnEnd(ASKS, ()), "state ASSISTANT"),
        ([*OPENING, MessageStart(ASKS), MessageEnd(ASKS)], TurnEnd(ASKS, ()), "before the result of call 'a'"),
        ([*OPENING, MessageStart(ASKS), MessageEnd(ASKS)], start("z"), "no call of this turn"),
        ([*OPENING, MessageStart(ASKS), MessageEnd(ASKS)], end("a"), "state WAITING of call 'a'"),
        ([*OPENING, MessageStart(ASKS), MessageEnd(ASKS), start("a")], MessageStart(result("a")), "RUNNING"),
        (SENTENCE, AgentEnd((), "completed"), "state ENDED"),
    ],
)
def test_illegal_steps_are_refused_and_change_nothing(events: list[AgentEvent], illegal: AgentEvent, says: str) -> None:
    grammar = at(*events)
    before = grammar.state, grammar.exit()
    with pytest.raises(GrammarError, match=says):
        grammar.advance(illegal)
    assert (grammar.state, grammar.exit()) == before


def test_two_calls_with_one_id_are_refused() -> None:
    twice = AssistantMessage((ToolCall("a", "t"), ToolCall("a", "t")), "tool_use")
    with pytest.raises(GrammarError, match="same id"):
        at(*OPENING, MessageStart(twice)).advance(MessageEnd(twice))


def distance(table: dict, goal: object, first: object) -> dict[object, int]:
    """Steps from every state to ``goal``, by breadth-first search in the table."""
    backwards: dict[object, set[object]] = {}
    for state, row in table.items():
        for following in row.values():
            backwards.setdefault(following, set()).add(state)
    found, todo = {goal: 0}, deque([goal])
    while todo:
        state = todo.popleft()
        for previous in backwards.get(state, ()):
            if previous not in found:
                found[previous] = found[state] + 1
                todo.append(previous)
    assert set(found) == set(table)
    return found


@pytest.mark.parametrize(
    ("table", "exits", "goal"), [(RUN, RUN_EXIT, RunState.ENDED), (CALL, CALL_EXIT, CallState.ANSWERED)]
)
def test_every_exit_is_a_step_of_a_shortest_way_out(table: dict, exits: dict, goal: object) -> None:
    steps = distance(table, goal, None)
    for state, symbol in exits.items():
        if symbol is None:
            assert state is goal
        else:
            assert steps[table[state][symbol]] == steps[state] - 1


def test_the_exit_answers_open_calls_first_and_in_order() -> None:
    grammar = at(*OPENING, MessageStart(ASKS), MessageEnd(ASKS), start("a"))
    assert grammar.exit() == ("tool_execution_end", "a")
    grammar.advance(end("a"))
    assert grammar.exit() == ("result_start", "a")
    grammar.advance(MessageStart(result("a")))
    assert grammar.exit() == ("result_end", "a")
    grammar.advance(MessageEnd(result("a")))
    assert grammar.exit() == ("tool_execution_start", "b")
