"""What a change of the membership costs: a member killed, a member joining with state transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.own import UnisonoSystem
from unisono.bench.results import median, spread
from unisono.bench.system import Workload

RATE: Final = 200.0
"""Messages a second of each survivor, so that there is something to deliver."""


@dataclass
class RecoveryRow:
    """All rounds of one of our protocols."""

    system: str
    service: str
    via: str
    members: int
    state_bytes: int
    recovery_ms: list[float] = field(default_factory=list)
    join_ms: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "system": self.system,
            "service": self.service,
            "via": self.via,
            "members": self.members,
            "recovery_ms": _summary(self.recovery_ms),
        }
        if self.join_ms:
            found |= {"state_octets": self.state_bytes, "join_ms": _summary(self.join_ms)}
        return found


def _summary(values: Sequence[float]) -> dict[str, float]:
    low, high = spread(values)
    return {"median": median(values), "low": low, "high": high}


def recovery_ms(system: UnisonoSystem, hosts: Hosts, workload: Workload) -> float:
    """From the kill of one to the first message that the last survivor has in the new view."""
    with system.started(hosts, workload) as cluster:
        cluster.wait_ready()
        killed_ns, answers = cluster.crash(len(hosts.members) - 1, workload.size, RATE)
        return float(max(each["first_ns"] for each in answers) - killed_ns) / 1e6


def joining_ms(system: UnisonoSystem, hosts: Hosts, workload: Workload, state_bytes: int) -> float:
    """From the call of `join` to a view of all with the group's state, for one that takes the place
    of a member that has left: some groups begin only once all have joined."""
    count = len(hosts.members)
    *first, last = hosts.members
    with system.launcher(hosts, workload) as launcher:
        present = [launcher.member(host, len(first), state_bytes) for host in first]
        present.append(launcher.member(last, count, state_bytes))
        cluster = Cluster(present)
        cluster.wait_ready()
        cluster.leave(len(first))
        newcomer = Cluster([launcher.member(last, count, state_bytes, newcomer=True)])
        return float(newcomer.wait_ready()[0]["took_ns"]) / 1e6
