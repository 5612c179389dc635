"""The record: one row an event, the same from simulator and network."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, Protocol

from unisono.model import Buffer

MESSAGE_KINDS = (
    *("send", "deliver", "view", "stable", "join", "leave", "crash", "restart"),
    *("receipt", "transitional", "fault", "stuck"),
)
"""Always written when tracing is on. A `receipt` says that all messages of its sender up to its
number were here when the view ended, or the life; a `transitional` view ends the one before it. The
world tells what ailed whom (`fault`, see `laws.exclusion`), and of the group that it waited for
progress in vain (`stuck`)."""

WORK_KINDS = ("packet_out", "packet_in", "drop", "nak", "repair", "timer", "arrow")
"""Protocol work, written only when asked for."""

LEFT = "left"
"""The detail of a `leave` row after a clean leave; any other detail is the reason of a stop."""

NOTHING, HEALED, LEAVING, NAMESAKE = "none", "healed", "leaving", "namesake"
"""Details of `fault` rows that ail nobody: there is no fault; all are over; the life is about to
leave; it has taken the name of another."""

APART = "apart"
"""The detail of a `fault` row: in the end all are cut off from each other so that no part of the
group is to go on."""

PROBE = "probe"
"""The detail of a `send` row that the law of progress asks about."""


class Row(NamedTuple):
    """One event of one member's life."""

    protocol: str
    group: str
    node: str
    incarnation: int
    step: int
    t_us: int
    kind: str
    view: str = ""
    sender: str | None = None
    sender_incarnation: int | None = None
    number: int | None = None
    """Of a message; of a join: the least size of a view, where the protocol promises one;
    of a fault: until when it lasts, in microseconds."""
    seq: int | None = None
    service: str | None = None
    size: int | None = None
    digest: int | None = None
    """Of a message's payload; of a packet's bytes: an arrival has that of its sending."""
    members: tuple[str, ...] | None = None
    """Of a view: each `name#incarnation`; of a stable message: who is known to hold it; of a fault:
    the names of the nodes that it ails."""
    joined: tuple[str, ...] | None = None
    """Of a view: who is new in it."""
    left: tuple[str, ...] | None = None
    """Of a view: who is no longer in it."""
    stayed: tuple[str, ...] | None = None
    """Of a view: the transitional set, where the protocol says it."""
    changes: tuple[str, ...] | None = None
    """Of a view: what happened and to whom, as `founded` or `failed b#1 c#1`; of a stop, its
    cause, and the view of those that excluded it, where it is known: `view 3-0a1b2c`."""
    peer: str | None = None
    """Of a packet: the address it went to (`*` for everyone) or came from; of a join: its own."""
    detail: str | None = None
    """The arrow, timer or reason; a packet in the protocol's words; of a view that has one, its
    cut: `a#1:17 b#2:4`."""


class Sink(Protocol):
    """Where rows go."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


def digest_of(payload: Buffer) -> int:
    """A 64-bit hash of the payload, as the signed integer that the files hold."""
    return int.from_bytes(blake2b(payload, digest_size=8).digest(), "little", signed=True)
