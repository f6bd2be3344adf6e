"""Each guarantee is a function that can say no: a good run is falsified in one place, and exactly that is noticed."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from trio_agent import (
    AgentEnd,
    AssistantMessage,
    Receipt,
    RunResult,
    ToolCall,
    ToolExecutionEnd,
    TurnEnd,
    UserMessage,
)
from trio_agent.testing import (
    GUARANTEES,
    Act,
    AgentWatch,
    Effect,
    Injection,
    Note,
    Plan,
    Probe,
    RecordedRun,
    ScriptedModel,
    check_run,
    guarantees_hold,
    sweep,
)
from trio_agent.testing.scenarios import SCENARIOS


def recorded(name: str = "block", *injections: Injection) -> RecordedRun:
    trace = SCENARIOS[name].run(Plan(injections))
    assert trace.problems == []
    run = trace.data["runs"][0]
    assert isinstance(run, RecordedRun)
    return run


def at_rest(action: str, index: int = 4) -> Injection:
    return Injection("idle", index, action)


def replace(run: RecordedRun, kind: str, change: Callable[[Any], Any], *, which: Callable[[Any], bool]) -> None:
    for index, note in enumerate(run.log):
        if note.kind == kind and which(note.data):
            run.log[index] = attrs.evolve(note, data=change(note.data))
            return
    raise AssertionError(f"there is no such {kind}")


def drop(run: RecordedRun, kind: str, which: Callable[[Any], bool]) -> None:
    index = next(i for i, note in enumerate(run.log) if note.kind == kind and which(note.data))
    del run.log[index]


def append(run: RecordedRun, kind: str, data: Any, *, before_end: bool = False) -> None:
    last = run.log[-1]
    note = Note(last.order + 1, last.step, last.time, kind, data)
    if before_end:
        end = next(i for i, n in enumerate(run.log) if isinstance(n.data, AgentEnd) and n.kind == "event")
        run.log.insert(end, attrs.evolve(note, order=run.log[end].order))
    else:
        run.log.append(note)


def is_end(event: Any) -> bool:
    return isinstance(event, AgentEnd)


def with_outcome(outcome: Any) -> Callable[[Any], Any]:
    return lambda event: attrs.evolve(event, outcome=outcome)


def g1() -> RecordedRun:
    run = recorded()
    drop(run, "event", lambda event: isinstance(event, TurnEnd))
    return run


def g2() -> RecordedRun:
    run = recorded()
    run.messages = tuple(m for m in run.messages if getattr(m, "tool_call_id", "") != "2-transfer")
    return run


def g3_lost() -> RecordedRun:
    run = recorded()
    replace(run, "event", with_outcome("cancelled"), which=lambda e: isinstance(e, ToolExecutionEnd))
    return run


def g3_invented() -> RecordedRun:
    run = recorded()
    run.log = [n for n in run.log if not (n.kind == "effect" and n.data.call_id == "3-quick")]
    return run


def g4() -> RecordedRun:
    run = recorded("sequential", at_rest("abort"))
    append(run, "hook", "before_tool_call")
    return run


def g5() -> RecordedRun:
    run = recorded("sequential", at_rest("abort"))
    append(run, "act", Act("abort", True))
    return run


def g5_false() -> RecordedRun:
    run = recorded("sequential", at_rest("abort"))
    replace(run, "act", lambda act: Act("abort", False), which=lambda act: act.action == "abort")
    return run


def g6() -> RecordedRun:
    run = recorded("sequential", at_rest("cancel"))
    run.finished = True
    return run


def g7_group() -> RecordedRun:
    run = recorded()
    run.raised = ExceptionGroup("two", [ValueError(), KeyError()])
    return run


def g7_cancelled() -> RecordedRun:
    run = recorded()
    cancelled = recorded("sequential", at_rest("cancel")).raised
    assert isinstance(cancelled, trio.Cancelled)
    run.raised = cancelled
    return run


def g8() -> RecordedRun:
    run = recorded()
    run.ended = False
    return run


def g8_again() -> RecordedRun:
    run = recorded()
    run.again = "a second prompt raised AgentBusyError"
    return run


def g9() -> RecordedRun:
    run = recorded()
    run.open_streams = 1
    return run


def g9_tool() -> RecordedRun:
    run = recorded()
    append(run, "effect", Effect("1-work", "work", "returned"))
    return run


def g10() -> RecordedRun:
    run = recorded("sequential", at_rest("steer"))
    run.messages = tuple(m for m in run.messages if not (isinstance(m, UserMessage) and "steer" in m.text))
    return run


def g11() -> RecordedRun:
    run = recorded()
    drop(run, "read", lambda event: event.type == "turn_end")
    return run


def g12() -> RecordedRun:
    run = recorded("small_block")
    run.bound = run.burst = 0
    return run


def g13() -> RecordedRun:
    run = recorded("sequential", at_rest("abort", 5))
    run.atomic = frozenset({"work"})
    return run


def g14() -> RecordedRun:
    run = recorded()
    del run.seen_by_second[3]
    return run


def g15() -> RecordedRun:
    run = recorded()
    event, snapshot = run.snapshots[2]
    run.snapshots[2] = event, {**snapshot, "type": "changed"}
    return run


def g15_late() -> RecordedRun:
    run = recorded()
    append(run, "late", "1-work")
    return run


def g16() -> RecordedRun:
    run = recorded("sequential", at_rest("steer"))
    append(run, "effect", Effect("1-work", "work", "cut"), before_end=True)
    return run


def g17() -> RecordedRun:
    run = recorded("sequential", at_rest("cancel"))
    replace(run, "event", with_outcome("completed"), which=is_end)
    return run


def g18() -> RecordedRun:
    run = recorded()
    run.messages = (*run.messages, AssistantMessage([ToolCall("x", "work")], "aborted"))
    return run


def g19() -> RecordedRun:
    run = recorded("sequential", at_rest("steer"))
    run.log = [note for note in run.log if note.kind != "request"]
    return run


def g20() -> RecordedRun:
    run = recorded()
    run.interrupted = True
    return run


def g21() -> RecordedRun:
    run = recorded("errors")
    replace(run, "effect", lambda e: attrs.evolve(e, value=OSError()), which=lambda e: e.phase == "raised")
    return run


FALSE = {
    "G1": [g1],
    "G2": [g2],
    "G3": [g3_lost, g3_invented],
    "G4": [g4],
    "G5": [g5, g5_false],
    "G6": [g6],
    "G7": [g7_group, g7_cancelled],
    "G8": [g8, g8_again],
    "G9": [g9, g9_tool],
    "G10": [g10],
    "G11": [g11],
    "G12": [g12],
    "G13": [g13],
    "G14": [g14],
    "G15": [g15, g15_late],
    "G16": [g16],
    "G17": [g17],
    "G18": [g18],
    "G19": [g19],
    "G20": [g20],
    "G21": [g21],
}


def test_there_are_twenty_one_and_each_can_say_no() -> None:
    assert list(GUARANTEES) == [f"G{number}" for number in range(1, 22)]
    assert set(FALSE) == set(GUARANTEES)
    assert all(function.__doc__ for function in GUARANTEES.values())


@pytest.mark.parametrize(
    ("name", "falsify"),
    [(name, one) for name, some in FALSE.items() for one in some],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_falsified_run_is_noticed(name: str, falsify: Callable[[], RecordedRun]) -> None:
    run = falsify()
    assert GUARANTEES[name](run) != []
    assert any(problem.startswith(f"{name}: ") for problem in check_run(run))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_does_what_it_is_for_and_breaks_nothing(name: str) -> None:
    run = recorded(name)
    if name in ("two_waiters", "late_observer"):  # judged by what they see themselves
        return
    assert run.events
    assert run.end is not None
    assert isinstance(run.result, RunResult) or run.raised is not None or run.end.outcome == "aborted"


def test_the_scenarios_reach_every_outcome_of_a_run_and_of_a_tool() -> None:
    runs = [recorded(name) for name in SCENARIOS]
    runs += [recorded("sequential", at_rest(action)) for action in ("abort", "cancel", "steer")]
    outcomes = {run.end.outcome for run in runs if run.end is not None}
    assert outcomes == {"completed", "aborted", "error", "limit", "deadline", "cancelled"}
    tools = {end.outcome for run in runs for end in run.tool_ends.values()}
    assert tools == {"completed", "failed", "rejected", "skipped", "cancelled", "not_started"}
    receipts: list[Receipt] = [r for run in runs for r in (*run.submitted_steering, *run.submitted_follow_ups)]
    assert any(receipt.delivered for receipt in receipts)


def test_a_watch_that_is_gone_around_is_noticed() -> None:
    async def around(probe: Probe) -> None:
        agent = AgentWatch(probe).agent(ScriptedModel("text"))
        await agent.prompt("not by the watch")

    async def twice(probe: Probe) -> None:
        watch = AgentWatch(probe)
        watch.agent(ScriptedModel("one", "two"))
        await watch.prompt()
        await watch.prompt()

    assert "nothing was recorded" in sweep(around, [], invariants=[guarantees_hold]).failures[0].problems[0]
    assert "records one run" in sweep(twice, [], invariants=[guarantees_hold]).failures[0].problems[0]
