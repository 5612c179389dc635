"""Answers on their way to callers by datagram: packed, acknowledged, retransmitted, bounded.

Answers need no order among each other and callers ignore repeated ones, so each datagram is
acknowledged by itself. Those of an answer that is no longer awaited are dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from unisono.model import Address, Member
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    DATAGRAM_BYTES_MAX,
    PIECES_MAX,
    RECORD_BYTES,
    AckPacket,
    AnswerRecord,
    answer_packet,
    failure_record,
    pieces_of,
)
from unisono.services.calls.result import CallFailure, Reason

WINDOW_COUNT: Final = 64
"""Datagrams to one caller that are sent and not acknowledged."""
RTO_US: Final = 50_000
RTO_LEAST_US: Final = 25_000
RTO_MOST_US: Final = 1_000_000

Datagrams: TypeAlias = list[tuple[Address, bytes]]


@dataclass(slots=True)
class _Datagram:
    packet: bytes
    expires_us: int
    sent_us: int = 0
    retransmitted: bool = False


@dataclass(slots=True)
class _Link:
    """The way to one caller."""

    to: Address
    token: int
    sender: Member
    records: list[tuple[AnswerRecord, int]] = field(default_factory=list)
    """To be packed, with the time at which each expires."""
    queue: deque[tuple[int, _Datagram]] = field(default_factory=deque)
    """Packed, and beyond the window."""
    in_flight: dict[int, _Datagram] = field(default_factory=dict)
    """By number, the least recently sent first."""
    nbytes: int = 0
    """Of all of these."""
    srtt_us: int = 0
    rttvar_us: int = 0
    backoff: int = 1

    @property
    def rto_us(self) -> int:
        """As TCP's [RFC 6298], with a shorter least."""
        if not self.srtt_us:
            rto_us = RTO_US
        else:
            rto_us = max(RTO_LEAST_US, self.srtt_us + 4 * self.rttvar_us)
        return min(rto_us * self.backoff, RTO_MOST_US)

    def measured(self, rtt_us: int) -> None:
        if not self.srtt_us:
            self.srtt_us, self.rttvar_us = max(1, rtt_us), rtt_us // 2
        else:
            self.rttvar_us += (abs(self.srtt_us - rtt_us) - self.rttvar_us) // 4
            self.srtt_us = max(1, self.srtt_us + (rtt_us - self.srtt_us) // 8)
        self.backoff = 1

    @property
    def idle(self) -> bool:
        return not (self.records or self.queue or self.in_flight)


class ReplySender:
    """One link for each caller."""

    def __init__(self, limits: RpcLimits, counts: Counter[str]) -> None:
        self._limits = limits
        self._counts = counts
        self._links: dict[tuple[int, Member], _Link] = {}
        self._ready: dict[tuple[int, Member], _Link] = {}
        """Links with records to pack."""
        self._number = 0
        """Of the last datagram. One count for all links, so that a late acknowledgment never meets
        a later datagram."""

    def post(
        self, to: Address, token: int, sender: Member, record: AnswerRecord, expires_us: int
    ) -> None:
        """Send the record with the next `flush`."""
        key = token, sender
        link = self._links.get(key)
        if link is None:
            if not self._has_capacity():
                self._counts["drop.reply_links"] += 1
                return
            link = self._links[key] = _Link(to, token, sender)
        over = link.nbytes + len(record.body) - self._limits.reply_bytes_max
        if over > 0 and link.nbytes:
            text = f"reply_bytes_max={self._limits.reply_bytes_max} bytes are unacknowledged"
            record = failure_record(record.call, CallFailure(Reason.BUSY, text))
            if over > self._limits.reply_bytes_max:
                self._counts["drop.reply_bytes"] += 1
                return
        link.records.append((record, expires_us))
        link.nbytes += len(record.body) + RECORD_BYTES
        self._ready[key] = link

    def _has_capacity(self) -> bool:
        """An idle link knows the round-trip time: it is kept until another needs its place."""
        if len(self._links) < self._limits.links_count_max:
            return True
        idle = next((key for key, link in self._links.items() if link.idle), None)
        if idle is None:
            return False
        del self._links[idle]
        return True

    def flush(self, now_us: int) -> Datagrams:
        """Pack what was posted, and send what the window allows: answers to a burst of calls share
        datagrams."""
        sent: Datagrams = []
        for link in self._ready.values():
            self._pack(link)
            self._fill(link, now_us, sent)
        self._ready.clear()
        return sent

    def _pack(self, link: _Link) -> None:
        capacity = DATAGRAM_BYTES_MAX - len(answer_packet(link.token, 0, link.sender, []))
        packed: list[AnswerRecord] = []
        nbytes = expires_us = 0
        bytes_max = PIECES_MAX * (capacity - RECORD_BYTES)
        for whole, expires in link.records:
            link.nbytes -= len(whole.body) + RECORD_BYTES
            if len(whole.body) > bytes_max:
                text = (
                    f"the answer has {len(whole.body)} bytes: {PIECES_MAX} pieces hold {bytes_max}"
                )
                whole = failure_record(whole.call, CallFailure(Reason.TOO_LARGE, text))
            for record in pieces_of(whole, capacity - RECORD_BYTES):
                size = len(record.body) + RECORD_BYTES
                if packed and nbytes + size > capacity:
                    self._seal(link, packed, expires_us)
                    packed, nbytes, expires_us = [], 0, 0
                packed.append(record)
                nbytes += size
                expires_us = max(expires_us, expires)
        if packed:
            self._seal(link, packed, expires_us)
        link.records.clear()

    def _seal(self, link: _Link, records: list[AnswerRecord], expires_us: int) -> None:
        self._number = (self._number + 1) & 0xFFFFFFFF
        packet = answer_packet(link.token, self._number, link.sender, records)
        link.queue.append((self._number, _Datagram(packet, expires_us)))
        link.nbytes += len(packet)

    def _fill(self, link: _Link, now_us: int, sent: Datagrams) -> None:
        while link.queue and len(link.in_flight) < WINDOW_COUNT:
            number, datagram = link.queue.popleft()
            if datagram.expires_us <= now_us:
                link.nbytes -= len(datagram.packet)
                self._counts["drop.reply_expired"] += 1
                continue
            datagram.sent_us = now_us
            link.in_flight[number] = datagram
            sent.append((link.to, datagram.packet))
            self._counts["out.answers"] += 1

    def acknowledge(self, ack: AckPacket, now_us: int) -> Datagrams:
        link = self._links.get((ack.token, ack.sender))
        sent: Datagrams = []
        if link is None:
            self._counts["drop.ack"] += 1
            return sent
        for number in ack.numbers:
            datagram = link.in_flight.pop(number, None)
            if datagram is None:
                continue
            link.nbytes -= len(datagram.packet)
            if not datagram.retransmitted:  # Karn: else it is not known what was acknowledged.
                link.measured(now_us - datagram.sent_us)
        self._fill(link, now_us, sent)
        return sent

    @property
    def in_flight(self) -> bool:
        """Whether answers are sent or queued that are not acknowledged."""
        return any(not link.idle for link in self._links.values())

    def next_us(self) -> int | None:
        """When to call `retransmit`."""
        oldest = (
            next(iter(link.in_flight.values())).sent_us + link.rto_us
            for link in self._links.values()
            if link.in_flight
        )
        return min(oldest, default=None)

    def retransmit(self, now_us: int) -> Datagrams:
        sent: Datagrams = []
        for link in self._links.values():
            before, rto_us = len(sent), link.rto_us
            for number, datagram in list(link.in_flight.items()):
                if datagram.sent_us + rto_us > now_us:
                    break
                del link.in_flight[number]
                if datagram.expires_us <= now_us:
                    link.nbytes -= len(datagram.packet)
                    self._counts["drop.reply_expired"] += 1
                    continue
                datagram.sent_us, datagram.retransmitted = now_us, True
                link.in_flight[number] = datagram
                sent.append((link.to, datagram.packet))
                self._counts["repair"] += 1
            if len(sent) > before:
                link.backoff = min(link.backoff * 2, 64)
            self._fill(link, now_us, sent)
        return sent
