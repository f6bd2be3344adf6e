"""What `OfflineModel` says about a tool's result: plain words, with what the result really holds. Pure and sync."""

import re

from trio_agent._messages import ToolResultMessage

from ._offline_words import Instruction

__all__ = ["report"]

SHOWN_LINES = 8
SHOWN_CHARACTERS = 600
SHOWN_NAMES = 20

_RANGE = re.compile(r"\[lines \d+-\d+ of (\d+)")
_HIT = re.compile(r"(.+?):(\d+): (.*)")
_EXIT = re.compile(r"\[exit code (-?\d+)\]")


def report(instruction: Instruction, result: ToolResultMessage | None) -> str:
    """One or a few sentences about one result; an error is told as one, with the tool's own words."""
    if result is None:
        return f"I asked {instruction.tool} to {instruction.intent}, but there is no result for it."
    lines, notes = _split(result.text)
    if instruction.kind == "run":
        return _about_command(instruction, lines, notes, result.is_error)
    if result.is_error:
        return f"I could not {instruction.intent}. {result.tool_name} says: {_excerpt(lines + notes)}"
    match instruction.kind:
        case "read" | "count_lines":
            return _about_file(instruction, lines, notes)
        case "list" | "count_files":
            return _about_folder(instruction, lines, notes)
        case "search":
            return _about_search(instruction, lines, notes)
        case _:
            return f"Done: {instruction.subject}. {result.tool_name} says: {_excerpt(lines + notes)}"


def _split(text: str) -> tuple[list[str], list[str]]:
    """The lines of a result, and the remarks in brackets with which the package's tools end theirs."""
    lines = text.splitlines()
    end = len(lines)
    while end and lines[end - 1].startswith("[") and lines[end - 1].endswith("]"):
        end -= 1
    return lines[:end], lines[end:]


def _about_file(instruction: Instruction, lines: list[str], notes: list[str]) -> str:
    known = next((match[1] for match in map(_RANGE.match, notes) if match), None)
    if known is None:
        # without such a remark, a last line in brackets is the file's own
        lines, notes = ([], notes) if notes == ["[the file is empty]"] and not lines else (lines + notes, [])
    count = int(known) if known else len(lines)
    says = f"{instruction.subject} has {_number(count, 'line')}."
    if instruction.kind == "count_lines" or not lines:
        return says
    whole = len(lines) == count and _excerpt(lines) == "\n".join(lines)
    return f"{says} It {'says' if whole else 'begins'}:\n{_excerpt(lines)}"


def _about_folder(instruction: Instruction, lines: list[str], notes: list[str]) -> str:
    folders = [line for line in lines if line.endswith("/")]
    files = [line for line in lines if not line.endswith("/")]
    where = "here" if instruction.subject == "." else f"in {instruction.subject}"
    says = f"There {'is' if len(files) == 1 else 'are'} {_number(len(files), 'file')} {where}{_names(files)}"
    if folders:
        says += f", and {_number(len(folders), 'folder')}{_names(folders)}"
    left_out = [note for note in notes if note != "[the folder is empty]"]
    return " ".join([says + ".", *left_out])


def _about_search(instruction: Instruction, lines: list[str], notes: list[str]) -> str:
    hits = [match for match in map(_HIT.fullmatch, lines) if match]
    if lines and not hits:
        return f"I searched for {instruction.subject!r}. The tool answered: {_excerpt(lines + notes)}"
    if not hits:
        return " ".join([f"I found no line with {instruction.subject!r}.", *notes])
    files = len({match[1] for match in hits})
    says = f"I found {instruction.subject!r} in {_number(len(hits), 'line')} of {_number(files, 'file')}"
    return " ".join([f"{says}:\n{_excerpt(lines)}", *notes])


def _about_command(instruction: Instruction, lines: list[str], notes: list[str], is_error: bool) -> str:
    code = next((match[1] for match in map(_EXIT.fullmatch, reversed(notes)) if match), None)
    printed = lines if code is not None else lines + notes
    if is_error:
        how = f"failed with exit code {code}" if code is not None else "failed"
    else:
        how = f"ended with exit code {code}" if code is not None else "is done"
    if not printed:
        return f"`{instruction.subject}` {how}. It printed nothing."
    return f"`{instruction.subject}` {how}. The output has {_number(len(printed), 'line')}:\n{_excerpt(printed)}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _names(names: list[str]) -> str:
    if not names:
        return ""
    rest = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f": {', '.join(names[:SHOWN_NAMES])}{rest}"


def _excerpt(lines: list[str]) -> str:
    """The first lines, marked where something is missing."""
    text = "\n".join(lines[:SHOWN_LINES])
    cut = len(lines) > SHOWN_LINES or len(text) > SHOWN_CHARACTERS
    return text[:SHOWN_CHARACTERS] + (" …" if cut else "")
