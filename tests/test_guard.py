"""The guard: the first cause by time decides, and what cannot be ended is named."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    MessageWriter,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    UnendableWarning,
    tool,
)
from trio_agent.testing import ScriptedModel, Wait, check_events, check_transcript


@tool
async def work(seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "done"


def events_of(agent: Agent) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return events


def outcome_of(events: list[AgentEvent]) -> str:
    assert check_events(events) == []
    end = events[-1]
    assert isinstance(end, AgentEnd)
    return end.outcome


# the first cause ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [False, True], ids=["prompt", "run"])
async def test_g5_g17_an_abort_after_an_outer_cancellation_comes_too_late(block: bool, autojump_clock: object) -> None:
    """In one and the same step: nothing of the run has been scheduled in between."""
    agent = Agent(ScriptedModel([Wait(5), "text"]))
    events = events_of(agent)
    said: list[bool] = []

    async def end(scope: trio.CancelScope) -> None:
        await trio.sleep(1)
        scope.cancel()
        said.append(agent.abort())

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(end, scope)
            if block:
                async with agent.run("go") as run:
                    async for _ in run:
                        pass
            else:
                await agent.prompt("go")
        assert scope.cancelled_caught
    assert said == [False]
    assert outcome_of(events) == "cancelled"


async def test_g5_g17_an_outer_cancellation_after_an_abort_does_not_take_over(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel([Wait(5), "text"]))
    events = events_of(agent)

    async def end(scope: trio.CancelScope) -> None:
        await trio.sleep(1)
        assert agent.abort()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(end, scope)
            await agent.prompt("go")
    assert outcome_of(events) == "aborted"


async def test_c1_an_abort_in_the_bodys_finally_after_an_outer_cancellation(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel([Wait(50), "text"]))
    events = events_of(agent)
    with trio.move_on_after(1):
        async with agent.run("go") as run:
            try:
                async for _ in run:
                    pass
            finally:
                assert agent.abort() is False
    assert outcome_of(events) == "cancelled"


async def test_in_the_very_step_in_which_a_run_begins_the_first_cause_stands(autojump_clock: object) -> None:
    """Before the guard has had a step of its own."""
    for first_cancel in (True, False):
        agent = Agent(ScriptedModel([Wait(5), "text"]))
        events = events_of(agent)
        said: list[bool] = []

        async def both(scope: trio.CancelScope, agent: Agent, said: list[bool], first_cancel: bool) -> None:
            if first_cancel:
                scope.cancel()
            said.append(agent.abort())
            scope.cancel()

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(both, scope, agent, said, first_cancel)
                await agent.prompt("go")
        assert said == [not first_cancel]
        assert outcome_of(events) == ("cancelled" if first_cancel else "aborted")


async def test_a_run_that_ends_in_the_step_of_a_cancellation_says_cancelled_and_raises_it() -> None:
    """The loop may be past its last checkpoint when somebody cancels: still, that was first."""
    agent = Agent(ScriptedModel("text"))
    events = events_of(agent)
    with trio.CancelScope() as scope:

        def cancel(event: AgentEvent) -> None:
            if event.type == "turn_end":
                scope.cancel()

        agent.subscribe(cancel)
        await agent.prompt("go")
    assert scope.cancelled_caught
    assert outcome_of(events) == "cancelled"
    assert agent.messages[-1].role == "assistant"


async def test_entering_a_block_in_a_cancelled_scope_seals_the_run_and_raises() -> None:
    agent = Agent(ScriptedModel("text"))
    events = events_of(agent)
    entered = False
    with trio.CancelScope() as scope:
        scope.cancel()
        async with agent.run("go"):
            entered = True
    assert scope.cancelled_caught
    assert not entered
    assert outcome_of(events) == "cancelled"
    assert [message.role for message in agent.messages] == ["user"]
    assert (await agent.prompt("again")).outcome == "completed"


async def test_an_abort_from_a_thread_does_not_reach_the_next_run() -> None:
    """It was passed on while its run still was, and trio comes to it when the next one is."""

    class SlowToken:
        """trio's entry queue, which may take its time."""

        def run_sync_soon(self, function: Callable[[], object]) -> None:
            waiting.append(function)

    waiting: list[Callable[[], object]] = []
    agent = Agent(ScriptedModel("one", "two"))

    def pass_on(event: AgentEvent) -> None:
        if event.type == "turn_end" and not waiting:
            agent._token = SlowToken()  # type: ignore[assignment]
            assert agent.abort_soon("for the first run")
        elif event.type == "turn_start" and waiting:
            assert waiting[0]() is False

    agent.subscribe(pass_on)
    assert (await agent.prompt("go")).outcome == "completed"
    assert (await agent.prompt("again")).outcome == "completed"
    assert len(waiting) == 1


# what cannot be ended -------------------------------------------------------------------------------------------------


@tool
async def stubborn(seconds: float) -> str:
    """Shields itself, whatever is cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)  # the line that is named
    return "done"


@tool
async def with_a_child(seconds: float) -> str:
    """The line to name is in a task of its own."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            nursery.start_soon(child_of_the_tool, seconds)
    return "done"


async def child_of_the_tool(seconds: float) -> None:
    await trio.sleep(seconds)  # the child's line


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_tool_that_shields_itself_is_named_with_its_line(execution: Any, autojump_clock: object) -> None:
    calls = [ToolCall("a", "stubborn", {"seconds": 60}), ToolCall("b", "with_a_child", {"seconds": 60})]
    if execution == "sequential":
        calls.reverse()
    agent = Agent(ScriptedModel(calls), tools=[stubborn, with_a_child], tool_execution=execution, abort_grace=5)
    events = events_of(agent)
    with pytest.warns(UnendableWarning) as warned, trio.move_on_after(1) as scope:
        await agent.prompt("go")
    assert scope.cancelled_caught
    assert trio.current_time() >= 60, "nothing pretends that the run is over"
    texts = [str(w.message) for w in warned]
    updates = [e for e in events if isinstance(e, ToolExecutionUpdate)]
    assert [u.partial_result.content[0].text for u in updates] == texts  # type: ignore[union-attr]
    named = {u.tool_call_id: t for u, t in zip(updates, texts, strict=True)}
    assert set(named) == ({"a", "b"} if execution == "parallel" else {"b"})
    assert "test_guard.py:" in named["b"]
    assert "(await trio.sleep(seconds)  # the child's line)" in named["b"]
    assert execution == "sequential" or "(await trio.sleep(seconds)  # the line that is named)" in named["a"]
    assert "'with_a_child' (call 'b') still runs 5 s after" in named["b"]
    assert outcome_of(events) == "cancelled"
    assert check_transcript(agent.messages) == []
    ends = {e.tool_call_id: e.outcome for e in events if isinstance(e, ToolExecutionEnd)}
    assert ends["b"] == "completed", "it did return, and its result is kept"


async def test_a_tool_that_uses_its_grace_is_not_named(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel([ToolCall("a", "stubborn", {"seconds": 5})]), tools=[stubborn], abort_grace=5)
    events = events_of(agent)
    with trio.move_on_after(0.5):
        await agent.prompt("go")
    assert not [e for e in events if isinstance(e, ToolExecutionUpdate)]


@pytest.mark.filterwarnings("error::trio_agent.UnendableWarning")
async def test_where_warnings_are_errors_it_is_raised_when_the_run_has_ended(
    autojump_clock: object, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent(ScriptedModel([ToolCall("a", "stubborn", {"seconds": 60})]), tools=[stubborn])
    events = events_of(agent)
    with pytest.raises(UnendableWarning, match="stubborn"):
        await agent.prompt("go", timeout=1)
    assert outcome_of(events) == "deadline"
    assert "stubborn" in capsys.readouterr().err
    with trio.move_on_after(1):
        agent.model = ScriptedModel([ToolCall("a", "stubborn", {"seconds": 60})])
        await agent.prompt("go")
    assert not agent.state.is_running


async def test_a_model_that_cannot_be_ended_is_named_too(autojump_clock: object) -> None:
    class Deaf:
        name = provider = "deaf"

        async def stream(self, request: object, out: MessageWriter) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)

    agent = Agent(Deaf())
    with pytest.warns(UnendableWarning, match=r"the run still waits .*test_guard.py:\d+ \(await trio.sleep\(60\)\)"):
        assert (await agent.prompt("go", timeout=1)).outcome == "deadline"


async def test_a_thread_that_cannot_be_ended_is_named_with_the_line_it_is_at() -> None:
    release = threading.Event()
    entered = threading.Event()

    @tool
    def crunch() -> str:
        """Runs in a thread."""
        entered.set()
        release.wait()  # in the thread
        return "done"

    agent = Agent(ScriptedModel([ToolCall("a", "crunch")]), tools=[crunch], abort_grace=0)
    seen: list[str] = []

    def on_update(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate):
            seen.append(event.partial_result.content[0].text)  # type: ignore[union-attr]
            release.set()

    agent.subscribe(on_update)

    async def abort() -> None:
        await trio.to_thread.run_sync(entered.wait)
        assert agent.abort("enough")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort)
        with pytest.warns(UnendableWarning), trio.fail_after(30):
            result = await agent.prompt("go")
    assert result.outcome == "aborted"
    assert seen[0].endswith("(release.wait()  # in the thread) in its thread")


# atomic tools without a nursery of their own --------------------------------------------------------------------------


def ending(how: str, agent: Agent, scope: trio.CancelScope) -> Callable[[], object]:
    return (lambda: agent.abort("x")) if how == "abort" else scope.cancel


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_g13_the_grace_of_an_atomic_tool_begins_when_the_run_is_ended(how: str, autojump_clock: object) -> None:
    atomic = tool(atomic=True, name="atomic")(_work)
    agent = Agent(ScriptedModel([ToolCall("a", "atomic", {"seconds": 100})]), tools=[atomic], abort_grace=5)
    events = events_of(agent)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:

            async def end(scope: trio.CancelScope = scope) -> None:
                await trio.sleep(2)
                ending(how, agent, scope)()

            nursery.start_soon(end)
            await agent.prompt("go")
        assert trio.current_time() == pytest.approx(7)
    end_event = next(e for e in events if isinstance(e, ToolExecutionEnd))
    assert end_event.outcome == "cancelled"
    assert "grace" in end_event.result.content[0].text  # type: ignore[union-attr]


async def _work(seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "done"


async def test_g13_a_failing_sibling_gives_an_atomic_tool_its_grace(autojump_clock: object) -> None:
    atomic = tool(atomic=True, name="atomic")(_work)

    async def after(call: ToolCall, result: object) -> None:
        raise LookupError("hook")

    for seconds, expected in ((4, "completed"), (60, "cancelled")):
        calls = [ToolCall("a", "atomic", {"seconds": seconds}), ToolCall("b", "work", {"seconds": 1})]
        agent = Agent(
            ScriptedModel(calls), tools=[atomic, work], tool_execution="parallel", after_tool_call=after, abort_grace=5
        )
        events = events_of(agent)
        started = trio.current_time()
        with pytest.raises(LookupError):
            await agent.prompt("go")
        assert trio.current_time() - started == pytest.approx(min(seconds, 6))
        assert outcome_of(events) == "error"
        ends = {e.tool_call_id: e.outcome for e in events if isinstance(e, ToolExecutionEnd)}
        assert ends == {"a": expected, "b": "completed"}


async def test_an_atomic_tool_may_finish_after_its_timeout_within_the_grace(autojump_clock: object) -> None:
    atomic = tool(atomic=True, timeout=1, name="atomic")(_work)
    for seconds, text in ((4, "done"), (60, "Timed out")):
        agent = Agent(ScriptedModel([ToolCall("a", "atomic", {"seconds": seconds})], "end"), tools=[atomic])
        result = await agent.prompt("go")
        assert result.outcome == "completed"
        assert text in result.messages[2].text
