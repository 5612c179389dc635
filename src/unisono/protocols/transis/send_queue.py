"""Messages of this member that wait to be sent, and the payload of its next vertex: a burst is one
vertex with a run of messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from unisono.core import CoreConfig
from unisono.model import Service, ServiceLevel
from unisono.parts.message_queue import MessageQueue
from unisono.parts.turn import ROW_BYTES, RUN_BYTES, OriginRun, write_runs

SERVICES: Final = tuple(Service)


def class_of(service: int) -> Service:
    """What a message waits for: all that is weaker than agreed is delivered as causal."""
    return SERVICES[max(service, Service.CAUSAL)]


class SendQueue:
    """From the application to the vertices."""

    def __init__(self, config: CoreConfig, key: int, mixes: bool) -> None:
        self._key = key
        self._mixes = mixes
        self._window_bytes = config.window_bytes_max
        self._waiting = MessageQueue()
        self._flight: deque[tuple[int, int, bool]] = deque()
        """Vertices that some member is not known to hold, each with the cost of its messages, and
        whether it is small."""
        self._flight_bytes = 0
        self.small_flights = 0
        """Those that are less than half full."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def queue_bytes(self) -> int:
        return self._waiting.nbytes

    @property
    def sent(self) -> int:
        """The last message that is wholly in a vertex."""
        return self._waiting.sent

    def send_credit(self) -> int:
        return max(0, self._window_bytes - self.queue_bytes - self._flight_bytes)

    def put(self, messages: Sequence[bytes], service: ServiceLevel) -> None:
        level = int(service) if isinstance(service, Service) else int(Service.AGREED)
        self._waiting.put(messages, level)

    def acknowledged(self, upto: int) -> None:
        """All members are known to hold our vertices up to this one."""
        while self._flight and self._flight[0][0] <= upto:
            _, cost, small = self._flight.popleft()
            self._flight_bytes -= cost
            self.small_flights -= small

    def new_configuration(self) -> None:
        """All hold what was sent. A large message that was sent in part begins anew."""
        self._waiting.restart_head()
        self._flight.clear()
        self._flight_bytes = self.small_flights = 0

    def gather(self, index: int, nbytes: int, piece_bytes: int) -> bytes:
        """The payload of our vertex of this index: as much of the queue as fits; of one class,
        unless all have to wait for the token in any case."""
        kind = class_of(self._waiting.pending[0].service)
        waiting, first, before = self._waiting, self._waiting.sent + 1, self._waiting.nbytes
        room = nbytes - 2 - RUN_BYTES
        groups, pieces = waiting.gather(
            room,
            min(piece_bytes // 4, room - ROW_BYTES),
            None if self._mixes else lambda service: class_of(service) is kind,
        )
        cost = before - waiting.nbytes
        small = 2 * cost < nbytes
        self._flight.append((index, cost, small))
        self._flight_bytes += cost
        self.small_flights += small
        return write_runs([OriginRun(self._key, first, groups, pieces)])
