"""The run as its users see it: prompt, resume, run, steer, follow_up, abort, subscribe, state."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentBusyError,
    AgentEnd,
    AgentEvent,
    AssistantMessage,
    Message,
    MessageEnd,
    MessageUpdate,
    ModelError,
    NothingToResumeError,
    ObserverWarning,
    RunAbortedError,
    RunLimitError,
    ToolCall,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    Usage,
    UserMessage,
    tool,
)
from trio_agent.testing import Fail, ScriptedModel, Stop, Wait, check_events, check_transcript


def calls(*ids: str, name: str = "work", **arguments: Any) -> list[ToolCall]:
    return [ToolCall(id, name, arguments) for id in ids]


@tool
async def work(seconds: float = 1.0) -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return "worked"


class Watch:
    """Records an agent's events, and checks at the end that the run was legal."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.events: list[AgentEvent] = []
        agent.subscribe(self.events.append)

    def check(self) -> None:
        assert check_events(self.events) == []
        assert check_transcript(self.agent.messages) == []
        assert not self.agent.state.is_running

    def outcomes(self) -> list[tuple[str, str]]:
        return [(e.tool_call_id, e.outcome) for e in self.events if isinstance(e, ToolExecutionEnd)]

    def types(self) -> list[str]:
        return [event.type for event in self.events]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


# to the end ---------------------------------------------------------------------------------------------------------


async def test_a_prompt_runs_to_the_end(autojump_clock: object) -> None:
    model = ScriptedModel([*calls("a"), Usage(10, 2)], ["do", "ne", Usage(20, 3, 5)])
    agent = Agent(model, tools=[work], system_prompt="Be brief.")
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert (result.outcome, result.text, result.turns, result.error) == ("completed", "done", 2, None)
    assert result.usage == Usage(30, 5, 5)
    assert result.messages == agent.messages
    assert result.raise_for_error() is result
    assert [request.system_prompt for request in model.requests] == ["Be brief."] * 2
    assert model.requests[1].tools == (work,)
    assert texts(model.requests[1].messages) == ["go", "", "worked"]


async def test_a_run_can_be_watched_and_its_result_awaited() -> None:
    agent = Agent(ScriptedModel(["a", "b"]))
    async with agent.run("go") as run:
        deltas = [event.delta async for event in run if isinstance(event, MessageUpdate) and event.delta]
        result = await run.result()
    assert deltas == ["a", "b"]
    assert result.text == "ab"


async def test_a_result_needs_no_reader_however_much_is_streamed() -> None:
    agent = Agent(ScriptedModel(["x"] * 5000), max_buffered_events=10)
    async with agent.run("go") as run:
        assert (await run.result()).text == "x" * 5000


async def test_a_slow_reader_bounds_the_run_and_misses_nothing() -> None:
    agent = Agent(ScriptedModel(["x"] * 500), max_buffered_events=10)
    async with agent.run("go") as run:
        await wait_all_tasks_blocked()
        message = agent.state.streaming_message
        assert message is not None
        assert len(message.text) < 20, "the run went on although nobody read"
        events = [event async for event in run]
    assert check_events(events) == []
    assert sum(isinstance(event, MessageUpdate) for event in events) == 502


async def test_several_readers_each_see_their_stream() -> None:
    agent = Agent(ScriptedModel(["x"] * 300), max_buffered_events=10)
    seen: dict[str, list[AgentEvent]] = {"block": [], "coalesce": []}
    async with agent.run("go") as run, trio.open_nursery() as nursery:

        async def read(how: Any) -> None:
            async for event in run.subscribe(max_buffered=5, overflow=how):
                seen[how].append(event)

        nursery.start_soon(read, "block")
        nursery.start_soon(read, "coalesce")
        await wait_all_tasks_blocked()
        async for _ in run:
            pass
    for how, events in seen.items():
        deltas = "".join([event.delta for event in events if isinstance(event, MessageUpdate)])
        assert "x" * 200 in deltas, how
        assert isinstance(events[-1], AgentEnd)


async def test_events_tell_the_partial_message() -> None:
    agent = Agent(ScriptedModel(["He", "llo"]))
    watch = Watch(agent)
    await agent.prompt("go")
    partials = [event.message.text for event in watch.events if isinstance(event, MessageUpdate)]
    assert partials == ["", "He", "Hello", "Hello"]


async def test_a_prompt_may_be_text_a_message_or_several_of_either() -> None:
    model = ScriptedModel("1", "2", "3")
    agent = Agent(model)
    await agent.prompt("a")
    await agent.prompt(UserMessage("b"))
    await agent.prompt(["c", UserMessage("d")])
    assert texts(model.requests[-1].messages) == ["a", "1", "b", "2", "c", "d"]


# the two steps of the context ----------------------------------------------------------------------------------------


async def test_the_context_goes_through_both_steps_in_order_and_the_transcript_stays() -> None:
    order: list[str] = []

    async def transform(messages: Sequence[Message]) -> Sequence[Message]:
        order.append("transform")
        await trio.lowlevel.checkpoint()
        return messages[-1:]

    def convert(messages: Sequence[Message]) -> Sequence[Message]:
        order.append("convert")
        return [UserMessage(message.text.upper()) for message in messages]

    model = ScriptedModel("1", "2")
    agent = Agent(model, transform_context=transform, convert_to_llm=convert)
    await agent.prompt("a")
    await agent.prompt("b")
    assert order == ["transform", "convert"] * 2
    assert [texts(request.messages) for request in model.requests] == [["A"], ["B"]]
    assert texts(agent.messages) == ["a", "1", "b", "2"]


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
async def test_r7_a_failing_context_hook_ends_the_run_with_its_own_exception(hook: str) -> None:
    def broken(messages: Sequence[Message]) -> Sequence[Message]:
        raise LookupError("no such thing")

    agent = Agent(ScriptedModel("1"), **{hook: broken})
    watch = Watch(agent)
    with pytest.raises(LookupError, match="no such thing"):
        await agent.prompt("go")
    watch.check()
    end = watch.events[-1]
    assert isinstance(end, AgentEnd)
    assert (end.outcome, type(end.error)) == ("error", LookupError)
    with pytest.raises(LookupError):
        async with agent.run("again") as run:
            events = [event async for event in run]
            assert (await run.result()).outcome == "error"
    assert check_events(events) == []


async def test_a_context_hook_that_returns_no_sequence_is_named() -> None:
    agent = Agent(ScriptedModel("1"), transform_context=lambda messages: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="transform_context must return a sequence"):
        await agent.prompt("go")


async def test_model_tools_and_prompt_may_be_assigned_in_mid_run(autojump_clock: object) -> None:
    second = ScriptedModel("from the second")
    agent: Agent

    @tool
    async def switch() -> str:
        """Switch."""
        agent.model = second
        agent.system_prompt = "new"
        agent.tools = [work]
        return "ok"

    agent = Agent(ScriptedModel(calls("a", name="switch")), tools=[switch])
    result = await agent.prompt("go")
    assert result.text == "from the second"
    assert second.requests[0].system_prompt == "new"
    assert second.requests[0].tools == agent.tools == (work,)


# tools --------------------------------------------------------------------------------------------------------------


async def test_tool_results_and_errors_are_told_to_the_model(autojump_clock: object) -> None:
    @tool
    async def fails(kind: str) -> str:
        """Fail."""
        if kind == "word":
            raise ToolError("no such row")
        raise ExceptionGroup("several", [KeyError("k"), ValueError("v")])

    model = ScriptedModel(
        [
            ToolCall("a", "fails", {"kind": "word"}),
            ToolCall("b", "fails", {"kind": "group"}),
            ToolCall("c", "fails", {"kind": 3, "other": 4}),
            ToolCall("d", "nobody", {}),
            ToolCall("e", "work", {}),
        ],
        "done",
    )
    agent = Agent(model, tools=[fails, work])
    watch = Watch(agent)
    await agent.prompt("go")
    watch.check()
    results = {m.tool_call_id: m for m in agent.messages if isinstance(m, ToolResultMessage)}
    assert results["a"].text == "no such row"
    assert results["b"].text == "KeyError: 'k'; ValueError: v"
    assert "kind: Expected `str`" in results["c"].text
    assert "other: unknown argument" in results["c"].text
    assert results["d"].text == "Tool nobody not found"
    assert [r.is_error for r in results.values()] == [True, True, True, True, False]
    assert watch.outcomes() == [
        ("a", "failed"),
        ("b", "failed"),
        ("c", "rejected"),
        ("d", "rejected"),
        ("e", "completed"),
    ]
    ends = [event for event in watch.events if isinstance(event, ToolExecutionEnd)]
    assert isinstance(ends[0].exception, ToolError)
    assert ends[4].duration == 1.0


async def test_on_tool_error_raise_ends_the_run_but_lets_tool_errors_through() -> None:
    @tool
    async def fails(soft: bool) -> None:
        """Fail."""
        raise ToolError("soft") if soft else LookupError("hard")

    model = ScriptedModel([ToolCall("a", "fails", {"soft": True})], [ToolCall("b", "fails", {"soft": False})])
    agent = Agent(model, tools=[fails], on_tool_error="raise")
    watch = Watch(agent)
    with pytest.raises(LookupError, match="hard"):
        await agent.prompt("go")
    watch.check()
    assert watch.outcomes() == [("a", "failed"), ("b", "failed")]


async def test_progress_is_an_event_and_is_ignored_once_the_tool_has_returned(autojump_clock: object) -> None:
    kept: list[ToolContext] = []

    @tool
    async def slow(context: ToolContext) -> str:
        """Report."""
        kept.append(context)
        assert context.update("half")
        return "done"

    agent = Agent(ScriptedModel([*calls("a", name="slow"), *calls("b")], "end"), tools=[slow, work])
    watch = Watch(agent)
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, ToolExecutionStart) and event.tool_call_id == "b":
                assert not kept[0].update("late")
    assert not kept[0].update("after the run")
    watch.check()
    updates = [event.partial_result.text for event in watch.events if isinstance(event, ToolExecutionUpdate)]
    assert updates == ["half"]


async def test_progress_without_end_cannot_fill_memory() -> None:
    accepted = 0

    @tool
    async def chatty(context: ToolContext) -> str:
        """Report a great deal without ever waiting."""
        nonlocal accepted
        accepted = sum(context.update("x") for _ in range(10_000))
        await context.room()
        return "done"

    agent = Agent(ScriptedModel(calls("a", name="chatty"), "end"), tools=[chatty], max_buffered_events=20)
    async with agent.run("go") as run:
        await wait_all_tasks_blocked()
        events = [event async for event in run]
    assert accepted <= 21
    assert check_events(events) == []
    assert sum(isinstance(event, ToolExecutionUpdate) for event in events) == accepted


async def test_sync_tools_run_in_threads_and_are_waited_for() -> None:
    @tool
    def compute(n: int) -> int:
        """Square."""
        assert not trio.lowlevel.in_trio_run()
        return n * n

    agent = Agent(ScriptedModel([ToolCall("a", "compute", {"n": 7})], "end"), tools=[compute])
    result = await agent.prompt("go")
    assert result.messages[2].text == "49"


async def test_a_timeout_gives_an_error_result(autojump_clock: object) -> None:
    @tool(timeout=2.0)
    async def slow() -> None:
        """Sleep."""
        await trio.sleep(100)

    agent = Agent(ScriptedModel(calls("a", name="slow"), "end"), tools=[slow])
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert result.outcome == "completed"
    assert "Timed out after 2.0 seconds" in result.messages[2].text
    assert watch.outcomes() == [("a", "failed")]


async def test_a_result_that_cannot_be_encoded_is_told_and_counts_as_completed() -> None:
    @tool
    async def odd() -> object:
        """Odd."""
        return object()

    agent = Agent(ScriptedModel(calls("a", name="odd"), "end"), tools=[odd])
    watch = Watch(agent)
    result = await agent.prompt("go")
    assert "cannot be given to the model" in result.messages[2].text
    assert watch.outcomes() == [("a", "completed")]


async def test_r11_a_response_at_its_length_limit_runs_no_call_and_a_second_one_is_an_error() -> None:
    ran: list[str] = []

    @tool
    async def write(text: str = "") -> None:
        """Write."""
        ran.append(text)

    cut = [ToolCall("a", "write", {"text": "x"}), Stop("length")]
    cut2 = [ToolCall("b", "write", {"text": "x"}), Stop("length")]
    agent = Agent(ScriptedModel(cut, "better"), tools=[write])
    result = await agent.prompt("go")
    assert result.outcome == "completed"
    assert "cut off" in result.messages[2].text
    agent = Agent(ScriptedModel(cut, cut2, "never"), tools=[write])
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert result.outcome == "error"
    with pytest.raises(ModelError, match="length limit"):
        result.raise_for_error()
    assert ran == []


async def test_hooks_may_block_replace_arguments_and_replace_results(autojump_clock: object) -> None:
    ran: list[float] = []

    @tool
    async def nap(seconds: float) -> str:
        """Nap."""
        ran.append(seconds)
        return "slept"

    async def before(call: ToolCall, arguments: dict[str, Any]) -> object:
        return {"a": None, "b": "not now", "c": {"seconds": 9}, "d": {"seconds": "long"}}[call.id]

    def after(call: ToolCall, result: ToolResult) -> object:
        return "changed" if call.id == "c" else None

    model = ScriptedModel([ToolCall(id, "nap", {"seconds": 1}) for id in "abcd"], "end")
    agent = Agent(model, tools=[nap], before_tool_call=before, after_tool_call=after)
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert ran == [1.0, 9.0]
    assert texts(result.messages[2:5]) == ["slept", "not now", "changed"]
    assert "seconds: Expected `float`" in result.messages[5].text
    assert [outcome for _, outcome in watch.outcomes()] == ["completed", "rejected", "completed", "rejected"]


async def test_terminate_ends_the_run_unless_something_is_queued() -> None:
    @tool
    async def finish() -> ToolResult:
        """Finish."""
        return ToolResult("bye", terminate=True)

    agent = Agent(ScriptedModel(calls("a", name="finish"), "more"), tools=[finish])
    result = await agent.prompt("go")
    assert (result.outcome, result.turns) == ("completed", 1)
    agent = Agent(ScriptedModel(calls("a", name="finish"), "more"), tools=[finish])
    agent.follow_up("and?")
    result = await agent.prompt("go")
    assert (result.turns, result.text) == (2, "more")


# steering and follow-ups ---------------------------------------------------------------------------------------------


async def test_g16_steering_waits_for_the_tool_and_skips_the_rest(autojump_clock: object) -> None:
    model = ScriptedModel(calls("a", "b", "c"), "changed course")
    agent = Agent(model, tools=[work])
    watch = Watch(agent)
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, ToolExecutionStart) and event.tool_call_id == "a":
                receipt = agent.steer("stop that")
                assert agent.state.queued_steering == (UserMessage("stop that"),)
    watch.check()
    assert watch.outcomes() == [("a", "completed"), ("b", "skipped"), ("c", "skipped")]
    assert receipt.delivered
    assert texts(model.requests[1].messages)[-1] == "stop that"
    assert agent.messages[3].text == agent.messages[4].text == "Skipped due to queued user message."


async def test_steering_point_turn_lets_the_batch_finish(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a", "b"), "ok"), tools=[work], steering_point="turn")
    watch = Watch(agent)
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, ToolExecutionStart) and event.tool_call_id == "a":
                agent.steer("and then")
    watch.check()
    assert watch.outcomes() == [("a", "completed"), ("b", "completed")]
    assert texts(agent.messages)[4] == "and then"


async def test_steering_outranks_follow_ups() -> None:
    model = ScriptedModel("1", "2", "3")
    agent = Agent(model)
    agent.follow_up("follow")
    once = iter(["steer"])
    agent.subscribe(lambda event: [agent.steer(text) for text in once] if isinstance(event, TurnEnd) else None)
    await agent.prompt("go")
    assert texts(agent.messages) == ["go", "1", "steer", "2", "follow", "3"]


async def test_r28_a_receipt_says_delivered_only_when_a_request_has_it(autojump_clock: object) -> None:
    entered = trio.Event()
    proceed = trio.Event()

    async def transform(messages: Sequence[Message]) -> Sequence[Message]:
        if len(messages) > 1:
            entered.set()
            await proceed.wait()
        return messages

    agent = Agent(ScriptedModel("1", "2"), transform_context=transform)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, ["a", "b"])
        await entered.wait()
        receipt = agent.steer("s")
        assert not receipt.delivered
        proceed.set()
        assert await receipt.wait_delivered()
    assert receipt.delivered


async def test_g19_an_abort_does_not_burn_what_was_queued(autojump_clock: object) -> None:
    model = ScriptedModel(calls("a", "b"), "fresh")
    agent = Agent(model, tools=[work])
    receipts = []
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, ToolExecutionStart) and event.tool_call_id == "a":
                receipts = [agent.steer("s1"), agent.steer("s2"), agent.follow_up("f")]
                assert agent.abort("enough")
        result = await run.result()
    assert texts(result.undelivered) == ["s1", "s2", "f"]
    assert not any(receipt.delivered for receipt in receipts)
    assert receipts[1].withdraw()
    agent.model = ScriptedModel("2", "3")
    await agent.prompt("next")
    assert [receipt.delivered for receipt in receipts] == [True, False, True]
    assert texts(agent.messages)[-5:] == ["next", "s1", "2", "f", "3"]


async def test_a_message_in_the_transcript_of_an_aborted_run_is_delivered_by_the_next(autojump_clock: object) -> None:
    hold = True

    async def transform(messages: Sequence[Message]) -> Sequence[Message]:
        if hold and messages[-1].text == "s":
            await trio.sleep_forever()
        return messages

    model = ScriptedModel("1", "2")
    agent = Agent(model, transform_context=transform)
    receipt = agent.steer("s")
    result = await agent.prompt("go", timeout=1)
    assert result.outcome == "deadline"
    assert not receipt.delivered
    assert not receipt.withdraw(), "it is in the transcript"
    hold = False
    await agent.prompt("again")
    assert receipt.delivered
    assert texts(model.requests[0].messages) == ["go", "s", "again"]


# ending -------------------------------------------------------------------------------------------------------------


async def test_abort_gives_a_result_and_every_call_an_answer(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(["I will", *calls("a", "b", "c")]), tools=[work])
    watch = Watch(agent)
    async with trio.open_nursery() as nursery:

        async def abort_later() -> None:
            await trio.sleep(1.5)
            assert agent.abort("changed my mind")
            assert not agent.abort("again")
            assert agent.state.is_aborting

        nursery.start_soon(abort_later)
        result = await agent.prompt("go")
    watch.check()
    assert (result.outcome, result.abort_reason) == ("aborted", "changed my mind")
    assert watch.outcomes() == [("a", "completed"), ("b", "cancelled"), ("c", "not_started")]
    assert len([m for m in result.messages if isinstance(m, ToolResultMessage)]) == 3
    with pytest.raises(RunAbortedError, match="changed my mind"):
        result.raise_for_error()
    assert not agent.abort()
    agent.model = ScriptedModel("fine")
    assert (await agent.prompt("again")).outcome == "completed"


async def test_g18_an_abort_while_the_model_streams_keeps_the_text_and_no_calls(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(["par", *calls("a"), Wait(10), "tial"]), tools=[work])
    watch = Watch(agent)
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, MessageUpdate) and event.kind == "tool_call_end":
                agent.abort("stop")
    watch.check()
    message = agent.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.tool_calls, message.stop_reason) == ("par", (), "aborted")
    assert message.error_message == "stop"


async def test_r19_a_prompt_that_is_stopped_at_once_is_in_the_history() -> None:
    model = ScriptedModel("1")
    agent = Agent(model)
    watch = Watch(agent)
    async with agent.run("go"):
        assert agent.abort()
    watch.check()
    assert texts(agent.messages) == ["go"]
    assert model.requests == []


async def test_the_deadline_of_a_run(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a")), tools=[work])
    watch = Watch(agent)
    result = await agent.prompt("go", timeout=0.5)
    watch.check()
    assert result.outcome == "deadline"
    assert watch.outcomes() == [("a", "cancelled")]


async def test_g6_an_outer_cancellation_passes_through_with_the_run_sealed(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a", "b")), tools=[work])
    watch = Watch(agent)
    with trio.move_on_after(0.5) as scope:
        await agent.prompt("go")
        raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught
    watch.check()
    end = watch.events[-1]
    assert isinstance(end, AgentEnd)
    assert end.outcome == "cancelled"


async def test_leaving_the_block_early_aborts_and_waits(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a", "b")), tools=[work])
    watch = Watch(agent)
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, ToolExecutionStart):
                break
    watch.check()
    assert (await run.result()).outcome == "aborted"
    assert watch.outcomes() == [("a", "cancelled"), ("b", "not_started")]


async def test_g7_an_exception_of_the_body_comes_out_unchanged(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a")), tools=[work])
    watch = Watch(agent)
    mine = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with agent.run("go") as run:
            async for event in run:
                if isinstance(event, ToolExecutionStart):
                    raise mine
    assert caught.value is mine
    watch.check()
    assert (await run.result()).outcome == "aborted"


async def test_a_model_error_is_an_outcome_and_keeps_the_text() -> None:
    failure = ModelError("overloaded")
    agent = Agent(ScriptedModel(["par", Fail(failure)], "better"))
    watch = Watch(agent)
    agent.follow_up("later")
    result = await agent.prompt("go")
    watch.check()
    assert (result.outcome, result.error, result.text) == ("error", failure, "par")
    assert agent.state.last_error is failure
    assert texts(result.undelivered) == ["later"], "queues are not polled after an error"
    with pytest.raises(ModelError, match="overloaded"):
        result.raise_for_error()


async def test_model_errors_in_a_group_are_one_model_error() -> None:
    agent = Agent(ScriptedModel([Fail(ExceptionGroup("g", [ModelError("reset")]))]))
    result = await agent.prompt("go")
    assert (result.outcome, str(result.error)) == ("error", "reset")


async def test_a_bug_in_a_model_ends_the_run_and_propagates() -> None:
    agent = Agent(ScriptedModel(["par", Fail(ZeroDivisionError("bug"))]))
    watch = Watch(agent)
    with pytest.raises(ZeroDivisionError):
        await agent.prompt("go")
    watch.check()
    message = agent.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.stop_reason, message.error_message) == ("par", "error", "bug")


async def test_max_turns_is_a_limit_at_a_legal_boundary(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a"), calls("b"), "never"), tools=[work], max_turns=2)
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert (result.outcome, result.turns) == ("limit", 2)
    with pytest.raises(RunLimitError):
        result.raise_for_error()


async def test_atomic_tools_may_finish_and_are_cut_after_their_grace(autojump_clock: object) -> None:
    @tool(atomic=True)
    async def transfer(seconds: float) -> str:
        """Move money."""
        await trio.sleep(seconds)
        return "moved"

    for seconds, outcome in [(3.0, "completed"), (100.0, "cancelled")]:
        agent = Agent(ScriptedModel([ToolCall("a", "transfer", {"seconds": seconds})]), tools=[transfer])
        watch = Watch(agent)
        begun = trio.current_time()
        result = await agent.prompt("go", timeout=1)
        watch.check()
        assert watch.outcomes() == [("a", outcome)]
        assert trio.current_time() - begun == min(seconds, 1 + 5)
        assert result.outcome == "deadline"


async def test_r23_a_stale_cancelled_is_the_tools_own_error() -> None:
    stale: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            stale.append(error)

    @tool
    async def odd() -> None:
        """Raise what is not its own."""
        raise stale[0]

    agent = Agent(ScriptedModel(calls("a", name="odd"), "end"), tools=[odd])
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert result.outcome == "completed"
    assert watch.outcomes() == [("a", "failed")]


# parallel -----------------------------------------------------------------------------------------------------------


async def test_parallel_starts_in_order_ends_as_they_finish_and_answers_in_order(autojump_clock: object) -> None:
    model = ScriptedModel([ToolCall(id, "work", {"seconds": s}) for id, s in [("a", 3), ("b", 1), ("c", 2)]], "end")
    agent = Agent(model, tools=[work], tool_execution="parallel")
    watch = Watch(agent)
    begun = trio.current_time()
    await agent.prompt("go")
    watch.check()
    assert trio.current_time() - begun == 3
    assert [e.tool_call_id for e in watch.events if isinstance(e, ToolExecutionStart)] == ["a", "b", "c"]
    assert [id for id, _ in watch.outcomes()] == ["b", "c", "a"]


async def test_r5_a_finished_parallel_result_survives_an_abort(autojump_clock: object) -> None:
    model = ScriptedModel([ToolCall(id, "work", {"seconds": s}) for id, s in [("a", 1), ("b", 1000)]])
    agent = Agent(model, tools=[work], tool_execution="parallel")
    watch = Watch(agent)
    result = await agent.prompt("go", timeout=5)
    watch.check()
    assert watch.outcomes() == [("a", "completed"), ("b", "cancelled")]
    assert result.messages[2].text == "worked"


async def test_a_sequential_tool_makes_its_batch_sequential(autojump_clock: object) -> None:
    @tool(sequential=True)
    async def alone() -> None:
        """Alone."""

    model = ScriptedModel([*calls("a"), *calls("b", name="alone"), *calls("c")], "end")
    agent = Agent(model, tools=[work, alone], tool_execution="parallel")
    watch = Watch(agent)
    await agent.prompt("go")
    watch.check()
    assert watch.types().index("tool_execution_end") < len(watch.types()) - watch.types()[::-1].index(
        "tool_execution_start"
    )
    assert [id for id, _ in watch.outcomes()] == ["a", "b", "c"]


# one run at a time, resume, reset, idle ------------------------------------------------------------------------------


async def test_two_runs_at_once_are_refused_and_nothing_changes(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a"), "end"), tools=[work])
    async with agent.run("go") as run:
        for attempt in (agent.prompt("second"), agent.resume()):
            with pytest.raises(AgentBusyError, match="wait_idle"):
                await attempt
        with pytest.raises(AgentBusyError):
            async with agent.run("third"):
                pass
        with pytest.raises(AgentBusyError, match="reset"):
            agent.reset()
        await run.result()
    assert texts(agent.messages) == ["go", "", "worked", "end"]


async def test_a_new_run_may_start_as_soon_as_the_last_event_is_said() -> None:
    agent = Agent(ScriptedModel("1", "2"))
    idle: list[bool] = []
    agent.subscribe(lambda event: idle.append(agent.state.is_running) if isinstance(event, AgentEnd) else None)
    async with agent.run("go") as run:
        await run.result()
        await agent.wait_idle()
        assert (await agent.prompt("again")).text == "2"
    assert idle == [False, False]


async def test_wait_idle_waits_for_the_end_of_the_run(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a"), "end"), tools=[work])
    await agent.wait_idle()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await wait_all_tasks_blocked()
        assert agent.state.is_running
        assert agent.state.pending_tool_calls == ("a",)
        await agent.wait_idle()
        assert not agent.state.is_running
        assert trio.current_time() == 1


async def test_resume_goes_on_from_the_transcript() -> None:
    agent = Agent(ScriptedModel("answer"), messages=[UserMessage("asked")])
    assert (await agent.resume()).text == "answer"
    with pytest.raises(NothingToResumeError, match=r"answered and nothing is queued; use agent\.prompt"):
        await agent.resume()
    with pytest.raises(NothingToResumeError, match="empty"):
        await Agent(ScriptedModel()).resume()
    with pytest.raises(NothingToResumeError):
        async with agent.run():
            pass
    agent.model = ScriptedModel("more")
    agent.follow_up("and?")
    assert (await agent.resume()).text == "more"


async def test_r4_a_history_that_ends_in_an_open_call_is_completed_and_goes_on() -> None:
    history = [UserMessage("go"), AssistantMessage(calls("a", "b"), "tool_use"), ToolResultMessage("a", "work", "A")]
    model = ScriptedModel("recovered")
    agent = Agent(model, messages=history)
    watch = Watch(agent)
    result = await agent.resume()
    watch.check()
    assert result.text == "recovered"
    assert "effects are unknown" in model.requests[0].messages[-1].text
    assert texts(agent.messages).count("go") == 1


async def test_reset_forgets_and_returns_what_was_queued() -> None:
    agent = Agent(ScriptedModel("1", "2"))
    await agent.prompt("go")
    receipt = agent.steer("s")
    agent.follow_up("f")
    assert texts(agent.reset()) == ["s", "f"]
    assert agent.messages == ()
    assert not receipt.withdraw()
    assert (await agent.prompt("fresh")).turns == 1


# observers ----------------------------------------------------------------------------------------------------------


async def test_g14_an_observer_that_raises_is_removed_and_warned_of_after_the_run() -> None:
    agent = Agent(ScriptedModel("1", "2"))
    seen: list[str] = []

    def broken(event: AgentEvent) -> None:
        seen.append(event.type)
        if event.type == "message_end":
            raise LookupError("my bug")

    agent.subscribe(broken)
    watch = Watch(agent)
    with pytest.warns(ObserverWarning, match="LookupError: my bug") as caught:
        result = await agent.prompt("go")
    assert len(caught) == 1
    assert isinstance(caught[0].message, Warning)
    assert isinstance(caught[0].message.__cause__, LookupError)
    watch.check()
    assert result.outcome == "completed"
    assert seen[-1] == "message_end"
    assert (await agent.prompt("again")).outcome == "completed"


async def test_an_observer_can_be_removed_and_sees_the_end_of_a_cancelled_run(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a"), "x"), tools=[work])
    seen: list[AgentEvent] = []
    unsubscribe = agent.subscribe(seen.append)
    with trio.move_on_after(0.5):
        await agent.prompt("go")
    assert isinstance(seen[-1], AgentEnd)
    unsubscribe()
    unsubscribe()
    count = len(seen)
    await agent.prompt("again")
    assert len(seen) == count


async def test_a_keyboard_interrupt_in_an_observer_comes_out_when_the_books_are_even() -> None:
    agent = Agent(ScriptedModel("1"))

    def interrupt(event: AgentEvent) -> None:
        if isinstance(event, MessageEnd):
            raise KeyboardInterrupt

    watch = Watch(agent)
    agent.subscribe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("go")
    watch.check()


async def test_other_threads_can_steer_and_abort() -> None:
    agent = Agent(ScriptedModel(calls("a", "b"), "end"), tools=[work])
    assert not agent.abort_soon()
    assert not agent.steer_soon("nobody is there")
    async with agent.run("go") as run:
        async for event in run:
            if isinstance(event, ToolExecutionStart) and event.tool_call_id == "a":
                assert await trio.to_thread.run_sync(agent.steer_soon, "from a thread")
                assert await trio.to_thread.run_sync(agent.abort_soon, "from a thread")
        result = await run.result()
    assert result.abort_reason == "from a thread"
    assert texts(result.undelivered) == ["from a thread"]


async def test_r14_an_abort_at_the_turns_end_opens_no_further_turn_and_keeps_the_queue(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel(calls("a"), "never"), tools=[work])
    receipt = agent.steer("first")

    def at_turn_end(event: AgentEvent) -> None:
        if isinstance(event, TurnEnd):
            agent.steer("second")
            assert agent.abort("now")

    unsubscribe = agent.subscribe(at_turn_end)
    watch = Watch(agent)
    result = await agent.prompt("go")
    watch.check()
    assert (result.outcome, result.turns, texts(result.undelivered)) == ("aborted", 1, ["second"])
    assert receipt.delivered
    unsubscribe()
    agent.model = ScriptedModel("fine", "fine")
    await agent.prompt("next")
    assert texts(agent.messages)[-3:] == ["next", "second", "fine"]


async def test_g5_g17_an_abort_after_the_deadline_does_not_take_over_the_outcome(mock_clock: Any) -> None:
    agent = Agent(ScriptedModel(calls("a")), tools=[work])
    async with agent.run("go", timeout=0.5) as run:
        await wait_all_tasks_blocked()
        mock_clock.jump(0.6)
        assert not agent.abort("too late")
        result = await run.result()
    assert (result.outcome, result.abort_reason) == ("deadline", None)


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_g20_an_interrupt_in_a_tool_comes_out_bare_with_the_run_sealed(
    execution: Any, autojump_clock: object
) -> None:
    @tool
    async def busy() -> None:
        """Ctrl-C falls here."""
        raise KeyboardInterrupt

    agent = Agent(ScriptedModel([*calls("a"), *calls("b", name="busy")]), tools=[work, busy], tool_execution=execution)
    watch = Watch(agent)
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("go")
    watch.check()
    outcomes = dict(watch.outcomes())
    assert outcomes["b"] == "cancelled"
    with pytest.raises(KeyboardInterrupt):
        async with agent.run("again") as run:
            agent.model = ScriptedModel(calls("c", name="busy"))
            await run.result()
