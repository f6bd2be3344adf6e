"""``python -m trio_agent.testing``: sweep, explore, replay and prove without pytest."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import attrs

from ._plan import Plan
from ._prove import Proof, jobs, prove, totals
from ._report import Report
from ._scenario import Scenario, find_scenario
from ._sweep import POSITIONS, check_determinism, explore, replay, sweep, sweep_pairs
from ._trace import Trace
from .scenarios import SCENARIOS

__all__ = ["main"]

EPILOG = """\
A scenario is 'package.module:name' (an async function of a Probe, or a Scenario; the current folder is on the path),
or the name of a built-in one (see 'list'). Exit status: 0 all held, 1 something did not, 2 wrong use, 130 Ctrl-C.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m trio_agent.testing", epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("sweep", "inject an action at every position of a run"),
        ("pairs", "inject two actions, at every pair of positions"),
        ("explore", "run every order in which the ready tasks can be taken"),
    ):
        command = commands.add_parser(name, help=text, epilog=EPILOG)
        command.add_argument("scenario")
        command.add_argument("--actions", help="comma-separated; the scenario's own by default")
        command.add_argument("--json", metavar="FILE", help="write the report as JSON")
        command.add_argument("--html", metavar="FILE", help="write the report as one page, with timelines")
        command.add_argument("--stop", action="store_true", help="end with the first failing run")
        if name == "sweep":
            command.add_argument("--positions", default=",".join(POSITIONS), help="of step, idle, point, line")
            command.add_argument("--modules", metavar="A,B", help="in which modules lines are counted")
            command.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th position")
        else:
            command.add_argument("--limit", type=int, metavar="N", help="at most N runs")
        if name == "explore":
            command.add_argument("--order", default="any", choices=["any", "trio"])
            command.add_argument("--bound", type=int, metavar="N", help="at most N decisions differ from arrival")
    again = commands.add_parser("replay", help="run again what a token names, and show it")
    again.add_argument("token")
    proof = commands.add_parser("prove", help="check every guarantee over every built-in scenario")
    proof.add_argument("--quick", action="store_true", help="the part that a commit is checked with")
    proof.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    commands.add_parser("list", help="the built-in scenarios")
    return parser


def _find(name: str) -> Scenario:
    if name in SCENARIOS:
        return SCENARIOS[name]
    if ":" not in name:
        raise ValueError(
            f"{name!r} is neither 'module:name' nor a built-in scenario; of those there are: {', '.join(SCENARIOS)}"
        )
    sys.path.insert(0, "")
    return find_scenario(name)


class _Progress:
    """A line on a terminal's stderr that says how far a long sweep is."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, report: Report, total: int | None) -> None:
        if self._shown and report.runs % 25 == 0:
            of = f" of {total}" if total else ""
            sys.stderr.write(f"\r{report.runs}{of} runs, {len(report.failures)} failing ")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * 60 + "\r")


def _run(options: argparse.Namespace, report: Report, progress: _Progress) -> None:
    scenario = report.scenario
    actions = options.actions.split(",") if options.actions else None
    if options.command == "sweep":
        sweep(
            scenario,
            actions,
            positions=options.positions.split(","),
            every=options.every,
            stop_at_first=options.stop,
            progress=progress,
            report=report,
        )
    elif options.command == "pairs":
        pairs = None if actions is None else [(first, second) for first in actions for second in actions]
        sweep_pairs(scenario, pairs, limit=options.limit, stop_at_first=options.stop, progress=progress, report=report)
    else:
        explore(
            scenario,
            order=options.order,
            bound=options.bound,
            actions=actions or (),
            limit=options.limit,
            stop_at_first=options.stop,
            progress=progress,
            report=report,
        )


def _report(options: argparse.Namespace) -> int:
    scenario = _find(options.scenario)
    for file in (options.json, options.html):
        if file and not os.path.isdir(os.path.dirname(file) or "."):
            raise ValueError(f"{file}: there is no such folder")
    if getattr(options, "modules", None):
        modules = tuple(importlib.import_module(name) for name in options.modules.split(","))
        scenario = attrs.evolve(scenario, modules=modules)
    differences = check_determinism(scenario)
    if differences:
        sys.stdout.write(f"{scenario.name} does not run twice in the same way: {differences[0]}\n")
        return 1
    report, progress, interrupted = Report(scenario), _Progress(), False
    try:
        _run(options, report, progress)
    except KeyboardInterrupt:
        report.exhausted = False
        interrupted = True
    progress.clear()
    sys.stdout.write(report.table() + "\n")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(report.to_json())
    if options.html and interrupted:
        sys.stdout.write("no page was written: interrupted\n")
    elif options.html:
        sys.stdout.write(f"page: {report.write_html(options.html)}\n")
    return 130 if interrupted else int(not report.ok)


def _show(trace: Trace) -> int:
    say = sys.stdout.write
    say(f"{trace.outcome_class} after {trace.steps} steps" + (f": {trace.error!r}\n" if trace.error else "\n"))
    for span in trace.timeline:
        say(f"{span.step:>5}  {span.time:8.3f} s  {trace.tasks[span.task]:<24} {span.line}\n")
        for note in trace.notes:
            if note.step == span.step:
                data = note.data if isinstance(note.data, str) else getattr(note.data, "type", None) or note.data
                say(f"{'':>19}{note.kind}: {str(data)[:90]}\n")
        for one in trace.fired:
            if one.step == span.step:
                say(f"{'':>19}** {one.action} {one.place}: {one.problem or one.result!r}\n")
    for problem in trace.problems:
        say(f"FAILED  {problem}\n")
    return int(bool(trace.problems))


def _prove(options: argparse.Namespace) -> int:
    wanted = jobs(quick=options.quick)
    proofs: list[Proof] = []
    interrupted = False
    try:
        for proof in prove(wanted, options.processes):
            proofs.append(proof)
            sys.stdout.write(f"[{len(proofs)}/{len(wanted)}] {proof.job.part}: {proof.summary}\n")
            for failure in proof.failures:
                sys.stdout.write(f"  replay: {failure.token}\n    " + "\n    ".join(failure.problems[:3]) + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        interrupted = True
    sys.stdout.write(totals(proofs) + "\n")
    return 130 if interrupted else int(any(proof.failures for proof in proofs))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "list":
            sys.stdout.write("\n".join(SCENARIOS) + "\n")
            return 0
        if options.command == "replay":
            name, _ = Plan.parse(options.token)
            return _show(replay(options.token, _find(name)))
        return _prove(options) if options.command == "prove" else _report(options)
    except (ValueError, TypeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
