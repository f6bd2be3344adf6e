"""A server of 127.0.0.1 that streams one long response of each protocol, an HTTP chunk for every event.

python -m bench.streams.server        prints its port, and ends with its input
"""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["body"]

Event = tuple[str, dict[str, Any]]


def _chat(count: int) -> Iterator[Event]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "fp"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        return "", head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for number in range(count):
        yield chunk({"content": f"word{number} "})
    yield chunk({}, "stop")


def _anthropic(count: int) -> Iterator[Event]:
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage}
    yield "message_start", {"message": message | {"stop_reason": None, "stop_sequence": None}}
    yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
    for number in range(count):
        yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": f"word{number} "}}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 9}}
    yield "message_stop", {}


def _responses(count: int) -> Iterator[Event]:
    response = {"id": "r", "object": "response", "created_at": 1, "status": "in_progress", "model": "m", "output": []}
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    item = {"type": "message", "id": "i", "role": "assistant"}
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    yield "response.created", {"response": response}
    yield "response.output_item.added", {"output_index": 0, "item": item | {"status": "in_progress", "content": []}}
    part = {"type": "output_text", "text": "", "annotations": []}
    yield "response.content_part.added", place | {"part": part}
    for number in range(count):
        yield "response.output_text.delta", place | {"delta": f"word{number} ", "logprobs": []}
    text = "".join([f"word{number} " for number in range(count)])
    yield "response.output_text.done", place | {"text": text, "logprobs": []}
    done = item | {"status": "completed", "content": [part | {"text": text}]}
    yield "response.output_item.done", {"output_index": 0, "item": done}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18, **details}
    yield "response.completed", {"response": response | {"status": "completed", "output": [done], "usage": usage}}


_EVENTS = {"chat": _chat, "anthropic": _anthropic, "responses": _responses}


def body(protocol: str, count: int) -> list[bytes]:
    """The response as HTTP chunks, one an event, with ``count`` deltas of text."""
    chunks = []
    for number, (name, data) in enumerate(_EVENTS[protocol](count)):
        if name:
            data = {"type": name, **data}
        if protocol == "responses":
            data["sequence_number"] = number
        event = f"event: {name}\n" if name else ""
        chunks.append(f"{event}data: {json.dumps(data)}\n\n".encode())
    if protocol == "chat":
        chunks.append(b"data: [DONE]\n\n")
    return [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks] + [b"0\r\n\r\n"]


def _serve(connection: socket.socket, made: dict[tuple[str, int], list[bytes]]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in buffer:
                data = connection.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                0,
            )
            while len(buffer) < length:
                buffer += connection.recv(65536)
            request, buffer = json.loads(buffer[:length]), buffer[length:]
            path = head.split(b" ")[1]
            protocol = "chat" if b"chat" in path else "responses" if b"responses" in path else "anthropic"
            key = protocol, int(request["model"])
            if key not in made:
                made[key] = body(*key)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for chunk in made[key]:
                connection.sendall(chunk)


def main() -> None:
    """Serve until the input ends."""
    made: dict[tuple[str, int], list[bytes]] = {}
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection, made), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
