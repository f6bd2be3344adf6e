"""What is checked before a request is written: its options, the model's and its own, and what has no form."""

from collections.abc import Mapping
from typing import Any

import attrs

from trio_agent.abc import ModelOptions, Tool

__all__ = ["check_choice", "has_only_required", "merge_options", "refuse_options", "unsendable"]

_BUILT_IN_CHOICES = frozenset({"auto", "none", "required"})


def merge_options(base: ModelOptions, request: ModelOptions) -> ModelOptions:
    """The request's options, and the model's where the request leaves one open; extras are merged by key."""
    chosen = {
        field.name: getattr(request, field.name) or getattr(base, field.name)
        if field.name == "stop_sequences"
        else _first_given(getattr(request, field.name), getattr(base, field.name))
        for field in attrs.fields(ModelOptions)
    }
    chosen["extra_body"] = {**base.extra_body, **request.extra_body}
    chosen["extra_headers"] = {**base.extra_headers, **request.extra_headers}
    return ModelOptions(**chosen)


def _first_given(first: Any, second: Any) -> Any:
    return second if first is None else first


def refuse_options(options: ModelOptions, protocol: str, unknown: Mapping[str, str]) -> None:
    """Refuse what a protocol has no such thing for.

    Args:
        unknown: names of options, and what to do instead.

    Raises:
        ValueError: naming the option.
    """
    for name, instead in unknown.items():
        if getattr(options, name) not in (None, ()):
            raise ValueError(f"options.{name}: {protocol} has no such thing; {instead}")


def check_choice(choice: str | None, tools: tuple[Tool, ...]) -> str | None:
    """``options.tool_choice`` as far as it says anything: None without tools to choose from.

    Raises:
        ValueError: it names a tool that is not offered.
    """
    if choice is None or (not tools and choice in ("auto", "none")):
        return None  # servers refuse a tool_choice without tools
    names = [tool.name for tool in tools]
    if choice in names or (choice in _BUILT_IN_CHOICES and tools):
        return choice
    raise ValueError(
        f"options.tool_choice is {choice!r}, but the request offers {names or 'no tools'}; "
        "use 'auto', 'none', 'required' or the name of an offered tool"
    )


def has_only_required(schema: Any) -> bool:
    """Could OpenAI's strict mode take a schema? It knows no optional property, and only closed objects."""
    if isinstance(schema, list):
        return all(has_only_required(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(properties) != set(schema.get("required", ())):
            return False
    return all(has_only_required(item) for name, item in schema.items() if name not in ("default", "enum", "const"))


def unsendable(index: int, message: object) -> TypeError:
    """The error for a message that no protocol has a form for."""
    return TypeError(
        f"messages[{index}] is a {type(message).__name__}, which a model cannot be sent; "
        "convert_to_llm must drop it or turn it into a UserMessage"
    )
