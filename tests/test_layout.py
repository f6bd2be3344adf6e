"""The house: imports point down, front doors are sorted and complete, every event has its grammar row and its test."""

import ast
import importlib
import typing
from pathlib import Path

import pytest

import trio_agent
from trio_agent._grammar import CALL, RUN

PACKAGE = Path(trio_agent.__file__).parent
TESTS = Path(__file__).parent

FLOORS: list[set[str]] = [
    # words, from the ground up: each may import what stands before it
    {"_errors"},
    {"_frozen"},
    {"_json"},
    {"_messages"},
    {"_limits"},
    {"_events"},
    {"_result"},
    {"_encode"},
    # laws
    {"_grammar"},
    {"_transcript"},
    # ports
    {"abc"},
    {"_context"},
    # parts
    {"_scopes", "_docstrings", "_mend"},
    {"_arguments"},
    {"_parameters"},
    {"_stream", "_queues", "_writer", "_tools", "_observers", "_output", "_verdicts"},
    {"_config"},
    {"_record"},
    {"_budget"},
    {"_run"},
    # engine
    {"_guard"},
    {"_execute"},
    {"_calls"},
    {"_loop"},
    {"_drive"},
    # hall
    {"_nested", "_controls"},
    {"_agent"},
    # front door
    {"__init__"},
]
PURE = {
    "_errors",
    "_frozen",
    "_json",
    "_limits",
    "_messages",
    "_events",
    "_result",
    "_encode",
    "_grammar",
    "_transcript",
    "_context",
    "abc",
}
WORDS_AND_PORTS = {
    "_errors",
    "_frozen",
    "_limits",
    "_messages",
    "_events",
    "_result",
    "abc",
    "_transcript",
    "_grammar",
    "_context",
}
WINGS = {"models"}
ROOF = {"context", "testing", "tools", "cli", "__main__"}


def isort_style(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions, as ruff sorts."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def dotted(path: Path) -> str:
    return ".".join(("trio_agent", *path.relative_to(PACKAGE).with_suffix("").parts))


def room(path: Path) -> str:
    """The module's name on its floor, or the wing or roof it belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """The modules of our own package that a module imports, absolute and dotted."""
    package = dotted(path).split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            found.add(target)
            found |= {f"{target}.{alias.name}" for alias in node.names}
    known = {dotted(module).removesuffix(".__init__") for module in modules()}
    return {name for name in found if name in known}


def third_party(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


CORE = [path for path in modules() if path.parent == PACKAGE and room(path) not in ROOF]


def test_every_module_of_the_core_has_a_floor() -> None:
    assert {room(path) for path in CORE} == set().union(*FLOORS)


@pytest.mark.parametrize("path", CORE, ids=room)
def test_imports_of_the_core_point_down(path: Path) -> None:
    level = next(index for index, floor in enumerate(FLOORS) if room(path) in floor)
    below = set().union(*FLOORS[:level])
    upwards = {name for name in imports(path) if name.removeprefix("trio_agent.") not in below and name != "trio_agent"}
    assert upwards == set()
    if room(path) in PURE:
        assert not third_party(path) & {"trio", "httpx"}, "words, laws and ports are pure"


@pytest.mark.parametrize("path", [p for p in modules() if room(p) in WINGS], ids=dotted)
def test_wings_know_words_laws_and_ports_only(path: Path) -> None:
    own = f"trio_agent.{room(path)}"
    allowed = {f"trio_agent.{name}" for name in WORDS_AND_PORTS}
    strangers = {n for n in imports(path) if n not in allowed and n != own and not n.startswith(f"{own}.")}
    assert strangers <= {"trio_agent"}
    assert "from trio_agent import" not in path.read_text(), "a wing does not use the front door"


@pytest.mark.parametrize("path", [p for p in modules() if room(p) in ROOF], ids=dotted)
def test_the_roof_is_written_with_public_names_only(path: Path) -> None:
    own = f"trio_agent.{room(path)}"
    private = {
        name
        for name in imports(path)
        if any(part.startswith("_") for part in name.split(".")[1:]) and not name.startswith(f"{own}.")
    }
    assert private == set()


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_all_is_sorted_and_complete(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if path.name == "__main__.py":
        return
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [t.id for t in node.targets if isinstance(t, ast.Name)] == ["__all__"]
    ]
    assert len(lists) == 1, "one literal __all__"
    names = ast.literal_eval(lists[0])
    assert names == sorted(names, key=isort_style)
    if path.name == "__init__.py" and path.parent == PACKAGE:
        imported = {
            alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        assert set(names) == imported
    module = importlib.import_module(dotted(path).removesuffix(".__init__"))
    assert [name for name in names if not hasattr(module, name)] == []


def test_every_public_thing_has_a_docstring() -> None:
    missing = []
    for path in modules():
        module = importlib.import_module(dotted(path).removesuffix(".__init__"))
        for name in module.__all__ if hasattr(module, "__all__") else ():
            thing = getattr(module, name)
            if getattr(thing, "__module__", "").startswith("trio_agent") and not getattr(thing, "__doc__", None):
                missing.append(f"{module.__name__}.{name}")
    assert missing == []


def test_modules_and_functions_stay_small() -> None:
    long = []
    for path in modules():
        text = path.read_text()
        if len(text.splitlines()) > 400:
            long.append(f"{dotted(path)}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                size = body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]
                if size > 60:
                    long.append(f"{dotted(path)}.{node.name}: {size} lines")
    assert long == []


def test_no_async_generator_but_context_managers() -> None:
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and any(isinstance(n, ast.Yield) for n in ast.walk(node)):
                decorators = [d.id for d in node.decorator_list if isinstance(d, ast.Name)]
                if "asynccontextmanager" not in decorators:
                    found.append(f"{dotted(path)}.{node.name}")
    assert found == []


def test_every_event_class_has_a_grammar_row_and_a_test() -> None:
    symbols = {symbol for table in (RUN, CALL) for row in table.values() for symbol in row}
    rows = {"message_start": "assistant_start", "message_end": "assistant_end"}
    events = typing.get_args(trio_agent.AgentEvent)
    assert len(events) == 11
    tests = (TESTS / "test_grammar.py").read_text()
    for event in events:
        assert rows.get(event.type, event.type) in symbols, event
        assert f"{event.__name__}(" in tests, event
        assert event.__name__ in trio_agent.__all__


def test_importing_the_package_does_not_load_what_only_some_need() -> None:
    import subprocess
    import sys

    own = [f"trio_agent.{name}" for name in ("cli", "context", "models", "testing", "tools")]
    late = ("httpx", "docstring_parser", "jsonschema_rs", *own)
    code = f"import sys, trio_agent; print([m for m in {late} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
