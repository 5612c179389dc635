"""Operations a second on shared dictionaries, counters and locks: three members each, here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.objects.unisono_member import NAMES
from benchmarks.peers.tools import no_module, not_installed
from benchmarks.turns import (
    Trio,
    chosen,
    etcd,
    free_ports,
    no_etcd,
    no_pysyncobj,
    options,
    python,
    run,
)
from unisono.processes import Process, Processes

WHAT: Final = ("dict", "counter", "lock")
CALLERS: Final = (1, 3, 64)
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
    module = "objects.unisono_member"
    return [python(processes, name, module, name, port, protocol) for name in NAMES]


def pysyncobj(processes: Processes, top: Path) -> list[Process]:
    ports, module = free_ports(3), "objects.pysyncobj_member"
    return [python(processes, f"m{at}", module, str(at), *ports) for at in range(3)]


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
    return [python(processes, "client", "objects.zookeeper_client", *clients)]


def no_zookeeper() -> str:
    return no_module("kazoo", "kazoo") if ZOOKEEPER.exists() else not_installed("zookeeper")


SYSTEMS: Final = {
    "unisono": Trio(str, partial(unisono, protocol="ring")),
    "unisono-mtp": Trio(str, partial(unisono, protocol="mtp")),
    "unisono-rmp": Trio(str, partial(unisono, protocol="rmp")),
    "pysyncobj": Trio(no_pysyncobj, pysyncobj),
    "etcd": Trio(no_etcd, partial(etcd, client="objects.etcd_client")),
    "zookeeper": Trio(no_zookeeper, zookeeper),
}


def main(arguments: Sequence[str]) -> int:
    parser = options("objects", __doc__, SYSTEMS)
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--callers", default=",".join(map(str, CALLERS)))
    asked = parser.parse_args(arguments)
    what, callers = chosen(parser, asked.what, WHAT), asked.callers.split(",")
    loads = [f"{each} {count}" for each in what for count in callers]
    return run(parser, asked, SYSTEMS, loads, "callers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
