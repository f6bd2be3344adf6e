"""The law of a transcript, and the ways back to it for a history that broke it elsewhere."""

from trio_agent import AssistantMessage, Message, Text, ToolCall, ToolResultMessage, UserMessage
from trio_agent._transcript import answer_open_calls, check_transcript, open_calls, pair_up

A, B = ToolCall("a", "t"), ToolCall("b", "t")
USER = UserMessage("go")
ASKS = AssistantMessage((Text("ok"), A, B), "tool_use")
RA, RB = ToolResultMessage("a", "t", "A"), ToolResultMessage("b", "t", "B")
LEGAL: list[Message] = [USER, ASKS, RA, RB, AssistantMessage("done")]


def test_a_legal_transcript_has_no_anomaly_and_is_left_alone() -> None:
    assert check_transcript(LEGAL) == []
    assert pair_up(LEGAL) == tuple(LEGAL)


def test_each_kind_of_damage_is_named() -> None:
    assert "'b' was answered" in check_transcript([USER, ASKS, RA])[0]
    assert "follows before call 'b'" in check_transcript([USER, ASKS, RA, USER])[0]
    assert "result of 'a', but no call is open" in check_transcript([USER, RA])[0]
    assert "the result of 'a' was due" in check_transcript([USER, ASKS, RB, RA])[0]
    assert "no call is open" in check_transcript([USER, ASKS, RA, RB, RB])[0]
    cut = AssistantMessage((A,), "aborted")
    assert "cut short" in check_transcript([cut, RA])[0]
    assert "two calls with one id" in check_transcript([AssistantMessage((A, A), "tool_use"), RA, RA])[0]
    assert (
        "empty id or name"
        in check_transcript([AssistantMessage((ToolCall("", "t"),)), ToolResultMessage("", "t", "")])[0]
    )


def test_the_smallest_witness_comes_first() -> None:
    problems = check_transcript([USER, ASKS, RA, USER, RB])
    assert problems[0].startswith("message 4: result of 'b'")
    assert len(problems) == 2


def test_open_calls_are_those_at_the_end_only() -> None:
    assert open_calls([USER, ASKS, RA]) == (B,)
    assert open_calls([USER, ASKS, RA, USER]) == ()
    assert open_calls(LEGAL) == ()
    assert open_calls([]) == ()
    assert [answer.tool_call_id for answer in answer_open_calls([USER, ASKS])] == ["a", "b"]
    assert check_transcript([USER, ASKS, *answer_open_calls([USER, ASKS])]) == []


def test_r8_orphans_and_nameless_calls_never_reach_a_request() -> None:
    broken: list[Message] = [
        RA,
        USER,
        AssistantMessage((ToolCall("", "t"), A, ToolCall("c", "")), "tool_use"),
        ToolResultMessage("", "t", "?"),
        USER,
        AssistantMessage((B,), "tool_use"),
        RB,
        RB,
    ]
    paired = pair_up(broken)
    assert check_transcript(paired) == []
    assert [m.tool_call_id for m in paired if isinstance(m, ToolResultMessage)] == ["a", "b"]
    assert [m for m in paired if isinstance(m, UserMessage)] == [USER, USER]


def test_a_pair_that_a_transform_cut_in_two_is_mended() -> None:
    assert check_transcript(pair_up(LEGAL[2:])) == []
    assert check_transcript(pair_up(LEGAL[:3])) == []
