"""Algorithms 1 and 3: send, receive, deliver in causal order, ask for what is missing, clean up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from unisono.core import CoreConfig
from unisono.layout import encode
from unisono.model import Member, Message, Service
from unisono.parts.codec import PacketCodec
from unisono.parts.packing import fragments, joined, packed
from unisono.protocols.rmcast.control import After, write_control
from unisono.protocols.rmcast.packets import (
    BEAT_BYTES,
    CLOSED,
    CONTROL,
    DEP_BYTES,
    ENTRY_BYTES,
    FAILED,
    FIRST,
    HEADER_BYTES,
    LAST,
    MEMBER,
    NO_HEADER,
    RECORD_BYTES,
    RUN_BYTES,
    AckEntry,
    Ask,
    Beat,
    Data,
    Dep,
    Header,
    MessagePart,
    PacketKind,
    write_header,
)
from unisono.protocols.rmcast.roster import UNKNOWN, PeerState, Roster
from unisono.wire import ENVELOPE_BYTES

FRONT_BYTES: Final = ENVELOPE_BYTES + HEADER_BYTES + RUN_BYTES
"""Of a packet of data, without the lines of its header."""
PIECE_BYTES_MIN: Final = 64
"""What a message must come after is told so that there is room for a piece of it."""
FLIGHT_BYTES: Final = 256 << 10
"""Of our own stream: sent, and not yet received by all."""
REPORT_BYTES: Final = FLIGHT_BYTES // 4
"""Received of one stream without a word from us: its sender is told, so that it can go on."""
AHEAD_COUNT_MAX: Final = 1 << 16
"""A chunk so far beyond the unbroken row of its stream is not taken."""
ASK_RANGES_MAX: Final = 16
"""Ranges asked for of one stream at once."""
TOLD_COUNT_MAX: Final = 1024
"""Streams of which is noted how far they go; then what members told last is looked at anew."""
REPAIR_BYTES_MAX: Final = 64 << 10
"""Sent again in answer to one request; the asker comes back for the rest."""


def entries_max(packet_bytes: int) -> int:
    """How many lines of a header fit a packet: the group has so many members at most, those
    included that are lost and not settled."""
    return (packet_bytes - ENVELOPE_BYTES - HEADER_BYTES - BEAT_BYTES) // ENTRY_BYTES


def deps_max(packet_bytes: int) -> int:
    """Of how many streams a packet can tell what a message must come after."""
    return (packet_bytes - FRONT_BYTES - RECORD_BYTES - PIECE_BYTES_MIN) // DEP_BYTES


class Ordering:
    """The streams of all members at this one."""

    def __init__(self, setting: CoreConfig, roster: Roster, codec: PacketCodec) -> None:
        self._roster = roster
        self._codec = codec
        self._packet_bytes = setting.packet_bytes_max
        self._window_bytes = setting.window_bytes_max
        self._deps_max = deps_max(setting.packet_bytes_max)
        self.sent = 0
        """Of our own stream: the last chunk that left."""
        self.view = ""
        """The view in which what is delivered now is delivered."""
        self.goodbye = 0
        """The last chunk that a leaver says: what was said after it is not for us."""
        self.waiting = False
        """Something is missing, asked for or not."""
        self._told: dict[int, int] = {}
        """By stream, the last chunk that anybody has told to have received."""
        self._held = 0
        """Payload said and not yet known to be delivered by all."""
        self._flying: deque[tuple[int, int]] = deque()
        self._flying_bytes = 0

    # -- Algorithm 1: send ----------------------------------------------------------------------

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self._held)

    def say(self, payloads: Iterable[bytes], service: Service, flags: int = 0) -> list[Message]:
        """Number the messages, deliver them to ourselves at once, and line them up to be sent."""
        mine = self._roster.mine()
        self._roster.stir()
        number = mine.delivered
        deps = self._deps()
        while len(deps) > 2 * self._deps_max:
            number += 1
            chunk = MessagePart(
                FIRST | LAST | CONTROL,
                service,
                write_control(After()),
                mine.message,
                deps[: 2 * self._deps_max],
            )
            mine.window.put(number, chunk)
            self._held += len(chunk.payload) + RECORD_BYTES
            deps = deps[2 * self._deps_max :]
        first_max = self.piece_bytes(len(deps) // 2)
        piece_max = self.piece_bytes()
        messages = []
        for payload in payloads:
            if not flags & CONTROL:
                mine.message += 1
            pieces = fragments(payload, first_max, piece_max)
            last = len(pieces) - 1
            for index, piece in enumerate(pieces):
                number += 1
                mark = flags | (FIRST if index == 0 else 0) | (LAST if index == last else 0)
                needs = () if index else deps
                mine.window.put(number, MessagePart(mark, service, piece, mine.message, needs))
            self._held += len(payload) + RECORD_BYTES
            if not flags & CONTROL:
                messages.append(
                    Message(mine.member, payload, mine.message, self.view, service=service)
                )
        mine.delivered = number
        return messages

    def _deps(self) -> Dep:
        """D_G at this moment, without ourselves: what the message must come after."""
        return tuple(
            value
            for peer in self._roster.peers.values()
            if peer.key != self._roster.key
            for value in (peer.key, peer.delivered)
        )

    def piece_bytes(self, deps: int = 0) -> int:
        """How large a fragment may be that tells of so many deliveries before it: it must fit a
        packet also when it is sent again, behind a header that has grown by those who have joined
        since; where that leaves little, behind a header without lines."""
        whole = self._packet_bytes - FRONT_BYTES - RECORD_BYTES - deps * DEP_BYTES
        with_lines = whole - max(16, len(self._roster.peers) + 8) * ENTRY_BYTES
        return with_lines if with_lines >= self._packet_bytes // 4 else whole

    def pump(self) -> list[bytes]:
        """The packets of our own stream that may leave now."""
        mine = self._roster.mine()
        if self.sent == mine.delivered:
            return []
        audience = self._roster.audience() if self.goodbye else self._roster.others()
        seen = min((p.row.get(mine.key, UNKNOWN).received for p in audience), default=-1)
        if seen < 0:  # Nobody to send to.
            self.sent = mine.delivered
            self._flying.clear()
            self._flying_bytes = 0
            return []
        while self._flying and self._flying[0][0] <= seen:
            self._flying_bytes -= self._flying.popleft()[1]
        first, last = self.sent + 1, self.sent
        while last < mine.delivered and self._flying_bytes < FLIGHT_BYTES:
            last += 1
            chunk = mine.window.get(last)
            octets = len(chunk.payload) + RECORD_BYTES if chunk is not None else 0
            self._flying.append((last, octets))
            self._flying_bytes += octets
        self.sent = last
        return self._packets(mine, first, last)

    def _packets(self, peer: PeerState, first: int, last: int) -> list[bytes]:
        """Chunks `first` to `last` of a stream, as far as they are here, in few packets."""
        header = whole = write_header(self._roster.header(self.sent))
        bare = write_header(Header(self._roster.key, {}))
        base = self._packet_bytes - ENVELOPE_BYTES - RUN_BYTES
        held = [(n, c) for n in range(first, last + 1) if (c := peer.window.get(n)) is not None]
        packets = []
        # A packet's chunks follow each other and were said after the same deliveries.
        runs = groupby(enumerate(held), key=lambda pair: (pair[1][0] - pair[0], pair[1][1].deps))
        for _, run in runs:
            chunks = [numbered for _, numbered in run]
            sized = [(pair, len(pair[1].payload) + RECORD_BYTES) for pair in chunks]
            largest = base - len(chunks[0][1].deps) // 2 * DEP_BYTES
            if largest - len(whole) < max(octets for _, octets in sized):
                header = bare
            largest -= len(header)
            for load in packed(sized, largest):
                body = Data.body(header, peer.key, load[0][0], [chunk for _, chunk in load])
                packets.append(self._codec.seal(PacketKind.DATA, body))
        if header is bare:
            packets.append(self._codec.seal(PacketKind.BEAT, whole + encode(Beat(NO_HEADER))))
        return packets

    # -- Algorithm 3: receive ----------------------------------------------------------------------

    def take(self, packet: Data) -> None:
        """M_self takes what is new."""
        peer = self._roster.peers.get(packet.origin)
        if peer is None:
            self._codec.drop("stranger" if packet.origin not in self._roster.tombs else "ended")
            return
        if peer.key == self._roster.key:
            self._codec.drop("own")
            return
        if peer.status is not MEMBER and packet.header.sender == peer.key:
            self._codec.drop("removed")
            return
        if packet.first + len(packet.chunks) > peer.window.received + AHEAD_COUNT_MAX:
            self._codec.drop("window")
            return
        fresh = 0
        for number, chunk in enumerate(packet.chunks, packet.first):
            if peer.window.put(number, chunk):
                fresh += len(chunk.payload) + RECORD_BYTES
        peer.unreported += fresh
        if fresh:
            self._roster.stir()
        else:
            self._codec.drop("duplicate")

    def deliverable(self) -> tuple[list[Message], tuple[PeerState, MessagePart] | None]:
        """What may be delivered, in causal order, up to the next control message, which comes
        beside it: what follows belongs to what it changes."""
        out: list[Message] = []
        moved = True
        while moved:
            moved = False
            for peer in list(self._roster.peers.values()):
                if peer.window.received <= peer.delivered:
                    continue
                while (last := self._whole(peer)) and self._due(peer, last):
                    moved = True
                    chunk = self._deliver(peer, last, out)
                    if chunk is not None:
                        return out, (peer, chunk)
        return out, None

    def held(self) -> dict[Member, int]:
        """By member, the number of its last message that is all here, with those before it."""
        marks: dict[Member, int] = {}
        for peer in self._roster.peers.values():
            marks[peer.member] = peer.message
            for number in range(peer.window.received, peer.delivered, -1):
                chunk = peer.window.get(number)
                if chunk is not None and chunk.flags & LAST:
                    marks[peer.member] = max(peer.message, chunk.message)
                    break
        return marks

    def _whole(self, peer: PeerState) -> int:
        """The last chunk of the next message of this stream, or 0 while it is not all here."""
        number = max(peer.delivered, peer.scanned) + 1
        while number <= peer.window.received:
            chunk = peer.window.get(number)
            assert chunk is not None, "received in a row and not delivered, yet gone"
            if chunk.flags & LAST:
                return number
            peer.scanned = number
            number += 1
        return 0

    def _due(self, peer: PeerState, last: int) -> bool:
        """[RMC A3.27-36] Its predecessors are delivered; of a failed one, somebody needs it."""
        # Deviates [RMC A3.28]: a message carries what it must come after, so there is no sorting
        # of M; a message that waits holds up its own stream and what depends on it, nothing else.
        chunk = peer.window.get(peer.delivered + 1)
        assert chunk is not None
        peers, tombs = self._roster.peers, self._roster.tombs
        deps = chunk.deps
        if self.goodbye and self._knows_goodbye(chunk):
            return False
        for i in range(0, len(deps), 2):
            other = peers.get(deps[i])
            if other is None:
                if deps[i + 1] > tombs.get(deps[i], deps[i + 1]):
                    return False
            elif other.delivered < deps[i + 1]:
                return False
        if peer.status is MEMBER:
            return True
        return peer.status is FAILED and last <= self.needed(peer)

    def _knows_goodbye(self, chunk: MessagePart) -> bool:
        mine, deps = self._roster.key, chunk.deps
        return any(deps[i] == mine and deps[i + 1] >= self.goodbye for i in range(0, len(deps), 2))

    def is_over(self, peer: PeerState) -> bool:
        """Whether a leaver has heard of this stream all that it should."""
        chunk = peer.window.get(peer.delivered + 1)
        return chunk is not None and self._knows_goodbye(chunk)

    def needed(self, peer: PeerState) -> int:
        """[RMC A3.33] How much of a failed member's stream agreement needs: what any member of the
        group has delivered of it, but no more than where one of them has closed it."""
        most, limit = peer.delivered, None
        for other in self._roster.audience():
            entry = other.row.get(peer.key)
            if entry is None:
                continue
            if entry.status is CLOSED:
                limit = entry.delivered if limit is None else min(limit, entry.delivered)
            most = max(most, entry.delivered)
        return most if limit is None else min(most, limit)

    def _deliver(self, peer: PeerState, last: int, out: list[Message]) -> MessagePart | None:
        """Deliver the next message, which ends at `last`; a control message is returned instead."""
        window = peer.window
        chunks = [window.get(n) for n in range(peer.delivered + 1, last + 1)]
        first = chunks[0]
        assert first is not None
        peer.delivered = last
        payload = joined([chunk.payload for chunk in chunks if chunk is not None])
        if first.flags & CONTROL:
            return first._replace(payload=payload)
        peer.message = first.message
        service = Service(first.service)
        out.append(Message(peer.member, payload, first.message, self.view, service=service))
        return None

    # -- asking and answering ----------------------------------------------------------------------

    def gaps(self, now_us: int, patience_us: int) -> tuple[tuple[Ask, ...], int, list[PeerState]]:
        """[RMC A3.43-49] What is missing and was not asked for lately, how often the most wanted
        was asked for before, and every member known to have some of it."""
        asks: list[Ask] = []
        rounds = 0
        self.waiting = False
        holders: dict[int, PeerState] = {}
        mine = self._roster.key
        audience = self._roster.audience()
        self._listen(audience)
        for peer in self._roster.peers.values():
            if peer.key == mine or peer.status is CLOSED:
                continue
            here = peer.window.received
            if peer.window.highest <= here >= self._told.get(peer.key, 0):
                if peer.status is not FAILED:  # Nobody has told of more: the usual case.
                    peer.rounds, peer.asked_us, peer.noticed_us = 0, -1, -1
                    continue
            upto, having = self._horizon(peer, audience)
            if upto <= peer.window.received:
                peer.rounds, peer.asked_us, peer.noticed_us = 0, -1, -1
                continue
            self.waiting = True
            if peer.noticed_us < 0:
                peer.noticed_us = now_us
            # No hole yet, only an end not reached: the rest is probably on its way.
            coming = peer.window.highest == peer.window.received
            since_us = max(peer.asked_us, peer.noticed_us if coming else -1)
            if since_us >= 0 and now_us - since_us < patience_us:
                continue
            missing = peer.window.missing(upto, ASK_RANGES_MAX)
            asks += [(peer.key, first, last) for first, last in missing]
            rounds = max(rounds, peer.rounds)
            peer.rounds += 1
            peer.asked_us = now_us
            holders.update((holder.key, holder) for holder in having)
        return tuple(asks), rounds, list(holders.values())

    def _listen(self, audience: Sequence[PeerState]) -> None:
        """Note from the headers that are new how far each stream was told to go at least. Who told
        it may be gone: more than this nobody has told, and who has it `_horizon` finds."""
        told = self._told
        if len(told) > TOLD_COUNT_MAX:
            told.clear()
            for other in self._roster.peers.values():
                other.looked = None
        for other in audience:
            if other.looked is not other.row:
                other.looked = other.row
                for key, entry in other.row.items():
                    if entry.received > told.get(key, 0):
                        told[key] = entry.received

    def _horizon(
        self, peer: PeerState, audience: Sequence[PeerState]
    ) -> tuple[int, list[PeerState]]:
        """How far a stream is known to go, and who has more of it than we."""
        failed = peer.status is FAILED
        key, here = peer.key, peer.window.received
        upto = self.needed(peer) if failed else peer.window.highest
        having = []
        for other in audience:
            entry = other.row.get(key)
            if entry is None:
                continue
            theirs = entry.delivered if failed else entry.received
            if theirs > here:
                having.append(other)
                if theirs > upto and not failed:
                    upto = theirs
        return min(upto, here + AHEAD_COUNT_MAX // 2), having

    def answer(self, asks: Sequence[Ask], rounds: int) -> list[bytes]:
        """[RMC A3.2-6] Send again what is asked for and held here. At first only the originator
        answers; what it cannot repair, everyone who has it does."""
        packets: list[bytes] = []
        budget = REPAIR_BYTES_MAX
        for key, first, last in asks:
            peer = self._roster.peers.get(key)
            if peer is None:
                continue
            # Deviates [RMC A3.47]: all who have it are asked, as the paper says, but at first only
            # the originator answers; else each loss would be repaired n - 1 times.
            origin_may = peer.key != self._roster.key and peer.status is MEMBER
            if origin_may and rounds == 0:
                continue
            limit = self.sent if peer.key == self._roster.key else peer.window.highest
            last = min(last, limit, first + budget // 64)
            some = self._packets(peer, max(first, peer.window.floor + 1), last)
            packets += some
            budget -= sum(map(len, some))
            if budget <= 0:
                break
        if packets:
            self._codec.count("repair", len(packets))
        return packets

    # -- clean-up ---------------------------------------------------------------------------------

    def clean_up(self, others: list[PeerState]) -> None:
        """[RMC A3.51] Forget what is known to be delivered by everyone: those that still hand over
        after their goodbye may need it too."""
        for peer in self._roster.peers.values():
            if peer.delivered <= peer.window.floor:
                continue
            key = peer.key
            everywhere = peer.delivered
            for other in others:
                entry: AckEntry | None = other.trusted.get(key)
                everywhere = min(everywhere, 0 if entry is None else entry.delivered)
            if everywhere > peer.window.floor:
                gone = peer.window.forget(everywhere)
                if key == self._roster.key:
                    self._held -= sum(len(chunk.payload) for chunk in gone)
                    self._held -= RECORD_BYTES * sum(bool(c.flags & FIRST) for c in gone)
