"""What stands around the agent of a built-in scenario: nested agents, a person who approves, wrapped tools."""

from collections.abc import Iterable
from typing import Any

import attrs
import trio

from trio_agent import HookContext, Model, ModelError, Tool, ToolCall
from trio_agent.models import fallback, retrying
from trio_agent.tools import approval, with_audit, with_cache, with_retries, with_timeout

from ._cast import calls
from ._players import TOOLS, failing, work
from ._scripted import Fail, ScriptedModel, Wait
from ._watch import AgentWatch

__all__ = ["approve", "ask_deep", "ask_in_time", "ask_one", "ask_two", "asks", "tried_again", "wrapped"]


async def _decide(call: ToolCall, arguments: dict[str, Any]) -> Any:
    await trio.sleep(0.2 if call.name != "quick" else 5)
    return {"transfer": {"seconds": 0.1}, "reporting": "not now"}.get(call.name, True)


_approve = approval(_decide, timeout=0.6)


async def approve(call: ToolCall, arguments: dict[str, Any], context: HookContext) -> Any:
    """Approves, changes, refuses, and is late, by the tool's name."""
    return await _approve(call, arguments, context)


def ask_one(watch: AgentWatch) -> Iterable[Tool]:
    """``ask``: an agent that works, transfers and answers."""
    model = ScriptedModel(["a", *_inside("work", "transfer")], ["b", Wait(0.1)], *["c"] * 4)
    return (watch.nested("ask", model, tools=TOOLS),)


def ask_two(watch: AgentWatch) -> Iterable[Tool]:
    """``ask`` and ``ask2``: the second one runs its tools side by side and fails in the end."""
    model = ScriptedModel([*_inside("quick", "work", mark="z")], [Wait(0.2), Fail(ModelError("529"))], *["c"] * 4)
    return (*ask_one(watch), watch.nested("ask2", model, tools=TOOLS, tool_execution="parallel"))


def ask_deep(watch: AgentWatch) -> Iterable[Tool]:
    """``ask3``: an agent that asks another one."""
    model = ScriptedModel([ToolCall("d", "ask", {"prompt": "x"})], "end", *["c"] * 4)
    return (watch.nested("ask3", model, tools=ask_one(watch)),)


def ask_in_time(watch: AgentWatch) -> Iterable[Tool]:
    """``ask``: an agent that is cut by its own timeout."""
    model = ScriptedModel(["a", *_inside("slow_work")], *["c"] * 4)
    return (watch.nested("ask", model, tools=(attrs.evolve(work, name="slow_work"),), timeout=0.3),)


def _inside(*names: str, mark: str = "n") -> list[ToolCall]:
    """`calls` for a nested agent: their ids are their own."""
    return [attrs.evolve(call, id=f"{mark}{call.id}") for call in calls(*names)]


def asks(*names: str) -> list[ToolCall]:
    """Calls of nested agents and of tools."""
    return [attrs.evolve(call, arguments={"prompt": "x"} if "ask" in call.name else {}) for call in calls(*names)]


def tried_again() -> Model:
    """A model whose requests fail before their first word, twice each time, and one more that is asked then."""
    gone = [Fail(ModelError("gone", retryable=True))]
    first = ScriptedModel(gone, gone, ["a", Wait(0.1), *calls("work")], gone, gone, [Wait(0.1), *gone])
    second = ScriptedModel("end", *["b"] * 6)
    return fallback(retrying(first, 3, delay=0.2, jitter=lambda: 0.0), second)


def wrapped(watch: AgentWatch) -> Iterable[Tool]:
    """Tools with something around them: tried again, bounded, cached, on record."""
    return (
        attrs.evolve(with_retries(failing, 3, delay=0.2), name="retried"),
        attrs.evolve(with_timeout(work, 0.3), name="bounded"),
        attrs.evolve(with_cache(with_audit(work, lambda record: None)), name="cached"),
    )
