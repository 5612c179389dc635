"""Bugs to plant: each a small change of one of the three machines."""

from __future__ import annotations

from collections.abc import Callable

from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Consumer,
    DataStatus,
    Master,
    MessageStatus,
    Next,
    Producer,
    SendToken,
)

# Masters.


class GrantsFreely(Master[int]):
    """Grants whatever is pending."""

    __slots__ = ()

    def may_grant(self) -> bool:
        return True


class ChangesItsMind(Master[int]):
    """What is seen, or judged, later overrides what was decided."""

    __slots__ = ()

    def _settle(self, number: int, status: MessageStatus) -> bool:
        self.holder.pop(number, None)
        if number in self.status:
            self.status[number] = status
        return True


class RejectsTheSeen(Master[int]):
    """A holder that fails takes with it what the master has already seen."""

    __slots__ = ()

    def failed(self, number: int) -> bool:
        if self.status.get(number) is ACCEPTED:
            self.status[number] = REJECTED
        return super().failed(number)


class ForgetsToMark(Master[int]):
    """A message that is granted is not marked pending, and so looks rejected."""

    __slots__ = ()

    def grant(self, holder: int) -> SendToken:
        token = super().grant(holder)
        del self.status[token.number]
        return token


class TellsFromTwo(Master[int]):
    """`last` begins with the message before the last."""

    __slots__ = ()

    def last(self, count: int = 0) -> tuple[MessageStatus, ...]:
        number = self.next - 1
        return tuple(self.status.get(number - k, REJECTED) for k in range(1, self.t_max + 1))


class TellsFromZero(Master[int]):
    """`last` begins with the message that is granted."""

    __slots__ = ()

    def last(self, count: int = 0) -> tuple[MessageStatus, ...]:
        number = self.next + 1
        return tuple(self.status.get(number - k, PENDING) for k in range(1, self.t_max + 1))


class PrintedMaster(Master[int]):
    """Figure 1 to the letter: the number is the one after the message's, the rest is not."""

    __slots__ = ()

    def may_grant(self) -> bool:
        return self.status.get(self.next - (self.t_max - 1)) is not PENDING

    def grant(self, holder: int) -> SendToken:
        token = super().grant(holder)
        return SendToken(token.number + 1, self.last())


class MendedMaster(PrintedMaster):
    """The same, but what is seen is the message before the number."""

    __slots__ = ()

    def _settle(self, number: int, status: MessageStatus) -> bool:
        return super()._settle(number - 1, status)


# Consumers.


class Overwrites(Consumer):
    """Takes any status, as Figure 3 does: a late packet may still have pending."""

    __slots__ = ()

    def learn(self, number: int, last: tuple[MessageStatus, ...]) -> bool:
        for k, its in enumerate(last, 1):
            if number - k >= self.next_out:
                self.status[number - k] = its
        self.next_in = max(number, self.next_in)
        return True


class SkipsTheLost(Consumer):
    """Goes on when an accepted message's data cannot be had."""

    __slots__ = ()

    def due(self, data: Callable[[int], DataStatus]) -> Next:
        its = self.status.get(self.next_out, PENDING)
        if its is ACCEPTED and data(self.next_out) is DataStatus.LOST:
            return Next.SKIP
        return super().due(data)


class SkipsTheUnknown(Consumer):
    """Goes on when a status can no longer be learnt."""

    __slots__ = ()

    def due(self, data: Callable[[int], DataStatus]) -> Next:
        what = super().due(data)
        known = self.next_out in self.status
        return Next.SKIP if what is Next.REJOIN and not known else what


class DeliversThePending(Consumer):
    """Delivers what is here before the master has decided."""

    __slots__ = ()

    def due(self, data: Callable[[int], DataStatus]) -> Next:
        what = super().due(data)
        if what is Next.WAIT and data(self.next_out) is DataStatus.HERE:
            return Next.DELIVER
        return what


class LearnsFromZero(Consumer):
    """Takes the first status for that of the message itself."""

    __slots__ = ()

    def learn(self, number: int, last: tuple[MessageStatus, ...]) -> bool:
        news = super().learn(number + 1, last)
        self.next_in = max(number, self.next_in - 1)
        return news


class LearnsFromTwo(Consumer):
    """Takes the first status for that of the message before the last."""

    __slots__ = ()

    def learn(self, number: int, last: tuple[MessageStatus, ...]) -> bool:
        news = super().learn(number - 1, last)
        self.next_in = max(number, self.next_in)
        return news


class WaitsTooLong(Consumer):
    """Takes a header for one status longer than it is."""

    __slots__ = ()

    def due(self, data: Callable[[int], DataStatus]) -> Next:
        what = super().due(data)
        unknown = self.next_out not in self.status
        return Next.WAIT if unknown and self.next_in - self.next_out == self.t + 1 else what


class RejoinsTooSoon(Consumer):
    """Takes a header for one status shorter than it is."""

    __slots__ = ()

    def due(self, data: Callable[[int], DataStatus]) -> Next:
        if self.next_out not in self.status and self.next_in - self.next_out >= self.t:
            return Next.REJOIN
        return super().due(data)


class PrintedConsumer(Consumer):
    """Figure 3 to the letter: `k` from 2."""

    __slots__ = ()

    def learn(self, number: int, last: tuple[MessageStatus, ...]) -> bool:
        for k in range(2, self.t + 1):
            if number - k >= self.next_out and last[k - 1] is not PENDING:
                self.status.setdefault(number - k, last[k - 1])
        self.next_in = max(number, self.next_in)
        return True


# Producers.


class TellsTooSoon(Producer[int]):
    """Takes what is pending for accepted."""

    __slots__ = ()

    def settled(self, status: Callable[[int], MessageStatus]) -> tuple[list[int], list[int]]:
        return super().settled(lambda n: ACCEPTED if status(n) is PENDING else status(n))
