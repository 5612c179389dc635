"""What one member knows of itself, shared by the parts that work on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unisono.core import EVERYONE, Arm, Disarm, Effect, Fail, Send, Target
from unisono.model import Address, Burst, Member
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.parts.identity import key_of
from unisono.parts.turn import Turn
from unisono.protocols.transis.configuration import NOWHERE, Configuration
from unisono.protocols.transis.packets import FRONT, HEAD_BYTES, PACKETS, PROTOCOL, VERTEX
from unisono.protocols.transis.states import Timer
from unisono.wire import seal_batch


class LocalMember:
    """One member: its configuration, and whether it wants to leave."""

    def __init__(self, me: Member, clock: CoreClock) -> None:
        self.me = me
        self.key = key_of(me)
        self.clock = clock
        self.configuration: Configuration = NOWHERE
        self.rank = 0
        self.keys: tuple[int, ...] = ()
        """Of the configuration's members, by rank."""
        self.leaving = False
        self.verdict: Fail | None = None
        self.source = me.address
        """Of the packets at hand."""

    @property
    def now_us(self) -> int:
        return self.clock.now_us

    def enter(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.keys = configuration.keys
        self.rank = self.keys.index(self.key)

    def leave(self) -> None:
        """The application leaves."""
        self.leaving = True

    def stop(self, fail: Fail) -> None:
        if self.verdict is None:
            self.verdict = fail

    def receive_from(self, source: Address) -> None:
        self.source = source

    def address(self, rank: int) -> Address:
        return self.configuration.members[rank].address


class PacketSender:
    """Seals packets and arms timers."""

    def __init__(self, codec: PacketCodec, clock: CoreClock) -> None:
        self._codec = codec
        self._clock = clock
        self._deadlines: dict[Timer, int] = {}

    def send(self, packets: Iterable[Any], out: list[Effect], to: Target, life: int = 0) -> None:
        sealed = PACKETS.sealed(self._codec, packets, life)
        if sealed and to != ():
            out.append(Send(to, sealed))

    def send_vertex(
        self,
        life: int,
        vertex: Turn,
        out: list[Effect],
        to: Target = EVERYONE,
        indices: range | None = None,
    ) -> int:
        """The packets of a vertex, or some of them, as one burst: only the last may be shorter.
        Returns how many they are."""
        which = range(vertex.count) if indices is None else indices
        pieces: Sequence[bytes] = vertex.pieces(which)
        head = FRONT.pack(vertex.holder, vertex.s, vertex.count, vertex.flags, 0)[:HEAD_BYTES]
        self._codec.sent(VERTEX, len(pieces))
        even = len(pieces) - (len(pieces) > 1 and len(pieces[-1]) != len(pieces[0]))
        trains = [
            seal_batch(PROTOCOL, VERTEX, self._codec.group, life, head, row, first)
            for row, first in ((pieces[:even], which.start), (pieces[even:], which.start + even))
            if row
        ]
        burst = Burst(memoryview(b"".join(trains)), len(trains[0]) // even)
        out.append(Send(to, burst))
        return len(pieces)

    # -- timers -----------------------------------------------------------------------------------

    def expired(self, timer: Timer) -> None:
        self._deadlines.pop(timer, None)

    def arm(self, timer: Timer, after_us: int, out: list[Effect]) -> None:
        self._deadlines[timer] = self._clock.now_us + after_us
        out.append(Arm(timer, after_us))

    def arm_within(self, timer: Timer, after_us: int, out: list[Effect]) -> None:
        """Unless it expires sooner."""
        deadline_us = self._deadlines.get(timer)
        if deadline_us is None or deadline_us > self._clock.now_us + after_us:
            self.arm(timer, after_us, out)

    def disarm(self, timer: Timer, out: list[Effect]) -> None:
        if self._deadlines.pop(timer, None) is not None:
            out.append(Disarm(timer))
