"""`AnthropicModel`: Anthropic's messages, and proxies that speak them."""

from collections.abc import Callable
from typing import Any

from trio_agent.abc import MessageWriter, ModelOptions, ModelRequest

from ._anthropic_decode import AnthropicEvents
from ._anthropic_encode import encode_request
from ._decode import ResponseEvents
from ._server_model import ServerModel

__all__ = ["AnthropicModel"]

_VERSION = "2023-06-01"


class AnthropicModel(ServerModel):
    """A model behind Anthropic's ``POST /v1/messages``, streamed; see `ServerModel` for the arguments.

    ``base_url`` goes up to, and without, ``/messages``; the environment variables are ``ANTHROPIC_BASE_URL`` (there, as
    Anthropic's own clients want it, without ``/v1``) and ``ANTHROPIC_API_KEY``.

    Reasoning goes back with its signature, hidden reasoning too. A response that pauses (``pause_turn``) is gone on
    with. Without ``max_output_tokens`` the limit is 8192, and the ``thinking_budget`` besides. ``prompt_caching`` marks
    the tools, the system prompt and the end of the messages. ``temperature`` has no form here any more and is refused.

    Source: https://platform.claude.com/docs/en/api/messages
    """

    provider = "anthropic"
    _path = "/messages"
    _default_url = "https://api.anthropic.com/v1"
    _url_variable = "ANTHROPIC_BASE_URL"
    _key_variable = "ANTHROPIC_API_KEY"
    _example = "claude-sonnet-4-5"

    def _url_from(self, variable: str) -> str:
        return variable if variable.rstrip("/").endswith("/v1") else variable.rstrip("/") + "/v1"

    def _headers_for(self, key: str, base_url: Any) -> dict[str, str]:
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    def _encode(self, request: ModelRequest, options: ModelOptions) -> dict[str, Any]:
        return encode_request(self._name, request, options, provider=self.provider)

    def _events(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> ResponseEvents:
        return AnthropicEvents(out, where, redact)
