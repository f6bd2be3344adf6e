"""The official clients: the iterator of chunks, and the helper that gathers them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai

from ._client import serve

ASK: Any = {"messages": [{"role": "user", "content": "x"}]}


def in_a_loop(read: Callable[[Any, str], Awaitable[int]], make: Callable[[str], Any]) -> Callable[[str, int], int]:
    """A reader with a client of its own."""

    async def main(url: str, count: int) -> int:
        async with make(url) as client:
            return await read(client, str(count))

    return lambda url, count: asyncio.run(main(url, count))


async def chat(client: Any, model: str) -> int:
    """Chat completions, chunk by chunk."""
    size = 0
    async for chunk in await client.chat.completions.create(model=model, stream=True, **ASK):
        size += len(chunk.choices[0].delta.content or "")
    return size


async def chat_helper(client: Any, model: str) -> int:
    """Chat completions, with the helper."""
    async with client.chat.completions.stream(model=model, **ASK) as stream:
        async for _ in stream:
            pass
        return len((await stream.get_final_completion()).choices[0].message.content)


async def responses(client: Any, model: str) -> int:
    """Responses, event by event."""
    size = 0
    async for event in await client.responses.create(model=model, input="x", stream=True):
        if event.type == "response.output_text.delta":
            size += len(event.delta)
    return size


async def responses_helper(client: Any, model: str) -> int:
    """Responses, with the helper."""
    async with client.responses.stream(model=model, input="x") as stream:
        async for _ in stream:
            pass
        return len((await stream.get_final_response()).output_text)


async def messages(client: Any, model: str) -> int:
    """Anthropic's messages, event by event."""
    size = 0
    async for event in await client.messages.create(model=model, max_tokens=9, stream=True, **ASK):
        if event.type == "content_block_delta":
            size += len(event.delta.text)
    return size


async def messages_helper(client: Any, model: str) -> int:
    """Anthropic's messages, with the helper."""
    async with client.messages.stream(model=model, max_tokens=9, **ASK) as stream:
        async for _ in stream:
            pass
        return len((await stream.get_final_message()).content[0].text)


def of_openai(url: str) -> Any:
    """A client."""
    return openai.AsyncOpenAI(base_url=url, api_key="x")


def of_anthropic(url: str) -> Any:
    """A client."""
    return anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="x")


if __name__ == "__main__":
    serve(
        ("openai", "anthropic"),
        {
            "chat/iterator": in_a_loop(chat, of_openai),
            "chat/helper": in_a_loop(chat_helper, of_openai),
            "responses/iterator": in_a_loop(responses, of_openai),
            "responses/helper": in_a_loop(responses_helper, of_openai),
            "anthropic/iterator": in_a_loop(messages, of_anthropic),
            "anthropic/helper": in_a_loop(messages_helper, of_anthropic),
        },
    )
