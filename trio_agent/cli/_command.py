"""The ``trio-agent`` command: one prompt, with real tools, in the current folder."""

import argparse
import json
import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import trio

from trio_agent import (
    Agent,
    AgentEvent,
    EventStream,
    Model,
    ModelError,
    RunResult,
    Tool,
    message_to_dict,
)

from ._interrupt import abort_on_signal, end_at_once_on_the_second, signals_to_watch
from ._show import JsonPrinter, Output, Printer, Streams, WordsPrinter, brief

__all__ = ["UsageError", "main", "make_model", "parse_arguments", "run_cli"]

_EPILOG = """\
models:
  offline           the default: rule-based, no key, no network. It is not a language model; it understands a few
                    instructions (read, list, search, count, run, write) and really calls the tools for them.
  openai:NAME       NAME on OpenAI, or on any compatible server given with --base-url. The key is read from the
                    environment variable OPENAI_API_KEY; a server on this machine needs none.
  responses:NAME    the same with OpenAI's newer protocol.
  anthropic:NAME    NAME on Anthropic, or on a proxy given with --base-url; the key is in ANTHROPIC_API_KEY.
  local             a real but very small language model on this machine's processor, no key, no network; it makes
                    sentences and does not call tools well (use --no-tools). An extra: pip install 'trio-agent[local]'

while it runs:
  a line typed on the terminal steers the run: the running tool finishes, calls not yet started are skipped, and the
  line goes to the model next.
  Ctrl-C aborts the run: tools are cut, every call gets its answer, the outcome is printed. A second Ctrl-C ends the
  program at once: it kills what the shell tool started (on Linux) and writes the transcript as it stands, where a call
  may lack its answer. SIGTERM and SIGHUP count as Ctrl-C.

output:
  the answer goes to standard output as it streams; tool activity, outcome and usage go to standard error.
  With --json, standard output has one event a line and nothing else; the last one is agent_end. Each is an object
  with a "type"; help(trio_agent.event_to_dict) lists the fields. A reader that leaves ends the run, with status 1.

exit status:
  0 completed    1 error, limit or deadline    2 wrong usage    130 aborted

examples:
  trio-agent "Read README.md, then count the files"
  trio-agent --model openai:llama3 --base-url http://127.0.0.1:11434/v1 "What does this project do?"
  git diff | trio-agent --json - > events.jsonl
"""


class UsageError(Exception):
    """Something the person at the keyboard can mend; said in one line."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trio-agent",
        description="Run one prompt with tools to read, write, edit, list and search files and to run commands. "
        "File tools cannot leave the folder; the shell can.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("prompt", nargs="?", help='what to do; "-", or nothing when standard input is not a terminal, reads it there')
    add("--model", default="offline", metavar="MODEL", help='"offline" (default), "openai:NAME", ...; see below')
    add("--base-url", metavar="URL", help="the server, for openai:NAME, responses:NAME and anthropic:NAME")
    add("--retries", type=int, default=2, metavar="N", help="try a failed request so many times more (default: 2)")
    add("--system", default="", metavar="TEXT", help="the system prompt")
    add("--root", default=".", metavar="DIR", help="the folder the tools work in (default: the current one)")
    add("--no-tools", action="store_true", help="give the model no tools")
    add("--max-turns", type=int, metavar="N", help="end the run after N turns")
    add("--timeout", type=float, metavar="SECONDS", help="end the run after so many seconds")
    add("--json", action="store_true", help="print one event a line, as JSON")
    add("--quiet", action="store_true", help="print the answer only")
    add("--transcript", metavar="FILE", help="write the messages to FILE as JSON lines, however the run ends")
    add("--version", action="version", version=f"trio-agent {version('trio-agent')}")
    return parser


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line as options; ``sys.argv`` by default. Raises SystemExit for ``--help`` and wrong usage."""
    return _parser().parse_args(argv)


def make_model(name: str, base_url: str | None = None, retries: int = 2) -> Model:
    """The model that ``--model`` names; one on a server is asked again when a request fails and may succeed later.

    Raises:
        UsageError: there is no such model, or it lacks what it needs; the text names the option and the fix.
    """
    from trio_agent import models

    on_servers: dict[str, Callable[..., Model]] = {
        "openai": models.OpenAIChatModel,
        "responses": models.OpenAIResponsesModel,
        "anthropic": models.AnthropicModel,
    }
    here: dict[str, Callable[[], Model]] = {"offline": models.OfflineModel, "local": models.LocalModel}
    kind, _, rest = name.partition(":")
    try:
        if name in here:
            if base_url is not None:
                raise UsageError("--base-url needs a model on a server: --model openai:NAME")
            return here[name]()
        if kind in on_servers and rest:
            if retries < 0:
                raise UsageError(f"--retries must be 0 or more, not {retries}")
            return models.retrying(on_servers[kind](rest, base_url=base_url), 1 + retries)
    except (TypeError, ValueError, ImportError) as error:
        raise UsageError(f"--model {name}: {error}") from error
    known = "'offline', 'local', 'openai:NAME', 'responses:NAME' or 'anthropic:NAME'"
    raise UsageError(f"--model {name!r} is not known; use {known}")


def _prompt(given: str | None, stdin: TextIO) -> str:
    if given is None or given == "-":
        if given is None and stdin.isatty():
            raise UsageError('PROMPT is missing; say what to do, for example: trio-agent "Read README.md"')
        try:
            given = stdin.read()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"PROMPT cannot be read from standard input: {error}") from error
    if not given.strip():
        raise UsageError("PROMPT is empty; say what to do")
    return _clean(given)


def _clean(text: str) -> str:
    # bytes of the command line that are not UTF-8 come as lone surrogates, which no request can carry
    return text.encode(errors="surrogateescape").decode(errors="replace")


async def run_cli(options: argparse.Namespace, model: Model, streams: Streams) -> int:
    """Run one prompt to its end, printing as it happens; a typed line steers, Ctrl-C aborts.

    Args:
        options: the parsed command line, with its prompt.
        model: what answers.
        streams: where it reads and writes.

    Returns:
        The exit status. Cancelling this ends the run and seals it first; the transcript is written all the same.

    Raises:
        UsageError: an option has a value that cannot be used, or the transcript cannot be written.
    """
    agent = _build(options, model)
    printer = JsonPrinter(streams) if options.json else WordsPrinter(streams, quiet=options.quiet)

    def save() -> None:
        if options.transcript is not None:
            _write_transcript(Path(options.transcript), agent)

    numbers = signals_to_watch()
    with trio.open_signal_receiver(*numbers) as signals:
        end_at_once_on_the_second(numbers, save)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(abort_on_signal, signals, agent, printer)
                if streams.stdin.isatty():
                    nursery.start_soon(_steer_from_terminal, streams.stdin.fileno(), agent, printer)
                async with _kept(model), agent.run(options.prompt, timeout=options.timeout) as run:
                    status = await _show_run(run, printer)
                nursery.cancel_scope.cancel()
        finally:
            save()
    if printer.out.failure is not None and not isinstance(printer.out.failure, BrokenPipeError):
        raise UsageError(f"standard output: {printer.out.failure.strerror}")
    return status


@asynccontextmanager
async def _kept(model: Model) -> AsyncIterator[None]:
    """A model that can keep what it needs between requests does so."""
    if not isinstance(model, AbstractAsyncContextManager):
        yield
        return
    try:
        await model.__aenter__()
    except ModelError as error:
        raise UsageError(f"--model: {error}") from error
    try:
        yield
    finally:
        await model.__aexit__(None, None, None)


async def _show_run(run: EventStream[AgentEvent, RunResult], printer: Printer) -> int:
    async for event in run:
        printer.show(event)
        if printer.out.failure is not None:
            return 1
    result = await run.result()
    printer.finish(result)
    return {"completed": 0, "aborted": 130}.get(result.outcome, 1) if printer.out.failure is None else 1


async def _steer_from_terminal(fd: int, agent: Agent, printer: Printer) -> None:
    pending = b""
    while True:
        await trio.lowlevel.wait_readable(fd)
        try:
            received = os.read(fd, 4096)
        except BlockingIOError:
            continue
        except OSError:
            return  # the terminal has gone: nobody types there any more
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace").strip()
            if text:
                agent.steer(text)
                printer.say(f"(steering: {brief(text)})")


def _write_transcript(path: Path, agent: Agent) -> None:
    # through a link, not over it
    target = Path(os.path.realpath(path))
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    lines = [json.dumps(message_to_dict(message)) + "\n" for message in agent.messages]
    try:
        scratch.write_text("".join(lines))
        scratch.replace(target)
    except OSError as error:
        raise UsageError(f"--transcript {path}: {error.strerror}; choose a file that can be written") from error
    finally:
        scratch.unlink(missing_ok=True)


def _build(options: argparse.Namespace, model: Model) -> Agent:
    if options.timeout is not None and not 0 < options.timeout < math.inf:
        raise UsageError(f"--timeout must be a positive number of seconds, not {options.timeout}")
    if options.max_turns is not None and options.max_turns < 1:
        raise UsageError(f"--max-turns must be at least 1, not {options.max_turns}")
    if options.transcript is not None:
        target = Path(options.transcript).absolute()
        if not target.parent.is_dir():
            raise UsageError(f"--transcript {options.transcript}: its folder does not exist")
        # replacing a device, as root, would take it away from the whole machine
        if target.exists() and not target.is_file():
            raise UsageError(f"--transcript {options.transcript}: there is something that is not a regular file")
    system = _clean(options.system)
    return Agent(model, tools=_tools(options), system_prompt=system, max_turns=options.max_turns)


def _tools(options: argparse.Namespace) -> tuple[Tool, ...]:
    if options.no_tools:
        return ()
    from trio_agent.tools import default_tools

    try:
        return default_tools(options.root)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--root {options.root}: {error}") from error


def main(argv: Sequence[str] | None = None, streams: Streams | None = None) -> int:
    """Run the command and return its exit status; see ``--help``.

    Args:
        argv: the arguments, without the program's name; ``sys.argv`` by default.
        streams: instead of the process's own.

    Raises:
        SystemExit: from argparse: ``--help``, ``--version`` or wrong usage (status 2).
    """
    streams = streams or Streams()
    options = parse_arguments(argv)
    try:
        options.prompt = _prompt(options.prompt, streams.stdin)
        model = make_model(options.model, options.base_url, options.retries)
        return trio.run(run_cli, options, model, streams)
    except UsageError as error:
        Output(streams.stderr).write(f"trio-agent: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130  # before the run began, or after it had ended
