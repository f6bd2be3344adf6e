"""Thousands of requests cancelled at random points: then the model still works, and no socket is left."""

import gc
import os
import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from fake_writer import FakeWriter
from loopback import Loopback, Reply, Request, at_blank_lines, serve

from trio_agent import ModelError, ModelRequest, UserMessage
from trio_agent.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel

HELLO = ModelRequest("", (UserMessage("hello"),))
BODIES = {
    OpenAIChatModel: b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * 6
    + b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    OpenAIResponsesModel: b'data: {"type":"response.output_text.delta","item_id":"m","delta":"a"}\n\n' * 6
    + b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n',
    AnthropicModel: b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n' * 6
    + b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\ndata: {"type":"message_stop"}\n\n',
}


def sockets() -> int | None:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        return None
    links = [os.readlink(path) for path in folder.iterdir() if path.is_symlink()]
    return sum(1 for link in links if link.startswith("socket:"))


class Storm:
    """Requests from many tasks, each cancelled after a random number of steps, or not at all."""

    def __init__(self, model: Any, seed: int) -> None:
        self.ended: Counter[str] = Counter()
        self._model = model
        self._random = random.Random(seed)

    async def blow(self, tasks: int, requests: int) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(self._ask, requests)

    async def _ask(self, requests: int) -> None:
        for _ in range(requests):
            steps = self._random.choice([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 10_000])
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_later, steps, scope)
                    try:
                        await self._model.stream(HELLO, FakeWriter())
                        self.ended["whole"] += 1
                    except ModelError:
                        self.ended["failed"] += 1
                    nursery.cancel_scope.cancel()
            self.ended["cancelled"] += scope.cancelled_caught

    async def _cancel_later(self, steps: int, scope: trio.CancelScope) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        scope.cancel()


def answer(kind: Any, seed: int) -> Any:
    """Whole responses, and some that stall, break or are refused."""
    chance = random.Random(seed)
    chunks = at_blank_lines(BODIES[kind])

    def reply(request: Request) -> Reply:
        match chance.randrange(8):
            case 0:
                return Reply(chunks[:3], close="reset")
            case 1:
                return Reply(chunks[:3], close="stall")
            case 2:
                return Reply([b'{"error":{"message":"no"}}'], 503, {"content-type": "application/json"})
            case _:
                return Reply(chunks)

    return reply


async def still_works(model: Any, kind: Any, server: Loopback) -> None:
    server.reply = Reply(at_blank_lines(BODIES[kind]))
    for _ in range(3):
        out = FakeWriter()
        await model.stream(HELLO, out)
        assert out.prose("text") == "aaaaaa"
    assert model._http.limiter.borrowed_tokens == 0


@pytest.mark.parametrize("limit", [100, 3])
@pytest.mark.parametrize("kept", [False, True], ids=["one connection each", "kept connections"])
@pytest.mark.parametrize("kind", BODIES)
async def test_a_storm_of_cancellations_leaves_nothing(kind: Any, kept: bool, limit: int) -> None:
    gc.collect()
    before = sockets()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with serve(answer(kind, limit)) as server:
            model = kind("m", base_url=server.url, api_key="k", max_connections=limit)
            storm = Storm(model, seed=limit)
            if kept:
                async with model:
                    await storm.blow(20, 20)
                    await still_works(model, kind, server)
            else:
                await storm.blow(20, 20)
                await still_works(model, kind, server)
            await server.wait_open(0)
        gc.collect()
    assert [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)] == []
    assert sockets() == before
    assert min(storm.ended[how] for how in ("whole", "failed", "cancelled")) > 10, storm.ended
