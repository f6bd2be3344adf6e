"""@tool and Tool: schema, checked and converted arguments, results."""

import copy
import dataclasses
import functools
import pickle
from typing import Annotated, Any, ClassVar, Literal

import attrs
import msgspec
import pytest
import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    Text,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    ToolResultMessage,
    tool,
)
from trio_agent._frozen import freeze
from trio_agent._json import parse_arguments
from trio_agent._tools import check_arguments, to_result
from trio_agent.testing import ScriptedModel


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


class Store:
    """A store of numbers."""

    kind: ClassVar[str] = "store"

    def __init__(self, factor: int) -> None:
        self.factor = factor

    async def times(self, n: int) -> int:
        """Multiply."""
        return n * self.factor

    def plus(self, n: int) -> int:
        """Add, in a thread."""
        assert not trio.lowlevel.in_trio_run()
        return n + self.factor

    @classmethod
    async def named(cls, n: int) -> str:
        """Name it."""
        return f"{cls.kind} {n}"

    @staticmethod
    async def plain(n: int) -> int:
        """No more than that."""
        return n

    async def __call__(self, n: int) -> int:
        """Call the store."""
        return n - self.factor


class SyncCallable:
    """A callable object, documented at its class."""

    def __call__(self, n: int) -> bool:
        return trio.lowlevel.in_trio_run()


async def scaled(factor: int, n: int, *, offset: int = 0, context: ToolContext[dict[str, int]]) -> int:
    """Scale a number.

    Args:
        factor: by what.
        n: which number.
        offset: added at the end.
    """
    return factor * n + offset + context.deps["more"]


def logged(function: Any) -> Any:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f"logged {await function(*args, **kwargs)}"

    return wrapper


def a_closure(base: int) -> Any:
    @dataclasses.dataclass
    class Local:
        n: int

    async def near(at: Local) -> int:
        """Near the base."""
        return base + at.n

    return near


@pytest.mark.parametrize(
    ("function", "name", "description", "arguments", "returned"),
    [
        (Store(3).times, "times", "Multiply.", {"n": 2}, 6),
        (Store(3).plus, "plus", "Add, in a thread.", {"n": 2}, 5),
        (Store.named, "named", "Name it.", {"n": 2}, "store 2"),
        (Store.plain, "plain", "No more than that.", {"n": 2}, 2),
        (Store(3), "Store", "Call the store.", {"n": 2}, -1),
        (SyncCallable(), "SyncCallable", "A callable object, documented at its class.", {"n": 2}, False),
        (functools.partial(scaled, 10), "scaled", "Scale a number.", {"n": 2}, 21),
        (functools.partial(scaled, 10, offset=5), "scaled", "Scale a number.", {"n": 2}, 26),
        (functools.partial(Store(3).times), "times", "Multiply.", {"n": 2}, 6),
        (logged(Store(3).times), "times", "Multiply.", {"n": 2}, "logged 6"),
        (a_closure(40), "near", "Near the base.", {"at": {"n": 2}}, 42),
    ],
)
async def test_whatever_can_be_called_can_be_a_tool(
    function: Any, name: str, description: str, arguments: dict[str, Any], returned: Any
) -> None:
    made = tool(function)
    assert (made.name, made.description) == (name, description)
    assert made.parameters["required"] == list(arguments)
    assert "factor" not in made.parameters["properties"]
    assert "self" not in made.parameters["properties"]
    ready = check_arguments(made, freeze(arguments))
    assert await made.execute(ready, ToolContext("c", name, deps={"more": 1})) == returned


@attrs.frozen
class Shop:
    """What tools are given instead of globals."""

    prices: dict[str, float]


@tool
async def price(item: str, context: ToolContext[Shop]) -> float:
    """The price of an item."""
    return context.deps.prices[item]


@tool
def price_in_thread(item: str, context: ToolContext[Shop]) -> float:
    """The price of an item."""
    assert not trio.lowlevel.in_trio_run()
    return context.deps.prices[item]


async def test_dependencies_reach_async_and_sync_tools_and_can_be_replaced() -> None:
    asks = [ToolCall("1", "price", {"item": "tea"}), ToolCall("2", "price_in_thread", {"item": "tea"})]
    agent: Agent[Shop] = Agent(
        ScriptedModel(asks, "ok", asks, "ok"), tools=[price, price_in_thread], deps=Shop({"tea": 2.5})
    )

    async def answers() -> list[str]:
        result = await agent.prompt("What is tea?")
        return [message.text for message in result.messages if isinstance(message, ToolResultMessage)]

    assert await answers() == ["2.5", "2.5"]
    agent.deps = Shop({"tea": 3.0})
    assert await answers() == ["3.0", "3.0"]


def test_what_a_partial_has_bound_is_not_shown_and_the_rest_keeps_its_description() -> None:
    made = tool(functools.partial(scaled, 10))
    assert {name: part["description"] for name, part in made.parameters["properties"].items()} == {
        "n": "which number.",
        "offset": "added at the end.",
    }
    assert set(tool(functools.partial(scaled, 10, offset=5)).parameters["properties"]) == {"n"}


def test_an_unbound_method_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"it takes 'self'.*tool\(obj.method\)"):
        tool(Store.times)


async def test_a_run_never_parses_what_nobody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def spy(text: str) -> Any:
        parsed.append(text)
        return parse_arguments(text)

    monkeypatch.setattr("trio_agent._messages.parse_arguments", spy)
    agent = Agent(ScriptedModel([ToolCall("c", "sample", {"path": "a"})], "done"), tools=[sample])
    result = await agent.prompt("go")
    assert result.text == "done"
    assert parsed == []
    call = next(message for message in result.messages if isinstance(message, AssistantMessage)).tool_calls[0]
    assert call.arguments == {"path": "a"}
    assert call.arguments == {"path": "a"}
    assert len(parsed) == 1


@pytest.mark.parametrize("looked", [False, True])
def test_a_call_made_of_text_is_like_any_other(looked: bool) -> None:
    plain = ToolCall("c", "t", {"a": [1, {"b": None}]})

    def make() -> ToolCall:
        call = ToolCall.from_text("c", "t", '{"a": [1, {"b": null}]}')
        if looked:
            assert call.arguments
        return call

    assert make() == plain
    assert plain == make()
    assert repr(make()) == repr(plain)
    assert copy.deepcopy(make()) == plain
    assert pickle.loads(pickle.dumps(make())) == plain
    assert attrs.evolve(make(), id="d") == attrs.evolve(plain, id="d")
    assert attrs.evolve(make(), arguments={}).arguments == {}
    assert make() != ToolCall.from_text("c", "t", "{}")
    with pytest.raises(TypeError, match="cannot be changed"):
        make().arguments["a"] = 1  # type: ignore[index]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        make().name = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="no attribute 'argument'"):
        make().argument  # type: ignore[attr-defined]  # noqa: B018


def test_an_event_of_a_call_shows_the_arguments_wherever_one_looks() -> None:
    call = ToolCall.from_text("c", "t", '{"a": 1}')
    event, plain = ToolExecutionStart("c", "t", call), ToolExecutionStart("c", "t", {"a": 1})
    assert event == plain
    assert event != ToolExecutionStart("c", "t", {"a": 2})
    assert repr(event) == repr(plain)
    assert event.arguments == {"a": 1}
    match event:
        case ToolExecutionStart(_, _, {"a": found}):
            assert found == 1
        case _:
            pytest.fail("it does not match by position")
