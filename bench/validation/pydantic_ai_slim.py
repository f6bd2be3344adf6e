"""pydantic-ai: the tool manager of a real run, up to the arguments that the function is called with."""

import asyncio
from collections.abc import Callable
from typing import Any

import pydantic
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ._cases import CASES, FUNCTIONS, Case, bound
from ._side import FULL, Side, serve

BARE = "bare validator"
BUILDERS = frozenset({"function_schema", "GenerateSchema.generate_schema", "create_schema_validator"})
INCLUDED = {
    FULL: "ToolManager.validate_tool_call of a real run, to validated_args; refused: and the text of its tool_retry",
    BARE: "the tool's SchemaValidator.validate_json; refused: and str(error)",
}


def layer_call(case: Case, manager: Any) -> Callable[[], Any]:
    """The coroutine is driven by hand: it never waits for anything."""
    part = ToolCallPart(case.function, case.text, tool_call_id="c")
    validate = manager.validate_tool_call

    def call() -> Any:
        try:
            validate(part).send(None)
        except StopIteration as stop:
            validated = stop.value
            error = validated.validation_error
            return validated.validated_args if error is None else error.tool_retry.model_response_str()
        raise RuntimeError("the validation waits for something")

    return call


def bare_call(case: Case) -> Callable[[], Any]:
    """Pydantic with nothing around it."""
    validate = Tool(FUNCTIONS[case.function]).function_schema.validator.validate_json
    text = case.text

    def call() -> Any:
        try:
            return validate(text)
        except pydantic.ValidationError as error:
            return str(error)

    return call


def read(name: str, path: str, result: Any) -> Any:
    """The arguments as the function sees them."""
    return result if isinstance(result, str) else bound(CASES[name], (), result)


def make_side(manager: Any) -> Side:
    """All cases."""
    calls = {}
    for name, case in CASES.items():
        calls[name, FULL] = layer_call(case, manager)
        calls[name, BARE] = bare_call(case)
    return Side(("pydantic-ai-slim", "pydantic"), INCLUDED, Tool, calls, read, BUILDERS)


async def serve_in_a_run() -> None:
    """The tool manager is made by a run, and only good during it."""

    async def probe(context: RunContext[None]) -> str:
        serve(make_side(context.tool_manager))
        return "measured"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        first = len(messages) == 1
        return ModelResponse(parts=[ToolCallPart("probe", "{}") if first else TextPart("done")])

    tools = [Tool(function) for function in FUNCTIONS.values()]
    await Agent(FunctionModel(answer), tools=[Tool(probe), *tools]).run("go")


if __name__ == "__main__":
    asyncio.run(serve_in_a_run())
