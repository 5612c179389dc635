"""Makes the packets that carry a header: heartbeats, data, and pieces of the state."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from unisono.layout import encode
from unisono.model import Address
from unisono.parts.codec import PacketCodec
from unisono.parts.packing import packed
from unisono.protocols.rmcast.packets import (
    ASK_BYTES,
    BEAT_BYTES,
    DEP_BYTES,
    ENTRY_BYTES,
    HEADER_BYTES,
    NO_HEADER,
    RECORD_BYTES,
    RUN_BYTES,
    STATE_FRONT_BYTES,
    Ask,
    Beat,
    Data,
    Header,
    PacketKind,
    StatePiece,
    StateRequest,
    write_header,
)
from unisono.protocols.rmcast.roster import PeerState, Roster
from unisono.wire import ENVELOPE_BYTES

FRONT_BYTES: Final = ENVELOPE_BYTES + HEADER_BYTES + RUN_BYTES
"""Of a data packet, without the entries of its header."""
PIECE_BYTES_MIN: Final = 64
"""Dependencies leave at least this much of a packet to the message."""


def addresses(peers: Iterable[PeerState]) -> tuple[Address, ...]:
    return tuple([peer.member.address for peer in peers])


class PacketBuilder:
    """Seals packets behind the header of this moment, and counts those that are dropped."""

    def __init__(self, roster: Roster, codec: PacketCodec, packet_bytes_max: int) -> None:
        self._roster = roster
        self._codec = codec
        self.count, self.drop = codec.count, codec.drop
        self._packet_bytes = packet_bytes_max
        self._bare_header = write_header(Header(roster.key, {}))
        """For packets that have no space for its entries."""
        self._header_at, self._resting_header = -1, b""
        self.deps_max = (
            packet_bytes_max - FRONT_BYTES - RECORD_BYTES - PIECE_BYTES_MIN
        ) // DEP_BYTES
        """Dependencies of a message that fit a packet."""
        self.state_piece_bytes = (
            packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - STATE_FRONT_BYTES
        )

    def _header(self) -> bytes:
        """The header of this moment; made once while nothing changes, as between heartbeats."""
        roster = self._roster
        if roster.recalled or not roster.is_at_rest():
            return write_header(roster.header())
        if self._header_at != roster.news:
            self._header_at, self._resting_header = roster.news, write_header(roster.header())
        return self._resting_header

    def beat(self, expels: int = 0, probes: bool = False) -> bytes:
        header = self._header()
        body = header + encode(Beat(NO_HEADER, expels=expels, probes=probes))
        return self._codec.seal(PacketKind.BEAT, body)

    def beats_with(self, asks: tuple[Ask, ...], rounds: int) -> list[bytes]:
        """A heartbeat with as many requests as fit. The others follow behind a header without
        entries, since those of a large group may leave no space; the rest in the next heartbeat."""
        packets = []
        for header in (self._header(), self._bare_header):
            space = self._packet_bytes - ENVELOPE_BYTES - len(header) - BEAT_BYTES
            fitting = max(0, space // ASK_BYTES)
            body = header + encode(Beat(NO_HEADER, min(rounds, 255), asks=asks[:fitting]))
            packets.append(self._codec.seal(PacketKind.BEAT, body))
            asks = asks[fitting:]
            if not asks:
                break
        return packets

    def state_request(self, offset: int, pieces: int) -> bytes:
        body = self._bare_header + encode(StateRequest(NO_HEADER, offset, pieces))
        return self._codec.seal(PacketKind.STATE_ASK, body)

    def state_piece(self, joiner: int, total: int, offset: int, piece: memoryview) -> bytes:
        body = self._bare_header + encode(StatePiece(NO_HEADER, joiner, total, offset, piece))
        return self._codec.seal(PacketKind.STATE, body)

    def piece_bytes(self, deps: int = 0) -> int:
        """The size of a fragment with this many dependencies. It must also fit when it is sent
        again behind a header that has grown with the group; where that leaves little, behind a
        header without entries."""
        whole = self._packet_bytes - FRONT_BYTES - RECORD_BYTES - deps * DEP_BYTES
        with_entries = whole - max(16, len(self._roster.peers) + 8) * ENTRY_BYTES
        return with_entries if with_entries >= self._packet_bytes // 4 else whole

    def data(self, peer: PeerState, first: int, last: int) -> list[bytes]:
        """Chunks `first` to `last` of a stream, as far as they are here, in few packets."""
        header = full = self._header()
        base = self._packet_bytes - ENVELOPE_BYTES - RUN_BYTES
        held = [(n, c) for n in range(first, last + 1) if (c := peer.window.get(n)) is not None]
        packets = []
        # The chunks of a packet follow each other and have the same dependencies.
        runs = groupby(enumerate(held), key=lambda pair: (pair[1][0] - pair[0], pair[1][1].deps))
        for _, run in runs:
            chunks = [numbered for _, numbered in run]
            sized = [(pair, len(pair[1].payload) + RECORD_BYTES) for pair in chunks]
            largest = base - len(chunks[0][1].deps) // 2 * DEP_BYTES
            if largest - len(full) < max(nbytes for _, nbytes in sized):
                header = self._bare_header
            largest -= len(header)
            for load in packed(sized, largest):
                body = Data.body(header, peer.key, load[0][0], [chunk for _, chunk in load])
                packets.append(self._codec.seal(PacketKind.DATA, body))
        if header is not full:
            packets.append(self._codec.seal(PacketKind.BEAT, full + encode(Beat(NO_HEADER))))
        return packets
