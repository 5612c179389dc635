"""Shared by the peers: how one is found missing, and how clients are compiled and started."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from unisono.bench.checkout import environment
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import LOOPBACK, Host, Hosts, free_ports
from unisono.bench.system import Workload
from unisono.config import PORT
from unisono.processes import Process, Processes, RunFailed

COMPILE_S: Final = 60
"""A compiler that takes longer hangs."""


class PeerTool:
    """Defaults of a peer: agreed messages only."""

    name: str
    services: tuple[str, ...] = ()
    default_service = "agreed"

    def refuses(self, workload: Workload) -> str:
        """None of them reports when a message is safe."""
        if workload.service == "agreed":
            return ""
        return f"{self.name} has no {workload.service} service, agreed alone"


def source(name: str) -> Path:
    """The source of a client: it lies beside this file."""
    return Path(__file__).with_name(name)


def not_installed(what: str) -> str:
    return f"{what} is not installed: make bench-peers"


def no_module(module: str, package: str) -> str:
    """Why a client in Python cannot run; empty if it can."""
    return "" if find_spec(module) else not_installed(f"{package} (PyPI)")


def start(processes: Processes, name: str, host: Host, *command: str) -> Process:
    return processes.start(f"{name} {host.index}", (*host.prefix, *command))


def start_python(processes: Processes, host: Host, module: str, *arguments: str) -> Process:
    """A member in Python: the module that starts it is its program too."""
    # -P: a folder `benchmarks` in the working directory is not ours.
    command = (*host.prefix, sys.executable, "-P", "-m", module, *arguments)
    return processes.start(f"member {host.index}", command, environment())


@contextlib.contextmanager
def members_alone(hosts: Hosts, module: str) -> Iterator[Cluster]:
    """Members in Python that need no server: each is given its interface, the group's port, its
    index, and how many there are."""
    port = free_ports(1)[0] if hosts.net == LOOPBACK else PORT
    with Processes() as members:
        for host in hosts.members:
            where = (hosts.interface_of(host), str(port))
            start_python(members, host, module, *where, str(host.index), str(len(hosts.members)))
        yield Cluster([*members])


def one_sender(name: str, workload: Workload) -> str:
    """What a system without flow control says to more senders; empty for one."""
    if workload.senders == 1:
        return ""
    return f"{name} has one sender: without flow control two would only drown each other"


def compiled(*command: str) -> None:
    """Run a compiler; `RunFailed` with its complaint."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"{command[0]}: {error}") from None
    if done.returncode:
        raise RunFailed(f"{' '.join(command)}: {done.stderr.strip()}")
