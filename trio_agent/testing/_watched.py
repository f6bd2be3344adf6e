"""A model, tools and hooks that note what they really do."""

import functools
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_agent import MessageWriter, Model, ModelRequest, Tool, ToolContext, ToolError

from ._recorded import Effect
from ._trace import leaves

if TYPE_CHECKING:
    from ._watch import AgentWatch

__all__ = ["WatchedModel", "watched_hook", "watched_tool"]


class WatchedModel:
    """A model that notes what it is sent, and whether it returned or was cut; a nested one decides no outcome."""

    def __init__(self, model: Model, watch: "AgentWatch", *, is_nested: bool = False) -> None:
        self._is_nested = is_nested
        self.name, self.provider = model.name, model.provider
        self._model = model
        self._watch = watch

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """The model's own, noted."""
        watch = self._watch
        watch.note("nested_request" if self._is_nested else "request", request)
        watch.run.open_streams += 1
        watch.point("a request is sent")
        how = "cut"
        try:
            await self._model.stream(request, out)
            how = "returned"
        except Exception:
            if not self._is_nested:
                watch.cause("error")
            raise
        finally:
            watch.run.open_streams -= 1
            if not self._is_nested:
                watch.note("response", how)


def watched_hook(name: str, hook: Callable[..., Any], watch: "AgentWatch") -> Callable[..., Any]:
    """A hook that notes that it is called, and that what it raises decides the outcome."""

    @functools.wraps(hook)  # how many parameters it has decides what it is given
    async def watched(*args: Any) -> Any:
        watch.note("hook", name)
        watch.point(name)
        try:
            value = hook(*args)
            return await value if isinstance(value, Awaitable) else value
        except (Exception, BaseExceptionGroup) as error:
            if _has_errors(error):
                watch.cause("error")
                watch.note("hook_raised", error)
            raise

    return watched


def watched_tool(tool: Tool, watch: "AgentWatch", *, is_nested: bool = False) -> Tool:
    """A tool that notes what becomes of each call, as the tool itself sees it; a nested one ends no run."""

    async def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
        return await _execute(tool, arguments, context, watch, may_end=watch.raises_on_tool_error and not is_nested)

    return attrs.evolve(tool, execute=execute)


async def _execute(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, watch: "AgentWatch", *, may_end: bool
) -> Any:
    def effect(phase: Any, value: Any = None) -> None:
        watch.note("effect", Effect(context.tool_call_id, tool.name, phase, value))

    # before the point below: what is injected there is meant for this tool, not for one around it
    scope = watch.running[context.tool_call_id] = trio.CancelScope()
    try:
        effect("begun")
        watch.point(f"in {tool.name}")
        with scope:
            value = await tool.execute(arguments, context)
        if scope.cancelled_caught:
            raise ValueError("injected")
    except (Exception, trio.Cancelled, BaseExceptionGroup) as error:
        in_cancelled_scope = trio.current_effective_deadline() == -math.inf
        # a Cancelled that no cancelled scope explains is the tool's own
        own = _has_errors(error) or (isinstance(error, trio.Cancelled) and not in_cancelled_scope)
        effect("raised" if own else "cut", error)
        if own and not in_cancelled_scope and may_end and not isinstance(error, ToolError):
            watch.cause("error")
        raise
    except BaseException as error:
        effect("interrupted", error)
        raise
    finally:
        del watch.running[context.tool_call_id]
    effect("returned", value)
    watch.returned.append(context)
    return value


def _has_errors(error: BaseException) -> bool:
    return any(isinstance(leaf, Exception) for leaf in leaves(error))
