"""Notices of mixed keys: who speaks sealed to a group that is open learns it, if all are quiet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from unisono.model import Address, Burst, Packets
from unisono.sealing.records import OVERHEAD_BYTES
from unisono.wire import is_sealed, seal, tag_of

NOTICE_US: Final = 50_000


class OpenNotice:
    """Of a member without a key: it answers sealed packets of its group by an open one, which says
    nothing else."""

    def __init__(self, group: str, send: Callable[[Address, bytes], None]) -> None:
        self._tag = tag_of(group)
        self._packet = seal(0, 0, self._tag, 0, b"open")
        self._send = send
        self._sent_us = -NOTICE_US

    def look(self, found: Sequence[tuple[Address, Packets]], now_us: int) -> None:
        for source, packets in found:
            first = packets.buffer if isinstance(packets, Burst) else packets[0]
            if not is_sealed(first, self._tag):
                continue
            # No longer than what came, not for the like of it, and seldom.
            if len(first) > OVERHEAD_BYTES and now_us - self._sent_us >= NOTICE_US:
                self._sent_us = now_us
                self._send(source, self._packet)
