"""Four bounds on a server's silence, each by its name; the reader's own time is nobody's silence."""

import pytest
import trio
from fake_writer import FakeWriter
from slow_client import SlowClient

from trio_agent import ModelError, ModelRequest, ModelTimeoutError, UserMessage
from trio_agent.models import OpenAIChatModel, Timeouts

HELLO = ModelRequest("", (UserMessage("hello"),))


def chunk(text: str = "", finish: str | None = None) -> bytes:
    end = f'"{finish}"' if finish else "null"
    return b'data: {"choices":[{"delta":{"content":"%b"},"finish_reason":%b}]}\n\n' % (text.encode(), end.encode())


async def ask(client: SlowClient, timeout: object, out: FakeWriter | None = None) -> str:
    out = FakeWriter() if out is None else out
    await OpenAIChatModel("m", base_url="http://x", api_key="", client=client, timeout=timeout).stream(HELLO, out)  # type: ignore[arg-type]
    return out.prose("text")


@pytest.mark.parametrize(
    ("pieces", "timeout", "after", "says"),
    [
        ([(3, chunk("a"))], Timeouts(first_event=2), 2, "did not send anything within 2 s (timeout.first_event)"),
        ([(1, chunk("a")), (3, chunk("b"))], Timeouts(between_events=2), 3, "another event within 2 s (timeout.b"),
        ([(1, chunk("a"))] * 9, Timeouts(total=4), 4, "did not end its response within 4 s (timeout.total)"),
        ([(1, b": hm\n\n")] * 9, Timeouts(first_event=4, keep_alives_count=False), 4, "timeout.first_event"),
        ([(1, b'data: {"type": "ping"}\n\n')] * 9, Timeouts(first_event=4, keep_alives_count=False), 4, "first_event"),
        ([(1, b": hm\n\n")] * 9, Timeouts(first_event=2, total=5), 5, "timeout.total"),
        ([(1, chunk("a")), (1, b": hm\n\n"), (1, b": hm\n\n"), (1, b": hm\n\n")],
         Timeouts(between_events=2.5, keep_alives_count=False), 3.5, "timeout.between_events"),
        ([(3, chunk("a"))], 2, 2, "timeout.first_event"),
    ],
)  # fmt: skip
async def test_each_silence_has_its_bound(
    pieces: list[tuple[float, bytes]], timeout: object, after: float, says: str, autojump_clock: object
) -> None:
    with pytest.raises(ModelTimeoutError) as caught:
        await ask(SlowClient(pieces), timeout)
    assert says in str(caught.value)
    assert caught.value.retryable
    assert after <= trio.current_time() <= after * 1.01


@pytest.mark.parametrize(
    "timeout",
    [
        Timeouts(first_event=2, between_events=2),
        Timeouts(first_event=2, between_events=2, keep_alives_count=False, total=100),
        Timeouts(first_event=None, between_events=None),
        2,
        None,
    ],
)
async def test_what_is_in_time_is_whole(timeout: object, autojump_clock: object) -> None:
    client = SlowClient([(1.5, chunk("a")), (1.5, chunk("b")), (1.5, chunk("c", "stop"))], headers_after=0.4)
    assert await ask(client, timeout) == "abc"


async def test_keep_alives_count_if_wanted(autojump_clock: object) -> None:
    pieces = [*[(1.5, b": still here\n\n")] * 20, (1.5, chunk("a", "stop"))]
    assert await ask(SlowClient(pieces), Timeouts(first_event=2)) == "a"


async def test_a_slow_reader_is_no_silent_server(autojump_clock: object) -> None:
    class Slow(FakeWriter):
        async def text(self, delta: str) -> None:
            await super().text(delta)
            await trio.sleep(50)

    pieces = [(1, chunk("a")), (1, chunk("b", "stop"))]
    assert await ask(SlowClient(pieces), Timeouts(first_event=2, between_events=2, total=300), Slow()) == "ab"


async def test_a_cancellation_from_outside_is_not_taken_for_a_timeout(autojump_clock: object) -> None:
    with trio.move_on_after(1) as scope:
        await ask(SlowClient([(3, chunk("a"))]), Timeouts(first_event=2))
    assert scope.cancelled_caught


async def test_headers_that_do_not_come(autojump_clock: object) -> None:
    with pytest.raises(ModelTimeoutError, match="first_event"):
        await ask(SlowClient([], headers_after=10), Timeouts(first_event=2))


async def test_an_error_body_that_does_not_end(autojump_clock: object) -> None:
    client = SlowClient((500, {}, [(1, b"a")] + [(1, b"b")] * 99))
    with pytest.raises(ModelError, match=r"timeout\.total"):
        await ask(client, Timeouts(total=5))


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"connect": 0}, ValueError, "timeout.connect must be a positive number"),
        ({"first_event": -1}, ValueError, "timeout.first_event must be a positive"),
        ({"between_events": "1"}, TypeError, "timeout.between_events must be a number"),
        ({"total": True}, TypeError, "timeout.total must be a number"),
        ({"keep_alives_count": 1}, TypeError, "keep_alives_count"),
    ],
)
def test_wrong_bounds_are_named(wrong: dict[str, object], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Timeouts(**wrong)  # type: ignore[arg-type]
