"""A block, read: its messages by what they wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.model import Buffer, Member, Resilient, Service, ServiceLevel
from unisono.parts.message_runs import MessageRun
from unisono.parts.turn import (
    DIFFER,
    IN_PIECES,
    LENGTH_BYTES,
    MORE,
    SERVICE,
    MessageGroup,
    Turn,
    read_runs,
)
from unisono.protocols.rmp.data_packets import BLOCK_HEAD, BLOCK_HEAD_BYTES
from unisono.protocols.rmp.reform_packets import NUMBER_MAX
from unisono.wire import cut, read_numbers

CONTROL: Final = 0
"""The service of a message that is for the group's state, not for the application."""
_SERVICES: Final = tuple(Service)
Drop: TypeAlias = Callable[[str], None]


class BlockFragment(NamedTuple):
    """A piece of a large message."""

    number: int
    mark: int
    service: ServiceLevel
    payload: Buffer


@dataclass(slots=True)
class Contents:
    """A block, read: its messages by what they wait for. They have no view and no sequence number
    until they are delivered."""

    control: list[bytes] = field(default_factory=list)
    at_once: list[MessageRun | BlockFragment] = field(default_factory=list)
    in_sequence: list[MessageRun | BlockFragment] = field(default_factory=list)
    ordered: list[MessageRun | BlockFragment] = field(default_factory=list)
    after: int = 0
    """The slot up to which its source had delivered the order before."""
    last: int = 0
    """The number of its last message; 0: it has none."""
    is_cut: bool = False
    """More of its last message follows in the next block."""


def read_block(sender: Member, block: Turn, drop: Drop) -> Contents:
    if len(block.content) < BLOCK_HEAD_BYTES:
        drop("malformed")
        return Contents()
    (after,), start = BLOCK_HEAD.read(memoryview(block.content), 0)
    contents = read_messages(sender, block.content, drop, start, block.flags)
    contents.after = after
    return contents


def read_messages(
    sender: Member, content: bytes, drop: Drop, start: int = 0, resilience: int = 0
) -> Contents:
    """The runs that begin there. Of malformed ones, what precedes the error."""
    contents = Contents()
    try:
        runs = read_runs(memoryview(content)[start:])
        at = len(content) - sum([len(run.chunks[0]) for run in runs])
        for run in runs:
            number = run.first
            for group in run.groups:
                _read_group(contents, sender, content, at, number, group, resilience)
                number += 0 if group.mark & MORE else group.times
                at += group.nbytes
    except BadPacket as bad:
        drop(bad.reason)
    return contents


def _read_group(
    contents: Contents,
    sender: Member,
    content: bytes,
    at: int,
    number: int,
    group: MessageGroup,
    resilience: int,
) -> None:
    """The messages of a group, whose bytes begin at this offset."""
    times, length, mark = group
    service = mark & SERVICE
    if service == CONTROL:
        if mark != CONTROL:
            raise BadPacket("malformed")
        contents.control += cut(content, at, length, times) if length else [b""] * times
        return
    if number + times > NUMBER_MAX:
        raise BadPacket("malformed")
    contents.last = max(contents.last, number + times - 1)
    contents.is_cut = bool(mark & MORE)
    found: MessageRun | BlockFragment
    level = _level(service, resilience)
    if mark & IN_PIECES:
        found = BlockFragment(number, mark, level, memoryview(content)[at : at + length])
    else:
        lengths: tuple[int, ...] = ()
        if mark & DIFFER:
            lengths = read_numbers(content, at, times)
            at += times * LENGTH_BYTES
            if sum(lengths) != length:
                raise BadPacket("malformed")
        found = MessageRun(sender, content, at, length, times, number, "", None, level, lengths)
    if service >= Service.CAUSAL:
        contents.ordered.append(found)
    elif service == Service.RELIABLE and not mark & IN_PIECES:
        contents.at_once.append(found)
    else:
        contents.in_sequence.append(found)


def _level(service: int, resilience: int) -> ServiceLevel:
    return Resilient(resilience) if service == Service.SAFE else _SERVICES[service]
