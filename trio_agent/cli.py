"""The ``trio-agent`` command: one prompt, with real tools, in the current folder."""

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, TextIO

import attrs
import trio

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    EventStream,
    MessageUpdate,
    Model,
    RunResult,
    Tool,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    event_to_dict,
    message_to_dict,
)

__all__ = ["main", "make_model", "run_prompt"]

_EPILOG = """\
models:
  offline           the default: rule-based, no key, no network. It is not a language model; it understands a few
                    instructions (read, list, search, count, run, write) and really calls the tools for them.
  openai:NAME       NAME on OpenAI, or on any compatible server given with --base-url. The key is read from the
                    environment variable OPENAI_API_KEY; a server on this machine needs none.

while it runs:
  a line typed on the terminal steers the run: the running tool finishes, calls not yet started are skipped, and the
  line goes to the model next.
  Ctrl-C aborts the run: tools are cut, every call gets its answer, the outcome is printed. A second Ctrl-C kills what
  the shell tool started and ends the program at once.

output:
  the answer goes to standard output as it streams; tool activity, outcome and usage go to standard error.
  With --json, standard output has one event a line and nothing else; the last one is agent_end.

exit status:
  0 completed    1 error, limit or deadline    2 wrong usage    130 aborted

examples:
  trio-agent "Read README.md, then count the files"
  trio-agent --model openai:llama3 --base-url http://127.0.0.1:11434/v1 "What does this project do?"
  git diff | trio-agent --json - > events.jsonl
"""

_SHOWN = 100
_LIVE_LINES = 3


class UsageError(Exception):
    """Something the person at the keyboard can mend; said in one line."""


@attrs.frozen
class Streams:
    """Where the command reads and writes; tests bring their own."""

    stdin: TextIO = attrs.field(factory=lambda: sys.stdin)
    stdout: TextIO = attrs.field(factory=lambda: sys.stdout)
    stderr: TextIO = attrs.field(factory=lambda: sys.stderr)


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
    add("--model", default="offline", metavar="MODEL", help='"offline" (default) or "openai:NAME"')
    add("--base-url", metavar="URL", help="an OpenAI-compatible server, for openai:NAME")
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


def make_model(name: str, base_url: str | None) -> Model:
    """The model that ``--model`` names.

    Raises:
        UsageError: there is no such model, or it lacks what it needs; the text names the option and the fix.
    """
    from trio_agent.models import OfflineModel, OpenAIChatModel

    kind, _, rest = name.partition(":")
    if name == "offline":
        if base_url is not None:
            raise UsageError("--base-url needs a model on a server: --model openai:NAME")
        return OfflineModel()
    if kind == "openai" and rest:
        try:
            return OpenAIChatModel(rest) if base_url is None else OpenAIChatModel(rest, base_url=base_url)
        except (TypeError, ValueError) as error:
            raise UsageError(f"--model {name}: {error}") from error
    raise UsageError(f"--model {name!r} is not known; use 'offline' or 'openai:NAME'")


def _prompt(given: str | None, stdin: TextIO) -> str:
    if given is None or given == "-":
        if given is None and stdin.isatty():
            raise UsageError('PROMPT is missing; say what to do, for example: trio-agent "Read README.md"')
        given = stdin.read()
    if not given.strip():
        raise UsageError("PROMPT is empty; say what to do")
    return given


class _Printer:
    """Events in words: the answer on standard output, the rest on standard error."""

    def __init__(self, streams: Streams, *, quiet: bool) -> None:
        self._out = streams.stdout
        self._err = streams.stderr
        self._quiet = quiet
        self._mid_line = False

    def show(self, event: AgentEvent) -> None:
        match event:
            case MessageUpdate(kind="text_delta", delta=delta):
                self._out.write(delta)
                self._out.flush()
                self._mid_line = not delta.endswith("\n") if delta else self._mid_line
            case MessageUpdate(kind="text_end"):
                self._end_line()
            case ToolExecutionStart(tool_name=name, arguments=arguments):
                self.say(f"[{name}] {_brief(', '.join(f'{k}={v!r}' for k, v in arguments.items()))}")
            case ToolExecutionUpdate(partial_result=partial):
                for line in partial.text.splitlines()[-_LIVE_LINES:]:
                    self.say(f"  | {_brief(line)}")
            case ToolExecutionEnd(result=result, outcome=outcome, duration=duration):
                text = "" if outcome == "completed" and not result.is_error else f": {_brief(result.text)}"
                self.say(f"  {outcome} ({duration:.1f} s){text}")

    def say(self, text: str) -> None:
        if not self._quiet:
            self._end_line()
            self._err.write(f"{text}\n")
            self._err.flush()

    def finish(self, result: RunResult) -> None:
        self._end_line()
        if result.error is not None:
            self._err.write(f"trio-agent: {type(result.error).__name__}: {result.error}\n")
        why = f" ({result.abort_reason})" if result.abort_reason else ""
        usage = f"{result.usage.input_tokens} tokens in, {result.usage.output_tokens} out"
        self.say(f"{result.outcome}{why} after {result.turns} turns; {usage}")
        self._err.flush()

    def _end_line(self) -> None:
        if self._mid_line:
            self._mid_line = False
            self._out.write("\n")
            self._out.flush()


class _JsonPrinter:
    """One event a line on standard output."""

    def __init__(self, streams: Streams) -> None:
        self._out = streams.stdout
        self._err = streams.stderr

    def show(self, event: AgentEvent) -> None:
        self._out.write(json.dumps(event_to_dict(event)) + "\n")
        self._out.flush()

    def say(self, text: str) -> None:
        """Nothing: what happened is in the events."""

    def finish(self, result: RunResult) -> None:
        if result.error is not None:
            self._err.write(f"trio-agent: {type(result.error).__name__}: {result.error}\n")


def _brief(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _SHOWN else f"{first[:_SHOWN]}…"


async def run_prompt(
    agent: Agent, prompt: str, printer: "_Printer | _JsonPrinter", streams: Streams, timeout: float | None = None
) -> int:
    """Run one prompt to its end, printing as it happens; a typed line steers, Ctrl-C aborts.

    Returns:
        The exit status. Cancelling this aborts the run and seals it first.
    """
    status = 1
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_abort_on_signal, signals, agent, printer)
            if streams.stdin.isatty():
                nursery.start_soon(_steer_from_terminal, streams.stdin.fileno(), agent, printer)
            try:
                async with agent.run(prompt, timeout=timeout) as run:
                    status = await _show_run(run, printer)
            except BrokenPipeError:
                # whoever read our output has gone: nobody is left to tell anything
                _discard(streams.stdout)
            nursery.cancel_scope.cancel()
    return status


async def _show_run(run: EventStream[AgentEvent, RunResult], printer: "_Printer | _JsonPrinter") -> int:
    async for event in run:
        printer.show(event)
        if isinstance(event, AgentEnd):
            break
    result = await run.result()
    printer.finish(result)
    return {"completed": 0, "aborted": 130}.get(result.outcome, 1)


async def _abort_on_signal(signals: AsyncIterator[int], agent: Agent, printer: "_Printer | _JsonPrinter") -> None:
    received = 0
    async for number in signals:
        received += 1
        if received > 1:
            _end_at_once()
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        agent.abort(f"interrupted by {name}")
        printer.say(f"({name}: ending the run; once more ends the program at once)")


def _end_at_once() -> NoReturn:
    """Kill the process groups that our tools started, and leave without waiting for anything."""
    me = os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_bytes().rpartition(b")")[2].split()
            if int(fields[1]) == me and int(fields[2]) == int(stat.parent.name):
                os.killpg(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    os._exit(130)


async def _steer_from_terminal(fd: int, agent: Agent, printer: "_Printer | _JsonPrinter") -> None:
    pending = b""
    while True:
        await trio.lowlevel.wait_readable(fd)
        received = os.read(fd, 4096)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace").strip()
            if text:
                agent.steer(text)
                printer.say(f"(steering: {_brief(text)})")


def _discard(stream: TextIO) -> None:
    # what is still buffered would fail again when the interpreter flushes it at exit
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)


def _write_transcript(path: str, agent: Agent) -> None:
    target = Path(path)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    lines = [json.dumps(message_to_dict(message)) + "\n" for message in agent.messages]
    try:
        scratch.write_text("".join(lines))
        scratch.replace(target)
    except OSError as error:
        raise UsageError(f"--transcript {path}: {error.strerror}; choose a file that can be written") from error


def _build(options: argparse.Namespace, streams: Streams) -> tuple[Agent, str]:
    prompt = _prompt(options.prompt, streams.stdin)
    if options.timeout is not None and not 0 < options.timeout < math.inf:
        raise UsageError(f"--timeout must be a positive number of seconds, not {options.timeout}")
    if options.max_turns is not None and options.max_turns < 1:
        raise UsageError(f"--max-turns must be at least 1, not {options.max_turns}")
    if options.transcript is not None and not Path(options.transcript).absolute().parent.is_dir():
        raise UsageError(f"--transcript {options.transcript}: its folder does not exist")
    model = make_model(options.model, options.base_url)
    return Agent(model, tools=_tools(options), system_prompt=options.system, max_turns=options.max_turns), prompt


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
    options = _parser().parse_args(argv)
    try:
        agent, prompt = _build(options, streams)
        printer = _JsonPrinter(streams) if options.json else _Printer(streams, quiet=options.quiet)
        try:
            return trio.run(run_prompt, agent, prompt, printer, streams, options.timeout)
        finally:
            if options.transcript is not None:
                _write_transcript(options.transcript, agent)
    except UsageError as error:
        streams.stderr.write(f"trio-agent: {error}\n")
        return 1
