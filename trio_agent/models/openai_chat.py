"""`OpenAIChatModel`: OpenAI's chat completions, and every server that speaks them."""

from collections.abc import Callable
from typing import Any

from trio_agent.abc import MessageWriter, ModelOptions, ModelRequest

from ._decode import ResponseEvents
from ._openai_decode import ChatChunks
from ._openai_encode import encode_request, openai_headers
from ._server_model import ServerModel

__all__ = ["OpenAIChatModel"]


class OpenAIChatModel(ServerModel):
    """A model behind OpenAI's ``POST /chat/completions``, streamed; see `ServerModel` for the arguments.

    Made for OpenAI and for compatible servers (Azure, vLLM, llama.cpp, Ollama, OpenRouter, DeepSeek, Mistral, Groq,
    Gemini's compatible endpoint, ...), whose deviations are understood. ``base_url`` goes up to, and without,
    ``/chat/completions``; the environment variables are ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``.

    ``thinking_budget`` and ``prompt_caching`` of `ModelOptions` have no form here and are refused.

    Source: https://platform.openai.com/docs/api-reference/chat
    """

    provider = "openai"
    _path = "/chat/completions"
    _default_url = "https://api.openai.com/v1"
    _url_variable = "OPENAI_BASE_URL"
    _key_variable = "OPENAI_API_KEY"
    _example = "gpt-4o"

    def _headers_for(self, key: str, base_url: Any) -> dict[str, str]:
        return openai_headers(key, base_url)

    def _encode(self, request: ModelRequest, options: ModelOptions) -> dict[str, Any]:
        return encode_request(self._name, request, options, host=self._http.url.host)

    def _events(self, out: MessageWriter, where: str, redact: Callable[[str], str]) -> ResponseEvents:
        return ChatChunks(out, where, redact)
