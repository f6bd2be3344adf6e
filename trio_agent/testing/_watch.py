"""`AgentWatch`: an agent whose model, tools and hooks are watched, in a scenario that a sweep can disturb."""

import warnings
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from trio_agent import (
    Agent,
    AgentEvent,
    EventStream,
    Model,
    ObserverWarning,
    Outcome,
    Receipt,
    RunResult,
    Tool,
    ToolContext,
    event_to_dict,
)

from ._probe import Probe
from ._reading import Reading
from ._recorded import Act, RecordedRun
from ._scripted import ScriptedModel
from ._watched import WatchedModel, watched_hook, watched_tool

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

PATIENT = Reading()

_HOOKS = ("transform_context", "convert_to_llm", "before_tool_call", "after_tool_call")


class AgentWatch:
    """Makes an agent whose every effect is noted, and registers the actions of `AGENT_ACTIONS`.

    In a scenario: ``watch = AgentWatch(probe)``, then ``agent = watch.agent(model, tools=[...])`` with the arguments
    of `Agent`, then ``await watch.prompt("...")`` or ``await watch.read("...")`` once. When the scenario has ended
    the agent is used once more, to see that it still can be. ``watch.run`` is the recorded run, for the guarantees.

    Args:
        probe: the scenario's.
        unendable: something in the scenario shields itself for ever, so nothing is promised about when it ends.
        strict: warnings are errors in it.
    """

    def __init__(self, probe: Probe, *, unendable: bool = False, strict: bool = False) -> None:
        self.run = RecordedRun()
        self._probe = probe
        self._unendable = unendable
        self._strict = strict
        self._agent: Agent | None = None
        self.raises_on_tool_error = False
        self.running: dict[str, trio.CancelScope] = {}
        self.returned: list[ToolContext] = []
        self._timed_inside: dict[str, float] = {}
        self._leave = trio.CancelScope()
        self.reads = False
        self.stops_reading = False
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
                settings[name] = watched_hook(name, settings[name], self)
        self.raises_on_tool_error = settings.get("on_tool_error") == "raise"
        agent = Agent(WatchedModel(model, self), tools=[watched_tool(tool, self) for tool in tools], **settings)
        self.run.atomic = frozenset(tool.name for tool in tools if tool.atomic)
        own = {tool.name: tool.timeout for tool in tools if tool.timeout is not None}
        self.run.timed = own | self._timed_inside
        self.run.grace = None if self._unendable else settings.get("abort_grace", 5.0)
        self.run.bound = settings.get("max_buffered_events", 1024)
        self._agent = agent
        agent.subscribe(self._observe)
        self._probe.afterwards(self._use_again)
        return agent

    def nested(
        self, name: str, model: Model, *, tools: Iterable[Tool] = (), timeout: float | None = None, **settings: Any
    ) -> Tool:
        """An agent with these arguments as a tool, whose model and tools are watched as well.

        Args:
            tools: their names, and the ids of their calls, must not be used elsewhere in the scenario if there is a
                ``timeout``: it cuts them, and that is nobody's fault.
        """
        tools = tuple(tools)
        inner = Agent(
            WatchedModel(model, self, is_nested=True),
            tools=[watched_tool(tool, self, is_nested=True) for tool in tools],
            **settings,
        )
        if timeout is not None:
            self._timed_inside |= {tool.name: timeout for tool in tools}
        return inner.as_tool(name, "A nested agent.", timeout=timeout)

    def note(self, kind: str, data: Any = None) -> None:
        """Add to the log, which is the trace's and the run's."""
        self._probe.note(kind, data)
        if not self.run.finished:  # what comes later is not this run's
            self.run.log.append(self._probe.trace.notes[-1])

    def cause(self, outcome: Outcome) -> None:
        """Note that the outcome is decided here, unless it was before."""
        self.note("cause", outcome)

    def _observe(self, event: AgentEvent) -> None:
        self.note("event", event)
        self.run.snapshots.append((event, event_to_dict(event)))
        for context in tuple(self.returned):
            if context.update("late"):
                # once is enough: each one that is accepted is an event of its own
                self.returned.remove(context)
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
            "jump_then_abort": self._jump_then_abort,
            "abort_then_cancel": lambda: (self.abort(), self._cancel())[0],
            "cancel_then_abort": lambda: (self._cancel(), self.abort())[1],
        }

    def known(self) -> Agent:
        """The agent that was made."""
        if self._agent is None:
            raise RuntimeError("the scenario has no agent yet; make it with watch.agent(...)")
        return self._agent

    def abort(self) -> bool:
        """`Agent.abort`, noted."""
        accepted = self.known().abort("injected")
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
        agent = self.known()
        self._queued += 1
        receipt = (agent.steer if how == "steer" else agent.follow_up)(f"{how} {self._queued}")
        if not self.run.ended:  # what is queued afterwards is not this run's
            (self.run.submitted_steering if how == "steer" else self.run.submitted_follow_ups).append(receipt)
        self.note("act", Act(how))
        return receipt

    def _jump_then_abort(self) -> bool:
        # a step that lasts beyond a deadline of which trio cannot know yet
        self._probe.clock.jump(5)
        return self.abort()

    def _reader_leaves(self) -> None:
        self._require_reader()
        self._leave.cancel()

    def _reader_stops(self) -> None:
        self._require_reader()
        self.stops_reading = True

    def _require_reader(self) -> None:
        if not self.reads:
            raise RuntimeError("nobody reads")

    def _observer_raises(self) -> None:
        def raising(event: AgentEvent) -> None:
            self.run.raising += not self.run.ended
            raise LookupError("injected")

        self.known().subscribe(raising)

    def _tool_raises(self) -> None:
        if not self.running:
            raise RuntimeError("no tool runs")
        next(reversed(self.running.values())).cancel()  # the innermost

    # running it -----------------------------------------------------------------------------------------------------

    def withdraw(self, receipt: Receipt) -> None:
        """`Receipt.withdraw`, noted."""
        taken_back = receipt.withdraw()
        self.note("act", Act("withdraw", taken_back))
        if taken_back:
            self.run.withdrawn.append(receipt)

    def point(self, label: str) -> None:
        """`Probe.point`."""
        self._probe.point(label)

    def problem(self, guarantee: str, text: str) -> None:
        """Note that a guarantee was seen broken, by something that only the scenario can see."""
        self.note("problem", (guarantee, text))

    async def prompt(self, prompts: Any = "go", **settings: Any) -> RunResult | None:
        """``agent.prompt``, recorded. What it raises is raised."""
        if "output" in settings:
            self.run.output_tool = "final_result"
        return await self._recorded(lambda: self.known().prompt(prompts, **settings), settings.get("timeout"))

    async def resume(self, **settings: Any) -> RunResult | None:
        """``agent.resume``, recorded."""
        return await self._recorded(lambda: self.known().resume(**settings), settings.get("timeout"))

    async def read(
        self,
        prompts: Any = "go",
        *,
        body_error: Exception | None = None,
        reading: Reading = PATIENT,
        beside: Callable[[EventStream[AgentEvent, RunResult]], Awaitable[object]] | None = None,
        **settings: Any,
    ) -> RunResult | None:
        """``async with agent.run(...)``, read and recorded.

        Args:
            reading: how the events are read.
            body_error: what the block raises when it has read.
            beside: a task beside the reader, with the run's stream.
        """

        async def block() -> RunResult | None:
            result = None
            async with self.known().run(prompts, **settings) as stream:
                try:
                    with self._leave:
                        self.reads = True
                        await self._read(stream, reading, beside)
                finally:
                    self.reads = False
                    self.note("left")
                    if self.run.end is None:
                        self.cause("aborted")
                if body_error is not None and not self._leave.cancelled_caught:
                    self.run.body_error = body_error
                    raise body_error
                if self.run.end is not None:
                    result = await stream.result()
            return result

        return await self._recorded(block, settings.get("timeout"))

    async def _read(
        self,
        stream: EventStream[AgentEvent, RunResult],
        reading: Reading,
        beside: Callable[[EventStream[AgentEvent, RunResult]], Awaitable[object]] | None,
    ) -> None:
        if beside is None:
            await reading.read(self, stream)
            return
        self.run.has_body_nursery = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beside, stream)
            await reading.read(self, stream)

    async def _recorded(
        self, call: Callable[[], Awaitable[RunResult | None]], timeout: float | None
    ) -> RunResult | None:
        run, agent = self.run, self.known()
        if run.begun:
            raise RuntimeError("an AgentWatch records one run; make a second watch for a second one")
        # behind whatever observers the scenario has: what one of them does must not cost the next one an event
        agent.subscribe(run.seen_by_second.append)
        run.first = len(agent.messages)
        run.deadline = None if timeout is None else trio.current_time() + timeout
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("error" if self._strict else "always", ObserverWarning)
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
                if self._strict:
                    run.warned = run.raising if _tells_of_observers(run.raised) else 0
                self._look()
        await trio.lowlevel.checkpoint()
        run.finished = True
        return run.result

    def _look(self) -> None:
        """What the run has left, at the moment at which the caller has control again."""
        run, agent = self.run, self.known()
        state = agent.state
        run.ended = not state.is_running
        run.messages = agent.messages
        receipts = (*run.submitted_steering, *run.submitted_follow_ups)
        run.delivered = [receipt.message for receipt in receipts if receipt.delivered]
        run.left_steering, run.left_follow_ups = state.queued_steering, state.queued_follow_ups
        interrupts = [fired.time for fired in self._probe.trace.fired if fired.action == "interrupt"]
        run.interrupted, run.interrupted_at = bool(interrupts), interrupts[0] if interrupts else None
        jumps = {"clock_jump": self._probe.jump, "jump_then_abort": 5.0}
        run.jumped = sum(jumps.get(fired.action, 0.0) for fired in self._probe.trace.fired)
        run.burst = 8 + 5 * max([len(getattr(m, "tool_calls", ())) for m in run.messages] or [0])
        # sealing the outer run seals those that are nested in it, in the same step
        run.burst += sum(8 + 5 * sum(e.type == "tool_execution_start" for e in part) for part in run.nested.values())

    async def _use_again(self) -> None:
        """A second run, with a model that just answers: is the agent still good, and was nothing lost?"""
        run, agent = self.run, self.known()
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
        receipts = (*run.submitted_steering, *run.submitted_follow_ups)
        waiting = [receipt for receipt in receipts if not receipt.delivered and receipt not in run.withdrawn]
        run.undelivered_again = tuple(receipt.message for receipt in waiting)


def _tells_of_observers(error: BaseException | None) -> bool:
    notes = getattr(error, "__notes__", ())
    return isinstance(error, ObserverWarning) or any("an observer raised" in note for note in notes)
