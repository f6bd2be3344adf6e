"""What an attack on the runtime found, each as the right behaviour: foreign cancellations, errors that cannot be
shown, models that hide a cancellation, interrupts inside a writer, late updates, grace and timeout, dropped readers."""

import gc
import sys
from typing import Any

import pytest
import trio

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AssistantMessage,
    MessageUpdate,
    MessageWriter,
    ModelError,
    ModelRequest,
    ObserverWarning,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    open_event_stream,
    tool,
)
from trio_agent._json import parse_arguments
from trio_agent.testing import ScriptedModel, check_events, check_transcript


@tool
async def work(seconds: float = 1.0) -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return "worked"


@tool(atomic=True)
async def transfer(seconds: float = 2.0) -> str:
    """Must not be torn."""
    await trio.sleep(seconds)
    return "moved"


class ModelOf:
    """A model that is one function."""

    name = provider = "m"

    def __init__(self, function: Any) -> None:
        self.function = function

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        await self.function(out)


class Unshowable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.fixture
async def stale() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise AssertionError


def watched(agent: Agent) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return events


async def check(agent: Agent, events: list[AgentEvent]) -> AgentEnd:
    """Sealed, legal, idle and usable again."""
    assert check_events(events) == []
    assert check_transcript(agent.messages) == []
    assert not agent.state.is_running
    end = events[-1]
    assert isinstance(end, AgentEnd)
    again = Agent(ScriptedModel("fine"), messages=agent.messages)
    assert (await again.prompt("again")).outcome == "completed"
    return end


# cancellations that are not what they seem ----------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call", "transform_context", "convert_to_llm"])
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
@pytest.mark.parametrize("block", [False, True])
async def test_a_stale_cancelled_from_a_hook_is_that_hooks_error(
    hook: str, execution: Any, block: bool, stale: trio.Cancelled, autojump_clock: object
) -> None:
    async def raises(*args: object) -> object:
        raise stale

    model = ScriptedModel([ToolCall("a", "work"), ToolCall("b", "transfer")], "done")
    agent = Agent(model, tools=[work, transfer], tool_execution=execution, **{hook: raises})
    events = watched(agent)
    with pytest.raises(RuntimeError, match="a cancellation that nobody had asked for") as caught:
        if block:
            async with agent.run("go") as run:
                await run.result()
        else:
            await agent.prompt("go")
    assert caught.value.__cause__ is stale
    assert (await check(agent, events)).outcome == "error"


@pytest.mark.parametrize("block", [False, True])
async def test_a_stale_cancelled_from_a_model_is_its_error(block: bool, stale: trio.Cancelled) -> None:
    async def respond(out: MessageWriter) -> None:
        await out.text("hi")
        raise stale

    agent = Agent(ModelOf(respond))
    events = watched(agent)
    with pytest.raises(RuntimeError, match="a model raised a cancellation"):
        if block:
            async with agent.run("go") as run:
                async for _ in run:
                    pass
        else:
            await agent.prompt("go")
    assert (await check(agent, events)).outcome == "error"


async def test_a_stale_cancelled_from_the_body_comes_out_unchanged(stale: trio.Cancelled) -> None:
    agent = Agent(ScriptedModel("1"))
    with pytest.raises(trio.Cancelled) as caught:
        async with agent.run("go"):
            raise stale
    assert caught.value is stale


async def test_a_stale_cancelled_from_an_atomic_tool_is_its_error(stale: trio.Cancelled) -> None:
    @tool(atomic=True)
    async def odd() -> None:
        """Odd."""
        raise stale

    agent = Agent(ScriptedModel([ToolCall("a", "odd")], "end"), tools=[odd])
    events = watched(agent)
    result = await agent.prompt("go")
    assert result.outcome == "completed"
    assert "nobody had asked for" in result.messages[2].text
    await check(agent, events)


async def hide_in_error(out: MessageWriter) -> None:
    try:
        await trio.sleep(10)
    except trio.Cancelled:
        raise ModelError("lost") from None


async def hide_in_group(out: MessageWriter) -> None:
    async with trio.open_nursery():
        try:
            await trio.sleep(10)
        finally:
            raise ModelError("cleanup")


async def hide_in_finish(out: MessageWriter) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(4)
    out.finish("error")


@pytest.mark.parametrize("respond", [hide_in_error, hide_in_group, hide_in_finish])
async def test_g6_a_model_cannot_hide_a_cancellation_in_an_error(respond: Any, autojump_clock: object) -> None:
    agent = Agent(ModelOf(respond))
    events = watched(agent)
    with trio.move_on_after(1) as scope:
        await agent.prompt("go")
    assert scope.cancelled_caught
    assert (await check(agent, events)).outcome == "cancelled"
    assert (await agent.prompt("go", timeout=1)).outcome == "deadline"


# errors ---------------------------------------------------------------------------------------------------------------


async def test_an_error_whose_text_cannot_be_shown_harms_nothing() -> None:
    async def respond(out: MessageWriter) -> None:
        await out.text("hi")
        raise Unshowable

    agent = Agent(ModelOf(respond))
    events = watched(agent)
    with pytest.raises(Unshowable):
        await agent.prompt("go")
    await check(agent, events)

    @tool
    async def odd() -> None:
        """Odd."""
        raise Unshowable

    def observer(event: AgentEvent) -> None:
        raise Unshowable

    agent = Agent(ScriptedModel([ToolCall("a", "odd")], "end"), tools=[odd])
    agent.subscribe(observer)
    with pytest.warns(ObserverWarning, match="cannot be shown"):
        result = await agent.prompt("go")
    assert "Unshowable (its text cannot be shown)" in result.messages[2].text


async def test_a_seal_that_fails_leaves_the_agent_usable_and_no_reader_waiting(monkeypatch: Any) -> None:
    from trio_agent._record import RunRecord

    agent = Agent(ScriptedModel("1", "2"))
    monkeypatch.setattr(RunRecord, "_seal", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        async with agent.run("go") as run:
            await run.result()
    assert not agent.state.is_running


@pytest.mark.parametrize("where", ["tool", "transform"])
async def test_g7_what_comes_out_of_a_nursery_of_the_embedders_is_bare(where: str) -> None:
    wanted: type[BaseException] = KeyboardInterrupt if where == "tool" else ValueError

    async def child() -> None:
        raise wanted

    async def group(*args: object) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    @tool(name="group")
    async def group_tool() -> None:
        """Group."""
        await group()

    model = ScriptedModel([ToolCall("a", "group")])
    agent = Agent(model, tools=[group_tool], transform_context=group if where == "transform" else None)
    events = watched(agent)
    with pytest.raises(wanted):
        await agent.prompt("go")
    end = await check(agent, events)
    assert type(end.error) is wanted
    assert agent.state.last_error is end.error


async def test_the_cause_of_a_hooks_error_is_kept_in_a_parallel_batch(autojump_clock: object) -> None:
    async def hook(*args: object) -> None:
        raise LookupError("hook") from ZeroDivisionError()

    model = ScriptedModel([ToolCall("a", "work"), ToolCall("b", "work")])
    agent = Agent(model, tools=[work], tool_execution="parallel", after_tool_call=hook)
    with pytest.raises(LookupError) as caught:
        await agent.prompt("go")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_g17_a_bug_in_a_parallel_batch_is_the_cause_from_the_moment_it_is_raised(autojump_clock: object) -> None:
    async def hook(call: ToolCall, result: object) -> None:
        raise LookupError("hook")

    model = ScriptedModel([ToolCall("a", "transfer", {"seconds": 4}), ToolCall("b", "work")])
    agent = Agent(model, tools=[work, transfer], tool_execution="parallel", after_tool_call=hook)
    events = watched(agent)
    with pytest.raises(LookupError):
        async with agent.run("go") as run:
            await trio.sleep(2)
            assert not agent.abort("too late")
            await run.result()
    assert (await check(agent, events)).outcome == "error"


async def test_g17_a_tools_cleanup_error_does_not_take_over_from_the_deadline(autojump_clock: object) -> None:
    @tool
    async def clean() -> None:
        """Fail while being cut."""
        try:
            await trio.sleep(100)
        finally:
            raise ValueError("cleanup")

    agent = Agent(ScriptedModel([ToolCall("a", "clean")]), tools=[clean], on_tool_error="raise")
    events = watched(agent)
    assert (await agent.prompt("go", timeout=1)).outcome == "deadline"
    await check(agent, events)
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.outcome == "failed"
    assert "cleanup" in end.result.text


async def test_an_error_of_the_body_keeps_that_of_the_run_as_a_note() -> None:
    def broken(messages: Any) -> Any:
        raise LookupError("hook")

    with pytest.raises(ValueError, match="mine") as caught:
        async with Agent(ScriptedModel("1"), transform_context=broken).run("go") as run:
            await run.result()
            raise ValueError("mine")
    assert caught.value.__notes__ == ["the run also raised: LookupError: hook"]


def test_arguments_nested_too_deeply_are_rejected_and_not_a_crash() -> None:
    for depth in (10, 400, 900, 5000, 100_000):
        arguments, problem = parse_arguments('{"n":' + "[" * depth + "]" * depth + "}")
        assert bool(arguments) != bool(problem)


async def test_deep_arguments_never_end_the_run() -> None:
    for depth in (100, 300, 400, 500, 900):
        text = '{"n":' + "[" * depth + "]" * depth + "}"

        async def respond(out: MessageWriter, text: str = text, said: list[int] = []) -> None:  # noqa: B006
            if said and said[-1] == len(text):
                return
            said.append(len(text))
            await out.tool_call_start("a", "work")
            await out.tool_call_delta(text)

        agent = Agent(ModelOf(respond), tools=[work])
        assert (await agent.prompt("go")).outcome == "completed"


# after an abort -------------------------------------------------------------------------------------------------------


async def test_g4_no_hook_is_called_after_an_abort() -> None:
    called: list[str] = []

    def before(call: ToolCall, arguments: object) -> None:
        called.append("before")

    agent = Agent(ScriptedModel([ToolCall("a", "work")]), tools=[work], before_tool_call=before)
    agent.subscribe(lambda event: agent.abort() if isinstance(event, ToolExecutionStart) else None)
    assert (await agent.prompt("go")).outcome == "aborted"

    def transform(messages: Any) -> Any:
        agent.abort()
        return messages

    def convert(messages: Any) -> Any:
        called.append("convert")
        return messages

    agent = Agent(ScriptedModel("1"), transform_context=transform, convert_to_llm=convert)
    assert (await agent.prompt("go")).outcome == "aborted"
    assert called == []


async def test_an_atomic_tools_own_timeout_is_a_timeout(autojump_clock: object) -> None:
    @tool(atomic=True, timeout=1)
    async def slow() -> None:
        """Slow."""
        await trio.sleep(100)

    agent = Agent(ScriptedModel([ToolCall("a", "slow")], "end"), tools=[slow])
    events = watched(agent)
    result = await agent.prompt("go")
    assert result.outcome == "completed"
    assert "Timed out after 1 seconds" in result.messages[2].text
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.outcome == "failed"


async def test_g15_a_late_update_is_not_taken_for_a_later_call_with_the_same_id() -> None:
    contexts: list[ToolContext] = []

    @tool
    async def report(context: ToolContext) -> str:
        """Report through the first call's context."""
        contexts.append(context)
        assert contexts[0].update("progress") == (len(contexts) == 1)
        return "ok"

    model = ScriptedModel([ToolCall("call_0", "report")], [ToolCall("call_0", "report")], "end")
    agent = Agent(model, tools=[report])
    events = watched(agent)
    await agent.prompt("go")
    assert sum(isinstance(event, ToolExecutionUpdate) for event in events) == 1


async def test_g10_reset_settles_what_no_request_has_had(autojump_clock: object) -> None:
    async def transform(messages: Any) -> Any:
        await trio.sleep_forever()

    agent = Agent(ScriptedModel("1"), transform_context=transform)
    receipt = agent.steer("s")
    await agent.prompt("go", timeout=1)
    agent.follow_up("f")
    assert [message.text for message in agent.reset()] == ["s", "f"]
    assert await receipt.wait_delivered() is False


# interrupts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["_writer.py", "_record.py", "_stream.py", "_grammar.py", "contextlib.py"])
def test_g20_an_interrupt_at_any_line_of_the_books_tears_nothing(target: str) -> None:
    """A real SIGINT, raised from a trace function at the k-th line run in the file, for every k."""
    import signal

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        k = 1
        while interrupted_at(target, k, signal.SIGINT):
            k += 1 if k < 200 else 9
        assert k > 5
    finally:
        signal.signal(signal.SIGINT, previous)


def interrupted_at(target: str, k: int, number: int) -> bool:
    import signal

    seen = 0
    agent = Agent(ScriptedModel(["a", "b", ToolCall("a", "work", {"seconds": 0})], "end"), tools=[work])
    events = watched(agent)

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename.endswith(target):
            if event == "line":
                seen += 1
                if seen == k:
                    signal.raise_signal(number)
            return trace
        return trace if event == "call" else None

    async def main() -> None:
        sys.settrace(trace)
        try:
            async with agent.run("go") as run:
                async for _ in run:
                    pass
        finally:
            sys.settrace(None)

    try:
        trio.run(main)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    assert not agent.state.is_running
    if events:
        assert check_events(events) == [], (target, k)
    streamed = "".join([event.delta for event in events if isinstance(event, MessageUpdate) and "text" in event.kind])
    answered = "".join([m.text for m in agent.messages if isinstance(m, AssistantMessage)])
    assert streamed == answered, (target, k)
    assert check_transcript(agent.messages) == []
    return seen >= k


# streams --------------------------------------------------------------------------------------------------------------


async def test_g11_a_cancelled_wait_for_the_result_leaves_no_gap(autojump_clock: object) -> None:
    sink, stream = open_event_stream(100)  # type: ignore[var-annotated]
    for number in range(3):
        sink.push(number)
    seen: list[int] = []
    async for number in stream:
        seen.append(number)
        if number == 0:
            for more in range(3, 6):
                sink.push(more)
            with trio.move_on_after(1):
                await stream.result()
            for more in range(6, 9):
                sink.push(more)
            sink.end("r")
    assert seen == list(range(9))


async def test_g11_what_had_to_be_discarded_is_at_the_end(autojump_clock: object) -> None:
    sink, stream = open_event_stream(5)  # type: ignore[var-annotated]
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                for number in range(50):
                    sink.push(number)
                    await sink.room()

            nursery.start_soon(produce)
            await stream.result()
    sink.push(50)
    sink.end("r")
    seen = [number async for number in stream]
    assert seen == list(range(len(seen)))
    assert 5 <= len(seen) <= 7


async def test_an_iterator_that_was_made_but_not_used_does_not_hang_the_result() -> None:
    agent = Agent(ScriptedModel(["x"] * 100), max_buffered_events=5)
    async with agent.run("go") as run:
        iterator = aiter(run)
        assert (await run.result()).outcome == "completed"
        del iterator


async def test_a_subscribed_stream_that_nobody_holds_does_not_block_the_run() -> None:
    agent = Agent(ScriptedModel(["x"] * 100), max_buffered_events=5)
    async with agent.run("go") as run:
        async for _ in run.subscribe():
            break
        gc.collect()
        assert (await run.result()).outcome == "completed"


async def test_after_close_an_iteration_ends() -> None:
    sink, stream = open_event_stream(5)  # type: ignore[var-annotated]
    for number in range(3):
        sink.push(number)
    stream.close()
    assert [number async for number in stream] == []


# observers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GeneratorExit(), BaseExceptionGroup("g", [GeneratorExit()])])
async def test_g14_whatever_an_observer_raises_is_its_own_fault(error: BaseException) -> None:
    agent = Agent(ScriptedModel("1"))

    def observer(event: AgentEvent) -> None:
        raise error

    agent.subscribe(observer)
    with pytest.warns(ObserverWarning):
        assert (await agent.prompt("go")).outcome == "completed"


async def test_a_warning_that_is_an_error_does_not_swallow_a_cancellation(autojump_clock: object) -> None:
    agent = Agent(ScriptedModel([ToolCall("a", "work")]), tools=[work])
    agent.subscribe(lambda event: 1 / 0)  # type: ignore[arg-type,return-value]
    with trio.move_on_after(0.5) as scope:
        await agent.prompt("go")
    assert scope.cancelled_caught


async def test_an_event_caused_by_an_observer_does_not_overtake_the_one_it_sees() -> None:
    @tool
    async def report(context: ToolContext) -> str:
        """Report."""
        contexts.append(context)
        context.update("1")
        return "ok"

    contexts: list[ToolContext] = []
    order: list[str] = []

    def first(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate) and event.partial_result.text == "1":
            contexts[0].update("2")

    def second(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate):
            order.append(event.partial_result.text)

    agent = Agent(ScriptedModel([ToolCall("a", "report")], "end"), tools=[report])
    agent.subscribe(first)
    agent.subscribe(second)
    await agent.prompt("go")
    assert order == ["1", "2"]
