"""What the command prints: the streams, and events in words or as JSON lines."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO, TypeAlias

import attrs

from trio_agent import (
    AgentEvent,
    MessageUpdate,
    ModelRetry,
    RunResult,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    event_to_dict,
)

__all__ = ["JsonPrinter", "Output", "Printer", "Streams", "WordsPrinter", "brief"]

_SHOWN = 100
_LIVE_LINES = 3
_LIVE_OVERLAP = 400


def _standard(name: Literal["stdin", "stdout", "stderr"]) -> TextIO:
    stream: TextIO | None = getattr(sys, name)
    if stream is None:
        # our parent closed it; open until the process ends, like the others
        return open(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w", closefd=False)
    if name == "stdout" and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


@attrs.frozen
class Streams:
    """Where the command reads and writes: the process's own by default; tests bring theirs."""

    stdin: TextIO = attrs.field(factory=lambda: _standard("stdin"))
    stdout: TextIO = attrs.field(factory=lambda: _standard("stdout"))
    stderr: TextIO = attrs.field(factory=lambda: _standard("stderr"))


class Output:
    """A stream to write to, flushed each time. What it cannot take is dropped from then on, and `failure` says why."""

    def __init__(self, stream: TextIO) -> None:
        self.failure: OSError | None = None
        self._stream = stream

    def write(self, text: str) -> None:
        """Write and flush. Blocks while the reader does not read; never raises for what the reader does."""
        if self.failure is not None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self.failure = error
            _discard(self._stream)


def _discard(stream: TextIO) -> None:
    # what is still buffered would fail again when the interpreter flushes it at exit
    with contextlib.suppress(io.UnsupportedOperation), open(os.devnull, "w") as null:
        os.dup2(null.fileno(), stream.fileno())


class WordsPrinter:
    """Events in words: the answer on standard output, the rest on standard error."""

    def __init__(self, streams: Streams, *, quiet: bool) -> None:
        self.out = Output(streams.stdout)
        self._err = Output(streams.stderr)
        self._quiet = quiet
        self._mid_line = False
        self._shown: dict[str, str] = {}

    def show(self, event: AgentEvent) -> None:
        """Print what the event adds. Sync, like everything here: a slow reader slows the run."""
        match event:
            case MessageUpdate(kind="text_delta", delta=delta):
                self.out.write(delta)
                self._mid_line = not delta.endswith("\n") if delta else self._mid_line
            case MessageUpdate(kind="text_end"):
                self._end_line()
            case ModelRetry(attempt, delay, error, model):
                self.say(f"(attempt {attempt} in {delay:.1f} s, with {model}: {brief(str(error))})")
            case ToolExecutionStart(tool_name=name, arguments=arguments):
                self.say(f"[{name}] {brief(_call(arguments))}")
            case ToolExecutionUpdate(event=inner) if inner is not None:
                self._show_nested(event.tool_name, inner)
            case ToolExecutionUpdate(tool_call_id=id, partial_result=partial):
                for line in _fresh(self._shown.get(id, ""), partial.text).splitlines()[-_LIVE_LINES:]:
                    self.say(f"  | {brief(line)}")
                self._shown[id] = partial.text
            case ToolExecutionEnd():
                self._shown.pop(event.tool_call_id, None)
                self.say(_ending(event))

    def _show_nested(self, agent: str, event: AgentEvent) -> None:
        # of a nested run only what it does: its text comes again in its result
        if isinstance(event, ToolExecutionStart):
            self.say(f"  {agent}: [{event.tool_name}] {brief(_call(event.arguments))}")
        elif isinstance(event, ToolExecutionEnd):
            self.say(f"  {agent}: {_ending(event)}")

    def say(self, text: str) -> None:
        """Print a line about what is going on; nothing with ``--quiet``."""
        if not self._quiet:
            self._end_line()
            self._err.write(f"{text}\n")

    def finish(self, result: RunResult) -> None:
        """Print how the run ended. An error is said also with ``--quiet``."""
        self._end_line()
        if result.error is not None:
            self._err.write(f"trio-agent: {type(result.error).__name__}: {result.error}\n")
        for message in result.undelivered:
            self.say(f"(not delivered: {brief(message.text)})")
        why = f" ({result.abort_reason})" if result.abort_reason else ""
        usage = f"{result.usage.input_tokens} tokens in, {result.usage.output_tokens} out"
        self.say(f"{result.outcome}{why} after {result.turns} turns; {usage}")

    def _end_line(self) -> None:
        if self._mid_line:
            self._mid_line = False
            self.out.write("\n")


class JsonPrinter:
    """One event a line on standard output."""

    def __init__(self, streams: Streams) -> None:
        self.out = Output(streams.stdout)
        self._err = Output(streams.stderr)

    def show(self, event: AgentEvent) -> None:
        """Print the event."""
        self.out.write(json.dumps(event_to_dict(event)) + "\n")

    def say(self, text: str) -> None:
        """Nothing: what happened is in the events."""

    def finish(self, result: RunResult) -> None:
        """Say an error on standard error too, for a person who looks on."""
        if result.error is not None:
            self._err.write(f"trio-agent: {type(result.error).__name__}: {result.error}\n")


def _call(arguments: Mapping[str, Any]) -> str:
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _fresh(before: str, now: str) -> str:
    """What a snapshot of output shows that the one before it did not. Both may have lost their beginnings."""
    if now.startswith(before):
        return now[len(before) :]
    # a short text may be found by chance
    tail = before[-_LIVE_OVERLAP:]
    at = now.rfind(tail) if len(tail) == _LIVE_OVERLAP else -1
    return now if at < 0 else now[at + len(tail) :]


def _ending(event: ToolExecutionEnd) -> str:
    if event.outcome == "completed" and not event.is_error:
        return f"  ok ({event.duration:.1f} s)"
    # a command's exit status is the last line of its result, below the output that was shown live
    lines = event.result.text.strip().splitlines() or [""]
    word, line = ("failed", lines[-1]) if event.outcome == "completed" else (event.outcome, lines[0])
    return f"  {word}: {brief(line)} ({event.duration:.1f} s)"


def brief(text: str) -> str:
    """The first line of a text, with a bound, and without what a terminal would take for a command."""
    first = text.strip().partition("\n")[0]
    plain = "".join([char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in first[: _SHOWN + 1]])
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


Printer: TypeAlias = WordsPrinter | JsonPrinter
"""What shows a run: ``show(event)``, ``say(text)``, ``finish(result)``; with ``out.failure`` its reader has gone."""
