"""From a `Tool` to a `Tool`: what is about every tool and none of the loop's business.

Each wrapper is a function; put several around one another: ``with_timeout(with_retries(fetch), 60)``.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec
import trio

from trio_agent import Tool, ToolContext, ToolError, ToolResult

__all__ = ["AuditRecord", "with_audit", "with_cache", "with_retries", "with_timeout"]

_MISSING: Final = object()


def with_timeout(tool: Tool, seconds: float) -> Tool:
    """The tool with a bound on the time of each call; a smaller one that it has stays.

    A call that is cut gets an error result that says so. A tool that is atomic has the agent's ``abort_grace`` beyond
    it, as with any `Tool.timeout`.

    Args:
        seconds: on trio's clock, from the start of the tool.

    Raises:
        ValueError: it is not a positive number.
    """
    own = _checked(tool).timeout
    return attrs.evolve(tool, timeout=seconds if own is None else min(own, seconds))


def with_retries(
    tool: Tool,
    attempts: int = 3,
    *,
    on: type[Exception] | tuple[type[Exception], ...] = Exception,
    delay: float = 1.0,
    max_delay: float = 30.0,
) -> Tool:
    """The tool, tried again when it raises. Only for tools that may run twice.

    A `ToolError` is never retried: it is what the tool has to say. Nor is a cancellation; waiting for the next attempt
    is a checkpoint. Each failed attempt is reported as progress, and the last error is the call's, with a note of how
    often it was tried. If the tool has a ``timeout`` it bounds each attempt; that of an atomic tool bounds them all.

    Args:
        attempts: how often it is tried at most, at least once.
        on: which errors are worth another attempt; of a group, all must be.
        delay, max_delay: seconds before the second attempt, doubled for each further one, up to a bound.

    Raises:
        ValueError: a number is out of its range.
    """
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"with_retries: attempts must be a whole number of at least 1, not {attempts!r}")
    if not 0 <= delay <= max_delay:
        raise ValueError(f"with_retries: delay must be from 0 to max_delay seconds, not {delay!r}")
    per_attempt = None if _checked(tool).atomic else tool.timeout

    async def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
        for attempt in range(1, attempts + 1):
            try:
                return await _within(per_attempt, tool, arguments, context)
            except (Exception, BaseExceptionGroup) as error:
                if attempt == attempts and attempts > 1:
                    error.add_note(f"tried {attempts} times")
                if attempt == attempts or not _all_are(error, on):
                    raise
                seconds = min(delay * 2 ** (attempt - 1), max_delay)
                what = f"{type(error).__name__}: {error}"
                context.update(f"Attempt {attempt} of {attempts} failed ({what}); again in {seconds:g} s.")
            await trio.sleep(seconds)
        raise AssertionError("the last attempt returns or raises")

    return attrs.evolve(tool, execute=execute, timeout=None if per_attempt is not None else tool.timeout)


async def _within(seconds: float | None, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
    # what a failed attempt did to the dict is not the next one's; what is inside belongs to the tool's own values
    fresh = dict(arguments)
    if seconds is None:
        return await tool.execute(fresh, context)
    value: Any = _MISSING
    with trio.move_on_after(seconds):
        value = await tool.execute(fresh, context)
    if value is _MISSING:
        raise trio.TooSlowError(f"Timed out after {seconds} seconds; its effects are unknown.")
    return value


def _all_are(error: BaseException, kinds: type[Exception] | tuple[type[Exception], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_all_are(part, kinds) for part in error.exceptions)
    return isinstance(error, kinds) and not isinstance(error, ToolError)


def with_cache(tool: Tool, *, max_entries: int = 128) -> Tool:
    """The tool, run once for the same arguments. Only for tools whose answer does not change.

    What it returned is kept for the life of the wrapped tool, the least recently used forgotten first. Errors are not
    kept: neither what it raised, nor a `ToolResult` that is one, nor anything of a call that was cut. Of equal calls
    at one time one runs and the others wait for it; should it fail or be cut, the next one runs.

    Args:
        max_entries: how many answers are kept.

    Raises:
        ValueError: it is not a whole number of at least 1.
    """
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
        raise ValueError(f"with_cache: max_entries must be a whole number of at least 1, not {max_entries!r}")
    kept: OrderedDict[bytes, Any] = OrderedDict()
    running: dict[bytes, tuple[trio.Lock, list[None]]] = {}

    async def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
        try:
            key = msgspec.json.encode(arguments, order="deterministic")
        except (TypeError, ValueError):
            return await inner.execute(arguments, context)  # no text says what they are
        lock, users = running.setdefault(key, (trio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                if key not in kept:
                    value = await inner.execute(arguments, context)
                    if isinstance(value, ToolResult) and value.is_error:
                        return value
                    kept[key] = value
                kept.move_to_end(key)
                while len(kept) > max_entries:
                    kept.popitem(last=False)
                return kept[key]
        finally:
            users.pop()
            if not users:
                del running[key]

    inner = _checked(tool)
    return attrs.evolve(tool, execute=execute)


@attrs.frozen
class AuditRecord:
    """One line of an audit.

    Attributes:
        phase: ``begun``: the tool is about to run, in this very step. ``returned``, ``raised``: it has ended.
            ``cut``: an abort, a cancellation or its timeout ended it, and its effects are unknown.
        tool_call_id, tool_name, arguments: which call; the arguments are those that the tool got.
        value: what it returned.
        error: what it raised, or what cut it.
        seconds: on trio's clock, since it began.
    """

    phase: Literal["begun", "returned", "raised", "cut"]
    tool_call_id: str
    tool_name: str
    arguments: Mapping[str, Any] = attrs.field(repr=False)
    value: Any = attrs.field(default=None, repr=False)
    error: BaseException | None = None
    seconds: float = 0.0


Log: TypeAlias = Callable[[AuditRecord], object]


def with_audit(tool: Tool, log: Log) -> Tool:
    """The tool, with a record of every call before it runs and after it has ended, on every path.

    Calls that never run (refused, blocked, skipped) are not its business: the run's events tell of them. Should
    ``log`` raise before the tool runs, it does not run, and the call fails with that error: nothing is done that is
    not on record. Should it raise afterwards, the call fails with it too, though the tool has done its work.

    Args:
        log: called with each `AuditRecord`, in the task of the tool; sync, so that no cancellation can come between
            a tool's return and its record.

    Raises:
        TypeError: ``log`` is not a sync callable.
    """
    if not callable(log):
        raise TypeError(f"with_audit: log must be a sync callable(record), not {log!r}")
    inner = _checked(tool)

    async def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
        began = trio.current_time()
        given = dict(arguments)

        def note(phase: Literal["begun", "returned", "raised", "cut"], **what: Any) -> None:
            seconds = trio.current_time() - began
            log(AuditRecord(phase, context.tool_call_id, tool.name, given, seconds=seconds, **what))

        note("begun")
        try:
            value = await inner.execute(arguments, context)
        except BaseException as error:
            note("cut" if _is_cut(error) else "raised", error=error)
            raise
        note("returned", value=value)
        return value

    return attrs.evolve(tool, execute=execute)


def _is_cut(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_cut(part) for part in error.exceptions)
    return isinstance(error, trio.Cancelled)


def _checked(tool: Tool) -> Tool:
    if not isinstance(tool, Tool):
        raise TypeError(f"expected a Tool, not {type(tool).__name__}; decorate the function with @tool")
    return tool
