"""Public bug reports about this kind of software, each as what must hold here: R1 to R28 of the field notes.

A report stands for a class of faults, so most run in several variants: one call after another or all at once, ended
by an abort or by a cancellation from outside. Every model refuses what the strictest providers refuse.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    CustomMessage,
    Message,
    MessageUpdate,
    MessageWriter,
    ModelRequest,
    ObserverWarning,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResultMessage,
    UserMessage,
    open_event_stream,
    tool,
)
from trio_agent.testing import ScriptedModel, Wait, check_events, check_transcript

in_both_orders = pytest.mark.parametrize("execution", ["sequential", "parallel"])
ended_both_ways = pytest.mark.parametrize("how", ["aborted", "cancelled"])


class Strict(ScriptedModel):
    """A provider that refuses what does not pair up; ``raw`` writes its first response, if that goes piece by piece."""

    def __init__(self, *responses: Any, raw: Any = None) -> None:
        super().__init__(*responses)
        self.raw = raw

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        assert check_transcript(request.messages) == []
        raw, self.raw = self.raw, None
        await (super().stream(request, out) if raw is None else raw(out))


class Watch:
    """An agent's events; `check` says that the books are in order, and that the agent goes on from them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.events: list[AgentEvent] = []
        agent.subscribe(self.events.append)

    async def check(self, outcome: str) -> None:
        events, self.events[:] = [*self.events], []
        assert check_events(events) == []
        assert check_transcript(self.agent.messages) == []
        assert not self.agent.state.is_running
        (end,) = [event for event in events if event.type == "agent_end"]
        assert end.outcome == outcome
        self.agent.model = Strict(*["fine"] * 4)
        assert (await self.agent.prompt("again")).outcome == "completed"

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    def outcomes(self) -> dict[str, str]:
        return {event.tool_call_id: event.outcome for event in self.of("tool_execution_end")}


def watched(model: Strict, **settings: Any) -> tuple[Agent, Watch]:
    agent = Agent(model, **settings)
    return agent, Watch(agent)


def plays(name: str, *steps: Any, **options: Any) -> Tool:
    """A tool that sleeps for a number, calls a function, raises an error and returns a text, as they come."""

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        for step in steps:
            if isinstance(step, str):
                return step
            if isinstance(step, BaseException):
                raise step
            value = step() if callable(step) else await trio.sleep(step)
            if inspect.isawaitable(value):
                await value
        return "done"

    return Tool(name, "For a test.", {"type": "object"}, execute, **options)


work = plays("work", 1, "worked")


def calls(*ids: str, name: str = "work") -> list[ToolCall]:
    return [ToolCall(id, name) for id in ids]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def results(messages: Sequence[Message]) -> dict[str, ToolResultMessage]:
    found = [message for message in messages if isinstance(message, ToolResultMessage)]
    assert len({message.tool_call_id for message in found}) == len(found), "a call was answered twice"
    return {message.tool_call_id: message for message in found}


def on(agent: Agent, kind: str, act: Callable[[], object]) -> None:
    """Act at the first event of a kind, in the step in which it is said."""

    def observer(event: AgentEvent) -> None:
        if event.type == kind:
            unsubscribe()
            act()

    unsubscribe = agent.subscribe(observer)


def raises_at(agent: Agent, kind: str, error: BaseException) -> list[AgentEvent]:
    """An observer that raises at every event of a kind; gives what it raised at."""
    seen: list[AgentEvent] = []

    def observer(event: AgentEvent) -> None:
        if event.type == kind:
            seen.append(event)
            raise error

    agent.subscribe(observer)
    return seen


@contextmanager
def ending(agent: Agent, how: str) -> Iterator[Callable[[], object]]:
    """A function that ends the run from wherever it is called; the cancellation, if it is one, ends here."""
    with trio.CancelScope() as scope:
        yield agent.abort if how == "aborted" else scope.cancel
    assert scope.cancelled_caught == (how == "cancelled")


async def end_after(agent: Agent, seconds: float, how: str) -> None:
    """Prompt, and let another task end the run after so many seconds."""
    async with trio.open_nursery() as nursery:
        with ending(agent, how) as end:

            async def later() -> None:
                await trio.sleep(seconds)
                end()

            nursery.start_soon(later)
            result = await agent.prompt("go")
            assert result.outcome == how == "aborted", "the cancellation was swallowed"


async def swallow() -> str:
    with suppress(trio.Cancelled):
        await trio.sleep(10)
    return "a normal answer"


@pytest.fixture
async def stale() -> trio.Cancelled:
    """A Cancelled that no cancelled scope explains any more."""
    with trio.CancelScope() as scope, pytest.raises(trio.Cancelled) as caught:
        scope.cancel()
        await trio.lowlevel.checkpoint()
    return caught.value


@ended_both_ways
@in_both_orders
async def test_r1_an_ended_batch_leaves_no_call_unanswered(execution: Any, how: str, autojump_clock: object) -> None:
    begun: list[float] = []
    step = plays("step", lambda: begun.append(trio.current_time()), 1)
    model = Strict([*calls("a"), *calls("b", "c", name="step"), *calls("d")], "never")
    agent, watch = watched(model, tools=[work, step], tool_execution=execution)
    await end_after(agent, 1.5 if execution == "sequential" else 0.5, how)
    wanted = ["completed", "cancelled", "not_started", "not_started"]
    assert [*watch.outcomes().values()] == (wanted if execution == "sequential" else ["cancelled"] * 4)
    assert [*results(agent.messages)] == ["a", "b", "c", "d"]
    assert (results(agent.messages)["a"].is_error, len(model.requests)) == (execution == "parallel", 1)
    await watch.check(how)
    await trio.sleep(10)
    assert begun == ([1] if execution == "sequential" else [0, 0]), "a tool began after the end"


@ended_both_ways
@in_both_orders
async def test_r2_an_abort_in_a_confirmation_is_the_last_word(execution: Any, how: str, autojump_clock: object) -> None:
    asked: list[str] = []

    def confirm(call: ToolCall, arguments: object) -> None:
        asked.append(call.id)
        end()

    model = Strict(calls("a", "b"), "never")
    hooks: Any = {"before_tool_call": confirm, "after_tool_call": lambda *args: asked.append("after")}
    agent, watch = watched(model, tools=[work], tool_execution=execution, **hooks)
    with ending(agent, how) as end:
        await agent.prompt("go")
    assert (asked, len(model.requests)) == (["a"], 1)
    assert watch.outcomes() == {"a": "not_started", "b": "not_started"}
    await watch.check(how)


@ended_both_ways
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5])
async def test_r3_the_next_request_is_pair_valid(seconds: float, how: str, autojump_clock: object) -> None:
    """0.5: ended in a text, 1.5: in the arguments of a call, 2.5 and 3.5: in the tools."""

    async def raw(out: MessageWriter) -> None:
        await out.text("I will")
        await trio.sleep(1)
        await out.tool_call("a", "work", {})
        await out.tool_call_start("b", "work")
        await out.tool_call_delta('{"seconds"')
        await trio.sleep(1)
        await out.tool_call_delta(":1}")

    agent, watch = watched(Strict(raw=raw), tools=[work])
    await end_after(agent, seconds, how)
    assert (agent.messages[1].text, len(results(agent.messages))) == ("I will", 0 if seconds < 2 else 2)
    await watch.check(how)


async def test_r3_ctrl_c_in_a_tool_leaves_a_session_that_goes_on(autojump_clock: object) -> None:
    model = Strict([*calls("a"), *calls("b", name="busy"), *calls("c")])
    agent, watch = watched(model, tools=[work, plays("busy", KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        await agent.prompt("go")
    assert list(results(agent.messages)) == ["a", "b", "c"]
    await watch.check("error")


@pytest.mark.parametrize("way", ["resume", "prompt"])
async def test_r4_a_killed_turn_is_finished_and_goes_on(way: str) -> None:
    history = [UserMessage("go"), AssistantMessage(calls("a", "b"), "tool_use"), ToolResultMessage("a", "work", "A")]
    model = Strict("recovered")
    agent = Agent(model, messages=history)
    assert (await (agent.resume() if way == "resume" else agent.prompt("on"))).text == "recovered"
    sent = model.requests[0].messages
    assert (texts(sent).count("go"), check_transcript(agent.messages)) == (1, [])
    assert [(r.is_error, r.text == "A") for r in results(sent).values()] == [(False, True), (True, False)]
    assert "unknown" in results(sent)["b"].text


@ended_both_ways
async def test_r5_a_finished_result_outlives_its_stalled_sibling(how: str, autojump_clock: object) -> None:
    model = Strict([*calls("b", name="forever"), *calls("a")])
    agent, watch = watched(model, tools=[work, plays("forever", 1e6)], tool_execution="parallel")
    at: list[float] = []
    on(agent, "tool_execution_end", lambda: at.append(trio.current_time()))
    await end_after(agent, 5, how)
    assert at == [1], "said when it finished, not when the batch did"
    assert watch.outcomes() == {"a": "completed", "b": "cancelled"}
    assert results(agent.messages)["a"].text == "worked"
    await watch.check(how)


@ended_both_ways
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("settles", [False, True])
async def test_r6_a_run_settles(settles: bool, atomic: bool, how: str, autojump_clock: object) -> None:
    """A tool that ignores cancellations is waited for, and has returned in the end; an atomic one is cut, but has its
    grace. (One that shields itself for ever is in test_guard.py: it is named, for it cannot be ended in process.)"""
    steps = [swallow] * 20 if settles else [trio.sleep_forever]
    model = Strict([*calls("a", name="stubborn"), *calls("b")], "never")
    agent, watch = watched(model, tools=[plays("stubborn", *steps, atomic=atomic), work], abort_grace=3)
    await end_after(agent, 1, how)
    assert (trio.current_time(), len(model.requests)) == (1 + 3 if atomic else 1, 1)
    assert watch.outcomes() == {"a": "completed" if settles else "cancelled", "b": "not_started"}
    assert ("effects are unknown" in results(agent.messages)["a"].text) == (not settles)
    await watch.check(how)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm", "before_tool_call", "after_tool_call"])
async def test_r7_a_failing_hook_ends_every_reader_and_leaks_nothing(hook: str, autojump_clock: object) -> None:
    hooks: Any = {hook: lambda *args: {}["bug"]}
    agent = Agent(Strict(calls("a"), "never"), tools=[work], **hooks)
    living = trio.lowlevel.current_statistics().tasks_living
    with pytest.raises(KeyError, match="bug") as caught:
        async with agent.run("go") as run:
            second = run.subscribe()
            events = [event async for event in run]
            assert [event async for event in second][-1] is events[-1]
            result = await run.result()
    assert check_events(events) == []
    assert (result.outcome, result.error) == ("error", caught.value)
    assert trio.lowlevel.current_statistics().tasks_living == living
    assert (await Agent(Strict("fine"), messages=agent.messages).prompt("again")).text == "fine"


GO, ORPHAN = UserMessage("go"), ToolResultMessage("lost", "work", "whose?")
BROKEN_HISTORIES: list[list[Message]] = [
    [GO, ORPHAN, AssistantMessage("ok")],
    [ORPHAN, GO, AssistantMessage("ok")],
    [GO, AssistantMessage(calls(""), "tool_use"), ToolResultMessage("", "work", "x")],
    [GO, AssistantMessage(calls("a", name=""), "tool_use")],
    [GO, AssistantMessage(calls("a"), "tool_use"), GO],
    [GO, AssistantMessage(calls("a"), "tool_use"), *[ToolResultMessage("a", "work", "x")] * 2],
    [GO, AssistantMessage(calls("a"), "aborted"), GO],
]


@pytest.mark.parametrize("history", BROKEN_HISTORIES)
async def test_r8_a_broken_history_does_not_wedge_the_session(history: list[Message]) -> None:
    model = Strict("1", "2")
    agent = Agent(model, messages=history)
    assert [(await agent.prompt("on")).text for _ in range(2)] == ["1", "2"]
    assert texts(model.requests[1].messages)[-3:] == ["on", "1", "on"]
    assert agent.messages[: len(history)] == tuple(history), "the user's history was rewritten"


@pytest.mark.parametrize("call", [ToolCall("", "work"), ToolCall("a", "")])
async def test_r8_a_nameless_call_never_enters_the_history(call: ToolCall) -> None:
    agent, watch = watched(Strict([*calls("ok"), call]), tools=[work])
    await agent.prompt("go")
    assert watch.outcomes() == {}
    await watch.check("error")


async def test_r9_late_progress_is_no_event_and_no_error(autojump_clock: object) -> None:
    said: list[object] = []

    async def report_late(context: ToolContext) -> None:
        for seconds in (0.05, 0.5, 100):  # after the return, later in the next tool, after the run
            await trio.sleep(seconds)
            said.append((agent.state.is_running, context.update("late")))

    @tool
    async def leaky(context: ToolContext) -> str:
        """Leave its progress callback with somebody else."""
        nursery.start_soon(report_late, context)
        assert context.update("in time")
        return "returned"

    agent, watch = watched(Strict([*calls("a", name="leaky"), *calls("b")], "end"), tools=[leaky, work])
    async with trio.open_nursery() as nursery:
        await agent.prompt("go")
    assert said == [(True, False), (True, False), (False, False)]
    assert [event.partial_result.text for event in watch.of("tool_execution_update")] == ["in time"]
    await watch.check("completed")


async def test_r9_late_progress_from_a_thread_of_the_tools_own_is_no_error() -> None:
    """A sync tool may use a library that goes on in a thread and calls back after the run."""
    over = threading.Event()
    late: list[Future[bool]] = []

    @tool
    def download(context: ToolContext) -> None:
        """Leave a thread behind."""
        late.append(pool.submit(lambda: over.wait(10) and context.update("late")))

    with ThreadPoolExecutor(1) as pool:
        await Agent(Strict(calls("a", name="download"), "end"), tools=[download]).prompt("go")
        over.set()
        assert await trio.to_thread.run_sync(late[0].result) is False


@in_both_orders
async def test_r10_an_observer_that_raises_costs_no_result(execution: Any, autojump_clock: object) -> None:
    """Our policy: the observer is removed and warned of when the run has ended; the run and the others go on."""
    agent = Agent(Strict(calls("a", "b"), "end"), tools=[work], tool_execution=execution)
    seen = raises_at(agent, "tool_execution_end", LookupError("bug"))
    watch = Watch(agent)
    with pytest.warns(ObserverWarning, match="bug"):
        await agent.prompt("go")
    assert len(seen) == 1, "it was called again"
    assert [r.text for r in results(agent.messages).values()] == ["worked", "worked"]
    await watch.check("completed")


@pytest.mark.parametrize("fragment", ["", "{}", '{"text":"hal"}', '{"text":"hal', None])
async def test_r11_a_call_that_was_cut_off_is_not_run(fragment: str | None) -> None:
    """At the length limit no call runs, however whole it looks; without a limit (None) none that is no JSON object."""
    wrote: list[bool] = []

    async def raw(out: MessageWriter) -> None:
        await out.tool_call_start("a", "write")
        await out.tool_call_delta('{"text":"hal' if fragment is None else fragment)
        if fragment is not None:
            out.finish("length")

    agent, watch = watched(Strict("fine", raw=raw), tools=[plays("write", lambda: wrote.append(True))])
    await agent.prompt("go")
    assert (wrote, watch.outcomes()) == ([], {"a": "rejected"})
    await watch.check("completed")


async def drain(count: int) -> tuple[int, int]:
    """How many calls it takes to drain so many events, and how many of them may move the whole of a long list."""
    sink, stream = open_event_stream(count)  # type: ignore[var-annotated]
    for number in range(count):
        sink.push(number)
    sink.end(None)
    made = on_long_lists = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal made, on_long_lists
        made += event in ("call", "c_call")
        owner = getattr(argument, "__self__", None) if event == "c_call" else None
        on_long_lists += isinstance(owner, list) and len(owner) > 100

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        assert [number async for number in stream][-1] == count - 1
    finally:
        sys.setprofile(previous)
    return made, on_long_lists


async def test_r12_draining_a_backlog_is_linear() -> None:
    """Measured in calls: a clock would make it a matter of luck."""
    (few, _), (many, on_long_lists) = await drain(1_000), await drain(100_000)
    assert many < 100 * few * 1.1
    assert on_long_lists == 0


async def test_r13_readers_that_stop_hold_little_and_lose_no_structure(autojump_clock: object) -> None:
    """One makes the run wait. A coalescing one does not: what it gets in the end is its backlog, and all of it."""
    deltas = ["x", "y"] * 25_000
    agent = Agent(Strict([*deltas, *calls("a", "b")], deltas), tools=[work], max_buffered_events=100)
    async with agent.run("go", timeout=60) as run:
        stopped = run.subscribe(overflow="coalesce")
        await wait_all_tasks_blocked()
        assert 0 < len(agent.state.streaming_message.text) <= 101  # type: ignore[union-attr]
        every = [event async for event in run]
        backlog = [event async for event in stopped]
    assert check_events(every) == []
    assert len(backlog) <= 2 * 100 + 1
    kept = [event for event in backlog if not isinstance(event, MessageUpdate)]
    structure = [event for event in every if not isinstance(event, MessageUpdate)]
    assert kept == structure[4:], "from its subscription on: after the four events of the start"
    for events in (every, backlog):
        said = [e.delta for e in events if isinstance(e, MessageUpdate) and e.kind == "text_delta"]
        assert "".join(said) == "".join(deltas) * 2


@in_both_orders
async def test_r14_a_steer_that_an_abort_overtakes_is_still_queued(execution: Any, autojump_clock: object) -> None:
    agent = Agent(Strict(calls("a", "b"), "never"), tools=[work], tool_execution=execution)
    receipts = []
    on(agent, "tool_execution_start", lambda: receipts.append(agent.steer("s1")))
    on(agent, "turn_end", agent.abort)
    result = await agent.prompt("go")
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
    agent = Agent(Strict("1", "2", "3"))
    note, other = CustomMessage("the extension's"), CustomMessage("its follow-up")
    receipts = [agent.steer("mine"), agent.steer(note), agent.steer("mine"), agent.follow_up(other)]
    assert [receipts[n].withdraw() for n in (0, 0, 2)] == [True, False, True]
    assert agent.state.queued_steering == (note,)
    await agent.prompt("go")
    assert texts(agent.messages) == ["go", "the extension's", "1", "its follow-up", "2"]
    late = [agent.steer("mine"), agent.steer(note), agent.follow_up(other)]
    assert agent.reset() == (late[0].message, note, other)
    assert [await receipt.wait_delivered() for receipt in late] == [False] * 3


@pytest.mark.parametrize("moment", ["message_end", "turn_end"])
async def test_r16_a_steer_at_the_end_of_a_turn_is_not_overtaken(moment: str) -> None:
    model = Strict("1", "2", "3", "4")
    agent = Agent(model)
    receipts: list[Any] = []

    def at_the_last_moment(event: AgentEvent) -> None:
        if event.type == moment and model.requests and not receipts:
            receipts.extend([agent.steer("m1"), agent.follow_up("m2")])

    agent.subscribe(at_the_last_moment)
    async with agent.run("go") as run:
        await run.result()
        await agent.prompt("m3")  # in the step in which the first run ended
    assert [text for text in texts(agent.messages) if text.startswith("m")] == ["m1", "m2", "m3"]


async def test_r17_who_blocks_at_the_last_event_keeps_nobody_busy(autojump_clock: object) -> None:
    """Observers are sync here, so none can await; a reader can, and holds up its own task only."""

    async def read(stream: Any) -> None:
        async for event in stream:
            if event.type == "agent_end":
                blocked.append(stream)
                await trio.sleep(1800)

    blocked: list[Any] = []
    agent = Agent(Strict("1", "2", "3"), max_buffered_events=1)
    async with trio.open_nursery() as nursery:
        async with agent.run("go") as run:
            nursery.start_soon(read, run.subscribe())
            nursery.start_soon(read, run)
            await wait_all_tasks_blocked()
            assert len(blocked) == 2
            await agent.wait_idle()
            receipt = agent.steer("not swallowed")
            assert (await agent.prompt("next")).outcome == "completed"
        assert receipt.delivered
        assert trio.current_time() == 0
        nursery.cancel_scope.cancel()


async def test_r18_idle_is_said_once_and_a_new_run_may_start_at_once(autojump_clock: object) -> None:
    """The signals are `agent_end` and `wait_idle`. A model that tries again is one that waits: no signal of ours."""
    agent, watch = watched(Strict([Wait(1), *calls("a")], [Wait(1), Wait(1), "end"], "second"), tools=[work])

    async def next_run() -> None:
        await agent.wait_idle()
        assert trio.current_time() == 4
        await agent.prompt("next")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "go")
        await wait_all_tasks_blocked()
        nursery.start_soon(next_run)
        await trio.sleep(3.5)
        assert (agent.state.is_running, watch.of("agent_end")) == (True, [])
    assert agent.messages[-1].text == "second"
    assert [event.type for event in watch.events if "agent" in event.type] == ["agent_start", "agent_end"] * 2


@pytest.mark.parametrize("how", ["aborted", "cancelled", "deadline"])
async def test_r19_a_prompt_that_is_stopped_at_once_is_in_the_history(how: str) -> None:
    model = Strict("never")
    agent, watch = watched(model)
    with trio.CancelScope() as scope:
        if how == "aborted":
            on(agent, "agent_start", agent.abort)
        elif how == "cancelled":
            scope.cancel()
        await agent.prompt(["go", "on"], timeout=0 if how == "deadline" else None)
    assert (texts(agent.messages), model.requests) == (["go", "on"], [])
    await watch.check(how)


@pytest.mark.parametrize("second", ["deadline", "cancel", "leave"])
async def test_r20_there_is_one_end_whatever_ends_the_run_as_well(second: str, autojump_clock: object) -> None:
    agent, watch = watched(Strict(calls("a"), ["x", Wait(9)]), tools=[work])
    with trio.CancelScope() as scope:
        async with agent.run("go", timeout=1.5) as run:
            other = run.subscribe()
            await trio.sleep(1.4)
            assert [agent.abort("first"), agent.abort("second")] == [True, False]
            if second == "cancel":
                scope.cancel()
            await trio.sleep(1 if second == "deadline" else 0)
    result = await run.result()
    assert (result.outcome, result.abort_reason) == ("aborted", "first")
    assert [event.type async for event in other].count("agent_end") == 1
    await watch.check("aborted")


@pytest.mark.parametrize("moment", ["agent_start", "message_update", "tool_execution_end", "turn_end", "agent_end"])
async def test_r21_an_observers_cancelled_is_its_own(moment: str, stale: BaseException, autojump_clock: object) -> None:
    agent = Agent(Strict(["x", *calls("a")], "end"), tools=[work])
    seen = raises_at(agent, moment, stale)
    watch = Watch(agent)
    with pytest.warns(ObserverWarning, match="Cancelled"):
        result = await agent.prompt("go", timeout=5)
    assert (result.text, len(seen)) == ("end", 1)
    await watch.check("completed")


@in_both_orders
async def test_r22_a_timeout_around_the_reader_reaches_the_tools(execution: Any, autojump_clock: object) -> None:
    model = Strict(calls("a", "b", name="sleepy"))
    agent, watch = watched(model, tools=[plays("sleepy", 120)], tool_execution=execution)
    with trio.move_on_after(1) as scope:
        async with agent.run("go") as run:
            async for _ in run:
                pass
    assert scope.cancelled_caught
    assert trio.current_time() == 1
    assert watch.outcomes() == {"a": "cancelled", "b": "not_started" if execution == "sequential" else "cancelled"}
    await watch.check("cancelled")


@pytest.mark.parametrize("cut", [False, True])
@in_both_orders
async def test_r23_a_tools_own(execution: Any, cut: bool, stale: BaseException, autojump_clock: object) -> None:
    """It is one error result; a real cancellation comes through all the same."""
    model = Strict([*calls("a", name="odd"), *calls("b")], "end")
    agent, watch = watched(model, tools=[plays("odd", stale), work], tool_execution=execution)
    await (end_after(agent, 0.5, "cancelled") if cut else agent.prompt("go"))
    assert watch.outcomes() == {"a": "failed", "b": "cancelled" if cut else "completed"}
    assert [r.is_error for r in results(agent.messages).values()] == [True, cut]
    await watch.check("cancelled" if cut else "completed")


@pytest.mark.parametrize("aborts", [False, True])
async def test_r24_no_sibling_outlives_the_batch(aborts: bool, stale: trio.Cancelled, autojump_clock: object) -> None:
    effects: list[str] = []
    at_turn_end: list[list[str]] = []
    first = plays("first", 0.5, *[lambda: agent.abort(), 1] * aborts, stale)
    second = plays("second", 2, lambda: effects.append("late"))
    model = Strict([*calls("a", name="first"), *calls("b", name="second")], "end")
    agent, watch = watched(model, tools=[first, second], tool_execution="parallel")
    on(agent, "turn_end", lambda: at_turn_end.append([*effects]))
    await agent.prompt("go")
    await trio.sleep(100)
    assert at_turn_end == [effects] == [[] if aborts else ["late"]]
    assert [*watch.outcomes().values()] == (["cancelled"] * 2 if aborts else ["failed", "completed"])
    await watch.check("aborted" if aborts else "completed")


@pytest.mark.parametrize("error", [LookupError("bug"), ToolError("bug"), ExceptionGroup("g", [LookupError("bug")])])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_r25_a_failing_call_costs_no_result(error: Exception, position: int, autojump_clock: object) -> None:
    batch = [*calls("a", "b")]
    batch.insert(position, ToolCall("bad", "fails"))
    model = Strict(batch, "end")
    agent, watch = watched(model, tools=[plays("fails", 0.5, error), work], tool_execution="parallel")
    await agent.prompt("go")
    answers = results(model.requests[1].messages)
    assert list(answers) == [call.id for call in batch]
    assert {id for id, r in answers.items() if r.text == "worked" and not r.is_error} == {"a", "b"}
    assert (answers["bad"].is_error, answers["bad"].text[-3:]) == (True, "bug")
    await watch.check("completed")


@pytest.mark.parametrize("moment", ["hook", "tool_execution_end", "turn_end", "request"])
@ended_both_ways
@in_both_orders
async def test_r26_what_was_done_is_kept(moment: str, how: str, execution: Any, autojump_clock: object) -> None:
    """Ended before or as the first result is said, after both, or while the model answers them."""
    done: list[bool] = []

    async def end_and_wait(*args: object) -> None:
        end()
        await trio.sleep(1)

    pay, hook = plays("pay", lambda: done.append(True), "paid"), end_and_wait if moment == "hook" else None
    model = Strict(calls("a", "b", name="pay"), [end_and_wait])
    agent, watch = watched(model, tools=[pay], tool_execution=execution, after_tool_call=hook)
    with ending(agent, how) as end:
        on(agent, moment, end)
        await agent.prompt("go")
    count = 1 if moment in ("hook", "tool_execution_end") else 2
    assert [r.text for r in results(agent.messages).values()].count("paid") == len(done) == count
    await watch.check(how)
    assert list(results(agent.messages)) == ["a", "b"]
    assert len(done) == count, "done twice"


@pytest.mark.parametrize("deaf", ["model", "tool"])
async def test_r27_a_swallowed_cancellation_is_no_answer(deaf: str, autojump_clock: object) -> None:
    model = Strict(["x", swallow] if deaf == "model" else calls("a", name="listen"), "never")
    agent, watch = watched(model, tools=[plays("listen", swallow)])
    await end_after(agent, 1, "cancelled")
    assert (trio.current_time(), len(model.requests)) == (1, 1)
    await watch.check("cancelled")


@pytest.mark.parametrize("moment", ["message_end", "turn_end", "agent_end"])
@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_r28_delivered_is_said_iff_a_request_has_it(moment: str, queue: str) -> None:
    model = Strict("1", "2", "3")
    agent = Agent(model)
    receipts: list[Any] = []
    said: list[tuple[bool, bool]] = []

    def wrapping_up(event: AgentEvent) -> None:
        if event.type == moment and model.requests and not receipts:
            receipts.append(getattr(agent, queue)("s"))
        sent = any("s" in texts(request.messages) for request in model.requests)
        said.extend([(receipt.delivered, sent) for receipt in receipts])

    agent.subscribe(wrapping_up)
    await agent.prompt("go")
    (receipt,) = receipts
    if moment == "agent_end":
        assert receipt.message in (*agent.state.queued_steering, *agent.state.queued_follow_ups)
        await agent.prompt("next")
    assert set(said) == {(False, False), (True, True)}
    assert await receipt.wait_delivered()
    assert texts(agent.messages).count("s") == 1
