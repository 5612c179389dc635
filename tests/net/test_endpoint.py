"""Real sockets on loopback: multicast, lists of peers, both families, mistakes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.net.recorder import Recorder, free_port
from unisono.core import EVERYONE
from unisono.errors import Misuse
from unisono.model import Address
from unisono.net import offload, receive_path
from unisono.net.addresses import Addresses
from unisono.net.udp import Endpoint

pytestmark = pytest.mark.real
GROUP = "239.192.77.7"
ROOT = Path(__file__).parents[2]


def no_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return True
    return False


needs_ipv6 = pytest.mark.skipif(no_ipv6(), reason="needs an IPv6 loopback address")


def multicast(port: int, **more: Any) -> Addresses:
    return Addresses(multicast=Address(GROUP, port), interface="127.0.0.1", **more)


@pytest.mark.parametrize("offloads", [True, False])
async def test_a_multicast_reaches_the_others_and_not_the_sender(offloads: bool) -> None:
    port = free_port()
    a, b, c = (Recorder(multicast(port), offloads=offloads) for _ in range(3))
    packets = [bytes([n]) * 1200 for n in range(90)] + [b"end"]
    a.endpoint.send(EVERYONE, packets)
    assert await b.received(91) == packets
    assert await c.received(91) == packets
    assert {source for source, _ in b.bursts} == {a.endpoint.address}
    c.endpoint.send((a.endpoint.address,), [b"to you alone"])
    assert await a.received(1) == [b"to you alone"]
    counts = a.endpoint.counts
    assert counts["net.out.packets"] == 91 and counts["net.in.packets"] == 1
    assert counts["net.out.calls"] < 5 if offloads and a.endpoint.segments else True
    for ear in (a, b, c):
        ear.close()


async def test_payloads_stay_intact_while_they_are_referenced() -> None:
    port = free_port()
    a, b = Recorder(multicast(port)), Recorder(multicast(port))
    rounds = 3 * receive_path.SLAB_BYTES // 40_000
    for n in range(rounds):
        a.endpoint.send(EVERYONE, [bytes([n % 251]) * 1000] * 40)
        await b.received(40 * (n + 1))
    held = b.packets
    assert held == [bytes([n % 251]) * 1000 for n in range(rounds) for _ in range(40)]
    a.close()
    b.close()


async def test_an_unreferenced_slab_is_reused() -> None:
    port = free_port()
    a, b = Recorder(multicast(port)), Recorder(multicast(port))
    slab = b.endpoint._receive_path._slab
    for _ in range(2 * receive_path.SLAB_BYTES // 40_000):
        a.endpoint.send(EVERYONE, [bytes(1000)] * 40)
        await b.received(40)
        b.bursts.clear()
    assert b.endpoint._receive_path._slab is slab
    a.close()
    b.close()


async def test_single_and_empty_datagrams_are_received_in_order() -> None:
    sizes = [0, 0, 10, 9000, 9000, 0, 5000, 60_000, 1, 1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        b = Recorder(Addresses(peers=(Address(*sock.getsockname()),), bind=Address("127.0.0.1", 0)))
        for size in sizes:
            sock.sendto(bytes(size), b.endpoint.address)
        assert [len(packet) for packet in await b.received(len(sizes))] == sizes
    b.close()


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
async def test_one_list_serves_every_member(host: str) -> None:
    ports = [free_port(host) for _ in range(3)]
    peers = tuple(Address(host, port) for port in ports)
    ears = [Recorder(Addresses(peers=peers)) for _ in peers]
    assert [ear.endpoint.address for ear in ears] == list(peers)
    ears[1].endpoint.send(EVERYONE, [b"x" * 900] * 10)
    assert len(await ears[0].received(10)) == len(await ears[2].received(10)) == 10
    assert ears[1].packets == []
    for ear in ears:
        ear.close()


@pytest.mark.skipif(not offload.LINUX, reason="needs all of 127.0.0.0/8 on loopback")
async def test_the_interface_decides_which_entry_of_the_list_is_ours() -> None:
    port = free_port("127.0.0.3")
    peers = (Address("127.0.0.2", port), Address("127.0.0.3", port))
    ear = Recorder(Addresses(peers=peers, interface="127.0.0.3"))
    other = Recorder(Addresses(peers=peers, interface="127.0.0.4"))
    assert ear.endpoint.address == peers[1]
    assert other.endpoint.address.host == "127.0.0.4"
    ear.close()
    other.close()


async def test_an_unlisted_process_is_answered_and_then_in_the_view() -> None:
    listed = Recorder(Addresses(peers=(Address("127.0.0.1", free_port()),)))
    guest = Recorder(Addresses(peers=(listed.endpoint.address,), bind=Address("", 0)))
    guest.endpoint.send(EVERYONE, [b"hello, as long as a packet of a protocol is"])
    await listed.received(1)
    listed.endpoint.send(EVERYONE, [b"welcome"])
    assert await guest.received(1) == [b"welcome"]
    guest.close()
    listed.close()


async def test_groups_on_one_multicast_address_with_other_ports_or_addresses_are_apart() -> None:
    port, other = free_port(), free_port()
    a, b, c = Recorder(multicast(port)), Recorder(multicast(port)), Recorder(multicast(other))
    d = Recorder(Addresses(multicast=Address("239.192.77.8", port), interface="127.0.0.1"))
    a.endpoint.send(EVERYONE, [b"for b"])
    d.endpoint.send(EVERYONE, [b"unread"])
    c.endpoint.send((b.endpoint.address,), [b"mark"])
    d.endpoint.send((c.endpoint.address,), [b"mark"])
    assert sorted(await b.received(2)) == [b"for b", b"mark"]
    assert await c.received(1) == [b"mark"]
    assert d.packets == []
    for ear in (a, b, c, d):
        ear.close()


async def test_bind_and_advertise_are_apart() -> None:
    at = Addresses(
        peers=(Address("127.0.0.1", free_port()),),
        bind=Address("0.0.0.0", 0),
        advertise=Address("203.0.113.5", 0),
    )
    ear = Recorder(at)
    assert ear.endpoint.bound.host == "0.0.0.0"
    assert ear.endpoint.address == Address("203.0.113.5", ear.endpoint.bound.port)
    ear.close()


async def test_addresses_that_are_no_addresses_are_counted_not_resolved() -> None:
    ear = Recorder(multicast(free_port()))
    bad = (Address("example.org", 5), Address("::1", 5), Address("127.0.0.1", 0))
    ear.endpoint.send(bad, [b"x"])
    assert ear.endpoint.counts["drop.bad_address"] == 3
    ear.close()


async def test_an_absent_peer_is_harmless() -> None:
    here, gone = free_port(), free_port()
    ear = Recorder(Addresses(peers=(Address("127.0.0.1", here), Address("127.0.0.1", gone))))
    for _ in range(3):
        ear.endpoint.send(EVERYONE, [b"anybody?"])
        await asyncio.sleep(0)
    assert ear.endpoint.counts["net.out.packets"] == 3
    ear.close()


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (Addresses(), "neither multicast= nor peers="),
        (Addresses(bind=Address("203.0.113.77", 0)), "not an address of this machine"),
        (Addresses(bind=Address("0.0.0.0", 0)), "give advertise="),
        (multicast(7400, bind=Address("203.0.113.77", 0)), "not an address of this machine"),
        (Addresses(multicast=Address(GROUP, 7400), interface="203.0.113.77"), "give interface="),
        (Addresses(multicast=Address(GROUP, 7400), interface="nosuch0"), "does not exist"),
        (Addresses(multicast=Address(GROUP, 7400), interface="::1"), "wrong family"),
        (Addresses(peers=(Address("127.0.0.1", 9), Address("::1", 9))), "mix IPv4 and IPv6"),
        (multicast(7400, bind=Address("::1", 0)), "bind '::1' is of the wrong.*an IPv4 address"),
        (Addresses(peers=(Address("127.0.0.1", 9),), bind=Address("::1", 5)), "bind '::1' is of"),
        (Addresses(peers=(Address("::1", 9),), bind=Address("127.0.0.1", 5)), "an IPv6 address"),
        (multicast(7400, advertise=Address("::1", 5)), "advertise '::1' is of the wrong family"),
        (multicast(7400, advertise=Address("0.0.0.0", 5)), "advertise '0.0.0.0' is a wildcard"),
        (
            Addresses(multicast=Address("ff12::7%nosuch0", 7400)),
            "does not exist|names no interface",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_line(at: Addresses, text: str) -> None:
    with pytest.raises(Misuse, match=text) as caught:
        Endpoint(at)
    assert "\n" not in str(caught.value)


def test_a_taken_port_is_reported() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with pytest.raises(Misuse, match=f"{port} on 127.0.0.1 is taken: give another bind="):
            Endpoint(Addresses(bind=Address("127.0.0.1", port)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", 0))  # a socket that does not share
        port = other.getsockname()[1]
        with pytest.raises(Misuse, match=f"port {port} on {GROUP} is taken: give another port="):
            Endpoint(multicast(port))


def test_a_small_buffer_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    offload._warned.clear()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        caplog.at_level(logging.WARNING, "unisono.net"),
    ):
        huge = (1 << 31) - 1  # the kernel halves or caps it
        assert offload.enlarge(sock, huge, receive=True) < huge
        offload.enlarge(sock, huge, receive=True)
    assert len(caplog.records) == 1
    assert "net.core.rmem_max" in caplog.text or not offload.LINUX


NAMESPACE = """
import asyncio, socket
from tests.net.recorder import Recorder
from unisono.core import EVERYONE
from unisono.errors import Misuse
from unisono.model import Address
from unisono.net.udp import Endpoint
from unisono.net.addresses import Addresses

async def pair(host, interface):
    at = Addresses(multicast=Address(host, 7400), interface=interface)
    a, b = Recorder(at), Recorder(at)
    a.endpoint.send(EVERYONE, [bytes(1000)] * 20)
    assert len(await b.received(20)) == 20 and a.packets == []
    b.endpoint.send((a.endpoint.address,), [b"back"])
    assert await a.received(1) == [b"back"]
    a.close(); b.close()

asyncio.run(pair("239.192.77.1", "127.0.0.1"))  # no route at all but loopback
asyncio.run(pair("ff15::77", "d0"))
asyncio.run(pair("ff15::77", "fd77::1"))
asyncio.run(pair("ff12::77", "fe80::7700%d0"))
asyncio.run(pair("ff12::77%d0", ""))
for host, interface in (("ff15::77", "lo"), ("239.192.77.1", "d1")):
    try:
        Endpoint(Addresses(multicast=Address(host, 7400), interface=interface))
    except Misuse as error:
        print(error)
"""


@pytest.mark.root
def test_ipv6_multicast_scopes_and_missing_routes_in_a_namespace() -> None:
    script = (
        "ip link set lo up && ip link add d0 type veth peer name d1"
        " && ip link set d0 addrgenmode none && ip link set d0 up && ip link set d1 up"
        " && ip -6 addr add fd77::1/64 dev d0 nodad && ip -6 addr add fe80::7700/64 dev d0 nodad"
        f' && exec {sys.executable} -c "$PROGRAM"'
    )
    run = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        env={**os.environ, "PROGRAM": NAMESPACE, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=waiting.LIMIT_S,
    )
    assert run.returncode == 0, run.stderr
    assert "no multicast route to ff15::77 on interface 'lo'" in run.stdout
    assert "interface 'd1' has no IPv4 address" in run.stdout
