"""What does it cost to read a streamed response, per event?

    python -m bench.streaming --install                        the official clients and pydantic-ai, pinned
    python -m bench.streaming [--rounds N] [--events N] [--peers a,b] [--json FILE]
    python -m bench.streaming --self-check                     our side only, tiny: is all of the text there?

One server on 127.0.0.1 sends the same long response to all, an HTTP chunk for every event, as fast as it is read. Each
side runs in an interpreter of its own and is asked in turn, round by round: CPU time of its process, garbage collector
off, the client made and closed within. Ratios are of one round; the median and the range are shown.
"""

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .cancellation import ROOT, Setup, _python_of, install, is_installed

OURS = "trio_agent"
SIDES = {
    OURS: Setup("ours"),
    "official-clients": Setup("sdks", ("openai==3.63.0", "anthropic==2.17.0")),
    "pydantic-ai-full": Setup(
        "pydantic_ai_full", ("pydantic-ai-slim[openai,anthropic]==2.68.0", "openai==3.57.0", "anthropic==2.17.0")
    ),
}
PROTOCOLS = ("chat", "responses", "anthropic")
TARGET = 3.0
NOTES = """\
- "iterator" is what the official client's stream gives, chunk by chunk, and nothing kept; "helper" gathers the message
  too; "model" is ours, which gathers it always; "run" is a whole agent run whose events or text are read.
- Ratios: "iterator" and "helper" to our "model"; "run" to our "run".
- httpx alone, reading the same bytes and looking at none, is the floor of our side: 9 us per event when this was
  written, more than half of what we take. The server's own process is not counted."""


class Child:
    """A side in its interpreter, or the server."""

    def __init__(self, stack: ExitStack, python: str, module: str) -> None:
        command = [python, "-W", "ignore", "-m", f"bench.streams.{module}"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process = stack.enter_context(process)
        stack.callback(process.kill)

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, **question: Any) -> Any:
        """One question, one answer.

        Raises:
            RuntimeError: it died.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.line()
        if not answer:
            raise RuntimeError("the child gave no answer")
        return json.loads(answer)


def measure(names: list[str], rounds: int, events: int) -> tuple[dict[str, Any], dict[tuple[str, str], list[float]]]:
    """Versions, and CPU seconds per event of each side and reader, one figure a round."""
    with ExitStack() as stack:
        server = Child(stack, sys.executable, "server")
        url = f"http://127.0.0.1:{server.line().strip()}/v1"
        children = {
            name: Child(stack, str(_python_of(name)) if SIDES[name].pins else sys.executable, SIDES[name].module)
            for name in names
        }
        hello = {name: child.ask(ask="hello") for name, child in children.items()}
        readers = [(name, reader) for name in names for reader in hello[name]["readers"]]
        times: dict[tuple[str, str], list[float]] = {key: [] for key in readers}
        for number in range(-1, rounds):  # the first one warms up, and shows what does not work
            for name, reader in readers[number % len(readers) :] + readers[: number % len(readers)]:
                if (name, reader) not in times:
                    continue
                taken = children[name].ask(ask="read", reader=reader, url=url, count=events)
                if isinstance(taken, str):
                    sys.stderr.write(f"{name} {reader}: {taken}\n")
                    del times[name, reader]
                elif number >= 0:
                    times[name, reader].append(taken / events)
            sys.stderr.write(f"round {number + 1} of {rounds}\n")
        return hello, times


def rows_of(times: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    """The table."""
    rows = []
    for (name, reader), seconds in times.items():
        protocol, path = reader.split("/")
        own = times[OURS, f"{protocol}/{'run' if path == 'run' else 'model'}"]
        ratios = [theirs / ours for theirs, ours in zip(seconds, own, strict=True)]
        rows.append(
            {
                "protocol": protocol,
                "side": name,
                "path": path,
                "microseconds": statistics.median(seconds) * 1e6,
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
        )
    return sorted(rows, key=lambda row: PROTOCOLS.index(row["protocol"]))


def text_of(hello: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Everything that is printed."""
    lines = [NOTES, ""]
    for name, said in hello.items():
        lines.append(f"- {name}: {', '.join(f'{package} {version}' for package, version in said['versions'].items())}")
    lines += [
        "",
        f"{'protocol':10} {'side':17} {'path':9} {'us/event':>9} {'/ours':>7} {'min-max':>12}  >= {TARGET:g}x",
    ]
    for row in rows:
        spread = f"{row['least']:.2f}-{row['most']:.2f}"
        verdict = "" if row["side"] == OURS else "yes" if row["ratio"] >= TARGET else "no"
        line = f"{row['protocol']:10} {row['side']:17} {row['path']:9} {row['microseconds']:9.1f} {row['ratio']:7.2f}"
        lines.append(f"{line} {spread:>12}  {verdict}".rstrip())
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.streaming")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--peers", default=",".join(name for name in SIDES if name != OURS))
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--self-check", action="store_true", help="a tiny run of our side, its text checked")
    options = parser.parse_args()
    peers = [name for name in options.peers.split(",") if name]
    if options.install:
        for name in peers:
            install(name, SIDES[name])
        return 0
    if options.self_check:
        hello, times = measure([OURS], 2, 50)
        sys.stdout.write(text_of(hello, rows_of(times)))
        return 0 if len(times) == len(hello[OURS]["readers"]) else 1
    missing = [name for name in peers if not is_installed(name, SIDES[name])]
    for name in missing:
        sys.stderr.write(f"{name}: not installed (python -m bench.streaming --install)\n")
    hello, times = measure([OURS, *(name for name in peers if name not in missing)], options.rounds, options.events)
    rows = rows_of(times)
    sys.stdout.write(text_of(hello, rows))
    if options.json:
        options.json.write_text(json.dumps({"sides": hello, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
