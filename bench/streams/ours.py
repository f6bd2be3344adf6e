"""trio_agent: a model that writes into the loop's own writer, and a whole run that is watched."""

from functools import partial
from typing import Any

import trio

from trio_agent import Agent, MessageUpdate, UserMessage
from trio_agent._writer import ResponseWriter
from trio_agent.abc import ModelRequest
from trio_agent.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel

from ._client import serve


async def _no_wait() -> None: ...


def model(kind: Any, url: str, count: int) -> int:
    """The model alone: every delta is an event of the writer."""
    writer = ResponseWriter(lambda event: None, _no_wait)

    async def read() -> None:
        await kind(str(count), base_url=url).stream(ModelRequest("", (UserMessage("x"),)), writer)

    trio.run(read)
    return len(writer.close().text)


def run(kind: Any, url: str, count: int) -> int:
    """A run, read to its end."""
    size = 0

    async def read() -> None:
        nonlocal size
        async with Agent(kind(str(count), base_url=url)).run("x") as events:
            async for event in events:
                if isinstance(event, MessageUpdate):
                    size += len(event.delta)

    trio.run(read)
    return size


KINDS = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel, "anthropic": AnthropicModel}

if __name__ == "__main__":
    serve(
        ("trio-agent", "httpx"),
        {f"{protocol}/model": partial(model, kind) for protocol, kind in KINDS.items()}
        | {f"{protocol}/run": partial(run, kind) for protocol, kind in KINDS.items()},
    )
