"""openai-agents: ``function_tool`` up to the first step of the user's function."""

import logging
import os
from collections.abc import Callable
from typing import Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ["OPENAI_AGENTS_DONT_LOG_TOOL_DATA"] = "0"  # or no refusal says what is wrong
os.environ.setdefault("OPENAI_API_KEY", "none")

import pydantic
from agents import FunctionTool, function_tool
from agents.function_schema import function_schema
from agents.tool_context import ToolContext

from ._cases import CASES, FUNCTIONS, Case, bound
from ._side import FULL, Side, serve

BARE = "bare validator"
BUILDERS = frozenset({"function_schema", "create_model", "GenerateSchema.generate_schema", "create_schema_validator"})
INCLUDED = {
    FULL: "FunctionTool.on_invoke_tool until the function's first step (json.loads, the pydantic model, "
    "to_call_args); refused: until it returns a failure_error_function's str(error), the log of the refusal turned "
    "off (by default the text names no field)",
    BARE: "params_pydantic_model's SchemaValidator.validate_json; refused: and str(error)",
}


def make(function: Callable[..., Any]) -> FunctionTool:
    """As a user does; the model is told what was wrong."""
    return function_tool(function, failure_error_function=lambda context, error: str(error))


def layer_call(case: Case, made: FunctionTool) -> Callable[[], Any]:
    """Drives the coroutine by hand until the function is reached, or a refusal returned."""
    text = case.text
    context = ToolContext(context=None, tool_name=made.name, tool_call_id="c", tool_arguments=text)

    def call() -> Any:
        coroutine = made.on_invoke_tool(context, text)
        try:
            coroutine.send(None)  # type: ignore[attr-defined]
        except StopIteration as stop:
            return stop.value
        return coroutine

    return call


def bare_call(case: Case) -> Callable[[], Any]:
    """Pydantic with nothing around it."""
    model = function_schema(FUNCTIONS[case.function]).params_pydantic_model
    validate = model.__pydantic_validator__.validate_json
    text = case.text

    def call() -> Any:
        try:
            return validate(text)
        except pydantic.ValidationError as error:
            return str(error)

    return call


def read(name: str, path: str, result: Any) -> Any:
    """What the parked function was called with."""
    if isinstance(result, str):
        return result
    if isinstance(result, pydantic.BaseModel):
        return bound(CASES[name], (), vars(result))
    inner = result
    while inner.cr_code.co_name != CASES[name].function:
        inner = inner.cr_await
    found = dict(inner.cr_frame.f_locals)
    result.close()
    return found


def make_side() -> Side:
    """All cases."""
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL + 1)  # a traceback of each refusal otherwise
    made = {name: make(function) for name, function in FUNCTIONS.items()}
    calls = {}
    for name, case in CASES.items():
        calls[name, FULL] = layer_call(case, made[case.function])
        calls[name, BARE] = bare_call(case)
    return Side(("openai-agents", "pydantic"), INCLUDED, make, calls, read, BUILDERS)


if __name__ == "__main__":
    serve(make_side())
