"""What this site has to send: messages become blocks, as fast as flow control permits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from unisono.core import CoreConfig
from unisono.model import Buffer, Resilient, Service, ServiceLevel
from unisono.parts.message_queue import MessageQueue, group_of
from unisono.parts.turn import (
    COUNT_MAX,
    LENGTH_BYTES,
    ROW_BYTES,
    RUN_BYTES,
    OriginRun,
    Turn,
    write_runs,
)
from unisono.protocols.rmp.contents import CONTROL
from unisono.protocols.rmp.data_packets import (
    AFTER_BYTES,
    BLOCK_HEAD,
    BLOCK_HEAD_BYTES,
    PIECE_AT,
    UNIFORM_COUNT_MAX,
)
from unisono.protocols.rmp.flow import CongestionWindow, RetransmissionTimer
from unisono.wire import ENVELOPE_BYTES

SMALL_FLIGHTS_MAX: Final = 8
"""Blocks under way beyond which only full ones are sent: in a busy group messages share blocks."""
RESILIENCE_SHIFT: Final = 3
RESILIENCE_BASE: Final = 3
"""Above the least k, so that none is negative."""


@dataclass(slots=True)
class BlockFlight:
    """A block that no ACK has named yet."""

    number: int
    nbytes: int
    sent_us: int
    again: bool = False


class UniformRun(NamedTuple):
    """Messages of one length in a row, so many in a packet."""

    first: int
    length: int
    times: int
    data: bytes


class SendQueue:
    """The messages of this site, from the application to the network."""

    def __init__(self, setting: CoreConfig, key: int, block_packets: int, rto_max_us: int) -> None:
        self._key = key
        self._window_bytes = setting.window_bytes_max
        self.piece_bytes = setting.packet_bytes_max - ENVELOPE_BYTES - PIECE_AT
        self._block_bytes = block_packets * self.piece_bytes
        self._waiting = MessageQueue()
        self._control: deque[bytes] = deque()
        self.block = 0
        """The last block that was made."""
        self._flights: deque[BlockFlight] = deque()
        self._flight_bytes = 0
        self._unstable: deque[tuple[int, int]] = deque()
        """Blocks that not every site holds, with their cost."""
        self._unstable_bytes = 0
        self._acked_us = 0
        self._sources = 0
        self._timer = RetransmissionTimer(rto_max_us)
        self._congestion = CongestionWindow(setting.packet_bytes_max, setting.window_bytes_max)

    # -- what the application sends ---------------------------------------------------------------

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self._waiting.nbytes - self._unstable_bytes)

    def put(self, messages: Sequence[bytes], service: ServiceLevel) -> None:
        if isinstance(service, Resilient):
            code = Service.SAFE | (service.k + RESILIENCE_BASE) << RESILIENCE_SHIFT
        else:
            code = int(service)
        self._waiting.put(messages, code)

    def request(self, change: bytes) -> None:
        """A change of the group's state, in the order."""
        self._control.append(change)

    def is_empty(self) -> bool:
        return not self._waiting and not self._control

    # -- blocks -----------------------------------------------------------------------------------

    def next_block(self, now_us: int, sources: int, after: int) -> Turn | None:
        """The next block that may be sent now, by one of so many sources, after this slot."""
        if not self._waiting and not self._control:
            return None
        if sources != self._sources:
            self._sources = sources
            self._congestion.share(sources)
        if self._control:
            if self._flight_bytes >= self._congestion.nbytes:
                return None
            return self.request_block(self._control.popleft(), now_us, after)
        service, limit = self._waiting.pending[0].service, self._limit()
        if service == Service.UNRELIABLE or not limit:
            return None
        run = self._gather(limit)
        coded = service >> RESILIENCE_SHIFT
        return self._block(run, coded - RESILIENCE_BASE if coded else 0, now_us, after)

    def _limit(self) -> int:
        """How large the next block may be; 0: it has to wait. None is smaller than it has to be."""
        allowed = min(self._block_bytes, self._congestion.nbytes - self._flight_bytes)
        if not self._flights:
            return max(allowed, self.piece_bytes)
        waiting = min(self._waiting.nbytes, self._block_bytes)
        if allowed < waiting:
            return 0
        if waiting < self._block_bytes and len(self._flights) >= SMALL_FLIGHTS_MAX:
            return 0
        return allowed

    def request_block(self, change: bytes, now_us: int, after: int) -> Turn:
        """A block with this change of the group's state alone."""
        return self._block(OriginRun.of(self._key, 0, (CONTROL,), (change,)), 0, now_us, after)

    def _block(self, run: OriginRun, resilience: int, now_us: int, after: int) -> Turn:
        content = write_runs([run], BLOCK_HEAD.pack(after))
        self.block += 1
        self._flights.append(BlockFlight(self.block, len(content), now_us))
        self._flight_bytes += len(content)
        self._unstable.append((self.block, len(content)))
        self._unstable_bytes += len(content)
        return Turn(self.block, self._key, resilience, content, self.piece_bytes)

    def next_uniform(self) -> UniformRun | None:
        """Unreliable messages of one length that are next, if they fill several packets: those
        share a front, and are sealed and read together."""
        head = self._waiting.pending[0] if self._waiting else None
        if head is None or head.service != Service.UNRELIABLE or head.length < 1:
            return None
        times = (self.piece_bytes - AFTER_BYTES) // head.length
        packets = min(UNIFORM_COUNT_MAX, len(head.messages) // times if times else 0)
        if packets < 2:
            return None
        first, count = self._waiting.sent + 1, packets * times
        data = b"".join(head.messages[:count])
        self._waiting.remove(count)
        return UniformRun(first, head.length, times, data)

    def next_best_effort(self) -> OriginRun | None:
        """Unreliable messages that are next, as many as fit a packet: they go in no block. One that
        does not fit a packet is sent reliably."""
        head = self._waiting.pending[0] if self._waiting else None
        if head is None or head.service != Service.UNRELIABLE:
            return None
        room = self.piece_bytes - 2 - RUN_BYTES - ROW_BYTES
        fit = head.fit(room, COUNT_MAX, LENGTH_BYTES)
        if not fit:
            self._waiting.change_head(int(Service.RELIABLE))
            return None
        pieces: list[Buffer] = []
        # What a receiver has of them, it delivers at once, as reliable ones.
        group = group_of(head, fit, int(Service.RELIABLE), pieces)
        run = OriginRun(self._key, self._waiting.sent + 1, (group,), pieces)
        self._waiting.remove(fit)
        return run

    def _gather(self, nbytes: int) -> OriginRun:
        """As much of the queue as fits, of one resilience."""
        waiting = self._waiting
        first, resilience = waiting.sent + 1, waiting.pending[0].service >> RESILIENCE_SHIFT

        def takes(service: int) -> bool:
            return service >> RESILIENCE_SHIFT == resilience and service != Service.UNRELIABLE

        room = nbytes - BLOCK_HEAD_BYTES - 2 - RUN_BYTES
        return OriginRun(self._key, first, *waiting.gather(room, self.piece_bytes // 4, takes))

    # -- what becomes of them ---------------------------------------------------------------------

    def acknowledged(self, upto: int, now_us: int) -> None:
        """An ACK has named our blocks up to this one."""
        self._acked_us = now_us
        while self._flights and self._flights[0].number <= upto:
            flight = self._flights.popleft()
            self._flight_bytes -= flight.nbytes
            self._congestion.acknowledged(flight.nbytes)
            if not flight.again:
                self._timer.measure(now_us - flight.sent_us)

    def stable(self, upto: int) -> None:
        """Every site holds our blocks up to this one."""
        while self._unstable and self._unstable[0][0] <= upto:
            self._unstable_bytes -= self._unstable.popleft()[1]

    def lost(self, number: int) -> None:
        """Somebody asks for a block of ours again."""
        for flight in self._flights:
            if flight.number == number:
                flight.again = True
                self._congestion.lost(number, self.block)

    def has_flights(self) -> bool:
        return bool(self._flights)

    def due_us(self) -> int:
        """When what is under way counts as lost: a period after it was sent, or after the last ACK
        that named something of ours [RFC 6298, 5.3]."""
        return max(self._flights[0].sent_us, self._acked_us) + self._timer.period_us()

    def unacknowledged(self, count_max: int) -> list[int]:
        """The first blocks that no ACK has named."""
        return [flight.number for flight in islice(self._flights, count_max)]

    def timed_out(self, now_us: int) -> None:
        self._acked_us = now_us
        self._timer.back_off()
        self._congestion.timed_out(self.block)
        for flight in self._flights:
            flight.again = True
