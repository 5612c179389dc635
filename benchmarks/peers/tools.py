"""Shared by the peers: how one is found missing, and how clients are compiled and started."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from unisono.bench.checkout import environment
from unisono.bench.hosts import Host
from unisono.bench.system import Workload
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
