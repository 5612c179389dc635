"""What the peers share: how they are found missing, and how their clients are compiled."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from unisono.bench.checkout import environment
from unisono.bench.processes import Trouble, spawned
from unisono.bench.system import Load, Seat, Stage

COMPILE_S: Final = 60
"""A compiler that takes longer hangs."""


def source(name: str) -> Path:
    """A client's source: it lies beside this file."""
    return Path(__file__).with_name(name)


def not_installed(what: str) -> str:
    return f"{what} is not installed: make bench-peers"


def no_module(module: str, package: str) -> str:
    """Why a client in Python cannot run, empty if it can."""
    return "" if find_spec(module) else not_installed(f"{package} (PyPI)")


def only_agreed(name: str, load: Load) -> str:
    """None of them says when a message is safe as we mean it."""
    if load.service == "agreed":
        return ""
    return f"{name} has no {load.service} service, agreed alone"


def start_member(stage: Stage, seat: Seat, module: str, *words: str) -> subprocess.Popen[str]:
    """A member in Python: the module that starts it is its program too."""
    # -P: a folder named `benchmarks` in the working directory is not ours.
    command = (sys.executable, "-P", "-m", module, *words)
    return spawned(seat, command, stage.scratch, environment=environment())


def compiled(*command: str) -> None:
    """Run a compiler; what it complains of is told."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble(f"{command[0]}: {error}") from None
    if done.returncode:
        raise Trouble(f"{' '.join(command)}: {done.stderr.strip()}")
