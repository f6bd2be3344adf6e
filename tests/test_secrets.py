"""A key that is given to a model is seen by its server and by nobody else, whatever the server does with it."""

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loopback import Reply, Request, serve

from trio_agent import Agent, ModelOptions, event_to_dict
from trio_agent.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel, fallback, retrying
from trio_agent.testing import record

KEY = "sk-very-secret-1234567890"
MODELS = [OpenAIChatModel, OpenAIResponsesModel, AnthropicModel]


def refused(request: Request) -> Reply:
    body = json.dumps({"error": {"message": f"bad key {KEY}", "type": KEY, "code": 401}, "headers": request.headers})
    return Reply([body.encode()], 401, {"content-type": "application/json"})


def refused_in_words(request: Request) -> Reply:
    return Reply([f"<html>no: {KEY}</html>".encode()], 403, {"content-type": "text/html"})


def redirected(request: Request) -> Reply:
    return Reply([], 302, {"location": f"https://elsewhere/?key={KEY}"})


def failed_in_the_stream(request: Request) -> Reply:
    return Reply([f'data: {{"error": {{"message": "no {KEY}"}}}}\n\n'.encode()])


def no_json(request: Request) -> Reply:
    return Reply([f"data: <{KEY}>\n\n".encode()])


def no_http(request: Request) -> Reply:
    return Reply(raw=f"{KEY} is not HTTP\r\n\r\n".encode())


def failed_response(request: Request) -> Reply:
    data = {"type": "response.failed", "response": {"status": "failed", "error": {"code": "x", "message": KEY}}}
    return Reply([f"data: {json.dumps(data)}\n\n".encode()])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    "reply", [refused, refused_in_words, redirected, failed_in_the_stream, no_json, no_http, failed_response]
)
@pytest.mark.parametrize("place", ["api_key", "header", "password"])
async def test_a_key_is_nowhere_to_be_seen(
    kind: Any, reply: Callable[[Request], Reply], place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # httpcore's own trace of the bytes (at DEBUG) shows what a server sends back; nothing else does
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "trio_agent")
    caplog.set_level(logging.DEBUG, "httpx")
    options, key = ModelOptions(), "other-key-abcdef"
    async with serve(reply) as server:
        url = server.url
        match place:
            case "api_key":
                key = KEY
            case "header":
                options = ModelOptions(extra_headers={"Authorization": f"Bearer {KEY}", "x-api-key": KEY})
            case _:
                url = url.replace("http://", f"http://user:{KEY}@")
        model = kind("m", base_url=url, api_key=key, options=options)
        path = tmp_path / "exchange.json"
        wrapped = record(fallback(retrying(model, 2, delay=0), model), path)
        agent = Agent(wrapped)
        async with agent.run("hello") as run:
            events = [event async for event in run]
            result = await run.result()
    assert result.outcome == "error"
    assert KEY in json.dumps([request.headers for request in server.requests]) or place == "password"
    error: Any = result.error
    seen = [
        *map(repr, [model, wrapped, agent, options, result, events, error, vars(error)]),
        *(json.dumps(event_to_dict(event)) for event in events),
        str(error),
        "".join(traceback.format_exception(error)),
        caplog.text,
        path.read_text(),
    ]
    assert [text[:300] for text in seen if KEY in text] == []


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    for kind in MODELS:
        with pytest.raises(ValueError, match="must be printable ASCII") as caught:
            kind("m", api_key=f"{KEY}\n")
        assert KEY not in "".join(traceback.format_exception(caught.value))
