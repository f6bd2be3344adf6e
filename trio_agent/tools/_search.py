"""Tools that look at many files: ``list_files``, ``search_files``. Sync, in a worker thread; no effects."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

import attrs
import trio
from msgspec import Meta

from trio_agent import Tool, ToolError, ToolResult, tool

from ._files import lines_of
from ._root import Entry, Root

__all__ = ["list_tool", "search_tool"]

MAX_ENTRIES = 1_000
MAX_MATCHES = 200
MAX_SHOWN_CHARACTERS = 200
MAX_SEARCHED_CHARACTERS = 10_000

_MARK = {"file": "", "folder": "/", "link": " (link, not followed)", "other": " (not a regular file)"}


def list_tool(root: Root) -> Tool:
    """``list_files(path=".", recursive=False)``: one path per line, relative to the root; folders end in ``/``.

    A cancellation ends it at the next entry. Links are shown and not followed; ``.git`` is shown and not entered.
    """

    @tool
    def list_files(
        path: Annotated[str, Meta(description="Folder to list, relative to the root folder.")] = ".",
        recursive: Annotated[bool, Meta(description="Also list the folders below it, except .git.")] = False,
    ) -> ToolResult:
        """List the files and folders in a folder."""
        parts = root.parts(path)
        unreadable: list[str] = []
        lines: list[str] = []
        total = 0
        for entry in root.walk(parts, unreadable) if recursive else root.scan(parts):
            trio.from_thread.check_cancelled()
            total += 1
            if len(lines) < MAX_ENTRIES:
                lines.append(entry.shown + _MARK[entry.kind])
        if not total:
            lines.append("[the folder is empty]")
        if total > MAX_ENTRIES:
            lines.append(f"[{total - MAX_ENTRIES} more of {total} entries left out; list a smaller folder]")
        lines += _note_unreadable(unreadable)
        return ToolResult("\n".join(lines), details={"path": path, "entries": total})

    return list_files


def search_tool(root: Root) -> Tool:
    r"""``search_files(pattern, path=".", glob="*")``: lines that a regular expression matches, as ``path:line: text``.

    A cancellation ends it before the next file. Binary, undecodable and too large files are counted, not searched;
    of a very long line only the beginning is searched. A pattern that backtracks without end, such as ``(a+)+$``,
    holds up the whole process until Python's ``re`` has finished with a line: leave this tool out where the model's
    patterns cannot be trusted that far.
    """

    @tool
    def search_files(
        pattern: Annotated[str, Meta(min_length=1, description="Regular expression (Python), matched line by line.")],
        path: Annotated[str, Meta(description="File or folder to search, relative to the root folder.")] = ".",
        glob: Annotated[
            str, Meta(description="Only files whose name matches, such as *.py; with a / in it, whose path does.")
        ] = "*",
    ) -> ToolResult:
        """Search files for a regular expression; folders are searched with those below them, except .git."""
        try:
            wanted = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"pattern: {pattern!r} is not a regular expression: {error}") from None
        search = _Search(root, wanted)
        if root.is_folder(path):
            for name in _names(root, path, glob, search):
                search.look_into(name)
        else:
            search.look_at(path, root.read_text(path))
        return search.result(path)

    return search_files


def _names(root: Root, path: str, glob: str, search: "_Search") -> Iterator[str]:
    for entry in root.walk(root.parts(path), search.unreadable):
        trio.from_thread.check_cancelled()
        if entry.kind == "file" and _fits(entry, glob):
            yield "/".join(entry.parts)


def _fits(entry: Entry, glob: str) -> bool:
    return fnmatchcase("/".join(entry.parts) if "/" in glob else entry.parts[-1], glob)


@attrs.define
class _Search:
    root: Root
    wanted: re.Pattern[str]
    lines: list[str] = attrs.field(factory=list)
    matches: int = 0
    files: int = 0
    skipped: int = 0
    unreadable: list[str] = attrs.field(factory=list)

    def look_into(self, name: str) -> None:
        """Search one of many files; one that cannot be read as text is counted and passed over."""
        try:
            text = self.root.read_text(name)
        except ToolError:
            self.skipped += 1
            return
        self.look_at(name, text)

    def look_at(self, name: str, text: str) -> None:
        self.files += 1
        shown_name = name.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
        for number, line in enumerate(lines_of(text), 1):
            if self.wanted.search(line[:MAX_SEARCHED_CHARACTERS]) is None:
                continue
            self.matches += 1
            if self.matches <= MAX_MATCHES:
                cut = "…" if len(line) > MAX_SHOWN_CHARACTERS else ""
                self.lines.append(f"{shown_name}:{number}: {line[:MAX_SHOWN_CHARACTERS]}{cut}")

    def result(self, path: str) -> ToolResult:
        lines = list(self.lines)
        if not self.matches:
            lines.append(f"[no line matches {self.wanted.pattern!r}; {self.files} files searched]")
        if self.matches > MAX_MATCHES:
            lines.append(f"[{self.matches - MAX_MATCHES} more of {self.matches} matches left out]")
        if self.skipped:
            lines.append(f"[not searched: {self.skipped} files that are not UTF-8 text, too large or not readable]")
        lines += _note_unreadable(self.unreadable)
        return ToolResult("\n".join(lines), details={"path": path, "matches": self.matches, "files": self.files})


def _note_unreadable(reasons: list[str]) -> list[str]:
    if not reasons:
        return []
    return [f"[{len(reasons)} folders could not be looked into, the first: {reasons[0]}]"]
