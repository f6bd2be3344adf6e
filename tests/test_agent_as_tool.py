"""An agent as a tool: a run inside a tool call, visible, bounded and cut with it."""

from typing import Any

import attrs
import pytest
import trio

from trio_agent import (
    Agent,
    AgentEvent,
    Limits,
    ModelError,
    RunGrammar,
    RunResult,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolResultMessage,
    Usage,
    check_transcript,
    event_to_dict,
    tool,
)
from trio_agent.testing import Fail, ScriptedModel, Wait


@tool
async def work(seconds: float = 0) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "worked"


@tool(atomic=True)
async def transfer(seconds: float = 1) -> str:
    """Must not be torn."""
    await trio.sleep(seconds)
    return "transferred"


def asks(number: int = 1, prompt: str = "look", name: str = "ask") -> ToolCall:
    return ToolCall(str(number), name, {"prompt": prompt})


def inner_agent(*turns: Any, **settings: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*turns), tools=[work, transfer], **settings)


def outer_agent(inner: Agent[Any], *turns: Any, as_tool: dict[str, Any] | None = None, **settings: Any) -> Agent[Any]:
    asked = inner.as_tool("ask", "Ask.", **(as_tool or {}))
    return Agent(ScriptedModel(*(turns or ([asks()], "end"))), tools=[asked, work], **settings)


def nested(events: list[AgentEvent]) -> dict[tuple[str, ...], list[AgentEvent]]:
    """What happened in nested runs, by path; every part must be a legal run of its own."""
    found: dict[tuple[str, ...], list[AgentEvent]] = {}
    for event in events:
        if isinstance(event, ToolExecutionUpdate) and event.path:
            assert event.event is not None
            found.setdefault(event.path, []).append(event.event)
    for part in found.values():
        grammar = RunGrammar()
        for event in part:
            grammar.advance(event)
        assert part[-1].type == "agent_end"
    return found


def watch(agent: Agent[Any]) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return events


def results(agent: Agent[Any]) -> list[str]:
    return [message.text for message in agent.messages if isinstance(message, ToolResultMessage)]


async def test_its_answer_is_the_result_and_its_events_are_seen_with_their_path() -> None:
    inner = inner_agent([ToolCall("7", "work")], "found it")
    agent = outer_agent(inner)
    events = watch(agent)
    inside = watch(inner)
    result = await agent.prompt("go")
    assert (result.outcome, results(agent)) == ("completed", ["found it"])
    parts = nested(events)
    assert list(parts) == [("1",)]
    types = [event.type for event in parts["1",]]
    assert types[0] == "agent_start"
    assert types.count("tool_execution_end") == 1
    end = next(event for event in events if isinstance(event, ToolExecutionEnd))
    assert isinstance(end.result.details, RunResult)
    assert end.result.details.outcome == "completed"
    assert inner.messages == ()
    assert inside == []
    said = event_to_dict(next(event for event in events if isinstance(event, ToolExecutionUpdate)))
    assert (said["path"], said["event"]) == (["1"], {"type": "agent_start"})


async def test_a_path_leads_to_the_innermost_run() -> None:
    innermost = inner_agent([ToolCall("7", "work")], "deep")
    middle = Agent(ScriptedModel([asks(2)], "middle"), tools=[innermost.as_tool("ask", "Ask.")])
    agent = outer_agent(middle)
    events = watch(agent)
    assert (await agent.prompt("go")).outcome == "completed"
    found: dict[tuple[str, ...], list[str]] = {}
    for event in events:
        if isinstance(event, ToolExecutionUpdate):
            assert event.event is not None
            found.setdefault(event.path, []).append(event.event.type)
    assert set(found) == {("1",), ("1", "2")}
    assert found["1", "2"][0] == "agent_start"
    assert found["1", "2"][-1] == "agent_end"
    assert "tool_execution_update" not in found["1",], "what is further in is told by its path alone"
    assert event_to_dict(events[8])


async def test_its_tokens_are_the_outer_runs_on_every_path(autojump_clock: object) -> None:
    usage = Usage(10, 5)
    inner = inner_agent([ToolCall("7", "work"), usage], ["x", usage])
    assert (await outer_agent(inner).prompt("go")).usage == Usage(20, 10)
    inner = inner_agent([ToolCall("7", "work", {"seconds": 9}), usage], ["x", usage])
    result = await outer_agent(inner).prompt("go", timeout=2)
    assert (result.outcome, result.usage) == ("deadline", usage)


async def test_abort_reaches_it_and_it_is_sealed_before_its_call_ends(autojump_clock: object) -> None:
    inner = inner_agent(["x", ToolCall("7", "work", {"seconds": 9}), ToolCall("8", "work")], "never")
    agent = outer_agent(inner)
    events = watch(agent)
    async with agent.run("go") as run:
        await trio.sleep(1)
        assert agent.abort("enough")
        result = await run.result()
    assert (result.outcome, trio.current_time()) == ("aborted", 1)
    part = nested(events)["1",]
    ends = {event.tool_call_id: event.outcome for event in part if isinstance(event, ToolExecutionEnd)}
    assert ends == {"7": "cancelled", "8": "not_started"}
    assert part[-1].outcome == "cancelled"  # type: ignore[union-attr]
    check_transcript(agent.messages)


async def test_an_atomic_tool_inside_has_the_grace_of_both(autojump_clock: object) -> None:
    for own, outer, expected in ((5, 2, "cancelled"), (5, 4, "completed"), (2, 5, "cancelled")):
        inner = inner_agent([ToolCall("7", "transfer", {"seconds": 4})], "never", abort_grace=own)
        agent = outer_agent(inner, abort_grace=outer)
        events = watch(agent)
        before = trio.current_time()
        with trio.move_on_after(1):
            await agent.prompt("go")
        part = nested(events)["1",]
        assert [event.outcome for event in part if isinstance(event, ToolExecutionEnd)] == [expected]
        assert trio.current_time() - before <= 1 + min(own, outer)


async def test_its_own_timeout_cuts_it(autojump_clock: object) -> None:
    inner = inner_agent([ToolCall("7", "work", {"seconds": 9})], "never")
    agent = outer_agent(inner, as_tool={"timeout": 2})
    events = watch(agent)
    assert (await agent.prompt("go")).outcome == "completed"
    assert results(agent) == ["Timed out after 2 seconds; its effects are unknown."]
    assert nested(events)["1",][-1].outcome == "cancelled"  # type: ignore[union-attr]


async def test_calls_side_by_side_are_runs_of_their_own(autojump_clock: object) -> None:
    class Echo:
        name = provider = "echo"

        async def stream(self, request: Any, out: Any) -> None:
            await trio.sleep(1)
            await out.text(f"heard {request.messages[-1].text}")

    agent = Agent(
        ScriptedModel([asks(1, "a"), asks(2, "b")], "end"),
        tools=[Agent(Echo()).as_tool("ask", "Ask.")],
        tool_execution="parallel",
    )
    events = watch(agent)
    await agent.prompt("go")
    assert results(agent) == ["heard a", "heard b"]
    assert trio.current_time() == 1
    assert set(nested(events)) == {("1",), ("2",)}


async def test_a_run_that_does_not_complete_is_an_error_result_that_says_why() -> None:
    agent = outer_agent(inner_agent([Fail(ModelError("529 busy"))]))
    await agent.prompt("go")
    assert results(agent) == ["The agent 'ask' ended with outcome 'error': 529 busy"]
    agent = outer_agent(inner_agent([ToolCall("7", "work")], "x", max_turns=1))
    await agent.prompt("go")
    assert results(agent) == ["The agent 'ask' ended with outcome 'limit': turns"]


async def test_a_bug_inside_is_an_error_of_the_tool_and_ends_the_run_if_it_is_to() -> None:
    def buggy(messages: Any) -> Any:
        raise LookupError("a bug")

    agent = outer_agent(inner_agent("x", transform_context=buggy))
    assert (await agent.prompt("go")).outcome == "completed"
    assert results(agent) == ["LookupError: a bug"]
    with pytest.raises(LookupError, match="a bug"):
        await outer_agent(inner_agent("x", transform_context=buggy), on_tool_error="raise").prompt("go")


async def test_the_outer_limits_hold_inside() -> None:
    inner = inner_agent(*[[ToolCall(str(n), "work"), Usage(10, 1)] for n in range(9)], "never")
    agent = outer_agent(inner, limits=Limits(tool_calls=3))
    result = await agent.prompt("go")
    assert (result.outcome, result.limit) == ("completed", None), "its calls were taken before it answered"
    assert results(agent) == ["The agent 'ask' ended with outcome 'limit': tool_calls"]
    inner = inner_agent(*[[ToolCall(str(n), "work"), Usage(10, 1)] for n in range(9)], "never")
    result = await outer_agent(inner, limits=Limits(input_tokens=25)).prompt("go")
    assert (result.outcome, result.limit, result.usage.input_tokens) == ("limit", "input_tokens", 30)


async def test_its_prompt_may_be_made_of_typed_arguments_and_its_value_may_be_typed() -> None:
    @attrs.frozen
    class Found:
        where: str

    def ask(topic: str, depth: int, context: ToolContext) -> str:
        """Ask.

        Args:
            topic: about what.
        """
        return f"{context.tool_name} {topic} {depth}"

    model = ScriptedModel([ToolCall("f", "final_result", {"where": "here"})])
    asked = Agent(model).as_tool("ask", "Ask.", prompt=ask, output=Found)
    assert asked.parameters["properties"]["topic"]["description"] == "about what."
    agent = Agent(ScriptedModel([ToolCall("1", "ask", {"topic": "t", "depth": "2"})], "end"), tools=[asked])
    await agent.prompt("go")
    assert results(agent) == ['{"where":"here"}']
    assert model.requests[0].messages[0].text == "ask t 2"  # type: ignore[union-attr]


async def test_dependencies_are_the_outer_ones_unless_it_has_its_own() -> None:
    seen: list[Any] = []

    @tool
    async def note(context: ToolContext[Any]) -> None:
        """Note."""
        seen.append(context.deps)

    for own, expected in ((None, "outer's"), ("own", "own")):
        inner = Agent(ScriptedModel([ToolCall("1", "note")], "x"), tools=[note], deps=own)
        await Agent(ScriptedModel([asks()], "end"), tools=[inner.as_tool("ask", "Ask.")], deps="outer's").prompt("go")
        assert seen[-1] == expected


async def test_settings_and_transcript_are_those_at_the_call() -> None:
    inner = inner_agent("old")
    asked = inner.as_tool("ask", "Ask.")
    model = ScriptedModel("new")
    await inner.prompt("before")
    inner.model, inner.system_prompt = model, "changed"
    agent = Agent(ScriptedModel([asks()], "end"), tools=[asked])
    await agent.prompt("go")
    assert results(agent) == ["new"]
    assert model.requests[0].system_prompt == "changed"
    assert [m.text for m in model.requests[0].messages] == ["before", "old", "look"]  # type: ignore[union-attr]
    assert len(inner.messages) == 2


async def test_a_slow_reader_holds_it_back(autojump_clock: object) -> None:
    most = waiting = 0
    inner = inner_agent(["x"] * 200)
    agent = outer_agent(inner, max_buffered_events=4)

    def count(event: AgentEvent) -> None:
        nonlocal most, waiting
        waiting += 1
        most = max(most, waiting)

    agent.subscribe(count)
    async with agent.run("go") as run:
        async for _ in run:
            waiting -= 1
            await trio.sleep(0.01)
    assert most <= 4 + 8


async def test_steering_waits_for_it(autojump_clock: object) -> None:
    inner = inner_agent([Wait(2), "found"])
    agent = outer_agent(inner, [asks(1), asks(2)], "end")
    async with agent.run("go") as run:
        await trio.sleep(1)
        agent.steer("other")
        await run.result()
    assert results(agent) == ["found", "Skipped due to queued user message."]


async def test_without_an_outer_run_it_is_a_run_of_its_own() -> None:
    asked = inner_agent("alone").as_tool("ask", "Ask.")
    result = await asked.execute({"prompt": "x"}, ToolContext("1", "ask"))
    assert result.text == "alone"


def test_what_is_wrong_is_said_when_it_is_made() -> None:
    inner = inner_agent("x")
    with pytest.raises(ValueError, match="Tool name"):
        inner.as_tool("no name", "Ask.")
    with pytest.raises(TypeError, match="as_tool: prompt"):
        inner.as_tool("ask", "Ask.", prompt="text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no JSON Schema"):
        inner.as_tool("ask", "Ask.", output=object)
    with pytest.raises(TypeError, match="has no annotation"):
        inner.as_tool("ask", "Ask.", prompt=lambda topic: topic)
