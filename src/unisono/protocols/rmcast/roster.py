"""The members known here: the group G, those that failed or left, and what each reported.

The paper's D_{G,k} for every k is the `row` of each peer; the message list M is its window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unisono.model import Member
from unisono.parts.fragment_stream import FragmentStream
from unisono.protocols.rmcast.packets import (
    BEAT_BYTES,
    CLOSED,
    ENTRY_BYTES,
    FAILED,
    HEADER_BYTES,
    LEFT,
    MEMBER,
    AckEntry,
    Header,
    MessagePart,
    StreamStatus,
    WelcomeEntry,
    key_of,
)
from unisono.wire import ENVELOPE_BYTES

TOMBS_COUNT_MAX: Final = 64
"""Ended streams that are remembered; the oldest is forgotten first."""

RECALLED_COUNT_MAX: Final = 4
"""Ended streams that a header repeats at once; the others take their turn."""

ENDED: Final = (LEFT, CLOSED)
UNKNOWN: Final = AckEntry(0, 0, MEMBER)


def entries_max(packet_bytes: int) -> int:
    """Entries of a header that fit a packet: the bound on members, failed ones included."""
    return (packet_bytes - ENVELOPE_BYTES - HEADER_BYTES - BEAT_BYTES) // ENTRY_BYTES


class PeerState(FragmentStream[MessagePart]):
    """A member: its stream as received here, and what it reported of the others' streams.

    `delivered` is a_i, the last chunk of its last message delivered here.
    """

    __slots__ = (
        "asked_us",
        "closed_by",
        "heard_us",
        "key",
        "listed",
        "member",
        "message",
        "noted",
        "noticed_us",
        "pending",
        "plain",
        "rank",
        "rounds",
        "row",
        "sent_us",
        "status",
        "trusted",
        "unreported",
    )

    def __init__(
        self, member: Member, rank: int, delivered: int, message: int, now_us: int
    ) -> None:
        super().__init__(delivered)
        self.member = member
        self.key = key_of(member)
        self.rank = rank
        self.status = MEMBER
        self.message = message
        """The application's count at `delivered`."""
        self.unreported = 0
        """Bytes of its stream received since our last header to it."""
        self.heard_us = now_us
        self.sent_us = now_us
        self.noticed_us = -1
        """Since when some of its stream is known to be missing; -1 if none is."""
        self.asked_us = -1
        self.rounds = 0
        self.row: dict[int, AckEntry] = {}
        """D_{G,i}: the last header it sent."""
        self.plain = False
        """The row lists members alone, all known here: received again, it changes nothing."""
        self.listed: set[int] = set()
        """The streams that its headers ever listed, while we know them."""
        self.noted: dict[int, AckEntry] | None = None
        """The row that `Repair` has seen."""
        self.pending: dict[int, AckEntry] = {}
        self.trusted: dict[int, AckEntry] = {}
        """A header that we have caught up with: clean-up and closing rely on it."""
        self.closed_by: set[int] = set()

    def note_appended(self, last: int, message: int) -> None:
        """Our own stream goes up to this chunk, and this message of the application."""
        self.delivered, self.message = last, message

    def note_received(self, nbytes: int) -> None:
        """So much of its stream came since our last header to it."""
        self.unreported += nbytes

    def undelivered(self) -> Iterator[MessagePart]:
        """The chunks received in a row and not delivered."""
        for number in range(self.delivered + 1, self.window.received + 1):
            chunk = self.window.get(number)
            if chunk is not None:
                yield chunk

    def report(self, entries: dict[int, AckEntry]) -> None:
        """Take its newest header; the one waited for stays until it can be trusted. Counts only
        rise: a header with a lower one is late."""
        held = self.row
        for key, entry in entries.items():
            if key in held and entry.delivered < held[key].delivered:
                return
        self.row = entries
        self.listed.update(entries)
        if not self.pending:
            self.pending = entries

    def promote(self) -> bool:
        """A header is trusted once all that its sender had multicast by then is delivered here:
        only then is every addition it knew of known here. True when there is a new one."""
        if self.trusted is self.row:
            return False
        if self._caught_up(self.row):
            self.trusted, self.pending = self.row, {}
            return True
        if self.pending and self._caught_up(self.pending):
            self.trusted, self.pending = self.pending, self.row
            return True
        return False

    def _caught_up(self, entries: dict[int, AckEntry]) -> bool:
        return entries.get(self.key, UNKNOWN).delivered <= self.delivered


class Roster:
    """The peers by key. Grows by additions, shrinks when an ended stream is settled by all."""

    def __init__(self, me: Member, packet_bytes_max: int) -> None:
        self.me = me
        self._packet_bytes = packet_bytes_max
        self.entries_max = entries_max(packet_bytes_max)
        self.sent = 0
        """Of our own stream: the last chunk sent."""
        self.key = key_of(me)
        self.peers: dict[int, PeerState] = {}
        self.tombs: dict[int, int] = {}
        """By ended stream, its last chunk; a message that needs more of it is never delivered."""
        self.farewells: set[int] = set()
        """The ended streams of members that left."""
        self.recalled: set[int] = set()
        """Ended streams that another member has yet to settle: our headers list their ends."""
        self.changes = 0
        """Additions and removals so far: equal at members that know the same."""
        self.rank_last = -1
        """The highest rank known. Ranks order members by age. Two sponsors, one of which suspects
        the other, may give the same rank at once: then names decide, and neither newcomer is taken
        to know of the other (see `Failures._over`)."""
        self._turn = 0
        self.news = 0
        self._rested = -1
        self._group: list[PeerState] | None = None
        self._others: list[PeerState] = []
        self.leavers: list[PeerState] = []
        """Members that have left and still receive."""

    # -- members --------------------------------------------------------------------------------

    def group(self) -> list[PeerState]:
        """G, oldest first, ourselves included."""
        if self._group is None:
            found = [p for p in self.peers.values() if p.status is MEMBER]
            self._group = sorted(found, key=lambda p: (p.rank, p.member))
            self._others = [peer for peer in self._group if peer.key != self.key]
        return self._group

    def others(self) -> list[PeerState]:
        """G without ourselves."""
        if self._group is None:
            self.group()
        return self._others

    def reporters(self) -> list[PeerState]:
        """The members whose reports count: G without ourselves, and leavers that still retain."""
        return [*self.others(), *self.leavers] if self.leavers else self.others()

    def unsettled(self) -> bool:
        """Whether a member failed whose last message is not agreed on yet."""
        return any(peer.status is FAILED for peer in self.peers.values())

    def mine(self) -> PeerState:
        return self.peers[self.key]

    def sponsor(self) -> PeerState:
        """The oldest member admits, announces and hands over the state."""
        return self.group()[0]

    def find(self, name: str) -> PeerState | None:
        return next((p for p in self.group() if p.member.name == name), None)

    def namesake_lingers(self, member: Member) -> bool:
        """Whether a failed member of the same name at another address is closed here but not yet by
        all: until then a view of another member may list it."""
        return any(
            peer.status is CLOSED
            and peer.member.name == member.name
            and peer.member.address != member.address
            for peer in self.peers.values()
        )

    # -- changes --------------------------------------------------------------------------------

    def note_sent(self, last: int) -> None:
        """Our own stream was sent up to this chunk."""
        self.sent = last

    def recall(self, key: int) -> None:
        """Another member has yet to settle this ended stream."""
        self.recalled.add(key)

    def drop_leavers(self, since_us: int) -> None:
        """Leavers that were silent since then are gone."""
        self.leavers = [peer for peer in self.leavers if peer.heard_us >= since_us]

    def stir(self) -> None:
        """Something was multicast, received or changed that may have consequences."""
        self.news += 1

    def rest(self) -> None:
        """All consequences are drawn, and no member is ending: nothing to do until the next
        `stir`."""
        if not self.leavers and len(self.group()) == len(self.peers):
            self._rested = self.news

    def is_at_rest(self) -> bool:
        return self._rested == self.news

    def _alter(self) -> None:
        self._group = None
        self.stir()

    def add(
        self, member: Member, rank: int, now_us: int, delivered: int = 0, message: int = 0
    ) -> PeerState:
        peer = PeerState(member, rank, delivered, message, now_us)
        self.peers[peer.key] = peer
        self.rank_last = max(self.rank_last, rank)
        self.changes += 1
        self._alter()
        return peer

    def mark(self, peer: PeerState, status: StreamStatus) -> None:
        if peer.status is MEMBER:
            self.changes += 1
        peer.status = status
        if status is LEFT and peer.key != self.key:
            self.leavers = [*self.leavers, peer]
        self._alter()

    def bury(self, peer: PeerState) -> None:
        """Forget the peer; its key and its last chunk are kept for a while."""
        del self.peers[peer.key]
        for other in self.peers.values():
            other.listed &= self.peers.keys()
        self.tombs[peer.key] = peer.delivered
        if peer.status is LEFT:
            self.farewells.add(peer.key)
        while len(self.tombs) > TOMBS_COUNT_MAX:
            oldest = next(iter(self.tombs))
            del self.tombs[oldest]
            self.farewells.discard(oldest)
        for other in self.peers.values():
            other.plain = False
        self._alter()

    def enter(
        self, lines: tuple[WelcomeEntry, ...], tombs: tuple[int, ...], changes: int, now_us: int
    ) -> None:
        """Begin where the sponsor's welcome says."""
        self.peers.clear()
        for line in lines:
            peer = self.add(line.member, line.rank, now_us, line.delivered, line.message)
            peer.status = line.status
        self.tombs = dict(zip(tombs[::2], tombs[1::2], strict=True))
        self.changes = changes
        self._alter()

    def oversize(self) -> str:
        """Why the group is too large for our packets, if it is: every header has an entry of each
        member, and the sponsor counts by its own packets."""
        count = sum(peer.status not in ENDED for peer in self.peers.values())
        if count <= self.entries_max:
            return ""
        return (
            f"the group has {count} members, and packets of {self._packet_bytes} bytes are enough"
            f" for {self.entries_max}: raise packet_bytes_max, at all members alike"
        )

    # -- what we report of them -------------------------------------------------------------------

    def header(self) -> Header:
        """T_G, D_G and the failed list, as of now."""
        # Deviates [RMC A3.13]: T_G counts what was received of each stream and is not raised by
        # receiving as such; so it says what is missing, and the order rests on D_G alone.
        entries = {
            key: AckEntry(peer.delivered, peer.window.received, peer.status)
            for key, peer in self.peers.items()
        }
        if (mine := entries.get(self.key)) is not None:
            entries[self.key] = mine._replace(received=self.sent)
        if len(entries) > self.entries_max:
            self._leave_out(entries)
        space = self.entries_max - len(entries)
        for key in sorted(self.recalled)[: min(space, RECALLED_COUNT_MAX)]:
            if key in self.tombs and any(key in peer.row for peer in self.others()):
                entries[key] = AckEntry(self.tombs[key], self.tombs[key], CLOSED)
            else:
                self.recalled.discard(key)
        return Header(self.key, entries)

    def _leave_out(self, entries: dict[int, AckEntry]) -> None:
        """Streams that are settled here may be left out, as if forgotten; they take turns."""
        ended = [key for key, entry in entries.items() if entry.status in ENDED]
        self._turn += 1
        for at in range(min(len(ended), len(entries) - self.entries_max)):
            del entries[ended[(self._turn + at) % len(ended)]]

    def lines(self) -> tuple[WelcomeEntry, ...]:
        return tuple(
            WelcomeEntry(p.member, p.status, p.rank, p.delivered, p.message)
            for p in self.peers.values()
        )
