"""Repair: empty slots are asked for by NACKs, which any site that has them may answer [RMP §1]."""

from __future__ import annotations

from typing import Final, TypeAlias

from unisono.core import EVERYONE, Effect, Send, Target
from unisono.layout import size_of
from unisono.model import Address, Burst
from unisono.parts.codec import PacketCodec
from unisono.parts.turn import Turn
from unisono.protocols.rmp.data_packets import DATA, DATA_BYTES
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.packets import PROTOCOL, AckFields, Nack, PacketKind
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import REPAIR, Outgoing, Timer, TokenRing
from unisono.wire import ENVELOPE_BYTES, seal_batch

ASK_COUNT_MAX: Final = 32
"""Slots of each kind in one NACK."""
SLOTS_BYTES: Final = 16
BLOCK_BYTES: Final = 20
"""Of a range of slots, and of a block, in a NACK."""
ANSWER_PACKETS_MAX: Final = 256
"""Packets in answer to one NACK."""
LOOK_US: Final = 2_000
"""Between two looks at what is missing: a gap that closes in between was no loss."""
TAIL_LOOKS: Final = 4
"""Looks at a gap after which nothing of its source has come: the rest may be under way."""

Gap: TypeAlias = tuple[int, int] | tuple[int, int, int, int]
"""Slots in which an ACK stands, first and last; or source, block, and its first and last missing
packet."""


class Repair:
    """Asks for what is missing here, and answers for what is here."""

    def __init__(
        self,
        parameters: Parameters,
        state: TokenRing,
        codec: PacketCodec,
        outgoing: Outgoing,
        sources: Sources,
        queue: OrderingQueue,
        packet_bytes_max: int,
    ) -> None:
        self._room = packet_bytes_max - ENVELOPE_BYTES - size_of(Nack)
        self._parameters = parameters
        self._state = state
        self._codec = codec
        self._outgoing = outgoing
        self._sources = sources
        self._queue = queue
        self._round = 0
        self._asked: tuple[object, ...] = ()
        self._looks: dict[Gap, int] = {}
        """How often each gap was seen. One that shrinks is another gap."""

    # -- asking -----------------------------------------------------------------------------------

    def watch(self, out: list[Effect]) -> None:
        """Whether there is anything to ask for; called when a step is over."""
        if self._outgoing.is_armed(REPAIR):
            return
        if self._queue.has_gap() or self._sources.has_gap():
            self._looks = dict.fromkeys(self._gaps(), 0)
            self._outgoing.arm(Timer.REPAIR, LOOK_US, out)

    def _gaps(self) -> list[Gap]:
        slots = self._queue.missing(ASK_COUNT_MAX)
        wanted = dict.fromkeys((*slots.blocks, *self._sources.gaps(ASK_COUNT_MAX)))
        blocks = [(s, n, *self._sources.missing(s, n)) for s, n in wanted]
        return [*slots.acks, *blocks[:ASK_COUNT_MAX]]

    def ask(self, out: list[Effect]) -> None:
        """Ask for the gaps that did not close since the last look."""
        gaps = self._gaps()
        if not gaps:
            self._round, self._looks = 0, {}
            return
        looks = self._looks = {gap: self._looks.get(gap, -1) + 1 for gap in gaps}
        lost = [gap for gap, count in looks.items() if count >= self._looks_before(gap)]
        wait_us = LOOK_US
        if lost:
            acks = tuple(gap for gap in lost if len(gap) == 2)[: self._room // SLOTS_BYTES]
            left = (self._room - len(acks) * SLOTS_BYTES) // BLOCK_BYTES
            blocks = tuple(gap for gap in lost if len(gap) == 4)[:left]
            asked = (acks, blocks)
            self._round = min(self._round + 1, 255) if asked == self._asked else 0
            self._asked = asked
            self._codec.count("nak")
            self._outgoing.send(
                PacketKind.NACK, Nack(self._state.key, self._round, acks, blocks), out
            )
            wait_us = LOOK_US << min(self._round + 1, 6)
        self._outgoing.arm(
            Timer.REPAIR, min(wait_us, self._parameters.period_within(self._state.group.hops)), out
        )

    def _looks_before(self, gap: Gap) -> int:
        if len(gap) == 2 or not self._sources.is_tail(gap[0], gap[1]):
            return 1
        return TAIL_LOOKS

    # -- answering --------------------------------------------------------------------------------

    def answer(self, packet: Nack, source: Address, trid: int, out: list[Effect]) -> None:
        to: Target = (source,)
        left = ANSWER_PACKETS_MAX
        for first, last in packet.acks:
            for ack in self._queue.acks(first, min(last, first + ANSWER_PACKETS_MAX)):
                if left and self._should_answer(ack.site, ack.timestamp, packet.round):
                    record = AckFields.of(self._state.key, ack)
                    self._outgoing.send(PacketKind.ACK, record, out, to, trid)
                    left -= 1
        for key, number, start, end in packet.blocks:
            block = self._sources.get(key, number)
            if block is None or not self._should_answer(key, number, packet.round):
                continue
            indices = range(start, min(end + 1, block.count))[:left]
            if indices:
                self._codec.count("repair", len(indices))
                self.send_block(block, out, to, trid, indices)
                left -= len(indices)

    def _should_answer(self, origin: int, number: int, round: int) -> bool:
        """Its origin first; then one after the other, so that not all answer at once."""
        ring = self._state.token_list
        if round == 0 and (origin in ring or origin == self._state.key):
            return origin == self._state.key
        if self._state.key not in ring:
            return True
        return ring[(number + round) % len(ring)] == self._state.key

    def send_block(
        self,
        block: Turn,
        out: list[Effect],
        to: Target = EVERYONE,
        trid: int | None = None,
        indices: range | None = None,
    ) -> None:
        """The packets of a block, or some of them, as one burst: only the last may be shorter."""
        life = self._state.trid if trid is None else trid
        if block.count == 1:  # A lone message is one.
            front = DATA.pack(block.holder, block.s, 1, block.flags, 0)
            out.append(Send(to, [self._codec.seal(PacketKind.DATA, front + block.content, life)]))
            return
        which = range(block.count) if indices is None else indices
        pieces = block.pieces(which)
        head = DATA.pack(block.holder, block.s, block.count, block.flags, 0)[:DATA_BYTES]
        self._codec.sent(PacketKind.DATA, len(pieces))
        even = len(pieces) - (len(pieces) > 1 and len(pieces[-1]) != len(pieces[0]))
        trains = [
            seal_batch(PROTOCOL, PacketKind.DATA, self._codec.group, life, head, row, first)
            for row, first in ((pieces[:even], which.start), (pieces[even:], which.start + even))
            if row
        ]
        out.append(Send(to, Burst(memoryview(b"".join(trains)), len(trains[0]) // even)))
