"""Operations a second on shared dictionaries, counters and locks: three members each, here."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.durable import __main__ as durable
from benchmarks.durable.__main__ import MORE_S, Start, free_ports, no_etcd, python
from benchmarks.objects.unisono_member import NAMES
from benchmarks.peers.tools import no_module, not_installed
from unisono.processes import Process, Processes, answers

WHAT: Final = ("dict", "counter", "lock")
CALLERS: Final = (1, 3, 64)
READY_S: Final = 90.0
ZOOKEEPER: Final = Path("/usr/share/java/zookeeper.jar")
"""Of Debian's package; its manifest names the others."""
CONFIG: Final = """tickTime=2000
initLimit=10
syncLimit=5
maxClientCnxns=100
admin.enableServer=false
dataDir={directory}
clientPort={port}
{servers}
"""


def unisono(processes: Processes, top: Path, protocol: str) -> list[Process]:
    (port,) = free_ports(1)
    module = "benchmarks.objects.unisono_member"
    return [python(processes, name, module, name, port, protocol) for name in NAMES]


def pysyncobj(processes: Processes, top: Path) -> list[Process]:
    ports, module = free_ports(3), "benchmarks.objects.pysyncobj_member"
    return [python(processes, f"m{at}", module, str(at), *ports) for at in range(3)]


def etcd(processes: Processes, top: Path) -> list[Process]:
    return durable.etcd(processes, top, "benchmarks.objects.etcd_client")


def zookeeper(processes: Processes, top: Path) -> list[Process]:
    clients, peers, elections = free_ports(3), free_ports(3), free_ports(3)
    servers = "\n".join(f"server.{at + 1}=127.0.0.1:{peers[at]}:{elections[at]}" for at in range(3))
    for at in range(3):
        directory = top / f"z{at}"
        directory.mkdir()
        (directory / "myid").write_text(f"{at + 1}\n")
        config = directory / "zoo.cfg"
        text = CONFIG.format(directory=directory, port=clients[at], servers=servers)
        config.write_text(text)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ("java", "-Xmx512m", "-cp", f"{directory}:{ZOOKEEPER}", main, str(config))
        processes.start(f"zookeeper {at}", command)
    return [python(processes, "client", "benchmarks.objects.zookeeper_client", *clients)]


def no_zookeeper() -> str:
    return no_module("kazoo", "kazoo") if ZOOKEEPER.exists() else not_installed("zookeeper")


SYSTEMS: Final[dict[str, tuple[Callable[[], str], Start]]] = {
    "unisono": (str, partial(unisono, protocol="ring")),
    "unisono-mtp": (str, partial(unisono, protocol="mtp")),
    "unisono-rmp": (str, partial(unisono, protocol="rmp")),
    "pysyncobj": (lambda: no_module("pysyncobj", "pysyncobj"), pysyncobj),
    "etcd": (no_etcd, etcd),
    "zookeeper": (no_zookeeper, zookeeper),
}


@contextmanager
def started(start: Start, directory: Path) -> Iterator[Process]:
    """The one with the callers, as soon as all are ready."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="objects-") as top,
        Processes() as all_of,
    ):
        members = start(all_of, Path(top).resolve())
        answers(members, READY_S)
        yield members[0]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objects", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--callers", default=",".join(map(str, CALLERS)))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--directory", type=Path, default=Path("build"), help="for the servers")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--missing", action="store_true", help="say only what is not installed")
    asked = parser.parse_args(arguments)
    asked.directory.mkdir(parents=True, exist_ok=True)
    names, what = asked.systems.split(","), asked.what.split(",")
    if unknown := sorted((set(names) - SYSTEMS.keys()) | (set(what) - set(WHAT))):
        parser.error(f"no {', '.join(unknown)}; there are {', '.join((*SYSTEMS, *WHAT))}")
    for name in names:
        missing, start = SYSTEMS[name]
        reason = missing()
        if reason or asked.missing:
            print(f"{name}: {reason or 'ready'}")
            continue
        with started(start, asked.directory) as member:
            for each in what:
                for callers in map(int, asked.callers.split(",")):
                    member.write(f"{each} {callers} {asked.seconds}")
                    (row,) = answers([member], asked.seconds + MORE_S)
                    _print(name, row, asked.json)
    return 0


def _print(system: str, row: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"system": system, **row}), flush=True)
        return
    print(
        f"{system:12} {row['what']:8} {row['outstanding']:3} callers {row['rate']:10,.0f}/s"
        f"  p50 {row['p50_ms']} ms  p99 {row['p99_ms']} ms",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
