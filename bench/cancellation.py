"""What is left after a run is stopped, at every point of it, in several frameworks: the table.

    python -m bench.cancellation --install [--peers a,b]       put each peer into bench/.peers/<name>/
    python -m bench.cancellation [--peers a,b] [--every N] [--json FILE]
    python -m bench.cancellation --self-check                  does the judge find the faults of a broken loop?

The same scenario runs on each framework and is stopped once before every step of its scheduler and once at every
moment of rest; one judge compares what tools and models really did with what the framework's own record says.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .peers._judge import FAULTS

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / ".peers"
TIMEOUT = 900


@dataclass(frozen=True)
class Setup:
    """How a peer is installed and run.

    Attributes:
        module: in ``bench.peers``.
        pins: what pip or npm installs; nothing for a loop that is here anyway.
        tool: who installs them.
    """

    module: str
    pins: tuple[str, ...] = ()
    tool: str = "pip"


PEERS = {
    "trio_agent": Setup("ours"),
    "openai-agents": Setup("openai_agents", ("openai-agents==0.24.0", "openai==3.57.0")),
    "pydantic-ai": Setup("pydantic_ai_slim", ("pydantic-ai-slim==2.68.0",)),
    "langgraph": Setup("langchain_agent", ("langgraph==1.2.24", "langchain==1.5.2", "langgraph-checkpoint==4.3.2")),
    "pi-agent-core": Setup("pi_agent_core", ("pi-agent-core==0.1.1",)),
    "pi-ai-python": Setup("pi_ai_python", ("pi-ai-python==1.7.0",)),
    "pi-agent-loop": Setup("pi_agent_loop", ("pi-agent-loop==0.1.0", "pi-ai-client==0.1.1")),
    "pi-typescript": Setup(
        "pi_typescript",
        ("@earendil-works/pi-agent-core@1.6.0", "@earendil-works/pi-ai@1.6.0", "node@22.23.3"),
        tool="npm",
    ),
}
SELF_CHECK = Setup("forgetful")

NOTES = """\
What this is, and what it is not:
- A point is one step of the framework's own scheduler (asyncio: a handle of the loop; trio: a step of a task; node:
  a promise job) or one moment of rest. It is not a probability: real stops come at rest far more often than
  between two steps (they have a column of their own), and a framework that takes more steps where nothing can go
  wrong gets a higher share. trio shuffles the order of runnable tasks, so there a number of steps varies a little.
- One scenario and one version of each: a first response with three tool calls (one of them never awaits), a second
  of plain text; the fake model and tools do the same everywhere and never fail by themselves.
- "cancel" is from outside: task.cancel(), or a trio.CancelScope around the run. "abort" is the framework's own stop
  call, named below. "abort softly" is a stop call that means to let the turn or the superstep end first: new work
  after it is what it promises, and a drained thread of langgraph is meant to be resumed, not prompted.
- The record is the framework's own, named below, read 30 s of virtual time after the run has ended. A record
  with unanswered calls may be mended when it is sent (named where we know of it; pi's provider layers do it too), and
  the fake model of the second prompt accepts any history.
- Tools that are given a stop flag: "coop" obeys it, "pay" and "quick" do not look. A tool torn by a cancellation is
  no fault as long as the record has some result for its call.
- Quiet: the share of points with none of the faults, rounded down."""


def install(name: str, setup: Setup) -> None:
    """Put a peer into its own folder, with the ordinary client."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    if setup.tool == "npm":
        (folder / "package.json").write_text('{"private": true}\n')
        command = ["npm", "install", "--no-audit", "--no-fund", "--save-exact", *setup.pins]
        subprocess.run(command, cwd=folder, check=True, timeout=TIMEOUT)
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=TIMEOUT)
        python = str(_python_of(name))
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *setup.pins]
        subprocess.run(command, check=True, timeout=TIMEOUT)
    _receipt(name).write_text(json.dumps(setup.pins))


def is_installed(name: str, setup: Setup) -> bool:
    """Exactly the pinned versions, or nothing to install."""
    return not setup.pins or (_receipt(name).exists() and json.loads(_receipt(name).read_text()) == list(setup.pins))


def _receipt(name: str) -> Path:
    return FOLDER / name / "bench-installed.json"


def _python_of(name: str) -> Path:
    return FOLDER / name / "bin" / "python"


def measure(name: str, setup: Setup, every: int) -> dict[str, Any]:
    """Run a peer in its interpreter. Returns its report, or one that says why there is none."""
    if not is_installed(name, setup):
        return {"name": name, "missing": "not installed (run --install)"}
    python = _python_of(name) if setup.pins and setup.tool == "pip" else Path(sys.executable)
    command = [str(python), "-W", "ignore", "-m", f"bench.peers.{setup.module}", "--every", str(every)]
    begun = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=TIMEOUT)
        report: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["without a word"]
        return {"name": name, "missing": f"failed: {lines[-1][:200]}"}
    except (subprocess.TimeoutExpired, ValueError) as error:
        return {"name": name, "missing": f"failed: {type(error).__name__}: {str(error)[:150]}"}
    return report | {"seconds": round(time.monotonic() - begun, 1)}


def table_of(reports: list[dict[str, Any]]) -> list[str]:
    """The table, as markdown that is aligned enough to read as it is."""
    header = ["framework", "run", "stopped by", "points", *FAULTS, "quiet", "quiet at rest", "the run then"]
    rows = [header]
    for report in reports:
        if "missing" in report:
            rows.append([report["name"], report["missing"], *[""] * (len(header) - 2)])
        for row in report.get("rows", ()):
            faults = [str(row["faults"][fault] or "-") for fault in FAULTS]
            quiet = f"{math.floor(100 * row['quiet'] / row['points'])} %" if row["points"] else "?"
            ended = ", ".join(f"{how} {count}" for how, count in row["ended"].items())
            at_rest = f"{row['quiet_at_rest']} of {row['points_at_rest']}"
            points = str(row["points"])
            rows.append([report["name"], row["mode"], row["action"], points, *faults, quiet, at_rest, ended])
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |" for cells in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def text_of(reports: list[dict[str, Any]], every: int) -> str:
    """Everything that is printed: notes, columns, frameworks, table, first witnesses."""
    lines = [NOTES, "", "Columns, each the number of points at which it was so:"]
    lines += [f"- {name}: {meaning}" for name, meaning in FAULTS.items()]
    lines += ["", "Frameworks:"]
    for report in reports:
        if "missing" in report:
            lines.append(f"- {report['name']}: {report['missing']}")
            continue
        versions = ", ".join(f"{package} {version}" for package, version in report["versions"].items())
        lines.append(f"- {report['name']}: {versions or 'no packages'}, {report['runtime']}, {report['seconds']} s.")
        lines.append(f"  Stop call: {report['stop_call']}. Record: {report['record']}.")
    if every > 1:
        lines += ["", f"QUICK MODE: only every {every}th point."]
    lines += ["", *table_of(reports), "", "First point of each fault:"]
    for report in reports:
        for row in report.get("rows", ()):
            for fault, witness in row["first"].items():
                lines.append(f"- {report['name']}, {row['mode']}, {row['action']}: {fault} {witness}")
    return "\n".join(lines) + "\n"


def self_check() -> int:
    """The judge must find every kind of fault in the loop that has them all."""
    report = measure("forgetful", SELF_CHECK, 1)
    sys.stdout.write("\n".join(table_of([report])) + "\n")
    found = {fault for row in report.get("rows", ()) for fault, count in row["faults"].items() if count}
    missed = [fault for fault in FAULTS if fault not in found]
    sys.stdout.write(f"the judge missed: {', '.join(missed)}\n" if missed else "the judge found every kind of fault\n")
    return 1 if missed else 0


def chosen_peers(text: str) -> dict[str, Setup]:
    """The peers named, in the order of the table."""
    names = text.split(",") if text else list(PEERS)
    if unknown := set(names) - set(PEERS):
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return {name: setup for name, setup in PEERS.items() if name in names}


def main() -> int:
    """Install, or measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cancellation")
    parser.add_argument("--install", action="store_true", help="install the peers, do not measure")
    parser.add_argument("--peers", default="", help=f"some of {', '.join(PEERS)}")
    parser.add_argument("--every", type=int, default=1, help="only every n-th point")
    parser.add_argument("--json", type=Path, help="write the reports here too")
    parser.add_argument("--self-check", action="store_true", help="judge a loop with known faults")
    options = parser.parse_args()
    if options.self_check:
        return self_check()
    peers = chosen_peers(options.peers)
    if options.install:
        return install_all(peers)
    reports = [measure(name, setup, options.every) for name, setup in peers.items()]
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1) + "\n")
    sys.stdout.write(text_of(reports, options.every))
    return 1 if any(report.get("missing", "").startswith("failed") for report in reports) else 0


def install_all(peers: dict[str, Setup]) -> int:
    """Install what is not there yet; one that fails does not keep the others away."""
    failed = []
    for name, setup in peers.items():
        if is_installed(name, setup):
            continue
        try:
            install(name, setup)
        except (OSError, subprocess.SubprocessError) as error:
            failed.append(f"{name}: {error}")
    sys.stdout.write("\n".join(failed) + "\n" if failed else "installed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
