"""pydantic-ai: an agent's answer as deltas of text."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from ._client import serve


def run(make: Callable[[str, str], Any], url: str, count: int) -> int:
    """A run, its text as it comes."""

    async def read() -> int:
        size = 0
        async with Agent(make(str(count), url)).run_stream("x") as result:
            async for delta in result.stream_text(delta=True, debounce_by=None):
                size += len(delta)
        return size

    return asyncio.run(read())


def chat(name: str, url: str) -> Any:
    """A model."""
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=url, api_key="x"))


def responses(name: str, url: str) -> Any:
    """A model."""
    return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=url, api_key="x"))


def messages(name: str, url: str) -> Any:
    """A model."""
    return AnthropicModel(name, provider=AnthropicProvider(base_url=url.removesuffix("/v1"), api_key="x"))


if __name__ == "__main__":
    makers = {"chat": chat, "responses": responses, "anthropic": messages}
    serve(
        ("pydantic-ai-slim", "openai", "anthropic"),
        {f"{protocol}/run": partial(run, make) for protocol, make in makers.items()},
    )
