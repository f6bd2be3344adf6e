"""What a docstring says to a model: about the function, and about each parameter.

docstring_parser reads the Google, NumPy and reST forms, with all their odd corners; reading them is nothing that this
project exists for.
"""

import inspect
from typing import Any

import attrs

__all__ = ["Described", "describe"]


@attrs.frozen
class Described:
    """A docstring without its section of parameters, and what that section said, by parameter."""

    text: str = ""
    parameters: dict[str, str] = attrs.field(factory=dict)


def describe(documented: Any) -> Described:
    """Read the docstring of a function or class. Never fails: one that cannot be read is kept whole."""
    text = inspect.getdoc(documented) or ""
    if "\n" not in text and not text.startswith(":"):
        return Described(text)
    import docstring_parser  # only @tool needs it

    try:
        parsed = docstring_parser.parse(text)
        described = {
            name.strip().lstrip("*"): " ".join((part.description or "").split())
            for part in parsed.params
            for name in part.arg_name.split(",")  # NumPy's form may describe several at once
        }
        if not described:
            return Described(text)
        rest = [_section(part) for part in parsed.meta if not isinstance(part, docstring_parser.DocstringParam)]
        texts = (parsed.short_description, parsed.long_description, *rest)
        return Described("\n\n".join([piece.strip() for piece in texts if piece]), described)
    except Exception:  # noqa: BLE001 - a docstring is prose: whatever stands in it, the tool can be made
        return Described(text)


def _section(part: Any) -> str:
    """A section that is not about parameters, such as what is returned: a model should know that, too."""
    title = str(part.args[0]).capitalize() if part.args else "Note"
    name, text = getattr(part, "type_name", None), part.description or getattr(part, "snippet", None)
    said = ": ".join(str(piece) for piece in (name, text) if piece)
    return f"{title}: {said}" if said else ""
