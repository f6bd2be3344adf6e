"""OfflineModel: what it understands, which calls it makes, and that it tells the truth about their results."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trio_agent import (
    Agent,
    AssistantMessage,
    Image,
    Message,
    Model,
    ModelRequest,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from trio_agent.models.offline import OfflineModel
from trio_agent.tools import default_tools

NAMES = ("read_file", "list_files", "search_files", "run_command", "write_file")


class Notes:
    """A writer that notes each call; enough of `MessageWriter` for this model."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.used: list[Usage] = []

    async def text(self, delta: str) -> None:
        self.said.append(("text", delta))

    async def tool_call_start(self, id: str, name: str) -> None:
        self.said.append(("start", id, name))

    async def tool_call_delta(self, json_fragment: str) -> None:
        self.said.append(("fragment", json_fragment))

    async def tool_call_end(self, extra: Any = {}) -> None:  # noqa: B006
        self.said.append(("end",))

    def usage(self, usage: Usage) -> None:
        self.used.append(usage)

    @property
    def prose(self) -> str:
        return "".join(item[1] for item in self.said if item[0] == "text")

    @property
    def calls(self) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for item in self.said:
            if item[0] == "start":
                id, name, text = item[1], item[2], ""
            elif item[0] == "fragment":
                text += item[1]
            elif item[0] == "end":
                calls.append(ToolCall(id, name, json.loads(text)))
        return calls


async def _unused(arguments: dict[str, Any], context: Any) -> None: ...


def offer(names: Iterable[str] = NAMES) -> tuple[Tool, ...]:
    return tuple([Tool(name, "", {"type": "object"}, _unused) for name in names])


async def respond(*messages: Message | str, tools: Iterable[str] = NAMES, system_prompt: str = "") -> Notes:
    notes = Notes()
    transcript = tuple([UserMessage(item) if isinstance(item, str) else item for item in messages])
    await OfflineModel().stream(ModelRequest(system_prompt, transcript, offer(tools)), notes)  # type: ignore[arg-type]
    return notes


async def answer(wish: str, *results: str | tuple[str, bool]) -> str:
    """The final words, after the calls that the model made for ``wish`` got these results."""
    messages: list[Message] = [UserMessage(wish)]
    waiting = list(results)
    while True:
        notes = await respond(*messages)
        if not notes.calls:
            assert not waiting
            return notes.prose
        messages.append(AssistantMessage(notes.calls))
        for call in notes.calls:
            result = waiting.pop(0)
            text, is_error = result if isinstance(result, tuple) else (result, False)
            messages.append(ToolResultMessage(call.id, call.name, text, is_error=is_error))


def test_its_name_is_honest() -> None:
    model = OfflineModel()
    assert isinstance(model, Model)
    assert (model.name, model.provider) == ("offline", "trio_agent")


@pytest.mark.parametrize(
    ("wish", "name", "arguments"),
    [
        ("read README.md", "read_file", {"path": "README.md"}),
        ("Please show me the file src/a.py.", "read_file", {"path": "src/a.py"}),
        ("open 'my notes.txt'", "read_file", {"path": "my notes.txt"}),
        ("What does README.md say?", "read_file", {"path": "README.md"}),
        ("what is in notes.txt?", "read_file", {"path": "notes.txt"}),
        ("What's in notes.txt", "read_file", {"path": "notes.txt"}),
        ("list the files", "list_files", {}),
        ("List files in src, please.", "list_files", {"path": "src"}),
        ("What files are there?", "list_files", {}),
        ("what is in the folder src?", "list_files", {"path": "src"}),
        ("list the files in this folder", "list_files", {}),
        ("list the files in .", "list_files", {}),
        ("search for TODO", "search_files", {"pattern": "TODO"}),
        ("Search for 'a then b' in src", "search_files", {"pattern": "a then b", "path": "src"}),
        ("search src for f(x)", "search_files", {"pattern": r"f\(x\)", "path": "src"}),
        ("search the files for TODO", "search_files", {"pattern": "TODO"}),
        ("find the word needle in hay.txt", "search_files", {"pattern": "needle", "path": "hay.txt"}),
        ("where is the TODO?", "search_files", {"pattern": "TODO"}),
        ("search for 'the end'", "search_files", {"pattern": "the end"}),
        ("Where is main?", "search_files", {"pattern": "main"}),
        ("where is Root defined in src", "search_files", {"pattern": "Root", "path": "src"}),
        ("count the files", "list_files", {}),
        ("How many files are in src?", "list_files", {"path": "src"}),
        ("count the lines in a.txt", "read_file", {"path": "a.txt"}),
        ("How many lines does a.txt have?", "read_file", {"path": "a.txt"}),
        ("run `ls -l`", "run_command", {"command": "ls -l"}),
        ("run ls", "run_command", {"command": "ls"}),
        ("Run the command `echo  'a  b' && echo done.`", "run_command", {"command": "echo  'a  b' && echo done."}),
        ('write "hello there" to a.txt', "write_file", {"path": "a.txt", "content": "hello there"}),
        ("write hello to the file a.txt.", "write_file", {"path": "a.txt", "content": "hello"}),
        ("create a new file b.txt with the text 'x  y'", "write_file", {"path": "b.txt", "content": "x  y"}),
        ('write "one\ntwo" to a.txt', "write_file", {"path": "a.txt", "content": "one\ntwo"}),
        ("No, stop. Instead, list the files", "list_files", {}),
    ],
)
async def test_each_instruction_becomes_one_call(wish: str, name: str, arguments: dict[str, Any]) -> None:
    notes = await respond(wish)
    assert [(call.name, dict(call.arguments)) for call in notes.calls] == [(name, arguments)]
    assert notes.prose.startswith("I will ")


@pytest.mark.parametrize(
    ("wish", "paths"),
    [
        ("read a.txt then read b.txt", ["a.txt", "b.txt"]),
        ("Read a.txt, and then show b.txt. Then open c.txt.", ["a.txt", "b.txt", "c.txt"]),
        ("read a.txt, b.txt and c.txt", ["a.txt", "b.txt", "c.txt"]),
        ("read a.txt and read b.txt", ["a.txt", "b.txt"]),
    ],
)
async def test_independent_instructions_are_calls_of_one_response(wish: str, paths: list[str]) -> None:
    calls = (await respond(wish)).calls
    assert [call.arguments["path"] for call in calls] == paths
    assert [call.id for call in calls] == [f"call_{n + 1}" for n in range(len(paths))]


@pytest.mark.parametrize(
    ("wish", "first"),
    [
        ('write "x" to a.txt then read a.txt', ["write_file"]),
        ('write "x" to a.txt then list the files', ["write_file"]),
        ('write "x" to a.txt then read b.txt', ["write_file", "read_file"]),
        ('read a.txt then write "x" to a.txt', ["read_file"]),
        ("run `touch a` then list the files", ["run_command"]),
    ],
)
async def test_a_dependent_instruction_waits_for_the_one_before(wish: str, first: list[str]) -> None:
    assert [call.name for call in (await respond(wish)).calls] == first


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ("run `sleep 1`, read a.txt, list the files", ["run_command", "read_file", "list_files"]),
        ("run `a` and run `b`", ["run_command", "run_command"]),
        ("read a.txt, and search for TODO, then run `b`", ["read_file", "search_files"]),
    ],
)
async def test_only_a_then_makes_a_call_wait(wish: str, names: list[str]) -> None:
    assert [call.name for call in (await respond(wish)).calls] == names


async def test_it_goes_on_where_the_results_ended() -> None:
    said = await answer('write "x" to a.txt then read a.txt', "Created a.txt: 1 bytes, 1 lines.", "x")
    assert "Created a.txt: 1 bytes" in said
    assert "a.txt has 1 line. It says:\nx" in said


async def test_ids_are_unique_in_the_transcript() -> None:
    earlier = AssistantMessage((ToolCall("call_2", "other"),))
    notes = await respond(earlier, ToolResultMessage("call_2", "other", ""), "read a.txt and b.txt")
    assert [call.id for call in notes.calls] == ["call_3", "call_4"]
    earlier = AssistantMessage((ToolCall("call_4", "other"), ToolCall("x", "other")))
    notes = await respond(earlier, "read a.txt and b.txt")
    assert [call.id for call in notes.calls] == ["call_3", "call_5"]


@pytest.mark.parametrize(
    ("wish", "result", "words"),
    [
        ("read a.txt", "one\ntwo", ["a.txt has 2 lines. It says:\none\ntwo"]),
        ("read a.txt", "\n".join(f"line {n}" for n in range(12)), ["has 12 lines. It begins:\nline 0\n", "…"]),
        ("read a.txt", "x\n[lines 1-1 of 99; call again with offset=2 for more]", ["has 99 lines. It begins:\nx"]),
        ("read a.ini", "[section]", ["has 1 line. It says:\n[section]"]),
        ("read a.txt", "[the file is empty]", ["a.txt has 0 lines."]),
        ("count the lines in a.txt", "one\ntwo\nthree", ["a.txt has 3 lines."]),
        ("list the files", "a\nb\nsub/", ["There are 2 files here: a, b, and 1 folder: sub/."]),
        ("list the files in x", "x/a", ["There is 1 file in x: x/a."]),
        ("count the files", "[the folder is empty]", ["There are 0 files here."]),
        ("count the files", "a\n[5 more of 6 entries left out; list a smaller folder]", ["5 more of 6 entries"]),
        ("find cat", "a.txt:3: the cat\nb.txt:1: cat", ["'cat' in 2 lines of 2 files", "a.txt:3: the cat"]),
        ("find cat", "[no line matches 'cat'; 4 files searched]", ["I found no line with 'cat'", "4 files searched"]),
        ("find cat", "I only know dogs", ["answered: I only know dogs"]),
        ("run ls", "a\nb\n[exit code 0]", ["`ls` ended with exit code 0", "has 2 lines:\na\nb"]),
        ("run true", "[exit code 0]", ["exit code 0. It printed nothing."]),
        ("run x", ("sh: x: not found\n[exit code 127]", True), ["`x` failed with exit code 127", "not found"]),
        ("run x", ("[timed out after 1 seconds]", True), ["`x` failed", "timed out after 1 seconds"]),
        ("read a.txt", ("a.txt: there is no such file", True), ["could not read a.txt", "there is no such file"]),
        ("write 'x' to a.txt", ("a.txt: is read-only", True), ["could not write a.txt", "is read-only"]),
        ("list the files", ("Skipped due to queued user message.", True), ["could not list the files", "Skipped"]),
    ],
)
async def test_it_says_what_the_result_holds(wish: str, result: str | tuple[str, bool], words: list[str]) -> None:
    said = await answer(wish, result)
    for expected in words:
        assert expected in said


async def test_a_missing_tool_is_named_and_not_called() -> None:
    notes = await respond("run ls", tools=["read_file"])
    assert notes.calls == []
    assert notes.prose == "I cannot run `ls`: there is no tool named run_command here."
    notes = await respond("run ls then read a.txt", tools=["read_file"])
    assert [call.name for call in notes.calls] == ["read_file"]


async def test_a_missing_tool_is_reported_beside_what_was_done() -> None:
    wish = UserMessage("run ls then read a.txt")
    call = ToolCall("call_1", "read_file", {"path": "a.txt"})
    result = ToolResultMessage("call_1", "read_file", "hi")
    notes = await respond(wish, AssistantMessage(call), result, tools=["read_file"])
    assert "a.txt has 1 line" in notes.prose
    assert "no tool named run_command" in notes.prose


async def test_the_newest_user_message_wins() -> None:
    call = ToolCall("call_1", "read_file", {"path": "a.txt"})
    result = ToolResultMessage("call_1", "read_file", "hi")
    notes = await respond("read a.txt then read b.txt", AssistantMessage(call), result, "list the files")
    assert [(item.id, item.name) for item in notes.calls] == [("call_2", "list_files")]


async def test_the_same_wish_again_is_done_again() -> None:
    call = ToolCall("call_1", "read_file", {"path": "a.txt"})
    result = ToolResultMessage("call_1", "read_file", "hi")
    notes = await respond("read a.txt", AssistantMessage(call), result, AssistantMessage("..."), "read a.txt")
    assert [item.id for item in notes.calls] == ["call_2"]


@pytest.mark.parametrize("wish", ["Why is the sky blue?", "read me a story", "hello"])
async def test_what_it_does_not_understand_it_says_so_and_what_it_is(wish: str) -> None:
    notes = await respond(wish)
    assert notes.calls == []
    assert "did not understand" in notes.prose
    assert "not a language model" in notes.prose
    assert "run `ls -l`" in notes.prose


async def test_its_help_offers_only_what_the_tools_allow() -> None:
    said = (await respond("hm?", tools=["read_file"])).prose
    assert "read README.md" in said
    assert "ls -l" not in said
    assert "Not available here: list_files, search_files, run_command, write_file." in said
    assert "None of the tools" in (await respond("hm?", tools=[])).prose


async def test_a_part_that_was_not_understood_is_named() -> None:
    said = await answer("read a.txt then dance", "hi")
    assert "a.txt has 1 line" in said
    assert "'dance'" in said
    assert "not a language model" in said


async def test_a_message_without_text_gets_an_answer() -> None:
    assert "no text to answer" in (await respond(UserMessage(Image(b"x", "image/png")))).prose
    assert "no text to answer" in (await respond()).prose


async def test_the_same_request_gives_the_same_response() -> None:
    for wish in ("read a.txt then run ls", "why?"):
        first, second = await respond(wish), await respond(wish)
        assert first.said == second.said
        assert first.used == second.used


async def test_it_streams_in_small_pieces() -> None:
    said = (await respond("read a/rather/long/path/to/a/file.txt")).said
    assert [item[0] for item in said[:4]] == ["text", "text", "start", "fragment"]
    assert sum(item[0] == "fragment" for item in said) > 2
    assert sum(item[0] == "text" for item in (await respond("why?")).said) > 10


async def test_usage_counts_words() -> None:
    notes = await respond("read a.txt", system_prompt="Be very brief.")
    assert notes.prose == "I will read a.txt."
    assert notes.used == [Usage(5, 6)]  # {"path": "a.txt"} is two words


async def test_a_delay_makes_streaming_visible(autojump_clock: trio.testing.MockClock) -> None:
    notes = Notes()
    started = trio.current_time()
    await OfflineModel(delay=0.5).stream(ModelRequest("", (UserMessage("why?"),)), notes)  # type: ignore[arg-type]
    assert trio.current_time() - started == pytest.approx(0.5 * len(notes.said))


@pytest.mark.parametrize(("delay", "error"), [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError)])
def test_a_bad_delay_is_named(delay: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="delay"):
        OfflineModel(delay)


async def test_with_the_real_tools_and_the_real_loop(tmp_path: Path) -> None:
    agent = Agent(OfflineModel(), tools=default_tools(tmp_path))
    result = await agent.prompt('write "hello world" to sub/a.txt then read sub/a.txt and then search for "wor" in sub')
    assert result.outcome == "completed"
    assert "sub/a.txt has 1 line. It says:\nhello world" in result.text
    assert "sub/a.txt:1: hello world" in result.text
    assert (tmp_path / "sub" / "a.txt").read_text() == "hello world"
    result = await agent.prompt("run `echo hi; exit 3`, then list the files in sub, then read nothing.txt")
    assert "failed with exit code 3" in result.text
    assert "There is 1 file in sub: sub/a.txt." in result.text
    assert "could not read nothing.txt" in result.text
