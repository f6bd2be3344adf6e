"""What `OfflineModel` understands: from a message in plain English to instructions. Pure and sync."""

import re
from typing import Any, Literal

import attrs

__all__ = ["Instruction", "Kind", "understand"]

Kind = Literal["read", "list", "search", "count_files", "count_lines", "run", "write"]

TOOL_OF: dict[str, str] = {
    "read": "read_file",
    "list": "list_files",
    "search": "search_files",
    "count_files": "list_files",
    "count_lines": "read_file",
    "run": "run_command",
    "write": "write_file",
}


@attrs.frozen
class Instruction:
    """One thing to do, and the one tool call that does it.

    Attributes:
        subject: the file, folder, text or command that it is about, as the user wrote it.
        arguments: of the call.
        waits: the user said "then" before it.
    """

    kind: Kind
    subject: str
    arguments: dict[str, Any]
    waits: bool = False

    @property
    def tool(self) -> str:
        """The name of the tool that it takes."""
        return TOOL_OF[self.kind]

    @property
    def intent(self) -> str:
        """What is about to be done, as the end of a sentence that begins with "I will"."""
        folder = "the files" if self.subject == "." else f"the files in {self.subject}"
        return {
            "read": f"read {self.subject}",
            "list": f"list {folder}",
            "search": f"search for {self.subject!r}",
            "count_files": f"count {folder}",
            "count_lines": f"count the lines of {self.subject}",
            "run": f"run `{self.subject}`",
            "write": f"write {self.subject}",
        }[self.kind]

    def must_follow(self, earlier: "Instruction") -> bool:
        """True if the two may not stand in one response: the user said "then", and the earlier may change what this
        one finds. Without a "then" the calls stand in one response, to be run in order."""
        if not self.waits:
            return False
        if "run" in (self.kind, earlier.kind):
            return True
        if "write" not in (self.kind, earlier.kind):
            return False
        one_file = ("read", "write", "count_lines")
        if self.kind in one_file and earlier.kind in one_file:
            return bool(self.arguments["path"] == earlier.arguments["path"])
        return True


_PATH = r"""(?:`[^`]+`|"[^"]+"|'[^']+'|[^\s`"',]+)"""
_HERE = r"here|there|(?:this|the|the current|the root) (?:folder|directory|project)|the (?:files|code|project)"
_FOLDER = rf"(?:{_HERE}|(?:the )?(?:(?:folder|directory) )?(?P<folder>{_PATH})(?: (?:folder|directory))?)"
_IN = rf"(?: (?:in|inside|under|of|from) {_FOLDER})?"
_FILE = rf"(?:the )?(?:file )?(?P<file>{_PATH})"
_FILES = rf"(?:the )?(?:files? |contents? of )?(?P<files>{_PATH}(?:(?:,| and|, and) {_PATH})*)(?: file)?"

# In the order in which they are tried: the first that fits a whole clause decides.
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("run", r"(?:run|execute)(?: the)?(?: shell)?(?: command)?:? (?P<command>.+)"),
    ("write", rf"(?:write|save|put) (?P<text>.+) (?:to|into|in) (?:a )?(?:new )?{_FILE}"),
    (
        "write",
        rf"(?:create|make) (?:a )?(?:new )?{_FILE} (?:with|containing|that says)(?: the)?(?: text| content)?:? "
        r"(?P<text>.+)",
    ),
    ("count_lines", rf"(?:count|how many)(?: all)?(?: the)? lines (?:are )?(?:there )?(?:in|of|does|has) {_FILE}.*"),
    ("count_files", rf"(?:count|how many)(?: all)?(?: the)? files(?: are)?(?: there)?{_IN}"),
    (
        "list",
        r"(?:list|show|what|which)(?: me)?(?: all)?(?: the| of the)? (?:files|folders|entries|contents)"
        rf"(?: are)?(?: there)?{_IN}",
    ),
    ("list", rf"(?:list|what(?:'s| is) in) (?:the )?(?:(?:folder|directory) {_FOLDER}|{_HERE})"),
    ("list", rf"list {_FOLDER}"),
    ("search", rf"(?:search|grep|look) (?:in |through )?{_FOLDER} for (?P<text>.+)"),
    ("search", rf"(?:search|grep|look)(?: for)? (?P<text>.+?){_IN}"),
    ("search", rf"find (?P<text>.+?){_IN}"),
    ("search", rf"where(?:'s| is| are| do| does) (?P<text>.+?)(?: (?:defined|used|mentioned|occur|appear))?{_IN}"),
    ("read", rf"(?:read|show|open|print|display|cat|view|look at)(?: me)? {_FILES}"),
    ("read", rf"what (?:does|do) {_FILES} (?:say|contain)"),
    ("read", rf"(?:tell me )?what(?:'s| is) in(?:side)? {_FILES}"),
    ("read", rf"tell me what {_FILES} says?"),
)
_COMPILED = [(kind, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for kind, pattern in _PATTERNS]

_QUOTED = re.compile(r"""`[^`]*`|"[^"]*"|(?<!\w)'[^']*'(?!\w)""")
_VERB = r"(?:read|show|open|print|list|search|find|count|run|execute|write|create|tell|what|where|how|look)\b"
_JOINT = re.compile(
    rf"[,;.!?]?\s+(?i:and\s+)?(?i:then)[,\s]+|[.!?;]\s+(?=[A-Z])|\s*\n+\s*|,?\s+(?i:and\s+(?:also\s+)?(?={_VERB}))"
    rf"|,\s+(?i:(?={_VERB}))"
)
_POLITE = re.compile(
    r"(?:(?:please|now|first|also|next|then|and|no|wait|stop|actually|instead|just|ok|okay|hi|hello|"
    r"(?:can|could|would|will) you|i want you to|let's|let us)[,.!]?\s+)+",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"[,\s]+(?:please|instead|now|first|for me|too|as well)$", re.IGNORECASE)
_ARTICLE = re.compile(
    r"^(?:(?:the )?(?:word|text|string|phrase|pattern|lines? (?:with|containing)) |the )", re.IGNORECASE
)


def understand(message: str) -> tuple[list[Instruction], list[str]]:
    """The instructions in a message, in order, and the clauses that were not understood.

    Text in quotes or backticks is taken as it stands, also where it holds a "then".
    """
    instructions: list[Instruction] = []
    unclear: list[str] = []
    for clause, waits in _clauses(message):
        found = _parse(clause)
        instructions += [attrs.evolve(item, waits=waits) for item in found]
        if not found:
            unclear.append(clause)
    return instructions, unclear


def _clauses(message: str) -> list[tuple[str, bool]]:
    """The clauses, each with whether a "then" stands before it."""
    masked = _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), message)
    clauses: list[tuple[str, bool]] = []
    start, waits = 0, False
    for joint in _JOINT.finditer(masked):
        clauses.append((_tidy(message[start : joint.start()]), waits))
        start, waits = joint.end(), "then" in joint[0].lower() or message[joint.end() :].lower().startswith("then ")
    clauses.append((_tidy(message[start:]), waits))
    kept = [(clause, waits) for clause, waits in clauses if clause]
    return kept or [(message.strip(), False)] * bool(message.strip())


def _tidy(clause: str) -> str:
    """Without politeness and the end of the sentence; a full stop after a space is a path."""
    clause = re.sub(r"(?<=[^\s.])[.?!,]+$", "", clause.strip())
    polite = _POLITE.match(clause + " ")
    return _TRAILING.sub("", clause[polite.end() :] if polite else clause).strip()


def _parse(clause: str) -> list[Instruction]:
    # runs of blanks do not matter to the patterns, but they do inside of what is quoted
    quoted = iter(_QUOTED.findall(clause))
    plain = re.sub("\0+", lambda _: next(quoted), re.sub(r"\s+", " ", _QUOTED.sub("\0", clause)))
    for kind, pattern in _COMPILED:
        match = pattern.fullmatch(plain)
        if match is not None:
            return _instructions(kind, match.groupdict())
    return []


def _instructions(kind: Kind, words: dict[str, str | None]) -> list[Instruction]:
    path = _unquote(words.get("file") or "")
    folder = _unquote(words.get("folder") or "") or "."
    text = _unquote(words.get("text") or "")
    below: dict[str, Any] = {} if folder == "." else {"path": folder}
    match kind:
        case "read":
            names = map(_unquote, re.findall(_PATH, re.sub(r",? and ", " ", words["files"] or "")))
            return [Instruction(kind, name, {"path": name}) for name in names]
        case "count_lines":
            return [Instruction(kind, path, {"path": path})]
        case "write":
            return [Instruction(kind, path, {"path": path, "content": text})]
        case "run":
            command = _unquote(words["command"] or "")
            return [Instruction(kind, command, {"command": command})]
        case "search":
            text = _unquote(_ARTICLE.sub("", words["text"] or "", count=1))
            escaped = re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", text)
            return [Instruction(kind, text, {"pattern": escaped, **below})]
        case _:
            return [Instruction(kind, folder, below)]


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "`\"'" else text
