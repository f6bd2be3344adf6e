"""Messages that wait for their turn, and the receipts that say what became of them.

A message leaves its queue only when `MessageQueue.take` hands it to the transcript, in the same task step. So
after any exit: transcript + queue + withdrawn = everything submitted, in order, each once.
"""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import islice
from typing import Literal, TypeAlias

import trio

from ._messages import Message

__all__ = ["MessageQueue", "QueueMode", "Receipt", "check_mode"]

QueueMode: TypeAlias = Literal["one-at-a-time", "all"]
"""How many messages one poll takes."""


class _Place(Enum):
    QUEUED = auto()
    IN_TRANSCRIPT = auto()
    DELIVERED = auto()
    WITHDRAWN = auto()


class Receipt:
    """What became of one queued message.

    Attributes:
        message: the message itself.
    """

    __slots__ = ("_place", "_queue", "_settled", "message")

    def __init__(self, message: Message, queue: "MessageQueue") -> None:
        self.message = message
        self._queue = queue
        self._place = _Place.QUEUED
        self._settled = trio.Event()

    @property
    def delivered(self) -> bool:
        """True once a request that was sent to the model could see the message. Not before: a message that is
        in the transcript of an aborted run waits for the next run's request."""
        return self._place is _Place.DELIVERED

    @trio.lowlevel.enable_ki_protection
    def withdraw(self) -> bool:
        """Take the message back. Sync; True iff it was still queued, and then it is never delivered."""
        if self._place is not _Place.QUEUED:
            return False
        self._queue._remove(self)
        self._settle(_Place.WITHDRAWN)
        return True

    async def wait_delivered(self) -> bool:
        """Wait until the message is delivered (True) or withdrawn (False). Cancelling the wait changes nothing."""
        await self._settled.wait()
        return self.delivered

    def mark_delivered(self) -> None:
        """For the loop: a request with the message in its context is being sent in this step."""
        if self._place is _Place.IN_TRANSCRIPT:
            self._settle(_Place.DELIVERED)

    def forget(self) -> None:
        """For `Agent.reset`: the transcript that held the message is gone before a request had it."""
        if self._place is _Place.IN_TRANSCRIPT:
            self._settle(_Place.WITHDRAWN)

    def _settle(self, place: _Place) -> None:
        self._place = place
        self._settled.set()

    def __repr__(self) -> str:
        return f"<Receipt {self._place.name.lower()} {self.message!r}>"


def check_mode(name: str, mode: object) -> QueueMode:
    """The mode, or a ValueError naming the argument."""
    if mode == "one-at-a-time":
        return "one-at-a-time"
    if mode == "all":
        return "all"
    raise ValueError(f"{name} must be 'one-at-a-time' or 'all', not {mode!r}")


class MessageQueue:
    """Messages in the order they were submitted. What changes it is sync: nothing can be cancelled half-way."""

    __slots__ = ("_arrival", "_receipts", "mode")

    def __init__(self, mode: QueueMode = "one-at-a-time") -> None:
        self.mode: QueueMode = mode
        self._receipts: dict[int, Receipt] = {}  # by identity: withdrawing from a long queue is O(1)
        self._arrival: trio.Event | None = None

    def __len__(self) -> int:
        return len(self._receipts)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is queued, oldest first."""
        return tuple([receipt.message for receipt in self._receipts.values()])

    def put(self, message: Message) -> Receipt:
        """Append a message."""
        receipt = Receipt(message, self)
        self._receipts[id(receipt)] = receipt
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None
        return receipt

    async def wait_not_empty(self) -> None:
        """Wait until a message is queued. A checkpoint in any case; takes nothing."""
        await trio.lowlevel.checkpoint()
        while not self._receipts:
            if self._arrival is None:
                self._arrival = trio.Event()
            await self._arrival.wait()

    def extend(self, messages: Iterable[Message]) -> None:
        """Append several."""
        for message in messages:
            self.put(message)

    def take(self) -> list[Receipt]:
        """Remove what one poll takes: the oldest message, or all of them. The caller puts them into the
        transcript in the same step."""
        batch = list(islice(self._receipts.values(), None if self.mode == "all" else 1))
        for receipt in batch:
            del self._receipts[id(receipt)]
            receipt._place = _Place.IN_TRANSCRIPT
        return batch

    def clear(self) -> tuple[Message, ...]:
        """Withdraw everything and return it; nothing is silently lost."""
        receipts = list(self._receipts.values())
        for receipt in receipts:
            receipt.withdraw()
        return tuple([receipt.message for receipt in receipts])

    def _remove(self, receipt: Receipt) -> None:
        del self._receipts[id(receipt)]
