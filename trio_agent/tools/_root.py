"""`Root`: the one door through which the file tools reach the disk.

A path is walked one name at a time, each opened relative to the open folder before it and never through a symbolic
link. There is no check that a later use could fall behind: whoever swaps a folder for a link while a tool is at
work gets a refusal, not an escape. Links are refused also where they point inside the root; a hard link and a mount
cannot be told from a plain file or folder and are not refused.
"""

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NoReturn

import attrs

from trio_agent import ToolError

__all__ = ["MAX_FILE_BYTES", "Entry", "Root"]

MAX_FILE_BYTES = 20_000_000
"""The largest file that is read: the tools hold a file in memory as a whole."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# a pipe without a writer must not block the tool before its kind is known
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OUTSIDE = "refused: it leads out of the root folder; use a path inside it, relative to it"
_LINK = "is a symbolic link, and links are not followed: they could lead out of the root folder"


@attrs.frozen
class Entry:
    """One thing found in a folder. ``parts``: its names from the root down."""

    parts: tuple[str, ...]
    kind: Literal["file", "folder", "link", "other"]

    @property
    def shown(self) -> str:
        """The path in a form that fits on one line and into JSON, whatever bytes the names hold."""
        return show(self.parts)


def show(parts: tuple[str, ...]) -> str:
    """The path from the root as text; ``.`` is the root itself."""
    text = "/".join(parts).encode("utf-8", "backslashreplace").decode()
    return text.replace("\n", "\\n") or "."


class Root:
    """A folder that cannot be left. All methods are sync and may block on the disk: call them in a worker thread.

    Each raises `ToolError` with the path and the reason for a path that leads outside, a symbolic link on the way,
    and whatever the operating system refuses.

    Args:
        folder: an existing folder. Links in this path itself are the caller's and are followed, once, here.

    Attributes:
        path: the folder, absolute and without links.
        changing: hold it to read and then change a file; `write` by itself needs none.

    Raises:
        TypeError: ``folder`` is not a path.
        ValueError: ``folder`` is not an existing folder.
        NotImplementedError: this system cannot open a file relative to an open folder (Windows).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise TypeError(f"root must be the path of a folder, not {type(folder).__name__}")
        if os.open not in os.supports_dir_fd:
            raise NotImplementedError(
                "file tools need a system that opens files relative to a folder; Windows does not"
            )
        if not os.path.isdir(folder):
            raise ValueError(f"root: {os.fspath(folder)!r} is not an existing folder; create it first")
        self.path = os.path.realpath(folder)
        self.changing = threading.Lock()
        self._spellings = (self.path, os.path.abspath(folder))

    def parts(self, path: str) -> tuple[str, ...]:
        """The names of ``path`` from the root down; nothing is looked up on the disk.

        ``..`` is taken away together with the name before it: no link is ever followed, so that is what it means.
        An absolute path is accepted if it begins with the root folder's own.
        """
        if not path or "\0" in path:
            raise ToolError(f"path {path!r} is not a path: it is empty or has a NUL character in it")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise ToolError(f"path {path!a} is not a path: it has characters that no file name can have") from None
        relative = self._below_root(path) if path.startswith("/") else path
        parts: list[str] = []
        for name in relative.split("/"):
            if name == "..":
                if not parts:
                    raise ToolError(f"{path}: {_OUTSIDE}")
                parts.pop()
            elif name not in ("", "."):
                parts.append(name)
        return tuple(parts)

    def _below_root(self, path: str) -> str:
        for base in self._spellings:
            if path == base or path.startswith(base.rstrip("/") + "/"):
                return path[len(base) :]
        raise ToolError(f"{path}: {_OUTSIDE}")

    def read(self, path: str) -> bytes:
        """The bytes of a regular file of at most ``MAX_FILE_BYTES``."""
        parts = self.parts(path)
        if not parts:
            raise ToolError(f"{path}: is a folder, not a file")
        with self._folder(parts[:-1]) as folder:
            opened = _open_at(folder, parts, _FILE)
        try:
            data = _read_regular(opened, parts)
        except OSError as error:
            raise ToolError(f"{show(parts)}: {error.strerror}") from error
        finally:
            os.close(opened)
        if len(data) > MAX_FILE_BYTES:
            raise ToolError(f"{show(parts)}: is larger than {MAX_FILE_BYTES} bytes, the most that can be read")
        return data

    def read_text(self, path: str) -> str:
        """The text of a UTF-8 file, line ends as they are. ToolError says so for a binary or undecodable one."""
        data = self.read(path)
        if b"\0" in data:
            raise ToolError(f"{path}: is a binary file (NUL byte at offset {data.index(0)}), not text")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ToolError(
                f"{path}: is not UTF-8 text (byte 0x{data[error.start]:02x} at offset {error.start})"
            ) from None

    def write(self, path: str, data: bytes) -> bool:
        """Put ``data`` into a file, at once for every reader: each sees the old or the new content, whole.

        Folders on the way are created. An existing file keeps its permissions.

        Returns:
            True if there was such a file before.
        """
        parts = self.parts(path)
        if not parts:
            raise ToolError(f"{path}: is a folder, not a file")
        with self._folder(parts[:-1], create=True) as folder:
            mode = _mode_of(folder, parts)
            temporary = f".trio_agent-{secrets.token_hex(8)}.tmp"
            try:
                _write_new(folder, temporary, data, mode)
                # a rename replaces a link that appeared under this name meanwhile; it does not write through it
                os.replace(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                raise ToolError(f"{show(parts)}: {error.strerror}") from error
            finally:
                # there is none if the rename happened or the file could not be made
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
        return mode is not None

    def scan(self, parts: tuple[str, ...]) -> list[Entry]:
        """What is in a folder, by name."""
        with self._folder(parts) as folder:
            try:
                with os.scandir(folder) as found:
                    entries = [Entry((*parts, item.name), _kind(item)) for item in found]
            except OSError as error:
                raise ToolError(f"{show(parts)}: {error.strerror}") from error
        return sorted(entries, key=lambda entry: entry.parts)

    def walk(self, parts: tuple[str, ...], unreadable: list[str]) -> Iterator[Entry]:
        """What is in a folder and in those below it: a folder's own entries first. Does not go into ``.git``.

        Args:
            unreadable: gets the reason for each lower folder that could not be looked into.
        """
        waiting = [parts]
        while waiting:
            here = waiting.pop()
            try:
                entries = self.scan(here)
            except ToolError as error:
                if here == parts:
                    raise
                unreadable.append(str(error))
                continue
            yield from entries
            waiting += [item.parts for item in reversed(entries) if item.kind == "folder" and item.parts[-1] != ".git"]

    def is_folder(self, path: str) -> bool:
        """False also if there is nothing there; a link is no folder."""
        parts = self.parts(path)
        if not parts:
            return True
        with self._folder(parts[:-1]) as folder:
            status = _status_at(folder, parts[-1])
        return status is not None and stat.S_ISDIR(status.st_mode)

    @contextmanager
    def _folder(self, parts: tuple[str, ...], create: bool = False) -> Iterator[int]:
        """The open folder at ``parts``, for as long as the block lasts."""
        try:
            folder = os.open(self.path, _FOLDER)
        except OSError as error:
            raise ToolError(f"the root folder {self.path}: {error.strerror}") from error
        try:
            for depth in range(1, len(parts) + 1):
                below = _open_at(folder, parts[:depth], _FOLDER, create)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


def _open_at(folder: int, parts: tuple[str, ...], flags: int, create: bool = False) -> int:
    """Open the last of ``parts`` in the open folder that the others led to."""
    name = parts[-1]
    if create:
        try:
            # there already, as a folder or as something that the next line refuses
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
        except OSError as error:
            raise ToolError(f"{show(parts)}: {error.strerror}") from error
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        _refuse(error, folder, parts)


def _refuse(error: OSError, folder: int, parts: tuple[str, ...]) -> NoReturn:
    status = _status_at(folder, parts[-1]) if error.errno in (errno.ELOOP, errno.ENOTDIR) else None
    if status is not None and stat.S_ISLNK(status.st_mode):
        raise ToolError(f"{show(parts)}: refused: {_LINK}") from error
    text = {errno.ENOENT: "there is no such file or folder", errno.ENOTDIR: "is not a folder"}
    raise ToolError(f"{show(parts)}: {text.get(error.errno or 0, error.strerror)}") from error


def _read_regular(opened: int, parts: tuple[str, ...]) -> bytes:
    """At most one byte more than ``MAX_FILE_BYTES``: enough to know that there are too many."""
    mode = os.fstat(opened).st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file (a device, pipe or socket)"
        raise ToolError(f"{show(parts)}: is {kind}; only regular files can be read")
    with open(opened, "rb", closefd=False) as file:
        return file.read(MAX_FILE_BYTES + 1)


def _status_at(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _mode_of(folder: int, parts: tuple[str, ...]) -> int | None:
    """The permissions of the file that is to be replaced, or None if there is none; refuses what is no such file."""
    status = _status_at(folder, parts[-1])
    if status is None:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise ToolError(f"{show(parts)}: refused: {_LINK}")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{show(parts)}: is not a regular file; it cannot be written")
    # a rename asks only for the folder's permissions, and a read-only file is meant to stay as it is
    if not os.access(parts[-1], os.W_OK, dir_fd=folder):
        raise ToolError(f"{show(parts)}: is read-only")
    return stat.S_IMODE(status.st_mode)


def _write_new(folder: int, name: str, data: bytes, mode: int | None) -> None:
    with open(os.open(name, _NEW | os.O_NOFOLLOW, 0o666, dir_fd=folder), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        # without it, a power cut after the rename can leave an empty file where the old content was
        os.fsync(file.fileno())


def _kind(item: os.DirEntry[str]) -> Literal["file", "folder", "link", "other"]:
    if item.is_symlink():
        return "link"
    if item.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if item.is_file(follow_symlinks=False) else "other"
