"""QSUB, and the content of a turn.

[RNG-2] One ordered multicast a turn. [RNG-3] NULL when there is nothing to send. [RNG-4] Messages
that the holder sends for others go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.core import CoreConfig
from unisono.errors import BadPacket
from unisono.model import Buffer, Service, ServiceLevel
from unisono.parts.message_queue import MessageQueue, group_of
from unisono.parts.turn import (
    COUNT_MAX,
    LENGTH_BYTES,
    ROW_BYTES,
    RUN_BYTES,
    RUNS_MAX,
    SERVICE,
    MessageGroup,
    OriginRun,
    read_runs,
    write_runs,
)
from unisono.protocols.ring.pacing import TurnPacing
from unisono.protocols.ring.packets import HEADER_BYTES, TURN_BYTES, Delegate
from unisono.wire import ENVELOPE_BYTES

DELEGATES_MAX: Final = 64


class SendQueue:
    """Messages of one member that wait for its turn, and those it sends for others."""

    def __init__(self, config: CoreConfig, key: int, burst_max: int) -> None:
        self._key = key
        self.window_bytes = config.window_bytes_max
        self.piece_bytes = config.packet_bytes_max - ENVELOPE_BYTES - HEADER_BYTES - TURN_BYTES
        """The content of a turn that fits a packet."""
        self._waiting = MessageQueue()
        self._flight: deque[tuple[int, int]] = deque()
        """Turns that not everyone has, with what our messages in them cost."""
        self._flight_bytes = 0
        self._turn_bytes = 0
        """The cost of our messages in the turn at hand."""
        self.closing = False
        """The member is leaving."""
        self._delegates: deque[OriginRun] = deque()
        self.pace = TurnPacing(burst_max)

    def close(self) -> None:
        self.closing = True

    # -- messages of our own ---------------------------------------------------------------------

    @property
    def ordered(self) -> int:
        """The number of our last message in the order."""
        return self._waiting.sent

    def send_credit(self) -> int:
        return max(0, self.window_bytes - self._waiting.nbytes - self._flight_bytes)

    def add(self, messages: Sequence[bytes], service: ServiceLevel) -> None:
        level = int(service) if isinstance(service, Service) else int(Service.AGREED)
        self._waiting.put(messages, level)

    def has_own(self) -> bool:
        return bool(self._waiting)

    def has_any(self) -> bool:
        return bool(self._waiting or self._delegates)

    def is_settled(self) -> bool:
        """All our messages are ordered, and everyone has them."""
        return not self._waiting and not self._flight

    def is_pressed(self) -> bool:
        """This member waits until all have its messages: to leave, or for a half-full window."""
        return self.closing or 2 * self.send_credit() < self.window_bytes

    # -- for others, and by others ---------------------------------------------------------------

    def delegate(self) -> bytes:
        """[RNG-4] The head of the queue as far as it fits a packet, for the holder; if empty, only
        the token is requested. It stays in the queue until it is seen in the order."""
        left_bytes, left = self.piece_bytes - 2 - RUN_BYTES, COUNT_MAX
        groups: list[MessageGroup] = []
        pieces: list[Buffer] = []
        for pending in () if self._waiting.offset else self._waiting.pending:
            left_bytes -= ROW_BYTES
            fit = pending.fit(left_bytes, left, LENGTH_BYTES)
            if fit:
                groups.append(group_of(pending, fit, pending.service, pieces))
                left_bytes -= groups[-1].nbytes
                left -= fit
            if fit < len(pending.messages):
                break
        if not groups:
            return b""
        return write_runs([OriginRun(self._key, self.ordered + 1, groups, pieces)])

    def take_delegate(self, packet: Delegate) -> None:
        """Messages of another member, to be sent for it; raises `BadPacket`."""
        runs = read_runs(packet.piece)
        if len(runs) > 1 or any(run.origin != packet.header.sender for run in runs):
            raise BadPacket("malformed")
        self._delegates.extend(runs)
        while len(self._delegates) > DELEGATES_MAX:
            self._delegates.popleft()

    # -- a turn ----------------------------------------------------------------------------------

    def gather(self) -> tuple[bytes, bool, bool]:
        """The content of our turn; whether a message in it is to be safe; whether more waits."""
        # Deviates [RNG Ordered]: all that waits is one turn, up to `turn_packets` packets of many
        # messages. The paper's turn is one message.
        left_bytes = self.pace.next() * self.piece_bytes - 2
        runs: list[OriginRun] = []
        own, left = left_bytes // 2 if self._waiting else 0, COUNT_MAX
        while self._delegates and len(runs) < RUNS_MAX - 1:
            run = self._delegates[0]
            left -= run.times
            if runs and (left < 0 or run.nbytes > left_bytes - own):
                break
            left_bytes -= run.nbytes
            runs.append(self._delegates.popleft())
        mine = self._gather_own(left_bytes)
        if mine is not None:
            runs.append(mine)
        marks = {group.mark & SERVICE for run in runs for group in run.groups}
        safe = int(Service.SAFE) in marks
        return write_runs(runs), safe, bool(self._waiting or self._delegates)

    def _gather_own(self, left_bytes: int) -> OriginRun | None:
        """From the queue. A complete message is in the order as soon as it is sent."""
        first, before = self.ordered + 1, self._waiting.nbytes
        groups, pieces = self._waiting.gather(left_bytes - RUN_BYTES, self.piece_bytes // 4)
        self._note_sent(before)
        return OriginRun(self._key, first, groups, pieces) if groups else None

    def _note_sent(self, before: int) -> None:
        """The queue had so many bytes before some of it was sent."""
        cost = before - self._waiting.nbytes
        self._flight_bytes += cost
        self._turn_bytes += cost

    def note_turn(self, s: int) -> None:
        """What was gathered is turn s."""
        if self._turn_bytes:
            self._flight.append((s, self._turn_bytes))
            self._turn_bytes = 0

    def note_ordered(self, upto: int, s: int) -> bool:
        """A holder sent our messages up to this number for us, in turn s; whether it did."""
        waiting = self._waiting
        if waiting.sent >= upto or not waiting:
            return False
        before = waiting.nbytes
        while waiting and waiting.sent < upto:
            waiting.remove(min(upto - waiting.sent, len(waiting.pending[0].messages)))
        self._note_sent(before)
        self.note_turn(s)
        return True

    def settle(self, safe: int) -> None:
        """Everyone has the turns up to k."""
        while self._flight and self._flight[0][0] <= safe:
            self._flight_bytes -= self._flight.popleft()[1]

    def new_ring(self, members: int) -> None:
        """A large message sent in part begins anew; delegates are sent again by their members."""
        self.pace.new_ring(members)
        self._waiting.restart_head()
        self._delegates.clear()
