"""Structured output: a validated value at the end of a run, by a final tool or by the provider's schema mode."""

import json
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
import trio

from trio_agent import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    MessageWriter,
    ModelError,
    ModelOutputError,
    ModelRequest,
    Output,
    RunAbortedError,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    agent_loop,
    check_transcript,
    tool,
)
from trio_agent.testing import Fail, ScriptedModel, Wait


@attrs.frozen
class City:
    """A city."""

    name: str
    people: Annotated[int, msgspec.Meta(ge=0)]
    kind: Literal["old", "new"] = "old"


def final(number: int = 1, /, **arguments: Any) -> ToolCall:
    return ToolCall(f"f{number}", "final_result", arguments)


@tool
async def work() -> str:
    """Work."""
    return "worked"


def results(agent: Agent) -> list[str]:
    return [message.text for message in agent.messages if isinstance(message, ToolResultMessage)]


async def test_the_value_comes_by_a_final_tool_and_ends_the_run() -> None:
    model = ScriptedModel([ToolCall("1", "work")], [final(name="Rome", people="2800000")])
    agent = Agent(model, tools=[work])
    result = await agent.prompt("Which?", output=City)
    value: City = result.output
    assert value == City("Rome", 2_800_000)
    assert (result.outcome, result.turns) == ("completed", 2)
    assert results(agent) == ["worked", "Accepted."]
    shown = model.requests[0].tools[-1]
    assert [item.name for item in model.requests[0].tools] == ["work", "final_result"]
    assert shown.parameters["required"] == ["name", "people"]
    assert shown.parameters["additionalProperties"] is False
    check_transcript(agent.messages)
    assert (await Agent(ScriptedModel("x")).prompt("plain")).output is None


@pytest.mark.parametrize(
    ("wanted", "given", "value"),
    [
        (int, {"result": "3"}, 3),
        (list[City], {"result": [{"name": "a", "people": 1}]}, [City("a", 1)]),
        (City | None, {"result": None}, None),
        (dict[str, int], {"result": {"a": 1}}, {"a": 1}),
        (Literal["yes", "no"], {"result": "no"}, "no"),
    ],
)
async def test_what_is_no_object_is_wrapped_in_one(wanted: Any, given: dict[str, Any], value: Any) -> None:
    for mode in ("tool", "schema"):
        turn = [final(**given)] if mode == "tool" else json.dumps(given)
        result = await Agent(ScriptedModel(turn)).prompt("go", output=Output(wanted, mode=mode))  # type: ignore[arg-type]
        assert result.output == value
        assert result.outcome == "completed"


async def test_an_invalid_value_is_refused_naming_every_field_and_corrected() -> None:
    model = ScriptedModel([final(people=-1, kind="odd", extra=1)], [final(2, name="Rome", people=1)])
    agent = Agent(model)
    result = await agent.prompt("go", output=City)
    assert result.output == City("Rome", 1)
    (refusal, accepted) = results(agent)
    assert refusal.startswith("Invalid final result: ")
    for field in ("name", "people", "kind", "extra"):
        assert field in refusal
    assert accepted == "Accepted."


async def test_the_fields_of_a_wrapped_value_are_named_by_their_place() -> None:
    model = ScriptedModel([final(result=[{"name": 1, "people": 1}])], [final(2, wrong=1)], [final(3, result=[])])
    agent = Agent(model)
    assert (await agent.prompt("go", output=list[City])).output == []
    assert "result[0].name: Expected `str`" in results(agent)[0]
    assert "the one field 'result'" in results(agent)[1]


async def test_plain_text_is_corrected_with_a_message_that_can_be_seen() -> None:
    agent = Agent(ScriptedModel("It is Rome.", [final(name="Rome", people=1)]))
    result = await agent.prompt("go", output=City)
    assert result.output == City("Rome", 1)
    users = [message.text for message in agent.messages if isinstance(message, UserMessage)]
    assert users == ["go", "The final result is still missing: call the tool 'final_result' with it."]


@pytest.mark.parametrize("mode", ["tool", "schema"])
@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_corrections_are_bounded(mode: Any, retries: int) -> None:
    model = ScriptedModel(*["no"] * 9)
    result = await Agent(model).prompt("go", output=Output(City, mode=mode, retries=retries))
    assert (result.outcome, result.turns) == ("error", retries + 1)
    assert isinstance(result.error, ModelOutputError)
    assert f"after {retries + 1} tr" in str(result.error)
    with pytest.raises(ModelOutputError):
        _ = result.output


async def test_invalid_calls_and_missing_ones_count_together() -> None:
    agent = Agent(ScriptedModel([final()], "text", [final(2)], "never"))
    result = await agent.prompt("go", output=City)
    assert (result.outcome, result.turns) == ("error", 3)
    assert "name" in str(result.error)
    assert len(results(agent)) == 2
    check_transcript(agent.messages)


async def test_schema_mode_asks_for_the_schema_and_reads_the_answer() -> None:
    model = ScriptedModel([ToolCall("1", "work")], '```json\n{"name": "Rome", "people": 3}\n```')
    agent = Agent(model, tools=[work])
    result = await agent.prompt("go", output=Output(City, mode="schema"))
    assert result.output == City("Rome", 3)
    assert [item.name for item in model.requests[0].tools] == ["work"]
    schema = model.requests[0].options.response_schema
    assert schema is not None
    assert schema["required"] == ["name", "people"]


async def test_a_wrong_answer_in_schema_mode_is_corrected_with_what_was_wrong() -> None:
    agent = Agent(ScriptedModel("Rome", '{"name": "Rome", "people": -3}', '{"name": "Rome", "people": 3}'))
    result = await agent.prompt("go", output=Output(City, mode="schema"))
    assert result.output == City("Rome", 3)
    said = [message.text for message in agent.messages if isinstance(message, UserMessage)]
    assert "not JSON" in said[1]
    assert "people: " in said[2]


async def test_other_calls_of_the_batch_still_run_and_a_second_value_is_refused() -> None:
    model = ScriptedModel([final(1, name="a", people=1), ToolCall("2", "work"), final(3, name="b", people=2)])
    agent = Agent(model, tools=[work])
    result = await agent.prompt("go", output=City)
    assert result.output == City("a", 1)
    assert results(agent) == ["Accepted.", "worked", "Not taken: the final result was given already."]


@pytest.mark.parametrize("how", ["steer", "follow_up"])
async def test_what_is_said_meanwhile_is_answered_first_and_the_value_is_the_last_word(how: str) -> None:
    model = ScriptedModel([final(1, name="a", people=1)], [final(2, name="b", people=2)])
    agent = Agent(model)
    agent.subscribe(
        lambda event: (
            event.type == "tool_execution_end" and event.tool_call_id == "f1" and getattr(agent, how)("No, the other")
        )
    )
    result = await agent.prompt("go", output=City)
    assert (result.output, result.turns) == (City("b", 2), 2)


async def test_a_follow_up_is_answered_before_the_value_is_asked_for() -> None:
    agent = Agent(ScriptedModel("one", "two", [final(name="a", people=1)]))
    agent.follow_up("and then?")
    result = await agent.prompt("go", output=City)
    users = [message.text for message in agent.messages if isinstance(message, UserMessage)]
    assert users[1] == "and then?"
    assert "still missing" in users[2]
    assert result.output == City("a", 1)


async def test_a_run_that_ends_early_has_no_output_and_says_so(autojump_clock: object) -> None:
    result = await Agent(ScriptedModel([Wait(5), "x"])).prompt("go", output=City, timeout=1)
    assert result.outcome == "deadline"
    with pytest.raises(RunAbortedError):
        _ = result.output
    result = await Agent(ScriptedModel([Fail(ModelError("529"))])).prompt("go", output=City)
    with pytest.raises(ModelError, match="529"):
        _ = result.output


async def test_an_accepted_value_survives_an_abort_in_the_same_batch(autojump_clock: object) -> None:
    @tool
    async def slow() -> str:
        """Slow."""
        await trio.sleep(5)
        return "slow"

    agent = Agent(ScriptedModel([final(name="a", people=1), ToolCall("2", "slow")]), tools=[slow])
    result = await agent.prompt("go", output=City, timeout=1)
    assert (result.outcome, result.output) == ("deadline", City("a", 1))


async def test_limits_bound_corrections_too() -> None:
    result = await Agent(ScriptedModel("no", "no"), max_turns=1).prompt("go", output=City)
    assert (result.outcome, result.limit) == ("limit", "turns")


async def test_the_tools_name_must_be_its_own() -> None:
    agent = Agent(ScriptedModel([final(name="a", people=1)]), tools=[work])
    with pytest.raises(ValueError, match=r"also called 'work'.*Output\(type, name="):
        await agent.prompt("go", output=Output(City, name="work"))
    assert agent.messages == ()
    assert not agent.state.is_running
    with pytest.raises(TypeError, match="no JSON Schema"):
        await agent.prompt("go", output=object)
    for wrong in ({"retries": -1}, {"mode": "grammar"}):
        with pytest.raises(ValueError, match=f"Output.{next(iter(wrong))}"):
            Output(City, **wrong)  # type: ignore[arg-type]


async def test_the_next_run_is_not_asked_for_it_and_resume_and_run_can_be() -> None:
    model = ScriptedModel([final(name="a", people=1)], "plain", [final(name="b", people=1)], [final(2, result=3)])
    agent = Agent(model)
    await agent.prompt("go", output=City)
    assert (await agent.prompt("and now?")).output is None
    assert model.requests[1].tools == ()
    agent.follow_up("go on")
    assert (await agent.resume(output=City)).output == City("b", 1)
    async with agent.run("and?", output=int) as run:
        assert (await run.result()).output == 3


async def test_the_functional_layer_takes_it_from_its_config() -> None:
    config = AgentLoopConfig(ScriptedModel([final(result=3)]), output=int)
    async with agent_loop("go", AgentContext(), config) as stream:
        assert (await stream.result()).output == 3


async def test_bad_json_in_the_final_call_is_corrected() -> None:
    class Careless(ScriptedModel):
        async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
            if len(request.messages) == 1:
                await out.tool_call_start("1", "final_result")
                await out.tool_call_delta('{"result": ')
                await out.tool_call_end()
            else:
                await super().stream(request, out)

    agent = Agent(Careless([final(2, result=1)]))
    assert (await agent.prompt("go", output=int)).output == 1
    assert "JSON" in results(agent)[0]


async def test_a_message_that_ends_the_run_early_is_still_asked() -> None:
    # every result asks to end the run, and the value has not come
    from trio_agent import ToolResult

    @tool
    async def stop() -> ToolResult:
        """Stop."""
        return ToolResult("stop", terminate=True)

    agent = Agent(ScriptedModel([ToolCall("1", "stop")], [final(2, result=1)]), tools=[stop])
    assert (await agent.prompt("go", output=int)).output == 1
    assert isinstance(agent.messages[-2], AssistantMessage)
