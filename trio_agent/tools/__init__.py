"""A small set of real tools (files under one folder, and a shell), and what goes around tools.

``default_tools(root)`` gives them all; ``file_tools(root)`` and ``shell_tool(root)`` a part. The file tools cannot
leave the folder; the shell can. `approval` is a ``before_tool_call`` hook in which a person decides; `with_timeout`,
`with_retries`, `with_cache` and `with_audit` make a `Tool` of a `Tool`.
"""

import os

from trio_agent import Tool

from ._approval import approval
from ._files import edit_tool, read_tool, write_tool
from ._root import Root
from ._search import list_tool, search_tool
from ._shell import run_command_tool
from ._wrappers import AuditRecord, with_audit, with_cache, with_retries, with_timeout

__all__ = [
    "AuditRecord",
    "approval",
    "default_tools",
    "file_tools",
    "shell_tool",
    "with_audit",
    "with_cache",
    "with_retries",
    "with_timeout",
]


def file_tools(root: str | os.PathLike[str]) -> tuple[Tool, ...]:
    """``read_file``, ``write_file``, ``edit_file``, ``list_files`` and ``search_files``, confined to a folder.

    No path leads out of it: not through ``..``, not an absolute one, not through a symbolic link (links are not
    followed at all). Such a call gets an error result that names the path and the rule. The tools run in worker
    threads; a cancellation falls before or after a change, never inside one.

    Args:
        root: an existing folder.

    Raises:
        TypeError, ValueError: ``root`` is not a path, or not an existing folder.
        NotImplementedError: on Windows.
    """
    folder = Root(root)
    return (read_tool(folder), write_tool(folder), edit_tool(folder), list_tool(folder), search_tool(folder))


def shell_tool(root: str | os.PathLike[str]) -> Tool:
    """``run_command``: shell commands that start in a folder and end, with all they started, when the call ends.

    The folder is where a command starts, not where it is kept: a shell can go anywhere and sees this process's
    environment. A cancelled call leaves no process of its group behind; it may take up to three seconds to end them.

    Args:
        root: an existing folder.

    Raises:
        TypeError, ValueError: ``root`` is not a path, or not an existing folder.
        NotImplementedError: on Windows.
    """
    return run_command_tool(Root(root).path)


def default_tools(root: str | os.PathLike[str]) -> tuple[Tool, ...]:
    """`file_tools` and `shell_tool`, all for one folder. Raises what they raise."""
    return (*file_tools(root), shell_tool(root))
