"""What the master has decided, as the few bytes that its replicas hold."""

from __future__ import annotations

from typing import Final

from unisono.errors import BadPacket
from unisono.protocols.mtp.agreement import Master
from unisono.protocols.mtp.packets import NUMBER_MAX, bits_of, statuses_of
from unisono.wire import Reader, Writer

TAIL: Final = 32
"""Statuses that the council holds, so that a new coordinator knows what the last one decided."""


def value_of(machine: Master[int]) -> bytes:
    """Figure 1's state, for the council."""
    flat = [value for pair in sorted(machine.holder.items()) for value in pair]
    out = Writer().u64(machine.next).u64(bits_of(machine.last(TAIL)))
    return out.rows("QQ", 2, flat).done()


def machine_of(value: bytes, t: int) -> Master[int]:
    """Figure 1's state again. Raises `BadPacket` on bytes that are none."""
    reader = Reader(value)
    machine: Master[int] = Master(t, reader.u64(), TAIL)
    if machine.next >= NUMBER_MAX:
        raise BadPacket("malformed")
    for k, status in enumerate(statuses_of(reader.u64(), TAIL), 1):
        if machine.next - k >= 1:
            machine.status[machine.next - k] = status
    flat = reader.rows("QQ")
    reader.done()
    machine.holder = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
    return machine
