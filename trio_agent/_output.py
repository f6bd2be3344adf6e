"""Structured output: what a run is to give as a value, and whether it has come."""

import json
from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, TypeVar

import attrs

from ._json import refuse_constant
from ._mend import convert_to
from ._parameters import check_nested, closed_schema, readable
from ._result import NO_OUTPUT
from .abc import Tool, ToolContext

__all__ = ["ACCEPTED_TEXT", "Output", "OutputSlot"]

T = TypeVar("T")

ACCEPTED_TEXT: Final = "Accepted."
_DESCRIPTION: Final = "Give the final result. Call this once, when it is complete."
_WRAPPED: Final = "result"


def _check_retries(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"Output.retries must be a whole number of at least 0, not {value!r}")


def _check_mode(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value not in ("tool", "schema"):
        raise ValueError(f"Output.mode must be 'tool' or 'schema', not {value!r}")


@attrs.frozen
class Output(Generic[T]):
    """How a run is to give its value, where ``output=Type`` alone does not say enough.

    Attributes:
        type: what the value must be: anything that a tool's parameter may be.
        mode: ``"tool"``: the model gives it by calling a tool that ends the run, which every model with tools can.
            ``"schema"``: its answer is the value as JSON, and the provider is asked to keep to the schema
            (`ModelOptions.response_schema`).
        retries: how many invalid or missing values a run corrects before it ends with a `ModelOutputError`.
        name, description: of the tool, for the model.
    """

    type: "type[T] | Any"
    mode: Literal["tool", "schema"] = attrs.field(default="tool", kw_only=True, validator=_check_mode)
    retries: int = attrs.field(default=2, kw_only=True, validator=_check_retries)
    name: str = attrs.field(default="final_result", kw_only=True)
    description: str = attrs.field(default=_DESCRIPTION, kw_only=True)


async def _never(arguments: dict[str, Any], context: ToolContext) -> Any:
    raise AssertionError("the loop takes the call of an output tool itself")


class OutputSlot:
    """The place of one run's value.

    Args:
        wanted: a type, or an `Output`.

    Attributes:
        value: the value, once it was accepted; `NO_OUTPUT` before.
        tool: what the model calls to give it; None in schema mode.
        schema: what its answer is to look like; None in tool mode.
        failures: how many invalid or missing values there were.
        problem: what was wrong with the last of them.

    Raises:
        TypeError: the type has no JSON Schema.
        ValueError: the name is not one for a tool.
    """

    def __init__(self, wanted: Any) -> None:
        self.output: Output[Any] = wanted if isinstance(wanted, Output) else Output(wanted)
        self.value: Any = NO_OUTPUT
        self.failures = 0
        self.problem = ""
        try:
            self._type = readable(self.output.type)
            check_nested(self._type)
            schema = closed_schema(self._type)
        except Exception as error:
            raise TypeError(f"output: {self.output.type!r} has no JSON Schema: {error}") from error
        self._is_wrapped = schema.get("type") != "object" or "properties" not in schema
        if self._is_wrapped:
            inner = {name: item for name, item in schema.items() if name != "$defs"}
            schema = {
                "type": "object",
                "properties": {_WRAPPED: inner},
                "required": [_WRAPPED],
                "additionalProperties": False,
                **({"$defs": schema["$defs"]} if "$defs" in schema else {}),
            }
        by_tool = self.output.mode == "tool"
        tool = Tool(self.output.name, self.output.description, schema, _never, validate=lambda arguments: arguments)
        self.tool: Tool | None = tool if by_tool else None
        self.schema: Mapping[str, Any] | None = None if by_tool else tool.parameters

    @property
    def is_filled(self) -> bool:
        """Has a value been accepted?"""
        return self.value is not NO_OUTPUT

    @property
    def is_given_up(self) -> bool:
        """Are the corrections used up?"""
        return not self.is_filled and self.failures > self.output.retries

    def takes(self, tool_name: str) -> bool:
        """Does a call of this tool give the value?"""
        return self.tool is not None and self.tool.name == tool_name

    def empty(self) -> None:
        """The conversation goes on, so the value is still to come."""
        self.value = NO_OUTPUT

    def check_name(self, tools: Mapping[str, Tool]) -> None:
        """Raise ValueError if one of the agent's own tools has the name of this one."""
        if self.tool is not None and self.tool.name in tools:
            raise ValueError(
                f"output: a tool of the agent is also called {self.tool.name!r}; use Output(type, name='...')"
            )

    def fill(self, arguments: object) -> None:
        """Accept what the model gave; or count a failure.

        Raises:
            ValueError: names every field that is wrong, in words for the model.
        """
        try:
            if self._is_wrapped:
                if not isinstance(arguments, Mapping) or set(arguments) != {_WRAPPED}:
                    raise ValueError(f"expected an object with the one field {_WRAPPED!r}")
                arguments = arguments[_WRAPPED]
            self.value = convert_to(self._type, arguments, _WRAPPED if self._is_wrapped else "")
        except (ValueError, RecursionError) as error:
            self.fail(str(error) or type(error).__name__)
            raise ValueError(self.problem) from error

    def fill_from_text(self, text: str) -> None:
        """The same for an answer in schema mode. Raises ValueError."""
        try:
            value = json.loads(_inside_fence(text), parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            self.fail(f"the answer is not JSON: {error}" if text.strip() else "the answer is empty")
            raise ValueError(self.problem) from error
        self.fill(value)

    def fail(self, problem: str) -> None:
        """Count an invalid or missing value."""
        self.failures += 1
        self.problem = problem

    @property
    def correction(self) -> str:
        """What the model is told in a message of its own if its answer held no valid value."""
        if self.tool is not None:
            return f"The final result is still missing: call the tool {self.tool.name!r} with it."
        return f"The answer must be one JSON value that fits the schema, and nothing else. Problem: {self.problem}"


def _inside_fence(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") : -3]
    return text
