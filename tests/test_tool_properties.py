"""Tools over generated types, arguments and docstrings: what is taken, what is refused, and that all ways agree."""

import dataclasses
import enum
import inspect
import json
import types
import typing
from typing import Annotated, Any, Literal, Union

import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trio_agent import Tool, ToolCall, ToolContext, tool
from trio_agent._frozen import freeze, thaw
from trio_agent._tools import check_arguments, check_call

thoroughly = settings(
    derandomize=True,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow],
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Kind:
    """A type, and what JSON goes with it.

    Attributes:
        good: values that are of the type as they are.
        bad: values with exactly one wrong place, and where that is.
        loosely: a good value as a model may send it that errs.
    """

    hint: Any
    good: st.SearchStrategy[Any]
    bad: st.SearchStrategy[tuple[Any, str]]
    loosely: Any = lambda value: value


def leaf(hint: Any, good: st.SearchStrategy[Any], *bad: Any, loosely: Any = lambda value: value) -> Kind:
    return Kind(hint, good, st.sampled_from(bad).map(lambda value: (value, "")), loosely)


words = st.text("abcdefgh", min_size=1, max_size=6)
integers = st.integers(-(2**53), 2**53)
floats = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = [
    leaf(int, integers, "many", 1.5, None, [1], {}, "1.5x", "nan", loosely=str),
    leaf(float, floats, "much", "nan", "-Infinity", None, [], loosely=repr),
    leaf(bool, st.booleans(), "maybe", 2, None, [True], loosely=lambda value: str(value).lower()),
    leaf(str, st.text(), 1, None, ["a"], {"a": 1}),
    leaf(Literal["a", "b"], st.sampled_from(["a", "b"]), "c", 1, None),
    leaf(Color, st.sampled_from(["red", "blue"]), "green", "RED", 0),
    leaf(Annotated[int, msgspec.Meta(ge=0, le=9)], st.integers(0, 9), -1, 10, "11", "x", loosely=str),
    leaf(Annotated[str, msgspec.Meta(max_length=3)], st.text(max_size=3), "abcd", 5),
    leaf(int | None, st.none() | integers, "many", [], loosely=lambda v: "null" if v is None else str(v)),
    leaf(int | str, integers | words, None, [], {}),
    leaf(types.NoneType, st.none(), 1, "x"),
]


def list_of(item: Kind) -> Kind:
    @st.composite
    def bad(draw: st.DrawFn) -> tuple[Any, str]:
        values = draw(st.lists(item.good, min_size=1, max_size=3))
        index = draw(st.integers(0, len(values) - 1))
        values[index], path = draw(item.bad)
        return values, f"[{index}]{_under(path)}"

    whole = st.sampled_from([("no list", ""), (7, ""), ({"a": 1}, "")])
    good = st.lists(item.good, max_size=3)
    return Kind(list[item.hint], good, bad() | whole, lambda value: json.dumps([item.loosely(i) for i in value]))  # type: ignore[name-defined]


def dict_of(item: Kind) -> Kind:
    @st.composite
    def bad(draw: st.DrawFn) -> tuple[Any, str]:
        values = draw(st.dictionaries(words, item.good, min_size=1, max_size=3))
        name = draw(st.sampled_from(sorted(values)))
        values[name], path = draw(item.bad)
        return values, f"{name}{_under(path)}"

    good = st.dictionaries(words, item.good, max_size=3)
    return Kind(
        dict[str, item.hint],  # type: ignore[name-defined]
        good,
        bad() | st.just((3, "")),
        lambda value: json.dumps({name: item.loosely(i) for name, i in value.items()}),
    )


def pair_of(first: Kind, second: Kind) -> Kind:
    @st.composite
    def bad(draw: st.DrawFn) -> tuple[Any, str]:
        if draw(st.booleans()):
            value, path = draw(first.bad)
            return [value, draw(second.good)], f"[0]{_under(path)}"
        return [draw(first.good)], ""

    good = st.tuples(first.good, second.good).map(list)
    return Kind(
        tuple[first.hint, second.hint],  # type: ignore[name-defined]
        good,
        bad(),
        lambda value: [first.loosely(value[0]), second.loosely(value[1])],
    )


def _class_of(sort: str, fields: dict[str, Kind]) -> Any:
    hints = {name: kind.hint for name, kind in fields.items()}
    match sort:
        case "dataclass":
            return dataclasses.make_dataclass("Made", hints.items())
        case "attrs":
            return attrs.make_class("Made", {name: attrs.field(type=hint) for name, hint in hints.items()})
        case "struct":
            return msgspec.defstruct("Made", list(hints.items()))
        case _:
            return typing.TypedDict("Made", hints)  # type: ignore[misc]


def object_of(sort: str, fields: dict[str, Kind]) -> Kind:
    good = st.fixed_dictionaries({name: kind.good for name, kind in fields.items()})

    @st.composite
    def bad(draw: st.DrawFn) -> tuple[Any, str]:
        values = dict(draw(good))
        name = draw(st.sampled_from(sorted(fields)))
        match draw(st.sampled_from(["wrong", "missing", "unknown"])):
            case "wrong":
                values[name], path = draw(fields[name].bad)
                return values, f"{name}{_under(path)}"
            case "missing":
                del values[name]
                return values, name
            case _:
                return values | {"zz": 1}, "zz"

    def loosely(value: Any) -> Any:
        return json.dumps({name: fields[name].loosely(item) for name, item in value.items()})

    return Kind(_class_of(sort, fields), good, bad() | st.just(([1], "")), loosely)


def optional(kind: Kind) -> Kind:
    def loosely(value: Any) -> Any:
        return None if value is None else kind.loosely(value)

    return Kind(Union[kind.hint, None], st.none() | kind.good, kind.bad.filter(lambda b: b[0] is not None), loosely)  # noqa: UP007


def _under(path: str) -> str:
    return path if not path or path.startswith("[") else f".{path}"


def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    objects = st.builds(
        object_of,
        st.sampled_from(["dataclass", "attrs", "struct", "typed dict"]),
        st.dictionaries(words.map(lambda word: f"n_{word}"), inner, min_size=1, max_size=3),
    )
    containers = st.one_of(inner.map(list_of), inner.map(dict_of), st.builds(pair_of, inner, inner), objects)
    return containers | containers.filter(lambda kind: not isinstance(kind.hint, type(int | None))).map(optional)


kinds = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


def tool_of(required: dict[str, Kind], defaulted: dict[str, Kind]) -> Tool:
    """A tool that returns what it was called with."""

    async def made(**arguments: Any) -> Any:
        return arguments

    hints = {name: kind.hint for name, kind in (required | defaulted).items()}
    made.__annotations__ = dict(hints)
    made.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hint,
                default=... if name in defaulted else inspect.Parameter.empty,
            )
            for name, hint in hints.items()
        ]
    )
    return tool(made)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Tool, dict[str, Kind], dict[str, Any]]:
    """A tool, its parameters, and good arguments; some of those that have a default are left out."""
    required = draw(st.dictionaries(words.map(lambda w: f"r_{w}"), kinds, max_size=3))
    defaulted = draw(st.dictionaries(words.map(lambda w: f"d_{w}"), kinds, max_size=2))
    named = required | defaulted
    sent = [name for name in named if name in required or draw(st.booleans())]
    return tool_of(required, defaulted), named, {name: draw(named[name].good) for name in sent}


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down."""
    return bool(one == other) and repr(one) == repr(other)


@thoroughly
@given(signatures())
def test_good_arguments_are_taken_by_every_way_alike(made: tuple[Tool, dict[str, Kind], dict[str, Any]]) -> None:
    tool_, named, arguments = made
    sent, before = freeze(arguments), json.dumps(arguments)
    of_mapping = check_arguments(tool_, sent)
    from_text = tool_.validate.from_text(before)  # type: ignore[union-attr]
    assert from_text is not None
    assert set(of_mapping) == set(arguments)
    assert same({name: from_text[name] for name in of_mapping}, of_mapping)
    assert same({name: of_mapping[name] for name in from_text}, from_text)
    loose = {name: named[name].loosely(value) for name, value in arguments.items()}
    assert same(check_arguments(tool_, freeze(loose)), of_mapping)
    assert check_call(tool_, ToolCall.from_text("c", "made", json.dumps(loose))) == from_text
    assert json.dumps(thaw(sent)) == before
    assert jsonschema_rs.is_valid(thaw(tool_.parameters), arguments)


@thoroughly
@given(signatures(), st.data())
def test_every_broken_argument_is_named_and_no_other(
    made: tuple[Tool, dict[str, Kind], dict[str, Any]], data: st.DataObject
) -> None:
    tool_, named, arguments = made
    broken = {name for name in named if data.draw(st.booleans())}
    paths = ["unknown"] if data.draw(st.booleans()) or not broken else []
    wrong = arguments | ({"unknown": 1} if paths else {})
    for name in sorted(broken):
        if name in arguments and name.startswith("r_") and data.draw(st.booleans()):
            del wrong[name]
            paths.append(name)
        else:
            wrong[name], path = data.draw(named[name].bad)
            paths.append(f"{name}{_under(path)}")
    text = json.dumps(wrong)
    assert tool_.validate.from_text(text) is None  # type: ignore[union-attr]
    for refuse in (
        lambda: check_arguments(tool_, freeze(wrong)),
        lambda: check_call(tool_, ToolCall.from_text("c", "made", text)),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            refuse()
        problems = str(caught.value).split("; ")
        assert sorted(problem.split(":")[0] for problem in problems) == sorted(paths)
    assert not jsonschema_rs.is_valid(thaw(tool_.parameters), wrong)


async def _nothing(arguments: dict[str, Any], context: ToolContext) -> None: ...


@thoroughly
@given(signatures(), st.data())
def test_a_raw_schema_takes_what_a_validator_takes(
    made: tuple[Tool, dict[str, Kind], dict[str, Any]], data: st.DataObject
) -> None:
    typed, named, arguments = made
    raw = Tool("raw", "", typed.parameters, _nothing)
    fresh = check_arguments(raw, freeze(arguments))
    assert fresh == arguments
    assert type(fresh) is dict
    if not named:
        return
    name = data.draw(st.sampled_from(sorted(named)))
    value, _ = data.draw(named[name].bad)
    with pytest.raises(ValueError, match=rf"(^|; ){name}(\.|:)") as caught:
        check_arguments(raw, freeze(arguments | {name: value}))
    with pytest.raises(ValueError, match=r".") as of_call:
        check_call(raw, ToolCall.from_text("c", "raw", json.dumps(arguments | {name: value})))
    assert str(of_call.value) == str(caught.value)


sentences = st.lists(
    st.sampled_from(["reads", "writes", "the", "a", "file", "number", "of", "lines", "that", "is"]),
    min_size=1,
    max_size=12,
)
GOOGLE = "{0}\n\n{1}\n\nArgs:\n{2}"
NUMPY = "{0}\n\n{1}\n\nParameters\n----------\n{2}"
REST = "{0}\n\n{1}\n\n{2}"
FORMS = {
    GOOGLE: "    {name}: {text}",
    GOOGLE + "\n\nReturns:\n    What was done.": "    {name} (int): {text}",
    NUMPY: "{name} : int\n    {text}",
    NUMPY + "\n\nReturns\n-------\nstr\n    What was done.": "{name}\n    {text}",
    REST: ":param {name}: {text}",
    REST + "\n:returns: What was done.": ":param int {name}: {text}",
}


@pytest.mark.parametrize(("form", "row"), FORMS.items(), ids=["google", "google2", "numpy", "numpy2", "rest", "rest2"])
@settings(derandomize=True, deadline=None, max_examples=30)
@given(data=st.data())
def test_docstrings_of_every_form(form: str, row: str, data: st.DataObject) -> None:
    names = data.draw(st.lists(words.map(lambda word: f"p_{word}"), min_size=1, max_size=4, unique=True))
    notes = {name: " ".join(data.draw(sentences)) for name in names}
    head, body = (" ".join(data.draw(sentences)).capitalize() + "." for _ in range(2))
    rows = "\n".join(row.format(name=name, text=text) for name, text in notes.items())

    async def made(**arguments: int) -> None: ...

    made.__doc__ = form.format(head, body, rows)
    made.__annotations__ = dict.fromkeys(names, int)
    made.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=int) for name in names]
    )
    described = tool(made)
    shown = {name: part["description"] for name, part in described.parameters["properties"].items()}
    assert shown == notes
    assert described.description.startswith(f"{head}\n\n{body}")
    assert not any(name in described.description for name in names)
    assert ("What was done." in form) == ("What was done." in described.description)


atoms = st.none() | st.booleans() | st.integers() | floats | st.text()
json_values = st.recursive(atoms, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@thoroughly
@given(st.dictionaries(st.text(), json_values), st.sampled_from([None, 1]), st.booleans())
def test_the_arguments_of_a_call_are_what_the_text_says(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    call = ToolCall.from_text("c", "t", text)
    assert same(thaw(call.arguments), value)
    assert call.arguments_error is None
    assert call == ToolCall("c", "t", value)


@thoroughly
@given(st.text(), st.data())
def test_text_that_is_no_object_is_an_error_and_never_a_crash(text: str, data: st.DataObject) -> None:
    whole = json.dumps({"a": [1, {"b": text}]})
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    for broken in (cut, f"[{whole}]", json.dumps(text), f"{whole} x", '{"a": NaN}'):
        call = ToolCall.from_text("c", "t", broken)
        assert call.arguments == {}
        assert call.arguments_error is not None
        assert "the arguments " in call.arguments_error
