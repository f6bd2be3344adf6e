"""Tools that read and change one file: ``read_file``, ``write_file``, ``edit_file``.

They are sync, so they run in a worker thread that is always waited for: a cancellation falls before such a call or
after it, never inside.
"""

from typing import Annotated

from msgspec import Meta

from trio_agent import Tool, ToolError, ToolResult, tool

from ._root import Root

__all__ = ["edit_tool", "read_tool", "write_tool"]

MAX_OUTPUT_CHARACTERS = 60_000
MAX_LINE_CHARACTERS = 2_000

_Path = Annotated[str, Meta(description="Path of the file, relative to the root folder.")]


def read_tool(root: Root) -> Tool:
    """``read_file(path, offset=1, limit=2000)``: lines of a UTF-8 file.

    The output is bounded; its last line then says, in brackets, what was left out and how to get it.
    """

    @tool
    def read_file(
        path: _Path,
        offset: Annotated[int, Meta(ge=1, description="First line to read, counted from 1.")] = 1,
        limit: Annotated[int, Meta(ge=1, description="How many lines to read at most.")] = 2000,
    ) -> ToolResult:
        """Read a text file, or a range of its lines."""
        lines = lines_of(root.read_text(path))
        if offset > max(len(lines), 1):
            raise ToolError(f"{path}: offset {offset} is past the end; the file has {len(lines)} lines")
        shown, cut = _take(lines[offset - 1 : offset - 1 + limit])
        text = "\n".join(shown) if lines else "[the file is empty]"
        last = offset - 1 + len(shown)
        if len(shown) < len(lines):
            text += f"\n[lines {offset}-{last} of {len(lines)}"
            text += f"; call again with offset={last + 1} for more]" if last < len(lines) else "]"
        if cut:
            text += f"\n[{cut} long lines were cut after {MAX_LINE_CHARACTERS} characters]"
        return ToolResult(text, details={"path": path, "lines": len(lines), "first": offset, "last": last})

    return read_file


def write_tool(root: Root) -> Tool:
    """``write_file(path, content)``: create a file or replace its content.

    A reader, and a call that was cancelled, find either the old or the new content, whole.
    """

    @tool(sequential=True)
    def write_file(
        path: _Path, content: Annotated[str, Meta(description="The whole new content of the file.")]
    ) -> ToolResult:
        """Create a text file, with the folders it needs, or replace the content of an existing one."""
        data = _encode(content, "content")
        with root.changing:
            existed = root.write(path, data)
        text = f"{'Replaced' if existed else 'Created'} {path}: {len(data)} bytes, {len(lines_of(content))} lines."
        return ToolResult(text, details={"path": path, "bytes": len(data), "existed": existed})

    return write_file


def edit_tool(root: Root) -> Tool:
    """``edit_file(path, old_text, new_text)``: replace one passage, which must occur exactly once.

    Atomic as ``write_file`` is; edits of one root do not run into each other.
    """

    @tool(sequential=True)
    def edit_file(
        path: _Path,
        old_text: Annotated[str, Meta(min_length=1, description="The passage to replace; it must occur exactly once.")],
        new_text: Annotated[str, Meta(description="What stands there afterwards.")],
    ) -> ToolResult:
        """Replace one passage of a text file. Give enough of the text around it to make it unique."""
        _encode(new_text, "new_text")
        with root.changing:
            text = root.read_text(path)
            if "\r\n" in text and "\r" not in old_text:
                # read_file shows such a file without the \r, so the model cannot know that they are there
                old_text, new_text = old_text.replace("\n", "\r\n"), new_text.replace("\n", "\r\n")
            line = _check_once(path, text, old_text)
            root.write(path, text.replace(old_text, new_text).encode())
        return ToolResult(f"Edited {path}, line {line}.", details={"path": path, "line": line})

    return edit_file


def lines_of(text: str) -> list[str]:
    """The lines of a text without their ends; a last line end opens no line of its own."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def _check_once(path: str, text: str, old_text: str) -> int:
    """The line at which ``old_text`` begins. ToolError unless it occurs exactly once, overlaps counted."""
    first = text.find(old_text)
    if first < 0:
        raise ToolError(f"{path}: old_text does not occur in the file; nothing was changed. Read the file again")
    second = text.find(old_text, first + 1)
    if second >= 0:
        places = f"lines {text.count(chr(10), 0, first) + 1} and {text.count(chr(10), 0, second) + 1}"
        raise ToolError(
            f"{path}: old_text occurs more than once ({places}); nothing was changed. Give more of the text"
        )
    return text.count("\n", 0, first) + 1


def _take(lines: list[str]) -> tuple[list[str], int]:
    """As many lines as fit into the output, and how many of them had to be cut."""
    taken: list[str] = []
    room = MAX_OUTPUT_CHARACTERS
    cut = 0
    for line in lines:
        shown = line[:MAX_LINE_CHARACTERS]
        room -= len(shown) + 1
        if room < 0:
            break
        cut += len(shown) < len(line)
        taken.append(shown)
    return taken, cut


def _encode(text: str, argument: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{argument}: character {error.start} is half of a surrogate pair; send whole characters"
        ) from None
