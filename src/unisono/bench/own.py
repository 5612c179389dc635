"""Our protocols as systems of the bench: each one by the library, or through daemons."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from unisono.bench.cluster import Cluster
from unisono.bench.hosts import LOOPBACK, Host, Hosts, free_ports
from unisono.bench.line_protocol import EACH, MIXED
from unisono.bench.system import Workload
from unisono.config import PORT, default_service
from unisono.errors import check_option_names
from unisono.model import Resilient, level_named, level_text
from unisono.processes import Process, Processes, answers
from unisono.protocols import ordered, spec

PREFIX: Final = "unisono-"
GROUP: Final = "bench"
JOIN_S, LEAVE_S = 30.0, 2.0
LIBRARY, DAEMON = "library", "daemon"
VIAS: Final = (LIBRARY, DAEMON, EACH, MIXED)


def ordered_protocols() -> tuple[str, ...]:
    """Those with a total order: what is measured by default."""
    return ordered()


class UnisonoSystem:
    """One of our protocols."""

    services: tuple[str, ...] = ()

    def __init__(self, protocol: str, options: Mapping[str, int] | None = None) -> None:
        self._spec = spec(protocol)
        self._options = options or {}
        check_option_names(self._spec.name, self._options, self._spec.options)
        self.protocol = protocol
        self.name = PREFIX + protocol

    @property
    def default_service(self) -> str:
        return level_text(default_service(self._spec))

    def missing(self) -> str:
        return ""

    def refuses(self, workload: Workload) -> str:
        level, offered = level_named(workload.service), self._spec.services
        known = self._spec.resilient if isinstance(level, Resilient) else level in offered
        if level is None or not known:
            levels = ", ".join(each.name.lower() for each in offered)
            return f"{self.name} has no {workload.service} service: it has {levels}"
        if isinstance(level, Resilient) and level.k > workload.members:
            return f"{workload.service} among {workload.members} members: give at least {level.k}"
        if workload.via == DAEMON and not self._spec.is_ordered:
            return f"{self.name} has no total order, and daemons need one"
        if workload.via == DAEMON and not self._spec.serves_daemons(self._options):
            return f"{self.name} lets every part go on, and daemons need one order for all"
        most = {**self._spec.options, **self._options}.get("members_count_max", workload.members)
        if workload.members > most:
            return f"{self.name} has at most {most} members"
        return ""

    @contextlib.contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        with self.launcher(hosts, workload) as launcher:
            members = [launcher.member(host, workload.members) for host in hosts.members]
            yield Cluster(members, launcher.daemons)

    @contextlib.contextmanager
    def launcher(self, hosts: Hosts, workload: Workload) -> Iterator[Launcher]:
        """For members that are started one by one; daemons run already."""
        with Processes() as processes:
            launcher = Launcher(self, hosts, workload, processes)
            if workload.via == DAEMON:
                launcher.start_daemons()
            yield launcher

    def role(self, host: Host, count: int) -> dict[str, int]:
        """The options of the member on this host."""
        return dict(self._spec.assign_roles(host.index, count, self._options))


class Launcher:
    """Starts members and daemons of one group."""

    def __init__(
        self, system: UnisonoSystem, hosts: Hosts, workload: Workload, processes: Processes
    ) -> None:
        self._system = system
        self._hosts = hosts
        self._workload = workload
        self._processes = processes
        self._port = free_ports(1)[0] if hosts.net == LOOPBACK else PORT
        self.daemons: list[Process] = []

    def member(
        self, host: Host, count: int, state_bytes: int = 0, newcomer: bool = False
    ) -> Process:
        """A member that is ready when its view has this size; a newcomer also awaits the state."""
        how = {
            "count": count,
            "service": self._workload.service,
            "via": self._workload.via,
            "state_octets": state_bytes,
            "newcomer": newcomer,
            "join": self._join_arguments(host),
        }
        command = (sys.executable, "-m", "unisono.bench.member", json.dumps(how))
        return self._processes.start(f"member {host.index}", (*host.prefix, *command))

    def _join_arguments(self, host: Host) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "group": GROUP,
            "name": f"m{host.index}",
            "join_s": JOIN_S,
            "leave_s": LEAVE_S,
            "rejoin": False,  # An excluded member spoils the measurement, and must report it.
        }
        if self._workload.via == DAEMON:
            return arguments | {"daemon": self._listen(host)}
        return arguments | {
            "protocol": self._system.protocol,
            "interface": self._hosts.interface_of(host),
            "port": self._port,
            "options": self._system.role(host, self._workload.members),
        }

    def _listen(self, host: Host) -> str:
        return f"unix:{self._hosts.scratch}/daemon-{host.index}"

    def start_daemons(self) -> None:
        """One a host; returns once all are in one ring."""
        end_s = time.monotonic() + JOIN_S
        for host in self._hosts.members:
            command = [*host.prefix, sys.executable, "-m", "unisono", "daemon", "--json"]
            command += ["--ring", GROUP, "--listen", self._listen(host), "--name", f"d{host.index}"]
            command += ["--interface", self._hosts.interface_of(host), "--port", str(self._port)]
            command += ["--protocol", self._system.protocol]
            for name, value in self._system.role(host, self._workload.members).items():
                command += ["--option", f"{name}={value}"]
            self.daemons.append(self._processes.start(f"daemon {host.index}", command))
        apart = list(self.daemons)
        while apart:
            answered = answers(apart, end_s - time.monotonic())
            apart = [
                daemon
                for daemon, each in zip(apart, answered, strict=True)
                if len(each.get("daemons", ())) < len(self.daemons)
            ]
