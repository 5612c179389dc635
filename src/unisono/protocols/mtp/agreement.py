"""Agreement and ordering: Figures 1 to 3 of the paper, as three small machines.

There are no packets, clocks or members here: a *holder* is any name, a *batch* any value. The
explorer in the tests walks every interleaving of just these classes, and the core runs them.

The figures differ by one in places. Here a token's `number` is its message's number, `last[k - 1]`
is the status of message `number - k`, and so at most t tokens are out. Where decisions are
announced (by the master's empty packets, or on request), t holders in a row may fail with nothing
lost to the others; from the headers of tokens alone even fewer failures may force a rejoin, as the
explorer shows. Nothing forces divergence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

H = TypeVar("H")
B = TypeVar("B")


class MessageStatus(IntEnum):
    """The master's decision on a message. Once settled it never changes."""

    PENDING = 0
    ACCEPTED = 1
    REJECTED = 2


PENDING, ACCEPTED, REJECTED = MessageStatus.PENDING, MessageStatus.ACCEPTED, MessageStatus.REJECTED


class SendToken(NamedTuple):
    """The right to send one message: its number, and the statuses of the t messages before it."""

    number: int
    last: tuple[MessageStatus, ...]


class Master(Generic[H]):
    """Figure 1. Grants tokens, and decides which messages count."""

    __slots__ = ("holder", "memory", "next", "status", "t_cur", "t_max")

    def __init__(self, t_max: int, first: int = 1, memory: int = 0) -> None:
        self.t_max = t_max
        """Statuses that a token carries; tokens that may be out at most."""
        self.t_cur = t_max
        """[MTP 5.1] Tokens that may be out now, from 1 to `t_max`."""
        self.next = first
        """The number of the next token."""
        self.status: dict[int, MessageStatus] = {}
        """Of the last messages, at least `t_max`; those before are settled."""
        self.memory = max(memory, t_max)
        self.holder: dict[int, H] = {}
        """By pending message, the holder of its token."""

    def last(self, count: int = 0) -> tuple[MessageStatus, ...]:
        """The statuses of the t (or `count`) messages before `next`, the latest first."""
        status, number = self.status, self.next
        return tuple(status.get(number - k, REJECTED) for k in range(1, (count or self.t_max) + 1))

    def allow(self, tokens: int) -> None:
        """[MTP 5.1] So many tokens may be out, within the bounds."""
        self.t_cur = max(1, min(self.t_max, tokens))

    def may_grant(self) -> bool:
        """`status(t - 1) ≠ pending`: the message t before the next one is settled."""
        return not self.holder or min(self.holder) > self.next - self.t_cur

    def grant(self, holder: H) -> SendToken:
        """`status(1..t) := pending, status(1..t-1); next := next + 1`"""
        # Deviates [MTP Figure 1]: the figure grants the number after the one it marks pending, and
        # lets t - 1 tokens out; the text and its claim of t failures ask for t.
        token = SendToken(self.next, self.last())
        self.status[self.next] = PENDING
        self.holder[self.next] = holder
        self.next += 1
        self.status.pop(self.next - 1 - self.memory, None)
        return token

    def seen(self, number: int) -> bool:
        """`if next - s ≤ t and status(next - s) = pending then status(next - s) := accepted`"""
        return self._settle(number, ACCEPTED)

    def failed(self, number: int) -> bool:
        """`failure(s) and next - s ≤ t and status(next - s) = pending → … := rejected`"""
        return self._settle(number, REJECTED)

    def _settle(self, number: int, status: MessageStatus) -> bool:
        if self.holder.pop(number, None) is None:
            return False
        self.status[number] = status
        return True


class Producer(Generic[B]):
    """Figure 2. One request at a time; messages queued meanwhile are sent under the same token."""

    __slots__ = ("asking", "flights", "request")

    def __init__(self) -> None:
        self.asking = False
        self.request = 0
        """Counts our requests, so that a repeated one is granted once."""
        self.flights: deque[tuple[int, B]] = deque()
        """Sent and not settled, by number."""

    def ask(self) -> int:
        """`send Master ["token_request"]`"""
        self.asking = True
        self.request += 1
        return self.request

    def granted(self, token: SendToken, batch: B) -> None:
        """`receive Master ["token_grant", s, last, members]`, and the message is on its way."""
        self.asking = False
        self.flights.append((token.number, batch))

    def settled(self, status: Callable[[int], MessageStatus]) -> tuple[list[B], list[B]]:
        """The batches accepted since, and those rejected, which are to be sent again.

        The master accepts a producer's messages in the producer's order, so what follows a
        rejected one is rejected too, and is sent again after it.
        """
        accepted: list[B] = []
        while self.flights and status(self.flights[0][0]) is ACCEPTED:
            accepted.append(self.flights.popleft()[1])
        if not self.flights or status(self.flights[0][0]) is PENDING:
            return accepted, []
        rejected: list[B] = []
        while self.flights and status(self.flights[0][0]) is REJECTED:
            rejected.append(self.flights.popleft()[1])
        return accepted, rejected


class DataStatus(Enum):
    """Whether a consumer has the data of a message."""

    HERE = "here"
    COMING = "coming"
    """Incomplete, and some member may still have it."""
    LOST = "lost"
    """The master no longer has it."""


class Next(Enum):
    """What Figure 3 does with the next message."""

    WAIT = "wait"
    DELIVER = "deliver"
    SKIP = "skip"
    REJOIN = "rejoin"


# As constants: looking one up in its class takes ten times as long, and each step uses these.
WAIT: Final = Next.WAIT
DELIVER: Final = Next.DELIVER
SKIP: Final = Next.SKIP


class Consumer:
    """Figure 3. Delivers what was accepted, in the order of numbers, or rejoins."""

    __slots__ = ("next_in", "next_out", "status", "t")

    def __init__(self, t: int, first: int = 1) -> None:
        self.t = t
        self.next_in = first
        """The statuses of the t messages before this number were received."""
        self.next_out = first
        """The next message to deliver."""
        self.status: dict[int, MessageStatus] = {}
        """Of messages from `next_out` on, those known to be settled."""

    def restart(self, t: int, first: int) -> None:
        """Consume another web, from this message on."""
        self.t, self.next_in, self.next_out = t, first, first
        self.status.clear()

    def learn(self, number: int, last: tuple[MessageStatus, ...]) -> bool:
        """`status(s - k) := last(k)`, and `nextIn := max s, nextIn`. True when it was news."""
        # Deviates [MTP Figure 3]: k counts from 1, and a settled status is never overwritten: a
        # late packet may still state pending. The figure assigns whatever comes.
        status, least, news = self.status, self.next_out, False
        for k, its in enumerate(last, 1):
            if its is not PENDING and number - k >= least and number - k not in status:
                status[number - k] = its
                news = True
        if number > self.next_in:
            self.next_in = number
        return news

    def due(self, data: Callable[[int], DataStatus]) -> Next:
        """The guards of Figure 3, for the message `nextOut`."""
        status = self.status.get(self.next_out, PENDING)
        if status is REJECTED:
            return SKIP
        if status is PENDING:
            return Next.REJOIN if self.next_in - self.next_out > self.t else WAIT
        here = data(self.next_out)
        if here is DataStatus.LOST:
            return Next.REJOIN
        return DELIVER if here is DataStatus.HERE else WAIT

    def step_on(self) -> None:
        """`nextOut := nextOut + 1`"""
        self.status.pop(self.next_out, None)
        self.next_out += 1
