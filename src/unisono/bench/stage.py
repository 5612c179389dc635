"""What members stand on: the loopback interface, or a network namespace each, on one bridge."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from unisono.bench.processes import PATH, Trouble
from unisono.bench.system import Seat, Stage
from unisono.errors import Misuse

LOOPBACK, NAMESPACES = "loopback", "namespaces"
NETS: Final = (LOOPBACK, NAMESPACES)
MTU: Final = 1500
INTERFACE: Final = "eth0"
SECONDS_MAX: Final = 20
OURS: Final = re.compile(r"unibench(\d+)-\w+")
"""A namespace or scratch of the bench: whose process made it stands in its name."""


def check(net: str) -> None:
    """Whether this machine lets us."""
    if net not in NETS:
        raise Misuse(f"--net {net!r}: write {' or '.join(NETS)}")
    if net == LOOPBACK:
        return
    if not shutil.which("ip", path=PATH):
        raise Misuse("--net namespaces needs the command `ip`: install the package iproute2")
    if os.geteuid() != 0:
        raise Misuse("--net namespaces needs root, to make them: use sudo, or --net loopback")


@contextlib.contextmanager
def stage(net: str, count: int) -> Iterator[Stage]:
    """Seats for so many members and one server; all is gone afterwards."""
    check(net)
    _forget_scratch()
    with contextlib.ExitStack() as undo:
        # A short path: it is to hold sockets, whose paths are short.
        prefix = f"unibench{os.getpid()}-"
        scratch = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        if net == LOOPBACK:
            seats = [Seat(at, f"127.0.0.{at + 1}", (), "lo") for at in range(count + 1)]
        else:
            seats = undo.enter_context(_spaces(count + 1))
        yield Stage(net, tuple(seats[:count]), scratch, seats[count])


@contextlib.contextmanager
def _spaces(count: int) -> Iterator[list[Seat]]:
    """A namespace a seat, at 10.77.0.1 and so on, on a bridge in a namespace of its own."""
    _forget_spaces()
    tag = f"unibench{os.getpid()}"
    hub, names = f"{tag}-hub", [f"{tag}-{at}" for at in range(count)]
    with contextlib.ExitStack() as undo:
        for name in (hub, *names):
            _ip("netns", "add", name)
            undo.callback(_remove, name)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", hub, "link", "set", "bridge", "mtu", str(MTU), "up")
        for at, name in enumerate(names):
            pair = ("type", "veth", "peer", "name", f"port{at}", "netns", hub)
            _ip("-n", name, "link", "add", INTERFACE, "mtu", str(MTU), *pair)
            _ip("-n", hub, "link", "set", f"port{at}", "mtu", str(MTU), "master", "bridge", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{_host(at)}/24", "dev", INTERFACE)
            _ip("-n", name, "link", "set", INTERFACE, "up")
            _ip("-n", name, "route", "add", "224.0.0.0/4", "dev", INTERFACE)
        yield [
            Seat(at, _host(at), ("ip", "netns", "exec", name), INTERFACE)
            for at, name in enumerate(names)
        ]


def _host(at: int) -> str:
    return f"10.77.0.{at + 1}"


def _ip(*words: str) -> str:
    try:
        done = subprocess.run(
            ("ip", *words),
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": PATH},
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Trouble(f"ip {' '.join(words)}: not within {SECONDS_MAX} s") from None
    if done.returncode:
        raise Trouble(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _remove(name: str) -> None:
    """As well as it can be done: the others are to be removed too."""
    with contextlib.suppress(Trouble):
        _ip("netns", "del", name)


def _forget_spaces() -> None:
    """A bench that was killed could not remove its namespaces."""
    for line in _ip("netns", "list").splitlines():
        if _is_left(line.partition(" ")[0]):
            _remove(line.partition(" ")[0])


def _forget_scratch() -> None:
    for path in Path(tempfile.gettempdir()).glob("unibench*"):
        if _is_left(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _is_left(name: str) -> bool:
    """Whether who made it is gone."""
    found = OURS.fullmatch(name)
    return found is not None and not Path(f"/proc/{found[1]}").exists()
