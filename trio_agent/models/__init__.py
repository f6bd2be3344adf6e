"""The models that come with the package. Nothing is loaded before it is used: httpx takes a while to import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._retrying import fallback, retrying
    from ._timeouts import Timeouts
    from .anthropic import AnthropicModel
    from .local import LocalModel
    from .offline import OfflineModel
    from .openai_chat import OpenAIChatModel
    from .openai_responses import OpenAIResponsesModel

__all__ = [
    "AnthropicModel",
    "LocalModel",
    "OfflineModel",
    "OpenAIChatModel",
    "OpenAIResponsesModel",
    "Timeouts",
    "fallback",
    "retrying",
]

_HOMES = {
    "AnthropicModel": "anthropic",
    "LocalModel": "local",
    "OfflineModel": "offline",
    "OpenAIChatModel": "openai_chat",
    "OpenAIResponsesModel": "openai_responses",
    "Timeouts": "_timeouts",
    "fallback": "_retrying",
    "retrying": "_retrying",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
