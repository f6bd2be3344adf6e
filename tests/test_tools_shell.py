"""run_command, with real processes: what it says, what it streams, and that it leaves no process behind.

No test sleeps: where a process has to be waited for, the test waits for a line that it prints, or for a pipe that
closes when the last of the processes that hold it has ended.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trio_agent import Agent, ToolCall, ToolContext, ToolError, ToolExecutionEnd, ToolExecutionUpdate, ToolResult
from trio_agent._tools import check_arguments
from trio_agent.testing import ScriptedModel
from trio_agent.tools import _output, _shell, shell_tool
from trio_agent.tools._output import CommandOutput


class Watched:
    """A context whose updates a test can wait for."""

    def __init__(self, room: Any = None) -> None:
        self.updates: list[str] = []
        self._news = trio.Event()
        self.context = ToolContext("1", "run_command", report=self._take, room=room)

    def _take(self, partial: ToolResult) -> bool:
        self.updates.append(partial.text)
        self._news.set()
        self._news = trio.Event()
        return True

    async def until(self, text: str) -> str:
        while not self.updates or text not in self.updates[-1]:
            await self._news.wait()
        return self.updates[-1]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The reading end of a pipe, and the path under which a command can hold the other end open."""
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    yield reader, "exec 9>held;"
    os.close(reader)


async def all_ended(reader: int) -> None:
    """Wait until no process holds the other end."""
    with trio.fail_after(5):
        while True:
            await trio.lowlevel.wait_readable(reader)
            if not os.read(reader, 1000):
                return


def assert_no_live_process(group: int) -> None:
    """Nothing of the group runs. One that has ended and that its new parent has not yet reaped does not count."""
    alive = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state not in "ZX":
            alive.append(file.parent.name)
    assert alive == []


async def run(root: Path, command: str, context: ToolContext | None = None, **arguments: Any) -> ToolResult:
    run_command = shell_tool(root)
    checked = check_arguments(run_command, {"command": command, **arguments})
    with trio.fail_after(20):
        result = await run_command.execute(checked, context or ToolContext("1", "run_command"))
    assert isinstance(result, ToolResult)
    return result


async def test_says_what_was_printed_and_how_it_ended(tmp_path: Path) -> None:
    result = await run(tmp_path, "echo out; echo err >&2; pwd")
    assert result.text == f"out\nerr\n{tmp_path}\n[exit code 0]"
    assert not result.is_error
    seconds = result.details.pop("seconds")
    assert 0 < seconds < 20
    size = len(result.text) - len("[exit code 0]")
    assert result.details == {"exit_code": 0, "timed_out": False, "output_bytes": size, "left_out_bytes": 0}


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("exit 3", "[exit code 3]", 3),
        ("printf x; false", "x\n[exit code 1]", 1),
        ("kill -9 $$", "[ended by signal 9 (Killed)]", -9),
        ("no_such_command_at_all 2>/dev/null", "[exit code 127]", 127),
    ],
)
async def test_a_failure_is_an_error_result(tmp_path: Path, command: str, text: str, code: int) -> None:
    result = await run(tmp_path, command)
    assert (result.text, result.details["exit_code"], result.is_error) == (text, code, True)


async def test_it_has_no_input_and_may_print_anything(tmp_path: Path) -> None:
    assert (await run(tmp_path, "cat; echo end")).text == "end\n[exit code 0]"
    assert (await run(tmp_path, r"printf 'a\377b\n'")).text == "a\ufffdb\n[exit code 0]"


async def test_it_runs_in_a_session_of_its_own(tmp_path: Path) -> None:
    """So it has no terminal to read a password from, and a Ctrl-C there does not reach it behind our back."""
    lines = (await run(tmp_path, "cut -d ' ' -f 5,6 /proc/$$/stat; echo $$ $$")).text.split("\n")
    assert lines[0] == lines[1]


async def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="command: has a NUL"):
        await run(tmp_path, "a\0b")
    for bad in ({"command": ""}, {"command": "ls", "timeout": 0}, {"command": "ls", "timeout": "inf"}):
        with pytest.raises(ValueError, match="timeout" if "timeout" in bad else "command"):
            check_arguments(shell_tool(tmp_path), bad)


async def test_a_folder_that_has_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    run_command = shell_tool(tmp_path / "root")
    (tmp_path / "root").rmdir()
    with pytest.raises(ToolError, match=r"could not be started in .*root"):
        await run_command.execute({"command": "ls"}, ToolContext("1", "run_command"))


async def test_a_long_output_keeps_both_ends_and_says_what_is_missing(tmp_path: Path) -> None:
    result = await run(tmp_path, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert result.text.startswith("first\nxxx")
    assert result.text.endswith("xxx\nlast\n[exit code 0]")
    missing = result.details["left_out_bytes"]
    assert f"\n[{missing} bytes left out]\n" in result.text
    assert missing == 3_000_012 - 2 * _output.KEPT_BYTES
    assert len(result.text) < 2 * _output.KEPT_BYTES + 200


@pytest.mark.parametrize("sizes", [[10], [_output.KEPT_BYTES] * 2, [7] * 20_000, [500_000, 3, 300_000], [1] * 40_000])
def test_the_memory_of_a_long_output_is_bounded(sizes: list[int]) -> None:
    output = CommandOutput(ToolContext("1"))
    whole = b""
    for n, size in enumerate(sizes):
        chunk = bytes([97 + n % 26]) * size
        whole += chunk
        output.add(chunk)
    kept = _output.KEPT_BYTES
    assert len(output._head) + len(output._tail) <= 10 * kept + max(sizes)
    if len(whole) <= 2 * kept:
        assert output.text == whole.decode()
        assert output.left_out == 0
    else:
        left_out = len(whole) - 2 * kept
        assert output.text == f"{whole[:kept].decode()}\n[{left_out} bytes left out]\n{whole[-kept:].decode()}"


async def test_what_is_printed_is_shown_while_the_command_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    watched = Watched()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, tmp_path, "echo one; echo two; read line < go; echo $line", watched.context)
        assert (await watched.until("two")) == "one\ntwo\n"
        async with await trio.open_file(tmp_path / "go", "w") as go:
            await go.write("three\n")


async def test_the_last_line_before_a_long_silence_is_shown(tmp_path: Path) -> None:
    """The rate of updates is bounded, but nothing stays unshown only because nothing comes after it."""
    watched = Watched()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, tmp_path, "echo one; echo two; sleep 0.02; echo three; sleep 1000", watched.context)
        await watched.until("three")
        nursery.cancel_scope.cancel()


async def test_updates_are_few_and_small(tmp_path: Path) -> None:
    watched = Watched()
    started = trio.current_time()
    # more than a pipe holds, so that some of it is read before the command has ended
    await run(tmp_path, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", watched.context)
    assert len(watched.updates) <= 2 + (trio.current_time() - started) / _output.SNAPSHOT_SECONDS
    assert max(map(len, watched.updates)) <= _output.SNAPSHOT_BYTES


async def test_nothing_is_read_while_the_readers_are_behind() -> None:
    gate = trio.Event()
    watched = Watched(room=gate.wait)
    output = CommandOutput(watched.context)
    sender, receiver = trio.testing.memory_stream_one_way_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.follow, receiver)
        await sender.send_all(b"first")
        await trio.testing.wait_all_tasks_blocked()
        await sender.send_all(b"second")
        await trio.testing.wait_all_tasks_blocked()
        assert (output.total, watched.updates) == (5, ["first"])
        gate.set()
        await sender.aclose()
    assert output.text == "firstsecond"


async def test_a_slow_reader_slows_the_command_and_not_its_end(tmp_path: Path) -> None:
    """While `room` waits nothing is read, so the command stands still when the pipe is full."""
    gate = trio.Event()
    watched = Watched(room=gate.wait)
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await run(tmp_path, "echo 1; head -c 1000000 /dev/zero; echo done > done", watched.context))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await watched.until("")  # any: how much of the output is in the first one is chance
        assert len(watched.updates) == 1
        assert not (tmp_path / "done").exists()
        gate.set()
    assert (tmp_path / "done").exists()
    assert results[0].details["output_bytes"] == 1_000_002
    # a reader that never comes back: the command ends by itself, and its output is complete
    result = await run(tmp_path, "echo 1; sleep 0.2; echo 2", Watched(room=trio.sleep_forever).context)
    assert result.text == "1\n2\n[exit code 0]"


async def test_a_timeout_ends_the_group_and_keeps_the_output(tmp_path: Path, held: tuple[int, str]) -> None:
    reader, hold = held
    result = await run(tmp_path, f"{hold} echo $$; (sleep 1000) & sleep 1000", timeout=0.3)
    await all_ended(reader)
    group, note = result.text.split("\n")
    assert note == "[timed out after 0.3 seconds; the command and what it had started were ended]"
    assert result.is_error
    assert result.details["timed_out"]
    assert result.details["exit_code"] == -signal.SIGTERM
    assert_no_live_process(int(group))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("echo $$; sleep 1000", id="child"),
        pytest.param("echo $$; sleep 1000 & sleep 1000 & wait", id="background"),
        pytest.param("sh -c 'sh -c \"sleep 1000\" & sleep 1000' & echo $$; wait", id="grandchildren"),
        pytest.param("(sleep 1000 >/dev/null 2>&1 &) ; echo $$; exec sleep 1000", id="orphan without the pipe"),
        pytest.param("trap '' TERM; echo $$; while :; do sleep 1000; done", id="ignores SIGTERM"),
        pytest.param("(trap '' TERM; sleep 1000; sleep 1000) & echo $$; exec sleep 1000", id="orphan ignores SIGTERM"),
        pytest.param("echo $$; kill -STOP $$", id="stopped"),
    ],
)
async def test_a_cancelled_command_leaves_no_process(tmp_path: Path, held: tuple[int, str], command: str) -> None:
    reader, hold = held
    watched = Watched()
    with trio.fail_after(_shell.TERM_SECONDS + _shell.KILL_SECONDS + 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, tmp_path, f"{hold} {command}", watched.context)
            group = int(await watched.until("\n"))
            os.killpg(group, 0)
            nursery.cancel_scope.cancel()
    assert_no_live_process(group)
    with pytest.raises(ChildProcessError):
        os.waitpid(group, os.WNOHANG)  # noqa: ASYNC222 - does not block; there is nothing left to reap
    await all_ended(reader)


async def test_sigterm_comes_first(tmp_path: Path) -> None:
    """A command that cleans up at SIGTERM gets to do so."""
    watched = Watched()
    async with trio.open_nursery() as nursery:
        command = "trap 'echo bye > said; exit' TERM; echo ready; while :; do sleep 0.01; done"
        nursery.start_soon(run, tmp_path, command, watched.context)
        await watched.until("ready")
        nursery.cancel_scope.cancel()
    assert (tmp_path / "said").read_text() == "bye\n"


@pytest.mark.parametrize(
    "background",
    [
        pytest.param("sleep 1000 &", id="holds the pipe"),
        pytest.param("sleep 1000 > /dev/null 2>&1 &", id="does not"),
        pytest.param("(trap '' TERM; sleep 1000; sleep 1000) &", id="ignores SIGTERM"),
        pytest.param("nohup sleep 1000 &", id="nohup"),
    ],
)
async def test_a_background_process_ends_with_the_shell(tmp_path: Path, held: tuple[int, str], background: str) -> None:
    reader, hold = held
    result = await run(tmp_path, f"{hold} {background} echo $$")
    await all_ended(reader)
    lines = result.text.split("\n")
    assert lines[-2:] == ["[processes that were still running in the background were ended]", "[exit code 0]"]
    assert not result.is_error
    assert_no_live_process(int(lines[-3]))


async def test_a_process_in_a_session_of_its_own_cannot_hang_the_tool(tmp_path: Path, held: tuple[int, str]) -> None:
    """It is out of reach, as the docstring says; but the call returns although it holds the pipe."""
    reader, hold = held
    os.mkfifo(tmp_path / "pid")
    command = f"{hold} setsid sh -c 'echo $$ > pid; exec sleep 1000' & read pid < pid; echo $pid"
    result = await run(tmp_path, command)
    os.kill(int(result.text.split("\n")[0]), signal.SIGKILL)
    assert result.text.endswith("\n[exit code 0]")
    await all_ended(reader)


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    await run(tmp_path, "true")  # trio opens some of its own at the first process
    before = len(os.listdir("/proc/self/fd"))
    for command in ("echo x", "sleep 1000 & exit 1"):
        await run(tmp_path, command)
    await run(tmp_path, "sleep 1000", timeout=0.05)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_an_abort_of_the_agent_ends_the_command(tmp_path: Path, held: tuple[int, str]) -> None:
    reader, hold = held
    call = ToolCall("1", "run_command", {"command": f"{hold} echo $$; sleep 1000 & wait"})
    agent = Agent(ScriptedModel([call], "never"), tools=[shell_tool(tmp_path)])
    groups: list[int] = []
    ends: list[ToolExecutionEnd] = []
    with trio.fail_after(10):
        async with agent.run("go") as stream:
            async for event in stream:
                if isinstance(event, ToolExecutionUpdate):
                    groups.append(int(event.partial_result.text))
                    agent.abort("enough")
                elif isinstance(event, ToolExecutionEnd):
                    ends.append(event)
            result = await stream.result()
    assert result.outcome == "aborted"
    assert [end.outcome for end in ends] == ["cancelled"]
    assert_no_live_process(groups[0])
    await all_ended(reader)
