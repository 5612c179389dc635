"""QSUB, and what a holder makes of its turn.

[RNG-2] One ordered multicast a turn. [RNG-3] NULL when there is nothing. [RNG-4] What others asked
the holder to say for them goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.core import Setting
from unisono.errors import BadPacket
from unisono.model import Buffer, Service, ServiceLevel
from unisono.protocols.ring.packets import HEADER_OCTETS, TURN_OCTETS, Delegate
from unisono.protocols.ring.turn import (
    COUNT_MAX,
    GOES_ON,
    MORE,
    ROW_OCTETS,
    RUN_OCTETS,
    RUNS_MAX,
    SERVICE,
    Run,
    read_runs,
    write_runs,
)
from unisono.wire import ENVELOPE_OCTETS

MESSAGE_OCTETS: Final = 32
"""What a message costs beside its payload, in the window."""
DELEGATES_MAX: Final = 64
BURST_MIN: Final = 4
"""Packets that a turn may always have."""


class Speech:
    """What one member has to say, and what it was asked to say for others."""

    def __init__(self, setting: Setting, key: int, burst_max: int) -> None:
        self._key = key
        self._window_octets = setting.window_octets_max
        self.piece_octets = (
            setting.packet_octets_max - ENVELOPE_OCTETS - HEADER_OCTETS - TURN_OCTETS
        )
        """Of a turn, in one packet."""
        self._queue: deque[tuple[bytes, int]] = deque()
        self._queue_octets = 0
        self.ordered = 0
        """Our messages that have their place: the number of the last one. The queue's head is the
        next."""
        self._offset = 0
        """Of the queue's head, what was said in pieces."""
        self._flight: deque[tuple[int, int]] = deque()
        """Turns of ours that not everyone has, with what they cost."""
        self._flight_octets = 0
        self._said_octets = 0
        """Of our messages, what the turn at hand has placed."""
        self._delegates: deque[Run] = deque()
        self._burst_max = burst_max
        self.burst = min(burst_max, 32)
        """Packets of a turn, as many as get through."""
        self._was_lost = False
        """Some of the last were asked for again."""

    # -- what is said ----------------------------------------------------------------------------

    def room(self) -> int:
        return max(0, self._window_octets - self._queue_octets - self._flight_octets)

    def say(self, messages: Sequence[bytes], service: ServiceLevel) -> None:
        level = int(service) if isinstance(service, Service) else int(Service.AGREED)
        for payload in messages:
            self._queue.append((payload, level))
            self._queue_octets += len(payload) + MESSAGE_OCTETS

    def has_own(self) -> bool:
        return bool(self._queue)

    def has_any(self) -> bool:
        return bool(self._queue or self._delegates)

    def is_settled(self) -> bool:
        """Everything of ours is ordered, and everyone has it."""
        return not self._queue and not self._flight

    # -- for others, and by others ---------------------------------------------------------------

    def delegate(self) -> bytes:
        """[RNG-4] The head of the queue as far as it fits one packet, for the holder; empty is only
        a wish for the token. It stays in the queue until it is seen in the order."""
        room = self.piece_octets - 2 - RUN_OCTETS
        pieces: list[bytes] = []
        marks: list[int] = []
        if not self._offset:
            for payload, service in self._queue:
                room -= len(payload) + ROW_OCTETS
                if room < 0 or len(pieces) >= COUNT_MAX:
                    break
                pieces.append(payload)
                marks.append(service)
        if not pieces:
            return b""
        return b"".join(write_runs([Run(self._key, self.ordered + 1, marks, pieces)]))

    def entrust(self, packet: Delegate) -> None:
        """Somebody asks us to multicast for it; raises `BadPacket`."""
        runs = read_runs(packet.piece)
        if len(runs) > 1 or any(run.origin != packet.header.sender for run in runs):
            raise BadPacket("malformed")
        self._delegates.extend(runs)
        while len(self._delegates) > DELEGATES_MAX:
            self._delegates.popleft()

    # -- a turn ----------------------------------------------------------------------------------

    def gather(self) -> tuple[list[Buffer], bool, bool]:
        """The content of our turn; whether something in it must be safe; whether more waits."""
        # Deviates [RNG Ordered]: all that has gathered is one turn, up to `turn_packets` packets of
        # many messages. The paper's turn is one message.
        if not self._was_lost:
            self.burst = min(self._burst_max, self.burst + max(1, self.burst // 8))
        self._was_lost = False
        room = self.burst * self.piece_octets - 2
        runs: list[Run] = []
        own = room // 2 if self._queue else 0
        while self._delegates and len(runs) < RUNS_MAX - 1:
            if runs and self._delegates[0].octets > room - own:
                break
            run = self._delegates.popleft()
            room -= run.octets
            runs.append(run)
        mine = self._gather_own(room)
        if mine is not None:
            runs.append(mine)
        safe = any(mark & SERVICE == Service.SAFE for run in runs for mark in run.marks)
        return write_runs(runs), safe, bool(self._queue or self._delegates)

    def _gather_own(self, room: int) -> Run | None:
        """From the queue; what is whole has its place as soon as it is said."""
        queue, first = self._queue, self.ordered + 1
        pieces: list[Buffer] = []
        marks: list[int] = []
        room -= RUN_OCTETS
        least = self.piece_octets // 4
        while queue and len(pieces) < COUNT_MAX:
            payload, service = queue[0]
            rest = len(payload) - self._offset
            room -= ROW_OCTETS
            if rest <= room or (not rest and not pieces):
                mark = service | (GOES_ON if self._offset else 0)
                pieces.append(memoryview(payload)[self._offset :] if self._offset else payload)
                marks.append(mark)
                room -= rest
                self._settle_head()
                continue
            if room < least:
                break
            mark = service | MORE | (GOES_ON if self._offset else 0)
            pieces.append(memoryview(payload)[self._offset : self._offset + room])
            marks.append(mark)
            self._offset += room
            break
        return Run(self._key, first, marks, pieces) if pieces else None

    def _settle_head(self) -> None:
        payload, _ = self._queue.popleft()
        self._offset = 0
        self.ordered += 1
        cost = len(payload) + MESSAGE_OCTETS
        self._queue_octets -= cost
        self._flight_octets += cost
        self._said_octets += cost

    def said(self, s: int) -> None:
        """What was gathered is turn s."""
        if self._said_octets:
            self._flight.append((s, self._said_octets))
            self._said_octets = 0

    def heard(self, upto: int, s: int) -> None:
        """Somebody said it for us: our messages up to this number are in turn s."""
        while self._queue and self.ordered < upto:
            self._settle_head()
        self.said(s)

    def settle(self, safe: int) -> None:
        while self._flight and self._flight[0][0] <= safe:
            self._flight_octets -= self._flight.popleft()[1]

    def new_ring(self) -> None:
        """A large message that was not whole begins anew; what others entrusted they will ask of
        somebody again."""
        self._offset = 0
        self._delegates.clear()

    # -- pace ------------------------------------------------------------------------------------

    def lost(self) -> None:
        """Our turn did not get through: say less in one."""
        if not self._was_lost:
            self._was_lost = True
            self.burst = max(min(BURST_MIN, self._burst_max), self.burst * 3 // 4)
