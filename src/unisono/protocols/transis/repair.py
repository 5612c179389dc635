"""What is missing is requested, and only then sent again [TRA-3]. Whoever has it may answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from unisono.core import CoreConfig, Effect
from unisono.parts.codec import PacketCodec
from unisono.protocols.transis.assembly import VertexAssembly, turn_of
from unisono.protocols.transis.congestion import NetworkWindow
from unisono.protocols.transis.graph import Vertex
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.packets import PIECE_AT, WHOLE, VertexNak, VertexPiece
from unisono.protocols.transis.parameters import Parameters
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.states import Timer
from unisono.wire import ENVELOPE_BYTES

RANGES_MAX: Final = 20
"""Ranges requested at once, and as many incomplete vertices: both fit the least packet."""
ANSWER_PACKETS_MAX: Final = 64
"""Packets sent in answer to one request; the rest is requested again."""
BACK_OFF_MAX: Final = 5
"""The time to the next request doubles this often at most."""


class Repair:
    """Both ends: requests for what is missing here, and answers to others."""

    def __init__(
        self,
        config: CoreConfig,
        parameters: Parameters,
        local: LocalMember,
        codec: PacketCodec,
        outgoing: PacketSender,
        congestion: NetworkWindow,
        is_quiet: Callable[[int], bool],
    ) -> None:
        self._parameters = parameters
        self._local = local
        self._codec = codec
        self._outgoing = outgoing
        self._congestion = congestion
        self._is_quiet = is_quiet
        """Whether nothing was heard lately from the member of this rank."""
        self.piece_bytes = config.packet_bytes_max - ENVELOPE_BYTES - PIECE_AT
        self.assembly = VertexAssembly()
        self._tries = 0
        """Requests since something came that was requested."""
        self._asked_us = 0
        self._answer_us = 0
        """How long answers take of late, where queues are long."""
        self._requested: list[tuple[int, int, int]] = []
        """Sender, first and last of the vertices that the last request was about."""
        self._holders: dict[int, tuple[int, ...]] = {}
        """By rank of those that may ask, what each reported to have; empty before that."""

    def new_configuration(self) -> None:
        self.assembly = VertexAssembly()
        self._tries = 0
        self._holders = {}
        self._congestion.new_configuration()

    def know_holders(self, holders: dict[int, tuple[int, ...]]) -> None:
        """[TRA-13] The configuration ends, and these survive: by rank, what each has of each."""
        self._holders = holders
        self._tries = 0

    def take(self, packet: VertexPiece) -> Vertex | None:
        """The vertex of which these are packets, once all of it is here."""
        return self.assembly.take(packet, self._is_requested(packet.sender, packet.number))

    def came(self, sender: int, index: int) -> None:
        """A vertex is here. Only one that was requested shows that requests are answered."""
        if self._is_requested(sender, index):
            self._tries = 0
            took_us = self._local.now_us - self._asked_us
            self._answer_us = max(took_us, self._answer_us - self._answer_us // 8)

    def _is_requested(self, sender: int, index: int) -> bool:
        requested = self._requested
        return bool(requested) and any(
            sender == rank and a <= index <= b for rank, a, b in requested
        )

    # -- requests ---------------------------------------------------------------------------------

    def watch(self, ordering: Ordering, out: list[Effect]) -> None:
        """Once a step: if something is missing, it is requested after a moment."""
        if ordering.graph.has_missing() or len(self.assembly):
            p = self._parameters
            usual_us = min(2 * self._answer_us, p.answers_us) if self._requested else 0
            wait_us = max(p.nak_us << min(self._tries, BACK_OFF_MAX), usual_us)
            self._outgoing.arm_within(Timer.NAK, wait_us, out)
        elif self._tries:
            self._tries, self._requested = 0, []

    def ask(self, ordering: Ordering, out: list[Effect]) -> None:
        by_holder: dict[
            int, tuple[list[tuple[int, int, int]], list[tuple[int, int, int, int]]]
        ] = {}
        parts = [gap for gap in self.assembly.gaps() if self._is_wanted(ordering, *gap[:2])]
        absent = [
            (rank, start, end)
            for rank, first, last in ordering.graph.missing(RANGES_MAX)
            for start, end in self._without_incoming(rank, first, last)
        ]
        for each in absent[:RANGES_MAX]:
            holder = self._holder(each[0], each[2])
            if holder is not None:
                by_holder.setdefault(holder, ([], []))[0].append(each)
        for gap in parts[:RANGES_MAX]:
            holder = self._holder(gap[0], gap[1])
            if holder is not None:
                by_holder.setdefault(holder, ([], []))[1].append(gap)
        life = self._local.configuration.life
        if by_holder:
            self._congestion.lost(ordering.graph)
        for holder, (ranges, gaps) in by_holder.items():
            self._codec.count("nak", len(ranges) + len(gaps))
            nak = VertexNak(life, self._local.key, tuple(ranges), tuple(gaps))
            self._outgoing.send([nak], out, (self._local.address(holder),), life)
        asked = by_holder.values()
        self._requested = [each for ranges, _ in asked for each in ranges]
        self._requested += [(rank, at, at) for _, gaps in asked for rank, at, _, _ in gaps]
        self._tries += 1
        self._asked_us = self._local.now_us

    def _is_wanted(self, ordering: Ordering, rank: int, index: int) -> bool:
        if ordering.graph.get(rank, index) is None and index > ordering.graph.acks()[rank]:
            return True
        self.assembly.forget(rank, index)
        return False

    def _without_incoming(self, rank: int, first: int, last: int) -> list[tuple[int, int]]:
        """The range without vertices of which some packets are here."""
        found: list[tuple[int, int]] = []
        start = first
        for index in self.assembly.indices(rank, first, last):
            if start < index:
                found.append((start, index - 1))
            start = index + 1
        if start <= last:
            found.append((start, last))
        return found

    def _holder(self, rank: int, index: int) -> int | None:
        """The member to ask: its sender first, then the others in turn."""
        me, size = self._local.rank, len(self._local.keys)
        turn = [(rank + step) % size for step in range(size)]
        if self._holders:
            found = [
                each
                for each in turn
                if each != me and each in self._holders and self._holders[each][rank] >= index
            ] or [each for each in turn if each != me and each in self._holders]
        else:
            found = [each for each in turn if each != me]
            if len(found) > 1 and self._is_quiet(found[0]):
                found = found[1:]
        return found[self._tries % len(found)] if found else None

    # -- answers ----------------------------------------------------------------------------------

    def answer(self, ordering: Ordering, packet: VertexNak, out: list[Effect]) -> None:
        configuration = self._local.configuration
        if packet.sender not in self._local.keys or packet.sender == self._local.key:
            self._codec.drop("stranger")
            return
        self._congestion.lost(ordering.graph)
        to = (self._local.address(configuration.rank(packet.sender)),)
        wanted = [
            (rank, index, 0, WHOLE)
            for rank, first, last in packet.ranges
            for index in range(first, min(last, first + ANSWER_PACKETS_MAX) + 1)
        ]
        left, size = self._congestion.burst_packets(self.piece_bytes), len(self._local.keys)
        left = min(left, ANSWER_PACKETS_MAX)
        for rank, index, first, last in (*packet.parts, *wanted):
            vertex = ordering.graph.get(rank, index) if rank < size else None
            if vertex is None:
                continue
            turn = turn_of(vertex, self._local.rank, self.piece_bytes)
            indices = range(first, min(last + 1, turn.count))
            if indices:
                sent = self._outgoing.send_vertex(configuration.life, turn, out, to, indices)
                self._codec.count("repair", sent)
                left -= sent
                if left <= 0:
                    return

    def holders(self) -> Collection[int]:
        return self._holders
