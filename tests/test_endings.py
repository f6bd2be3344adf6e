"""Ways to end a run that an attacker found: each with what must come of it."""

import signal
from typing import Any

import pytest
import trio

from trio_agent import Agent, AgentEnd, AgentEvent, ToolCall, ToolExecutionEnd, tool
from trio_agent.testing import ScriptedModel, Wait, check_events, check_transcript


def agent_of(*calls: ToolCall, tools: Any, **settings: Any) -> tuple[Agent, list[AgentEvent]]:
    agent = Agent(ScriptedModel(list(calls), "end"), tools=tools, **settings)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return agent, events


def end_of(agent: Agent, events: list[AgentEvent]) -> str:
    assert check_events(events) == []
    assert check_transcript(agent.messages) == []
    assert not agent.state.is_running
    end = events[-1]
    assert isinstance(end, AgentEnd)
    return end.outcome


@tool(atomic=True)
async def transfer(seconds: float) -> str:
    """Must not be torn."""
    await trio.sleep(seconds)
    return "done"


@tool(atomic=True)
async def failing_transfer(seconds: float) -> str:
    """Must not be torn, and fails."""
    await trio.sleep(seconds)
    raise ValueError("A")


@tool
async def failing(seconds: float) -> str:
    """Fails."""
    await trio.sleep(seconds)
    raise ValueError("A")


@pytest.fixture
def sigint() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_g13_g20_ctrl_c_in_a_parallel_batch_gives_atomic_tools_their_grace_and_no_more() -> None:
    """The interrupt reaches the task that waits for the batch, not a tool."""
    calls = [ToolCall(name, "transfer", {"seconds": 40}) for name in "ab"]
    agent, events = agent_of(*calls, tools=[transfer], tool_execution="parallel", abort_grace=3)
    said: list[object] = []
    times: list[float] = []

    async def press() -> None:
        await trio.sleep(1)
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(1)
        said.append(agent.state.is_aborting)
        said.append(agent.abort("too late"))

    async def main() -> None:
        trio.lowlevel.spawn_system_task(press)
        try:
            await agent.prompt("go")
        finally:
            times.append(trio.current_time())

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert said == [True, False]
    assert times == [pytest.approx(4)]
    assert end_of(agent, events) == "error"
    assert {e.outcome for e in events if isinstance(e, ToolExecutionEnd)} == {"cancelled"}


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_tools_raise_ends_the_run_in_its_step_and_calls_no_hook(execution: Any, autojump_clock: object) -> None:
    async def after(call: ToolCall, result: object) -> None:
        hooks.append(call.id)
        await trio.sleep(1000)

    hooks: list[str] = []
    calls = [ToolCall("a", "failing", {"seconds": 1}), ToolCall("b", "transfer", {"seconds": 3})]
    agent, events = agent_of(
        *calls,
        tools=[failing, transfer],
        tool_execution=execution,
        on_tool_error="raise",
        after_tool_call=after,
    )
    with pytest.raises(ValueError, match="A"):
        await agent.prompt("go", timeout=100)
    assert hooks == []
    assert trio.current_time() == pytest.approx(1 if execution == "sequential" else 3)
    assert end_of(agent, events) == "error"


@pytest.mark.parametrize("how", ["abort", "deadline", "cancel"])
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_an_atomic_tool_that_fails_in_its_grace_does_not_take_over(
    how: str, execution: Any, autojump_clock: object
) -> None:
    calls = [ToolCall(name, "failing_transfer", {"seconds": 2}) for name in "ab"]
    agent, events = agent_of(*calls, tools=[failing_transfer], tool_execution=execution, on_tool_error="raise")
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:

            async def end(scope: trio.CancelScope = scope) -> None:
                await trio.sleep(1)
                if how == "abort":
                    assert agent.abort()
                elif how == "cancel":
                    scope.cancel()

            nursery.start_soon(end)
            await agent.prompt("go", timeout=1 if how == "deadline" else None)
        assert scope.cancelled_caught is (how == "cancel")
    expected = {"abort": "aborted", "deadline": "deadline", "cancel": "cancelled"}[how]
    assert end_of(agent, events) == expected


async def test_an_atomic_tool_that_fails_after_its_timeout_is_timed_out(autojump_clock: object) -> None:
    late = tool(atomic=True, timeout=1, name="late")(fail_late)
    agent, events = agent_of(ToolCall("a", "late"), tools=[late], on_tool_error="raise")
    assert (await agent.prompt("go")).outcome == "completed"
    assert end_of(agent, events) == "completed"


async def fail_late() -> str:
    """Fails, later than its time allows."""
    await trio.sleep(2)
    raise ValueError("A")


@pytest.mark.parametrize("event_type", ["message_start", "tool_execution_start"])
async def test_an_interrupt_in_an_observer_comes_out_before_what_follows_begins(
    event_type: str, autojump_clock: object
) -> None:
    agent, events = agent_of(ToolCall("a", "transfer", {"seconds": 600}), tools=[transfer])

    def press(event: AgentEvent) -> None:
        answers = event.type == "message_start" and event.message.role == "assistant"  # type: ignore[union-attr]
        if event.type == event_type and (answers or event_type != "message_start"):
            raise KeyboardInterrupt

    agent.subscribe(press)
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("go")
    assert trio.current_time() == 0
    assert end_of(agent, events) == "error"
    outcomes = [e.outcome for e in events if isinstance(e, ToolExecutionEnd)]
    assert outcomes == ([] if event_type == "message_start" else ["not_started"])


async def test_g17_an_outer_scope_that_ended_the_run_before_its_own_deadline(mock_clock: Any) -> None:
    agent, events = agent_of(tools=[])
    with trio.CancelScope() as scope:
        scope.cancel()
        await agent.prompt("go", timeout=0)
    assert scope.cancelled_caught
    assert end_of(agent, events) == "cancelled"


async def test_g5_g17_an_abort_after_an_overdue_outer_deadline(mock_clock: Any) -> None:
    """A step that lasts beyond it, so that trio does not know of it yet."""
    agent = Agent(ScriptedModel([Wait(0.2), "a", Wait(9)]))
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    said: list[bool] = []

    async def busy() -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(2)
        said.append(agent.abort())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy)
        with trio.move_on_after(1) as scope:
            await agent.prompt("go", timeout=1.5)
    assert said == [False]
    assert scope.cancelled_caught
    assert end_of(agent, events) == "cancelled"


async def test_g7_a_failure_of_the_run_is_not_lost_to_a_later_cancellation(autojump_clock: object) -> None:
    async def transform(messages: Any) -> Any:
        raise LookupError("hook")

    agent = Agent(ScriptedModel("never"), transform_context=transform)
    with pytest.raises(LookupError, match="hook"), trio.move_on_after(1):
        async with agent.run("go"):
            await trio.sleep(5)
    assert not agent.state.is_running
