"""A real exchange with a model, kept in a file that people can read, and played again without a network."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

import trio_agent
from trio_agent import (
    MessageWriter,
    Model,
    ModelError,
    ModelOptions,
    ModelProtocolError,
    ModelRequest,
    StopReason,
    Usage,
    message_to_dict,
)

__all__ = ["ReplayModel", "record"]

_NOTHING: Mapping[str, Any] = {}
_ERROR_FIELDS = ("status", "code", "retry_after", "retryable")
# what may hold keys is not kept
_SECRET_OPTIONS = frozenset({"extra_headers", "extra_body"})


def record(model: Model, path: str | os.PathLike[str], *, redact: Callable[[str], str] | None = None) -> Model:
    """The model, with every exchange kept in a file, for `ReplayModel`.

    The file is JSON: what was asked (system prompt, messages, tools, options) and what was answered, piece by piece, or
    the error. It has no keys in it: none are part of a request, and ``extra_headers`` and ``extra_body`` are left out.
    It is written anew after each response, also one that was cut short: what was said until then is in it.

    Args:
        model: who is asked.
        path: of the file; an existing one is replaced with the first response.
        redact: takes what must not be kept out of the file's text; it must leave JSON.

    Raises:
        TypeError: it is not a model.
    """
    if not isinstance(model, Model):
        raise TypeError(f"record: expected a model (name, provider, stream), not {type(model).__name__}")
    return _Recording(model, Path(path), redact)


class _Recording:
    """See `record`."""

    def __init__(self, model: Model, path: Path, redact: Callable[[str], str] | None) -> None:
        self._model = model
        self._path = path
        self._redact = redact
        self._exchanges: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        """That of the model."""
        return self._model.name

    @property
    def provider(self) -> str:
        """That of the model."""
        return self._model.provider

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """See `Model.stream`."""
        said: list[list[Any]] = []
        is_cut = True
        exchange = {"request": _request_to_dict(request), "response": said}
        self._exchanges.append(exchange)
        try:
            await self._model.stream(request, _Noting(out, said))
        except ModelError as error:
            fields = {name: getattr(error, name, None) for name in _ERROR_FIELDS}
            said.append(["error", type(error).__name__, str(error), fields])
            is_cut = False
            raise
        else:
            is_cut = False
        finally:
            if is_cut:
                said.append(["cut"])
            self._write()

    def _write(self) -> None:
        content = {"model": self.name, "provider": self.provider, "exchanges": self._exchanges}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        if self._redact is not None:
            text = self._redact(text)
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_text(text + "\n", encoding="utf-8", errors="surrogatepass")
        beside.replace(self._path)


class _Noting:
    """A `MessageWriter` that notes what goes through it; see there."""

    def __init__(self, out: MessageWriter, said: list[list[Any]]) -> None:
        self._out = out
        self._said = said

    async def text(self, delta: str) -> None:
        """See `MessageWriter.text`."""
        self._said.append(["text", delta])
        await self._out.text(delta)

    async def thinking(self, delta: str, signature: str | None = None) -> None:
        """See `MessageWriter.thinking`."""
        self._said.append(["thinking", delta, signature])
        await self._out.thinking(delta, signature)

    async def redacted_thinking(self, signature: str) -> None:
        """See `MessageWriter.redacted_thinking`."""
        self._said.append(["redacted_thinking", signature])
        await self._out.redacted_thinking(signature)

    async def tool_call_start(self, id: str, name: str) -> None:
        """See `MessageWriter.tool_call_start`."""
        self._said.append(["tool_call_start", id, name])
        await self._out.tool_call_start(id, name)

    async def tool_call_delta(self, json_fragment: str) -> None:
        """See `MessageWriter.tool_call_delta`."""
        self._said.append(["tool_call_delta", json_fragment])
        await self._out.tool_call_delta(json_fragment)

    async def tool_call_end(self, extra: Mapping[str, Any] = _NOTHING) -> None:
        """See `MessageWriter.tool_call_end`."""
        self._said.append(["tool_call_end", dict(extra)])
        await self._out.tool_call_end(extra)

    async def tool_call(self, id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """See `MessageWriter.tool_call`."""
        self._said.append(["tool_call", id, name, dict(arguments)])
        await self._out.tool_call(id, name, arguments)

    def usage(self, usage: Usage) -> None:
        """See `MessageWriter.usage`."""
        self._said.append(["usage", attrs.asdict(usage)])
        self._out.usage(usage)

    def finish(self, stop_reason: StopReason, raw: str | None = None) -> None:
        """See `MessageWriter.finish`."""
        self._said.append(["finish", stop_reason, raw])
        self._out.finish(stop_reason, raw)

    def retrying(self, error: ModelError, *, attempt: int, delay: float, model: Model) -> None:
        """See `MessageWriter.retrying`. Retries are not kept: what is played again does not fail for a while."""
        self._out.retrying(error, attempt=attempt, delay=delay, model=model)


class ReplayModel:
    """Plays the exchanges of a file that `record` has written, in their order, without a network.

    Each request is compared with the recorded one: an agent that asks something else is not what was recorded.

    Args:
        path: of the file.
        compare: whether requests must be those that were recorded, timestamps aside.

    Raises:
        ValueError: the file is no recording; the message names it.
    """

    def __init__(self, path: str | os.PathLike[str], *, compare: bool = True) -> None:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
            self.name: str = content["model"]
            self.provider: str = content["provider"]
            self._exchanges: list[dict[str, Any]] = [{**entry} for entry in content["exchanges"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{os.fspath(path)!r} is no recording of record(): {error!r}") from error
        self._path = os.fspath(path)
        self._compare = compare
        self._played = 0

    def __repr__(self) -> str:
        return f"ReplayModel({self._path!r})"

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Play the next exchange; see `Model.stream`.

        Raises:
            AssertionError: there is none left, or the request is not the recorded one; the message says where they
                differ.
            ModelError: where the recorded response failed.
        """
        if self._played == len(self._exchanges):
            raise AssertionError(f"{self._path}: another exchange is wanted; only {self._played} were recorded")
        exchange = self._exchanges[self._played]
        self._played += 1
        if self._compare:
            asked = json.loads(json.dumps(_request_to_dict(request)))
            if (difference := _difference(exchange["request"], asked)) is not None:
                raise AssertionError(f"{self._path}: request {self._played} is not the recorded one: {difference}")
        for kind, *values in exchange["response"]:
            if kind == "error":
                raise _error(*values)
            if kind == "cut":
                raise ModelProtocolError(f"{self._path}: the recorded response was cut short here")
            if kind == "usage":
                out.usage(Usage(**values[0]))
            elif kind == "finish":
                out.finish(*values)
            else:
                await getattr(out, kind)(*values)


def _request_to_dict(request: ModelRequest) -> dict[str, Any]:
    messages = [message_to_dict(message) for message in request.messages]
    for message in messages:
        del message["timestamp"]
    defaults = ModelOptions()
    names = [field.name for field in attrs.fields(ModelOptions) if field.name not in _SECRET_OPTIONS]
    given = {name: getattr(request.options, name) for name in names}
    return {
        "system_prompt": request.system_prompt,
        "messages": messages,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in request.tools
        ],
        "options": {name: value for name, value in given.items() if value != getattr(defaults, name)},
    }


def _error(kind: str, message: str, fields: dict[str, Any]) -> ModelError:
    found = getattr(trio_agent, kind, ModelError)
    is_known = isinstance(found, type) and issubclass(found, ModelError)
    error: ModelError = found(message) if is_known else ModelError(message)
    for name, value in fields.items():
        if value is not None:
            setattr(error, name, value)
    return error


def _difference(recorded: Any, asked: Any, path: str = "") -> str | None:
    """The first place where two JSON values differ."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for name in {**recorded, **asked}:
            at = f"{path}.{name}" if path else name
            if name not in recorded or name not in asked:
                return f"{at} is new" if name in asked else f"{at} is missing"
            if (found := _difference(recorded[name], asked[name], at)) is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(asked, list):
        for index, (one, other) in enumerate(zip(recorded, asked, strict=False)):
            if (found := _difference(one, other, f"{path}[{index}]")) is not None:
                return found
        if len(recorded) != len(asked):
            return f"{path} had {len(recorded)} entries, and has {len(asked)}"
        return None
    return None if recorded == asked else f"{path} was {recorded!r:.200}, and is {asked!r:.200}"
