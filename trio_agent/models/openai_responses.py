"""`OpenAIResponsesModel`: OpenAI's Responses, and servers that speak them."""

from collections.abc import Callable
from typing import Any

from trio_agent.abc import MessageWriter, ModelOptions, ModelRequest

from ._decode import ResponseEvents
from ._openai_encode import openai_headers
from ._responses_decode import ResponsesEvents
from ._responses_encode import encode_request
from ._server_model import ServerModel

__all__ = ["OpenAIResponsesModel"]


class OpenAIResponsesModel(ServerModel):
    """A model behind OpenAI's ``POST /responses``, streamed; see `ServerModel` for the arguments.

    ``base_url`` goes up to, and without, ``/responses``; the environment variables are ``OPENAI_BASE_URL`` and
    ``OPENAI_API_KEY``. The server keeps nothing (``store`` is false): with ``reasoning_effort`` set, reasoning comes
    encrypted and goes back with the next request.

    ``stop_sequences``, ``thinking_budget`` and ``prompt_caching`` of `ModelOptions` have no form here and are refused.

    Source: https://platform.openai.com/docs/api-reference/responses
    """

    provider = "openai-responses"
    _path = "/responses"
    _default_url = "https://api.openai.com/v1"
    _url_variable = "OPENAI_BASE_URL"
    _key_variable = "OPENAI_API_KEY"
    _example = "gpt-5"

    def _headers_for(self, key: str, base_url: Any) -> dict[str, str]:
        return openai_headers(key, base_url)

    def _encode(self, request: ModelRequest, options: ModelOptions) -> dict[str, Any]:
        return encode_request(self._name, request, options, provider=self.provider)

    def _events(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> ResponseEvents:
        return ResponsesEvents(out, where, redact)
