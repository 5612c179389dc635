"""Corosync's closed process groups: a daemon on each host, and our client of `libcpg`."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers.tools import PeerTool, compiled, not_installed, source, start
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import MTU, NAMESPACES, Host, Hosts
from unisono.bench.system import Workload
from unisono.processes import PATH, Processes, RunFailed

GROUP: Final = "bench"
MULTICAST: Final = "239.77.0.1"
WINDOW, TURN = 300, 100
"""Packets in flight, and in one turn of a member; by default 50 and 17. Set where it makes Corosync
faster: for messages larger than a packet, and without real-time priority."""
STAGGER_S: Final = 0.2
"""Daemons that start together on a busy machine may not find each other for a long time."""
SHARED: Final = Path("/dev/shm")
"""Where daemon and client share memory, under the daemon's process id."""
HEADER: Final = "corosync/cpg.h"
# The daemon holds a lock in /run, under one name on a machine: each gets a /run of its own.
ALONE: Final = "mount -t tmpfs tmpfs /run && exec corosync -f -c {conf}"


class Corosync(PeerTool):
    """Totem's ring in C, Debian's packages.

    As Debian starts it, the daemon has real-time priority and runs whenever a client sends, so it
    packs little into a packet. With normal priority it packs more. Which is faster depends on the
    size of messages and on the load of the machine, so both are measured.
    """

    def __init__(self, realtime: bool = True) -> None:
        self._realtime = realtime
        self.name = "corosync" if realtime else "corosync-plain"

    def missing(self) -> str:
        if not shutil.which("corosync", path=PATH):
            return not_installed("corosync")
        if not shutil.which("gcc", path=PATH):
            return not_installed("gcc (for our client of libcpg)")
        if not Path("/usr/include", HEADER).exists():
            return not_installed("libcpg-dev")
        return ""

    @contextlib.contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        if hosts.net != NAMESPACES:
            # Its clients find their daemon by an abstract socket: one name a network namespace.
            raise RunFailed(
                "corosync: one daemon a network namespace: measure it with --net namespaces"
            )
        client = hosts.scratch / "corosync-member"
        compiled("gcc", "-O2", "-o", str(client), str(source("corosync.c")), "-lcpg")
        with _daemons() as daemons, Processes() as members:
            for host in hosts.members:
                home = hosts.scratch / f"corosync-{host.index}"
                home.mkdir(exist_ok=True)
                conf = home / "corosync.conf"
                conf.write_text(
                    configuration(hosts.members, host, home, workload.size, self._realtime)
                )
                alone = ("unshare", "--mount", "sh", "-c", ALONE.format(conf=conf))
                start(daemons, "corosync", host, *alone)
                time.sleep(STAGGER_S)
            for host in hosts.members:
                count = str(len(hosts.members))
                start(members, "member", host, str(client), GROUP, str(host.index), count)
            yield Cluster([*members], [*daemons])


@contextlib.contextmanager
def _daemons() -> Iterator[Processes]:
    """Ended afterwards, and their shared memory freed: one that was killed could not do it."""
    daemons = Processes()
    try:
        with daemons:
            yield daemons
    finally:
        for daemon in daemons:
            for left in SHARED.glob(f"qb-{daemon.pid}-*"):
                shutil.rmtree(left, ignore_errors=True)


def configuration(
    hosts: Sequence[Host], host: Host, home: Path, size: int, realtime: bool = True
) -> str:
    """`corosync.conf` of one daemon. What is set and why: docs/BENCHMARKS.md."""
    nodes = "\n".join(
        f"  node {{\n    nodeid: {each.index + 1}\n    ring0_addr: {each.address}\n  }}"
        for each in hosts
    )
    window = (
        f"  window_size: {WINDOW}\n  max_messages: {TURN}\n" if size > MTU or not realtime else ""
    )
    return f"""totem {{
  version: 2
  cluster_name: unisono-bench
  transport: udp
  netmtu: {MTU}
  interface {{
    linknumber: 0
    bindnetaddr: {host.address}
    mcastaddr: {MULTICAST}
    mcastport: 5405
  }}
{window}}}
nodelist {{
{nodes}
}}
logging {{
  to_stderr: yes
  to_syslog: no
  to_logfile: no
  blackbox: off
}}
system {{
  sched_rr: {"yes" if realtime else "no"}
  state_dir: {home}
}}
"""
