"""``run_command``: a shell command in a process group of its own, which ends with the call."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Annotated

import trio
from msgspec import Meta

from trio_agent import Tool, ToolContext, ToolError, ToolResult, tool

from ._output import CommandOutput

__all__ = ["run_command_tool"]

TERM_SECONDS = 1.0
KILL_SECONDS = 2.0
DRAIN_SECONDS = 1.0


def run_command_tool(folder: str) -> Tool:
    """``run_command(command, timeout=60.0)``: run a command line through ``/bin/sh`` in ``folder``.

    What it prints (stdout and stderr merged) is streamed through `ToolContext.update`; the result holds its
    beginning and end, and the exit status. Other than exit status 0 is an error result, and so is a timeout.

    When the shell has exited, and on a timeout or a cancellation, every process of the group gets SIGTERM, after
    ``TERM_SECONDS`` SIGKILL, and is waited for, in a shielded section of at most ``TERM_SECONDS + KILL_SECONDS``.
    So a process started with ``&`` ends with the call. One that made a session of its own (``setsid``) is no longer
    in the group and is not reached.

    The command is NOT confined: it starts in ``folder``, but a shell can go anywhere and do whatever this process
    may do, and it sees this process's environment variables. Confine it from outside (a container, another user).
    """

    @tool(sequential=True)
    async def run_command(
        command: Annotated[str, Meta(min_length=1, description="Command line for /bin/sh.")],
        context: ToolContext,
        timeout: Annotated[float, Meta(gt=0, le=3600, description="Seconds after which the command is ended.")] = 60.0,
    ) -> ToolResult:
        """Run a shell command in the root folder, without input. Background processes end with the command."""
        if "\0" in command:
            raise ToolError("command: has a NUL character in it, which no command line can have")
        return await _run(command, folder, timeout, context)

    return run_command


# a Ctrl-C between the start of the process and the `try` would leave the process behind
@trio.lowlevel.enable_ki_protection
async def _run(command: str, folder: str, timeout: float, context: ToolContext) -> ToolResult:
    started = trio.current_time()
    output = CommandOutput(context)
    process = await _start(command, folder)
    assert process.stdout is not None
    async with process.stdout, trio.open_nursery() as nursery:
        leftover = False
        try:
            nursery.start_soon(output.follow, process.stdout)
            with trio.move_on_after(timeout) as limit:
                await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                leftover = await _end_group(process)
        await output.drain(DRAIN_SECONDS)
        nursery.cancel_scope.cancel()
    notes = [_status(process.returncode, timeout if limit.cancelled_caught else None)]
    if leftover and not limit.cancelled_caught:
        notes.insert(0, "[processes that were still running in the background were ended]")
    text = output.text
    return ToolResult(
        f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}" + "\n".join(notes),
        details={
            "exit_code": process.returncode,
            "timed_out": limit.cancelled_caught,
            "output_bytes": output.total,
            "left_out_bytes": output.left_out,
            "seconds": trio.current_time() - started,
        },
        is_error=limit.cancelled_caught or process.returncode != 0,
    )


async def _start(command: str, folder: str) -> trio.Process:
    try:
        return await trio.lowlevel.open_process(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, UnicodeEncodeError) as error:
        raise ToolError(f"the command could not be started in {folder}: {error}") from error


def _status(exit_code: int | None, timeout: float | None) -> str:
    if timeout is not None:
        return f"[timed out after {timeout:g} seconds; the command and what it had started were ended]"
    if exit_code is None:
        return "[could not be ended; it may still be running]"
    if exit_code < 0:
        return f"[ended by signal {-exit_code} ({signal.strsignal(-exit_code)})]"
    return f"[exit code {exit_code}]"


async def _end_group(process: trio.Process) -> bool:
    """End and reap the shell and whatever is left of its group; call it shielded.

    Returns:
        True if something was still running.
    """
    group = process.pid
    if not _is_running(process, group):
        return False
    _signal(group, signal.SIGTERM)
    if not await _gone(process, group, TERM_SECONDS):
        _signal(group, signal.SIGKILL)
        await _gone(process, group, KILL_SECONDS)
    return True


async def _gone(process: trio.Process, group: int, seconds: float) -> bool:
    """Wait until nothing of the group runs; False if that takes too long."""
    pause = 0.005
    # nothing tells a process when its grandchildren end, so their state has to be asked for
    with trio.move_on_after(seconds):
        while _is_running(process, group):
            await trio.sleep(pause)
            pause = min(2 * pause, 0.1)
        return True
    return False


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # all that is left are processes of another user (sudo): they are there, and out of reach
        return True
    return True


def _is_running(process: trio.Process, group: int) -> bool:
    # poll() reaps the shell; its number stays taken for as long as the group has a member
    if process.poll() is None:
        return True
    if not _signal(group, 0):
        return False
    members = Path("/proc").glob("[0-9]*/stat")
    states = [state for state, its_group in map(_state_and_group, members) if its_group == group]
    # orphans that have ended wait for their new parent, which in a container may never reap them
    return any(state not in "ZX" for state in states) if Path("/proc/self/stat").exists() else True


def _state_and_group(file: Path) -> tuple[str, int]:
    try:
        # the fields after the command's name, which is in parentheses and may itself hold any of them
        fields = file.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "X", -1
    return fields[0].decode(), int(fields[2])
