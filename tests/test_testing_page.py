"""The page of a report: its text, and what a real browser makes of it."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from trio_agent.testing._page import page
from trio_agent.testing._plan import Injection, Plan
from trio_agent.testing._probe import Probe
from trio_agent.testing._report import Entry, Report
from trio_agent.testing._scenario import Scenario, scenario
from trio_agent.testing._sweep import explore, sweep, sweep_pairs
from trio_agent.testing._trace import Trace

EVIL = "</script><b id='evil'>&<!--"


class Grumpy:
    """Notes may be anything; this one does not even say its type."""

    @property
    def type(self) -> str:
        raise RuntimeError("do not ask")

    def __repr__(self) -> str:
        raise RuntimeError("nor this")


def late(trace: Trace) -> list[str]:
    if trace.outcome == "cancelled" and trace.steps >= 6:
        return [f"{EVIL} cancelled too late"]
    return []


@scenario(invariants=[late], actions=["cancel", "clock_jump", "nothing_of_this_name"])
async def quiet(probe: Probe) -> None:
    probe.note("evil", EVIL)
    probe.note("grumpy", Grumpy())
    probe.note("event", SimpleNamespace(type="tool_execution_start", tool_name="work", tool_call_id="c1"))
    probe.note("effect", SimpleNamespace(call_id="c1", phase="begun"))
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(trio.sleep, 1)
        nursery.start_soon(trio.lowlevel.checkpoint)
        with trio.move_on_after(0.5):
            probe.point("before sleeping")
            await trio.sleep(3)
    probe.note("event", SimpleNamespace(type="tool_execution_end", tool_call_id="c1"))
    probe.note("event", SimpleNamespace(type=7, tool_call_id=None))


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def tokens_of(text: str) -> list[str]:
    data = data_of(text)
    return [data["scenario"] + token for token in data["tokens"]]


# the text -----------------------------------------------------------------------------------------------------------


def test_the_page_refers_to_nothing_outside() -> None:
    text = page(sweep(quiet))
    assert not re.search(r"https?:|//cdn|@import|url\((?!#)|<link|<img|\bsrc=|fetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text
    assert "@@" not in text


def test_what_a_run_says_cannot_become_markup() -> None:
    text = page(sweep(quiet))
    assert EVIL not in text
    assert "<b id" not in text
    data = data_of(text)
    assert EVIL in data["texts"]
    assert [f"{EVIL} cancelled too late"] in data["problems"].values()


def test_a_scenario_may_have_any_name() -> None:
    name = f"module:{EVIL}@@js@@@@data@@"
    text = page(sweep(Scenario(quiet.function, name=name)), 0)
    assert EVIL not in text
    assert data_of(text)["scenario"] == name
    assert f"<title>{html.escape(name)}</title>" in text


def test_every_entry_is_in_the_page() -> None:
    pairs, orders = sweep_pairs(quiet, [("cancel", "cancel")]), explore(quiet, actions=["cancel"], bound=1)
    for report in (sweep(quiet), pairs, orders):
        text = page(report, 0)
        data = data_of(text)
        assert tokens_of(text) == [report.scenario.token(entry.plan) for entry in report.entries]
        assert sorted(index for group in data["groups"] for index in group["entries"]) == list(range(report.runs))
        assert data["ok"].count("0") == len(report.failures) == len(data["problems"])
        assert data["fired"].count("0") == sum(not entry.fired for entry in report.entries)
        assert [data["classes"][k][0] for k in data["outcomes"]] == [entry.outcome for entry in report.entries]


def test_the_groups_are_the_rows_of_the_table() -> None:
    report = sweep(quiet)
    groups = data_of(page(report, 0))["groups"]
    assert [(group["action"], group["where"]) for group in groups] == list(dict.fromkeys(e.row for e in report.entries))
    for group in groups[1:]:
        assert group["kind"] == "strip"
        assert group["x"] == [report.entries[i].plan.injections[0].index for i in group["entries"]]


def test_pairs_are_matrices_and_orders_are_columns() -> None:
    report = sweep_pairs(quiet, [("cancel", "clock_jump")])
    for group in data_of(page(report, 0))["groups"][1:]:
        assert group["kind"] == "matrix"
        places = [report.entries[i].plan.injections for i in group["entries"]]
        assert [(y, x) for x, y in zip(group["x"], group["y"], strict=True)] == [(a.index, b.index) for a, b in places]
    report = explore(quiet, actions=["cancel"], bound=1)
    plain, injected = data_of(page(report, 0))["groups"]
    assert plain["kind"] == injected["kind"] == "orders"
    assert plain["x"] == list(range(1, report.orders + 1))
    assert set(injected["x"]) == set(plain["x"])
    assert injected["y"][:3] == [1, 2, 3]


def test_a_sweep_that_starts_from_a_plan_has_strips() -> None:
    report = sweep(quiet, ["cancel"], positions=["step"], base=Plan((Injection("step", 2, "clock_jump"),)))
    kinds = {(group["kind"], group["columns"]) for group in data_of(page(report, 0))["groups"]}
    assert kinds == {("strip", ""), ("strip", "step")}


def test_timelines_are_limited_and_those_of_failures_come_first() -> None:
    report = sweep(quiet)
    failing = {index for index, entry in enumerate(report.entries) if not entry.ok}
    assert 1 < len(failing) < report.runs - 10
    everything = {int(index) for index in data_of(page(report))["runs"]}
    assert everything == set(range(report.runs))
    some = {int(index) for index in data_of(page(report, len(failing) + 5))["runs"]}
    assert failing < some
    assert len(some) == len(failing) + 5
    assert max(some - failing) - min(some - failing) > report.runs // 2
    few = {int(index) for index in data_of(page(report, 2))["runs"]}
    assert len(few) == 2
    assert few < failing
    assert not data_of(page(report, 0))["runs"]
    assert not data_of(page(report, -1))["runs"]


def test_a_timeline_has_the_steps_scopes_tools_and_injections_of_the_run() -> None:
    report = sweep(quiet, ["cancel"], positions=["step"])
    data = data_of(page(report))
    texts, run = data["texts"], data["runs"]["4"]
    trace = report.scenario.run(report.entries[4].plan, traced=True)
    assert run["task"] == trace.schedule
    assert [texts[name] for name in run["names"]] == trace.tasks
    assert sum(run["batch"]) == trace.timeline[-1].batch
    assert [texts[fired[4]] for fired in run["fired"]] == ["cancel"]
    # without the scope with which the kit ends runs that do not end
    assert len(run["scopes"]) == len(trace.scopes) - 1
    assert texts[run["scopes"][0][5]].startswith("Probe.scope")
    assert [[texts[tool[0]], texts[tool[1]]] for tool in run["tools"]] == [["work", "c1"]]
    assert [texts[effect[3]] for effect in run["effects"]] == ["begun"]
    assert {texts[note[4]] for note in run["notes"]} >= {EVIL, "Grumpy"}


def test_notes_may_be_anything() -> None:
    class Text(str):
        __slots__ = ()

        def __len__(self) -> int:
            raise RuntimeError("no length")

    async def noisy(probe: Probe) -> None:
        weird = [Text("a" * 1000), b"\xff", "\ud800", Grumpy(), Grumpy, type, SimpleNamespace(type=None)]
        for data in (*weird, 10**5000, 1.5, None, True, "b" * 1000):
            probe.note("event", data)
            probe.note("effect", data)

    data = data_of(page(sweep(noisy)))
    said = {data["texts"][note[4]] for note in data["runs"]["0"]["notes"]}
    assert {"1.5", "", "True", "bytes", "int", "\ud800", "SimpleNamespace"} <= said
    assert max(map(len, said)) == 160


def test_a_run_that_ends_otherwise_the_second_time_is_marked() -> None:
    times = 0

    async def moody(probe: Probe) -> None:
        nonlocal times
        times += 1
        if times > 1:
            raise ValueError("another mood")

    data = data_of(page(sweep(moody, [])))
    assert data["texts"][data["runs"]["0"]["differs"]] == "raised ValueError"


def test_a_livelock_is_cut_short() -> None:
    async def spin(probe: Probe) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    run = data_of(page(sweep(Scenario(spin, may_hang=True), [])))["runs"]["0"]
    assert run["steps"] > len(run["task"]) == 2000


def test_an_empty_report_and_one_with_only_the_plain_run() -> None:
    assert tokens_of(page(Report(quiet))) == []
    text = page(sweep(quiet, []))
    assert tokens_of(text) == [quiet.name]
    assert list(data_of(text)["runs"]) == ["0"]


def test_write_html(tmp_path: Path) -> None:
    report = sweep(quiet, ["cancel"], positions=["step"])
    target = report.write_html(tmp_path / "page.html", timelines=3)
    assert len(data_of(target.read_text(encoding="utf-8"))["runs"]) == 3


# in a browser -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    reason = "no chromium, chromium-browser or google-chrome on PATH: the page is not tried in a browser"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def dom(browser: str, folder: Path, text: str, token: str = "", script: str = "") -> str:
    """What the page has become when its script has run, and then ``script``."""
    target = folder / "page.html"
    target.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--no-first-run", "--dump-dom", f"{target.as_uri()}#{token}"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    found = done.stdout.decode()
    assert '<pre id="errors"></pre>' in found, inside(found, "errors", "pre")
    return found


def inside(text: str, name: str, tag: str) -> str:
    """The text of the element with this id."""
    found = re.search(rf'<{tag} [^>]*?id="{name}"[^>]*>(.*?)</{tag}>', text, re.DOTALL)
    assert found, name
    return html.unescape(re.sub(r"<[^>]*>", "", found[1]))


def steps_shown(text: str) -> int:
    return len(re.findall(r'<rect class="step"', text))


def test_a_link_shows_the_run_and_its_timeline(browser: str, tmp_path: Path) -> None:
    report = sweep(quiet)
    failure = report.failures[1]
    found = dom(browser, tmp_path, page(report), failure.token)
    assert inside(found, "token", "code") == failure.token
    assert inside(found, "command", "code") == f"python -m trio_agent.testing replay '{failure.token}'"
    assert inside(found, "problems", "ul") == failure.problems[0]
    assert inside(found, "badge", "span").startswith("C")
    assert "<b id" not in found
    trace = report.scenario.run(failure.plan, traced=True)
    assert steps_shown(found) == trace.steps
    assert found.count('class="tool') >= 1
    assert found.count('class="note"') == len(trace.notes)
    assert found.count('class="scope"') == len(trace.scopes) - 1
    assert 'class="injection-label"' in found
    assert len(re.findall("<canvas", found)) == len(data_of(page(report, 0))["groups"])


def test_a_run_without_a_timeline_still_has_its_facts(browser: str, tmp_path: Path) -> None:
    report = sweep(quiet)
    token = report.scenario.token(report.entries[-1].plan)
    found = dom(browser, tmp_path, page(report, 0), token)
    assert inside(found, "token", "code") == token
    assert steps_shown(found) == 0
    assert "No timeline was recorded" in inside(found, "timeline", "section")
    assert "had no effect" in inside(found, "facts", "section")


def test_arrow_keys_go_to_the_neighbours(browser: str, tmp_path: Path) -> None:
    report = sweep(quiet, ["cancel", "clock_jump"], positions=["step", "idle"])
    script = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}));"
    name = quiet.name
    text = page(report, 0)
    rests = [entry.plan.injections[0].index for entry in report.entries if entry.row == ("cancel", "idle")]
    below = min(rests, key=lambda step: abs(step - 3))
    for key, token in (("ArrowRight", "s4=cancel"), ("ArrowLeft", "s2=cancel"), ("ArrowDown", f"b{below}=cancel")):
        found = dom(browser, tmp_path, text, f"{name}/s3=cancel", script % key)
        assert inside(found, "token", "code") == f"{name}/{token}"
    found = dom(browser, tmp_path, text, f"{name}/s3=cancel", script % "Escape")
    assert '<aside id="panel" aria-live="polite" hidden="">' in found


def test_a_click_on_a_cell_selects_it_and_a_filter_hides_rows(browser: str, tmp_path: Path) -> None:
    report = sweep(quiet)
    click = """
        const canvas = document.querySelectorAll("canvas")[2], box = canvas.getBoundingClientRect();
        for (const type of ["mousemove", "click"]) {
          canvas.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: box.right - 16, clientY: box.bottom - 8}));
        }
    """
    found = dom(browser, tmp_path, page(report, 0), script=click)
    last = [entry.plan for entry in report.entries if entry.row == ("cancel", "idle")][-1]
    assert inside(found, "token", "code") == report.scenario.token(last)
    assert inside(found, "tip", "div").endswith(report.scenario.token(last))
    check = """
        document.getElementById("only-failing").click();
        document.getElementById("only-failing").dispatchEvent(new Event("input", {bubbles: true}));
    """
    found = dom(browser, tmp_path, page(report, 0), script=check)
    assert found.count("<canvas") == len({entry.row for entry in report.entries if not entry.ok})
    assert inside(found, "shown", "span") == f"{len(report.failures)} of {report.runs} runs"


def test_pairs_orders_and_empty_reports_are_drawn(browser: str, tmp_path: Path) -> None:
    for report in (sweep_pairs(quiet, [("cancel", "cancel")]), explore(quiet, actions=["cancel"], bound=1)):
        entry = report.entries[report.runs // 2]
        token = report.scenario.token(entry.plan)
        found = dom(browser, tmp_path, page(report, report.runs), token)
        assert inside(found, "token", "code") == token
        assert steps_shown(found) == report.scenario.run(entry.plan).steps
    assert "No run in this report" in dom(browser, tmp_path, page(Report(quiet)))


def test_twenty_thousand_runs_are_few_elements(browser: str, tmp_path: Path) -> None:
    report = Report(quiet)
    for first in range(1, 201):
        for second in range(first, 201):
            plan = Plan((Injection("step", first, "cancel"), Injection("step", second, "clock_jump")))
            report.entries.append(Entry(plan, "cancelled", first % 50 > 0, True))
    text = page(report, 0)
    assert len(text) < 1_500_000
    found = dom(browser, tmp_path, text, f"{quiet.name}/s50=cancel/s60=clock_jump")
    assert inside(found, "token", "code") == f"{quiet.name}/s50=cancel/s60=clock_jump"
    assert len(re.findall("<[a-z]", found.split('<script type="application/json"')[0])) < 400
