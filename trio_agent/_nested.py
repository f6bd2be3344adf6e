"""An agent as a tool: a run inside a tool call of another run."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import msgspec
import trio

from ._arguments import Converter
from ._budget import Budget
from ._config import RunSettings
from ._context import to_messages
from ._drive import drive, open_output, open_scope
from ._errors import ToolError
from ._events import AgentEvent
from ._guard import Guard
from ._messages import Message, ToolCall, ToolResult, Usage
from ._parameters import parameters_of
from ._queues import MessageQueue
from ._record import RunRecord
from ._result import RunResult
from ._run import Inbox, Run
from ._scopes import say
from ._stream import EventSink
from .abc import Tool, ToolContext

__all__ = ["nested_tool"]

Snapshot: TypeAlias = Callable[[], tuple[RunSettings, tuple[Message, ...]]]


@attrs.frozen
class _OuterCall:
    """The call of the outer run that a nested run is."""

    run: Run
    call: ToolCall

    def tell(self, event: AgentEvent) -> None:
        """One event of the nested run, for the outer one's readers and observers."""
        self.run.record.tell_nested(self.call, event)

    def spend(self, usage: Usage) -> None:
        """Tokens of the nested run are the outer one's, from the step in which they are known."""
        self.run.record.add_usage(usage)

    async def room(self) -> None:
        """The nested run waits for the outer one's readers."""
        await self.run.record.room()


def _ask(prompt: str) -> str:
    """Ask.

    Args:
        prompt: What the agent is to do, with all it needs to know: it sees nothing else of this conversation.
    """
    return prompt


def nested_tool(
    snapshot: Snapshot,
    *,
    name: str,
    description: str,
    prompt: Callable[..., Any] | None,
    output: Any,
    timeout: float | None,
    sequential: bool,
) -> Tool:
    """See `Agent.as_tool`; ``snapshot`` gives the settings and the transcript that a call starts from."""
    if prompt is not None and not callable(prompt):
        raise TypeError(f"as_tool: prompt must be a typed function that returns the prompt, not {prompt!r}")
    asking: Callable[..., Any] = prompt if prompt is not None else _ask
    parameters = parameters_of(asking, name)

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        asked = asking(**arguments, **dict.fromkeys(parameters.contexts, context))
        messages = to_messages(await asked if inspect.isawaitable(asked) else asked, "prompt")
        return _to_tool_result(await _run_nested(*snapshot(), messages, context, output), name)

    return Tool(
        name,
        description,
        parameters.schema,
        execute,
        timeout=timeout,
        sequential=sequential,
        validate=Converter(parameters.struct),
    )


@trio.lowlevel.enable_ki_protection
async def _run_nested(
    settings: RunSettings,
    transcript: tuple[Message, ...],
    prompts: tuple[Message, ...],
    context: ToolContext,
    output: Any,
) -> RunResult[Any]:
    outer = _outer_call(context)
    config = attrs.evolve(settings.config)
    if config.deps is None:
        config.deps = context.deps
    if outer is not None:
        # what must be over when the outer run's grace is over cannot have a longer one
        config.abort_grace = min(config.abort_grace, outer.run.grace)
    tools = dict(settings.tools)
    steering, follow_ups = MessageQueue(), MessageQueue()
    record = RunRecord(
        list(transcript),
        EventSink(),
        steering=steering,
        follow_ups=follow_ups,
        output=open_output(output, tools),
        outer=outer,
    )
    budget = Budget(config.all_limits, record, None if outer is None else outer.run.budget)
    run = Run(
        record,
        RunSettings(config, settings.system_prompt, tools),
        Inbox(steering),
        Inbox(follow_ups),
        open_scope(None),
        budget,
    )
    record.begin(prompts)
    await drive(run, Guard(run))
    assert record.result is not None  # drive() seals on every path
    return record.result


def _outer_call(context: ToolContext) -> _OuterCall | None:
    run = context._run
    if not isinstance(run, Run) or context.tool_call_id not in run.running:
        return None
    return _OuterCall(run, run.running[context.tool_call_id][0])


def _to_tool_result(result: RunResult[Any], name: str) -> ToolResult:
    if result.outcome != "completed":
        why = result.limit if result.outcome == "limit" else result.abort_reason
        reason = say(result.error) if result.error is not None else why
        raise ToolError(f"The agent {name!r} ended with outcome {result.outcome!r}{f': {reason}' if reason else ''}")
    text = result.text if result.output is None else msgspec.json.encode(result.output).decode()
    return ToolResult(text, details=result)
