"""The interface of a measured system: run your members on these hosts.

Every member of every system is a process that obeys one line protocol: commands on its input, one
JSON object a line as answers (docs/BENCHMARKS.md). So the bench does not know what it measures, and
all systems are measured alike.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Protocol

from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts


@dataclass(frozen=True)
class Workload:
    """What a system has to carry."""

    members: int
    size: int
    """Bytes of a payload, at least 16."""
    senders: int
    service: str = "agreed"
    via: str = "library"
    """`library` or `daemon`, by bursts; `each`, `mixed`: by the library, message by message, or
    bursts of many lengths. Peers have one way only and ignore it."""

    def __str__(self) -> str:
        return f"{self.senders} of {self.members} sending {self.size} B"


class System(Protocol):
    """A system that can be measured."""

    @property
    def name(self) -> str: ...

    @property
    def services(self) -> tuple[str, ...]:
        """The services it is always measured with; empty: those requested."""
        ...

    @property
    def default_service(self) -> str:
        """The service when none is requested."""
        ...

    def missing(self) -> str:
        """Why it cannot run here, in one line; empty if it can."""
        ...

    def refuses(self, workload: Workload) -> str:
        """Why it cannot carry this workload, in one line; empty if it can."""
        ...

    def started(
        self, hosts: Hosts, workload: Workload
    ) -> contextlib.AbstractContextManager[Cluster]:
        """Its members on these hosts; they end with the `with`, whatever happens.

        Members need not be ready: the bench waits for each. The same members then carry several
        workloads, one after another: `workload` has the largest size and the most senders of these.
        """
        ...
