"""Limits of a run: each ends it with its name, at a legal boundary, and cuts nothing."""

import pytest
import trio

from trio_agent import (
    Agent,
    AgentEnd,
    Limits,
    RunLimitError,
    ToolCall,
    ToolExecutionEnd,
    ToolResultMessage,
    Usage,
    check_transcript,
    tool,
)
from trio_agent.testing import ScriptedModel

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def work(name: str = "x", seconds: float = 0) -> str:
    """Work.

    Args:
        name: what is noted.
        seconds: how long it takes.
    """
    ran.append(name)
    await trio.sleep(seconds)
    return name


def call(number: int, **arguments: object) -> ToolCall:
    return ToolCall(str(number), "work", arguments or {"name": str(number)})


def model(*turns: object) -> ScriptedModel:
    return ScriptedModel(*turns)


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_tool_calls_are_counted_over_turns_and_the_rest_of_a_batch_is_not_started(execution: str) -> None:
    agent = Agent(
        model([call(1)], [call(2), call(3), call(4)], "end"),
        tools=[work],
        limits=Limits(tool_calls=2),
        tool_execution=execution,  # type: ignore[arg-type]
    )
    async with agent.run("go") as run:
        events = [event async for event in run]
        result = await run.result()
    assert (result.outcome, result.limit, ran) == ("limit", "tool_calls", ["1", "2"])
    assert isinstance(events[-1], AgentEnd)
    assert events[-1].limit == "tool_calls"
    ends = {event.tool_call_id: event.outcome for event in events if isinstance(event, ToolExecutionEnd)}
    assert ends == {"1": "completed", "2": "completed", "3": "not_started", "4": "not_started"}
    said = [message.text for message in result.messages if isinstance(message, ToolResultMessage)]
    assert said[2:] == ["Not started: the run reached its limit 'tool_calls' before this tool began."] * 2
    check_transcript(agent.messages)
    with pytest.raises(RunLimitError, match="'tool_calls' after 2 turns"):
        result.raise_for_error()


async def test_running_siblings_finish_when_a_limit_is_reached(autojump_clock: object) -> None:
    agent = Agent(
        model([call(1, name="a", seconds=2), call(2, name="b"), call(3, name="c")], "end"),
        tools=[work],
        limits=Limits(tool_calls=2),
        tool_execution="parallel",
    )
    result = await agent.prompt("go")
    assert [m.text for m in result.messages if isinstance(m, ToolResultMessage)][:2] == ["a", "b"]
    assert trio.current_time() >= 2
    assert result.limit == "tool_calls"


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_repeated_calls_in_a_row(execution: str) -> None:
    same = [call(number, name="same") for number in range(5)]
    agent = Agent(
        model(same[:2], [call(9, name="other")], [same[2]], [same[3]], [same[4]], "end"),
        tools=[work],
        limits=Limits(repeated_calls=2),
        tool_execution=execution,  # type: ignore[arg-type]
    )
    result = await agent.prompt("go")
    assert (result.outcome, result.limit) == ("limit", "repeated_calls")
    assert ran == ["same", "same", "other", "same", "same"]


async def test_seconds_are_looked_at_before_a_tool_and_before_a_turn(autojump_clock: object) -> None:
    agent = Agent(
        model([call(1, name="a", seconds=3), call(2, name="b")], "end"), tools=[work], limits=Limits(seconds=2)
    )
    result = await agent.prompt("go")
    assert (result.outcome, result.limit, ran) == ("limit", "seconds", ["a"])
    agent = Agent(model([call(1, name="a", seconds=3)], "end"), tools=[work], limits=Limits(seconds=2))
    result = await agent.prompt("go")
    assert (result.outcome, result.limit, result.turns) == ("limit", "seconds", 1)
    assert [m.text for m in result.messages if isinstance(m, ToolResultMessage)] == ["a"]


@pytest.mark.parametrize(
    ("limits", "limit"), [(Limits(input_tokens=10), "input_tokens"), (Limits(output_tokens=6), "output_tokens")]
)
async def test_tokens_are_looked_at_before_another_turn(limits: Limits, limit: str) -> None:
    usage = Usage(input_tokens=5, output_tokens=3)
    script = model([call(1), usage], [call(2), usage], [call(3), usage], "end")
    result = await Agent(script, tools=[work], limits=limits).prompt("go")
    assert (result.outcome, result.limit, result.turns) == ("limit", limit, 2)
    assert result.usage.input_tokens == 10
    assert ran == ["1", "2"]


async def test_the_last_answer_may_cross_a_limit_of_tokens_and_complete() -> None:
    result = await Agent(model(["end", Usage(50, 50)]), limits=Limits(input_tokens=10)).prompt("go")
    assert (result.outcome, result.limit) == ("completed", None)


@pytest.mark.parametrize(("max_turns", "turns", "expected"), [(1, 2, 1), (2, 1, 1), (None, 2, 2), (2, None, 2)])
async def test_the_smaller_bound_of_turns_counts(max_turns: int | None, turns: int | None, expected: int) -> None:
    script = model([call(1)], [call(2)], [call(3)], "end")
    agent = Agent(script, tools=[work], max_turns=max_turns, limits=Limits(turns=turns))
    result = await agent.prompt("go")
    assert (result.limit, result.turns) == ("turns", expected)


async def test_queued_messages_stay_queued_and_the_next_run_has_them() -> None:
    agent = Agent(model([call(1), call(2)], "end", "after"), tools=[work], limits=Limits(tool_calls=1))
    agent.follow_up("later")
    result = await agent.prompt("go")
    assert result.limit == "tool_calls"
    assert [message.text for message in result.undelivered] == ["later"]  # type: ignore[union-attr]
    again = await agent.resume()
    assert again.outcome == "completed"


async def test_rejected_calls_count_and_skipped_ones_do_not() -> None:
    rejected = ToolCall("1", "nosuch", {})
    result = await Agent(model([rejected, call(2)], "end"), tools=[work], limits=Limits(tool_calls=1)).prompt("go")
    assert (result.limit, ran) == ("tool_calls", [])

    agent = Agent(model([call(1), call(2), call(3)], [call(4)], "end"), tools=[work], limits=Limits(tool_calls=2))
    agent.subscribe(
        lambda event: event.type == "tool_execution_end" and event.tool_call_id == "1" and agent.steer("wait")
    )
    result = await agent.prompt("go")
    assert (result.outcome, ran) == ("completed", ["1", "4"])


@pytest.mark.parametrize("name", ["turns", "input_tokens", "output_tokens", "tool_calls", "seconds", "repeated_calls"])
@pytest.mark.parametrize("value", [0, -1, True, "2", float("nan")])
def test_a_limit_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{name} must be"):
        Limits(**{name: value})  # type: ignore[arg-type]
