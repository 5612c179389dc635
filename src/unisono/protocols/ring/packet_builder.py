"""The packets that a member sends: their headers, and the `Send` effects that carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unisono.core import EVERYONE, Effect, Send
from unisono.layout import encode
from unisono.model import Member, Packets
from unisono.parts.codec import PacketCodec
from unisono.parts.turn import Turn
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import (
    HEADER,
    HEADER_BYTES,
    NO_HEADER,
    PIECE_AT,
    TURN,
    Header,
    MemberRecord,
    Rejection,
)
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.turn_packets import sealed_turn
from unisono.wire import ENVELOPE_BYTES


class PacketBuilder:
    """Writes the packets of one member, and counts those that it drops."""

    __slots__ = ("_codec", "_ordering", "_state", "body_bytes_max", "count", "drop")

    def __init__(
        self, codec: PacketCodec, state: RingState, ordering: Ordering, packet_bytes_max: int
    ) -> None:
        self._codec = codec
        self.count, self.drop = codec.count, codec.drop
        self.body_bytes_max = packet_bytes_max - ENVELOPE_BYTES
        self._state = state
        self._ordering = ordering

    def member_record(
        self, code: Code, attempt: int, bits: int, other: Member | None = None
    ) -> MemberRecord:
        """What this member reports of itself."""
        state = self._state
        return MemberRecord(
            code, self._header(), attempt, bits, state.seen, state.record.trunk, state.me, other
        )

    def _header(self) -> Header:
        state, ordering = self._state, self._ordering
        return Header(state.version, state.key, state.key, 0, ordering.S, ordering.safe)

    def sealed(self, code: Code, body: bytes) -> bytes:
        state, ordering = self._state, self._ordering
        number, leader = state.version
        length = HEADER_BYTES + len(body)
        front = HEADER.pack(number, state.key, state.key, 0, ordering.S, ordering.safe, length)
        return self._codec.seal(code, front + body, leader)

    def turn(self, code: Code, header: Header, turn: Turn, indices: range) -> Packets:
        """The packets of a turn with these indices."""
        leader = self._state.version.leader
        if turn.count == 1:
            front = header.packed(PIECE_AT + len(turn.content))
            body = front + TURN.pack(1, turn.flags, 0) + turn.content
            return [self._codec.seal(code, body, leader)]
        self._codec.sent(code, len(indices))
        return sealed_turn(self._codec, code, header, turn, indices, leader)

    # -- effects ---------------------------------------------------------------------------------

    def everyone(self, code: Code, body: bytes, out: list[Effect]) -> None:
        out.append(Send(EVERYONE, [self.sealed(code, body)]))

    def to(self, member: Member, code: Code, body: bytes, out: list[Effect]) -> None:
        out.append(Send((member.address,), [self.sealed(code, body)]))

    def to_all(self, members: Iterable[Member], code: Code, body: bytes, out: list[Effect]) -> None:
        to = tuple(member.address for member in members)
        if to:
            out.append(Send(to, [self.sealed(code, body)]))

    def to_many(
        self, member: Member, code: Code, bodies: Sequence[bytes], out: list[Effect]
    ) -> None:
        if bodies:
            out.append(Send((member.address,), [self.sealed(code, body) for body in bodies]))

    def reject(
        self, member: Member, code: Code, reason: str, out: list[Effect], known: int = 0
    ) -> None:
        """STALE or REFUSE, with the reason."""
        founding = self._state.ring.founding
        body = encode(Rejection(code, NO_HEADER, reason, member, known, founding))
        self.to(member, code, body, out)

    def refuse(self, member: Member, reason: str, out: list[Effect]) -> None:
        self.reject(member, Code.REFUSE, reason, out)
