"""JGroups with SEQUENCER over multicast UDP: Debian's library, our client in Java on each host."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.peers.tools import PeerTool, compiled, not_installed, source, start
from unisono.bench.cluster import Cluster
from unisono.bench.hosts import Hosts
from unisono.bench.system import Workload
from unisono.processes import PATH, Processes

JAR: Final = Path("/usr/share/java/jgroups.jar")
MAIN: Final = "JGroupsMember"
# A heap for a load of large messages, and the collector made for throughput.
JAVA: Final = ("java", "-Xmx1g", "-XX:+UseParallelGC", "-Djava.net.preferIPv4Stack=true")


class JGroups(PeerTool):
    """A sequencer in Java, Debian's package."""

    name = "jgroups"

    def missing(self) -> str:
        if not JAR.exists():
            return not_installed("libjgroups-java")
        if not shutil.which("javac", path=PATH):
            return not_installed("a JDK (for our client of JGroups)")
        return ""

    @contextlib.contextmanager
    def started(self, hosts: Hosts, workload: Workload) -> Iterator[Cluster]:
        home = hosts.scratch / "jgroups"
        home.mkdir(exist_ok=True)
        first = home / "first"
        first.unlink(missing_ok=True)
        compiled("javac", "-cp", str(JAR), "-d", str(home), str(source(f"{MAIN}.java")))
        count = len(hosts.members)
        with Processes() as members:
            for host in hosts.members:
                stack = home / f"stack-{host.index}.xml"
                # Java knows one address of the loopback interface; ports distinguish members.
                stack.write_text(configuration(hosts.interface_of(host), count))
                arguments = [str(stack), str(host.index), str(count), str(first)]
                command = [*JAVA, "-cp", f"{JAR}:{home}", MAIN, *arguments]
                start(members, "member", host, *command)
            yield Cluster([*members])


def configuration(host: str, members: int) -> str:
    """The stack of one member: JGroups' `sequencer.xml`, except as docs/BENCHMARKS.md lists."""
    return f"""<config xmlns="urn:org:jgroups">
  <UDP
    bind_addr="{host}"
    mcast_addr="239.77.0.2"
    mcast_port="45588"
    ip_ttl="2"
    tos="8"
    ucast_recv_buf_size="20M"
    ucast_send_buf_size="640K"
    mcast_recv_buf_size="25M"
    mcast_send_buf_size="640K"
    loopback="true"
    discard_incompatible_packets="true"
    enable_bundling="true"
    enable_unicast_bundling="true"
    bundler_type="new"
    max_bundle_size="64000"
    max_bundle_timeout="1"
    enable_diagnostics="false"
    timer_type="new"
    thread_pool.enabled="true"
    thread_pool.min_threads="2"
    thread_pool.max_threads="8"
    thread_pool.queue_enabled="true"
    thread_pool.queue_max_size="10000"
    thread_pool.rejection_policy="discard"
    oob_thread_pool.enabled="true"
    oob_thread_pool.min_threads="1"
    oob_thread_pool.max_threads="8"
    oob_thread_pool.queue_enabled="false"
    oob_thread_pool.rejection_policy="Run"/>
  <PING timeout="1000" num_initial_members="{members}" break_on_coord_rsp="true"/>
  <MERGE2 max_interval="30000" min_interval="10000"/>
  <FD_SOCK/>
  <FD_ALL/>
  <VERIFY_SUSPECT timeout="1500"/>
  <BARRIER/>
  <pbcast.NAKACK
    use_stats_for_retransmission="false"
    exponential_backoff="150"
    use_mcast_xmit="true"
    gc_lag="0"
    retransmit_timeout="300,600,1200"
    discard_delivered_msgs="true"/>
  <UNICAST timeout="300,600,1200"/>
  <pbcast.STABLE stability_delay="1000" desired_avg_gossip="50000" max_bytes="4M"/>
  <pbcast.GMS print_local_addr="false" join_timeout="3000" view_bundling="true"/>
  <SEQUENCER/>
  <UFC max_credits="2M" min_threshold="0.4"/>
  <MFC max_credits="2M" min_threshold="0.4"/>
  <FRAG2 frag_size="60000"/>
</config>
"""
