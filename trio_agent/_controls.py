"""What can be seen of an agent, and what can be said to it while it runs."""

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic

import trio

from ._config import RunSettings, check_model, check_tools
from ._context import to_messages
from ._errors import AgentBusyError
from ._messages import Message
from ._observers import Observers
from ._queues import MessageQueue, QueueMode, Receipt, check_mode
from ._result import AgentState
from ._run import Run
from .abc import Model, Observer, Tool

__all__ = ["AgentControls", "DepsT"]

if TYPE_CHECKING:
    # its default lets a plain Agent stand for any dependencies; typing's own has one from Python 3.13 on
    from typing import Any

    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")


class AgentControls(Generic[DepsT]):
    """`Agent` without the ways to start a run: its state, and its sync controls."""

    def __init__(
        self, settings: RunSettings, messages: list[Message], steering_mode: QueueMode, follow_up_mode: QueueMode
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._steering = MessageQueue(check_mode("steering_mode", steering_mode))
        self._follow_ups = MessageQueue(check_mode("follow_up_mode", follow_up_mode))
        self._observers = Observers()
        self._unseen: list[Receipt] = []
        self._run: Run | None = None
        self._idle = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._last_error: BaseException | None = None

    # what it is -------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript. A copy; change it with `reset`, or make a new agent."""
        return tuple(self._messages)

    @property
    def model(self) -> Model:
        """The model of the next request; may be assigned, also in mid-run."""
        return self._settings.config.model

    @model.setter
    def model(self, model: Model) -> None:
        self._settings.config.model = check_model(model)

    @property
    def system_prompt(self) -> str:
        """The system prompt of the next request; may be assigned, also in mid-run."""
        return self._settings.system_prompt

    @system_prompt.setter
    def system_prompt(self, system_prompt: str) -> None:
        self._settings.system_prompt = system_prompt

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the next request; may be assigned, also in mid-run."""
        return tuple(self._settings.tools.values())

    @tools.setter
    def tools(self, tools: Iterable[Tool]) -> None:
        self._settings.tools = check_tools(tools)

    @property
    def deps(self) -> DepsT:
        """What tools and hooks find in their context; may be assigned, also in mid-run."""
        deps: DepsT = self._settings.config.deps
        return deps

    @deps.setter
    def deps(self, deps: DepsT) -> None:
        self._settings.config.deps = deps

    @property
    def state(self) -> AgentState:
        """A snapshot of what is going on. Costs O(length of the streaming message)."""
        run = self._run
        return AgentState(
            is_running=run is not None,
            is_aborting=run is not None and run.record.cause is not None,
            streaming_message=run.record.streaming_message if run is not None else None,
            pending_tool_calls=tuple(run.record.pending_calls) if run is not None else (),
            queued_steering=self._steering.messages,
            queued_follow_ups=self._follow_ups.messages,
            last_error=self._last_error,
        )

    # while it runs ----------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def steer(self, message: str | Message) -> Receipt:
        """Queue a message that changes the direction of the run. Sync.

        It waits for the running tool, the calls not yet started are skipped, and it goes to the model next. No
        tool is cut. Without a run it waits for the next one.

        Returns:
            A receipt: was it delivered, and the means to take it back.
        """
        return self._steering.put(_one_message(message))

    @trio.lowlevel.enable_ki_protection
    def follow_up(self, message: str | Message) -> Receipt:
        """Queue a message for when the run would otherwise end. Sync; see `steer`."""
        return self._follow_ups.put(_one_message(message))

    @trio.lowlevel.enable_ki_protection
    def abort(self, reason: str | None = None) -> bool:
        """End the run on purpose. Sync; the run is sealed once its tools and its request have been cut.

        Tools are cut at their next checkpoint; an atomic one may use its grace. Queued messages stay queued.

        Returns:
            True iff this call decided the run's outcome: a run was active and nothing had ended it before.
        """
        return self._run is not None and self._run.abort(reason)

    def abort_soon(self, reason: str | None = None) -> bool:
        """`abort` of the run that is active now, from any thread or signal handler. False if none is; True promises
        nothing more than that the request was passed on. A later run is never aborted by it."""
        run = self._run
        return self._soon(lambda: self._run is run and self.abort(reason))

    def steer_soon(self, message: str | Message) -> bool:
        """`steer`, from any thread or signal handler. False, and nothing is queued, if no run is active."""
        checked = _one_message(message)
        return self._soon(lambda: self.steer(checked))

    def _soon(self, action: Callable[[], object]) -> bool:
        token = self._token
        if self._run is None or token is None:
            return False
        try:
            token.run_sync_soon(action)
        except trio.RunFinishedError:
            return False
        return True

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Call ``observer`` with every event of every run from now on, in order, on every path. Sync.

        It cannot harm a run: one that raises is removed, and what it raised is said as an `ObserverWarning` when
        the run has ended.

        Returns:
            A function that removes it again; calling it twice is harmless.

        Raises:
            TypeError: it is not a sync callable.
        """
        if not callable(observer) or inspect.iscoroutinefunction(observer):
            raise TypeError(f"subscribe() takes a sync callable(event), not {observer!r}")

        return self._observers.add(observer)

    async def wait_idle(self) -> None:
        """Wait until no run is active; then a new one may start at once. A checkpoint in any case."""
        await trio.lowlevel.checkpoint()
        while self._run is not None:
            await self._idle.wait()

    @trio.lowlevel.enable_ki_protection
    def reset(self) -> tuple[Message, ...]:
        """Forget the transcript, and withdraw what is queued.

        Returns:
            What no request has had, so that nothing is silently lost: messages taken from a queue into the
            transcript of a run that ended before its request, then queued steering, then queued follow-ups.

        Raises:
            AgentBusyError: a run is active.
        """
        if self._run is not None:
            raise AgentBusyError("a run is active on this agent; await agent.wait_idle() before reset()")
        unseen = tuple([receipt.message for receipt in self._unseen])
        for receipt in self._unseen:
            receipt.forget()
        self._messages.clear()
        self._unseen.clear()
        self._last_error = None
        return (*unseen, *self._steering.clear(), *self._follow_ups.clear())


def _one_message(message: str | Message) -> Message:
    if isinstance(message, list | tuple):
        raise TypeError("message must be one string or one message; call again for each further one")
    return to_messages(message, "message")[0]
