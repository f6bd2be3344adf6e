"""Small laws about cancellation, interrupts and exceptions that the engine and the hall share.

The loop's own code is protected against KeyboardInterrupt, so that Ctrl-C cannot tear its books; the embedder's
code (tools, models, hooks, observers) is not, so that Ctrl-C stays effective in a busy tool. Every call from one
side to the other goes through `call_sync`, `call` or `run_unprotected`.
"""

import dis
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

import trio

__all__ = [
    "bare",
    "call",
    "call_sync",
    "is_cancelled",
    "leaves",
    "own_error",
    "raise_bare",
    "run_unprotected",
    "say",
    "was_called",
]

T = TypeVar("T")


@trio.lowlevel.disable_ki_protection
def call_sync(function: Callable[..., T], *args: Any) -> T:
    """Call the embedder's sync code with KeyboardInterrupt enabled."""
    return function(*args)


_CALL: Final = min(i.offset for i in dis.get_instructions(call_sync) if i.opname.startswith("CALL"))


def was_called(interrupt: BaseException) -> bool:
    """Had `call_sync` come to its call when this interrupt fell into it? If not, its function knows of nothing."""
    traceback = interrupt.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not call_sync.__code__:
        traceback = traceback.tb_next
    return traceback is None or traceback.tb_lasti >= _CALL


@trio.lowlevel.disable_ki_protection
async def run_unprotected(function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await the embedder's async code with KeyboardInterrupt enabled."""
    return await function(*args)


@trio.lowlevel.disable_ki_protection
async def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call the embedder's code, sync or async, with KeyboardInterrupt enabled."""
    # in one line: an interrupt between the call and the await would leave a coroutine that was never awaited
    return await value if inspect.isawaitable(value := function(*args)) else value


def is_cancelled() -> bool:
    """Is the current task inside a cancelled scope? Tells a real `trio.Cancelled` from a stale one."""
    return trio.current_effective_deadline() == -math.inf


def say(error: BaseException) -> str:
    """An exception's text, or its type's name; never raises, as a ``__str__`` may."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001
        return f"{type(error).__name__} (its text cannot be shown)"


def own_error(error: BaseException) -> BaseException:
    """The embedder's error as it is; a stale `trio.Cancelled`, which no cancelled scope explains, as a RuntimeError.

    trio takes any Cancelled for its own. One that was kept from elsewhere would end nurseries in silence.
    """
    if is_cancelled() or not all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
        return error
    foreign = RuntimeError("a hook or a model raised a cancellation that nobody had asked for")
    foreign.__cause__ = error
    return foreign


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however nested; the exception itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def bare(error: BaseException) -> BaseException:
    """The one exception that the embedder is to see for what may be a group.

    An interrupt first, then an error, then `trio.Cancelled`. What else was in the group is kept as notes.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = list(leaves(error))
    # sorted() is stable: among equals the first one stands
    ranked = sorted(inner, key=lambda e: 2 if isinstance(e, trio.Cancelled) else int(isinstance(e, Exception)))
    chosen = ranked[0]
    for other in ranked[1:]:
        note = f"also raised: {type(other).__name__}: {say(other)}"
        if not isinstance(other, trio.Cancelled) and note not in getattr(chosen, "__notes__", ()):
            chosen.add_note(note)
    return chosen


def raise_bare(error: BaseException) -> NoReturn:
    """Raise what `bare` chooses; its own cause stays."""
    chosen = bare(error)
    raise chosen from chosen.__cause__
