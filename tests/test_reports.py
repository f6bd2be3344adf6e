"""Public bug reports about this kind of software, each as what must hold here: R1 to R28 of the field notes.

A report stands for a class of faults, so most run in several variants: one call after another or all at once, ended
by an abort or by a cancellation from outside. Every model here refuses a request whose calls and results do not pair
up, as the strictest providers do.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentLoopConfig,
    AgentStart,
    AssistantMessage,
    CustomMessage,
    Message,
    MessageEnd,
    MessageUpdate,
    MessageWriter,
    ModelError,
    ModelRequest,
    ObserverWarning,
    ToolCall,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    UnendableWarning,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    open_event_stream,
    tool,
)
from trio_agent.testing import Fail, ScriptedModel, Stop, Wait, check_events, check_transcript

in_both_orders = pytest.mark.parametrize("execution", ["sequential", "parallel"])
ended_both_ways = pytest.mark.parametrize("how", ["abort", "cancel"])


class Strict(ScriptedModel):
    """A provider that refuses an unanswered call for good: here the test fails at once."""

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        assert check_transcript(request.messages) == []
        await super().stream(request, out)


class Watch:
    """An agent's events; `check` says that the books are in order, and that the agent goes on from them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.events: list[AgentEvent] = []
        self.unsubscribe = agent.subscribe(self.events.append)

    def check(self) -> AgentEnd:
        assert check_events(self.events) == []
        assert check_transcript(self.agent.messages) == []
        assert not self.agent.state.is_running
        (end,) = self.of(AgentEnd)
        assert self.events[-1] is end
        return end

    async def check_and_go_on(self) -> AgentEnd:
        end = self.check()
        self.unsubscribe()
        self.agent.model = Strict(*["fine"] * 4)
        assert (await self.agent.prompt("again")).outcome == "completed"
        return end

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def outcomes(self) -> dict[str, str]:
        return {event.tool_call_id: event.outcome for event in self.of(ToolExecutionEnd)}


@tool
async def work(seconds: float = 1.0) -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return "worked"


def calls(*ids: str, name: str = "work", **arguments: Any) -> list[ToolCall]:
    return [ToolCall(id, name, arguments) for id in ids]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def results(messages: Sequence[Message]) -> dict[str, ToolResultMessage]:
    found = [message for message in messages if isinstance(message, ToolResultMessage)]
    assert len({message.tool_call_id for message in found}) == len(found), "a call was answered twice"
    return {message.tool_call_id: message for message in found}


def on(agent: Agent, kind: type[Any], act: Callable[[], object]) -> Callable[[], None]:
    """Act at the first event of a kind, in the step in which it is said."""

    def observer(event: AgentEvent) -> None:
        if isinstance(event, kind):
            unsubscribe()
            act()

    unsubscribe = agent.subscribe(observer)
    return unsubscribe


async def end_after(agent: Agent, seconds: float, how: str) -> None:
    """Prompt, and end the run after so many seconds: by an abort from another task, or by a scope around it."""
    if how == "cancel":
        with trio.move_on_after(seconds) as scope:
            await agent.prompt("go")
            pytest.fail("the cancellation was swallowed")
        assert scope.cancelled_caught
        return
    async with trio.open_nursery() as nursery:

        async def abort() -> None:
            await trio.sleep(seconds)
            assert agent.abort("enough")

        nursery.start_soon(abort)
        assert (await agent.prompt("go")).outcome == "aborted"


@contextmanager
def ending(agent: Agent, how: str) -> Iterator[Callable[[], object]]:
    """A function that ends the run from wherever it is called; the cancellation, if it is one, ends here."""
    with trio.CancelScope() as scope:
        yield agent.abort if how == "abort" else scope.cancel
    assert scope.cancelled_caught == (how == "cancel")


@pytest.fixture
async def stale() -> trio.Cancelled:
    """A Cancelled that no cancelled scope explains any more."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise AssertionError


@ended_both_ways
@in_both_orders
async def test_r1_an_ended_batch_leaves_no_call_without_result(
    execution: Any, how: str, autojump_clock: object
) -> None:
    begun: list[float] = []

    @tool
    async def step(seconds: float) -> str:
        """Note that it began."""
        begun.append(seconds)
        await trio.sleep(seconds)
        return "done"

    model = Strict([ToolCall(id, "step", {"seconds": s}) for id, s in [("a", 1), ("b", 2), ("c", 3)]], "never")
    agent = Agent(model, tools=[step], tool_execution=execution)
    watch = Watch(agent)
    await end_after(agent, 1.5, how)
    assert trio.current_time() == 1.5
    rest = ("cancelled", "not_started") if execution == "sequential" else ("cancelled", "cancelled")
    assert watch.outcomes() == {"a": "completed", "b": rest[0], "c": rest[1]}
    assert len(begun) == (2 if execution == "sequential" else 3)
    assert [(r.text, r.is_error) for r in results(agent.messages).values()][0] == ("done", False)
    assert [r.is_error for r in results(agent.messages).values()] == [False, True, True]
    assert len(model.requests) == 1
    await watch.check_and_go_on()
    await trio.sleep(10)
    assert len(begun) == (2 if execution == "sequential" else 3), "a tool began after the end"


@ended_both_ways
@in_both_orders
async def test_r2_nothing_is_asked_after_an_abort_from_a_confirmation(
    execution: Any, how: str, autojump_clock: object
) -> None:
    asked: list[str] = []

    async def confirm(call: ToolCall, arguments: object) -> None:
        asked.append(call.id)
        end()

    def after(call: ToolCall, result: object) -> None:
        asked.append("after")

    model = Strict(calls("a", "b"), "never")
    agent = Agent(model, tools=[work], tool_execution=execution, before_tool_call=confirm, after_tool_call=after)
    watch = Watch(agent)
    with ending(agent, how) as end:
        await agent.prompt("go")
    assert asked == ["a"]
    assert len(model.requests) == 1
    assert watch.outcomes() == {"a": "not_started", "b": "not_started"}
    assert watch.check().outcome == ("aborted" if how == "abort" else "cancelled")


@ended_both_ways
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5, 4.5])
async def test_r3_the_next_request_is_pair_valid_wherever_the_run_was_ended(
    seconds: float, how: str, autojump_clock: object
) -> None:
    """0.5: in a text, 1.5: in a call's arguments, 2.5 and 3.5: in the tools, 4.5: in the answer."""

    class Slow(Strict):
        async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
            assert check_transcript(request.messages) == []
            await out.text("I will")
            await trio.sleep(1)
            if len(request.messages) == 1:
                await out.tool_call("a", "work", {})
                await out.tool_call_start("b", "work")
                await out.tool_call_delta('{"seconds"')
                await trio.sleep(1)
                await out.tool_call_delta(":1}")

    agent = Agent(Slow(), tools=[work])
    watch = Watch(agent)
    await end_after(agent, seconds, how)
    assert agent.messages[-1].role == ("assistant" if seconds < 2 or seconds > 4 else "tool"), seconds
    assert len(results(agent.messages)) == (0 if seconds < 2 else 2)
    await watch.check_and_go_on()


@in_both_orders
async def test_r3_ctrl_c_in_a_tool_leaves_a_session_that_goes_on(execution: Any, autojump_clock: object) -> None:
    @tool
    async def busy() -> None:
        """Ctrl-C falls here."""
        await trio.sleep(0.5)
        raise KeyboardInterrupt

    model = Strict([*calls("a"), *calls("b", name="busy"), *calls("c")])
    agent = Agent(model, tools=[work, busy], tool_execution=execution)
    watch = Watch(agent)
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("go")
    assert list(results(agent.messages)) == ["a", "b", "c"]
    await watch.check_and_go_on()


@pytest.mark.parametrize("way", ["resume", "prompt", "functional"])
async def test_r4_a_killed_turn_is_finished_and_goes_on(way: str) -> None:
    history = [UserMessage("go"), AssistantMessage(calls("a", "b"), "tool_use"), ToolResultMessage("a", "work", "A")]
    model = Strict("recovered")
    agent = Agent(model, messages=history)
    if way == "functional":
        async with agent_loop_continue(AgentContext("", history), AgentLoopConfig(model)) as stream:
            result = await stream.result()
        assert len(history) == 3, "the caller's list was changed"
    else:
        result = await (agent.resume() if way == "resume" else agent.prompt("go on"))
    assert (result.outcome, result.text) == ("completed", "recovered")
    sent = model.requests[0].messages
    assert texts(sent).count("go") == 1
    answers = results(sent)
    assert (answers["a"].text, answers["a"].is_error, answers["b"].is_error) == ("A", False, True)
    assert "unknown" in answers["b"].text


@pytest.mark.parametrize("how", ["abort", "cancel", "leave"])
async def test_r5_a_finished_parallel_result_is_kept_whatever_its_sibling_does(
    how: str, autojump_clock: object
) -> None:
    model = Strict([ToolCall("b", "work", {"seconds": 1e6}), ToolCall("a", "work", {"seconds": 1})])
    agent = Agent(model, tools=[work], tool_execution="parallel")
    watch = Watch(agent)
    at: list[float] = []
    on(agent, ToolExecutionEnd, lambda: at.append(trio.current_time()))
    if how == "leave":
        async with agent.run("go"):
            await trio.sleep(5)
    else:
        await end_after(agent, 5, how)
    assert at == [1], "said when it finished, not when the batch did"
    assert watch.outcomes() == {"a": "completed", "b": "cancelled"}
    assert results(agent.messages)["a"].text == "worked"
    await watch.check_and_go_on()


@ended_both_ways
@pytest.mark.parametrize("atomic", [False, True])
async def test_r6_a_tool_that_ignores_its_end_for_a_while_is_waited_for(
    atomic: bool, how: str, autojump_clock: object
) -> None:
    """It returned in the end, so its result is kept as a real one; nothing else begins."""
    rounds = 0

    @tool(atomic=atomic)
    async def stubborn() -> str:
        """Ignore some cancellations."""
        nonlocal rounds
        while rounds < 20:
            try:
                await trio.sleep(0.1)
            except trio.Cancelled:
                pass
            rounds += 1
        return "at last"

    model = Strict([*calls("a", name="stubborn"), *calls("b")], "never")
    agent = Agent(model, tools=[stubborn, work], abort_grace=1)
    watch = Watch(agent)
    await end_after(agent, 0.5, how)
    assert rounds == 20
    assert trio.current_time() <= 0.5 + 1
    assert watch.outcomes() == {"a": "completed", "b": "not_started"}
    assert len(model.requests) == 1
    await watch.check_and_go_on()


@ended_both_ways
@in_both_orders
async def test_r6_an_atomic_tool_is_cut_when_its_grace_is_over(
    execution: Any, how: str, autojump_clock: object
) -> None:
    @tool(atomic=True)
    async def transfer() -> None:
        """Never settle."""
        await trio.sleep_forever()

    agent = Agent(Strict(calls("a", "b", name="transfer")), tools=[transfer], abort_grace=3, tool_execution=execution)
    watch = Watch(agent)
    await end_after(agent, 1, how)
    assert trio.current_time() == 1 + 3
    assert watch.outcomes() == {"a": "cancelled", "b": "not_started" if execution == "sequential" else "cancelled"}
    assert "grace" in results(agent.messages)["a"].text
    assert "unknown" in results(agent.messages)["a"].text
    await watch.check_and_go_on()


async def test_r6_a_tool_that_cannot_be_ended_is_named_and_not_called_over(autojump_clock: object) -> None:
    """No code in the process can end a task that shields itself: then we say so, and do not pretend."""

    @tool
    async def fortress() -> str:
        """Shield itself for long."""
        with trio.CancelScope(shield=True):
            await trio.sleep(100)
        return "done"

    agent = Agent(Strict(calls("a", name="fortress")), tools=[fortress], abort_grace=2)
    watch = Watch(agent)
    running: list[bool] = []
    on(agent, ToolExecutionUpdate, lambda: running.append(agent.state.is_running))
    with pytest.warns(UnendableWarning, match="'fortress'.*cannot be ended in process"):
        await end_after(agent, 1, "abort")
    (update,) = watch.of(ToolExecutionUpdate)
    assert "fortress" in update.partial_result.text
    assert running == [True]
    assert watch.outcomes() == {"a": "completed"}
    await watch.check_and_go_on()


@ended_both_ways
async def test_r6_a_provider_that_never_answers_is_left_at_once(how: str, autojump_clock: object) -> None:
    agent = Agent(Strict([trio.sleep_forever]))
    watch = Watch(agent)
    await end_after(agent, 2, how)
    assert trio.current_time() == 2
    await watch.check_and_go_on()


HOOKS = ["transform_context", "convert_to_llm", "before_tool_call", "after_tool_call"]


@pytest.mark.parametrize("hook", HOOKS)
async def test_r7_a_failing_hook_ends_every_reader_and_leaks_nothing(hook: str, autojump_clock: object) -> None:
    def broken(*args: object) -> Any:
        raise LookupError("bug")

    agent = Agent(Strict(calls("a"), "never"), tools=[work], **{hook: broken})
    watch = Watch(agent)
    living = trio.lowlevel.current_statistics().tasks_living
    with pytest.raises(LookupError, match="bug") as caught:
        async with agent.run("go") as run:
            second = run.subscribe()
            events = [event async for event in run]
            assert isinstance(events[-1], AgentEnd)
            assert isinstance([event async for event in second][-1], AgentEnd)
            result = await run.result()
    assert result.outcome == watch.check().outcome == "error"
    assert result.error is caught.value
    assert check_events(events) == []
    assert trio.lowlevel.current_statistics().tasks_living == living
    assert (await Agent(Strict("fine"), messages=agent.messages).prompt("again")).text == "fine"


@pytest.mark.parametrize("source", ["get_steering_messages", "get_follow_up_messages"])
async def test_r7_a_failing_message_source_ends_the_functional_layer_as_well(source: str) -> None:
    async def broken() -> Any:
        raise LookupError("bug")

    config = AgentLoopConfig(Strict("1"), **{source: broken})
    with pytest.raises(LookupError, match="bug"):
        async with agent_loop("go", AgentContext(), config) as stream:
            events = [event async for event in stream]
            assert (await stream.result()).outcome == "error"
    assert check_events(events) == []


ORPHAN = ToolResultMessage("lost", "work", "whose?")
BROKEN_HISTORIES = {
    "orphan": [UserMessage("go"), ORPHAN, AssistantMessage("ok")],
    "orphan_first": [ORPHAN, UserMessage("go"), AssistantMessage("ok")],
    "empty_id": [UserMessage("go"), AssistantMessage(calls(""), "tool_use"), ToolResultMessage("", "work", "x")],
    "empty_name": [UserMessage("go"), AssistantMessage(calls("a", name=""), "tool_use")],
    "unanswered": [UserMessage("go"), AssistantMessage(calls("a"), "tool_use"), UserMessage("hm?")],
    "twice": [UserMessage("go"), AssistantMessage(calls("a"), "tool_use"), *[ToolResultMessage("a", "work", "x")] * 2],
    "cut": [UserMessage("go"), AssistantMessage(calls("a"), "aborted"), UserMessage("hm?")],
}


@pytest.mark.parametrize("history", BROKEN_HISTORIES.values(), ids=BROKEN_HISTORIES)
async def test_r8_a_broken_history_does_not_wedge_the_session(history: list[Message]) -> None:
    model = Strict("1", "2")
    agent = Agent(model, messages=history)
    for number in ("1", "2"):
        assert (await agent.prompt("on")).text == number
    assert texts(model.requests[1].messages)[-3:] == ["on", "1", "on"]
    assert agent.messages[: len(history)] == tuple(history), "the user's history was rewritten"


@pytest.mark.parametrize("call", [ToolCall("", "work"), ToolCall("a", "")])
async def test_r8_a_nameless_call_from_the_provider_never_enters_the_history(call: ToolCall) -> None:
    agent = Agent(Strict([*calls("ok"), call]), tools=[work])
    watch = Watch(agent)
    assert (await agent.prompt("go")).outcome == "error"
    assert watch.outcomes() == {}
    await watch.check_and_go_on()


async def test_r9_late_progress_is_no_event_and_no_error(autojump_clock: object) -> None:
    said: list[object] = []

    async def report_late(context: ToolContext) -> None:
        for seconds in (0.05, 10, 100):  # after the return, in the next tool, after the run
            await trio.sleep(seconds)
            said.append((agent.state.is_running, context.update("late")))

    @tool
    async def leaky(context: ToolContext) -> str:
        """Leave its progress callback with somebody else."""
        nursery.start_soon(report_late, context)
        assert context.update("in time")
        return "returned"

    agent = Agent(Strict(calls("a", name="leaky"), calls("b", seconds=50), "end"), tools=[leaky, work])
    watch = Watch(agent)
    async with trio.open_nursery() as nursery:
        assert (await agent.prompt("go")).outcome == "completed"
    assert said == [(True, False), (True, False), (False, False)]
    assert [event.partial_result.text for event in watch.of(ToolExecutionUpdate)] == ["in time"]
    await watch.check_and_go_on()


async def test_r9_late_progress_from_a_thread_of_the_tool_is_no_error() -> None:
    """A sync tool whose library goes on in a thread of its own, and calls back after the run."""
    over, said, threads = threading.Event(), list[object](), list[threading.Thread]()

    @tool
    def download(context: ToolContext) -> str:
        """Leave a thread behind."""

        def late() -> None:
            over.wait(10)
            try:
                said.append(context.update("late"))
            except BaseException as error:  # noqa: BLE001 - what the test is about
                said.append(error)

        threads.append(threading.Thread(target=late))
        threads[0].start()
        return "returned"

    agent = Agent(Strict(calls("a", name="download"), "end"), tools=[download])
    watch = Watch(agent)
    try:
        await agent.prompt("go")
    finally:
        over.set()
        await trio.to_thread.run_sync(threads[0].join)
    watch.check()
    assert said == [False]
    assert watch.of(ToolExecutionUpdate) == []


@in_both_orders
async def test_r10_an_observer_that_raises_costs_no_result(execution: Any, autojump_clock: object) -> None:
    """Our policy: the observer is removed and warned of when the run has ended; the run and the others go on."""
    seen: list[str] = []

    def broken(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd):
            seen.append(event.tool_call_id)
            raise LookupError("bug")

    agent = Agent(Strict(calls("a", "b"), "end"), tools=[work], tool_execution=execution)
    agent.subscribe(broken)
    watch = Watch(agent)
    with pytest.warns(ObserverWarning, match="bug"):
        result = await agent.prompt("go")
    assert seen == ["a"], "it was called again"
    assert (result.outcome, result.text) == ("completed", "end")
    assert [r.text for r in results(agent.messages).values()] == ["worked", "worked"]
    await watch.check_and_go_on()


async def test_r10_a_reader_that_raises_costs_no_result(autojump_clock: object) -> None:
    agent = Agent(Strict(calls("a", "b")), tools=[work])
    watch = Watch(agent)
    with pytest.raises(LookupError, match="bug"):
        async with agent.run("go") as run:
            async for event in run:
                if isinstance(event, ToolExecutionEnd):
                    raise LookupError("bug")
    assert results(agent.messages)["a"].text == "worked"
    assert watch.outcomes()["a"] == "completed"
    await watch.check_and_go_on()


@pytest.mark.parametrize("fragment", ["", "{}", '{"text":"hal"}', '{"text":"hal', "nul"])
@pytest.mark.parametrize("reason", ["length", None])
@in_both_orders
async def test_r11_a_call_that_was_cut_off_is_not_run(fragment: str, reason: Any, execution: Any) -> None:
    """At the length limit no call runs, however whole it looks; without it what is no JSON object does not."""
    if reason is None and fragment in ("", "{}", '{"text":"hal"}'):
        pytest.skip("whole, and said to be whole")
    wrote: list[str] = []

    @tool
    async def write(text: str = "empty") -> None:
        """Write a file."""
        wrote.append(text)

    class Cut(Strict):
        async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
            if self.requests:
                return await super().stream(request, out)
            self.requests.append(request)
            await out.tool_call("a", "write", {"text": "x"}) if reason else None
            await out.tool_call_start("b", "write")
            await out.tool_call_delta(fragment)
            if reason:
                out.finish(reason)

    agent = Agent(Cut("-", calls("c", name="write", text="whole"), "end"), tools=[write], tool_execution=execution)
    watch = Watch(agent)
    assert (await agent.prompt("go")).outcome == "completed"
    assert wrote == ["whole"]
    assert watch.outcomes() == {**({"a": "rejected"} if reason else {}), "b": "rejected", "c": "completed"}
    watch.check()


async def drained(count: int) -> tuple[int, set[str]]:
    """Buffer so many events, drain them, and count the calls that takes: their number and the names of C functions."""
    sink, stream = open_event_stream(count)  # type: ignore[var-annotated]
    for number in range(count):
        sink.push(number)
    sink.end(None)
    made, names, seen = 0, set[str](), 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal made
        if event in ("call", "c_call"):
            made += 1
        if event == "c_call":
            names.add(argument.__name__)

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        async for _ in stream:
            seen += 1
    finally:
        sys.setprofile(previous)
    assert seen == count
    return made, names


async def test_r12_draining_a_backlog_is_linear() -> None:
    """In calls, for a clock would make it a matter of luck; and with none of the calls that move a whole list."""
    (few, _), (many, names) = [await drained(count) for count in (1_000, 100_000)]
    assert many <= 100 * few * 1.1
    assert not names & {"pop", "remove", "insert", "copy", "index", "count", "extend"}


async def test_r12_other_tasks_get_their_turns_while_a_backlog_is_drained() -> None:
    sink, stream = open_event_stream(100_000)  # type: ignore[var-annotated]
    for number in range(100_000):
        sink.push(number)
    sink.end(None)
    turns = 0
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(other)
            async for _ in stream:
                pass
            scope.cancel()
    assert turns >= 100_000 // 64


DELTAS = 50_000


async def test_r13_a_reader_that_stops_makes_the_run_wait_and_misses_nothing() -> None:
    agent = Agent(Strict(["x"] * DELTAS), max_buffered_events=100)
    async with agent.run("go") as run:
        await wait_all_tasks_blocked()
        message = agent.state.streaming_message
        assert message is not None
        assert len(message.text) <= 101
        events = [event async for event in run]
    assert check_events(events) == []
    assert sum(isinstance(event, MessageUpdate) and bool(event.delta) for event in events) == DELTAS


async def test_r13_a_coalescing_reader_that_stops_holds_little_and_loses_no_structure(autojump_clock: object) -> None:
    """Its backlog is what it gets in the end: counted there, it was never longer."""
    deltas = ["x", "y"] * (DELTAS // 2)
    agent = Agent(Strict([*deltas, *calls("a", "b")], deltas), tools=[work], max_buffered_events=100)
    async with agent.run("go") as run:
        stopped = run.subscribe(max_buffered=20, overflow="coalesce")
        every = [event async for event in run]
        backlog = [event async for event in stopped]
    assert len(backlog) <= 2 * 20 + 1
    structure = [event for event in every if not isinstance(event, MessageUpdate)]
    kept = [event for event in backlog if not isinstance(event, MessageUpdate)]
    assert kept == structure[4:], "from its subscription on: after the four events of the start"
    text = "".join([e.delta for e in backlog if isinstance(e, MessageUpdate) and e.kind == "text_delta"])
    assert text == "".join(deltas) * 2


@in_both_orders
async def test_r14_a_steer_that_an_abort_overtakes_is_still_queued(execution: Any, autojump_clock: object) -> None:
    agent = Agent(Strict(calls("a", "b"), "never"), tools=[work], tool_execution=execution)
    watch = Watch(agent)
    receipts = []
    on(agent, ToolExecutionStart, lambda: receipts.append(agent.steer("s1")))
    on(agent, TurnEnd, agent.abort)
    result = await agent.prompt("go")
    assert watch.check().outcome == result.outcome == "aborted"
    assert texts(result.undelivered) == texts(agent.state.queued_steering) == ["s1"]
    assert "s1" not in texts(agent.messages), "a ghost"
    receipts.append(agent.steer("s2"))
    agent.model = model = Strict("1", "2", "3")
    await agent.prompt("next")
    assert "s1" in texts(model.requests[0].messages)
    assert [text for text in texts(agent.messages) if text in ("s1", "s2")] == ["s1", "s2"]
    assert all(receipt.delivered for receipt in receipts)


async def test_r15_clearing_the_queue_destroys_nobodys_messages() -> None:
    """Ours is `Receipt.withdraw`, which takes back one's own, and `reset`, which gives back all."""

    class Note(CustomMessage):
        role = "note"

    agent = Agent(Strict("1", "2", "3"))
    note, other = Note("the extension's"), Note("its follow-up")
    receipts = [agent.steer("mine"), agent.steer(note), agent.steer("mine"), agent.follow_up(other)]
    for receipt in (receipts[0], receipts[2]):
        assert receipt.withdraw()
        assert not receipt.withdraw()
    assert agent.state.queued_steering == (note,)
    await agent.prompt("go")
    assert [m for m in agent.messages if isinstance(m, Note)] == [note, other]
    assert "mine" not in texts(agent.messages)
    late = [agent.steer("mine"), agent.steer(note), agent.follow_up(other)]
    returned = agent.reset()
    assert (texts(returned), returned[1:]) == (["mine", "the extension's", "its follow-up"], (note, other))
    assert [await receipt.wait_delivered() for receipt in late] == [False] * 3


@pytest.mark.parametrize("moment", [MessageEnd, ToolExecutionEnd, TurnEnd])
async def test_r16_a_steer_at_the_end_of_a_turn_is_not_overtaken(moment: type[Any], autojump_clock: object) -> None:
    model = Strict(calls("a"), "1", "2", "3")
    agent = Agent(model, tools=[work])
    watch = Watch(agent)

    def at_the_last_moment(event: AgentEvent) -> None:
        last = moment is ToolExecutionEnd or len(model.requests) == 2
        if isinstance(event, moment) and last and not receipts:
            receipts.append(agent.steer("m1"))
            receipts.append(agent.follow_up("m1b"))

    receipts: list[Any] = []
    agent.subscribe(at_the_last_moment)
    async with agent.run("go") as run:
        await run.result()
        await agent.prompt("m2")  # in the step in which the first run ended
    assert [text for text in texts(agent.messages) if text.startswith("m")] == ["m1", "m1b", "m2"]
    assert all(receipt.delivered for receipt in receipts)
    assert len(watch.of(AgentEnd)) == 2


async def test_r17_who_blocks_at_the_last_event_keeps_nobody_busy(autojump_clock: object) -> None:
    """Observers are sync here, so none can await; a reader can, and holds up its own task only."""

    async def read(stream: Any) -> None:
        async for event in stream:
            if isinstance(event, AgentEnd):
                blocked.set()
                await trio.sleep(1800)

    async def observer(event: AgentEvent) -> None: ...

    blocked = trio.Event()
    agent = Agent(Strict("1", "2", "3"), max_buffered_events=1)
    with pytest.raises(TypeError, match="sync callable"):
        agent.subscribe(observer)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        async with agent.run("go") as run:
            nursery.start_soon(read, run.subscribe())
            nursery.start_soon(read, run)
            await run.result()
            await agent.wait_idle()
            await blocked.wait()
            receipt = agent.steer("not swallowed")
            assert (await agent.prompt("next")).text == "2"
        assert receipt.delivered
        assert trio.current_time() == 0
        nursery.cancel_scope.cancel()


class Retrying(Strict):
    """Tries again after a second, as wrappers of models do."""

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        for _ in range(2):
            try:
                return await super().stream(request, out)
            except ModelError:
                await trio.sleep(1)
        await super().stream(request, out)


async def test_r18_idle_is_said_once_and_a_new_run_may_start_at_once(autojump_clock: object) -> None:
    """The signals are `agent_end` and `wait_idle`; no retry inside the run is one."""
    overloaded = [Fail("overloaded")]
    model = Retrying(overloaded, calls("a"), overloaded, overloaded, "end", "second")
    agent = Agent(model, tools=[work])
    watch = Watch(agent)
    async with trio.open_nursery() as nursery:

        async def next_run() -> None:
            await agent.wait_idle()
            assert trio.current_time() == 4  # three retries and a tool
            assert (await agent.prompt("next")).text == "second"

        async def run() -> None:
            assert (await agent.prompt("go")).text == "end"

        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        nursery.start_soon(next_run)
        await trio.sleep(3.5)
        assert agent.state.is_running
        assert watch.of(AgentEnd) == []
    ends = [event for event in watch.events if isinstance(event, AgentStart | AgentEnd)]
    assert [event.type for event in ends] == ["agent_start", "agent_end"] * 2


@pytest.mark.parametrize("how", ["first_event", "block", "cancelled_before", "no_time"])
async def test_r19_a_prompt_that_is_stopped_at_once_is_in_the_history(how: str) -> None:
    model = Strict("never")
    agent = Agent(model)
    watch = Watch(agent)
    with trio.CancelScope() as scope:
        if how == "block":
            async with agent.run(["go", "and go"]):
                assert agent.abort()
        else:
            if how == "first_event":
                on(agent, AgentStart, agent.abort)
            elif how == "cancelled_before":
                scope.cancel()
            await agent.prompt(["go", "and go"], timeout=0 if how == "no_time" else None)
    assert texts(agent.messages) == ["go", "and go"]
    assert model.requests == []
    await watch.check_and_go_on()


@pytest.mark.parametrize("second", ["abort", "cancel", "leave", "raise"])
async def test_r20_there_is_one_end_whatever_ends_the_run_as_well(second: str, autojump_clock: object) -> None:
    agent = Agent(Strict(calls("a"), ["x", Wait(9)]), tools=[work])
    watch = Watch(agent)
    read: list[AgentEvent] = []
    result = None
    with ExitStack() as stack:
        scope = stack.enter_context(trio.CancelScope())
        if second == "raise":
            stack.enter_context(pytest.raises(LookupError))
        async with agent.run("go") as run:
            other = run.subscribe()
            await trio.sleep(1.5)
            assert agent.abort("first")
            assert not agent.abort("second")
            if second == "cancel":
                scope.cancel()
            elif second == "raise":
                raise LookupError
            elif second == "abort":
                read = [event async for event in run]
    result = await run.result()
    assert watch.check().outcome == result.outcome == "aborted"
    assert result.abort_reason == "first"
    assert [event.type for event in [event async for event in other]].count("agent_end") == 1
    assert [event.type for event in read].count("agent_end") == (second == "abort")


@pytest.mark.parametrize("moment", [AgentStart, MessageUpdate, ToolExecutionEnd, TurnEnd, AgentEnd])
async def test_r21_a_cancelled_of_an_observers_own_cancels_nothing(
    moment: type[Any], stale: trio.Cancelled, autojump_clock: object
) -> None:
    def broken(event: AgentEvent) -> None:
        if isinstance(event, moment):
            raise stale

    agent = Agent(Strict(["x", *calls("a")], "end"), tools=[work])
    agent.subscribe(broken)
    watch = Watch(agent)
    with trio.fail_after(5), trio.CancelScope() as scope, pytest.warns(ObserverWarning, match="Cancelled"):
        async with agent.run("go") as run:
            events = [event async for event in run]
            result = await run.result()
    assert not scope.cancelled_caught
    assert (result.outcome, result.text) == ("completed", "end")
    assert watch.events == events
    await watch.check_and_go_on()


@pytest.mark.parametrize("around", ["prompt", "block", "reader", "functional"])
@in_both_orders
async def test_r22_a_timeout_around_the_consumer_reaches_the_tools(
    around: str, execution: Any, autojump_clock: object
) -> None:
    told: list[float] = []

    @tool
    async def sleepy() -> None:
        """Note when it is cancelled."""
        try:
            await trio.sleep(120)
        except trio.Cancelled:
            told.append(trio.current_time())
            raise

    model = Strict(calls("a", "b", name="sleepy"))
    agent = Agent(model, tools=[sleepy], tool_execution=execution)
    config = AgentLoopConfig(model, tool_execution=execution)
    if around == "reader":
        async with agent.run("go") as run:
            with trio.move_on_after(1) as scope:
                async for _ in run:
                    pass
    else:
        with trio.move_on_after(1) as scope:
            if around == "prompt":
                await agent.prompt("go")
            elif around == "block":
                async with agent.run("go") as run:
                    await run.result()
            else:
                async with agent_loop("go", AgentContext("", (), (sleepy,)), config) as stream:
                    async for _ in stream:
                        pass
    assert scope.cancelled_caught
    assert trio.current_time() == 1
    assert told == [1] * (1 if execution == "sequential" else 2)
    assert not agent.state.is_running


@in_both_orders
async def test_r23_a_cancelled_of_the_tools_own_is_one_error_result_and_hides_no_real_one(
    execution: Any, stale: trio.Cancelled, autojump_clock: object
) -> None:
    @tool
    async def odd() -> None:
        """Raise what it kept."""
        raise stale

    def agent() -> Agent:
        model = Strict([*calls("a", name="odd"), *calls("b")], "end")
        return Agent(model, tools=[odd, work], tool_execution=execution)

    unhurt = agent()
    watch = Watch(unhurt)
    assert (await unhurt.prompt("go")).text == "end"
    assert watch.outcomes() == {"a": "failed", "b": "completed"}
    assert [r.is_error for r in results(unhurt.messages).values()] == [True, False]
    watch.check()
    cancelled = agent()
    watch = Watch(cancelled)
    await end_after(cancelled, 0.5, "cancel")
    assert watch.outcomes() == {"a": "failed", "b": "cancelled"}
    assert (await watch.check_and_go_on()).outcome == "cancelled"


@pytest.mark.parametrize("how", ["raises_cancelled", "aborts", "raises"])
async def test_r24_no_sibling_outlives_the_batch(how: str, stale: trio.Cancelled, autojump_clock: object) -> None:
    effects: list[str] = []

    @tool
    async def first() -> None:
        """End itself, or the run."""
        await trio.sleep(0.5)
        if how == "aborts":
            agent.abort()
            await trio.sleep(1)
        raise stale if how == "raises_cancelled" else LookupError("bug")

    @tool
    async def second() -> str:
        """Have an effect in the end."""
        await trio.sleep(2)
        effects.append("late")
        return "done"

    agent = Agent(
        Strict([*calls("a", name="first"), *calls("b", name="second")], "end"),
        tools=[first, second],
        tool_execution="parallel",
        on_tool_error="raise" if how == "raises" else "result",
    )
    watch = Watch(agent)
    at_turn_end: list[list[str]] = []
    on(agent, TurnEnd, lambda: at_turn_end.append([*effects]))
    with pytest.raises(LookupError) if how == "raises" else ExitStack():
        await agent.prompt("go")
    await trio.sleep(100)
    assert at_turn_end == [effects]
    assert effects == (["late"] if how == "raises_cancelled" else [])
    wanted = "completed" if how == "raises_cancelled" else "cancelled"
    assert watch.outcomes() == {"a": "cancelled" if how == "aborts" else "failed", "b": wanted}
    await watch.check_and_go_on()


@pytest.mark.parametrize("error", [LookupError("bug"), ToolError("bug"), ExceptionGroup("g", [LookupError("bug")])])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_r25_one_failing_call_costs_its_siblings_nothing(
    error: Exception, position: int, autojump_clock: object
) -> None:
    @tool
    async def fails() -> None:
        """Fail between the others."""
        await trio.sleep(0.5)
        raise error

    batch = [ToolCall("a", "work", {"seconds": 1}), ToolCall("b", "work", {"seconds": 0.1})]
    batch.insert(position, ToolCall("bad", "fails"))
    model = Strict(batch, "end")
    agent = Agent(model, tools=[fails, work], tool_execution="parallel")
    watch = Watch(agent)
    assert (await agent.prompt("go")).text == "end"
    watch.check()
    answers = results(model.requests[1].messages)
    assert list(answers) == [call.id for call in batch]
    assert {id: (r.text.endswith("bug"), r.is_error) for id, r in answers.items()} == {
        "a": (False, False),
        "b": (False, False),
        "bad": (True, True),
    }


@pytest.mark.parametrize("moment", [ToolExecutionEnd, TurnEnd, "context", "request"])
@ended_both_ways
@in_both_orders
async def test_r26_what_a_tool_did_is_kept_and_not_done_again(
    moment: Any, how: str, execution: Any, autojump_clock: object
) -> None:
    done: list[str] = []

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        done.append(to)
        return f"paid {to}"

    def transform(messages: Sequence[Message]) -> Sequence[Message]:
        if moment == "context" and len(messages) > 1:
            end()
        return messages

    async def in_request() -> None:
        end()
        await trio.sleep(1)

    model = Strict([ToolCall(id, "pay", {"to": id}) for id in "ab"], [in_request])
    agent = Agent(model, tools=[pay], tool_execution=execution, transform_context=transform)
    watch = Watch(agent)
    with ending(agent, how) as end:
        if isinstance(moment, type):
            on(agent, moment, lambda: end())
        await agent.prompt("go")
    watch.check()
    before = [*done]
    assert before[:1] == ["a"]
    kept = {id: r.text for id, r in results(agent.messages).items() if not r.is_error}
    assert kept == {id: f"paid {id}" for id in before}
    agent.model = model = Strict("thanks")
    moment = None
    await agent.prompt("again")
    assert list(results(model.requests[0].messages)) == ["a", "b"]
    assert done == before


async def swallow() -> None:
    try:
        await trio.sleep(10)
    except trio.Cancelled:
        pass


@pytest.mark.parametrize("where", ["model", "tool"])
@pytest.mark.parametrize("way", ["prompt", "block", "functional"])
async def test_r27_who_swallows_an_outer_cancellation_makes_no_answer_of_it(
    where: str, way: str, autojump_clock: object
) -> None:
    @tool
    async def deaf() -> str:
        """Give a normal answer when cancelled."""
        await swallow()
        return "a normal answer"

    model = Strict(["x", swallow] if where == "model" else calls("a", name="deaf"), "never")
    agent = Agent(model, tools=[deaf])
    went_on = False
    with trio.move_on_after(1) as scope:
        if way == "prompt":
            await agent.prompt("go")
        else:
            config = AgentLoopConfig(model)
            block = agent.run("go") if way == "block" else agent_loop("go", AgentContext("", (), (deaf,)), config)
            async with block as run:
                await run.result()
        went_on = True
    assert scope.cancelled_caught
    assert not went_on
    assert trio.current_time() == 1
    assert len(model.requests) == 1
    if way != "prompt":
        assert (await run.result()).outcome == "cancelled"
    assert check_transcript(agent.messages) == []


@pytest.mark.parametrize("moment", [MessageEnd, TurnEnd, AgentEnd])
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_r28_a_receipt_says_delivered_when_and_only_when_a_request_has_it(moment: type[Any], queue: str) -> None:
    model = Strict("1", "2", "3")
    agent = Agent(model)
    receipts: list[Any] = []

    def wrapping_up(event: AgentEvent) -> None:
        if isinstance(event, moment) and model.requests and not receipts:
            receipts.append(getattr(agent, queue)("s"))
        sent = any("s" in texts(request.messages) for request in model.requests)
        for receipt in receipts:
            assert receipt.delivered == sent, event.type

    agent.subscribe(wrapping_up)
    await agent.prompt("go")
    (receipt,) = receipts
    if moment is AgentEnd:
        assert not receipt.delivered
        assert texts([*agent.state.queued_steering, *agent.state.queued_follow_ups]) == ["s"]
        await agent.prompt("next")
    assert receipt.delivered
    assert await receipt.wait_delivered()
    assert texts(agent.messages).count("s") == 1
