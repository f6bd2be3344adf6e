import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_agent.models._sse import SSEDecoder, SSEEvent

INPUTS = {
    "lf": b"data: a\n\ndata: b\n\n",
    "crlf": b"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n",
    "cr": b"event: x\rdata: a\r\rdata: b\r\r",
    "mixed": b"data: a\r\n\ndata: b\r\rdata: c\n\r\n",
    "bom": b"\xef\xbb\xbfdata: a\n\n",
    "two_boms": b"\xef\xbb\xbf\xef\xbb\xbfdata: lost\n\ndata: a\n\n",
    "comments": b": ping\n\n:\ndata: a\n: between\ndata: b\n\n",
    "multi_line": b"data: a\ndata:\ndata:  b\n\n",
    "utf8": "data: ✓ \u2028 \x85 \U0001f600\n\n".encode(),
    "bad_utf8": b"data: \xff\xe2\x9c\n\n",
    "ids": b"id: 7\ndata: a\n\ndata: b\n\nid: 8\0\ndata: c\n\n",
    "unfinished": b"data: a\n\nevent: e\ndata: b",
    "unfinished_lf": b"data: b\n",
    "nothing": b"event: e\n\n\n\ndata\n\ndata:\n\nretry: 1\nfoo: bar\n",
}


def decode(pieces: list[bytes]) -> list[SSEEvent]:
    decoder = SSEDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lf", [("message", "a", ""), ("message", "b", "")]),
        ("crlf", [("x", "a", ""), ("message", "b", "")]),
        ("cr", [("x", "a", ""), ("message", "b", "")]),
        ("mixed", [("message", "a", ""), ("message", "b", ""), ("message", "c", "")]),
        ("bom", [("message", "a", "")]),
        ("two_boms", [("message", "a", "")]),
        ("comments", [("message", "a\nb", "")]),
        ("multi_line", [("message", "a\n\n b", "")]),
        ("utf8", [("message", "✓ \u2028 \x85 \U0001f600", "")]),
        ("bad_utf8", [("message", "\ufffd\ufffd", "")]),
        ("ids", [("message", "a", "7"), ("message", "b", "7"), ("message", "c", "7")]),
        ("unfinished", [("message", "a", ""), ("e", "b", "")]),
        ("unfinished_lf", [("message", "b", "")]),
        ("nothing", []),
    ],
)
def test_events(name, expected):
    assert decode([INPUTS[name]]) == expected


@pytest.mark.parametrize("name", INPUTS)
def test_every_split_gives_the_same_events(name):
    data = INPUTS[name]
    whole = decode([data])
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            assert decode([data[:first], data[first:second], data[second:]]) == whole, (first, second)
    assert decode([bytes([byte]) for byte in data]) == whole


def test_random_streams_split_at_random():
    rng = random.Random(20)
    parts = [b"data: x", b"data", b"event: e", b"id: 1", b":", b"\n", b"\r", b"\r\n", "data: ✓".encode(), b"", b" "]
    for _ in range(500):
        data = b"".join(rng.choices(parts, k=rng.randrange(30)))
        cuts = sorted(rng.choices(range(len(data) + 1), k=rng.randrange(8)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert decode(pieces) == decode([data]) == by_the_book(data)


def by_the_book(data: bytes) -> list[tuple[str, str, str]]:
    """The WHATWG algorithm on the whole text, word for word, plus the flush at the end."""
    events, buffer, kind, last = [], [], "", ""
    for line in [*re.split("\r\n|\r|\n", data.decode("utf-8", "replace").removeprefix("\ufeff")), ""]:
        name, colon, value = line.partition(":")
        if not line:
            if "\n".join(buffer):
                events.append((kind or "message", "\n".join(buffer), last))
            buffer, kind = [], ""
        elif colon and not name:
            continue
        elif name == "data":
            buffer.append(value.removeprefix(" "))
        elif name == "event":
            kind = value.removeprefix(" ")
        elif name == "id":
            last = value.removeprefix(" ")
    return events


def test_events_come_as_soon_as_they_are_complete():
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\r") == [("message", "a", "")]  # does not wait for a line feed after the CR
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n\n") == [("message", "b", "")]
    assert decoder.end() == []


def test_error_field_on_request_only():
    assert SSEDecoder(error_field=True).feed(b"error: {}\n\n") == [("error", "{}", "")]
    assert SSEDecoder().feed(b"error: {}\n\n") == []


TOKENS = [
    "data: ",
    "data:",
    "event: x",
    "id: 7",
    ": hm",
    "a",
    "✓",
    "\u2028",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "data: {}\n\n",
]


@settings(derandomize=True, deadline=None, max_examples=500)
@given(st.lists(st.lists(st.sampled_from(TOKENS), max_size=4), max_size=9), st.lists(st.integers(0, 80), max_size=8))
def test_any_split_of_any_bytes_gives_the_same_events(groups, cuts):
    pieces = ["".join(tokens).encode() for tokens in groups]
    data = b"".join(pieces)
    whole = decode([data])
    assert decode(pieces) == whole
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert decode([data[start:end] for start, end in itertools.pairwise(places)]) == whole
    assert decode([data[at : at + 1] for at in range(len(data))]) == whole
    assert decode([part for part in re.split(rb"(?<=\n\n)", data) if part]) == whole
