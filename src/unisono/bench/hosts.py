"""Where members run: the loopback interface, or a network namespace each, on one bridge."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unisono.errors import Misuse
from unisono.processes import PATH, RunFailed

LOOPBACK, NAMESPACES = "loopback", "namespaces"
NETS: Final = (LOOPBACK, NAMESPACES)
LOCALHOST: Final = "127.0.0.1"
"""Carries multicast on loopback, whatever the hosts' own addresses are."""
MULTICAST_PROBE: Final = "239.192.77.2"
MTU: Final = 1500
INTERFACE: Final = "eth0"
SECONDS_MAX: Final = 20
LEFT_BEHIND: Final = re.compile(r"unibench(\d+)-\w+")
"""A namespace or scratch directory of the bench, and the process that made it."""


@dataclass(frozen=True)
class Host:
    """Where one member runs."""

    index: int
    address: str
    """IPv4."""
    prefix: tuple[str, ...]
    """Put before every command: nothing on loopback, `ip netns exec NAME` in a namespace."""
    interface: str
    """`lo`, or the name of the veth inside the namespace."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of a run."""

    net: str
    """`loopback` or `namespaces`."""
    members: tuple[Host, ...]
    scratch: Path
    """A private directory, removed afterwards."""
    server: Host
    """For the server of a system that has one; in namespaces one more host on the bridge."""

    def interface_of(self, host: Host) -> str:
        """The address of the interface that carries its multicast."""
        return LOCALHOST if self.net == LOOPBACK else host.address


def check(net: str) -> None:
    """`Misuse` if this machine does not allow such hosts."""
    if net not in NETS:
        raise Misuse(f"--net {net!r}: write {' or '.join(NETS)}")
    if net == LOOPBACK:
        return
    if not shutil.which("ip", path=PATH):
        raise Misuse("--net namespaces needs the command `ip`: install the package iproute2")
    if os.geteuid() != 0:
        raise Misuse("--net namespaces needs root: use sudo, or --net loopback")


@contextlib.contextmanager
def hosts_on(net: str, count: int) -> Iterator[Hosts]:
    """Hosts for these members and one server; all is removed afterwards."""
    check(net)
    _remove_old_scratch()
    with contextlib.ExitStack() as undo:
        # A short path: it holds sockets, whose paths are bounded.
        prefix = f"unibench{os.getpid()}-"
        scratch = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        if net == LOOPBACK:
            hosts = [Host(at, f"127.0.0.{at + 1}", (), "lo") for at in range(count + 1)]
        else:
            _remove_old_namespaces()
            names = [f"unibench{os.getpid()}-{at}" for at in range(count + 1)]
            undo.enter_context(bridged(f"unibench{os.getpid()}-hub", names))
            hosts = [
                Host(at, address_of(at), ("ip", "netns", "exec", name), INTERFACE)
                for at, name in enumerate(names)
            ]
        yield Hosts(net, tuple(hosts[:count]), scratch, hosts[count])


@contextlib.contextmanager
def bridged(hub: str, names: Sequence[str]) -> Iterator[None]:
    """A namespace a name, at 10.77.0.1 and so on, on a bridge in the namespace `hub`."""
    with contextlib.ExitStack() as undo:
        for name in (hub, *names):
            ip("netns", "add", name)
            undo.callback(_remove, name)
        ip("-n", hub, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        ip("-n", hub, "link", "set", "bridge", "mtu", str(MTU), "up")
        for at, name in enumerate(names):
            pair = ("type", "veth", "peer", "name", f"port{at}", "netns", hub)
            ip("-n", name, "link", "add", INTERFACE, "mtu", str(MTU), *pair)
            ip("-n", hub, "link", "set", f"port{at}", "mtu", str(MTU), "master", "bridge", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{address_of(at)}/24", "dev", INTERFACE)
            ip("-n", name, "link", "set", INTERFACE, "up")
            ip("-n", name, "route", "add", "224.0.0.0/4", "dev", INTERFACE)
        yield


def address_of(at: int) -> str:
    """Of the host at this place on the bridge, from 0."""
    return f"10.77.0.{at + 1}"


def ip(*words: str) -> str:
    """Run the command `ip`; its output."""
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
        raise RunFailed(f"ip {' '.join(words)}: not within {SECONDS_MAX} s") from None
    if done.returncode:
        raise RunFailed(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _remove(name: str) -> None:
    """As well as it goes: the others are to be removed too."""
    with contextlib.suppress(RunFailed):
        ip("netns", "del", name)


def _remove_old_namespaces() -> None:
    """A bench that was killed could not remove its namespaces."""
    for line in ip("netns", "list").splitlines():
        if _is_left_behind(line.partition(" ")[0]):
            _remove(line.partition(" ")[0])


def _remove_old_scratch() -> None:
    for path in Path(tempfile.gettempdir()).glob("unibench*"):
        if _is_left_behind(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _is_left_behind(name: str) -> bool:
    """Whether the process that made it is gone."""
    found = LEFT_BEHIND.fullmatch(name)
    return found is not None and not Path(f"/proc/{found[1]}").exists()


# -- ports and multicast of this machine -----------------------------------------------------------


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind((LOCALHOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def has_multicast() -> bool:
    """Whether a packet to a multicast address on loopback arrives: tried, not guessed."""
    local = socket.inet_aton(LOCALHOST)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        try:
            receiver.bind((MULTICAST_PROBE, 0))
            membership = socket.inet_aton(MULTICAST_PROBE) + local
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            receiver.settimeout(0.5)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, local)
            sender.sendto(b"probe", (MULTICAST_PROBE, receiver.getsockname()[1]))
            return receiver.recv(16) == b"probe"
        except OSError:
            return False
