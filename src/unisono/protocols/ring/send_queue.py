"""QSUB, and what a holder makes of its turn.

[RNG-2] One ordered multicast a turn. [RNG-3] NULL when there is nothing. [RNG-4] What others asked
the holder to say for them goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.core import CoreConfig
from unisono.errors import BadPacket
from unisono.model import Buffer, Service, ServiceLevel
from unisono.parts.pending import MESSAGE_BYTES, VARIED, Pending, enqueue
from unisono.protocols.ring.pacing import TurnPacing
from unisono.protocols.ring.packets import HEADER_BYTES, TURN_BYTES, Delegate
from unisono.protocols.ring.turn import (
    COUNT_MAX,
    DIFFER,
    GOES_ON,
    LENGTH_BYTES,
    MORE,
    ROW_BYTES,
    RUN_BYTES,
    RUNS_MAX,
    SERVICE,
    MessageGroup,
    OriginRun,
    read_runs,
    write_runs,
)
from unisono.wire import ENVELOPE_BYTES, numbers

DELEGATES_MAX: Final = 64


class SendQueue:
    """What one member has to say, and what it was asked to say for others."""

    def __init__(self, setting: CoreConfig, key: int, burst_max: int) -> None:
        self._key = key
        self.window_bytes = setting.window_bytes_max
        self.piece_bytes = setting.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - TURN_BYTES
        """Of a turn, in one packet."""
        self._queue: deque[Pending] = deque()
        self._queue_bytes = 0
        self.ordered = 0
        """Our messages that have their place: the number of the last one. The queue's head is the
        next."""
        self._offset = 0
        """Of the queue's head, what was said in pieces."""
        self._flight: deque[tuple[int, int]] = deque()
        """Turns of ours that not everyone has, with what they cost."""
        self._flight_bytes = 0
        self._said_bytes = 0
        """Of our messages, what the turn at hand has placed."""
        self._delegates: deque[OriginRun] = deque()
        self.pace = TurnPacing(burst_max)

    # -- what is said ----------------------------------------------------------------------------

    def send_credit(self) -> int:
        return max(0, self.window_bytes - self._queue_bytes - self._flight_bytes)

    def say(self, messages: Sequence[bytes], service: ServiceLevel) -> None:
        level = int(service) if isinstance(service, Service) else int(Service.AGREED)
        self._queue_bytes += enqueue(self._queue, messages, level)

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
        room, left = self.piece_bytes - 2 - RUN_BYTES, COUNT_MAX
        groups: list[MessageGroup] = []
        pieces: list[Buffer] = []
        for alike in () if self._offset else self._queue:
            room -= ROW_BYTES
            fit = alike.fit(room, left, LENGTH_BYTES)
            if fit:
                groups.append(_group(alike, fit, pieces))
                room -= groups[-1].octets
                left -= fit
            if fit < len(alike.messages):
                break
        if not groups:
            return b""
        return write_runs([OriginRun(self._key, self.ordered + 1, groups, pieces)])

    def entrust(self, packet: Delegate) -> None:
        """Somebody asks us to multicast for it; raises `BadPacket`."""
        runs = read_runs(packet.piece)
        if len(runs) > 1 or any(run.origin != packet.header.sender for run in runs):
            raise BadPacket("malformed")
        self._delegates.extend(runs)
        while len(self._delegates) > DELEGATES_MAX:
            self._delegates.popleft()

    # -- a turn ----------------------------------------------------------------------------------

    def gather(self) -> tuple[bytes, bool, bool]:
        """The content of our turn; whether something in it must be safe; whether more waits."""
        # Deviates [RNG Ordered]: all that has gathered is one turn, up to `turn_packets` packets of
        # many messages. The paper's turn is one message.
        room = self.pace.next() * self.piece_bytes - 2
        runs: list[OriginRun] = []
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
        marks = {group.mark & SERVICE for run in runs for group in run.groups}
        safe = int(Service.SAFE) in marks
        return write_runs(runs), safe, bool(self._queue or self._delegates)

    def _gather_own(self, room: int) -> OriginRun | None:
        """From the queue; what is whole has its place as soon as it is said."""
        first = self.ordered + 1
        groups: list[MessageGroup] = []
        pieces: list[Buffer] = []
        room -= RUN_BYTES
        least, left = self.piece_bytes // 4, COUNT_MAX
        while self._queue and left:
            room -= ROW_BYTES
            head, offset = self._queue[0], self._offset
            if offset:
                rest = memoryview(head.messages[0])[offset:]
                fit = int(len(rest) <= room)
            else:
                fit = head.fit(room, left, LENGTH_BYTES) or int(not head.length and not groups)
            if fit:
                if offset:
                    groups.append(MessageGroup(1, len(rest), head.service | GOES_ON))
                    pieces.append(rest)
                else:
                    groups.append(_group(head, fit, pieces))
                room -= groups[-1].octets
                left -= fit
                self._settle_heads(fit)
            elif room < least:
                break
            else:
                mark = head.service | MORE | (GOES_ON if offset else 0)
                groups.append(MessageGroup(1, room, mark))
                pieces.append(memoryview(head.messages[0])[offset : offset + room])
                self._offset += room
                break
        return OriginRun(self._key, first, groups, pieces) if groups else None

    def _settle_heads(self, count: int) -> None:
        """So many at the head of the queue, all alike, have their place."""
        head = self._queue[0]
        cost = head.octets(count) + count * MESSAGE_BYTES
        del head.messages[:count]
        if not head.messages:
            self._queue.popleft()
        self._offset = 0
        self.ordered += count
        self._queue_bytes -= cost
        self._flight_bytes += cost
        self._said_bytes += cost

    def said(self, s: int) -> None:
        """What was gathered is turn s."""
        if self._said_bytes:
            self._flight.append((s, self._said_bytes))
            self._said_bytes = 0

    def heard(self, upto: int, s: int) -> bool:
        """Somebody said it for us: our messages up to this number are in turn s. Whether there are
        any."""
        mine = bool(self._queue) and self.ordered < upto
        while self._queue and self.ordered < upto:
            self._settle_heads(min(upto - self.ordered, len(self._queue[0].messages)))
        self.said(s)
        return mine

    def settle(self, safe: int) -> None:
        while self._flight and self._flight[0][0] <= safe:
            self._flight_bytes -= self._flight.popleft()[1]

    def new_ring(self, members: int) -> None:
        """A large message that was not whole begins anew; what others entrusted they will ask of
        somebody again."""
        self.pace.new_ring(members)
        self._offset = 0
        self._delegates.clear()


def _group(queued: Pending, count: int, pieces: list[Buffer]) -> MessageGroup:
    """The first so many of these, whose octets are added."""
    messages = queued.messages[:count]
    if queued.length != VARIED or count == 1:
        pieces += messages
        return MessageGroup(count, len(messages[0]), queued.service)
    lengths = list(map(len, messages))
    pieces.append(numbers(lengths))
    pieces += messages
    return MessageGroup(count, sum(lengths), queued.service | DIFFER)
