"""Tool call ids that a server accepts, for calls that another one has named."""

import hashlib
import re
from collections.abc import Iterable, Mapping

from trio_agent._messages import AssistantMessage, Message

__all__ = ["call_ids"]


def call_ids(messages: Iterable[Message], legal: str, make: str = "call_{}", length: int = 24) -> Mapping[str, str]:
    """New ids for those that a server would refuse, by the old ones; the same for the same messages, always.

    Args:
        legal: a regular expression for a whole id.
        make: what a new id looks like.
        length: of the part that stands for the old id.
    """
    pattern = re.compile(legal)
    found = [call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    kept = {id for id in found if pattern.fullmatch(id)}
    new: dict[str, str] = {}
    for id in found:
        if id in kept or id in new:
            continue
        attempt = 0
        while (made := make.format(_digest(f"{id}{attempt or ''}")[:length])) in kept:
            attempt += 1  # of 9 characters, two may be alike
        kept.add(made)
        new[id] = made
    return new


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
