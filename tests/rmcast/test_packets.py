"""rmcast's packets: they round-trip, and no bytes can hurt a member."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rmcast.harness import GROUP, core, together
from tests.scenarios.stage import Stage
from tests.wire.test_wire import members
from unisono.core import Expired, Leave, Received, Send
from unisono.errors import BadPacket
from unisono.layout import decode, encode
from unisono.model import Address
from unisono.protocols.rmcast.control import Add, Bye, read_control, write_control
from unisono.protocols.rmcast.packets import (
    KINDS,
    PROTOCOL,
    AckEntry,
    Announce,
    Beat,
    Data,
    Header,
    MessagePart,
    PacketKind,
    Refuse,
    Seek,
    StatePiece,
    StateRequest,
    StreamStatus,
    Welcome,
    WelcomeEntry,
    WelcomePart,
    read,
    welcome_parts,
    write_header,
)
from unisono.protocols.rmcast.states import Timer
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

HOSTILE_COUNT = 20_000
keys = st.integers(0, 2**32 - 1)
numbers = st.integers(0, 2**62)
statuses = st.sampled_from(StreamStatus)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    sender = draw(keys)
    entries = {}
    for key in draw(st.lists(keys, max_size=8, unique=True)):
        delivered, apart = draw(numbers), draw(st.integers(0, 2**30 - 1))
        received = max(0, delivered - apart) if key == sender else delivered + apart
        entries[key] = AckEntry(delivered, received, draw(statuses))
    return Header(sender, entries)


@st.composite
def chunk_runs(draw: st.DrawFn) -> tuple[MessagePart, ...]:
    deps = tuple(v for _ in range(draw(st.integers(0, 4))) for v in (draw(keys), draw(numbers)))
    message = draw(st.integers(0, 2**40))
    chunks = []
    for index in range(draw(st.integers(1, 6))):
        flags = draw(st.integers(0, 7))
        if index and flags & 1 and not flags & 4:
            message += 1
        payload = draw(st.binary(max_size=40))
        chunks.append(MessagePart(flags, draw(st.integers(0, 5)), payload, message, deps))
    return tuple(chunks)


def again(kind: PacketKind, body: bytes) -> object:
    return read(kind, memoryview(body))


@given(headers(), st.lists(st.tuples(keys, st.integers(1, 99), st.integers(99, 2**40)), max_size=5))
def test_beats_round_trip(header: Header, asks: list[tuple[int, int, int]]) -> None:
    beat = Beat(header, 3, 7, True, tuple(asks))
    assert again(PacketKind.BEAT, write_header(header) + encode(beat)) == beat


@given(headers(), keys, st.integers(1, 2**40), chunk_runs())
def test_data_round_trips(
    header: Header, origin: int, first: int, chunks: tuple[MessagePart, ...]
) -> None:
    packet = again(PacketKind.DATA, Data.body(write_header(header), origin, first, chunks))
    assert isinstance(packet, Data)
    assert (packet.header, packet.origin, packet.first) == (header, origin, first)
    assert [c._replace(payload=bytes(c.payload)) for c in packet.chunks] == list(chunks)


@given(headers(), members, numbers, st.binary(max_size=60), st.booleans(), st.text(max_size=30))
def test_the_other_packets_round_trip(
    header: Header, member: object, number: int, piece: bytes, flag: bool, words: str
) -> None:
    front = write_header(header)
    seek = Seek(member, flag, not flag)  # type: ignore[arg-type]
    assert again(PacketKind.SEEK, encode(seek)) == seek
    announce = Announce(member, 7, number, 9, number, 3)  # type: ignore[arg-type]
    assert again(PacketKind.ANNOUNCE, encode(announce)) == announce
    refuse = Refuse(3, words, flag, 1 << 62)
    assert again(PacketKind.REFUSE, encode(refuse)) == refuse
    ask = StateRequest(header, number, 9)
    assert again(PacketKind.STATE_ASK, front + encode(ask)) == ask
    state = StatePiece(header, 8, number, number, memoryview(piece))
    assert again(PacketKind.STATE, front + encode(state)) == state
    add = Add(member, 5)  # type: ignore[arg-type]
    assert read_control(write_control(add)) == add
    assert read_control(write_control(Bye())) == Bye()


@given(st.lists(st.tuples(members, statuses, numbers, numbers), max_size=12), st.integers(20, 400))
def test_a_welcome_round_trips_in_parts(
    rows: list[tuple[object, StreamStatus, int, int]], octets: int
) -> None:
    lines = tuple(WelcomeEntry(m, s, 4, d, n) for m, s, d, n in rows)  # type: ignore[arg-type]
    welcome = Welcome(1, 2, 3, True, lines, (7, 8, 9, 10))
    pieces = []
    for body in welcome_parts(welcome, octets):
        part = again(PacketKind.WELCOME, body)
        assert isinstance(part, WelcomePart)
        assert (part.joiner, part.part) == (1, len(pieces))
        pieces.append(bytes(part.piece))
    assert decode(Welcome, b"".join(pieces)) == welcome


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
@settings(max_examples=1_000)
def test_any_bytes_are_a_packet_or_a_bad_packet(kind: int, body: bytes) -> None:
    try:
        read(kind, memoryview(body))
    except BadPacket as bad:
        assert bad.reason in ("malformed", "long")


# -- hostile input, in volume ---------------------------------------------------------------------


def real_packets() -> tuple[Stage, list[bytes]]:
    """A group at work, and every packet that it sent."""
    sent: list[bytes] = []
    carry = Stage._carry

    def listen(self: Stage, actor: object, to: object, packets: list[bytes]) -> None:
        sent.extend(packets)
        carry(self, actor, to, packets)  # type: ignore[arg-type]

    Stage._carry = listen  # type: ignore[method-assign]
    try:
        stage = together("a", "b", "c", state=1)
        stage.obey("lose 1 a > b\nsay a one two\nshout b 4000\nadvance 300ms\nsay c three")
        stage.obey("advance 100ms")
    finally:
        Stage._carry = carry  # type: ignore[method-assign]
    return stage, sent


def mangled(dice: Random, packets: list[bytes], life: int) -> bytes:
    """A real packet with its bits flipped, cut short, made longer, mixed with another, or with a
    body of noise behind a good checksum."""
    packet = bytearray(dice.choice(packets))
    match dice.randrange(6):
        case 0:
            for _ in range(dice.randint(1, 8)):
                packet[dice.randrange(len(packet))] ^= 1 << dice.randrange(8)
        case 1:
            del packet[dice.randrange(len(packet)) :]
        case 2:
            packet += dice.randbytes(dice.randint(1, 40))
        case 3:
            other = dice.choice(packets)
            at = dice.randrange(len(packet))
            packet[at:] = other[at:]
        case 4:
            body = bytearray(packet[FRONT_BYTES:-SUM_BYTES])
            for _ in range(dice.randint(1, 6)):
                if body:
                    body[dice.randrange(len(body))] = dice.randrange(256)
            packet = bytearray(seal(PROTOCOL, packet[4], GROUP, life, body))
        case _:
            noise = dice.randbytes(dice.randint(0, 120))
            packet = bytearray(seal(PROTOCOL, dice.randrange(10), GROUP, life, noise))
    return bytes(packet)


@pytest.mark.slow
def test_hostile_packets_are_counted_and_harmless() -> None:
    stage, packets = real_packets()
    assert set(KINDS) <= {p[4] for p in packets} | {PacketKind.REFUSE}
    member = core(stage, "b")
    life, dice = member.codec.life, Random(7)
    source = stage.actors["a"].address
    dropped = Counter[str]()
    for count in range(HOSTILE_COUNT):
        if member.machine.state.name == "DONE":
            # A forged header may make it stop, with a reason: that is what the paper asks.
            stage, _ = real_packets()
            member = core(stage, "b")
            life = member.codec.life
        before = dict(member.counts)
        effects = member.step(
            stage.now_us + count, Received(source, [mangled(dice, packets, life)])
        )
        for name, value in member.counts.items():
            if name.startswith("drop.") and value > before.get(name, 0):
                dropped[name] += 1
        for effect in effects:
            if isinstance(effect, Send):
                assert all(len(packet) <= 1400 for packet in effect.packets)
    assert sum(dropped.values()) > HOSTILE_COUNT // 2
    assert {"drop.corrupt", "drop.short", "drop.malformed", "drop.kind", "drop.foreign"} <= set(
        dropped
    )
    held = sum(len(peer.window) for peer in member.roster.peers.values())
    assert held < HOSTILE_COUNT, "what a member holds stays bounded"


@pytest.mark.slow
def test_hostile_packets_do_not_hurt_a_seeker() -> None:
    """The welcome is the most powerful packet: whoever forges it is let in, and crashes nothing."""
    _, packets = real_packets()
    dice = Random(113)
    welcomes = [p for p in packets if p[4] == PacketKind.WELCOME]
    for _ in range(2_000):
        stage = Stage()
        stage.obey("start rmcast a b c state=1\njoin c")
        seeker = core(stage, "c")
        for count in range(3):
            forged = mangled(dice, welcomes, 1 + dice.randrange(3))
            seeker.step(count, Received(Address("10.0.0.1", 7000), [forged]))
        seeker.step(200_000, Expired(Timer.BEAT))
        seeker.step(300_000, Leave())


def test_a_packet_of_another_life_or_group_is_counted() -> None:
    stage, packets = real_packets()
    b = core(stage, "b")
    source = Address("10.0.0.1", 7000)
    beat = next(p for p in packets if p[4] == PacketKind.BEAT)
    b.step(
        stage.now_us,
        Received(
            source, [seal(PROTOCOL, PacketKind.BEAT, GROUP, 12345, beat[FRONT_BYTES:-SUM_BYTES])]
        ),
    )
    b.step(
        stage.now_us,
        Received(
            source,
            [seal(PROTOCOL, PacketKind.BEAT, 99, b.codec.life, beat[FRONT_BYTES:-SUM_BYTES])],
        ),
    )
    b.step(
        stage.now_us,
        Received(
            source, [seal(2, PacketKind.BEAT, GROUP, b.codec.life, beat[FRONT_BYTES:-SUM_BYTES])]
        ),
    )
    assert b.counts["drop.life"] == b.counts["drop.group"] == b.counts["drop.protocol"] == 1
