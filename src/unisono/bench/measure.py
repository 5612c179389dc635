"""The plan of a benchmark and its run: all systems in turns, round after round, so that other work
on the machine slows all of them equally."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from unisono.bench.cluster import Cluster
from unisono.bench.hosts import LOOPBACK, Hosts, hosts_on
from unisono.bench.own import LIBRARY, UnisonoSystem
from unisono.bench.recovery import RecoveryRow, joining_ms, recovery_ms
from unisono.bench.results import HALF, ResultRow, RowKey, delays, rows_as_json, throughput
from unisono.bench.system import System, Workload
from unisono.processes import RunFailed

ALL: Final = 0
"""As a number of senders: every member."""
LONE_RATE, LONE_SHARE = 100.0, 0.05
"""At low load each sender sends this many messages a second, and all together at most this share of
the peak, so that each message is alone on its way."""
ATTEMPTS_MAX: Final = 2

Report = Callable[[str], None]


@dataclass(frozen=True)
class BenchPlan:
    """What is measured: every combination of the first five."""

    members: tuple[int, ...] = (3,)
    sizes: tuple[int, ...] = (64, 1000)
    senders: tuple[int, ...] = (1, ALL)
    services: tuple[str, ...] = ()
    """Empty: the default of each system."""
    vias: tuple[str, ...] = (LIBRARY,)
    loads: tuple[float, ...] = ()
    """Shares of the peak at which delays are measured, beside one half."""
    net: str = LOOPBACK
    seconds: float = 0.3
    """Of each measurement."""
    warm_s: float = 0.2
    """Before the first of each round."""
    rounds: int = 3
    recovery: bool = False
    """For ours, also measure the cost of a killed member and of one that joins with state."""
    state_bytes: int = 1_000_000


class Variant(NamedTuple):
    """A system with the service and the way it is measured by."""

    system: System
    service: str
    via: str

    def __str__(self) -> str:
        return RowKey(self.system.name, self.service, self.via, 0, 0, 0).label


@dataclass
class Measurements:
    """The outcome of a run."""

    rows: dict[RowKey, ResultRow] = field(default_factory=dict)
    recovery: list[RecoveryRow] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """By system or workload, why it was not measured."""
    troubles: list[str] = field(default_factory=list)

    def as_json(self, about: dict[str, Any]) -> dict[str, Any]:
        rows = sorted(self.rows.values(), key=lambda row: row.key.load)
        return {
            "results": rows_as_json(rows),
            "recovery": [each.as_json() for each in self.recovery if each.recovery_ms],
            "skipped": self.skipped,
            "troubles": self.troubles,
            "about": about,
        }


def variants(plan: BenchPlan, systems: Sequence[System]) -> list[Variant]:
    found = []
    for system in systems:
        services = system.services or plan.services or (system.default_service,)
        vias = plan.vias if isinstance(system, UnisonoSystem) else (LIBRARY,)
        found += [Variant(system, service, via) for service in services for via in vias]
    return found


def workloads(plan: BenchPlan, variant: Variant, members: int) -> Iterator[Workload]:
    for size in plan.sizes:
        for senders in dict.fromkeys(each or members for each in plan.senders):
            if senders <= members:
                yield Workload(members, size, senders, variant.service, variant.via)


class BenchRun:
    """One run of a plan. `progress` is called with each step, `warn` once with each failure."""

    def __init__(
        self, plan: BenchPlan, systems: Sequence[System], progress: Report, warn: Report
    ) -> None:
        self._plan = plan
        self._systems = systems
        self._progress = progress
        self._warn = warn
        self._given_up: set[Variant] = set()
        self.found = Measurements()

    def run(self) -> Measurements:
        present = []
        for system in self._systems:
            if why := system.missing():
                self._skip(system.name, why)
            else:
                present.append(system)
        chosen = variants(self._plan, present)
        for members in self._plan.members:
            self._given_up.clear()
            with hosts_on(self._plan.net, members) as hosts:
                self._run_on(hosts, chosen)
        return self.found

    def _run_on(self, hosts: Hosts, chosen: Sequence[Variant]) -> None:
        members = len(hosts.members)
        accepted = {variant: self._accepted(variant, members) for variant in chosen}
        for turn in range(self._plan.rounds):
            # Forwards and backwards in turn: none is always first, or always after the same one.
            for variant in chosen if turn % 2 == 0 else reversed(chosen):
                if accepted[variant] and variant not in self._given_up:
                    self._round(hosts, variant, accepted[variant], turn)
        if self._plan.recovery:
            for variant in chosen:
                system = variant.system
                if accepted[variant] and variant not in self._given_up:
                    if isinstance(system, UnisonoSystem):
                        self._recovery(hosts, system, accepted[variant][0])

    def _accepted(self, variant: Variant, members: int) -> list[Workload]:
        found = []
        for workload in workloads(self._plan, variant, members):
            if why := variant.system.refuses(workload):
                self._skip(f"{variant}, {workload}", why)
            else:
                found.append(workload)
        return found

    def _skip(self, what: str, why: str) -> None:
        if why not in self.found.skipped.values():
            self._warn(f"skipped: {why}")
        self.found.skipped[what] = why

    # -- a round -----------------------------------------------------------------------------------

    def _round(
        self, hosts: Hosts, variant: Variant, accepted: Sequence[Workload], turn: int
    ) -> None:
        """All its workloads, with the same members as long as these last."""
        left = list(accepted)
        attempts = 0
        while left:
            before = len(left)
            try:
                self._attempt(hosts, variant, left, turn)
            except (RunFailed, OSError) as failure:
                attempts = attempts + 1 if len(left) == before else 1
                if attempts < ATTEMPTS_MAX:
                    continue
                workload = left.pop(0)
                self._trouble(f"{variant}, {workload}, round {turn + 1}: {failure}")
                if len(left) == len(accepted) - 1:  # Not even the first one: give up on the others.
                    self._given_up.add(variant)
                    return
                attempts = 0

    def _attempt(self, hosts: Hosts, variant: Variant, left: list[Workload], turn: int) -> None:
        """Remove from `left` what is measured."""
        where = f"round {turn + 1}/{self._plan.rounds}: {variant}"
        self._progress(f"{where} starts, {len(hosts.members)} members")
        largest = Workload(
            len(hosts.members),
            max(workload.size for workload in left),
            max(workload.senders for workload in left),
            variant.service,
            variant.via,
        )
        with variant.system.started(hosts, largest) as cluster:
            cluster.wait_ready()
            if self._plan.warm_s:
                cluster.load(self._plan.warm_s, left[0].size, left[0].senders)
            while left:
                self._progress(f"{where}, {left[0]}")
                self._measure(cluster, self._row(variant, left[0]), left[0], turn)
                left.pop(0)

    def _row(self, variant: Variant, workload: Workload) -> ResultRow:
        key = RowKey.of(variant.system.name, workload)
        return self.found.rows.setdefault(key, ResultRow(key))

    def _measure(self, cluster: Cluster, row: ResultRow, workload: Workload, turn: int) -> None:
        seconds, size, senders = self._plan.seconds, workload.size, workload.senders
        begin_ns, answers = cluster.load(seconds, size, senders)
        found = throughput(begin_ns, answers, cluster.servers_cpu_ns, cluster.servers_rss_peak_kb())
        peak = found.messages_per_s / senders
        low = min(LONE_RATE, LONE_SHARE * peak)
        lone = delays(cluster.probe(seconds, size, senders, low))
        loaded = {
            share: delays(cluster.probe(seconds, size, senders, peak * share))
            for share in dict.fromkeys((HALF, *self._plan.loads))
        }
        # All of a round, or nothing of it.
        row.throughput[turn] = found
        row.lone.append(lone)
        for share, found_delays in loaded.items():
            row.by_load.setdefault(share, []).append(found_delays)

    def _trouble(self, text: str) -> None:
        self._warn(f"not measured: {text}")
        self.found.troubles.append(text)

    # -- a member killed, a member joining ---------------------------------------------------------

    def _recovery(self, hosts: Hosts, system: UnisonoSystem, workload: Workload) -> None:
        if workload.members < 3:
            self._skip(
                f"{system.name}, recovery",
                "recovery needs three members: one of two is no majority",
            )
            return
        state_bytes, rounds = self._plan.state_bytes, self._plan.rounds
        found = RecoveryRow(
            system.name, workload.service, workload.via, workload.members, state_bytes
        )
        for turn in range(rounds):
            self._progress(f"round {turn + 1}/{rounds}: {system.name}, one is killed, one joins")
            try:
                found.recovery_ms.append(recovery_ms(system, hosts, workload))
                found.join_ms.append(joining_ms(system, hosts, workload, state_bytes))
            except (RunFailed, OSError) as failure:
                self._trouble(f"{system.name}, recovery, round {turn + 1}: {failure}")
        self.found.recovery.append(found)
