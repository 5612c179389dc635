"""Strangers at a member without multicast: on real sockets, and address validation alone."""

from __future__ import annotations

import asyncio
import socket

import pytest

import unisono
from tests import waiting
from tests.net.recorder import Recorder, free_port
from unisono.core import EVERYONE
from unisono.model import Address, Burst
from unisono.net.address_validation import (
    ANSWER,
    ASK_AGAIN_US,
    ASKED_MAX,
    CHALLENGE,
    HELD_COUNT_MAX,
    MAGIC,
    PACKET_BYTES,
    SLOT_US,
    AddressValidation,
)
from unisono.net.addresses import Addresses
from unisono.net.destinations import GUESTS_COUNT_MAX, PROVED_US, Destinations

HELLO = b"a packet as long as protocols write them"
ME, A, B, C = (Address("10.0.0.1", 7000 + n) for n in range(4))


class Attacker:
    """A socket of an attacker that knows the protocol."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)

    def __enter__(self) -> Attacker:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, packet: bytes, port: int) -> None:
        self.socket.sendto(packet, ("127.0.0.1", port))

    async def got(self, port: int, after_s: float = 0.3) -> list[bytes]:
        """What came from there: another test may take our port for one of its own."""
        await asyncio.sleep(after_s)
        found: list[bytes] = []
        while True:
            try:
                packet, source = self.socket.recvfrom(65_536)
            except BlockingIOError:
                return found
            if source[1] == port:
                found.append(packet)


# -- real ---------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
async def test_a_stranger_buys_nothing_of_the_stream(protocol: str) -> None:
    """One byte bought ten seconds of it."""

    port, master = free_port(), {"master": 1} if protocol == "mtp" else {}
    peers = f"127.0.0.1:{port}"
    async with unisono.join("g", name="a", protocol=protocol, peers=peers, **master) as group:
        with Attacker() as attacker:
            spent = 0
            for packet in (b"x", HELLO, MAGIC + bytes(PACKET_BYTES - 3), HELLO * 30):
                attacker.send(packet, port)
                spent += len(packet)
            await asyncio.sleep(0.05)
            for _ in range(20):
                await group.multicast(bytes(1_000))
                await anext(group)
            got = await attacker.got(port)
            assert set(map(len, got)) <= {PACKET_BYTES}, "challenges, and nothing else"
            assert 0 < sum(map(len, got)) <= spent, "and no more than was sent"
        counts = group.counters()
        assert counts["net.challenged"] == len(got)


@pytest.mark.real
@pytest.mark.parametrize("protocol", ["rmcast", "mtp", "ring"])
@pytest.mark.parametrize("known", [1, 3])
async def test_a_member_that_is_not_listed_joins_at_the_first_attempt(
    protocol: str, known: int
) -> None:
    ports = [free_port() for _ in range(3)]
    listed = [f"127.0.0.1:{port}" for port in ports]
    groups = []
    for index, name in enumerate("abc"):
        roles = {"master": 1} if protocol == "mtp" and not index else {}
        made = unisono.join("g", name=name, protocol=protocol, peers=",".join(listed), **roles)
        groups.append(await made)
    some = ",".join(listed[:known])
    guest = await unisono.join("g", name="d", protocol=protocol, peers=some, port=free_port())
    assert guest.counters()["net.answered"] >= 1, "its first packets were let through"
    groups.append(guest)
    for group in groups:
        while len(group.members) < 4:
            await asyncio.sleep(0.01)
    for said in groups:
        await said.multicast(said.me.name.encode())
    for group in groups:
        heard: set[bytes] = set()
        while len(heard) < 4:
            item = await anext(group)
            if isinstance(item, unisono.Message):
                heard.add(item.payload)
    for group in groups:
        await group.leave()


@pytest.mark.real
async def test_an_answer_lets_the_first_packet_through_and_no_other_group_answers() -> None:
    listed = Recorder(Addresses(peers=(Address("127.0.0.1", free_port()),)), group="g")
    guest = Recorder(Addresses(peers=(listed.endpoint.address,), bind=Address("", 0)), group="g")
    other = Recorder(
        Addresses(peers=(listed.endpoint.address,), bind=Address("", 0)), group="other"
    )
    other.endpoint.send(EVERYONE, [HELLO])
    guest.endpoint.send(EVERYONE, [HELLO])
    assert await listed.received(1) == [HELLO]
    listed.endpoint.send(EVERYONE, [b"welcome"])
    assert await guest.received(1) == [b"welcome"]
    await waiting.eventually(lambda: other.endpoint.counts["drop.challenge"] >= 1)
    assert other.packets == []
    assert [source for source, _ in listed.bursts] == [guest.endpoint.address]
    for recorder in (listed, guest, other):
        recorder.close()


@pytest.mark.real
async def test_an_address_from_a_packet_is_validated_first() -> None:
    """The core of a member would send to the victim that a joiner named as its own address."""

    recorder = Recorder(Addresses(peers=(Address("127.0.0.1", free_port()),)))
    with Attacker() as victim:
        address = Address(*victim.socket.getsockname())
        for _ in range(50):
            recorder.endpoint.send((address,), [bytes(1_000)] * 20)
        recorder.endpoint.installed([recorder.endpoint.address, address])
        for _ in range(50):
            recorder.endpoint.send(EVERYONE, [bytes(1_000)] * 20)
        assert [len(packet) for packet in await victim.got(recorder.endpoint.address.port)] == [
            PACKET_BYTES
        ]
    recorder.close()


# -- the gate alone -----------------------------------------------------------------------------


class Bench:
    """A gate, and what it sends."""

    def __init__(self, *peers: Address) -> None:
        self.audience = Destinations(peers, ME)
        self.sent: list[tuple[Address, bytes]] = []
        self.counts: dict[str, int] = {}
        self.gate = AddressValidation(
            self.audience,
            "g",
            lambda to, packet: self.sent.append((to, packet)),
            self.counts,
            b"key",
        )

    def hear(self, source: Address, *packets: bytes, now_us: int = 0) -> list[list[bytes]]:
        found = self.gate.admit([(source, list(packets))], now_us)
        return [[bytes(packet) for packet in packets] for _, packets in found]

    def answer(self, source: Address) -> bytes:
        """The reply to the last challenge."""
        challenge = next(packet for to, packet in reversed(self.sent) if to == source)
        assert challenge[3] == CHALLENGE
        return challenge[:3] + bytes([ANSWER]) + challenge[4:]


def test_a_lost_answer_costs_one_more_try_and_nothing_is_received_twice() -> None:
    bench = Bench()
    assert bench.hear(B, HELLO) == []
    assert bench.hear(B, HELLO + b"again") == []
    assert bench.hear(B, bench.answer(B)) == [[HELLO, HELLO + b"again"]]
    assert bench.hear(B, bench.answer(B)) == []
    assert bench.hear(B, b"x") == [[b"x"]]
    assert bench.audience.everyone(0) == (B,)


def test_a_cookie_is_bound_to_its_address_and_grows_old() -> None:
    bench = Bench()
    bench.hear(B, HELLO)
    answer = bench.answer(B)
    assert bench.hear(A, answer) == [] and bench.audience.everyone(0) == ()
    assert bench.hear(B, answer, now_us=2 * SLOT_US) == [] and not bench.audience.everyone(0)
    assert bench.hear(B, answer, now_us=2 * SLOT_US - 1) == [[HELLO]]
    forged = bytearray(answer)
    forged[-1] ^= 1
    assert Bench().hear(B, bytes(forged)) == []
    bench = Bench()
    bench.gate._key = b"another process"
    bench.hear(B, HELLO)
    assert bench.hear(B, answer) == [], "of another process"


def test_less_than_a_challenge_brings_nothing() -> None:
    bench = Bench()
    bench.hear(B, *[b""] * 100, b"x" * (PACKET_BYTES - 1))
    assert bench.sent == [] and bench.counts["drop.stranger"] == 101


def test_listed_peers_are_received_at_once_and_answer_challenges_of_their_group() -> None:
    bench = Bench(A)
    assert bench.hear(A, b"x") == [[b"x"]] and bench.sent == []
    other = Bench()
    other.hear(C, HELLO)
    challenge = other.sent[0][1]
    assert bench.hear(A, challenge, b"more") == [[b"more"]]
    assert bench.sent == [(A, other.answer(C))]
    bench.gate._group = b"othergrp"
    assert bench.hear(A, challenge) == [] and len(bench.sent) == 1


def test_a_challenge_at_the_end_of_a_burst_is_found() -> None:
    bench, other = Bench(A), Bench()
    other.hear(C, HELLO)
    whole = HELLO * 3 + other.sent[0][1]
    found = bench.gate.admit([(A, Burst(memoryview(whole), len(HELLO)))], 0)
    assert [bytes(packet) for packet in found[0][1]] == [HELLO] * 3 and len(bench.sent) == 1


def test_a_guest_proves_itself_again_or_is_forgotten() -> None:
    bench = Bench()
    bench.hear(B, HELLO)
    bench.hear(B, bench.answer(B))
    late_us = PROVED_US // 2 + 1
    assert bench.hear(B, b"x", now_us=late_us) == [[b"x"]]
    bench.hear(B, bench.answer(B), now_us=late_us)
    assert bench.hear(B, HELLO, now_us=PROVED_US + 1) == [[HELLO]]
    assert bench.hear(B, HELLO, now_us=late_us + PROVED_US) == []
    assert bench.audience.everyone(late_us + PROVED_US) == ()


def test_strangers_fill_no_memory() -> None:
    bench = Bench(A)
    for port in range(1, 5_000):
        bench.hear(Address("10.9.9.9", port), HELLO, HELLO * 100)
        bench.gate.ask(Address("10.9.9.8", port), 0)
    assert len(bench.gate._held) == HELD_COUNT_MAX
    assert len(bench.gate._asked_us) == len(bench.gate._expected) == ASKED_MAX
    for port in range(1, 5_000):
        bench.audience.proved(Address("10.9.9.9", port), port)
    assert len(bench.audience.everyone(0)) == GUESTS_COUNT_MAX + 1


def test_an_address_of_the_view_is_validated_before_it_is_sent_to() -> None:
    bench = Bench(A)
    bench.audience.installed([ME, A, B], 0)
    assert bench.audience.everyone(0) == (A,) and bench.audience.pending == (B,)
    bench.gate.ask(B, 0)
    bench.gate.ask(B, ASK_AGAIN_US - 1)
    assert len(bench.sent) == 1
    bench.hear(B, bench.answer(B))
    assert bench.audience.everyone(10 * PROVED_US) == (A, B), "and stays so while it is a member"


def test_where_addresses_are_translated_an_answer_proves_the_address_that_was_asked() -> None:
    """A member advertises an address at which it is reached, and sends from another."""
    bench = Bench(A)
    bench.audience.installed([ME, A, B], 0)
    bench.gate.ask(B, 0)
    answer = bench.answer(B)
    assert bench.hear(C, answer, now_us=2 * SLOT_US) == [] and B in bench.audience.pending
    bench.gate.ask(B, 2 * SLOT_US)
    bench.hear(C, bench.answer(B), now_us=2 * SLOT_US)
    assert bench.audience.everyone(2 * SLOT_US) == (A, B), "and not from where it answered"
