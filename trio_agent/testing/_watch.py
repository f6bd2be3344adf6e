"""`AgentWatch`: an agent whose model, tools and hooks are watched, in a scenario that a sweep can disturb."""

import warnings
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import attrs
import trio

from trio_agent import (
    Agent,
    AgentEvent,
    EventStream,
    MessageWriter,
    Model,
    ModelRequest,
    ObserverWarning,
    Outcome,
    Receipt,
    RunResult,
    Tool,
    ToolContext,
    ToolError,
    event_to_dict,
)

from ._probe import Probe
from ._recorded import Act, Effect, RecordedRun, is_stale
from ._scripted import ScriptedModel

__all__ = ["AGENT_ACTIONS", "AgentWatch"]

AGENT_ACTIONS = (
    "cancel",
    "abort",
    "steer",
    "follow_up",
    "reader_leaves",
    "reader_stops",
    "observer_raises",
    "tool_raises",
    "clock_jump",
    "abort_then_cancel",
    "cancel_then_abort",
)
"""What can be done to a watched run at any position; besides, ``interrupt`` at every line."""

_HOOKS = ("transform_context", "convert_to_llm", "before_tool_call", "after_tool_call")


class AgentWatch:
    """Makes an agent whose every effect is noted, and registers the actions of `AGENT_ACTIONS`.

    In a scenario: ``watch = AgentWatch(probe)``, then ``agent = watch.agent(model, tools=[...])`` with the arguments
    of `Agent`, then ``await watch.prompt("...")`` or ``await watch.read("...")`` once. When the scenario has ended
    the agent is used once more, to see that it still can be. ``watch.run`` is the recorded run, for the guarantees.

    Args:
        probe: the scenario's.
        unendable: something in the scenario shields itself for ever, so nothing is promised about when it ends.
    """

    def __init__(self, probe: Probe, *, unendable: bool = False) -> None:
        self.run = RecordedRun()
        self._probe = probe
        self._unendable = unendable
        self._agent: Agent | None = None
        self._raises_on_tool_error = False
        self._running: dict[str, trio.CancelScope] = {}
        self._returned: list[ToolContext] = []
        self._leave = trio.CancelScope()
        self._reads = False
        self._stops_reading = False
        self._queued = 0
        probe.count_lines(False)
        probe.data.setdefault("runs", []).append(self.run)
        for name, action in self._actions().items():
            probe.action(name, action)
        if probe.scope.cancel_called:  # before the scenario's first line
            self.note("act", Act("cancel"))
            self.cause("cancelled")

    # the agent ------------------------------------------------------------------------------------------------------

    def agent(self, model: Model, *, tools: Iterable[Tool] = (), **settings: Any) -> Agent:
        """An `Agent` made with these arguments, whose model, tools and hooks are watched."""
        tools = tuple(tools)
        for name in _HOOKS:
            if settings.get(name) is not None:
                settings[name] = self._watched_hook(name, settings[name])
        self._raises_on_tool_error = settings.get("on_tool_error") == "raise"
        agent = Agent(_WatchedModel(model, self), tools=[self._watched_tool(tool) for tool in tools], **settings)
        self.run.atomic = frozenset(tool.name for tool in tools if tool.atomic)
        self.run.timed = frozenset(tool.name for tool in tools if tool.timeout is not None)
        self.run.grace = None if self._unendable else settings.get("abort_grace", 5.0)
        self.run.bound = settings.get("max_buffered_events", 1024)
        self._agent = agent
        agent.subscribe(self._observe)
        agent.subscribe(self.run.seen_by_second.append)
        self._probe.afterwards(self._use_again)
        return agent

    def note(self, kind: str, data: Any = None) -> None:
        """Add to the log, which is the trace's and the run's."""
        self._probe.note(kind, data)
        if not self.run.finished:  # what comes later is not this run's
            self.run.log.append(self._probe.trace.notes[-1])

    def cause(self, outcome: Outcome) -> None:
        """Note that the outcome is decided here, unless it was before."""
        self.note("cause", outcome)

    def _watched_tool(self, tool: Tool) -> Tool:
        async def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
            return await self._execute(tool, arguments, context)

        return attrs.evolve(tool, execute=execute)

    async def _execute(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
        def effect(phase: Any, value: Any = None) -> None:
            self.note("effect", Effect(context.tool_call_id, tool.name, phase, value))

        effect("begun")
        self._probe.point(f"in {tool.name}")
        scope = self._running[context.tool_call_id] = trio.CancelScope()
        try:
            with scope:
                value = await tool.execute(arguments, context)
            if scope.cancelled_caught:
                raise ValueError("injected")
        except (Exception, trio.Cancelled, BaseExceptionGroup) as error:
            own = isinstance(error, Exception) or is_stale(error) or _has_errors(error)
            effect("raised" if own else "cut", error)
            if own and self._raises_on_tool_error and not isinstance(error, ToolError):
                self.cause("error")
            raise
        except BaseException as error:
            effect("interrupted", error)
            raise
        finally:
            del self._running[context.tool_call_id]
        effect("returned", value)
        self._returned.append(context)
        return value

    def _watched_hook(self, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(*args: Any) -> Any:
            self.note("hook", name)
            self._probe.point(name)
            try:
                value = hook(*args)
                return await value if isinstance(value, Awaitable) else value
            except Exception:
                self.cause("error")
                raise

        return watched

    def _observe(self, event: AgentEvent) -> None:
        self.note("event", event)
        self.run.snapshots.append((event, event_to_dict(event)))
        for context in tuple(self._returned):
            if context.update("late"):
                # once is enough: each one that is accepted is an event of its own
                self._returned.remove(context)
                self.note("late", context.tool_call_id)
        self._probe.point(event.type)

    # what can be done to it -----------------------------------------------------------------------------------------

    def _actions(self) -> dict[str, Callable[[], object]]:
        return {
            "cancel": self._cancel,
            "abort": self.abort,
            "steer": lambda: self.submit("steer"),
            "follow_up": lambda: self.submit("follow_up"),
            "reader_leaves": self._reader_leaves,
            "reader_stops": self._reader_stops,
            "observer_raises": self._observer_raises,
            "tool_raises": self._tool_raises,
            "abort_then_cancel": lambda: (self.abort(), self._cancel())[0],
            "cancel_then_abort": lambda: (self._cancel(), self.abort())[1],
        }

    def _known(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("the scenario has no agent yet; make it with watch.agent(...)")
        return self._agent

    def abort(self) -> bool:
        """`Agent.abort`, noted."""
        accepted = self._known().abort("injected")
        self.note("act", Act("abort", accepted))
        if accepted:
            self.cause("aborted")
        return accepted

    def _cancel(self) -> bool:
        # noted first: what is told of the cancellation in this very step comes after it
        self.note("act", Act("cancel"))
        self.cause("cancelled")
        self._probe.scope.cancel("injected")
        return True

    def submit(self, how: str) -> Receipt:
        """Queue one more message, by ``steer`` or ``follow_up``, noted."""
        agent = self._known()
        self._queued += 1
        receipt = (agent.steer if how == "steer" else agent.follow_up)(f"{how} {self._queued}")
        if not self.run.ended:  # what is queued afterwards is not this run's
            (self.run.submitted_steering if how == "steer" else self.run.submitted_follow_ups).append(receipt)
        self.note("act", Act(how))
        return receipt

    def _reader_leaves(self) -> None:
        self._require_reader()
        self._leave.cancel()

    def _reader_stops(self) -> None:
        self._require_reader()
        self._stops_reading = True

    def _require_reader(self) -> None:
        if not self._reads:
            raise RuntimeError("nobody reads")

    def _observer_raises(self) -> None:
        def raising(event: AgentEvent) -> None:
            self.run.raising += not self.run.ended
            raise LookupError("injected")

        self._known().subscribe(raising)

    def _tool_raises(self) -> None:
        if not self._running:
            raise RuntimeError("no tool runs")
        next(iter(self._running.values())).cancel()

    # running it -----------------------------------------------------------------------------------------------------

    async def prompt(self, prompts: Any = "go", **settings: Any) -> RunResult | None:
        """``agent.prompt``, recorded. What it raises is raised."""
        return await self._recorded(lambda: self._known().prompt(prompts, **settings), settings.get("timeout"))

    async def resume(self, **settings: Any) -> RunResult | None:
        """``agent.resume``, recorded."""
        return await self._recorded(lambda: self._known().resume(**settings), settings.get("timeout"))

    async def read(
        self,
        prompts: Any = "go",
        *,
        pause: float = 0.0,
        leave_after: int | None = None,
        body_error: Exception | None = None,
        **settings: Any,
    ) -> RunResult | None:
        """``async with agent.run(...)``, read to the end and recorded.

        Args:
            pause: seconds that the reader takes for each event.
            leave_after: leave the block after so many events; ``body_error``: by raising this.
        """

        async def block() -> RunResult | None:
            result = None
            async with self._known().run(prompts, **settings) as stream:
                try:
                    with self._leave:
                        await self._read(stream, pause, leave_after)
                finally:
                    self._reads = False
                    self.note("left")
                    if self.run.end is None:
                        self.cause("aborted")
                if self.run.end is None and body_error is not None:
                    raise body_error
                if self.run.end is not None:
                    result = await stream.result()
            return result

        return await self._recorded(block, settings.get("timeout"))

    async def _read(self, stream: EventStream[AgentEvent, RunResult], pause: float, leave_after: int | None) -> None:
        taken = 0
        self._reads = True
        self.run.stayed = False
        async for event in stream:
            taken += 1
            self.note("read", event)
            self._probe.point("the reader has an event")
            if taken == leave_after:
                return
            if self._stops_reading:
                await trio.sleep(60)
                return
            if pause:
                await trio.sleep(pause)
        self.run.stayed = True

    async def _recorded(
        self, call: Callable[[], Awaitable[RunResult | None]], timeout: float | None
    ) -> RunResult | None:
        run, agent = self.run, self._known()
        run.first = len(agent.messages)
        run.deadline = None if timeout is None else trio.current_time() + timeout
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run.begun = True
            self._probe.count_lines(True)
            try:
                run.result = await call()
            except BaseException as error:
                run.raised = error
                raise
            finally:
                self._probe.count_lines(False)
                run.warned = sum(isinstance(w.message, ObserverWarning) for w in caught)
                self._look()
        await trio.lowlevel.checkpoint()
        run.finished = True
        return run.result

    def _look(self) -> None:
        """What the run has left, at the moment at which the caller has control again."""
        run, agent = self.run, self._known()
        state = agent.state
        run.ended = not state.is_running
        run.messages = agent.messages
        run.left_steering, run.left_follow_ups = state.queued_steering, state.queued_follow_ups
        run.interrupted = any(fired.action == "interrupt" for fired in self._probe.trace.fired)
        run.burst = 8 + 5 * max([len(getattr(m, "tool_calls", ())) for m in run.messages] or [0])

    async def _use_again(self) -> None:
        """A second run, with a model that just answers: is the agent still good, and was nothing lost?"""
        run, agent = self.run, self._known()
        run.leaked = tuple(self._probe.trace.leaked)
        if agent.state.is_running:
            run.again = "the agent is still running"
            return
        model = ScriptedModel(*["fine"] * (4 + self._queued))
        agent.model, agent.tools = model, ()
        before = tuple(note for note in run.log)
        try:
            with trio.fail_after(1000), warnings.catch_warnings():
                warnings.simplefilter("ignore", ObserverWarning)
                result = await agent.prompt("again")
        except Exception as error:  # noqa: BLE001 - it is what the guarantee is about
            run.again = f"a second prompt raised {type(error).__name__}: {error}"
        else:
            if result.outcome != "completed":
                run.again = f"a second prompt ended with {result.outcome!r}"
        run.log[:] = before
        run.requests_again = tuple(model.requests)
        receipts = (*run.submitted_steering, *run.submitted_follow_ups)
        run.undelivered_again = tuple(receipt.message for receipt in receipts if not receipt.delivered)


class _WatchedModel:
    """A model that notes what it is sent and whether it has ended."""

    def __init__(self, model: Model, watch: AgentWatch) -> None:
        self.name, self.provider = model.name, model.provider
        self._model = model
        self._watch = watch

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """The model's own, noted."""
        watch = self._watch
        watch.note("request", request)
        watch.run.open_streams += 1
        watch._probe.point("a request is sent")
        try:
            await self._model.stream(request, out)
        except Exception:
            watch.cause("error")
            raise
        finally:
            watch.run.open_streams -= 1


def _has_errors(error: BaseException) -> bool:
    if not isinstance(error, BaseExceptionGroup):
        return False
    return error.subgroup(Exception) is not None
