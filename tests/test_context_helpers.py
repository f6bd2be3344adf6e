"""What a long transcript becomes before a request."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_agent import (
    Agent,
    AssistantMessage,
    ContextUpdate,
    CustomMessage,
    Image,
    Message,
    MessageEnd,
    ModelError,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    check_transcript,
    event_to_dict,
    message_to_dict,
    tool,
)
from trio_agent.context import (
    SummaryMessage,
    chain,
    drop_old_tool_output,
    estimate_tokens,
    keep_last_turns,
    summarise,
    token_budget,
)
from trio_agent.testing import Fail, ScriptedModel, Wait

U, C = UserMessage, CustomMessage


def one(message: Message) -> int:
    return 1


def A(text: str, *ids: str) -> AssistantMessage:
    calls = [ToolCall(id, "work") for id in ids]
    return AssistantMessage([Text(text), *calls], stop_reason="tool_use" if ids else "stop")


def R(id: str, text: str = "result") -> ToolResultMessage:
    return ToolResultMessage(id, "work", text)


LONG: list[Message] = [U("u1"), A("a1", "1", "2"), R("1"), R("2"), A("a2"), U("u2"), C("c"), A("a3", "3"), R("3")]


# examples


def test_turns_are_kept_whole() -> None:
    for turns, first in ((1, 5), (2, 4), (3, 0), (9, 0)):
        kept = keep_last_turns(turns)(LONG)
        expected = LONG[first:] if turns != 2 else [LONG[0], *LONG[4:]]
        assert list(kept) == expected, turns
    assert list(keep_last_turns(1)([*LONG, U("u3")])) == [*LONG[5:], U("u3")]
    assert list(keep_last_turns(1)([U("only")])) == [U("only")]
    assert list(keep_last_turns(1)([])) == []


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1, [LONG[5], *LONG[7:]]),  # what is not answered yet, and the user's message to begin with
        (4, LONG[5:]),
        (5, LONG[5:]),
        (6, [LONG[0], *LONG[4:]]),
        (8, [LONG[0], *LONG[4:]]),
        (9, LONG),
    ],
)
def test_the_newest_that_fit_are_kept(tokens: int, expected: list[Message]) -> None:
    assert list(token_budget(tokens, count=one)(LONG)) == expected


def test_old_output_becomes_a_note() -> None:
    long = [U("u"), A("a", "1", "2", "3"), R("1", "x" * 50), R("2", "y" * 9), R("3", "z" * 50)]
    made = drop_old_tool_output(keep=1, longer_than=10)(long)
    assert [m.text for m in made] == ["u", "a", "[Output of 50 characters left out.]", "y" * 9, "z" * 50]  # type: ignore[union-attr]
    assert long[2].text == "x" * 50  # type: ignore[union-attr]
    assert list(drop_old_tool_output(keep=5)(long)) == long
    assert "9 characters" in drop_old_tool_output(keep=0)(long)[3].text  # type: ignore[union-attr]
    picture = ToolResultMessage("1", "work", [Text("ab"), Image(b"AAAA", "image/png")])
    made = drop_old_tool_output(keep=0, longer_than=10)([A("a", "1"), picture])
    assert made[1].text == "[Output of 2 characters and an image left out.]"  # type: ignore[union-attr]


def test_tokens_are_estimated() -> None:
    assert estimate_tokens(U("x" * 400)) == 104
    assert estimate_tokens(U([Image(b"AAAA", "image/png")])) == 1004
    assert estimate_tokens(A("", "1")) == 4 + 2  # name and arguments of its call


async def test_a_chain_adds_up_what_its_steps_enter_and_spend() -> None:
    async def first(messages: Sequence[Message]) -> ContextUpdate:
        return ContextUpdate(messages[1:], (C("note"),), Usage(1, 2))

    def second(messages: Sequence[Message]) -> ContextUpdate:
        return ContextUpdate(messages[1:], (C("other"),), Usage(10, 20))

    made = await chain(first, lambda messages: [*messages, C("last")], second)(LONG[:3])
    assert list(made.messages) == [LONG[2], C("last")]
    assert [message.text for message in made.enter] == ["note", "other"]  # type: ignore[union-attr]
    assert made.usage == Usage(11, 22)
    assert list((await chain()(LONG)).messages) == LONG


@pytest.mark.parametrize(
    "make",
    [
        lambda: keep_last_turns(0),
        lambda: keep_last_turns(True),
        lambda: token_budget(0),
        lambda: drop_old_tool_output(keep=-1),
        lambda: drop_old_tool_output(keep=1, longer_than=-1),
        lambda: summarise(ScriptedModel("x"), above=0),
        lambda: summarise(ScriptedModel("x"), above=1, keep_turns=0),
    ],
)
def test_numbers_are_checked(make: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least"):
        make()


def test_a_step_must_be_callable() -> None:
    with pytest.raises(TypeError, match="step 1"):
        chain(keep_last_turns(1), "x")  # type: ignore[arg-type]


# properties


@st.composite
def transcripts(draw: Any) -> list[Message]:
    messages: list[Message] = []
    for turn in range(draw(st.integers(0, 8))):
        messages += draw(st.lists(st.sampled_from([U("u"), C("c"), U("uu" * 20)]), max_size=2))
        ids = [f"{turn}-{number}" for number in range(draw(st.integers(0, 3)))]
        messages.append(A("a" * draw(st.integers(0, 30)), *ids))
        messages += [R(id, "r" * draw(st.integers(0, 60))) for id in ids]
    return messages + draw(st.lists(st.sampled_from([U("last"), C("c")]), max_size=2))


def tail_of(messages: list[Message]) -> list[Message]:
    """What is not answered yet."""
    index = len(messages)
    while index and isinstance(messages[index - 1], U | C):
        index -= 1
    return messages[index:]


STEPS = st.one_of(
    st.builds(keep_last_turns, st.integers(1, 5)),
    st.builds(token_budget, st.integers(1, 80)),
    st.builds(lambda keep: drop_old_tool_output(keep=keep), st.integers(0, 5)),
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(transcripts(), STEPS)
def test_no_step_splits_a_call_from_its_result_or_drops_what_is_open(messages: list[Message], step: Any) -> None:
    before = [message_to_dict(message) for message in messages]
    made = list(step(messages))
    assert check_transcript(made) == []
    assert [message_to_dict(message) for message in messages] == before
    assert bool(made) == bool(messages)
    tail = tail_of(messages)
    assert not tail or made[-len(tail) :] == tail
    if isinstance(messages[-1] if messages else None, ToolResultMessage):
        assert isinstance(made[-1], ToolResultMessage)
        assert made[-1].tool_call_id == messages[-1].tool_call_id  # type: ignore[union-attr]
    places = iter(range(len(messages)))
    for message in made:
        same = (p for p in places if messages[p] is message or isinstance(message, ToolResultMessage))
        assert next(same, None) is not None, "in another order"
    spoken = [message for message in made if not isinstance(message, C)]
    if spoken and isinstance(spoken[0], AssistantMessage):
        first = next(i for i, message in enumerate(messages) if message is spoken[0])
        assert not any(isinstance(message, U) for message in messages[:first])


@settings(derandomize=True, deadline=None, max_examples=400)
@given(transcripts(), st.integers(1, 60))
def test_a_budget_is_kept_but_for_what_is_open(messages: list[Message], tokens: int) -> None:
    made = list(token_budget(tokens)(messages))
    size = sum(map(estimate_tokens, made))
    answers = [index for index, message in enumerate(made) if isinstance(message, AssistantMessage)]
    if size > tokens:
        inputs_only = not answers or (answers[-1] == 0 and not tail_of(made))
        alone = len(answers) <= 1
        assert inputs_only or alone, "more than what is open was kept above the budget"
    elif len(made) < len(messages):
        more = list(token_budget(tokens * 100)(messages))
        assert more == messages


@settings(derandomize=True, deadline=None, max_examples=200)
@given(transcripts(), st.integers(1, 4))
def test_as_many_turns_as_were_asked_for(messages: list[Message], turns: int) -> None:
    made = keep_last_turns(turns)(messages)
    answers = sum(isinstance(message, AssistantMessage) for message in messages)
    assert sum(isinstance(message, AssistantMessage) for message in made) == min(turns, answers)


# whole runs


@tool
async def work() -> str:
    """Work."""
    return "r" * 100


HISTORY: list[Message] = [U("u1"), A("a1"), U("u2"), A("a2")]


def summaries(agent: Agent[Any]) -> list[SummaryMessage]:
    return [message for message in agent.messages if isinstance(message, SummaryMessage)]


async def test_a_summary_is_a_message_that_everybody_can_see() -> None:
    writer = ScriptedModel(["It was long.", Usage(100, 10)], ["It was longer.", Usage(100, 10)])
    model = ScriptedModel(*[[f"answer {number}", Usage(1, 1)] for number in range(9)])
    agent = Agent(model, transform_context=summarise(writer, above=70, keep_turns=1))
    seen: list[str] = []
    agent.subscribe(lambda event: isinstance(event, MessageEnd) and seen.append(event.message.role))
    await agent.prompt("q" * 100)
    await agent.prompt("q" * 100)
    assert summaries(agent) == []
    result = await agent.prompt("third")
    (summary,) = summaries(agent)
    assert (summary.text, summary.kept) == ("It was long.", 3)
    assert result.usage == Usage(101, 11)
    assert seen[-3:] == ["user", "summary", "assistant"]
    sent = [message.text for message in model.requests[-1].messages]  # type: ignore[union-attr]
    assert sent == ["Summary of the conversation so far:\n\nIt was long.", "q" * 100, "answer 1", "third"]
    await agent.prompt("fourth")
    sent = [message.text for message in model.requests[-1].messages]  # type: ignore[union-attr]
    assert sent[0].endswith("It was long.")
    assert sent[1:] == ["q" * 100, "answer 1", "third", "answer 2", "fourth"]
    await agent.prompt("f" * 200)
    assert [message.text for message in summaries(agent)] == ["It was long.", "It was longer."]
    record = writer.requests[-1].messages[0].text  # type: ignore[union-attr]
    assert record.startswith("Summary of the conversation so far:\n\nIt was long.")
    assert "answer 2" in record
    sent = [message.text for message in model.requests[-1].messages]  # type: ignore[union-attr]
    assert sent[1:] == ["fourth", "answer 3", "f" * 200]
    assert check_transcript(agent.messages) == []
    assert event_to_dict(MessageEnd(summary))["message"]["role"] == "summary"


async def test_calls_and_results_are_told_in_words_and_never_split() -> None:
    writer = ScriptedModel("short")
    model = ScriptedModel([ToolCall("1", "work")], [ToolCall("2", "work")], "end")
    agent = Agent(model, tools=[work], transform_context=summarise(writer, above=20, keep_turns=1))
    await agent.prompt("go")
    (summary,) = summaries(agent)
    record = writer.requests[0].messages[0].text  # type: ignore[union-attr]
    assert record.startswith("User:\ngo\n\nAssistant:\n[calls work {}]\n\nResult of work:\n" + "r" * 100)
    assert summary.kept == 2
    assert check_transcript(model.requests[-1].messages) == []


async def test_an_abort_while_it_summarises_enters_nothing(autojump_clock: object) -> None:
    writer = ScriptedModel([Wait(5), "late"])
    agent = Agent(ScriptedModel("b"), messages=HISTORY, transform_context=summarise(writer, above=1, keep_turns=1))
    result = await agent.prompt("second", timeout=1)
    assert (result.outcome, trio.current_time()) == ("deadline", 1)
    assert summaries(agent) == []
    assert check_transcript(agent.messages) == []


@pytest.mark.parametrize("turn", ["  ", [Fail(ModelError("529"))]])
async def test_a_summary_that_fails_ends_the_run(turn: Any) -> None:
    step = summarise(ScriptedModel(turn), above=1, keep_turns=1)
    agent = Agent(ScriptedModel("b"), messages=HISTORY, transform_context=step)
    with pytest.raises(ModelError, match=r"empty summary|529"):
        await agent.prompt("second")
    assert summaries(agent) == []
