"""llmock, a server that is not ours, as a subprocess: ``with llmock() as url: ...``."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    # Not through a proxy that the environment may name.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def llmock(*options: str, tool_mode: str = "auto", response_style: str = "echo") -> Iterator[str]:
    """Start a server on a free port, wait until it answers, give the root URL (``/v1`` is OpenAI's), and stop it.

    Args:
        options: more of ``llmock serve``'s, such as ``"--stream-fault", "truncate=1"``.
        tool_mode: ``auto`` calls an offered tool first and answers in text once a result is there; ``off`` does not.
        response_style: ``static``, ``hello``, ``echo`` or ``varied``.
    """
    port = _free_port()
    command = [str(Path(sys.executable).with_name("llmock")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--tool-mode", tool_mode, "--response-style", response_style, "--log-level", "error", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            give_up = time.monotonic() + 30
            while not _answers(f"{url}/health"):
                if process.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError(f"llmock did not start: {' '.join(command)}")
                time.sleep(0.05)  # another process starts meanwhile; there is nothing to wait on
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
