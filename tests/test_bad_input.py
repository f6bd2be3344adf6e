"""Bad input: each a clear error that names the argument and the fix, with nothing changed."""

from typing import Any

import pytest

from trio_agent import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    CustomMessage,
    Image,
    ModelOptions,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    agent_loop,
    tool,
)
from trio_agent.testing import ScriptedModel


@tool
async def one() -> None:
    """One."""


@pytest.mark.parametrize("prompt", ["", "  \n", [], ["ok", ""], UserMessage("")])
async def test_an_empty_prompt(prompt: Any) -> None:
    agent = Agent(ScriptedModel("1"))
    with pytest.raises(ValueError, match=r"prompt.*resume\(\)"):
        await agent.prompt(prompt)
    assert agent.messages == ()
    assert not agent.state.is_running


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (3, "prompt must be a string, a message, or a sequence of these, not int"),
        (b"x", "not bytes"),
        (["ok", 3], r"prompt\[1\] must be a string or a message, not int"),
        (AssistantMessage("x"), r"a prompt is what the user says.*Agent\(messages="),
        (ToolResultMessage("a", "t", "x"), "ToolResultMessage"),
    ],
)
async def test_a_prompt_that_is_neither_text_nor_a_message(prompt: Any, says: str) -> None:
    agent = Agent(ScriptedModel("1"))
    with pytest.raises(TypeError, match=says):
        await agent.prompt(prompt)
    with pytest.raises(TypeError, match=says):
        async with agent.run(prompt):
            pass
    with pytest.raises(TypeError, match=says.replace("prompt", "prompts", 1) if says.startswith("prompt") else says):
        async with agent_loop(prompt, AgentContext(), AgentLoopConfig(model=ScriptedModel())):
            pass
    assert agent.messages == ()


def test_steering_takes_one_message() -> None:
    agent = Agent(ScriptedModel())
    with pytest.raises(TypeError, match="message must be one string or one message"):
        agent.steer(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="message is empty"):
        agent.follow_up("")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tools": [one, one]}, "two tools have the name 'one'"),
        ({"tools": [lambda: None]}, r"tools\[0\] must be a Tool, not function; decorate the function with @tool"),
        ({"messages": ["hi"]}, r"messages\[0\] must be a message, not str"),
        ({"system_prompt": None}, "system_prompt"),
        ({"tool_execution": "both"}, "tool_execution must be one of 'sequential', 'parallel', not 'both'"),
        ({"steering_point": "now"}, "steering_point must be one of"),
        ({"on_tool_error": "ignore"}, "on_tool_error must be one of"),
        ({"steering_mode": "some"}, "steering_mode must be"),
        ({"follow_up_mode": None}, "follow_up_mode must be"),
        ({"max_turns": 0}, "max_turns must be a number of at least 1, not 0"),
        ({"abort_grace": -1}, "abort_grace must be a number of at least 0"),
        ({"max_buffered_events": 0}, "max_buffered_events must be"),
        ({"transform_context": 3}, "transform_context must be a callable or None"),
        ({"convert_to_llm": None}, "convert_to_llm"),
        ({"before_tool_call": "x"}, "before_tool_call must be a callable"),
        ({"options": {"temperature": 1}}, "options"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        Agent(ScriptedModel(), **settings)


def test_a_model_without_stream() -> None:
    class NoModel:
        name = provider = "x"

    with pytest.raises(TypeError, match="NoModel has no 'stream'"):
        Agent(NoModel())  # type: ignore[arg-type]
    agent = Agent(ScriptedModel())
    with pytest.raises(TypeError, match="model must have name, provider"):
        agent.model = "gpt"  # type: ignore[assignment]


@pytest.mark.parametrize("timeout", [-1, "5", True])
async def test_a_wrong_timeout(timeout: Any) -> None:
    agent = Agent(ScriptedModel("1", "2"))
    with pytest.raises(ValueError, match="timeout must be a number of seconds"):
        await agent.prompt("go", timeout=timeout)
    assert not agent.state.is_running
    assert (await agent.prompt("go")).text == "1"


def test_a_wrong_tool_assignment_changes_nothing() -> None:
    agent = Agent(ScriptedModel(), tools=[one])
    with pytest.raises(ValueError, match="two tools"):
        agent.tools = [one, one]
    assert agent.tools == (one,)


def test_an_observer_must_be_sync() -> None:
    async def observer(event: object) -> None: ...

    agent = Agent(ScriptedModel())
    for wrong in (observer, 3):
        with pytest.raises(TypeError, match="subscribe"):
            agent.subscribe(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: UserMessage(3), "content must be a string or content parts, not int"),
        (lambda: UserMessage(b"x"), "not bytes"),
        (lambda: UserMessage(["x"]), r"content\[0\] must be a Text"),
        (lambda: Text(None), "text"),
        (lambda: Image("x", "image/png"), "data"),
        (lambda: ToolCall("a", "t", [1]), "arguments must be a mapping"),
        (lambda: CustomMessage(3), "content"),
        (lambda: ModelOptions(temperature="hot"), "temperature"),
    ],
)
def test_wrong_messages_are_named(make: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()


def test_nothing_in_a_transcript_can_be_changed() -> None:
    call = ToolCall("a", "t", {"x": [1]})
    with pytest.raises(AttributeError):
        call.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot be changed"):
        call.arguments["x"] = 2  # type: ignore[index]
    with pytest.raises(TypeError, match="cannot be changed"):
        call.arguments["x"].append(2)
    assert call.arguments == {"x": [1]}
