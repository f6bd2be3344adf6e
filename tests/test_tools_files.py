"""The file tools, with real files: what they do, what they say, and that no path leads out of the root."""

import ctypes
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_agent import Tool, ToolContext, ToolError, ToolResult
from trio_agent._tools import check_arguments, to_result
from trio_agent.tools import _files, _root, _search, default_tools, file_tools, shell_tool

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A root folder beside a folder with a secret."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    return tmp_path / "root"


async def call(root: Path, name: str, **arguments: Any) -> ToolResult:
    """Call a tool as the loop does."""
    return await call_tool(next(item for item in file_tools(root) if item.name == name), **arguments)


async def call_tool(tool: Tool, **arguments: Any) -> ToolResult:
    return to_result(await tool.execute(check_arguments(tool, arguments), ToolContext("1", tool.name)))


def secret(base: Path) -> str:
    return (base.parent / "outside" / "secret.txt").read_text()


def test_names_and_arguments_are_those_the_model_is_told(base: Path) -> None:
    shown = {item.name: list(item.parameters["properties"]) for item in default_tools(base)}
    assert shown == {
        "read_file": ["path", "offset", "limit"],
        "write_file": ["path", "content"],
        "edit_file": ["path", "old_text", "new_text"],
        "list_files": ["path", "recursive"],
        "search_files": ["pattern", "path", "glob"],
        "run_command": ["command", "timeout"],
    }
    for item in default_tools(base):
        assert item.description
        assert all("description" in parameter for parameter in item.parameters["properties"].values())


@pytest.mark.parametrize("make", [file_tools, shell_tool, default_tools])
def test_a_bad_root_is_named(make: Callable[[Any], Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"root: .*missing.*create it first"):
        make(tmp_path / "missing")
    with pytest.raises(ValueError, match="root: "):
        make(tmp_path / "file")
    with pytest.raises(TypeError, match="root must be"):
        make(3)


async def test_reads_lines(base: Path) -> None:
    (base / "a.txt").write_text("one\ntwo\r\nthree\n")
    assert (await call(base, "read_file", path="a.txt")).text == "one\ntwo\nthree"
    part = await call(base, "read_file", path="./x/../a.txt", offset=2, limit=1)
    assert part.text == "two\n[lines 2-2 of 3; call again with offset=3 for more]"
    assert part.details == {"path": "./x/../a.txt", "lines": 3, "first": 2, "last": 2}
    assert (await call(base, "read_file", path="a.txt", offset=3)).text == "three\n[lines 3-3 of 3]"
    assert (await call(base, "read_file", path=str(base / "a.txt"))).text == "one\ntwo\nthree"
    (base / "empty").touch()
    assert (await call(base, "read_file", path="empty")).text == "[the file is empty]"


async def test_what_it_reads_is_bounded_and_says_so(base: Path) -> None:
    (base / "long.txt").write_text("x" * 5000 + "\n" + ("y" * 1000 + "\n") * 100)
    text = (await call(base, "read_file", path="long.txt")).text
    assert len(text) < _files.MAX_OUTPUT_CHARACTERS + 200
    assert "[lines 1-58 of 101; call again with offset=59 for more]" in text
    assert "[1 long lines were cut after 2000 characters]" in text


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("binary", b"a\0b", "binary file"),
        ("latin", b"caf\xe9\n", r"not UTF-8 text \(byte 0xe9 at offset 3\)"),
        ("missing", None, "no such file"),
        (".", None, "is a folder"),
        ("", None, "is empty"),
        ("a\0b", None, "NUL"),
        ("\ud800", None, "no file name"),
        ("x" * 300, None, "too long"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_the_reason(
    base: Path, path: str, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (base / path).write_bytes(content)
    with pytest.raises(ToolError, match=reason):
        await call(base, "read_file", path=path)


async def test_special_files_and_folders_and_large_files_are_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(base / "pipe")
    (base / "folder").mkdir()
    (base / "large").write_bytes(b"x" * 11)
    monkeypatch.setattr(_root, "MAX_FILE_BYTES", 10)
    for path, reason in (("pipe", "not a regular file"), ("folder", "a folder"), ("large", "larger than 10 bytes")):
        with pytest.raises(ToolError, match=reason):
            await call(base, "read_file", path=path)


async def test_an_offset_past_the_end_is_refused(base: Path) -> None:
    (base / "a.txt").write_text("a\n")
    with pytest.raises(ToolError, match=r"a\.txt: offset 3 is past the end; the file has 1 lines"):
        await call(base, "read_file", path="a.txt", offset=3)
    with pytest.raises(ValueError, match="offset"):
        await call(base, "read_file", path="a.txt", offset=0)


async def test_no_file_is_left_open(base: Path) -> None:
    (base / "a").write_text("x")
    (base / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for name in ("read_file", "list_files"):
        for path in ("a", "folder", "nothing", "a/b", "folder/b", "../x"):
            with suppress(ToolError):
                await call(base, name, path=path)
    with suppress(ToolError):
        await call(base, "write_file", path="folder", content="x")
    await call(base, "write_file", path="n/e/w", content="x")
    await call(base, "search_files", pattern="x")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_writes_and_replaces(base: Path) -> None:
    new = await call(base, "write_file", path="a/b/c.txt", content="héllo\n")
    assert new.text == "Created a/b/c.txt: 7 bytes, 1 lines."
    path = base / "a" / "b" / "c.txt"
    assert path.read_text() == "héllo\n"
    path.chmod(0o640)
    assert (await call(base, "write_file", path="a/b/c.txt", content="x")).text.startswith("Replaced")
    assert path.read_text() == "x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == ["c.txt"]


async def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "folder").mkdir()
    (base / "file").write_text("old")
    os.mkfifo(base / "pipe")
    for path in ("folder", "pipe", ".", "file/x", "y" * 300):
        with pytest.raises(ToolError):
            await call(base, "write_file", path=path, content="new")
    with pytest.raises(ToolError, match="surrogate"):
        await call(base, "write_file", path="file", content="\ud800")

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="file: No space left"):
        await call(base, "write_file", path="file", content="new")
    assert (base / "file").read_text() == "old"
    assert sorted(os.listdir(base)) == ["file", "folder", "pipe"]


async def test_a_read_only_file_stays(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "file").write_text("old")
    (base / "file").chmod(0o444)
    if AS_ROOT:
        monkeypatch.setattr(os, "access", lambda *args, **kwargs: False)
    with pytest.raises(ToolError, match="read-only"):
        await call(base, "write_file", path="file", content="new")
    assert (base / "file").read_text() == "old"


async def test_a_reader_sees_the_old_or_the_new_content(base: Path) -> None:
    path = base / "file"
    contents = {letter * 300_000 for letter in "ab"}
    path.write_text("a" * 300_000)
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, watch)
        try:
            for content in sorted(contents) * 10:
                await call(base, "write_file", path="file", content=content)
        finally:
            done.set()
    assert seen <= contents


async def test_a_cancelled_write_is_whole(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "file").write_text("old")
    reached, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(descriptor: int) -> None:
        reached.set()
        assert go_on.wait(10)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: call(base, "write_file", path="file", content="new"))
        await trio.to_thread.run_sync(reached.wait)
        nursery.cancel_scope.cancel()
        assert (base / "file").read_text() == "old"
        go_on.set()
    assert (base / "file").read_text() == "new"
    assert os.listdir(base) == ["file"]


async def test_edits_one_passage(base: Path) -> None:
    (base / "a.txt").write_text("one\ntwo\nthree\n")
    assert (await call(base, "edit_file", path="a.txt", old_text="two", new_text="2")).text == "Edited a.txt, line 2."
    assert (base / "a.txt").read_text() == "one\n2\nthree\n"
    with pytest.raises(ToolError, match="does not occur"):
        await call(base, "edit_file", path="a.txt", old_text="two", new_text="2")
    with pytest.raises(ToolError, match=r"more than once \(lines 1 and 3\)"):
        await call(base, "edit_file", path="a.txt", old_text="e", new_text="E")
    (base / "b.txt").write_text("aaa")
    with pytest.raises(ToolError, match="more than once"):
        await call(base, "edit_file", path="b.txt", old_text="aa", new_text="")
    assert (base / "b.txt").read_text() == "aaa"


async def test_an_edit_keeps_windows_line_ends(base: Path) -> None:
    (base / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    await call(base, "edit_file", path="a.txt", old_text="one\ntwo", new_text="1\n2")
    assert (base / "a.txt").read_bytes() == b"1\r\n2\r\n"


async def test_edits_at_the_same_time_are_all_kept(base: Path) -> None:
    (base / "a.txt").write_text("".join(f"<{n}>" for n in range(20)))
    edit = next(item for item in file_tools(base) if item.name == "edit_file")
    async with trio.open_nursery() as nursery:
        for n in range(20):
            nursery.start_soon(lambda n=n: call_tool(edit, path="a.txt", old_text=f"<{n}>", new_text=f"({n})"))
    assert (base / "a.txt").read_text() == "".join(f"({n})" for n in range(20))


async def test_lists(base: Path) -> None:
    (base / "b").mkdir()
    (base / "b" / "deep").mkdir()
    (base / "b" / "deep" / "x").touch()
    (base / ".git").mkdir()
    (base / ".git" / "config").touch()
    (base / "a\nb").touch()
    (base / "link").symlink_to("b")
    os.mkfifo(base / "pipe")
    assert (await call(base, "list_files")).text.split("\n") == [
        ".git/",
        "a\\nb",
        "b/",
        "link (link, not followed)",
        "pipe (not a regular file)",
    ]
    deep = (await call(base, "list_files", recursive=True)).text.split("\n")
    assert deep[5:] == ["b/deep/", "b/deep/x"]
    assert (await call(base, "list_files", path="b/deep")).text == "b/deep/x"
    (base / "empty").mkdir()
    assert (await call(base, "list_files", path="empty")).text == "[the folder is empty]"
    with pytest.raises(ToolError, match="x: is not a folder"):
        await call(base, "list_files", path="b/deep/x")
    with pytest.raises(ToolError, match="no such file or folder"):
        await call(base, "list_files", path="c", recursive=True)


async def test_a_name_in_no_encoding_can_be_listed(base: Path) -> None:
    (base / os.fsdecode(b"caf\xe9")).write_text("x")
    result = await call(base, "list_files")
    assert result.text == "caf\\udce9"
    assert "caf\\udce9:1: x" in (await call(base, "search_files", pattern="x")).text


async def test_a_long_list_is_bounded_and_says_so(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "MAX_ENTRIES", 3)
    for n in range(5):
        (base / str(n)).touch()
    text = (await call(base, "list_files", recursive=True)).text
    assert text == "0\n1\n2\n[2 more of 5 entries left out; list a smaller folder]"


async def test_searches(base: Path) -> None:
    (base / "src").mkdir()
    (base / "src" / "a.py").write_text("import os\nx = 1\n")
    (base / "b.txt").write_text("no import\n")
    (base / "bin").write_bytes(b"import\0")
    found = await call(base, "search_files", pattern="import")
    assert found.text.split("\n") == [
        "b.txt:1: no import",
        "src/a.py:1: import os",
        "[not searched: 1 files that are not UTF-8 text, too large or not readable]",
    ]
    assert found.details == {"path": ".", "matches": 2, "files": 2}
    assert (await call(base, "search_files", pattern="^import", glob="*.py")).text == "src/a.py:1: import os"
    assert (await call(base, "search_files", pattern="import", glob="src/*")).text == "src/a.py:1: import os"
    assert (await call(base, "search_files", pattern=r"x = \d", path="src")).text == "src/a.py:2: x = 1"
    assert (await call(base, "search_files", pattern="imp", path="b.txt")).text == "b.txt:1: no import"
    nothing = await call(base, "search_files", pattern="q", path="src")
    assert nothing.text == "[no line matches 'q'; 1 files searched]"
    with pytest.raises(ToolError, match=r"pattern: '\(' is not a regular expression"):
        await call(base, "search_files", pattern="(")
    with pytest.raises(ToolError, match="nothere: there is no such file"):
        await call(base, "search_files", pattern="x", path="nothere")
    with pytest.raises(ToolError, match="bin: is a binary file"):
        await call(base, "search_files", pattern="x", path="bin")


async def test_a_search_is_bounded_and_says_so(base: Path) -> None:
    (base / "a.txt").write_text(f"{'x' * 1000}\n" * 250)
    lines = (await call(base, "search_files", pattern="x")).text.split("\n")
    assert len(lines) == _search.MAX_MATCHES + 1
    assert lines[-1] == "[50 more of 250 matches left out]"
    assert max(map(len, lines)) < _search.MAX_SHOWN_CHARACTERS + 20


async def test_a_cancellation_ends_a_search(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(50):
        (base / f"{n}.txt").write_text("x\n")
    looked = 0
    reached, go_on = threading.Event(), threading.Event()
    real = _search._Search.look_into

    def slow(self: Any, name: str) -> None:
        nonlocal looked
        looked += 1
        reached.set()
        assert go_on.wait(10)
        real(self, name)

    monkeypatch.setattr(_search._Search, "look_into", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: call(base, "search_files", pattern="x"))
        await trio.to_thread.run_sync(reached.wait)
        nursery.cancel_scope.cancel()
        go_on.set()
    assert looked == 1


# What leads outside, as a path of the root: every tool that takes a path has to refuse it.
ESCAPES = [
    "../outside/secret.txt",
    "a/../../outside/secret.txt",
    "/etc/passwd",
    "{outside}/secret.txt",
    "{root}/../outside/secret.txt",
    "{root}-not/secret.txt",
    "folder_link/secret.txt",
    "file_link",
    "inner_link/x",
    "sub/up/outside/secret.txt",
    "dangling/new.txt",
]


@pytest.fixture
def trapped(base: Path) -> Path:
    outside = base.parent / "outside"
    (base / "sub").mkdir()
    (base / "sub" / "x").write_text("inside")
    (base / "sub" / "up").symlink_to("../..")
    (base / "folder_link").symlink_to(outside)
    (base / "file_link").symlink_to(outside / "secret.txt")
    (base / "inner_link").symlink_to("sub")
    (base / "dangling").symlink_to(outside / "not_there_yet")
    return base


def in_words(path: str, root: Path) -> str:
    return path.format(outside=root.parent / "outside", root=root)


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {}),
        ("write_file", {"content": "broken"}),
        ("edit_file", {"old_text": "secret", "new_text": "broken"}),
        ("list_files", {"recursive": True}),
        ("search_files", {"pattern": "secret"}),
    ],
)
async def test_no_path_leads_out(trapped: Path, name: str, arguments: dict[str, Any], path: str) -> None:
    tried = in_words(path, trapped)
    with pytest.raises(ToolError, match=r"refused: .*(leads out of the root folder|symbolic link)") as caught:
        await call(trapped, name, path=tried, **arguments)
    assert tried.split("/")[0] in str(caught.value)
    assert secret(trapped) == "secret"
    assert os.listdir(trapped.parent / "outside") == ["secret.txt"]


@pytest.mark.parametrize("path", ["new/../../x", "folder_link/new/deep.txt", "dangling", "../new.txt"])
async def test_nothing_new_is_made_outside(trapped: Path, path: str) -> None:
    with pytest.raises(ToolError, match="refused"):
        await call(trapped, "write_file", path=path, content="x")
    assert os.listdir(trapped.parent / "outside") == ["secret.txt"]
    assert sorted(os.listdir(trapped.parent)) == ["outside", "root"]


async def test_links_are_not_followed_on_the_way(trapped: Path) -> None:
    listed = (await call(trapped, "list_files", recursive=True)).text.split("\n")
    assert "folder_link (link, not followed)" in listed
    assert not [line for line in listed if "secret" in line]
    assert "no line matches" in (await call(trapped, "search_files", pattern="secret")).text


async def test_the_root_itself_may_be_reached_through_a_link(base: Path) -> None:
    (base / "a.txt").write_text("x")
    link = base.parent / "link"
    link.symlink_to(base)
    assert (await call(link, "read_file", path="a.txt")).text == "x"
    assert (await call(link, "read_file", path=str(link / "a.txt"))).text == "x"
    assert (await call(link, "read_file", path=str(base / "a.txt"))).text == "x"


@pytest.mark.parametrize("name", ["read_file", "write_file", "list_files"])
async def test_a_folder_swapped_for_a_link_between_two_steps_does_not_help(
    base: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swap at the worst moments: right before and right after the folder is opened."""
    arguments = {"write_file": {"content": "broken"}}.get(name, {})
    path = "a/b" if name == "list_files" else "a/b/secret.txt"
    real = os.open
    for before in (True, False):
        (base / "a" / "b").mkdir(parents=True)
        (base / "a" / "b" / "secret.txt").write_text("harmless")
        swapped = False

        def swapping(target: Any, *args: Any, before: bool = before, **kwargs: Any) -> int:
            nonlocal swapped
            opened = None if before else real(target, *args, **kwargs)
            if target == "b" and not swapped:
                swapped = True
                (base / "a" / "b").rename(base / "away")
                (base / "a" / "b").symlink_to(base.parent / "outside")
            return real(target, *args, **kwargs) if opened is None else opened

        monkeypatch.setattr(os, "open", swapping)
        monkeypatch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, swapping})
        if before:
            with pytest.raises(ToolError, match="a/b: refused: is a symbolic link"):
                await call(base, name, path=path, **arguments)
        else:
            result = await call(base, name, path=path, **arguments)
            assert result.text == {"read_file": "harmless", "list_files": "a/b/secret.txt"}.get(name, result.text)
        assert swapped
        assert secret(base) == "secret"
        monkeypatch.undo()
        (base / "a" / "b").unlink()
        (base / "away").rename(base / f"away_{before}")


async def test_a_swap_under_full_load_does_not_help(base: Path) -> None:
    """A thread exchanges a folder and a link to the outside as fast as it can, while the tools read and write."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    if exchange is None:
        pytest.skip("needs renameat2, to exchange two names with no moment between")
    (base / "real").mkdir()
    (base / "real" / "secret.txt").write_text("harmless")
    (base / "link").symlink_to(base.parent / "outside")
    names = [os.fsencode(base / name) for name in ("real", "link")]
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            assert exchange(-100, names[0], -100, names[1], 2) == 0

    read: set[str] = set()
    refusals: set[str] = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, swap)
        try:
            for _ in range(300):
                try:
                    read.add((await call(base, "read_file", path="real/secret.txt")).text)
                    await call(base, "write_file", path="real/secret.txt", content="harmless")
                except ToolError as error:
                    refusals.add(str(error).partition(": ")[2])
        finally:
            done.set()
    assert read <= {"harmless"}
    assert all("link" in reason or reason == "is not a folder" for reason in refusals)
    assert secret(base) == "secret"
    assert os.listdir(base.parent / "outside") == ["secret.txt"]
