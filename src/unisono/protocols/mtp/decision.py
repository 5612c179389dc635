"""The master's decisions, as the value that its replicas hold."""

from __future__ import annotations

from typing import Final, NamedTuple

from unisono.fields import U64
from unisono.layout import decode, encode
from unisono.protocols.mtp.agreement import Master
from unisono.protocols.mtp.packets import Number, bits_of, statuses_of

TAIL: Final = 32
"""Statuses in a value, so that a new coordinator knows what the last one decided."""


class Decision(NamedTuple):
    """Figure 1's state."""

    next: Number
    """The number of the next message."""
    statuses: U64
    """Of the messages before it, two bits each."""
    holders: tuple[tuple[U64, U64], ...]
    """Message number and holder of the tokens that are out."""


def value_of(machine: Master[int]) -> bytes:
    """Figure 1's state as a value."""
    holders = tuple(sorted(machine.holder.items()))
    return encode(Decision(machine.next, bits_of(machine.last(TAIL)), holders))


def machine_of(value: bytes, t: int) -> Master[int]:
    """Figure 1's state of a value. Raises `BadPacket` if it is malformed."""
    following, bits, holders = decode(Decision, value)
    machine: Master[int] = Master(t, following, TAIL)
    for k, status in enumerate(statuses_of(bits, TAIL), 1):
        if machine.next - k >= 1:
            machine.status[machine.next - k] = status
    machine.holder = dict(holders)
    return machine
