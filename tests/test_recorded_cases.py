"""The 176 recorded scenarios of the reference loop: ours must do the same, seen from both sides."""

import json
from pathlib import Path
from typing import Any

import pytest
from recorded import Player

from trio_agent.testing import check_events, check_transcript

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases" / "loop_cases.jsonl").read_text().splitlines()]


def test_the_file_is_whole() -> None:
    assert len(CASES) == 176


@pytest.mark.parametrize("through", ["observers", "stream"])
@pytest.mark.parametrize("case", CASES, ids=[case["scenario"]["name"] for case in CASES])
async def test_recorded(case: dict[str, Any], through: str, autojump_clock: object) -> None:
    player = Player(case["scenario"])
    reduced, events = await player.play(through=through)
    assert reduced == case["expected"]
    if not reduced["raises"]:
        assert check_events(events) == []
    assert check_transcript(player.agent.messages) == []
