"""Operations on replicated objects: the rows of a history that is judged for linearizability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The result of an operation that ended in an exception, by the name of its class."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One call on one replicated object. Times are of one clock for all members of a history: the
    simulated world's, or the monotonic clock of the machine they run on."""

    member: str
    """The name of the process that called; with `incarnation`, who it is."""
    incarnation: int
    object: str
    """The name of the object; objects are judged apart."""
    kind: str
    """`dict`, `list`, `set`, `counter`, `queue`, `lock`, …"""
    name: str
    """The method, as `put` or `acquire`; with `local_` before it, a read of the member's own copy:
    it may be stale, but is what the order made, and what one member reads never goes back."""
    arguments: tuple[Any, ...]
    """Plain values: None, booleans, numbers, texts, bytes, and tuples of them."""
    result: Any
    """What it returned, a plain value, or `Raised`; None while it has not."""
    invoked_us: int
    """0 for what nobody called, as the release of a dead holder's lock: it has a place, and never
    returned."""
    returned_us: int | None
    """None if it never returned, as when its caller was killed; or if it failed so that its caller
    cannot know whether it had its effect, as by `Stopped` or a time-out."""
    offset: int | None
    """Its place in the total order, where known; a local read has the last one that it saw.
    Operations with the same place are a batch, in the order of their rows."""
