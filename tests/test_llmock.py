"""`OpenAIChatModel` against a server that is not ours."""

import pytest
from fake_writer import FakeWriter
from llmock_server import llmock

from trio_agent._errors import ModelError, ModelProtocolError, ModelStatusError
from trio_agent._messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from trio_agent.abc import ModelOptions, ModelRequest, Tool
from trio_agent.models import OpenAIChatModel


async def nothing(arguments, context):
    return ""


WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    nothing,
)


@pytest.fixture(scope="session")
def url():
    with llmock() as root:
        yield f"{root}/v1"


async def test_text(url):
    out = FakeWriter()
    await OpenAIChatModel("gpt-4o", base_url=url).stream(ModelRequest("", (UserMessage("Good morning"),)), out)
    assert "Good morning" in out.prose("text")
    assert out.stop == "stop"
    assert out.usages[-1].input_tokens > 0
    assert out.usages[-1].output_tokens > 0


async def test_tool_call_and_answer(url):
    async with OpenAIChatModel("gpt-4o", base_url=url) as model:
        out = FakeWriter()
        question = UserMessage("What is the weather in Oslo?")
        await model.stream(ModelRequest("Be brief.", (question,), (WEATHER,)), out)
        ((id, name, arguments),) = out.calls
        assert (name, list(arguments), out.stop) == ("get_weather", ["city"], "tool_use")

        history = (question, AssistantMessage(ToolCall(id, name, arguments)), ToolResultMessage(id, name, "Sunny"))
        out = FakeWriter()
        await model.stream(ModelRequest("Be brief.", history, (WEATHER,)), out)
        assert out.prose("text")
        assert (out.calls, out.stop) == ([], "stop")


async def test_tool_choice(url):
    out = FakeWriter()
    request = ModelRequest("", (UserMessage("hello"),), (WEATHER,), ModelOptions(tool_choice="none"))
    await OpenAIChatModel("gpt-4o", base_url=url).stream(request, out)
    assert out.calls == []


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--error-rate-429", "1"], ModelStatusError),
        (["--stream-fault", "truncate=1"], ModelProtocolError),
        (["--stream-fault", "disconnect=1"], ModelError),
        (["--stream-fault", "malformed=1"], ModelProtocolError),
    ],
)
async def test_faults(options, kind):
    with llmock(*options) as root:
        with pytest.raises(kind) as caught:
            await OpenAIChatModel("gpt-4o", base_url=f"{root}/v1").stream(
                ModelRequest("", (UserMessage("Say a few words, please"),)), FakeWriter()
            )
    assert root in str(caught.value)
