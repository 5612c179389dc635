"""Hostile packets, in volume: real ones mangled, and forged ones with the largest numbers.

A forged packet may make a member stop with a reason. It never raises, and never fills the memory.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.mtp.harness import GROUP, Room, core, together
from unisono.core import Event, Expired, Leave, Multicast, Received, Send
from unisono.model import Address, Burst
from unisono.protocols.mtp.core import Mtp
from unisono.protocols.mtp.packets import ALIKE_BYTES, HEADER_BYTES, KINDS, PROTOCOL, PacketKind
from unisono.protocols.mtp.states import Timer
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

HOSTILE_COUNT = 6_000
LARGEST = (b"\xff", b"\x7f\xff", b"\x3f\xff", b"\x80", b"\x00")


def busy_web() -> tuple[Room, list[bytes]]:
    """A web of three masters and two more at work, and every packet that was sent."""
    room = Room()
    room.obey(
        "start mtp a b c d e masters=3 state=1\njoin a b c\nadvance 900ms\njoin d\nadvance 300ms"
    )
    room.obey("lose 2 d > b data\nshout d 4000\nsay a one\nadvance 100ms\njoin e\nadvance 400ms")
    room.obey("say e two\nleave e\nadvance 100ms\nsay d three\nadvance 30ms")
    return room, [sent.sealed for sent in room.sent]


def mangled(dice: Random, packets: list[bytes], life: int) -> bytes:
    """A real packet with bits flipped, cut short, made longer, mixed with another; or behind a good
    checksum with noise in it, a field of the largest number, or nothing but noise."""
    packet = bytearray(dice.choice(packets))
    body = bytearray(packet[FRONT_BYTES:-SUM_BYTES])
    match dice.randrange(8):
        case 0:
            for _ in range(dice.randint(1, 8)):
                packet[dice.randrange(len(packet))] ^= 1 << dice.randrange(8)
            return bytes(packet)
        case 1:
            return bytes(packet[: dice.randrange(len(packet))])
        case 2:
            return bytes(packet) + dice.randbytes(dice.randint(1, 40))
        case 3:
            other = dice.choice(packets)
            return bytes(packet[: dice.randrange(len(packet))]) + other[len(packet) :]
        case 4:
            for _ in range(dice.randint(1, 6)):
                if body:
                    body[dice.randrange(len(body))] = dice.randrange(256)
        case 5 | 6:
            width, start = dice.choice((1, 2, 4, 8)), dice.choice((0, HEADER_BYTES))
            at = start + dice.randrange(max(1, len(body) - start))
            body[at : at + width] = (dice.choice(LARGEST) * 8)[:width]
        case _:
            kind = dice.randrange(len(KINDS) + 3)
            noise = body[:HEADER_BYTES] + dice.randbytes(dice.randint(0, 120))
            return seal(PROTOCOL, kind, GROUP, life, noise)
    return seal(PROTOCOL, packet[4], GROUP, life, body)


def held_by(member: Mtp) -> int:
    """Everything that grows in a member."""
    incoming = sum(1 + len(m.window) + len(m.denied) for m in member.inbound.incoming.values())
    outgoing = sum(len(held.slices) for held in member.outbound.held.values())
    replicas, joins, tokens = member.replicas, member.admission, member.tokens
    waiting = len(joins._joiners) + len(joins._leavers) + len(joins.failing) + len(joins._admitted)
    seats = len(replicas.seats.by_rank) + len(replicas._reports) + len(replicas._supports)
    seats += len(replicas._acks)
    granting = len(tokens.requests) + len(tokens._sizes) + len(member.watch.members)
    state = len(member.source._server) + len(member.consumer.status)
    return incoming + outgoing + waiting + seats + granting + state + len(member.outbound._repairs)


def burst(dice: Random, forged: bytes) -> Burst:
    """The packet, and behind it some that begin as it does, with numbers of their own; the last may
    be cut short."""
    packets, at = [forged], ALIKE_BYTES
    for _ in range(dice.randint(1, 5)):
        body = bytearray(forged[FRONT_BYTES:-SUM_BYTES])
        body[at : at + 2] = dice.choice((b"\0\1", b"\0\2", b"\0\3", b"\xff\xff"))[: len(body) - at]
        front = forged[:FRONT_BYTES].ljust(FRONT_BYTES, b"\0")
        group, life = (int.from_bytes(front[n : n + 8], "big") for n in (6, 14))
        packets.append(seal(PROTOCOL, front[4], group, life, body))
    whole = b"".join(packets)
    size = max(1, len(forged))
    return Burst(memoryview(whole)[: len(whole) - dice.choice((0, 0, size // 3))], size)


def events(dice: Random, count: int, forged: bytes) -> list[Event]:
    """The packet, and now and then what else happens to a member."""
    packets = [forged] if count % 4 else burst(dice, forged)
    found: list[Event] = [Received(Address(f"10.0.0.{dice.randint(1, 5)}", 7000), packets)]
    if count % 7 == 0:
        found.append(Expired(Timer.HEARTBEAT))
    if count % 40 == 0:
        found.append(Expired(Timer.BEAT))
    if count % 90 == 0:
        found.append(Multicast([b"still here"]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", "b", "d"])
def test_hostile_packets_are_counted_and_harmless(name: str) -> None:
    """A coordinator, a cohort and a plain member."""
    room, packets = busy_web()
    assert {p[4] for p in packets} >= set(KINDS) - {
        PacketKind.REFUSE, PacketKind.EXPEL, PacketKind.DENY, PacketKind.STAND, PacketKind.SUPPORT
    }  # fmt: skip
    member, dice = core(room, name), Random(ord(name))
    life, now_us = member.codec.life, room.now_us
    dropped, stopped, most = Counter[str](), 0, 0
    for count in range(HOSTILE_COUNT):
        if member.machine.state.name == "DONE":
            # A forged header may make it stop, with a reason: that is what the paper asks.
            stopped += 1
            room, _ = busy_web()
            member, life, now_us = core(room, name), core(room, name).codec.life, room.now_us
        before = dict(member.counts)
        now_us += 1_500
        for event in events(dice, count, mangled(dice, packets, life)):
            if isinstance(event, Multicast) and not member.send_credit():
                continue
            for effect in member.step(now_us, event):
                if isinstance(effect, Send):
                    assert all(len(packet) <= 1400 for packet in effect.packets)
        for reason, value in member.counts.items():
            if reason.startswith("drop.") and value > before.get(reason, 0):
                dropped[reason] += 1
        most = max(most, held_by(member))
    assert sum(dropped.values()) > HOSTILE_COUNT // 3
    assert {"drop.corrupt", "drop.short", "drop.malformed", "drop.kind", "drop.foreign"} <= set(
        dropped
    )
    assert stopped < HOSTILE_COUNT // 10
    assert most < 2_000, "what a member holds stays bounded"


@pytest.mark.slow
def test_hostile_packets_do_not_hurt_a_joiner() -> None:
    """The most powerful packet is the confirm: a forged one admits a member, no more."""
    _, packets = busy_web()
    dice = Random(113)
    welcomes = [
        p
        for p in packets
        if p[4] in (PacketKind.CONFIRM, PacketKind.STATE, PacketKind.SEAT, PacketKind.PROPOSE)
    ]
    for count in range(700):
        room = Room()
        room.obey("start mtp a b c d masters=3 state=1\njoin c d")
        joiner = core(room, "cd"[count % 2])
        good = [p for p in welcomes if p[4] == PacketKind.CONFIRM]
        for turn in range(6):
            forged = mangled(dice, welcomes if turn else good, 1 + dice.randrange(3))
            joiner.step(turn, Received(Address("10.0.0.1", 7000), [forged]))
        for now_us, timer in ((200_000, Timer.BEAT), (250_000, Timer.STATE), (300_000, Timer.JOIN)):
            joiner.step(now_us, Expired(timer))
        joiner.step(400_000, Leave())


def test_a_web_survives_hostile_packets() -> None:
    """What is mangled on the wire has a wrong checksum: nothing of it is believed."""
    room = together("a", "b", "c")
    dice = Random(5)
    room.obey("say b one\nadvance 20ms")
    packets = [sent.sealed for sent in room.sent]
    for _ in range(500):
        packet = bytearray(dice.choice(packets))
        packet[dice.randrange(len(packet))] ^= 1 << dice.randrange(8)
        for name in "abc":
            core(room, name).step(room.now_us, Received(Address("10.0.0.7", 1), [bytes(packet)]))
    said = room.obey("say c two\nadvance 30ms")
    assert said.count("delivers c#1:1 two") == 3
