"""The record: one row an event, the same from simulator and network."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, Protocol

from unisono.model import Buffer

MESSAGE_KINDS = (
    *("send", "deliver", "view", "stable", "join", "leave", "crash", "restart"),
    *("receipt", "transitional", "fault", "stuck"),
)
"""Always written when tracing is on. A `receipt`: all messages of its sender up to its number were
held when the view, or the incarnation, ended. A `transitional` view ends the one before it. The
world records faults (`fault`, see `laws.exclusion`), and that it waited for progress in vain
(`stuck`)."""

WORK_KINDS = ("packet_out", "packet_in", "drop", "nak", "repair", "timer", "arrow")
"""Protocol work, written only on request."""

LEFT = "left"
"""The detail of a `leave` row after a clean leave; any other detail is the reason of a stop."""

NOTHING, HEALED, LEAVING, NAMESAKE = "none", "healed", "leaving", "namesake"
"""Details of `fault` rows that are not faults: there is none; all are over; the incarnation is
about to leave; it has taken the name of another."""

APART = "apart"
"""The detail of a `fault` row: in the end all are cut off from each other so that no part of the
group is to go on."""

PROBE = "probe"
"""The detail of a `send` row that the law of progress checks."""


class Row(NamedTuple):
    """One event of one incarnation."""

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
    """Of a view: each `name#incarnation`; of a stable message: its known holders; of a fault: the
    names of its nodes."""
    joined: tuple[str, ...] | None = None
    """Of a view: its new members."""
    left: tuple[str, ...] | None = None
    """Of a view: the members that are gone."""
    stayed: tuple[str, ...] | None = None
    """Of a view: the transitional set, where the protocol reports it."""
    changes: tuple[str, ...] | None = None
    """Of a view: the changes, as `founded` or `failed b#1 c#1`; of a first view also the group's
    founding, where the protocol tells it: `of 1-0a1b2c`. Of a stop, its cause, and where it was
    excluded the view and the founding of those that went on, if known: `view 3-0a1b2c`,
    `founding 1-0a1b2c`. Of a clean leave that view alone, where the member agreed to it."""
    peer: str | None = None
    """Of a packet: the address it went to (`*` for everyone) or came from; of a join: its own."""
    detail: str | None = None
    """The arrow, timer or reason; a packet's label; of a view that has one, its
    cut: `a#1:17 b#2:4`."""


class Sink(Protocol):
    """Where rows go."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


def digest_of(payload: Buffer) -> int:
    """A 64-bit hash of the payload, as the signed integer that the files hold."""
    return int.from_bytes(blake2b(payload, digest_size=8).digest(), "little", signed=True)
