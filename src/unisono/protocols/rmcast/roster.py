"""Who is known to this member: the group G, those that failed or left, and what each reported.

The paper's D_{G,k} for every k is the `row` of each peer; a message list M is each peer's window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unisono.model import Member, View, changes_of
from unisono.parts.window import Window
from unisono.protocols.rmcast.packets import (
    CLOSED,
    FAILED,
    LEFT,
    MEMBER,
    AckEntry,
    Header,
    MessagePart,
    StreamStatus,
    WelcomeEntry,
    key_of,
)
from unisono.wire import tag_of

TOMBS_COUNT_MAX: Final = 64
"""Ended streams remembered; the oldest is forgotten first."""

RECALLED_COUNT_MAX: Final = 4
"""Of these a header tells at once; the others have their turn after them."""

ENDED: Final = (LEFT, CLOSED)
UNKNOWN: Final = AckEntry(0, 0, MEMBER)


class PeerState:
    """One member, its stream here, and what it told of the others' streams."""

    __slots__ = (
        "asked_us",
        "closed_by",
        "delivered",
        "heard_us",
        "key",
        "listed",
        "looked",
        "member",
        "message",
        "noticed_us",
        "pending",
        "plain",
        "rank",
        "rounds",
        "row",
        "scanned",
        "sent_us",
        "status",
        "trusted",
        "unreported",
        "window",
    )

    def __init__(
        self, member: Member, rank: int, delivered: int, message: int, now_us: int
    ) -> None:
        self.member = member
        self.key = key_of(member)
        self.rank = rank
        self.status = MEMBER
        self.window: Window[MessagePart] = Window(delivered)
        self.delivered = delivered
        """a_i: the last chunk of the last whole message of this stream delivered here."""
        self.message = message
        """The application's count at `delivered`."""
        self.unreported = 0
        """Octets of its stream received since our last header to it."""
        self.scanned = 0
        """Chunks up to here do not end the message that is being received."""
        self.heard_us = now_us
        self.sent_us = now_us
        self.noticed_us = -1
        """Since when something of its stream is known to be missing."""
        self.asked_us = -1
        self.rounds = 0
        self.row: dict[int, AckEntry] = {}
        """D_{G,i}: the last header it sent."""
        self.plain = False
        """It tells of members alone, all of them known here: told again, it says nothing."""
        self.listed: set[int] = set()
        """The streams of which its headers ever told, as long as we know them."""
        self.looked: dict[int, AckEntry] | None = None
        """The row that was last looked at for what others have received."""
        self.pending: dict[int, AckEntry] = {}
        self.trusted: dict[int, AckEntry] = {}
        """A header of its that we have caught up with: what clean-up and closing may rely on."""
        self.closed_by: set[int] = set()

    def undelivered(self) -> Iterator[MessagePart]:
        """What is here of its stream in a row, and not delivered."""
        for number in range(self.delivered + 1, self.window.received + 1):
            chunk = self.window.get(number)
            if chunk is not None:
                yield chunk

    def report(self, entries: dict[int, AckEntry]) -> None:
        """Take its newest header; the one waited for stays until it can be trusted. Counts only
        rise: a header with a lower one is old, and came late."""
        held = self.row
        for key, entry in entries.items():
            if key in held and entry.delivered < held[key].delivered:
                return
        self.row = entries
        self.listed.update(entries)
        if not self.pending:
            self.pending = entries

    def promote(self) -> bool:
        """A header is trusted once all that its sender had said by then is delivered here: only
        then is every addition it knew of known here too. True when there is a new one."""
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

    def __init__(self, me: Member, entries_max: int) -> None:
        self.me = me
        self.entries_max = entries_max
        """So many lines of a header fit a packet."""
        self.key = key_of(me)
        self.peers: dict[int, PeerState] = {}
        self.tombs: dict[int, int] = {}
        """Streams that ended and where; a message that needs more of one never comes."""
        self.farewells: set[int] = set()
        """Those of them whose member left: no part of the group is with it."""
        self.recalled: set[int] = set()
        """Ended streams that somebody still waits to settle: our headers tell how they ended."""
        self.changes = 0
        """Additions and removals so far, known alike to all that know the same."""
        self.rank_last = -1
        """The highest rank given so far, as far as we know. Ranks tell who came after whom, also
        after one that has failed and that others still settle. Two sponsors, of which one takes the
        other for failed, may give the same one at once: then the members' names decide, and neither
        newcomer is taken to know of the other (see `Failures._over`)."""
        self.shown: tuple[Member, ...] = ()
        """The members of the last view installed."""
        self._turn = 0
        self._news = 0
        self._rested = -1
        self._group: list[PeerState] | None = None
        self._others: list[PeerState] = []
        self.leavers: list[PeerState] = []
        """Those that have said goodbye and still listen."""

    # -- who ------------------------------------------------------------------------------------

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

    def audience(self) -> list[PeerState]:
        """Those whose word counts: G, and those that still hand over after their goodbye."""
        return [*self.others(), *self.leavers] if self.leavers else self.others()

    def unsettled(self) -> bool:
        """Somebody failed, and its last message is not agreed on yet."""
        return any(peer.status is FAILED for peer in self.peers.values())

    def mine(self) -> PeerState:
        return self.peers[self.key]

    def sponsor(self) -> PeerState:
        """The oldest member admits, announces and hands over the state."""
        return self.group()[0]

    def find(self, name: str) -> PeerState | None:
        return next((p for p in self.group() if p.member.name == name), None)

    def namesake_lingers(self, member: Member) -> bool:
        """Whether a failed member of the same name, at another address and perhaps alive, is closed
        here but not yet by all: until then a view of theirs may hold it."""
        return any(
            peer.status is CLOSED
            and peer.member.name == member.name
            and peer.member.address != member.address
            for peer in self.peers.values()
        )

    # -- changes --------------------------------------------------------------------------------

    def stir(self) -> None:
        """Something was said, heard or changed from which more may follow."""
        self._news += 1

    def rest(self) -> None:
        """All has followed from it that does, and nobody is on the way out: until the next news
        there is nothing to do."""
        if not self.leavers and len(self.group()) == len(self.peers):
            self._rested = self._news

    def is_at_rest(self) -> bool:
        return self._rested == self._news

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
        """Forget the peer; its key and its last chunk are remembered for a while."""
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

    def enter(self, lines: tuple[WelcomeEntry, ...], changes: int, now_us: int) -> None:
        """Begin where the sponsor says."""
        self.peers.clear()
        for line in lines:
            peer = self.add(line.member, line.rank, now_us, line.delivered, line.message)
            peer.status = line.status
        self.changes = changes
        self._alter()

    # -- what is told of them ----------------------------------------------------------------------

    def header(self, sent: int) -> Header:
        """T_G, D_G and the failed list, as of now."""
        # Deviates [RMC A3.13]: T_G counts what was received of each stream and is not raised by
        # receiving as such; so it says what is missing, and the order rests on D_G alone.
        entries = {}
        for peer in self.peers.values():
            received = sent if peer.key == self.key else peer.window.received
            entries[peer.key] = AckEntry(peer.delivered, received, peer.status)
        if len(entries) > self.entries_max:
            self._leave_out(entries)
        room = self.entries_max - len(entries)
        for key in sorted(self.recalled)[: min(room, RECALLED_COUNT_MAX)]:
            if key in self.tombs and any(key in peer.row for peer in self.others()):
                entries[key] = AckEntry(self.tombs[key], self.tombs[key], CLOSED)
            else:
                self.recalled.discard(key)
        return Header(self.key, entries)

    def _leave_out(self, entries: dict[int, AckEntry]) -> None:
        """Those that others still settle, and we have, may be left out, as if we had forgotten
        them; which of them, takes turns."""
        ended = [key for key, entry in entries.items() if entry.status in ENDED]
        self._turn += 1
        for at in range(min(len(ended), len(entries) - self.entries_max)):
            del entries[ended[(self._turn + at) % len(ended)]]

    def lines(self) -> tuple[WelcomeEntry, ...]:
        return tuple(
            WelcomeEntry(p.member, p.status, p.rank, p.delivered, p.message)
            for p in self.peers.values()
        )

    def view(self, detail: str = "", cut: bool = False) -> View:
        """The view for the application: a failed member stays until its last message is settled."""
        seen = (MEMBER, FAILED)
        members = tuple(sorted(p.member for p in self.peers.values() if p.status in seen))
        joined = tuple(m for m in members if m not in self.shown)
        left = tuple(m for m in self.shown if m not in members)
        words = " ".join(map(str, members))
        began = sorted((p.member, p.message) for p in self.peers.values()) if cut else ()
        founded = not cut and not self.shown
        went = {m: key_of(m) in self.farewells or self._has_left(m) for m in left}
        changes = changes_of(
            self.me,
            joined,
            [m for m in left if went[m]],
            [m for m in left if not went[m]],
            founded,
        )
        self.shown = members
        name = f"{self.changes}-{tag_of(words) & 0xFFFFFF:06x}"
        return View(members, name, joined, left, None, tuple(began), detail, changes=changes)

    def _has_left(self, member: Member) -> bool:
        peer = self.peers.get(key_of(member))
        return peer is not None and peer.status is LEFT
