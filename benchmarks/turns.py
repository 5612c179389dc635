"""Systems of three members on this machine, measured in turns: one member takes the loads."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.peers.tools import no_module, not_installed
from unisono.bench.checkout import environment
from unisono.processes import PATH, Process, Processes, answers

READY_S: Final = 90.0
MORE_S: Final = 60.0
"""An answer may come so much later than the load lasts."""

Row = Mapping[str, Any]


class Trio(NamedTuple):
    """A system of three members."""

    missing: Callable[[], str]
    """Why it cannot be measured here; empty if it can."""
    start: Callable[[Processes, Path], list[Process]]
    """Starts it with its files in a directory; the first of these takes the loads."""


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
    """A member or a client in Python."""
    command = (sys.executable, "-P", "-m", f"benchmarks.{module}", *arguments)
    return processes.start(name, command, environment())


def no_etcd() -> str:
    if shutil.which("etcd", path=PATH):
        return no_module("grpc", "grpcio")
    return not_installed("etcd-server")


def no_pysyncobj() -> str:
    return no_module("pysyncobj", "pysyncobj")


def etcd(processes: Processes, top: Path, client: str) -> list[Process]:
    """Three servers, and a client that is this module."""
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


def options(name: str, about: str | None, systems: Mapping[str, Trio]) -> argparse.ArgumentParser:
    """A parser with what all of these commands take."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--systems", default=",".join(systems))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--directory", type=Path, default=Path("build"), help="on the disk to use")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--missing", action="store_true", help="say only what is not installed")
    return parser


def run(
    parser: argparse.ArgumentParser,
    asked: argparse.Namespace,
    systems: Mapping[str, Trio],
    loads: Iterable[str],
    unit: str,
) -> int:
    """Each load to each system that was asked for."""
    asked.directory.mkdir(parents=True, exist_ok=True)
    names, loads = asked.systems.split(","), list(loads)
    if unknown := sorted(set(names) - systems.keys()):
        parser.error(f"no system {', '.join(unknown)}; there are {', '.join(systems)}")
    for name in names:
        reason = systems[name].missing()
        if reason or asked.missing:
            print(f"{name}: {reason or 'ready'}")
            continue
        with (
            tempfile.TemporaryDirectory(dir=asked.directory, prefix="bench-") as top,
            Processes() as processes,
        ):
            members = systems[name].start(processes, Path(top).resolve())
            answers(members, READY_S)
            for load in loads:
                members[0].write(f"{load} {asked.seconds}")
                (row,) = answers(members[:1], asked.seconds + MORE_S)
                show(name, row, unit, asked.json)
    return 0


def show(system: str, row: Row, unit: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"system": system, **row}), flush=True)
        return
    print(
        f"{system:17} {row['what']:10} {row['outstanding']:4} {unit} {row['rate']:10,.0f}/s"
        f"  p50 {row['p50_ms']} ms  p99 {row['p99_ms']} ms",
        flush=True,
    )


def chosen(parser: argparse.ArgumentParser, text: str, known: Sequence[str]) -> list[str]:
    """The words of an option that takes several of these."""
    words = text.split(",")
    if unknown := sorted(set(words) - set(known)):
        parser.error(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    return words
