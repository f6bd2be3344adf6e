"""@tool and Tool: schema, checked and converted arguments, results."""

from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
import trio

from trio_agent import Text, Tool, ToolContext, ToolResult, tool
from trio_agent._frozen import freeze
from trio_agent._tools import check_arguments, to_result


@attrs.frozen
class Point:
    x: int
    y: int = 0


@tool
async def sample(path: str, mode: Literal["r", "w"] = "r", at: Point | None = None, *, count: int = 1) -> str:
    """Do a thing.

    In detail.
    """
    return f"{path} {mode} {at} {count}"


def test_a_typed_function_describes_itself() -> None:
    assert sample.name == "sample"
    assert sample.description == "Do a thing.\n\nIn detail."
    assert sample.parameters["type"] == "object"
    assert sample.parameters["required"] == ["path"]
    assert sample.parameters["additionalProperties"] is False
    assert sample.parameters["properties"]["mode"] == {"enum": ["r", "w"], "default": "r"}
    assert "$ref" not in sample.parameters
    assert "Point" in sample.parameters["$defs"]


def test_arguments_are_checked_and_converted() -> None:
    arguments = check_arguments(sample, freeze({"path": "a", "at": {"x": 1}, "count": "3"}))
    assert arguments == {"path": "a", "at": Point(1), "count": 3}


def test_every_failing_field_is_named() -> None:
    with pytest.raises(ValueError, match=r"extra: unknown.*path: required.*mode: .*'q'.*count: ") as caught:
        check_arguments(sample, {"mode": "q", "count": "many", "extra": 1})
    assert str(caught.value).count(";") == 3


def test_a_raw_schema_is_checked_by_jsonschema() -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> None: ...

    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "l": {"type": "array"}}, "required": ["n"]}
    raw = Tool("raw", "", schema, execute)
    assert check_arguments(raw, freeze({"n": 1, "l": [1]})) == {"n": 1, "l": [1]}
    with pytest.raises(ValueError, match=r'"n" is a required property; l: 3 is not of type "array"'):
        check_arguments(raw, {"l": 3})


def test_a_tool_gets_arguments_of_its_own() -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> None: ...

    given = freeze({"l": [1]})
    fresh = check_arguments(Tool("raw", "", {"type": "object"}, execute), given)
    fresh["l"].append(2)
    assert given == {"l": [1]}


async def test_the_context_is_filled_in_and_not_shown() -> None:
    @tool
    async def f(n: int, context: ToolContext) -> str:
        """F."""
        return f"{n} {context.tool_call_id}"

    assert set(f.parameters["properties"]) == {"n"}
    assert await f.execute({"n": 1}, ToolContext("id", "f")) == "1 id"


async def test_a_sync_function_runs_in_a_thread_and_may_report_progress() -> None:
    reports: list[tuple[ToolResult, bool]] = []
    main = trio.lowlevel.current_task()

    def report(partial: ToolResult) -> bool:
        reports.append((partial, trio.lowlevel.current_root_task() is not None and main is not None))
        return True

    @tool
    def f(context: ToolContext) -> str:
        """F."""
        assert not trio.lowlevel.in_trio_run()
        assert context.update("half")
        return "done"

    assert await f.execute({}, ToolContext("id", "f", report=report)) == "done"
    assert reports == [(ToolResult("half"), True)]


async def test_settings_and_annotated_constraints() -> None:
    @tool(name="other", description="D", timeout=2.0, atomic=True, sequential=True)
    async def f(n: Annotated[int, msgspec.Meta(ge=1, description="how many")]) -> None:
        """F."""

    assert (f.name, f.description, f.timeout, f.atomic, f.sequential) == ("other", "D", 2.0, True, True)
    assert f.parameters["properties"]["n"]["description"] == "how many"
    with pytest.raises(ValueError, match="n: Expected `int` >= 1"):
        check_arguments(f, {"n": 0})


async def test_a_mutable_default_makes_an_optional_argument() -> None:
    @tool
    async def f(items: list[int] = []) -> list[int]:  # noqa: B006
        """F."""
        items.append(1)
        return items

    assert "items" not in f.parameters.get("required", [])
    assert check_arguments(f, {}) == {}


def test_what_a_function_may_not_have() -> None:
    with pytest.raises(TypeError, match="parameter 'b' has no annotation; write b: str"):

        @tool
        async def missing(a: int, b) -> None:  # type: ignore[no-untyped-def]
            """F."""

    with pytest.raises(TypeError, match=r"\*args.* cannot be named by a model"):

        @tool
        async def variadic(*args: int) -> None:
            """F."""

    with pytest.raises(TypeError, match="type has no JSON Schema"):

        @tool
        async def odd(a: trio.Event) -> None:
            """F."""

    with pytest.raises(TypeError, match="expected a function or a callable object, got int"):
        tool(3)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": ""}, "name must be letters"),
        ({"name": "a b"}, "name must be letters"),
        ({"parameters": {"type": "array"}}, "parameters must be a JSON Schema of type object"),
        ({"execute": 3}, "execute must be"),
        ({"timeout": 0}, "timeout must be a positive number"),
    ],
)
def test_what_a_tool_may_not_be(settings: dict[str, Any], says: str) -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> None: ...

    good: dict[str, Any] = {"name": "t", "description": "", "parameters": {"type": "object"}, "execute": execute}
    with pytest.raises((TypeError, ValueError), match=says):
        Tool(**good | settings)


def test_results_in_every_form() -> None:
    ready = ToolResult("x", is_error=True)
    assert to_result(ready) is ready
    assert to_result("a") == ToolResult("a")
    assert to_result(None) == ToolResult(())
    assert to_result([Text("a"), Text("b")]).text == "ab"
    assert to_result({"a": Point(1)}).text == '{"a":{"x":1,"y":0}}'
    assert to_result([]).text == "[]"
    with pytest.raises(TypeError):
        to_result(object())
