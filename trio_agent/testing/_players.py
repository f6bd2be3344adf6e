"""Tools and models for the built-in scenarios, each with one thing about it that a cancellation can go wrong with."""

from typing import Final

import trio

from trio_agent import MessageWriter, ModelRequest, ToolContext, tool

from ._scripted import ScriptedModel

__all__ = [
    "TOOLS",
    "CleaningModel",
    "FragmentModel",
    "chatty",
    "cleaning",
    "failing",
    "grouping",
    "late",
    "patient",
    "quick",
    "reporting",
    "stale",
    "stubborn",
    "timed",
    "timed_cleanup",
    "transfer",
    "work",
]

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
async def timed_cleanup() -> str:
    """Is cut by its own timeout, and raises an error of its own while it is."""
    try:
        await trio.sleep(2)
    except trio.Cancelled:
        raise OSError("cleanup failed") from None
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


@tool(atomic=True, timeout=0.3)
async def patient(seconds: float = 0.5) -> str:
    """Must not be torn, and takes longer than its timeout."""
    await trio.sleep(seconds)
    return "patient"


@tool
async def chatty(context: ToolContext) -> str:
    """Reports far more progress than anybody reads."""
    for number in range(60):
        context.update(f"part {number}")
    await trio.sleep(0.1)
    return "chatty"


TOOLS: Final = (
    work,
    transfer,
    quick,
    failing,
    grouping,
    cleaning,
    stale,
    stubborn,
    timed,
    timed_cleanup,
    late,
    reporting,
    patient,
    chatty,
)

# models ---------------------------------------------------------------------------------------------------------------


class CleaningModel(ScriptedModel):
    """A model that raises an error of its own while it is being cut."""

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """The script's response."""
        try:
            await super().stream(request, out)
        except trio.Cancelled:
            raise OSError("the connection could not be closed") from None


class FragmentModel:
    """A model that sends the arguments of a call in many small pieces; then it answers."""

    name = provider = "fragments"

    def __init__(self) -> None:
        self._requests = 0

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """One call in pieces, or the answer."""
        self._requests += 1
        if self._requests > 1:
            await out.text("end")
            return
        await out.tool_call_start("1-quick", "quick")
        for piece in ("{", *[" "] * 40, "}"):
            await out.tool_call_delta(piece)
        await out.tool_call_end()
