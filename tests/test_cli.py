"""The command, in real processes: what it prints, how it ends, Ctrl-C, a typed line, bad input."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from llmock_server import llmock
from processes import is_running

from trio_agent.cli import UsageError, make_model

COMMAND = [sys.executable, "-W", "error", "-m", "trio_agent"]
ROOT = str(Path(__file__).parent.parent)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("buy milk\ncall Ada\n")
    (tmp_path / "more.txt").write_text("nothing\n")
    return tmp_path


def environment(**extra: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
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
def started(*arguments: str, cwd: Path, stdin: Any = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Read standard error up to the line that matches."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found[0]
    raise AssertionError(f"{pattern} never came")


# what it prints -----------------------------------------------------------------------------------------------------


def test_it_answers_with_what_is_in_the_files(folder: Path) -> None:
    ran = command("Read notes.txt, then count the files", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "buy milk" in ran.stdout
    assert "2 files" in ran.stdout
    assert "[read_file] path='notes.txt'" in ran.stderr
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
        assert process.wait(30) in (0, 1)
    assert "Traceback" not in said


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
        (["--model", "gpt-4o", "hi"], "--model 'gpt-4o' is not known; use 'offline' or 'openai:NAME'"),
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


# limits -------------------------------------------------------------------------------------------------------------


def test_a_limit_and_a_deadline_exit_with_1(folder: Path) -> None:
    ran = command("--max-turns", "1", "read notes.txt", cwd=folder)
    assert (ran.returncode, "limit after 1 turns" in ran.stderr) == (1, True)
    ran = command("--timeout", "0.5", "run `sleep 1000`", cwd=folder)
    assert (ran.returncode, "deadline" in ran.stderr) == (1, True)


# Ctrl-C and a typed line --------------------------------------------------------------------------------------------


def messages_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_all_answered(path: Path) -> None:
    messages = messages_of(path)
    called = [p["id"] for m in messages for p in m["content"] if p["type"] == "tool_call"]
    assert called
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool_result"] == called


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_during_a_shell_command_leaves_no_process_and_an_answer_for_every_call(
    folder: Path, number: signal.Signals
) -> None:
    prompt = "read notes.txt, run `echo group $$; exec sleep 1000`, list the files"
    with started("--transcript", "t.jsonl", prompt, cwd=folder) as process:
        group = int(read_until(process, r"group \d+").split()[1])
        process.send_signal(number)
        assert process.wait(30) == 130
    assert not is_running(group)
    assert_all_answered(folder / "t.jsonl")


def test_a_second_ctrl_c_ends_the_program_at_once(folder: Path) -> None:
    prompt = "run `trap '' TERM INT; echo group $$; sleep 1000 & wait; sleep 1000`"
    with started(prompt, cwd=folder) as process:
        group = int(read_until(process, r"group \d+").split()[1])
        process.send_signal(signal.SIGINT)
        read_until(process, "once more")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not is_running(group)


def test_a_line_typed_while_a_tool_sleeps_skips_the_remaining_calls(folder: Path) -> None:
    ours, theirs = pty.openpty()
    prompt = "run `echo asleep; sleep 2`, read notes.txt, list the files"
    try:
        with started("--transcript", "t.jsonl", prompt, cwd=folder, stdin=theirs) as process:
            read_until(process, "asleep$")
            os.write(ours, b"read more.txt instead\n")
            read_until(process, r"\(steering: read more.txt instead\)")
            rest = process.stderr.read() if process.stderr else ""
            assert process.wait(30) == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert rest.count("skipped") == 2
    assert_all_answered(folder / "t.jsonl")
    results = [m for m in messages_of(folder / "t.jsonl") if m["role"] == "tool_result"]
    assert [m["tool_name"] for m in results] == ["run_command", "read_file", "list_files", "read_file"]
    assert "Skipped due to queued user message." in results[1]["content"][0]["text"]
    assert "nothing" in results[3]["content"][0]["text"]


def test_the_transcript_is_a_legal_one(folder: Path) -> None:
    command("--transcript", "t.jsonl", "read notes.txt", cwd=folder)
    assert_all_answered(folder / "t.jsonl")
