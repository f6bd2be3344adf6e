"""How the built-in scenarios go: scripts, hooks, and ways to run and to read."""

import contextlib
import warnings
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import trio

from trio_agent import (
    Agent,
    AgentBusyError,
    Model,
    NothingToResumeError,
    ObserverWarning,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    ToolResultMessage,
    default_convert_to_llm,
)

from ._players import TOOLS
from ._probe import Probe
from ._reading import Reading
from ._scripted import ScriptedModel, Wait
from ._watch import AgentWatch

__all__ = [
    "abort",
    "calls",
    "convert",
    "fail_after",
    "late_observer",
    "look_after",
    "look_after_at_once",
    "look_first",
    "look_first_at_once",
    "make",
    "plain",
    "prompting",
    "racing",
    "raising_body",
    "read",
    "reading",
    "resumed_while_running",
    "run_beside",
    "script",
    "shout",
    "steer",
    "steer_and_follow",
    "steered_in_the_middle",
    "transform",
    "transform_in_nurseries",
    "transform_with_cleanup",
    "two_readers",
    "two_turns",
    "two_waiters",
    "withdrawing",
]

# scripts -------------------------------------------------------------------------------------------------------------


def calls(*names: str, **arguments: Any) -> list[ToolCall]:
    """One call of each tool; its id is its number and name."""
    return [ToolCall(f"{number}-{name}", name, arguments) for number, name in enumerate(names, 1)]


def two_turns() -> ScriptedModel:
    """Thinks, says something, calls three tools; then says something more."""
    return ScriptedModel(
        [Thinking("hm"), Wait(0.1), "Let me ", "look.", *calls("work", "transfer", "quick")],
        ["All ", Wait(0.1), "done."],
        *["Yes?"] * 4,  # for what is steered in
    )


def script(*turns: Any) -> Callable[[], ScriptedModel]:
    """A maker of models that play these turns."""
    return lambda: ScriptedModel(*turns)


async def plain(watch: AgentWatch) -> None:
    """``await agent.prompt(...)``."""
    await watch.prompt()


async def read(watch: AgentWatch) -> None:
    """``async with agent.run(...)``, read to the end."""
    await watch.read()


def make(
    model: Callable[[], Model],
    how: Callable[[AgentWatch], Awaitable[object]] = plain,
    *,
    unendable: bool = False,
    strict: bool = False,
    before: Callable[[AgentWatch], object] | None = None,
    nested: Callable[[AgentWatch], Iterable[Tool]] = lambda watch: (),
    **settings: Any,
) -> Callable[[Probe], Awaitable[None]]:
    """A scenario's function: an agent with all the tools, those that ``nested`` makes too, and one run of it."""

    async def run(probe: Probe) -> None:
        watch = AgentWatch(probe, unendable=unendable, strict=strict)
        watch.agent(model(), **{"tools": (*TOOLS, *nested(watch)), **settings})
        if before is not None:
            before(watch)
        await how(watch)

    return run


# hooks and ways to read ----------------------------------------------------------------------------------------------


async def transform(messages: Any) -> Any:
    """A context step that takes its time."""
    await trio.sleep(0.05)
    return messages


async def transform_with_cleanup(messages: Any) -> Any:
    """A context step that raises an error of its own while it is being cut."""
    try:
        await trio.sleep(0.1)
    except trio.Cancelled:
        raise OSError("cleanup of the context failed") from None
    return messages


async def transform_in_nurseries(messages: Any) -> Any:
    """A context step whose error comes from two nurseries deep."""

    async def child() -> None:
        await trio.sleep(0.1)
        raise KeyError("deep")

    if isinstance(messages[-1], ToolResultMessage):
        async with trio.open_nursery() as outer:
            outer.start_soon(trio.sleep, 5)
            async with trio.open_nursery() as inner:
                inner.start_soon(child)
    return messages


async def look_first(call: ToolCall, arguments: Any) -> Any:
    """Takes its time before a call, and blocks one."""
    await trio.sleep(0.05)
    return "not this one" if call.name == "quick" else None


async def look_after(call: ToolCall, result: ToolResult) -> Any:
    """Takes its time after a call, and replaces one result."""
    await trio.sleep(0.05)
    return ToolResult("replaced") if call.name == "work" else None


def convert(messages: Any) -> Any:
    """The second context step, without a checkpoint."""
    return default_convert_to_llm(messages)


def look_first_at_once(call: ToolCall, arguments: Any) -> Any:
    """Says at once whether a call may go on, and gives one other arguments."""
    return {"seconds": 0.1} if call.name == "transfer" else None


def look_after_at_once(call: ToolCall, result: ToolResult) -> Any:
    """Keeps every result."""
    return None


async def fail_after(call: ToolCall, result: ToolResult) -> Any:
    """A hook with a bug."""
    await trio.sleep(0.05)
    if call.name == "work":
        raise LookupError("a bug in a hook")


def steer_and_follow(watch: AgentWatch) -> None:
    """Something is queued before the run begins."""
    watch.submit("steer")
    watch.submit("follow_up")
    watch.submit("follow_up")


async def run_beside(run: Awaitable[object], *tasks: Callable[[], Awaitable[object]]) -> None:
    """Await a run with tasks beside it, which end with it."""
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        try:
            await run
        finally:
            nursery.cancel_scope.cancel()


async def steered_in_the_middle(watch: AgentWatch) -> None:
    """Another task steers while the second tool runs, and again at its end."""

    async def steer() -> None:
        await trio.sleep(0.8)
        watch.submit("steer")
        watch.submit("follow_up")
        await trio.sleep(0.8)
        watch.submit("steer")

    await run_beside(watch.prompt(), steer)


def racing(
    how: Callable[[AgentWatch], Awaitable[object]], seconds: float, *acts: Callable[[AgentWatch], object]
) -> Callable[[AgentWatch], Awaitable[None]]:
    """Tasks beside the run, one for each act, which all act at one moment: who is first is for the order to decide."""

    async def run(watch: AgentWatch) -> None:
        async def act(what: Callable[[AgentWatch], object]) -> None:
            await trio.sleep(seconds)
            what(watch)

        await run_beside(how(watch), *[partial(act, what) for what in acts])

    return run


def steer(watch: AgentWatch) -> None:
    """One steering message."""
    watch.submit("steer")


def abort(watch: AgentWatch) -> None:
    """One abort."""
    watch.abort()


def shout(watch: AgentWatch) -> None:
    """An observer that raises at its third event."""
    seen = 0

    def observer(event: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            watch.run.raising += 1
            raise RuntimeError("an observer's bug")

    watch.known().subscribe(observer)


def prompting(**settings: Any) -> Callable[[AgentWatch], Awaitable[object]]:
    """``agent.prompt`` with some settings."""
    return lambda watch: watch.prompt(**settings)


def reading(**how: Any) -> Callable[[AgentWatch], Awaitable[object]]:
    """A `Reading` of a run in a block."""
    return lambda watch: watch.read(reading=Reading(**how))


async def raising_body(watch: AgentWatch) -> None:
    """The body of the block raises, perhaps while the run is failing too."""
    with contextlib.suppress(ZeroDivisionError):
        await watch.read(reading=Reading(pause=0.1, leave_after=14), body_error=ZeroDivisionError("the body's own"))


async def two_readers(watch: AgentWatch) -> None:
    """A second reader that falls behind, and leaves after a while."""

    async def second(stream: Any) -> None:
        async with stream.subscribe(max_buffered=2) as own:
            async for _ in own:
                await trio.sleep(1.5)
                break

    await watch.read(beside=second)


async def late_observer(watch: AgentWatch) -> None:
    """An agent that nobody observed when its run began."""
    watch.run.is_unrecorded = True
    agent = Agent(ScriptedModel(["a", Wait(0.1), "b"]))
    seen: list[str] = []

    async def subscribe() -> None:
        await trio.sleep(0.05)
        agent.subscribe(lambda event: seen.append(event.type))

    try:
        await run_beside(agent.prompt("not recorded"), subscribe)
    finally:
        if trio.current_time() > 0.05 and seen[-1:] != ["agent_end"]:
            watch.problem("G14", f"an observer that came during the run saw {seen}")


async def two_waiters(watch: AgentWatch) -> None:
    """Two tasks that each want the next run as soon as the agent is idle."""
    watch.run.is_unrecorded = True
    agent = watch.known()

    async def wait() -> None:
        await trio.sleep(0.1)
        await agent.wait_idle()
        if agent.state.is_running:
            watch.problem("G8", "wait_idle() returned while a run was active")
            return
        await agent.prompt("and now I")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ObserverWarning)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await agent.prompt("first")  # not recorded: what follows would be taken for a part of it


async def resumed_while_running(watch: AgentWatch) -> None:
    """Another task tries to resume at every step, and is refused."""
    agent = watch.known()

    async def try_to_resume() -> None:
        while not watch.run.ended:
            try:
                await agent.resume()
            except (AgentBusyError, NothingToResumeError):
                await trio.sleep(0.01)

    await run_beside(watch.prompt(), try_to_resume)


async def withdrawing(watch: AgentWatch) -> None:
    """What was queued is taken back in the middle of the run."""

    async def later() -> None:
        receipts = [watch.submit("steer"), watch.submit("follow_up"), watch.submit("follow_up")]
        await trio.sleep(0.2)
        for receipt in receipts[1:]:
            watch.withdraw(receipt)

    await run_beside(watch.prompt(), later)
