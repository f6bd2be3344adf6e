"""The kit on plain trio code: it must find what is there, find nothing where nothing is, and do both twice alike."""

import inspect
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trio_agent.testing import (
    Injection,
    Plan,
    Probe,
    Report,
    Scenario,
    Trace,
    UnsupportedTrioError,
    check_determinism,
    check_report,
    explore,
    find_scenario,
    replay,
    run_plan,
    scenario,
    sweep,
    sweep_pairs,
    swept,
)

# a piece of trio code with a fault that shows at one moment only, and the same without it -----------------------------


class Account:
    """Money that must not get lost between two accounts."""

    def __init__(self) -> None:
        self.here, self.there = 10, 0

    async def move_carelessly(self) -> None:
        self.here -= 5
        await trio.sleep(1)
        self.there += 5

    async def move_carefully(self) -> None:
        await trio.sleep(1)
        self.here -= 5
        self.there += 5


def balanced(trace: Trace) -> list[str]:
    account = trace.data.get("account") or Account()
    total = account.here + account.there
    return [] if total == 10 else [f"{total} of 10 are left"]


async def careless(probe: Probe) -> None:
    probe.data["account"] = account = Account()
    await trio.lowlevel.checkpoint()
    await account.move_carelessly()


async def careful(probe: Probe) -> None:
    probe.data["account"] = account = Account()
    await trio.lowlevel.checkpoint()
    await account.move_carefully()


CARELESS = Scenario(careless, (balanced,), f"{__name__}:CARELESS")


def test_a_sweep_finds_the_one_moment_at_which_money_is_lost() -> None:
    report = sweep(CARELESS)
    # asleep, at rest; and when the timer has fired, but sleep() has not yet returned
    names = [failure.token.rpartition("/")[2] for failure in report.failures]
    assert names == ["s3=cancel", "b2=cancel"]
    assert report.failures[0].problems == ("5 of 10 are left",)
    assert report.failures[0].outcome == "cancelled"
    assert not report.ok
    assert report.base is not None
    assert report.runs == 1 + report.base.steps + len(report.base.idles)


def test_a_sweep_finds_nothing_where_nothing_is() -> None:
    report = sweep(careful, invariants=[balanced])
    assert report.ok
    assert report.exhausted
    assert "0 failing" in report.summary()


def test_a_token_shows_the_same_run_again() -> None:
    failure = sweep(CARELESS).failures[0]
    trace = replay(failure.token)
    assert trace.problems == list(failure.problems)
    assert trace.plan == failure.plan
    assert [f.action for f in trace.fired] == ["cancel"]
    assert [span.step for span in trace.timeline] == list(range(1, trace.steps + 1))
    assert any(span.cancelled and span.caught for span in trace.scopes), "the scope around the scenario"


def test_the_three_kinds_of_position() -> None:
    async def run(probe: Probe) -> None:
        probe.action("mark", lambda: probe.note("mark", "asleep" if sleeping else "awake"))
        sleeping = True
        await trio.sleep(1)
        sleeping = False
        probe.point("inside")
        await trio.lowlevel.checkpoint()

    def marks(injection: Injection) -> list[tuple[int, float, str]]:
        trace = run_plan(run, Plan((injection,)))
        return [(note.step, note.time, note.data) for note in trace.notes]

    assert marks(Injection("step", 2, "mark")) == [(2, 1.0, "asleep")], "the timer has fired"
    assert marks(Injection("idle", 1, "mark")) == [(1, 0.0, "asleep")], "everything waits, time has not moved"
    assert marks(Injection("point", 1, "mark")) == [(2, 1.0, "awake")]
    assert run_plan(run, Plan((Injection("point", 9, "mark"),))).fired == []


def test_actions_that_do_not_exist_or_fail_are_told_apart_from_those_that_work() -> None:
    async def run(probe: Probe) -> None:
        def broken() -> None:
            raise LookupError("no")

        probe.action("broken", broken)
        await trio.lowlevel.checkpoint()

    report = sweep(run, ["broken", "clock_jump"], positions=["step"])
    assert [entry.fired for entry in report.entries] == [True, False, False, True, True]
    late = run_plan(run, Plan((Injection("step", 1, "broken"),)))
    assert late.fired[0].problem == "no such action at this moment"
    trace = run_plan(run, Plan((Injection("step", 2, "broken"),)))
    assert trace.fired[0].problem == "raised LookupError: no"
    assert trace.outcome == "returned"


def test_pairs_hit_what_a_single_injection_cannot() -> None:
    """It survives one cancellation, not two."""

    async def run(probe: Probe) -> None:
        probe.data["clean"] = False
        inner = trio.CancelScope()
        probe.action("inner", inner.cancel)
        try:
            with inner:
                await trio.sleep(1)
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()
            if not inner.cancelled_caught:
                probe.data["clean"] = True
            await trio.sleep(1)
            probe.data["clean"] = True

    def clean(trace: Trace) -> list[str]:
        return [] if trace.data["clean"] else ["not cleaned up"]

    assert sweep(run, ["cancel", "inner"], invariants=[clean]).ok
    report = sweep_pairs(run, [("inner", "cancel")], invariants=[clean])
    assert report.failures
    token = report.failures[0].token
    assert "=inner" in token
    assert "=cancel" in token
    assert replay(token, Scenario(run, (clean,))).problems == ["not cleaned up"]


# orders ---------------------------------------------------------------------------------------------------------------


def ready(count: int, rounds: int = 1) -> Any:
    async def run(probe: Probe) -> list[int]:
        order: list[int] = []

        async def child(number: int) -> None:
            for _ in range(rounds):
                order.append(number)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(child, number)
        probe.data["order"] = order
        return order

    return run


@pytest.mark.parametrize(("count", "orders"), [(1, 1), (2, 2), (3, 6), (4, 24)])
def test_every_order_of_one_batch_is_run_once(count: int, orders: int) -> None:
    seen: list[tuple[int, ...]] = []

    def look(trace: Trace) -> list[str]:
        seen.append(tuple(trace.data["order"]))
        return []

    async def run(probe: Probe) -> None:
        order: list[int] = []
        gate = trio.Event()

        async def child(number: int) -> None:
            await gate.wait()
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(child, number)
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
        probe.data["order"] = order

    report = explore(run, invariants=[look])
    assert report.exhausted
    assert len(set(seen)) == orders
    assert report.orders == len(seen)


def test_a_bound_and_a_limit_cut_the_orders_and_say_so() -> None:
    everything = explore(ready(3, 2))
    bounded = explore(ready(3, 2), bound=1)
    assert bounded.orders < everything.orders
    assert bounded.exhausted
    limited = explore(ready(3, 2), limit=5)
    assert limited.runs == 5
    assert not limited.exhausted
    assert "not all" in limited.summary()


def test_trios_own_orders_are_two_for_each_batch() -> None:
    trace = run_plan(ready(4), Plan(order="trio"))
    assert set(trace.arities) == {2}
    assert run_plan(ready(4), Plan(order="trio", choices=((0, 1),))).data["order"] == [3, 2, 1, 0]
    assert run_plan(ready(4)).data["order"] == [0, 1, 2, 3]


def test_a_fault_that_needs_an_order_is_found_by_exploring_and_by_its_token() -> None:
    def first_is_first(trace: Trace) -> list[str]:
        return [] if trace.data["order"][0] == 0 else ["somebody else was first"]

    subject = Scenario(ready(2), (first_is_first,))
    assert sweep(subject).ok or all("cancel" in failure.token for failure in sweep(subject).failures)
    report = explore(subject, stop_at_first=True)
    assert not report.ok
    assert replay(report.failures[0].token, subject).problems == ["somebody else was first"]


def test_orders_and_actions_together() -> None:
    report = explore(ready(2), actions=["cancel"])
    assert report.orders == 4, "who begins, and who ends"
    rows = {entry.row for entry in report.entries}
    assert rows == {("none", "order"), ("cancel", "step")}


# endings --------------------------------------------------------------------------------------------------------------


def test_a_deadlock_is_named_with_the_places_where_it_waits() -> None:
    async def run(probe: Probe) -> None:
        lock = trio.Lock()
        async with lock:
            await trio.Event().wait()

    report = sweep(run, [])
    assert report.entries[0].outcome == "deadlock"
    assert "test_testing_kit.py:" in report.failures[0].problems[0]
    assert sweep(Scenario(run, may_hang=True), []).ok


def test_a_deadlock_behind_a_shield_and_a_livelock_are_ended_too() -> None:
    async def shielded(probe: Probe) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def endless(probe: Probe) -> None:
        while True:
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                continue

    assert run_plan(shielded).outcome == "deadlock"
    assert run_plan(endless, max_steps=500).outcome == "livelock"
    assert run_plan(careful).outcome == "returned", "and the next run is as good as new"


def test_a_task_that_outlives_the_scenario_is_named() -> None:
    async def stray() -> None:
        await trio.sleep_forever()

    async def run(probe: Probe) -> None:
        trio.lowlevel.spawn_system_task(stray)
        await trio.lowlevel.checkpoint()

    assert "stray" in sweep(run, []).failures[0].problems[0]
    assert sweep(Scenario(run, may_leak=True), []).ok


def test_outcomes_are_told_apart() -> None:
    async def raises(probe: Probe) -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("x")

    async def after(probe: Probe) -> None:
        async def again() -> None:
            raise OSError("no second time")

        probe.afterwards(again)
        await trio.lowlevel.checkpoint()

    assert run_plan(raises).outcome_class == "raised LookupError"
    assert sweep(after, []).failures[0].problems == ("afterwards: OSError: no second time",)
    assert run_plan(careful, Plan((Injection("step", 1, "cancel"),))).outcome == "cancelled"
    assert run_plan(careful).value is None


# interrupts -----------------------------------------------------------------------------------------------------------


def keep_protected(account: Account) -> None:
    account.here -= 5
    account.there += 5


@trio.lowlevel.enable_ki_protection
def move_protected(account: Account) -> None:
    account.here -= 5
    account.there += 5


@pytest.mark.parametrize(("move", "torn"), [(keep_protected, True), (move_protected, False)])
def test_an_interrupt_at_every_line_tears_what_is_not_protected(move: Any, torn: bool) -> None:
    async def run(probe: Probe) -> None:
        probe.data["account"] = account = Account()
        await trio.lowlevel.checkpoint()
        move(account)
        await trio.lowlevel.checkpoint()

    report = sweep(run, ["interrupt"], positions=["line"], modules=[__file__], invariants=[balanced])
    assert report.base is not None
    assert report.base.lines > 5
    outcomes = {entry.outcome for entry in report.entries[1:]}
    assert outcomes == {"interrupted"}
    assert any("are left" in p for failure in report.failures for p in failure.problems) is torn


def test_a_ctrl_c_leaves_what_is_known_so_far() -> None:
    """It is not taken for an injected one."""
    report = Report(Scenario(careful, (balanced,)))

    def press(report: Report, total: int | None) -> None:
        if report.runs == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(careful, progress=press, report=report)
    assert report.runs == 3

    async def pressed(probe: Probe) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(pressed)


# determinism ----------------------------------------------------------------------------------------------------------


def test_what_cannot_run_twice_alike_is_named() -> None:
    generator = random.Random()

    async def rolls(probe: Probe) -> None:
        for _ in range(generator.randrange(1, 10**6) % 97):
            await trio.lowlevel.checkpoint()

    differences = check_determinism(rolls, runs=5)
    assert differences
    assert "in one run" in differences[0]
    assert check_determinism(careful, runs=5) == []


def test_tasks_that_wait_for_one_event_wake_in_the_same_order_every_time() -> None:
    """trio keeps them in a set; addresses must not decide."""

    async def run(probe: Probe) -> None:
        event = trio.Event()
        keep = [object() for _ in range(random.randrange(50))]

        async def child(number: int) -> None:
            await event.wait()
            probe.note("woke", str(number))

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(child, number)
            await trio.testing.wait_all_tasks_blocked()
            event.set()
        del keep

    assert check_determinism(run, runs=20) == []


# tokens and names -----------------------------------------------------------------------------------------------------


def test_tokens_name_the_plan_and_nothing_is_lost() -> None:
    plan = Plan(
        (Injection("step", 12, "abort"), Injection("idle", 3, "cancel"), Injection("line", 7, "interrupt")),
        "any",
        ((0, 2), (5, 1)),
    )
    token = plan.token("some.module:thing")
    assert token == "some.module:thing/b3=cancel/l7=interrupt/s12=abort/order=any/o0=2/o5=1"
    assert Plan.parse(token) == ("some.module:thing", plan)
    assert Plan().token("x:y") == "x:y"


@pytest.mark.parametrize("token", ["x:y/s0=abort", "x:y/z3=abort", "x:y/s3", "x:y/s3=a b", "x:y/order=odd", "x:y/o1=x"])
def test_a_wrong_token_is_named(token: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Plan.parse(token)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nosuchmodule:x", "no module 'nosuchmodule'"),
        ("trio_agent.testing.scenarios:SCENARIOS.nosuch", "there are: sequential"),
        ("trio_agent.testing.scenarios:nosuch", "'nosuch' is not there"),
        ("x:f.<locals>.g", "cannot be imported"),
        ("justaname", "cannot be imported"),
    ],
)
def test_a_name_that_leads_nowhere_says_where_it_ends(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        find_scenario(name)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="a scenario is an async function"):
        sweep(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every must be"):
        sweep(careful, every=0)
    with pytest.raises(ValueError, match="an action's name"):
        Injection("step", 1, "a b")


async def raises_undisturbed(probe: Probe) -> None:
    await trio.lowlevel.checkpoint()
    raise LookupError("typo")


def test_a_scenario_that_fails_undisturbed_is_a_failure_and_not_a_green_sweep() -> None:
    report = sweep(raises_undisturbed)
    assert "LookupError: typo" in report.failures[0].problems[0]
    with pytest.raises(AssertionError, match="raises when nothing disturbs it"):
        swept(["cancel"])(raises_undisturbed)()
    assert sweep(Scenario(raises_undisturbed, may_raise=True)).ok


def test_what_would_sweep_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="has no action 'cancle'; it has: cancel"):
        sweep(careful, ["cancle"])
    with pytest.raises(ValueError, match="has no action 'cancle'"):
        explore(careful, actions=["cancle"])
    with pytest.raises(ValueError, match="has no action 'clok'"):
        sweep_pairs(careful, [("cancel", "clok")])
    with pytest.raises(TypeError, match="sequence of names"):
        sweep(careful, "cancel")
    with pytest.raises(ValueError, match="sequence of two names each"):
        sweep_pairs(careful, ["cancel"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="positions must be"):
        sweep(careful, positions=["steps"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"needs modules"):
        sweep(careful, ["interrupt"], positions=["line"])
    with pytest.raises(ValueError, match="nothing to interrupt"):
        sweep(careful, ["interrupt"], positions=["line"], modules=[random])
    with pytest.raises(ValueError, match="order"):
        explore(careful, order="anny")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bound must be"):
        explore(careful, bound=-1)


def test_wrong_invariants_and_actions_are_named() -> None:
    async def later(trace: Trace) -> list[str]:
        return []

    with pytest.raises(TypeError, match="invariants must be a sequence"):
        sweep(careful, invariants=balanced)  # type: ignore[arg-type]
    report = sweep(careful, [], invariants=[lambda trace: None])  # type: ignore[arg-type, list-item, return-value]
    assert "returns a list of texts" in report.failures[0].problems[0]

    async def run(probe: Probe) -> None:
        probe.action("async", later)  # type: ignore[arg-type]

    assert "must be a sync function" in sweep(run, []).failures[0].problems[0]


def test_a_replay_that_reaches_nothing_says_so() -> None:
    assert replay(f"{__name__}:CARELESS/s99=cancel").problems == ["1 injections of the token were not reached"]
    assert replay(f"{__name__}:CARELESS/s1=nosuch").problems[-1].endswith("no such action at this moment")


# pytest ---------------------------------------------------------------------------------------------------------------


@swept(invariants=[balanced], pairs=True, orders=True)
async def test_the_decorator_makes_a_test(probe: Probe) -> None:
    await careful(probe)


def test_the_decorator_fails_with_the_table_and_a_token() -> None:
    test = swept(invariants=[balanced])(careless)
    with pytest.raises(AssertionError, match=r"(?s)2 of \d+ runs do not hold.*failing.*b2=cancel.*5 of 10 are left"):
        test()
    assert isinstance(test.scenario, Scenario)  # type: ignore[attr-defined]
    assert find_scenario(f"{__name__}:test_the_decorator_makes_a_test").invariants == (balanced,)
    with pytest.raises(AssertionError, match="5 of 10"):
        check_report(sweep(CARELESS))


@scenario(invariants=[balanced])
async def decorated(probe: Probe) -> None:
    await careful(probe)


def test_a_decorated_scenario_keeps_what_it_is_judged_by() -> None:
    assert decorated.invariants == (balanced,)
    assert decorated.name.endswith(":decorated")
    assert sweep(decorated).ok


# the private names of trio --------------------------------------------------------------------------------------------


def test_another_trio_is_refused_with_a_clear_text(monkeypatch: pytest.MonkeyPatch) -> None:
    import trio_agent.testing._private as private

    monkeypatch.setattr(private, "_checked", False)
    monkeypatch.setattr(trio, "__version__", "0.30.0")
    with pytest.raises(UnsupportedTrioError, match=r"trio 0\.30\.0 cannot be scheduled.*too old.*Tested with"):
        run_plan(careful)
    monkeypatch.setattr(trio, "__version__", "9.0.0")
    assert run_plan(careful).outcome == "returned", "a newer one that has not changed in this"
    monkeypatch.setattr(private, "_checked", False)
    with monkeypatch.context() as changed:
        changed.setattr(inspect, "getsource", lambda thing: "while batch: task = batch.popleft()")
        with pytest.raises(UnsupportedTrioError, match=r"no longer says 'if _ALLOW_DETERMINISTIC_SCHEDULING:'"):
            run_plan(careful)
    monkeypatch.delattr(trio._core._run, "_r")
    with pytest.raises(UnsupportedTrioError, match=r"no trio\._core\._run\._r any more"):
        run_plan(careful)


def test_a_trio_that_does_not_heed_the_switch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignoring(self: object, scheduler: object) -> None:
        def shuffle(batch: list[object]) -> None:
            private._InPlaceOfRandom.random(self)  # type: ignore[arg-type]

        self.shuffle = shuffle  # type: ignore[attr-defined]

    import trio_agent.testing._private as private

    monkeypatch.setattr(private._InPlaceOfRandom, "__init__", ignoring)
    with pytest.raises(UnsupportedTrioError, match="did not heed"):
        run_plan(careful)


def test_after_a_run_trio_is_as_it_was() -> None:
    before = trio._core._run._r, trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING
    enter = trio.CancelScope.__enter__
    run_plan(careful, traced=True)
    assert (trio._core._run._r, trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING) == before
    assert trio.CancelScope.__enter__ is enter


# the command ----------------------------------------------------------------------------------------------------------


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(
        "import os, signal, trio\n"
        "async def good(probe):\n"
        "    await trio.sleep(1)\n"
        "async def bad(probe):\n"
        "    await trio.Event().wait()\n"
        "runs = 0\n"
        "async def pressed(probe):\n"
        "    global runs\n"
        "    runs += 1\n"
        "    if runs == 5:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    await trio.sleep(1)\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "trio_agent.testing", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_sweeps_what_is_in_the_current_folder(tmp_path: Path) -> None:
    done = command(tmp_path, "sweep", "mine:good", "--json", "out.json", "--html", "out.html")
    assert done.returncode == 0, done.stderr
    assert "0 failing" in done.stdout
    assert "mine:good/s1=cancel" in (tmp_path / "out.json").read_text()
    assert "mine:good" in (tmp_path / "out.html").read_text()
    done = command(tmp_path, "replay", "mine:good/s1=cancel")
    assert done.returncode == 0
    assert "** cancel before step 1" in done.stdout
    assert command(tmp_path, "explore", "mine:good", "--actions", "cancel").returncode == 0
    assert command(tmp_path, "pairs", "mine:good", "--limit", "3").returncode == 0


def test_the_commands_exit_status_tells_what_was_found(tmp_path: Path) -> None:
    done = command(tmp_path, "sweep", "mine:bad")
    assert done.returncode == 1
    assert "replay: mine:bad" in done.stdout
    assert "deadlock" in done.stdout
    for arguments in (("sweep", "nosuch"), ("sweep", "mine:nosuch"), ("replay", "mine:good/x"), ("sweep", "nomod:x")):
        done = command(tmp_path, *arguments)
        assert done.returncode == 2, arguments
        assert done.stderr
        assert "Traceback" not in done.stderr


def test_a_ctrl_c_makes_the_command_print_what_is_known_so_far(tmp_path: Path) -> None:
    done = command(tmp_path, "pairs", "mine:pressed", "--json", "out.json")
    assert done.returncode == 130
    assert "(not all: stopped early)" in done.stdout
    assert '"exhausted": false' in (tmp_path / "out.json").read_text()
    assert "Traceback" not in done.stderr


def test_the_command_lists_the_built_in_scenarios(tmp_path: Path) -> None:
    done = command(tmp_path, "list")
    assert "sequential" in done.stdout.split()
