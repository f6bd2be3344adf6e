"""A call waits for a person."""

from typing import Any

import pytest
import trio

from trio_agent import (
    SKIP,
    Agent,
    HookContext,
    ToolCall,
    ToolExecutionEnd,
    ToolResult,
    ToolResultMessage,
    check_transcript,
    tool,
)
from trio_agent.testing import ScriptedModel
from trio_agent.tools import approval

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def work(name: str) -> str:
    """Work."""
    ran.append(name)
    await trio.sleep(1)
    return name


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(name, "work", {"name": name}) for name in names]


def asking(ask: Any, *turns: Any, settings: dict[str, Any] | None = None, **how: Any) -> Agent[Any]:
    hook = approval(ask, **how)
    script = turns or (calls("a", "b"), "end", "more")
    return Agent(ScriptedModel(*script), tools=[work], before_tool_call=hook, **(settings or {}))


def results(agent: Agent[Any]) -> list[str]:
    check_transcript(agent.messages)
    return [message.text for message in agent.messages if isinstance(message, ToolResultMessage)]


@pytest.mark.parametrize(
    ("answer", "said", "did"),
    [
        (True, "a", ["a"]),
        (False, "Not approved.", []),
        ("", "Not approved.", []),
        ("too dear", "too dear", []),
        ({"name": "other"}, "other", ["other"]),
        ({"name": 1}, "Invalid arguments for tool work: name: Expected `str`, got `int`", []),
    ],
)
async def test_an_answer_decides(answer: Any, said: str, did: list[str], autojump_clock: object) -> None:
    async def ask(call: ToolCall, arguments: dict[str, Any]) -> Any:
        await trio.sleep(2)
        return answer

    agent = asking(ask, calls("a"), "end")
    assert (await agent.prompt("go")).outcome == "completed"
    assert (results(agent), ran) == ([said], did)


async def test_only_what_is_named_is_asked_about(autojump_clock: object) -> None:
    async def never(call: ToolCall, arguments: dict[str, Any]) -> Any:
        raise AssertionError

    agent = asking(never, tools=["pay"])
    await agent.prompt("go")
    assert ran == ["a", "b"]


async def for_ever(call: ToolCall, arguments: dict[str, Any]) -> Any:
    await trio.sleep_forever()


async def test_nobody_answers(autojump_clock: object) -> None:
    agent = asking(for_ever, timeout=5)
    assert (await agent.prompt("go")).outcome == "completed"
    assert results(agent) == ["Nobody approved this call in time."] * 2
    assert (ran, trio.current_time()) == ([], 10)


@pytest.mark.parametrize("how", ["abort", "cancel", "deadline"])
async def test_the_wait_ends_with_the_run_and_the_tool_is_untouched(how: str, autojump_clock: object) -> None:
    agent = asking(for_ever)
    ends: list[str] = []
    agent.subscribe(lambda event: isinstance(event, ToolExecutionEnd) and ends.append(event.outcome))
    with trio.CancelScope() as scope:
        async with agent.run("go", timeout=1 if how == "deadline" else None) as run:
            await trio.sleep(1)
            if how == "abort":
                agent.abort()
            elif how == "cancel":
                scope.cancel()
            await run.result()
    assert (ends, ran, trio.current_time()) == (["not_started"] * 2, [], 1)
    results(agent)


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_steering_while_it_waits_skips_the_call(execution: str, autojump_clock: object) -> None:
    async def ask(call: ToolCall, arguments: dict[str, Any]) -> Any:
        if call.name == "work" and arguments["name"] == "a":
            return True
        await trio.sleep_forever()

    agent = asking(ask, calls("a", "b", "c"), "end", settings={"tool_execution": execution})
    async with agent.run("go") as run:
        await trio.sleep(3)
        agent.steer("not that")
        assert (await run.result()).outcome == "completed"
    assert results(agent) == ["a", *["Skipped due to queued user message."] * 2]
    assert (ran, trio.current_time()) == (["a"], 3)


async def test_with_turns_as_steering_points_it_goes_on_waiting(autojump_clock: object) -> None:
    agent = asking(for_ever, timeout=5, settings={"steering_point": "turn"})
    agent.steer("later")
    await agent.prompt("go")
    assert results(agent) == ["Nobody approved this call in time."] * 2


async def test_calls_side_by_side_are_asked_about_in_order_while_others_run(autojump_clock: object) -> None:
    asked: list[tuple[str, float]] = []

    async def ask(call: ToolCall, arguments: dict[str, Any]) -> Any:
        asked.append((call.id, trio.current_time()))
        await trio.sleep(0.5)
        return True

    agent = asking(ask, settings={"tool_execution": "parallel"})
    await agent.prompt("go")
    assert asked == [("a", 0), ("b", 0.5)], "the second is asked about while the first runs"
    assert (results(agent), trio.current_time()) == (["a", "b"], 2)


async def test_an_answer_that_is_none_ends_the_run_like_any_bug_of_a_hook(autojump_clock: object) -> None:
    async def ask(call: ToolCall, arguments: dict[str, Any]) -> Any:
        return None

    with pytest.raises(TypeError, match="ask must return True, False, a reason"):
        await asking(ask).prompt("go")

    async def broken(call: ToolCall, arguments: dict[str, Any]) -> Any:
        raise LookupError("no such person")

    with pytest.raises(LookupError, match="no such person"):
        await asking(broken).prompt("go")
    assert ran == []


@pytest.mark.parametrize(
    ("wrong", "error"), [({"ask": None}, TypeError), ({"tools": "work"}, TypeError), ({"timeout": 0}, ValueError)]
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"approval: {next(iter(wrong))}"):
        approval(**{"ask": for_ever, **wrong})


# hooks and their context


async def test_hooks_may_take_a_context_with_the_tool_and_the_dependencies(autojump_clock: object) -> None:
    seen: list[Any] = []

    def before(call: ToolCall, arguments: dict[str, Any], context: HookContext) -> None:
        seen.append((context.tool.name, context.deps))

    class After:
        def __call__(self, call: ToolCall, result: ToolResult, context: HookContext) -> None:
            seen.append((context.tool.name, context.deps))

    agent = Agent(
        ScriptedModel(calls("a"), "end"), tools=[work], before_tool_call=before, after_tool_call=After(), deps="db"
    )
    await agent.prompt("go")
    assert seen == [("work", "db")] * 2


async def test_hooks_without_a_third_parameter_get_two(autojump_clock: object) -> None:
    seen: list[int] = []

    def plain(*args: Any) -> None:
        seen.append(len(args))

    def with_default(call: Any, about: Any, log: list[int] = seen) -> None:
        log.append(2)

    agent = Agent(ScriptedModel(calls("a"), "end"), tools=[work], before_tool_call=plain, after_tool_call=with_default)
    await agent.prompt("go")
    assert seen == [2, 2]


async def test_a_hook_may_skip_a_call_by_itself() -> None:
    agent = Agent(ScriptedModel(calls("a"), "end"), tools=[work], before_tool_call=lambda call, arguments: SKIP)
    await agent.prompt("go")
    assert results(agent) == ["Skipped due to queued user message."]


async def test_a_hook_context_of_no_run_waits_for_nothing() -> None:
    with pytest.raises(RuntimeError, match="belongs to no run"):
        await HookContext(work).wait_steered()


# parallel


@pytest.mark.parametrize(("at_once", "seconds"), [(1, 4), (2, 2), (3, 2), (None, 1)])
async def test_at_most_so_many_run_at_once(at_once: int | None, seconds: float, autojump_clock: object) -> None:
    running = most = 0

    @tool
    async def slow() -> None:
        """Slow."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1

    batch = [ToolCall(str(number), "slow") for number in range(4)]
    agent = Agent(ScriptedModel(batch, "end"), tools=[slow], tool_execution="parallel", max_parallel_tools=at_once)
    await agent.prompt("go")
    assert (most, trio.current_time()) == (at_once or 4, seconds)
    assert len(results(agent)) == 4


async def test_steering_while_a_call_waits_for_its_place_skips_it(autojump_clock: object) -> None:
    agent = Agent(
        ScriptedModel(calls("a", "b", "c"), "end"), tools=[work], tool_execution="parallel", max_parallel_tools=2
    )
    async with agent.run("go") as run:
        await trio.sleep(0.5)
        agent.steer("stop")
        await run.result()
    assert results(agent) == ["a", "b", "Skipped due to queued user message."]


async def test_a_failing_sibling_ends_the_wait_for_a_place(autojump_clock: object) -> None:
    @tool
    async def fail() -> None:
        """Fail."""
        await trio.sleep(0.5)
        raise LookupError("a bug")

    batch = [ToolCall("f", "fail"), *calls("a", "b", "c")]
    agent = Agent(
        ScriptedModel(batch, "end"),
        tools=[fail, work],
        tool_execution="parallel",
        max_parallel_tools=2,
        on_tool_error="raise",
    )
    with pytest.raises(LookupError, match="a bug"):
        await agent.prompt("go")
    assert (ran, trio.current_time()) == (["a"], 0.5)
    assert len(results(agent)) == 4


def test_max_parallel_tools_is_checked() -> None:
    with pytest.raises(ValueError, match="max_parallel_tools"):
        Agent(ScriptedModel("x"), max_parallel_tools=0)
