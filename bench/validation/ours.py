"""trio_agent: what the loop does with the text of a call before the function runs."""

from collections.abc import Callable
from typing import Any

from trio_agent import ToolCall, tool
from trio_agent._arguments import Converter
from trio_agent._json import parse_arguments
from trio_agent._scopes import say
from trio_agent._tools import check_call

from ._cases import CASES, FUNCTIONS, Case, bound
from ._side import FULL, Side, serve

BARE = "converter alone"
BUILDERS = frozenset(
    {"parameters_of", "Converter.__init__", "type_info", "defstruct", "schema_components", "_Translator.translate"}
)
INCLUDED = {
    FULL: "check_call, as the loop calls it: JSON text to the function's arguments; refused: the ToolCall too, and the "
    "text of the refusal. The record's own copy of the arguments is made when somebody looks at it: not in here",
    BARE: "Converter, from arguments that are parsed already: no JSON",
}


def layer_call(case: Case, made: Any) -> Callable[[], Any]:
    """As `_writer` and `_execute` do it."""
    text, name = case.text, case.function
    ready = ToolCall.from_text("c", name, text)
    # a refused call keeps what was parsed of it: another one each time, or the second would cost less
    take = (lambda: ready) if case.expected is not None else (lambda: ToolCall.from_text("c", name, text))

    def call() -> Any:
        try:
            return check_call(made, take())
        except (ValueError, RecursionError) as error:
            return f"Invalid arguments for tool {made.name}: {say(error)}"

    return call


def bare_call(case: Case, made: Any) -> Callable[[], Any]:
    """The converter."""
    arguments, _ = parse_arguments(case.text)
    convert: Converter = made.validate

    def call() -> Any:
        try:
            return convert(arguments)
        except ValueError as error:
            return str(error)

    return call


def make_side() -> Side:
    """All cases."""
    made = {name: tool(function) for name, function in FUNCTIONS.items()}
    calls = {}
    for name, case in CASES.items():
        calls[name, FULL] = layer_call(case, made[case.function])
        calls[name, BARE] = bare_call(case, made[case.function])

    def read(name: str, path: str, result: Any) -> Any:
        return result if isinstance(result, str) else bound(CASES[name], (), result)

    return Side(("trio-agent", "msgspec"), INCLUDED, tool, calls, read, BUILDERS)


if __name__ == "__main__":
    serve(make_side())
