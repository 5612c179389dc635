"""The ordering queue: a slot for each timestamp, of ACKs and of the blocks that they name [RMP §1].

An ACK with timestamp t that names n blocks fills slot t; its blocks have the slots t+1 to t+n, and
the next ACK stands in slot t+n+1. An empty slot is a packet that is missing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

SLOT_MAX: Final = 1 << 62
RANGES_MAX: Final = 48
"""In one ACK, which is one packet."""
AHEAD_MAX: Final = 1 << 16
"""Slots beyond the first empty one in which an ACK is believed. Honest ACKs are within a rotation
of the token, since it waits for who lacks a slot; an ACK beyond would make a site wait for slots
that nobody fills."""


class BlockRange(NamedTuple):
    """Blocks of one source, both ends inclusive."""

    # Deviates [RMP §1 data packets]: what has a sequence number is a block of packets with many
    # messages, and an ACK names ranges of them. The paper's is one packet.

    source: int
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class TokenAck(NamedTuple):
    """[RMP-1] The token site's ACK: orders blocks, and passes the token."""

    timestamp: int
    site: int
    """That sent it."""
    next_site: int
    named: tuple[BlockRange, ...] = ()
    """None: a NULL ACK [RMP-4]."""
    consumed: int = 0
    """The slot up to which its site's application has taken everything."""

    @property
    def end(self) -> int:
        """The last slot that it fills."""
        end = self.timestamp
        for _, first, last in self.named:
            end += last - first + 1
        return end

    def up_to(self, slot: int) -> TokenAck:
        """Without the slots beyond this one."""
        left, named = slot - self.timestamp, list[BlockRange]()
        for source, first, last in self.named:
            if left > 0:
                named.append(BlockRange(source, first, min(last, first + left - 1)))
            left -= last - first + 1
        return self._replace(named=tuple(named))

    def slots(self) -> Iterator[tuple[int, int, int]]:
        """Timestamp, source and number of each block."""
        timestamp = self.timestamp
        for source, first, last in self.named:
            for number in range(first, last + 1):
                timestamp += 1
                yield timestamp, source, number


class BlockHoldings(Protocol):
    """What is here of the sources' blocks."""

    def has(self, source: int, number: int) -> bool: ...


class MissingSlots(NamedTuple):
    """What a NACK asks for."""

    acks: tuple[tuple[int, int], ...]
    """Slots in which an ACK stands at least: the first of each range."""
    blocks: tuple[tuple[int, int], ...]
    """Source and number."""


class OrderingQueue:
    """The slots of one site, from where it began."""

    def __init__(
        self,
        blocks: BlockHoldings,
        start: int = 0,
        is_site: Callable[[int], bool] = lambda key: True,
    ) -> None:
        self._blocks = blocks
        self._is_site = is_site
        """Whether the token may be passed to it, at the last slot that is filled."""
        self._base = start
        """The slot behind which the epoch began, or our time on the ring."""
        self._acks: dict[int, TokenAck] = {}
        """By timestamp; kept until every site holds them."""
        self.held = start
        """Every slot up to this one is filled."""
        self.highest = start
        """The last slot that was heard of."""
        self._ack: TokenAck | None = None
        """The ACK whose blocks are being waited for."""
        self.last: TokenAck | None = None
        """The last one all of whose slots, and all before them, are filled: who has the token."""
        self.latest: TokenAck | None = None
        """The ACK with the highest timestamp, whether or not what came before is here."""
        self.named = start
        """The last slot that a block has: NULL ACKs after it need not be stable."""
        self.named_before = start
        """The last one of the ACK before that."""
        self._forgotten = start
        self._holder: int | None = None
        """Who makes the next ACK, after the last one that is filled. None: not known."""
        self.ordered: dict[int, int] = {}
        """By source, its last block whose slot is filled."""

    def put(self, ack: TokenAck) -> bool:
        """Take an ACK; whether it was news."""
        if self.latest is None and ack.end == self.held == self._base:
            self.latest, self._holder = ack, ack.next_site  # It named what admitted us.
        if not self.held < ack.timestamp <= self.held + AHEAD_MAX or ack.timestamp in self._acks:
            return False
        if self._ack is None and ack.timestamp == self.held + 1 and not self._is_sound(ack):
            return False
        self.highest = max(self.highest, ack.end)
        if self.latest is None or ack.timestamp > self.latest.timestamp:
            self.latest = ack
        self._acks[ack.timestamp] = ack
        return True

    def _is_sound(self, ack: TokenAck) -> bool:
        """Whether the next ACK comes from the site that the token was passed to, and passes it to
        one: of two with one timestamp, that is the ACK."""
        return self._holder in (None, ack.site) and self._is_site(ack.next_site)

    def filled(self, limit: int = SLOT_MAX) -> Iterator[tuple[int, int, int] | TokenAck]:
        """Timestamp, source and number of each block whose turn has come, in the imposed order; and
        each ACK once all its slots are filled. None beyond the limit."""
        while self.held < limit:
            ack = self._ack
            if ack is None:
                ack = self._acks.get(self.held + 1)
                if ack is None:
                    return
                if not self._is_sound(ack):
                    del self._acks[ack.timestamp]
                    self._look_again()
                    return
                self._ack = ack
                self.held += 1
            for timestamp, source, number in ack.slots():
                if timestamp <= self.held:
                    continue
                if timestamp > limit or not self._blocks.has(source, number):
                    return
                self.held, self.ordered[source] = timestamp, number
                yield timestamp, source, number
            self.last, self._ack, self._holder = ack, None, ack.next_site
            if ack.named:
                self.named_before, self.named = self.named, ack.end
            if self.latest is not None and ack.timestamp < self.latest.timestamp <= self.held:
                self._drop_within(ack)
            yield ack

    def _drop_within(self, ack: TokenAck) -> None:
        """What claims a slot that a block of this one fills was no ACK."""
        for timestamp in [t for t in self._acks if ack.timestamp < t <= ack.end]:
            del self._acks[timestamp]
        self._look_again()

    def missing(self, count_max: int) -> MissingSlots:
        """[RMP-3] The empty slots up to the last known one, at most so many of each kind."""
        blocks: list[tuple[int, int]] = []
        acks: list[tuple[int, int]] = []
        slot = self._ack.timestamp if self._ack is not None else self.held + 1
        for timestamp in sorted(t for t in self._acks if t >= slot):
            ack = self._acks[timestamp]
            if timestamp > slot and len(acks) < count_max:
                acks.append((slot, timestamp - 1))
            blocks += [(s, n) for t, s, n in ack.slots() if not self._blocks.has(s, n)]
            slot = ack.end + 1
            if len(blocks) >= count_max:
                break
        else:
            if slot <= self.highest and len(acks) < count_max:
                acks.append((slot, self.highest))
        return MissingSlots(tuple(acks), tuple(blocks[:count_max]))

    def names(self, source: int, number: int) -> bool:
        """Whether an ACK names this block."""
        return any(
            each.source == source and each.first <= number <= each.last
            for ack in self._acks.values()
            for each in ack.named
        )

    def has_gap(self) -> bool:
        return self.held < self.highest

    def acks(self, first: int, last: int) -> list[TokenAck]:
        """Those in these slots that are here."""
        if last - first > len(self._acks):
            return [self._acks[t] for t in sorted(self._acks) if first <= t <= last]
        return [self._acks[t] for t in range(first, last + 1) if t in self._acks]

    def forget(self, upto: int) -> list[BlockRange]:
        """Every site holds these slots. The blocks that nobody asks for any more."""
        gone: list[BlockRange] = []
        upto = min(upto, self.held)
        if upto == self._forgotten:
            return gone
        self._forgotten = upto
        for timestamp in [t for t, ack in self._acks.items() if ack.end <= upto]:
            if self._ack is None or timestamp != self._ack.timestamp:
                gone += self._acks.pop(timestamp).named
        return gone

    def start(self, timestamp: int, ordered: Mapping[int, int]) -> None:
        """Our time on the ring begins behind this slot, and behind these blocks by source."""
        self.held = self.highest = self.named = self.named_before = self._base = timestamp
        self.ordered.update(ordered)

    def end_at(self, slot: int) -> None:
        """Some site holds all up to this slot, and nobody holds, or has made, one beyond it: what
        claims to stand there was no ACK, or named blocks that nobody sent."""
        if not self.held <= slot <= self.held + AHEAD_MAX:
            return
        for timestamp, ack in [(t, ack) for t, ack in self._acks.items() if ack.end > slot]:
            if timestamp > self.held:
                del self._acks[timestamp]
            else:
                self._acks[timestamp] = self._ack = ack.up_to(slot)
        self._look_again()
        self.highest = slot

    def _look_again(self) -> None:
        """What is the last slot that was heard of, and the last ACK."""
        self.latest = max((a for t, a in self._acks.items() if t > self._base), default=self.last)
        self.highest = max(self.held, self.latest.end if self.latest is not None else 0)

    def expect(self, slot: int) -> None:
        """Somebody holds everything up to this slot."""
        if slot <= self.held + AHEAD_MAX:
            self.highest = max(self.highest, slot)

    def begin(self, sync: int, base: int, first_holder: int) -> None:
        """[RMP-11] An epoch begins: nothing beyond the synchronization point is in the order, and
        the next slot follows `base`."""
        assert self.held == sync
        self._ack = None
        self._acks = {t: ack for t, ack in self._acks.items() if t <= sync}
        self.held = self.highest = self.named = self.named_before = self._base = base
        self.last = self.latest = None
        self._holder = first_holder


def next_ack(
    site: int,
    queue: OrderingQueue,
    arrived: Mapping[int, int],
    token_list: tuple[int, ...],
    count_max: int,
    ends: Callable[[int, int], bool] = lambda source, number: False,
) -> TokenAck:
    """[RMP-1] The ACK that the token site sends now: it passes the token to the next on the list.

    It names the blocks that are here in a row and not in the order: `arrived` has the last of each
    source, in the order in which the sources' first such blocks came. A block that `ends` says so
    of is the last one: it changes the token list.
    """
    named: list[BlockRange] = []
    left = count_max
    for source, last in arrived.items():
        first = queue.ordered.get(source, 0) + 1
        last = min(last, first + left - 1)
        if first > last or len(named) >= RANGES_MAX:
            continue
        end = next((number for number in range(first, last + 1) if ends(source, number)), None)
        named.append(BlockRange(source, first, end or last))
        left -= last - first + 1
        if end is not None:
            break
    next_site = successor(site, token_list)
    return TokenAck(queue.held + 1, site, next_site, tuple(named))


def successor(site: int, token_list: tuple[int, ...]) -> int:
    """The next on the list; after one that has left, the first."""
    if site not in token_list:
        return token_list[0]
    return token_list[(token_list.index(site) + 1) % len(token_list)]
