"""The TypeScript reference loop: ``pi_typescript.mjs`` plays, this judges. Runs in this interpreter."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ._judge import SETTLE, SETTLE_TURNS, Observation, Tally, Transcript, check_undisturbed
from ._scenario import CALLS, CONNECT_TURNS, NAPS, PAUSE

FOLDER = Path(__file__).parents[1] / ".peers" / "pi-typescript"
NODE = FOLDER / "node_modules" / ".bin" / "node"
SCRIPT = Path(__file__).with_suffix(".mjs")
PACKAGES = ("@earendil-works/pi-agent-core", "@earendil-works/pi-ai")
TIMEOUT = 300
SCENARIO = {
    "CALLS": CALLS,
    "NAPS": NAPS,
    "PAUSE": PAUSE,
    "CONNECT_TURNS": CONNECT_TURNS,
    "SETTLE": SETTLE,
    "SETTLE_TURNS": SETTLE_TURNS,
}


def play(every: int) -> list[dict[str, Any]]:
    """All runs, as the script describes them."""
    command = [str(NODE), str(SCRIPT), str(FOLDER), str(every), json.dumps(SCENARIO)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    return [json.loads(line) for line in done.stdout.splitlines()]


def observation_of(run: dict[str, Any]) -> Observation:
    """One run for the judge."""
    return Observation(
        effects=[(kind, id) for kind, id in run["effects"]],
        stopped_at=run["stoppedAt"],
        transcript=Transcript(run["calls"], run["results"]),
        leaked=run["leaked"],
        ended=run["ended"],
        again=run["again"],
        steps=run["steps"],
        rests=run["rests"],
    )


def report(every: int) -> dict[str, Any]:
    """All rows, as the other peers report theirs."""
    tallies: dict[str, Tally] = {}
    for run in play(every):
        tally = tallies.setdefault(run["mode"], Tally(f"{run['mode']}, prompt", "abort"))
        seen = observation_of(run)
        if run["point"] is None:
            check_undisturbed(seen)
        else:
            number, resting = run["point"]
            tally.add((number, resting), seen)
    return {
        "name": "pi-agent-core (TypeScript)",
        "versions": {name: _version(name) for name in PACKAGES},
        "runtime": f"node {_version('node')}",
        "stop_call": "agent.abort(): sets a signal that tools and stream may read; a promise cannot be cancelled. "
        "A step is one promise job; leaked tasks are pending sleeps of tools and model",
        "record": "agent.state.messages",
        "rows": [tally.to_dict() for tally in tallies.values()],
    }


def _version(package: str) -> str:
    text = (FOLDER / "node_modules" / package / "package.json").read_text()
    return str(json.loads(text)["version"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    sys.stdout.write(json.dumps(report(parser.parse_args().every)) + "\n")
