"""The functional layer: agent_loop and agent_loop_continue."""

from collections.abc import Sequence

import pytest
import trio

from trio_agent import (
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    Message,
    NothingToResumeError,
    ToolCall,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    tool,
)
from trio_agent.testing import ScriptedModel, check_events


@tool
async def work() -> str:
    """Work."""
    await trio.sleep(1)
    return "worked"


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_a_run_on_a_context_leaves_the_callers_list_alone(autojump_clock: object) -> None:
    history: list[Message] = [UserMessage("before"), AssistantMessage("yes")]
    model = ScriptedModel([ToolCall("a", "work")], "done")
    context = AgentContext("Be brief.", history, [work])
    async with agent_loop("go", context, AgentLoopConfig(model)) as stream:
        events = [event async for event in stream]
        result = await stream.result()
    assert check_events(events) == []
    assert texts(history) == ["before", "yes"]
    assert texts(result.messages) == ["go", "", "worked", "done"]
    assert texts(model.requests[0].messages) == ["before", "yes", "go"]
    assert model.requests[0].system_prompt == "Be brief."


async def test_queued_messages_come_from_sync_or_async_callables(autojump_clock: object) -> None:
    steering = iter([[], ["turn left"], []])
    follow_ups = iter([["and then?"], []])

    def get_steering() -> list[str]:
        return next(steering, [])

    async def get_follow_ups() -> list[str]:
        await trio.lowlevel.checkpoint()
        return next(follow_ups, [])

    model = ScriptedModel([ToolCall("a", "work"), ToolCall("b", "work")], "ok", "end")
    config = AgentLoopConfig(model=model, get_steering_messages=get_steering, get_follow_up_messages=get_follow_ups)
    async with agent_loop("go", AgentContext(tools=[work]), config) as stream:
        result = await stream.result()
    skipped = "Skipped due to queued user message."
    assert texts(result.messages) == ["go", "", "worked", skipped, "turn left", "ok", "and then?", "end"]


async def test_what_a_callable_gave_and_no_turn_took_is_undelivered(autojump_clock: object) -> None:
    model = ScriptedModel("1")
    given = iter([["one", "two"]])
    config = AgentLoopConfig(model=model, get_follow_up_messages=lambda: next(given, []), max_turns=1)
    async with agent_loop("go", AgentContext(), config) as stream:
        result = await stream.result()
    assert result.outcome == "limit"
    assert texts(result.undelivered) == ["one", "two"]


async def test_a_callable_that_gives_no_messages_is_named() -> None:
    config = AgentLoopConfig(model=ScriptedModel("1"), get_steering_messages=lambda: [3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"get_steering_messages\(\)\[0\] must be a string or a message"):
        async with agent_loop("go", AgentContext(), config) as stream:
            await stream.result()


async def test_continue_goes_on_from_the_context() -> None:
    config = AgentLoopConfig(model=ScriptedModel("answer"))
    async with agent_loop_continue(AgentContext(messages=[UserMessage("asked")]), config) as stream:
        assert (await stream.result()).text == "answer"
    for messages in ([], [UserMessage("asked"), AssistantMessage("answered")]):
        with pytest.raises(NothingToResumeError):
            async with agent_loop_continue(AgentContext(messages=messages), config):
                pass
