"""The loop: two nested ones, written to be read next to section 3 of the specification.

The inner loop runs turns: enter pending messages, ask the model, run its tools, end the turn, look at steering.
The outer loop continues the run with follow-ups. Everything that is decided is recorded by `RunRecord` in the same
step; the awaits in between are the only places where a run can be cancelled, and `drive` seals it there.
"""

from collections.abc import Sequence

import attrs
import trio

from ._calls import run_calls
from ._context import ContextUpdate
from ._errors import ModelError, ModelOutputError
from ._messages import AssistantMessage, Message, Outcome, UserMessage
from ._run import Run
from ._scopes import bare, leaves, own_error, run_unprotected, say
from .abc import ModelRequest

__all__ = ["ask_model", "run_turns"]


async def run_turns(run: Run) -> Outcome:
    """The loop. `RunRecord.begin` has said ``agent_start``, the first ``turn_start`` and the prompts."""
    record, steering, follow_ups = run.record, run.steering.queue, run.follow_ups.queue
    if run.looks_first and await run.look_for_steering():
        record.enter_receipts(steering.take())
    while True:
        while True:
            message = await ask_model(run)
            if message.stop_reason in ("error", "aborted"):
                record.end_turn()
                return "error"
            wants_answer = await run_calls(run, message) or message.stop_reason == "pause"
            record.end_turn()
            if run.truncated > 1:
                record.decide("error", ModelError("two responses in a row were cut off at their length limit"))
                return "error"
            if _output_given_up(run):
                return "error"
            if run.limit is not None and _limit_reached(run):
                return "limit"
            if not (wants_answer or await run.look_for_steering()):
                break
            if _limit_reached(run):
                return "limit"
            await trio.lowlevel.checkpoint_if_cancelled()
            record.begin_turn(steering.take())
        corrections: tuple[Message, ...] = ()
        if not await run.look_for_follow_ups():
            if _has_output(run, message):
                return "completed"
            if _output_given_up(run):
                return "error"
            assert run.output is not None
            corrections = (UserMessage(run.output.correction),)
        if _limit_reached(run):
            return "limit"
        await trio.lowlevel.checkpoint_if_cancelled()
        record.begin_turn(follow_ups.take())
        record.enter(corrections)


def _limit_reached(run: Run) -> bool:
    limit = run.limit or run.budget.before_turn()
    return limit is not None and run.record.decide("limit", limit=limit)


def _has_output(run: Run, message: AssistantMessage) -> bool:
    """The run would end with this message: has it given the value it was to give?"""
    slot = run.output
    if slot is None or slot.is_filled:
        return True
    if slot.tool is not None:
        slot.fail(f"the model ended without calling {slot.tool.name!r}")
        return False
    try:
        slot.fill_from_text(message.text)
    except ValueError:
        return False
    return True


def _output_given_up(run: Run) -> bool:
    slot = run.output
    if slot is None or not slot.is_given_up:
        return False
    tries = "1 try" if slot.failures == 1 else f"{slot.failures} tries"
    return run.record.decide("error", ModelOutputError(f"no valid output after {tries}: {slot.problem}"))


async def ask_model(run: Run) -> AssistantMessage:
    """One request: the context in two steps, then the response, streamed into the record."""
    record, settings = run.record, run.settings
    if run.output is not None:
        run.output.empty()
    await record.room()
    messages: Sequence[Message] = tuple(record.transcript)
    if settings.config.transform_context is not None:
        transformed = await run.ask(settings.config.transform_context, messages)
        if isinstance(transformed, ContextUpdate):
            record.enter(transformed.enter)
            record.add_usage(transformed.usage)
            transformed = transformed.messages
        messages = _sequence(transformed, "transform_context")
    messages = _sequence(await run.ask(settings.config.convert_to_llm, messages), "convert_to_llm")
    await trio.lowlevel.checkpoint_if_cancelled()
    model, request = settings.config.model, _request(run, messages)
    writer = record.begin_response(model)
    try:
        record.observers.raise_interrupt()
        await run_unprotected(model.stream, request, writer)
    except (Exception, trio.Cancelled, BaseExceptionGroup) as error:  # noqa: BLE001
        # a model may have turned its cancellation into an error: then the cancellation is what ends the run
        await trio.lowlevel.checkpoint_if_cancelled()
        return _failed_response(run, own_error(error))
    if writer.stop_reason in ("error", "aborted"):
        await trio.lowlevel.checkpoint_if_cancelled()
        said = f"the model {model.name!r} ended its response with {writer.stop_reason!r}"
        record.decide("error", ModelError(said))
    message = record.end_response()
    run.truncated = run.truncated + 1 if message.stop_reason == "length" and message.tool_calls else 0
    return message


def _request(run: Run, messages: Sequence[Message]) -> ModelRequest:
    settings, slot = run.settings, run.output
    tools, options = tuple(settings.tools.values()), settings.config.options
    if slot is not None:
        slot.check_name(settings.tools)
        tools = tools if slot.tool is None else (*tools, slot.tool)
        options = options if slot.schema is None else attrs.evolve(options, response_schema=slot.schema)
    return ModelRequest(settings.system_prompt, tuple(messages), tools, options)


def _failed_response(run: Run, error: BaseException) -> AssistantMessage:
    """A provider's fault ends the response; anything else is a bug and is raised."""
    failure = bare(error)
    if not all(isinstance(leaf, ModelError) for leaf in leaves(error)):
        raise failure from failure.__cause__
    run.record.decide("error", failure)
    return run.record.end_response("error", say(failure))


def _sequence(value: object, name: str) -> Sequence[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"{name} must return a sequence of messages, not {type(value).__name__}")
    return value
