"""What does it cost to turn the JSON text of a tool call into the values its function is called with, per call?

    python -m bench.cancellation --install --peers openai-agents,pydantic-ai    (once; the pins are there)
    python -m bench.tool_validation [--rounds N] [--peers a,b] [--json FILE]
    python -m bench.tool_validation --self-check          our side only, tiny: are the values right?

Each framework runs in an interpreter of its own, and all of them stay up: a round asks each in turn, case by case, so
that what the machine does meanwhile falls on all. CPU time of the process, without the garbage collector. A ratio is
of one round; the median and the range of the rounds are shown. Each side checks the values before it measures.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .cancellation import PEERS, ROOT, _python_of, is_installed
from .validation import ours
from .validation._cases import CASES, FUNCTIONS
from .validation._side import FULL, MAKE, Side, check, seconds_per_call, serve_one

OURS = "trio_agent"
SIDES = {OURS: "ours", "openai-agents": "openai_agents", "pydantic-ai": "pydantic_ai_slim"}
ANSWER_WITHIN = 120
ROUND_SECONDS = 0.05
TARGET = 5.0

NOTES = """\
- Every path starts at the JSON text of one call and ends before the first step of the function. What is in it is said
  below for each framework. The call object that carries the text is made before, on every side.
- "tool layer" is what a run really does per call; "bare validator" is pydantic alone, with nothing of the peer around
  it: what a peer's layer could cost at best. The ratios of both are to OUR tool layer, JSON included.
- "large": 200 dataclasses. Building them is more than half of our time, and the rest goes to refusing a field that
  none of them knows, which both peers let pass (pydantic drops it). Five times less than them is out of reach there.
- "refused" names every wrong field, as both peers do; it costs Python for each field, and a model's next response.
- Not shown: models that send broken JSON, streaming of arguments, sync tools (all three send those to a thread)."""


class Child:
    """A side in its interpreter.

    Raises:
        RuntimeError: it died, or its values are wrong.
    """

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self._process = process
        self.hello = self.ask(ask="hello")
        if self.hello["problems"]:
            raise RuntimeError(f"{name}: wrong values: {'; '.join(self.hello['problems'])}")

    def ask(self, **question: Any) -> Any:
        """One question, one answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(ANSWER_WITHIN, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise RuntimeError(f"{self.name}: the child gave no answer to {question}")
        return json.loads(line)


@contextmanager
def child(name: str) -> Iterator[Child]:
    """Start a side; it ends with its input."""
    setup = PEERS[name]
    python = str(_python_of(name)) if setup.pins else sys.executable
    command = [python, "-W", "ignore", "-m", f"bench.validation.{SIDES[name]}"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Child(name, process)
    finally:
        try:
            process.communicate(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()


def questions_for(side: Child) -> list[dict[str, Any]]:
    """Everything that is measured of a side, each with as many batches as make a round long enough."""
    asked = [{"ask": MAKE, "case": function, "path": MAKE} for function in FUNCTIONS]
    asked += [{"ask": "call", "case": case, "path": path} for case, path in side.hello["paths"]]
    for question in asked:
        batch = 1 if question["ask"] == MAKE else CASES[question["case"]].batch
        side.ask(**question, batches=1)
        seconds = side.ask(**question, batches=2)
        question["batches"] = max(1, round(ROUND_SECONDS / (seconds * batch)))
    return asked


Times = dict[str, dict[tuple[str, str], list[float]]]


def measure(children: list[Child], rounds: int, say: Callable[[str], Any]) -> Times:
    """Seconds per call, one figure a round: of each side, by (case, path)."""
    asked = {side.name: {(q["case"], q["path"]): q for q in questions_for(side)} for side in children}
    times: Times = {name: {key: [] for key in questions} for name, questions in asked.items()}
    keys = list(dict.fromkeys(key for questions in asked.values() for key in questions))
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}\n")
        turn = children[number % len(children) :] + children[: number % len(children)]
        for key in keys:
            for side in turn:
                if key in asked[side.name]:
                    times[side.name][key].append(side.ask(**asked[side.name][key]))
    return times


def rows_of(times: Times) -> list[dict[str, Any]]:
    """The table: one row per case and path of a peer, its ratio to our tool layer."""
    rows = []
    for name, of_side in times.items():
        for (case, path), seconds in of_side.items():
            yardstick = times[OURS][case, MAKE if path == MAKE else FULL]
            ratios = [theirs / own for theirs, own in zip(seconds, yardstick, strict=True)]
            rows.append(
                {
                    "case": f"make {case}" if path == MAKE else case,
                    "framework": name,
                    "path": path,
                    "microseconds": statistics.median(seconds) * 1e6,
                    "ratio": statistics.median(ratios),
                    "least": min(ratios),
                    "most": max(ratios),
                    "target": name != OURS and path == FULL,
                }
            )
    order = [*CASES, *(f"make {function}" for function in FUNCTIONS)]
    return sorted(rows, key=lambda row: order.index(row["case"]))


def table_of(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as text."""
    lines = [f"{'case':12} {'framework':14} {'path':16} {'us/call':>10} {'/ours':>8} {'min-max':>15}  >= {TARGET:g}x"]
    previous = ""
    for row in rows:
        case = row["case"] if row["case"] != previous else ""
        previous = row["case"]
        spread = f"{row['least']:.2f}-{row['most']:.2f}"
        verdict = ("yes" if row["ratio"] >= TARGET else "no") if row["target"] else ""
        line = f"{case:12} {row['framework']:14} {row['path']:16} {row['microseconds']:10.2f} {row['ratio']:8.2f}"
        lines.append(f"{line} {spread:>15}  {verdict}".rstrip())
    return lines


def text_of(children: list[Child], skipped: dict[str, str], rows: list[dict[str, Any]]) -> str:
    """Everything that is printed."""
    lines = [NOTES, "", "Frameworks:"]
    for side in children:
        versions = ", ".join(f"{package} {version}" for package, version in side.hello["versions"].items())
        lines.append(f"- {side.name}: {versions}")
        lines += [f"  {path}: {text}" for path, text in side.hello["included"].items()]
    lines += [f"- {name}: skipped, {reason}" for name, reason in skipped.items()]
    lines += [
        "",
        *table_of(rows),
        "",
        "Schema and validator builders that ran, making a tool / in 100 calls of a case:",
    ]
    for side in children:
        builds = dict(side.hello["builds"])
        made = builds.pop(MAKE)
        lines.append(f"- {side.name}: {made} / {', '.join(f'{case} {count}' for case, count in builds.items())}")
    return "\n".join(lines) + "\n"


def self_check() -> int:
    """Our side alone, a few calls."""
    side: Side = ours.make_side()
    problems = check(side)
    hello = serve_one(side, {"ask": "hello"})
    problems += [
        f"{case}: {count} builds in 100 calls" for case, count in hello["builds"].items() if case != MAKE and count
    ]
    if not hello["builds"][MAKE]:
        problems.append("the watch for builders sees none when a tool is made")
    for (case, path), call in side.calls.items():
        seconds = seconds_per_call(call, lambda result: None, 5, 2)
        sys.stdout.write(f"{case:10} {path:16} {seconds * 1e6:8.1f} us/call\n")
    sys.stdout.write("\n".join(problems) + "\n" if problems else "all values are right, nothing is built per call\n")
    return 1 if problems else 0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.tool_validation")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--peers", default=",".join(name for name in SIDES if name != OURS))
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--self-check", action="store_true", help="a tiny run of our side, values checked")
    options = parser.parse_args()
    if options.self_check:
        return self_check()
    peers = [name for name in options.peers.split(",") if name]
    if unknown := set(peers) - set(SIDES):
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}")
    skipped = {
        name: "not installed (python -m bench.cancellation --install)"
        for name in peers
        if not is_installed(name, PEERS[name])
    }
    failed = False
    with ExitStack() as stack:
        children = [stack.enter_context(child(OURS))]
        for name in peers:
            if name in skipped:
                continue
            sys.stderr.write(f"starting {name}\n")
            try:
                children.append(stack.enter_context(child(name)))
            except RuntimeError as error:
                skipped[name] = str(error)
                failed = True
        times = measure(children, options.rounds, sys.stderr.write)
    rows = rows_of(times)
    sys.stdout.write(text_of(children, skipped, rows))
    if options.json:
        sides = {side.name: side.hello for side in children}
        options.json.write_text(json.dumps({"sides": sides, "skipped": skipped, "rows": rows}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
