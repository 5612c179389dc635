"""Updates and reads a second of durable systems, three members each on this machine."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.durable.unisono_member import NAMES
from benchmarks.peers.tools import no_module, not_installed
from unisono.bench.checkout import environment
from unisono.processes import PATH, Process, Processes, answers

OUTSTANDING: Final = (1, 16, 256)
READY_S: Final = 60.0
MORE_S: Final = 60.0
"""An answer may come so much later than the load lasts."""


def free_ports(count: int) -> list[str]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def python(processes: Processes, name: str, module: str, *arguments: str) -> Process:
    """A member or a client in Python, of this bench or, with a dot, of another."""
    module = module if "." in module else f"benchmarks.durable.{module}"
    return processes.start(name, (sys.executable, "-P", "-m", module, *arguments), environment())


def unisono(processes: Processes, top: Path, protocol: str, milestone: str) -> list[Process]:
    (port,) = free_ports(1)
    return [
        python(processes, name, "unisono_member", name, str(top / name), port, protocol, milestone)
        for name in NAMES
    ]


def pysyncobj(processes: Processes, top: Path, sync: str) -> list[Process]:
    ports = free_ports(3)
    for at in range(3):
        (top / str(at)).mkdir()
    return [
        python(
            processes, f"member {at}", "pysyncobj_member", str(at), str(top / str(at)), sync, *ports
        )
        for at in range(3)
    ]


def etcd(processes: Processes, top: Path, client: str = "etcd_client") -> list[Process]:
    clients, peers = free_ports(3), free_ports(3)
    cluster = ",".join(f"m{at}=http://127.0.0.1:{port}" for at, port in enumerate(peers))
    for at in range(3):
        own, peer = f"http://127.0.0.1:{clients[at]}", f"http://127.0.0.1:{peers[at]}"
        processes.start(
            f"etcd {at}",
            [
                *("etcd", "--name", f"m{at}", "--data-dir", str(top / f"m{at}")),
                *("--listen-client-urls", own, "--advertise-client-urls", own),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", cluster, "--log-level", "error"),
            ],
        )
    return [python(processes, "client", client, clients[0])]


Start = Callable[[Processes, Path], list[Process]]
SYSTEMS: Final[dict[str, tuple[Callable[[], str], Start]]] = {
    "unisono": (str, partial(unisono, protocol="ring", milestone="green")),
    "unisono-stable": (str, partial(unisono, protocol="ring", milestone="stable")),
    "unisono-transis": (str, partial(unisono, protocol="transis", milestone="green")),
    "pysyncobj": (lambda: no_module("pysyncobj", "pysyncobj"), partial(pysyncobj, sync="fsync")),
    "pysyncobj-mapped": (
        lambda: no_module("pysyncobj", "pysyncobj"),
        partial(pysyncobj, sync="mapped"),
    ),
    "etcd": (lambda: no_etcd(), etcd),
}


def no_etcd() -> str:
    if shutil.which("etcd", path=PATH):
        return no_module("grpc", "grpcio")
    return not_installed("etcd-server")


@contextmanager
def started(start: Start, directory: Path) -> Iterator[Process]:
    """The one that takes the load, as soon as it can."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="durable-") as top,
        Processes() as all_of,
    ):
        members = start(all_of, Path(top))
        answers(members, READY_S)
        yield members[0]


def measure(start: Start, directory: Path, seconds: float) -> list[dict[str, Any]]:
    loads = [("put", count) for count in OUTSTANDING]
    loads += [("get", 16), ("get_latest", 16)]
    found = []
    with started(start, directory) as member:
        for what, count in loads:
            member.write(f"{what} {count} {seconds}")
            found += answers([member], seconds + MORE_S)
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--directory", type=Path, default=Path("build"), help="on the disk to use")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--missing", action="store_true", help="say only what is not installed")
    asked = parser.parse_args(arguments)
    asked.directory.mkdir(parents=True, exist_ok=True)
    names = asked.systems.split(",")
    if unknown := sorted(set(names) - SYSTEMS.keys()):
        parser.error(f"no system {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    for name in names:
        missing, start = SYSTEMS[name]
        reason = missing()
        if reason or asked.missing:
            print(f"{name}: {reason or 'ready'}")
            continue
        for row in measure(start, asked.directory, asked.seconds):
            if asked.json:
                print(json.dumps({"system": name, **row}), flush=True)
            else:
                print(
                    f"{name:17} {row['what']:10} {row['outstanding']:4} outstanding"
                    f" {row['rate']:10,.0f}/s  p50 {row['p50_ms']} ms  p99 {row['p99_ms']} ms",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
