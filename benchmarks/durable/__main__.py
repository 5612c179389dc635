"""Updates and reads a second of durable systems, three members each on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.durable.unisono_member import NAMES
from benchmarks.turns import Trio, etcd, free_ports, no_etcd, no_pysyncobj, options, python, run
from unisono.processes import Process, Processes

OUTSTANDING: Final = (1, 16, 256)
LOADS: Final = (*(f"put {count}" for count in OUTSTANDING), "get 16", "get_latest 16")


def unisono(processes: Processes, top: Path, protocol: str, milestone: str) -> list[Process]:
    (port,) = free_ports(1)
    module, how = "durable.unisono_member", (port, protocol, milestone)
    return [python(processes, name, module, name, str(top / name), *how) for name in NAMES]


def pysyncobj(processes: Processes, top: Path, sync: str) -> list[Process]:
    ports, module = free_ports(3), "durable.pysyncobj_member"
    for at in range(3):
        (top / str(at)).mkdir()
    return [
        python(processes, f"member {at}", module, str(at), str(top / str(at)), sync, *ports)
        for at in range(3)
    ]


SYSTEMS: Final = {
    "unisono": Trio(str, partial(unisono, protocol="ring", milestone="green")),
    "unisono-stable": Trio(str, partial(unisono, protocol="ring", milestone="stable")),
    "unisono-transis": Trio(str, partial(unisono, protocol="transis", milestone="green")),
    "pysyncobj": Trio(no_pysyncobj, partial(pysyncobj, sync="fsync")),
    "pysyncobj-mapped": Trio(no_pysyncobj, partial(pysyncobj, sync="mapped")),
    "etcd": Trio(no_etcd, partial(etcd, client="durable.etcd_client")),
}


def main(arguments: Sequence[str]) -> int:
    parser = options("durable", __doc__, SYSTEMS)
    return run(parser, parser.parse_args(arguments), SYSTEMS, LOADS, "outstanding")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
