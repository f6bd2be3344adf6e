"""One small run, ended once before every step in every way: it must always be sealed legally.

The full kit (`sweep`, pairs, schedules) is a later issue; this is the guard that the first sequential and parallel
runs need.
"""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    MessageUpdate,
    Thinking,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    tool,
)
from trio_agent.testing import ScriptedModel, Wait, check_events, check_transcript


class Injector(trio.abc.Instrument):
    """Calls ``action`` once, before the k-th step that a task takes while it is armed."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.steps = 0
        self.armed = False
        self.action: Callable[[], Any] = lambda: None
        self.result: Any = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.armed:
            self.steps += 1
            if self.steps == self.k:
                self.result = self.action()


class World:
    """The effects that tools really had, beside what the transcript says of them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @tool
        async def work(name: str) -> str:
            """Work."""
            self.begun.append(name)
            await trio.sleep(1)
            self.done.append(name)
            return f"{name} done"

        @tool(atomic=True)
        async def transfer(name: str) -> str:
            """Must not be torn."""
            self.begun.append(name)
            await trio.sleep(1)
            self.done.append(name)
            return f"{name} done"

        @tool
        async def quick(name: str) -> str:
            """No wait at all."""
            self.begun.append(name)
            self.done.append(name)
            return f"{name} done"

        return [work, transfer, quick]


def call(name: str, tool_name: str) -> ToolCall:
    return ToolCall(name, tool_name, {"name": name})


def make_agent(world: World, execution: Any) -> Agent:
    model = ScriptedModel(
        [Thinking("hm"), "I ", Wait(1), "will", call("a", "work"), call("b", "transfer"), call("c", "quick")],
        ["and ", call("d", "work"), call("e", "nobody")],
        ["done"],
    )
    return Agent(model, tools=world.tools(), tool_execution=execution, max_buffered_events=3)


def run_once(k: int, how: str, execution: str, watched: bool) -> bool:
    """One run with an injection before step ``k``. Returns False when the run has fewer steps."""
    injector, world = Injector(k), World()
    events: list[AgentEvent] = []
    read: list[AgentEvent] = []
    agent = make_agent(world, execution)
    agent.subscribe(events.append)

    async def main() -> None:
        with trio.CancelScope() as outer:
            injector.action = {
                "abort": lambda: agent.abort("swept"),
                "cancel": lambda: outer.cancel(),
                "steer": lambda: agent.steer("turn left"),
            }[how]
            injector.armed = True
            try:
                if watched:
                    async with agent.run("go") as run:
                        read.extend([event async for event in run])
                        await run.result()
                else:
                    await agent.prompt("go")
            finally:
                injector.armed = False
        if how == "cancel" and injector.steps >= k:
            assert outer.cancelled_caught or events[-1].outcome == "completed"  # type: ignore[union-attr]
        judge(agent, world, events, read, injector.result is True)
        agent.model = ScriptedModel("fine", "fine", "fine")
        assert (await agent.prompt("again")).outcome == "completed"

    trio.run(main, clock=MockClock(autojump_threshold=0), instruments=[injector])
    return injector.steps >= k


def judge(agent: Agent, world: World, events: list[AgentEvent], read: list[AgentEvent], aborted: bool) -> None:
    assert check_events(events) == []
    assert check_transcript(agent.messages) == []
    assert read == events[: len(read)]
    assert not agent.state.is_running
    end = events[-1]
    assert isinstance(end, AgentEnd)
    assert (end.outcome == "aborted") == aborted
    outcomes = {e.tool_call_id: e.outcome for e in events if isinstance(e, ToolExecutionEnd)}
    for name, outcome in outcomes.items():
        assert (outcome == "completed") == (name in world.done), (name, outcome)
        if outcome in ("skipped", "not_started", "rejected"):
            assert name not in world.begun, (name, outcome)
    assert "b" not in world.begun or "b" in world.done, "the atomic tool was torn"
    assert set(world.begun) <= set(outcomes)


@pytest.mark.parametrize("watched", [False, True], ids=["prompt", "run"])
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
@pytest.mark.parametrize("how", ["abort", "cancel", "steer"])
def test_every_step(how: str, execution: str, watched: bool) -> None:
    k = 1
    while run_once(k, how, execution, watched):
        k += 1
    assert k > 10, "the sweep did not reach into the run"


def test_the_scenario_without_injection_does_what_it_should() -> None:
    world = World()
    agent = make_agent(world, "sequential")
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    result = trio.run(agent.prompt, "go", clock=MockClock(autojump_threshold=0))
    assert result.outcome == "completed"
    assert world.done == ["a", "b", "c", "d"]
    assert [e.tool_call_id for e in events if isinstance(e, ToolExecutionStart)] == ["a", "b", "c", "d", "e"]
    assert sum(isinstance(e, MessageUpdate) for e in events) > 20
