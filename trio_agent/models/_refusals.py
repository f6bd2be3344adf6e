"""What a server meant when it refused: which error it is, and whether the same request may succeed later.

The codes and wordings are those of servers in use; the tests name them.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trio_agent._errors import ModelContextError, ModelStatusError

from ._http_errors import error_text, retry_after, shorten

__all__ = ["refusal", "status_failure"]

_PASSING = frozenset({408, 409, 425, 429})
_PASSING_MARKS = frozenset(
    {
        "api_error",
        "internal_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "resource_exhausted",
        "server_error",
        "service_unavailable",
        "timeout_error",
        "unavailable",
        "vector_store_timeout",
    }
)
_FINAL = frozenset(
    {
        "access_terminated",
        "billing_error",
        "billing_hard_limit_reached",
        "credit_balance_too_low",
        "enforced_spend_limit_reached",
        "insufficient_quota",
    }
)
_FINAL_WORDS = re.compile(
    r"credit balance is too low|spend(ing)? (cap|limit)|billing (hard )?limit|"
    r"insufficient[_ ](balance|credits?|funds|quota)",
    re.IGNORECASE,
)
_OVERFLOW = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "request_too_large",
        "string_above_max_length",
    }
)
# Each is the wording of a server in use; none of them may match what a rate limit says of tokens per minute.
_OVERFLOW_WORDS = re.compile(
    "|".join(
        [
            r"maximum context length",  # OpenAI, vLLM, DeepSeek, OpenRouter, SGLang, Mistral
            r"exceeds? the context window",  # OpenAI's Responses
            r"context window exceeds",  # MiniMax
            r"prompt is too long",  # Anthropic
            r"exceed context limit",  # Anthropic, with max_tokens
            r"exceeds the maximum number of tokens",  # Gemini
            r"exceed_context_size_error|exceeds the available context size|context shift is disabled",  # llama.cpp
            r"greater than the context length|context length of only",  # LM Studio
            r"longer than the (maximum )?model('s)? (length|context length)",  # vLLM, SGLang
            r"max_model_len",  # vLLM
            r"reduce the length of the messages",  # Groq
            r"maximum prompt length",  # xAI
            r"input is too long for (the )?requested model",  # Bedrock
            r"prompt token count of \d+ exceeds",  # Copilot
            r"`?inputs`? tokens \+ `?max_new_tokens`?",  # TGI, Together
            r"exceeded model token limit",  # Moonshot
            r"exceeded max context length|prompt too long",  # Ollama
            r"too large for model with \d+ maximum context",  # Mistral
            r"number of tokens in the prompt (cannot )?exceed",  # Cohere and others
            r"context[_ ](length|window|size)[_ ](exceeded|overflow)",
        ]
    ),
    re.IGNORECASE,
)
_HINT = re.compile(
    r"""(?:"retryDelay": ?"|(?:try again|retry|retrying) (?:in|after) )(?P<number>\d+(?:\.\d+)?) ?(?P<unit>ms|s|m)\b""",
    re.IGNORECASE,
)


def status_failure(status: int, headers: Mapping[str, str], body: bytes, where: str) -> ModelStatusError:
    """The error for a response that is not a success (anything but 2xx).

    Args:
        status: the HTTP status code.
        headers: case-insensitive, as httpx's are.
        body: what was read of it.
        where: the server, as it may be shown.
    """
    text = error_text(body)
    if 300 <= status < 400:
        location = shorten(headers.get("location", ""))
        text = f"it redirects to {location or 'nowhere'}; set base_url to the final address"
    message = f"{where} answered HTTP {status}" + (f": {text}" if text else "")
    return refusal(message, body.decode("utf-8", "replace"), status=status, headers=headers)


def refusal(
    message: str, said: str, *, status: int | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> ModelStatusError:
    """The error for what a server said when it refused, with its kind read from there.

    Args:
        message: the error's text.
        said: the server's own words, JSON or not.
        status, headers: of the response; a refusal inside a stream has none.
    """
    value = _parsed(said)
    code, marks = _code_of(value), _marks_of(value)
    wait = retry_after(headers)
    if wait is None:
        wait = _hinted_wait(said)
    kind = ModelContextError if status != 429 and _is_overflow(status, marks, said) else ModelStatusError
    if kind is ModelContextError or status == 402 or marks & _FINAL or _FINAL_WORDS.search(said):
        retryable = False
    elif headers.get("x-should-retry") in ("true", "false"):
        retryable = headers.get("x-should-retry") == "true"
    else:
        number = code if status is None and isinstance(code, int) else status
        retryable = number in _PASSING or (number or 0) >= 500 or bool(marks & _PASSING_MARKS)
    return kind(message, status=status, code=code, retry_after=wait, retryable=retryable)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def _inner(value: Any) -> Mapping[str, Any]:
    """The object that describes the error: it may be wrapped in a list, or in one or two other objects."""
    while isinstance(value, list) and value:
        value = value[0]
    for name in ("response", "error"):
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    return value if isinstance(value, dict) else {}


def _code_of(value: Any) -> str | int | None:
    inner = _inner(value)
    for name in ("code", "type"):
        code = inner.get(name)
        if isinstance(code, str | int) and not isinstance(code, bool) and code not in ("", "error"):
            return int(code) if isinstance(code, str) and code.isdecimal() else code
    return None


def _marks_of(value: Any) -> frozenset[str]:
    """Everything by which a server may name the kind of an error."""
    inner = _inner(value)
    details = inner.get("details")
    details = details if isinstance(details, dict) else {}
    names = [inner.get(name) for name in ("code", "type", "status")] + [details.get("error_code")]
    return frozenset([name.lower() for name in names if isinstance(name, str)])


def _is_overflow(status: int | None, marks: frozenset[str], said: str) -> bool:
    return status == 413 or bool(marks & _OVERFLOW) or _OVERFLOW_WORDS.search(said) is not None


def _hinted_wait(said: str) -> float | None:
    """Seconds to wait that stand in the words: Google's RetryInfo, or "try again in 7.66s"."""
    found = _HINT.search(said)
    if found is None:
        return None
    return float(found["number"]) * (0.001 if found["unit"] == "ms" else 60 if found["unit"] == "m" else 1)
