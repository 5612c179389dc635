"""How answers reach their caller alone: by datagram, or through the daemons.

Members reply from a socket of their own, beside the group's protocol. Clients of daemons may be
unreachable but for their daemon, so they reply with a message to a group that only the caller is
in.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import unisono
from unisono.errors import BadPacket, Misuse, TooLarge, UnisonoError
from unisono.group import Group
from unisono.model import Address, Member, Message, ServiceLevel
from unisono.services.calls.limits import RpcLimits
from unisono.services.calls.messages import (
    AckPacket,
    AnswerPacket,
    AnswerRecord,
    CallHead,
    ack_packet,
    answer_packet,
    bundles_of,
    failure_record,
    read_datagram,
)
from unisono.services.calls.reply_sender import ReplySender
from unisono.services.calls.result import CallFailure, Reason
from unisono.services.calls.table import CallTable

ACK_DELAY_S: Final = 0.005
"""Acknowledgments wait for others to the same member, but not as long as a retransmission."""
DRAIN_S: Final = 1.0
BUNDLE_BYTES: Final = 16 << 10
"""Answers to one caller that share a message through daemons."""
ACK_COUNT_MAX: Final = 32
"""This many are sent at once: fewer than a member's window."""


def now_us() -> int:
    """The event loop's time."""
    return int(asyncio.get_running_loop().time() * 1_000_000)


class ReplyPath(Protocol):
    """Sends answers of this process, and receives those for its own calls."""

    @property
    def reply_to(self) -> Address | None: ...

    @property
    def reply_group(self) -> str: ...

    async def open(self) -> None:
        """From here on, answers reach `reply_to` or `reply_group`. Idempotent."""

    def post(self, head: CallHead, sender: Member, record: AnswerRecord, expires_us: int) -> None:
        """Send at the end of this turn of the event loop."""

    async def drain(self) -> None:
        """Wait a moment for the last answers to arrive."""

    async def close(self) -> None: ...


class DatagramReplies(asyncio.DatagramProtocol):
    """A UDP socket on the member's host, opened when it is first needed."""

    reply_group = ""

    def __init__(
        self, host: Callable[[], str], table: CallTable, limits: RpcLimits, counts: Counter[str]
    ) -> None:
        self.reply_to: Address | None = None
        self._host = host
        self._table = table
        self._counts = counts
        self._sender = ReplySender(limits, counts)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.DatagramTransport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._error = ""
        self._flushing = False
        self._alarm: asyncio.TimerHandle | None = None
        self._ack_alarm: asyncio.TimerHandle | None = None
        self._acks: dict[tuple[Address, Member], list[int]] = {}
        self._closed = False

    async def open(self) -> None:
        if self._transport is None:
            await asyncio.shield(self._begin())
            if self._transport is None:
                raise Misuse(
                    f"no UDP socket for answers ({self._error}): calls need a free port on"
                    f" {self._host()}"
                )

    def _begin(self) -> asyncio.Task[None]:
        if self._opening is None or self._opening.done():
            self._opening = self._loop.create_task(self._open())
        return self._opening

    async def _open(self) -> None:
        host = self._host()
        wildcard = "::" if ":" in host else "0.0.0.0"
        try:
            try:
                transport = await self._bound(host)
            except OSError:  # Others reach us at an address that is none of this machine.
                transport = await self._bound(wildcard)
        except OSError as error:
            self._error = str(error)
            self._counts["drop.reply_socket"] += 1
            return
        if self._closed:
            transport.close()
            return
        self._transport = transport
        self.reply_to = Address(host, transport.get_extra_info("sockname")[1])
        self._flush()

    async def _bound(self, host: str) -> asyncio.DatagramTransport:
        transport, _ = await self._loop.create_datagram_endpoint(lambda: self, local_addr=(host, 0))
        return transport

    # -- answers of this process ----------------------------------------------------------------

    def post(self, head: CallHead, sender: Member, record: AnswerRecord, expires_us: int) -> None:
        if head.reply_to is None:
            self._counts["drop.reply_to"] += 1
            return
        self._sender.post(head.reply_to, head.token, sender, record, expires_us)
        if self._transport is None:
            self._begin()
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None:
            return
        self._send(self._sender.flush(now_us()))

    def _send(self, datagrams: list[tuple[Address, bytes]]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        for to, packet in datagrams:
            self._transport.sendto(packet, to)
        next_us = self._sender.next_us()
        if next_us is not None and self._alarm is None:
            # A little later, so that no rounding lets it find nothing to do.
            self._alarm = self._loop.call_at(next_us / 1e6 + 0.001, self._retransmit)

    def _retransmit(self) -> None:
        self._alarm = None
        self._send(self._sender.retransmit(now_us()))

    # -- answers to calls of this process -------------------------------------------------------

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        try:
            packet = read_datagram(data)
        except BadPacket as error:
            self._counts[f"drop.{error.reason}"] += 1
            return
        if isinstance(packet, AckPacket):
            self._send(self._sender.acknowledge(packet, now_us()))
        elif self._table.receive(packet):
            self._counts["in.answers"] += 1
            numbers = self._acks.setdefault((Address(*addr[:2]), packet.sender), [])
            numbers.append(packet.number)
            if len(numbers) >= ACK_COUNT_MAX:
                self._acknowledge()
            elif self._ack_alarm is None:
                self._ack_alarm = self._loop.call_later(ACK_DELAY_S, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._ack_alarm is not None:
            self._ack_alarm.cancel()
            self._ack_alarm = None
        if self._transport is not None and not self._transport.is_closing():
            for (to, member), numbers in self._acks.items():
                self._transport.sendto(ack_packet(self._table.token, member, numbers), to)
        self._acks.clear()

    def error_received(self, error: Exception) -> None:
        self._counts["drop.refused"] += 1

    async def drain(self) -> None:
        """Give callers a moment to acknowledge the last answers."""
        self._flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while self._transport is not None and self._sender.in_flight:
                    await asyncio.sleep(ACK_DELAY_S)

    async def close(self) -> None:
        self._closed = True
        self._acknowledge()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._transport is not None:
            self._transport.close()


class DaemonReplies:
    """Answers as messages to the caller's own group at the daemons: reliable, packed by them."""

    reply_to: Final = None

    def __init__(
        self,
        daemon: str,
        name: str,
        sending: Callable[[], tuple[Group, ServiceLevel]],
        table: CallTable,
        counts: Counter[str],
    ) -> None:
        """`sending` is the group that answers are sent through, and their level."""
        self.reply_group = f"reply.{secrets.token_hex(12)}"
        self.inbox: Group | None = None
        self._daemon, self._name = daemon, name
        self._sending = sending
        self._table = table
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._posted: dict[tuple[str, int, Member], list[AnswerRecord]] = {}

    async def open(self) -> None:
        if self.inbox is None:
            if self._opening is None or self._opening.done():
                self._opening = self._loop.create_task(self._open())
            await asyncio.shield(self._opening)

    async def _open(self) -> None:
        joining = unisono.join(self.reply_group, daemon=self._daemon, name=self._name, rejoin=True)
        self.inbox = await joining
        self._reading = self._loop.create_task(self._read(self.inbox))

    async def _read(self, inbox: Group) -> None:
        with contextlib.suppress(UnisonoError):
            async for item in inbox:
                if isinstance(item, Message):
                    self._receive(item.payload)

    def _receive(self, payload: bytes) -> None:
        try:
            packet = read_datagram(payload)
        except BadPacket as error:
            self._counts[f"drop.{error.reason}"] += 1
            return
        if isinstance(packet, AnswerPacket):
            self._counts["in.answers"] += 1
            self._table.receive(packet)

    def post(self, head: CallHead, sender: Member, record: AnswerRecord, expires_us: int) -> None:
        if not head.reply_group:
            self._counts["drop.reply_to"] += 1
            return
        if not self._posted:
            self._loop.call_soon(self._flush)
        self._posted.setdefault((head.reply_group, head.token, sender), []).append(record)

    def _flush(self) -> None:
        group, level = self._sending()
        posted, self._posted = self._posted, {}
        for (to, token, sender), records in posted.items():
            for bundle in bundles_of(records, BUNDLE_BYTES):
                try:
                    self._send(group, level, to, token, sender, bundle)
                except TooLarge as error:  # It is a record alone, since bundles are small.
                    failure = CallFailure(Reason.TOO_LARGE, str(error))
                    report = [failure_record(record.call, failure) for record in bundle]
                    self._send(group, level, to, token, sender, report)
                except UnisonoError:
                    self._counts["drop.reply"] += 1

    def _send(
        self,
        group: Group,
        level: ServiceLevel,
        to: str,
        token: int,
        sender: Member,
        records: list[AnswerRecord],
    ) -> None:
        """Not awaited: it keeps its place, and is bounded, in the group's send queue."""
        group.multicast(answer_packet(token, 0, sender, records), level, to)
        self._counts["out.answers"] += 1

    async def drain(self) -> None:
        """What was sent is the group's to deliver before it is left."""
        self._flush()

    async def close(self) -> None:
        for task in (self._opening, self._reading):
            if task is not None:
                task.cancel()
        if self.inbox is not None:
            await self.inbox.leave()
