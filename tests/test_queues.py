"""Queues and receipts: submitted = in the transcript + queued + withdrawn, in order, each once."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_agent import UserMessage
from trio_agent._queues import MessageQueue, check_mode

M = [UserMessage(f"m{n}") for n in range(3)]


def test_one_at_a_time_takes_the_oldest_and_all_takes_all() -> None:
    queue = MessageQueue("one-at-a-time")
    queue.extend(M)
    assert [r.message for r in queue.take()] == M[:1]
    assert queue.messages == tuple(M[1:])
    queue.mode = "all"
    assert [r.message for r in queue.take()] == M[1:]
    assert queue.take() == []
    assert not queue


def test_equal_messages_are_still_two() -> None:
    queue = MessageQueue("all")
    first, second = queue.put(M[0]), queue.put(M[0])
    assert second.withdraw()
    assert len(queue) == 1
    assert queue.take() == [first]


def test_a_message_can_be_withdrawn_only_while_it_is_queued() -> None:
    queue = MessageQueue()
    receipts = [queue.put(message) for message in M]
    assert receipts[1].withdraw()
    assert not receipts[1].withdraw()
    (taken,) = queue.take()
    assert taken is receipts[0]
    assert not taken.withdraw()
    assert queue.messages == (M[2],)


def test_clearing_returns_what_was_queued() -> None:
    queue = MessageQueue()
    receipts = [queue.put(message) for message in M]
    assert queue.clear() == tuple(M)
    assert not any(receipt.withdraw() for receipt in receipts)


async def test_a_receipt_is_delivered_with_the_request_and_not_before() -> None:
    queue = MessageQueue()
    receipt = queue.put(M[0])
    answers: list[bool] = []

    async def wait() -> None:
        answers.append(await receipt.wait_delivered())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        receipt.mark_delivered()
        assert not receipt.delivered, "it is still queued: no request can have seen it"
        queue.take()
        await wait_all_tasks_blocked()
        assert answers == []
        receipt.mark_delivered()
    assert answers == [True]
    assert receipt.delivered


async def test_waiting_for_a_withdrawn_message_ends_with_false() -> None:
    receipt = MessageQueue().put(M[0])
    receipt.withdraw()
    assert await receipt.wait_delivered() is False


def test_a_wrong_mode_is_named() -> None:
    with pytest.raises(ValueError, match="steering_mode must be 'one-at-a-time' or 'all', not 'some'"):
        check_mode("steering_mode", "some")
