"""EventStream: order, bounds, leaving, several readers, and cancellation at every step."""

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_agent import Coalescer, EventSink, EventStream, open_event_stream


def numbers(bound: int = 8, **settings: object) -> tuple[EventSink[int, str], EventStream[int, str]]:
    return open_event_stream(bound, **settings)  # type: ignore[arg-type]


async def produce(sink: EventSink[int, str], count: int) -> None:
    for number in range(count):
        sink.push(number)
        await sink.room()
    sink.end("done")


async def test_both_ways_of_reading() -> None:
    sink, stream = numbers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, sink, 1000)
        assert [n async for n in stream] == list(range(1000))
    assert await stream.result() == "done"
    assert [n async for n in stream] == []


async def test_without_a_reader_the_result_discards() -> None:
    sink, stream = numbers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, sink, 1000)
        assert await stream.result() == "done"


async def test_result_after_a_break_discards_the_rest() -> None:
    sink, stream = numbers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, sink, 1000)
        async for number in stream:
            if number == 20:
                break
        assert await stream.result() == "done"


async def test_result_does_not_take_events_from_another_tasks_reader() -> None:
    sink, stream = numbers()
    seen: list[int] = []

    async def read() -> None:
        async for number in stream:
            seen.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        nursery.start_soon(produce, sink, 500)
        assert await stream.result() == "done"
    assert seen == list(range(500))


async def test_a_reader_that_goes_away_while_a_result_is_awaited_does_not_hang_it() -> None:
    sink, stream = numbers()

    async def read_a_little() -> None:
        async for number in stream:
            if number == 3:
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_a_little)
        await wait_all_tasks_blocked()
        nursery.start_soon(produce, sink, 500)
        assert await stream.result() == "done"


async def test_memory_is_bounded_and_the_producer_waits() -> None:
    sink, stream = numbers(10)
    pushed = 0

    async def count() -> None:
        nonlocal pushed
        for number in range(100):
            sink.push(number)
            pushed += 1
            await sink.room()
        sink.end("done")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await wait_all_tasks_blocked()
        assert pushed == 11
        assert sink.is_full
        reader = aiter(stream)
        assert await anext(reader) == 0
        await wait_all_tasks_blocked()
        assert pushed == 12
        assert [n async for n in stream] == list(range(1, 100))


async def test_push_never_waits_and_never_fails_because_of_a_reader() -> None:
    sink, stream = numbers(1)
    for number in range(100):
        sink.push(number)
    sink.end("done")
    assert [n async for n in stream] == list(range(100))


async def test_closing_lets_the_producer_go_on() -> None:
    sink, stream = numbers(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, sink, 100)
        await wait_all_tasks_blocked()
        stream.close()
    assert await stream.result() == "done"


async def test_events_pushed_while_the_reader_is_busy_come_in_order() -> None:
    sink, stream = numbers(100)
    reader = aiter(stream)
    sink.push(0)
    sink.push(1)
    assert await anext(reader) == 0
    sink.push(2)
    sink.push(3)
    assert [await anext(reader) for _ in range(3)] == [1, 2, 3]


async def test_an_event_is_never_lost_to_a_cancellation() -> None:
    for cut_at in range(1, 130):
        sink, stream = numbers(1000)
        seen: list[int] = []
        for number in range(200):
            sink.push(number)
        sink.end("done")
        with trio.CancelScope() as scope:
            async for number in stream:
                seen.append(number)
                if number == cut_at:
                    scope.cancel()
        assert scope.cancelled_caught
        seen.extend([number async for number in stream])
        assert seen == list(range(200))


async def test_a_waiting_reader_is_cancelled_and_can_come_back() -> None:
    sink, stream = numbers()
    with trio.move_on_after(0) as scope:
        await anext(aiter(stream))
    assert scope.cancelled_caught
    sink.push(7)
    assert await anext(aiter(stream)) == 7


async def test_other_tasks_get_a_turn_at_the_latest_every_64_events() -> None:
    sink, stream = numbers(10_000)
    for number in range(1000):
        sink.push(number)
    sink.end("done")
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert len([n async for n in stream]) == 1000
        nursery.cancel_scope.cancel()
    assert turns >= 1000 // 64


async def test_two_tasks_cannot_iterate_one_stream() -> None:
    _sink, stream = numbers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(anext, aiter(stream))
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError, match="subscribe"):
            await anext(aiter(stream))
        nursery.cancel_scope.cancel()


async def test_subscribers_have_their_own_bound_and_see_everything_from_then_on() -> None:
    sink, stream = numbers(1000)
    sink.push(0)
    second = stream.subscribe(max_buffered=5)
    seen: list[int] = []

    async def read_slowly() -> None:
        async for number in second:
            seen.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_slowly)
        nursery.start_soon(produce, sink, 50)
        assert [n async for n in stream] == [0, *range(50)]
    assert seen == list(range(50))


async def test_a_subscriber_that_does_not_read_holds_up_the_run_until_it_closes() -> None:
    sink, stream = numbers(1000)
    second = stream.subscribe(max_buffered=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, sink, 50)
        await wait_all_tasks_blocked()
        assert sink.is_full
        second.close()
    assert await second.result() == "done"


@attrs.frozen
class Delta:
    text: str


def coalescing(bound: int) -> tuple[EventSink[object, None], EventStream[object, None]]:
    """Deltas merge; strings stand for structural events."""
    return open_event_stream(
        bound,
        coalescer=Coalescer(
            lambda later, earlier: isinstance(later, Delta) and isinstance(earlier, Delta),
            lambda first, last: Delta(f"{first.text}..{last.text}"),
        ),
    )


async def test_coalescing_merges_deltas_and_drops_nothing_structural() -> None:
    sink, stream = coalescing(3)
    slow = stream.subscribe(overflow="coalesce")
    stream.close()
    for number in range(100):
        sink.push(Delta(str(number)))
        await sink.room()
    sink.push("tool")
    for number in range(100, 200):
        sink.push(Delta(str(number)))
        await sink.room()
    sink.end(None)
    assert [e async for e in slow] == [Delta("0"), Delta("1"), Delta("2..99"), "tool", Delta("100..199")]


async def test_coalescing_waits_when_structural_events_alone_fill_it() -> None:
    sink, stream = coalescing(3)
    slow = stream.subscribe(overflow="coalesce")
    stream.close()
    for _ in range(7):
        sink.push("tool")
    assert sink.is_full
    assert await anext(aiter(slow)) == "tool"
    assert not sink.is_full


async def test_a_failed_producer_is_met_after_what_is_buffered() -> None:
    sink, stream = numbers()
    sink.push(1)
    sink.fail(OSError("gone"))
    reader = aiter(stream)
    assert await anext(reader) == 1
    with pytest.raises(OSError, match="gone"):
        await anext(reader)
    with pytest.raises(OSError, match="gone"):
        await stream.result()


async def test_after_the_end() -> None:
    sink, stream = numbers()
    sink.end("first")
    sink.end("second")
    assert await stream.result() == "first"
    with pytest.raises(trio.ClosedResourceError):
        sink.push(1)
    assert [n async for n in stream.subscribe()] == []


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, "8"])
def test_a_wrong_bound_is_named(bound: object) -> None:
    with pytest.raises(ValueError, match="max_buffered must be a whole number"):
        open_event_stream(bound)  # type: ignore[arg-type]


async def test_wrong_overflow_is_named() -> None:
    _sink, stream = numbers()
    with pytest.raises(ValueError, match="overflow must be"):
        stream.subscribe(overflow="drop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="coalescer"):
        stream.subscribe(overflow="coalesce")
