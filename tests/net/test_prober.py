"""Probes: a free port refuses, a bound one is silent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.net.test_driver import HERE, Diary, Script
from tests.waiting import eventually
from unisono.core import Effect, Event, Join, Probe, Unreachable
from unisono.model import Address
from unisono.net import prober
from unisono.net.addresses import Addresses
from unisono.net.driver import Driver
from unisono.net.prober import Prober
from unisono.net.udp import Endpoint

pytestmark = pytest.mark.real


@contextlib.contextmanager
def listener(host: str = "127.0.0.1") -> Iterator[tuple[socket.socket, Address]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        sock.setblocking(False)
        yield sock, Address(*sock.getsockname()[:2])


def dead(host: str = "127.0.0.1") -> Address:
    """A port that was in use a moment ago."""
    with listener(host) as (_, address):
        return address


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_dead_port_refuses_and_a_bound_one_does_not(host: str) -> None:
    found: list[Address] = []
    counts: dict[str, int] = {}
    probes = Prober(host, counts)
    probes.attach(asyncio.get_running_loop(), found.append)
    scope = (0, 0) if ":" in host else ()
    with listener(host) as (sock, alive):
        gone = dead(host)
        for at in range(1, 3):
            probes.probe(alive, (*alive, *scope))  # type: ignore[arg-type]
            probes.probe(gone, (*gone, *scope))  # type: ignore[arg-type]
            await eventually(lambda at=at: len(found) >= at)
        assert found == [gone, gone]
        assert sock.recv(100) == prober.PROBE, "one that cannot be mistaken for a packet"
    assert counts == {"net.out.probes": 4, "net.in.refused": 2}
    probes.close()


async def test_probes_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[str, int] = {}
    probes = Prober("127.0.0.1", counts)
    probes.attach(asyncio.get_running_loop(), lambda address: None)
    monkeypatch.setattr(prober, "PAUSE_US", 60_000_000)
    with listener() as (_, alive):
        for _ in range(10):
            probes.probe(alive, tuple(alive))
        assert counts["net.out.probes"] == 1
        for port in range(20_000, 20_000 + 2 * prober.SOCKETS_MAX):
            address = Address("127.0.0.1", port)
            probes.probe(address, tuple(address))
        assert len(probes._open) == prober.SOCKETS_MAX
    probes.close()
    assert not probes._open


async def test_a_socket_is_closed_when_it_is_wanted_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prober, "KEEP_S", 0.01)
    probes = Prober("127.0.0.1", {})
    probes.attach(asyncio.get_running_loop(), lambda address: None)
    with listener() as (_, alive):
        probes.probe(alive, tuple(alive))
        assert probes._open
        await eventually(lambda: not probes._open)
    probes.close()


async def test_a_probe_has_one_answer_at_most() -> None:
    found: list[Address] = []
    probes = Prober("127.0.0.1", {})
    probes.attach(asyncio.get_running_loop(), found.append)
    gone = dead()
    probes.probe(gone, tuple(gone))
    await eventually(lambda: found)
    sock = probes._open[gone].sock
    for _ in range(5):  # Errors that no probe of ours asked for.
        with contextlib.suppress(OSError):
            sock.send(b"!")
        await asyncio.sleep(0.01)
    assert found == [gone]
    probes.close()


async def test_the_driver_probes_and_the_core_gets_the_refusal() -> None:
    gone = dead()
    answered = asyncio.Event()

    def answer(event: Event) -> list[Effect]:
        if isinstance(event, Unreachable):
            answered.set()
        return [Probe((gone,))] if isinstance(event, Join) else []

    core = Script(answer)
    driver = Driver(core, Endpoint(HERE), Diary())
    driver.start([Join()])
    await answered.wait()
    assert [event for _, event in core.told] == [Join(), Unreachable(gone)]
    driver.close()


async def test_only_validated_addresses_are_probed() -> None:
    """Where there is no multicast, an address has to be proved first."""

    found: list[Address] = []
    listed, stranger = dead(), dead()
    here = Addresses(peers=(listed,), bind=Address("127.0.0.1", 0))
    endpoint = Endpoint(here)
    endpoint.attach(asyncio.get_running_loop(), lambda heard: None, found.append)
    endpoint.probe((stranger, listed))
    await eventually(lambda: found)
    await asyncio.sleep(0.05)
    assert found == [listed]
    assert endpoint.counts["net.out.probes"] == 1
    endpoint.close()
