"""The built-in scenarios: small runs of agents, each with something in it that a cancellation can go wrong with.

``SCENARIOS`` maps names to `Scenario` objects; ``python -m trio_agent.testing sweep trio_agent.testing.scenarios:NAME``
sweeps one. All are judged by every guarantee.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import trio

import trio_agent
from trio_agent import ModelError, Thinking, ToolCall, ToolContext, ToolResult, default_convert_to_llm, tool

from ._guarantees import guarantees_hold
from ._probe import Probe
from ._scenario import Scenario
from ._scripted import Fail, ScriptedModel, Stop, Wait
from ._watch import AGENT_ACTIONS, AgentWatch

__all__ = ["INTERRUPTED", "ORDERED", "ORDERED_AND_ENDED", "SCENARIOS", "SMALL"]

# tools ---------------------------------------------------------------------------------------------------------------


@tool
async def work(seconds: float = 0.5) -> str:
    """Works, and can be cut."""
    await trio.sleep(seconds)
    return "worked"


@tool(atomic=True)
async def transfer(seconds: float = 0.5) -> str:
    """Must not be torn."""
    await trio.sleep(seconds)
    await trio.sleep(seconds)
    return "transferred"


@tool
async def quick() -> str:
    """Has no checkpoint at all."""
    return "quick"


@tool
async def failing() -> str:
    """Raises after a while."""
    await trio.sleep(0.2)
    raise ValueError("failing")


@tool
async def grouping() -> str:
    """Raises a group from a nursery of its own."""

    async def child() -> None:
        await trio.sleep(0.1)
        raise KeyError("child")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.sleep(5)
    return "never"


@tool
async def cleaning() -> str:
    """Raises an error of its own while it is being cut."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 5)
        try:
            await trio.sleep(0.5)
        except trio.Cancelled:
            raise OSError("cleanup failed") from None
        nursery.cancel_scope.cancel()
    return "cleaned"


@tool
async def stale() -> str:
    """Raises a Cancelled that it kept from elsewhere."""
    kept: BaseException | None = None
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept = error
    assert kept is not None
    raise kept


@tool
async def stubborn() -> str:
    """Shields itself for a while, whatever is cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(1)
    return "stubborn"


@tool(timeout=0.3)
async def timed() -> str:
    """Is cut by its own timeout."""
    await trio.sleep(2)
    return "never"


@tool(timeout=0.3)
async def late() -> str:
    """Returns after its own timeout, because it does not let itself be cut."""
    with trio.CancelScope(shield=True):
        await trio.sleep(0.5)
    return "late"


@tool
async def reporting(context: ToolContext) -> str:
    """Reports progress as it works."""
    for number in range(3):
        context.update(f"part {number}")
        await trio.sleep(0.1)
    return "reported"


TOOLS: Final = (work, transfer, quick, failing, grouping, cleaning, stale, stubborn, timed, late, reporting)

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
    model: Callable[[], ScriptedModel],
    how: Callable[[AgentWatch], Awaitable[object]] = plain,
    *,
    unendable: bool = False,
    before: Callable[[AgentWatch], object] | None = None,
    **settings: Any,
) -> Callable[[Probe], Awaitable[None]]:
    """A scenario's function: an agent with all the tools, and one run of it."""

    async def run(probe: Probe) -> None:
        watch = AgentWatch(probe, unendable=unendable)
        watch.agent(model(), **{"tools": TOOLS, **settings})
        if before is not None:
            before(watch)
        await how(watch)

    return run


# hooks and ways to read ----------------------------------------------------------------------------------------------


async def transform(messages: Any) -> Any:
    """A context step that takes its time."""
    await trio.sleep(0.05)
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


async def steered_in_the_middle(watch: AgentWatch) -> None:
    """Another task steers while the second tool runs, and again at its end."""
    async with trio.open_nursery() as nursery:

        async def steer() -> None:
            await trio.sleep(0.8)
            watch.submit("steer")
            watch.submit("follow_up")
            await trio.sleep(0.8)
            watch.submit("steer")

        nursery.start_soon(steer)
        try:
            await watch.prompt()
        finally:
            nursery.cancel_scope.cancel()


def racing(
    how: Callable[[AgentWatch], Awaitable[object]], seconds: float, *acts: Callable[[AgentWatch], object]
) -> Callable[[AgentWatch], Awaitable[None]]:
    """Tasks beside the run, one for each act, which all act at one moment: who is first is for the order to decide."""

    async def run(watch: AgentWatch) -> None:
        async with trio.open_nursery() as nursery:

            async def act(what: Callable[[AgentWatch], object]) -> None:
                await trio.sleep(seconds)
                what(watch)

            for what in acts:
                nursery.start_soon(act, what)
            try:
                await how(watch)
            finally:
                nursery.cancel_scope.cancel()

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

    watch._known().subscribe(observer)


ERRORS = calls("failing", "grouping", "stale", "nosuch", "quick")

_FUNCTIONS: Final[Mapping[str, Callable[[Probe], Awaitable[None]]]] = {
    "sequential": make(two_turns),
    "parallel": make(two_turns, tool_execution="parallel"),
    "block": make(two_turns, read),
    "block_parallel": make(two_turns, read, tool_execution="parallel"),
    "small": make(script(["a", *calls("work")], "end")),
    "small_parallel": make(script(calls("work", "quick"), "end"), tool_execution="parallel"),
    "small_block": make(script(["a", *calls("work")], "end"), read, max_buffered_events=4),
    "small_atomic": make(script(calls("transfer"), "end"), abort_grace=0.6),
    "errors": make(script(ERRORS, "end")),
    "errors_parallel": make(script(ERRORS, "end"), read, tool_execution="parallel"),
    "cleanup": make(script(calls("cleaning", "work"), "end")),
    "cleanup_parallel": make(script(calls("cleaning", "transfer", "work"), "end"), tool_execution="parallel"),
    "atomic": make(script([ToolCall("1-long", "transfer", {"seconds": 20}), *calls("work")], "end"), abort_grace=2.0),
    "atomic_parallel": make(
        script([ToolCall("1-long", "transfer", {"seconds": 20}), *calls("work")], "end"),
        abort_grace=2.0,
        tool_execution="parallel",
    ),
    "stubborn": make(script(calls("stubborn", "work"), "end"), abort_grace=2.0),
    "timeouts": make(script(calls("timed", "work", "timed"), "end"), tool_execution="parallel"),
    "late": make(script(calls("late", "work"), "end")),
    "repeated_ids": make(script([ToolCall("0", "quick")], calls("work"), [ToolCall("0", "work")], "end")),
    "progress": make(script(calls("reporting", "quick"), "end"), read, max_buffered_events=6),
    "hooks": make(two_turns, transform_context=transform, before_tool_call=look_first, after_tool_call=look_after),
    "hooks_parallel": make(
        two_turns,
        read,
        transform_context=transform,
        before_tool_call=look_first,
        after_tool_call=look_after,
        tool_execution="parallel",
    ),
    "sync_hooks": make(
        two_turns, convert_to_llm=convert, before_tool_call=look_first_at_once, after_tool_call=look_after_at_once
    ),
    "failing_hook": make(
        script(calls("transfer", "work", "quick"), "end"), after_tool_call=fail_after, tool_execution="parallel"
    ),
    "raising_tool": make(
        script(calls("transfer", "failing", "work"), "end"), on_tool_error="raise", tool_execution="parallel"
    ),
    "steering": make(two_turns, steered_in_the_middle),
    "queues": make(script("one", "two", "three", "four"), before=steer_and_follow),
    "queues_all": make(
        script(calls("work", "work2"), "two", "three"), before=steer_and_follow, follow_up_mode="all", max_turns=2
    ),
    "slow_reader": make(two_turns, lambda watch: watch.read(pause=0.4), max_buffered_events=3),
    "leaving": make(two_turns, lambda watch: watch.read(leave_after=12)),
    "deadline": make(two_turns, lambda watch: watch.prompt(timeout=0.45)),
    "deadline_block": make(two_turns, lambda watch: watch.read(timeout=1.05), tool_execution="parallel"),
    "model_error": make(script(["partial", Wait(0.1), ToolCall("1-x", "work"), Fail(ModelError("529"))])),
    "cut_response": make(script([*calls("work"), "x", Stop("length")], "end")),
    "race_steer": make(script(calls("work", "work"), "a", "b"), racing(plain, 0.5, steer)),
    "race_abort": make(script(calls("work", "quick"), "a", "b"), racing(plain, 0.5, abort, steer)),
    "race_parallel": make(
        script(calls("work", "work"), "a", "b"), racing(plain, 0.5, steer, abort), tool_execution="parallel"
    ),
    "race_block": make(script(calls("work"), "a", "b"), racing(read, 0.5, abort)),
    "race_deadline": make(script(calls("work"), "a", "b"), racing(lambda watch: watch.prompt(timeout=0.5), 0.5, abort)),
    "bad_observer": make(two_turns, before=shout),
}


def _name(name: str) -> str:
    return f"{__name__}:SCENARIOS.{name}"


_READ: Final = ("block", "progress", "slow", "leaving", "errors_parallel", "hooks_parallel")


def _actions(name: str) -> tuple[str, ...]:
    reads = any(word in name for word in _READ)
    return tuple(action for action in AGENT_ACTIONS if reads or not action.startswith("reader"))


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        name: Scenario(
            function, (guarantees_hold,), _name(name), _actions(name), (trio_agent, contextlib), may_leak=True
        )
        for name, function in _FUNCTIONS.items()
    }
)
"""Every built-in scenario by name."""

SMALL: Final = ("small", "small_parallel", "small_block", "small_atomic")
"""Small enough for every pair of actions."""

ORDERED: Final = (
    "small_parallel",
    "small_block",
    "race_steer",
    "race_abort",
    "race_parallel",
    "race_block",
    "race_deadline",
)
"""Those of which every order of the ready tasks is run."""

ORDERED_AND_ENDED: Final = ("race_abort", "race_deadline", "small_parallel")
"""Those which are also cancelled and aborted before every step of every order."""

INTERRUPTED: Final = ("small_block", "sequential", "block_parallel", "errors_parallel")
"""Those that are interrupted at every line."""
