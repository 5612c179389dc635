"""Requests for missing chunks, and answers to the requests of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from unisono.core import Arm, Effect, Expired, Send
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.ordering import AHEAD_COUNT_MAX, Ordering
from unisono.protocols.rmcast.packet_builder import PacketBuilder, addresses
from unisono.protocols.rmcast.packets import CLOSED, FAILED, MEMBER, Ask, Beat
from unisono.protocols.rmcast.roster import PeerState, Roster
from unisono.protocols.rmcast.states import Timer

ASK_RANGES_MAX: Final = 16
"""Ranges requested of one stream at once."""
REPORTED_COUNT_MAX: Final = 1024
"""Streams of which is noted how far they go; then the headers are looked at again."""
REPAIR_BYTES_MAX: Final = 64 << 10
"""Sent again in answer to one request; the rest is requested again."""


@dataclass(eq=False)
class Repair:
    """Notices what is missing here, and sends again what is missing elsewhere."""

    _roster: Roster
    _ordering: Ordering
    _builder: PacketBuilder
    _clock: CoreClock
    _ask_us: int

    def __post_init__(self) -> None:
        self._armed = False
        self.waiting = False
        """Something is missing, requested or not."""
        self._reported: dict[int, int] = {}
        """By stream, the last chunk that any member has reported to have received."""

    def request(self, out: list[Effect]) -> None:
        """[RMC A3.47] Request what is missing from every member known to have it."""
        asks, rounds, holders = self.gaps(self._ask_us)
        if asks and holders:
            self._builder.count("nak", len(asks))
            out.append(Send(addresses(holders), self._builder.beats_with(asks, rounds)))
        if self.waiting and not self._armed:
            self._armed = True
            out.append(Arm(Timer.ASK, self._ask_us))

    def ask_again(self, event: Expired, out: list[Effect]) -> None:
        """The requests that are due follow at the end of the step."""
        self._armed = False

    def open_requests(self) -> tuple[tuple[Ask, ...], int]:
        """All requests, for a heartbeat."""
        asks, rounds, _ = self.gaps(0)
        if asks:
            self._builder.count("nak", len(asks))
        return asks, rounds

    def gaps(self, patience_us: int) -> tuple[tuple[Ask, ...], int, list[PeerState]]:
        """[RMC A3.43-49] What is missing and was not requested lately, how often the oldest was
        requested before, and every member known to have some of it."""
        asks: list[Ask] = []
        rounds = 0
        self.waiting = False
        holders: dict[int, PeerState] = {}
        mine, now_us, reported = self._roster.key, self._clock.now_us, self._reported
        reporters = self._roster.reporters()
        self._note_headers(reporters)
        for key, peer in self._roster.peers.items():
            status, window = peer.status, peer.window
            if key == mine or status is CLOSED:
                continue
            here = window.received
            if window.highest <= here >= reported.get(key, 0) and status is not FAILED:
                if peer.noticed_us >= 0:
                    peer.rounds, peer.asked_us, peer.noticed_us = 0, -1, -1
                continue
            upto, having = self._horizon(peer, reporters)
            if upto <= here:
                peer.rounds, peer.asked_us, peer.noticed_us = 0, -1, -1
                continue
            self.waiting = True
            if peer.noticed_us < 0:
                peer.noticed_us = now_us
            # No gap yet, only an end not reached: the rest is probably on its way.
            coming = window.highest == here
            since_us = max(peer.asked_us, peer.noticed_us if coming else -1)
            if since_us >= 0 and now_us - since_us < patience_us:
                continue
            missing = window.missing(upto, ASK_RANGES_MAX)
            asks += [(key, first, last) for first, last in missing]
            rounds = max(rounds, peer.rounds)
            peer.rounds += 1
            peer.asked_us = now_us
            holders.update((holder.key, holder) for holder in having)
        return tuple(asks), rounds, list(holders.values())

    def _note_headers(self, reporters: Sequence[PeerState]) -> None:
        """Note from new headers how far each stream goes at least. The reporter may be gone since;
        `_horizon` finds out which member has the rest."""
        reported = self._reported
        if len(reported) > REPORTED_COUNT_MAX:
            reported.clear()
            for other in self._roster.peers.values():
                other.noted = None
        for other in reporters:
            if other.noted is not other.row:
                other.noted = other.row
                for key, entry in other.row.items():
                    if entry.received > reported.get(key, 0):
                        reported[key] = entry.received

    def _horizon(
        self, peer: PeerState, reporters: Sequence[PeerState]
    ) -> tuple[int, list[PeerState]]:
        """How far a stream is known to go, and which members have more of it than we."""
        failed = peer.status is FAILED
        key, here = peer.key, peer.window.received
        upto = self._ordering.needed(peer) if failed else peer.window.highest
        having = []
        for other in reporters:
            entry = other.row.get(key)
            if entry is None:
                continue
            theirs = entry.delivered if failed else entry.received
            if theirs > here:
                having.append(other)
                if theirs > upto and not failed:
                    upto = theirs
        return min(upto, here + AHEAD_COUNT_MAX // 2), having

    def answer(self, packet: Beat, out: list[Effect]) -> None:
        """Send again what is requested, and a heartbeat if the sender probes us."""
        if not packet.asks and not packet.probes:
            return
        peer = self._roster.peers[packet.header.sender]
        packets = self._resent(packet.asks, packet.round)
        if packet.probes:
            packets.append(self._builder.beat())
        if packets:
            out.append(Send((peer.member.address,), packets))

    def _resent(self, asks: Sequence[Ask], rounds: int) -> list[bytes]:
        """[RMC A3.2-6] At first only the originator answers; what it cannot repair, every member
        that has it does."""
        packets: list[bytes] = []
        budget = REPAIR_BYTES_MAX
        for key, first, last in asks:
            peer = self._roster.peers.get(key)
            if peer is None:
                continue
            # Deviates [RMC A3.47]: all members that have it are asked, as the paper says, but at
            # first only the originator answers; else each loss would be repaired n - 1 times.
            is_mine = peer.key == self._roster.key
            if rounds == 0 and not is_mine and peer.status is MEMBER:
                continue
            limit = self._roster.sent if is_mine else peer.window.highest
            last = min(last, limit, first + budget // 64)
            some = self._builder.data(peer, max(first, peer.window.floor + 1), last)
            packets += some
            budget -= sum(map(len, some))
            if budget <= 0:
                break
        if packets:
            self._builder.count("repair", len(packets))
        return packets
