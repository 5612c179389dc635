"""Peers as they are set up, and as they are told missing: nothing here needs one installed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.peers import client, corosync, jgroups, nats, peers, redis, tools
from tests.waiting import LIMIT_S
from unisono.bench.hosts import MTU, Host, hosts_on
from unisono.bench.line_protocol import DATA, END, Command, payload
from unisono.bench.system import Workload
from unisono.processes import RunFailed

HOSTS = tuple(Host(at, f"10.77.0.{at + 1}", (), "eth0") for at in range(3))
NAMES = ["corosync", "corosync-plain", "jgroups", "pysyncobj", "nats", "redis"]
"""Those that have to be installed."""
FLOORS = ["asyncio", "raw"]


def test_every_peer_is_found_by_its_name() -> None:
    assert list(peers()) == [*NAMES, "unisono-threads", *FLOORS]
    assert [each.name for each in peers().values()] == list(peers())


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_that_is_not_installed_is_reported_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (corosync, jgroups, nats, redis):
        monkeypatch.setattr(module, "PATH", str(tmp_path))
    monkeypatch.setattr(jgroups, "JAR", tmp_path / "jgroups.jar")
    monkeypatch.setattr(tools, "find_spec", lambda module: None)
    assert re.fullmatch(r"\S.* is not installed: make bench-peers", peers()[name].missing())


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_takes_agreed_messages_alone(name: str) -> None:
    peer = peers()[name]
    assert peer.refuses(Workload(3, 64, 1)) == ""
    assert peer.refuses(Workload(3, 64, 1, "safe")) == f"{name} has no safe service, agreed alone"


def test_clients_in_c_and_java_are_found() -> None:
    assert tools.source("corosync.c").exists()
    assert tools.source(f"{jgroups.MAIN}.java").exists()


def test_a_failing_compiler_is_reported_with_its_message() -> None:
    with pytest.raises(RunFailed, match=r"sh -c .*: no such thing"):
        tools.compiled("sh", "-c", "echo no such thing >&2; exit 1")
    with pytest.raises(RunFailed, match="no-such-compiler"):
        tools.compiled("no-such-compiler")


# -- how they are set up ------------------------------------------------------------------------


def test_corosync_knows_all_hosts_and_the_mtu() -> None:
    conf = corosync.configuration(HOSTS, HOSTS[1], Path("home"), 64)
    assert re.findall(r"ring0_addr: (\S+)", conf) == [host.address for host in HOSTS]
    assert re.findall(r"nodeid: (\d+)", conf) == ["1", "2", "3"]
    assert f"netmtu: {MTU}\n" in conf
    assert "bindnetaddr: 10.77.0.2\n" in conf
    assert "state_dir: home\n" in conf
    assert conf.count("{") == conf.count("}")
    assert "crypto" not in conf


def test_corosync_gets_a_larger_window_for_messages_larger_than_a_packet() -> None:
    small, large = (
        corosync.configuration(HOSTS, HOSTS[0], Path("home"), size) for size in (1000, 1 << 20)
    )
    assert "window_size" not in small and "max_messages" not in small
    assert "window_size: 300\n" in large and "max_messages: 100\n" in large


def test_corosync_runs_with_debians_priority_and_without() -> None:
    debian, plain = (
        corosync.configuration(HOSTS, HOSTS[0], Path("home"), 64, realtime)
        for realtime in (True, False)
    )
    assert "sched_rr: yes\n" in debian and "window_size" not in debian
    assert "sched_rr: no\n" in plain and "window_size: 300\n" in plain


def test_corosync_is_for_namespaces_alone() -> None:
    peer, load = corosync.Corosync(), Workload(3, 64, 1)
    refused = pytest.raises(RunFailed, match="--net namespaces")
    with hosts_on("loopback", 3) as hosts, refused, peer.started(hosts, load):
        pass


def test_jgroups_commands_above_its_reliable_multicast_and_bundles() -> None:
    stack = ElementTree.fromstring(jgroups.configuration("10.77.0.1", 3))
    layers = [each.tag.rpartition("}")[2] for each in stack]
    assert layers[0] == "UDP"
    assert layers.index("pbcast.NAKACK") < layers.index("SEQUENCER") < layers.index("MFC")
    udp = stack[0].attrib
    assert udp["bind_addr"] == "10.77.0.1"
    assert udp["enable_bundling"] == udp["enable_unicast_bundling"] == "true"


def test_servers_listen_where_they_sit_and_keep_nothing_on_a_disk() -> None:
    assert f'listen: "10.77.0.4:{nats.PORT}"\n' in nats.configuration("10.77.0.4", Path("home"))
    command = redis.server_command("10.77.0.4")
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert (options["--bind"], options["--save"], options["--appendonly"]) == (
        "10.77.0.4",
        "",
        "no",
    )


# -- members in Python, on a carrier that is a list ---------------------------------------------


class Wire(client.Carrier):
    """Gives to all receivers what anybody sends, at once and in one order."""

    ahead_count_max = 500

    def __init__(self) -> None:
        self.receivers: list[client.PeerReceiver] = []

    async def send(self, payloads: Sequence[bytes]) -> None:
        for receiver in self.receivers:
            receiver.received(payloads)
        await asyncio.sleep(0)


def told(commands: Sequence[Command], late_s: float = 0.0) -> list[dict[str, Any]]:
    """What members answer to these, one order each; the last of them reads its own late."""

    async def story() -> list[dict[str, Any]]:
        wire = Wire()
        loop = asyncio.get_running_loop()
        wire.receivers = [client.PeerReceiver(loop, len(commands)) for _ in commands]
        members = [
            client.PeerMember(wire, receiver, at) for at, receiver in enumerate(wire.receivers)
        ]
        for member in members:
            await wire.send([member.payload(client.HELLO)])
        for receiver in wire.receivers:
            await asyncio.wait_for(receiver.all_here.wait(), LIMIT_S)
        asked = [
            asyncio.create_task(member.obey(command))
            for member, command in zip(members[:-1], commands[:-1], strict=True)
        ]
        await asyncio.sleep(late_s)
        asked.append(asyncio.create_task(members[-1].obey(commands[-1])))
        return list(await asyncio.wait_for(asyncio.gather(*asked), LIMIT_S))

    return asyncio.run(story())


def test_members_count_all_messages_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.DIGEST, "1")
    begin_ns = monotonic_ns() + 50_000_000
    answers = told([Command("load", 7, begin_ns, 0.1, 64, at < 2, 2) for at in range(3)])
    sent = [each["sent"] for each in answers]
    assert sent[0] > 0 and sent[1] > 0 and sent[2] == 0
    assert {each["delivered"] for each in answers} == {sum(sent)}
    assert len({each["digest"] for each in answers}) == 1
    for each in answers:
        assert begin_ns <= each["first_ns"] <= each["last_ns"]


def test_a_member_that_reads_its_order_late_misses_nothing() -> None:
    begin_ns = monotonic_ns()
    answers = told(
        [Command("load", 1, begin_ns, 0.1, 64, at == 0, 1) for at in range(2)], late_s=0.3
    )
    assert answers[0]["sent"] == answers[0]["delivered"] == answers[1]["delivered"] > 0


def test_a_probe_samples_messages_of_others() -> None:
    begin_ns = monotonic_ns() + 20_000_000
    answers = told([Command("probe", 2, begin_ns, 0.2, 64, at == 0, 1, 5000.0) for at in range(2)])
    assert answers[0]["count"] == 0 and answers[0]["samples_us"] == []
    assert 0 < answers[1]["count"] <= 1000
    assert len(answers[1]["samples_us"]) == answers[1]["count"]
    assert all(0 <= each < 1e6 for each in answers[1]["samples_us"])


def test_messages_of_another_round_do_not_count() -> None:
    round_ = client.Round(Command("load", 3, 0, 1.0, 64, False, 1), 0)
    assert not round_.received(1, [payload(DATA, 2), payload(END, 2)])
    assert round_.received(2, [payload(DATA, 3), payload(END, 3)])
    assert round_.answer(0)["delivered"] == 1
