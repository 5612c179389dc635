"""What the bench asks of a system it measures: start your members here, under this load.

Every member of every system is a process that speaks one line protocol: orders come on its stdin,
answers go to its stdout as one JSON object a line (docs/BENCHMARKS.md has the words). So the bench
never knows what it measures, and no system is measured in a way that another is not.
"""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class Seat:
    """Where one member lives."""

    index: int
    host: str
    """Its IPv4 address."""
    prefix: tuple[str, ...]
    """Put before every command: nothing on loopback, `ip netns exec NAME` in a namespace."""
    interface: str
    """`lo`, or the name of the veth inside the namespace."""


@dataclass(frozen=True)
class Stage:
    """What the members stand on."""

    net: str
    """`loopback` or `namespaces`."""
    seats: tuple[Seat, ...]
    scratch: Path
    """A private directory, removed afterwards."""
    server: Seat
    """Where the server of a system with a server runs; in namespaces one more on the bridge."""


@dataclass(frozen=True)
class Load:
    """What a system is to carry."""

    members: int
    size: int
    """Octets of a payload, at least 16."""
    senders: int
    service: str = "agreed"
    via: str = "library"
    """`library` or `daemon`; peers have one way only and ignore it."""


class Troupe(NamedTuple):
    """A system that runs."""

    members: list[subprocess.Popen[str]]
    """In the order of the seats; stdin and stdout are pipes of text, and speak the protocol."""
    servers: tuple[int, ...] = ()
    """Processes that are no members and whose CPU counts too."""


class System(Protocol):
    """One that can be measured."""

    @property
    def name(self) -> str: ...

    def missing(self) -> str:
        """One clear line why it cannot run here, empty if it can."""
        ...

    def refuses(self, load: Load) -> str:
        """One clear line why this load is not for it, empty if it is."""
        ...

    def started(self, stage: Stage, load: Load) -> contextlib.AbstractContextManager[Troupe]:
        """Its members on these seats, and their end with the end of the `with`, whatever happens.

        Members need not be ready: the bench waits for each to say so. The same members are then
        asked for several loads, one after another: `load` has the largest size among these and
        the most senders. What starts and ends processes is in `unisono.bench.processes`, what a
        member in Python needs to know of the lines and messages in `unisono.bench.orders`.
        """
        ...
