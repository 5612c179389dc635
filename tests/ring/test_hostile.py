"""Hostile packets, in volume, at a site in every phase: real ones mangled, and forged ones.

A forged packet may make a member stop with a reason. It never raises, and never fills the memory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

import pytest

from tests.ring.harness import (
    GROUP,
    Room,
    at_rest,
    gather,
    handed,
    holder_of,
    losing,
    opened,
    quiet,
    ring_order,
    sealed,
    site,
    started,
    step,
    together,
    turn,
)
from unisono.core import (
    Arm,
    Depart,
    Disarm,
    Event,
    Expired,
    Fail,
    Leave,
    Multicast,
    Received,
    Send,
)
from unisono.fsa import Figure
from unisono.layout import encode
from unisono.model import Address, Member, Service
from unisono.parts.turn import OriginRun, write_runs
from unisono.protocols.ring.codes import KINDS, Code, Timer
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.packets import (
    HEADER_BYTES,
    NO_VERSION,
    PROTOCOL,
    TURN,
    Header,
    MemberRecord,
    Version,
    key_of,
)
from unisono.protocols.ring.repair import RESEND_MAX
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

HOSTILE_COUNT = 2_000
"""At each phase."""
WEIGHT_MAX = 40_000
LARGEST = (b"\xff", b"\x7f\xff", b"\x3f\xff", b"\x80", b"\x00")


def every_packet() -> list[bytes]:
    """The packets of a ring of five under many faults."""
    room = started(*"abcde", sites=0, state=1, tries=12)
    room.obey("join a b c d\nadvance 400ms\nsay a one\nshout b 5000\nadvance 40ms")
    room.obey("lose 2 b > c token\nlose 2 a > d token\nlose 2 d > b token\nsay b two\nsay d three")
    room.obey("advance 60ms\njoin e\nadvance 300ms")
    room.obey("cut a b c d e\nadvance 700ms\nheal\nadvance 900ms\nsay e four\nleave d")
    room.obey("advance 300ms\ncrash c\nadvance 800ms\njoin c\nadvance 500ms\nleave a\nleave b")
    room.obey("advance 900ms")
    assert {sent.code for sent in room.sent} >= set(map(Code, KINDS)) - {
        Code.STALE, Code.REFUSE, Code.RELEASE, Code.COORD_RQU, Code.RESUME_RQU, Code.ABORT_BC_RQU,
    }  # fmt: skip
    byte_of = {sent.code: sent.sealed for sent in room.sent}
    return [*(sent.sealed for sent in room.sent[::3]), *byte_of.values()]


# -- the phases ---------------------------------------------------------------------------------


def as_holder() -> tuple[Room, str]:
    room = quiet("a", "b", "c", "d", sites=0)
    return room, holder_of(room, at_rest(room))


def as_listener() -> tuple[Room, str]:
    room = quiet("a", "b", "c", "d", sites=0)
    return room, holder_of(room, at_rest(room) + 2)


def with_a_gap() -> tuple[Room, str]:
    room = quiet("a", "b", "c", "d", sites=0)
    s = at_rest(room)
    other, me = holder_of(room, s + 2), holder_of(room, s + 3)
    step(room, me, handed(room, other, turn(room, s + 3, "early", by=other)))
    assert site(room, me).receive.state.name == "RESEND"
    return room, me


def outside() -> tuple[Room, str]:
    room = started("a", "b", "c", "d")
    room.obey("join a")
    return room, "a"


def as_candidate() -> tuple[Room, str]:
    room = started("a", "b", "c", "d")
    room.obey("join a\nadvance 260ms")
    assert site(room, "a").coordinator.state.name == "W_RSP"
    return room, "a"


def reforming(code: Code) -> tuple[Room, str, str]:
    """Until this packet was sent: the coordinator, and one that follows it."""
    room = quiet("a", "b", "c", "d", "e")
    room.loses = losing(Code.NEWTR_ACK, Code.RESUME)
    room.obey(f"crash {holder_of(room, at_rest(room))}")
    room.until(lambda: room.of(code), late_ms=3_000)
    leader = room.of(Code.REF_INV_BC)[-1].by
    other = next(n for n, a in room.actors.items() if n != leader and a.core is not None)
    return room, leader, other


def as_coordinator_of_a_ring() -> tuple[Room, str]:
    room, leader, _ = reforming(Code.NEWTR_BC)
    assert site(room, leader).coordinator.state.name == "W_REF"
    return room, leader


def who_has_promised() -> tuple[Room, str]:
    room, _, other = reforming(Code.RSP_POS)
    room.until(lambda: site(room, other).reformation.state.name == "W_TR")
    return room, other


def who_has_accepted() -> tuple[Room, str]:
    room, _, other = reforming(Code.NEWTR_ACK)
    room.until(lambda: site(room, other).reformation.state.name == "W_RSU")
    return room, other


def who_waits_for_the_state() -> tuple[Room, str]:
    room = together("a", "b", "c", sites=0, state=1)
    room.obey("start ring d\nsay a one")
    room.loses = losing(Code.STATE)
    room.obey("join d")
    room.until(lambda: site(room, "d").state.is_normal)
    assert site(room, "d").send_credit() == 0
    return room, "d"


def who_leaves() -> tuple[Room, str]:
    room = quiet("a", "b", "c", "d", sites=0)
    me = ring_order(room)[2]
    room.loses = losing(Code.QUIT)
    room.obey(f"leave {me}")
    return room, me


PHASES: list[Callable[[], tuple[Room, str]]] = [
    as_holder,
    as_listener,
    with_a_gap,
    outside,
    as_candidate,
    as_coordinator_of_a_ring,
    who_has_promised,
    who_has_accepted,
    who_waits_for_the_state,
    who_leaves,
]


# -- what is thrown at it -----------------------------------------------------------------------


def mangled(dice: Random, packets: list[bytes], who: Site) -> bytes:
    """A real packet with bits flipped, cut short, made longer, mixed with another; or behind a good
    checksum with noise in it, a field of the largest number, the header of a member, or noise."""
    packet = bytearray(dice.choice(packets))
    body = bytearray(packet[FRONT_BYTES:-SUM_BYTES])
    version = who.state.version
    kind = packet[4]
    match dice.randrange(9):
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
                body[dice.randrange(len(body))] = dice.randrange(256)
        case 5 | 6:
            width, start = dice.choice((1, 2, 4, 8)), dice.choice((0, HEADER_BYTES))
            at = start + dice.randrange(max(1, len(body) - start))
            body[at : at + width] = (dice.choice(LARGEST) * 8)[:width]
        case 7:
            kind = dice.randrange(40)
            tail = dice.randbytes(dice.randint(0, 120))
            body = bytearray(a_header(dice, who, len(tail)) + tail)
        case _:
            tail = bytes(body[HEADER_BYTES:])
            body = bytearray(a_header(dice, who, len(tail)) + tail)
    return seal(PROTOCOL, kind, GROUP, version.leader, body)


def a_header(dice: Random, who: Site, length: int) -> bytes:
    """Of a member of its ring or of a stranger, near to the truth or far from it."""
    keys = [*who.state.ring.index, dice.getrandbits(64)]
    key = dice.choice(keys)
    near = max(0, who.ordering.S + dice.randint(-3, 3))
    s = dice.choice((near, near, near + 300, dice.getrandbits(61)))
    k = dice.choice((0, near, dice.getrandbits(61)))
    version = Version(max(0, who.state.version.number + dice.choice((0, 0, 0, 1, -1))), 0)
    return Header(version, key, dice.choice(keys), near, s, k).packed(HEADER_BYTES + length)


def weight(of: Any) -> int:
    """How many things a core holds, wherever it holds them."""
    seen: set[int] = set()
    heap, count = [of], 0
    while heap:
        each = heap.pop()
        if id(each) in seen or isinstance(each, Enum | Figure | int | str | bytes | memoryview):
            continue
        seen.add(id(each))
        inside: list[Any] = []
        if isinstance(each, dict):
            inside = list(each.values())
        elif isinstance(each, list | tuple | set | frozenset | deque):
            inside = list(each)
        elif type(each).__module__.startswith("unisono"):
            slots = [s for kind in type(each).__mro__ for s in getattr(kind, "__slots__", ())]
            inside = [*getattr(each, "__dict__", {}).values()]
            inside += [getattr(each, slot) for slot in slots if hasattr(each, slot)]
            count -= len(inside)
        count += len(inside)
        heap += inside
    return count


class Victim:
    """A site in a phase, and what it has asked for since."""

    def __init__(self, phase: Callable[[], tuple[Room, str]]) -> None:
        room, name = phase()
        self.site = site(room, name)
        self.now_us = room.now_us
        self.timers: set[Any] = set(room.actors[name].deadlines)
        self.is_over = False

    def step(self, event: Event) -> int:
        """How many packets it sends."""
        if isinstance(event, Expired):
            self.timers.discard(event.timer)
        said = 0
        for effect in self.site.step(self.now_us, event):
            match effect:
                case Send(_, packets):
                    said += len(packets)
                    assert all(len(packet) <= 1400 for packet in packets)
                case Arm(timer):
                    self.timers.add(timer)
                case Disarm(timer):
                    self.timers.discard(timer)
                case Fail(reason):
                    assert reason
                    self.is_over = True
                case Depart():
                    self.is_over = True
        return said

    def events(self, dice: Random, count: int, forged: bytes) -> list[Event]:
        """The packet, and now and then what else happens to a member."""
        found: list[Event] = [Received(Address(f"10.0.0.{dice.randint(1, 9)}", 7000), [forged])]
        if count % 5 == 0 and self.timers:
            found.append(Expired(dice.choice(sorted(self.timers, key=lambda timer: timer.value))))
        if count % 60 == 0 and self.site.send_credit():
            found.append(Multicast([b"still here"], Service.SAFE))
        return found


@pytest.mark.rule("RNG-18")
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_hostile_packets_are_counted_and_harmless(
    phase: Callable[[], tuple[Room, str]], packets: list[bytes]
) -> None:
    dice = Random(phase.__name__)
    victim = Victim(phase)
    dropped, stopped, most = Counter[str](), 0, 0
    for count in range(HOSTILE_COUNT):
        if count % 150 == 149 or victim.is_over:
            # A forged packet may make it stop, or bring it into another phase.
            stopped += victim.is_over
            victim = Victim(phase)
        before = dict(victim.site.counts)
        victim.now_us += 1_500
        for event in victim.events(dice, count, mangled(dice, packets, victim.site)):
            assert victim.step(event) <= RESEND_MAX + 160, "one packet brings few"
        for reason, value in victim.site.counts.items():
            if reason.startswith("drop.") and value > before.get(reason, 0):
                dropped[reason] += 1
        if count % 50 == 0:
            most = max(most, weight(victim.site))
    assert sum(dropped.values()) > HOSTILE_COUNT // 4
    assert {"drop.corrupt", "drop.short", "drop.malformed", "drop.kind", "drop.length"} <= set(
        dropped
    )
    assert stopped < HOSTILE_COUNT // 10
    assert most < WEIGHT_MAX, "what a member holds stays bounded"


@pytest.fixture(scope="module")
def packets() -> list[bytes]:
    return every_packet()


FLOODS: dict[str, Callable[[Random, Room, str, int], bytes]] = {}


def flood(make: Callable[[Random, Room, str, int], bytes]) -> None:
    FLOODS[make.__name__] = make


def stranger(dice: Random) -> Member:
    return Member(f"x{dice.getrandbits(40)}", Address("10.9.9.9", dice.randint(1, 65535)), 1)


def person(room: Room, who: str, member: Member, code: Code, attempt: int) -> bytes:
    header = Header(site(room, who).state.version, key_of(member), 0, 0, 0, 0)
    return sealed(
        code, header, encode(MemberRecord(code, header, attempt, 0, attempt, NO_VERSION, member))
    )


@flood
def requests_to_join(dice: Random, room: Room, me: str, count: int) -> bytes:
    return person(room, me, stranger(dice), Code.MEMBER_JOIN, 0)


@flood
def goodbyes_of_strangers(dice: Random, room: Room, me: str, count: int) -> bytes:
    return person(room, me, stranger(dice), Code.QUIT, 0)


@flood
def invitations(dice: Random, room: Room, me: str, count: int) -> bytes:
    return person(room, me, stranger(dice), Code.REF_INV_BC, count + 5)


@flood
def answers(dice: Random, room: Room, me: str, count: int) -> bytes:
    code = dice.choice((Code.RSP_POS, Code.RSP_NEG))
    return person(room, me, stranger(dice), code, site(room, me).election.promised.number)


@flood
def early_turns(dice: Random, room: Room, me: str, count: int) -> bytes:
    who = site(room, me)
    s = who.ordering.S + 2 + count
    holder = holder_of(room, s - 1, me)
    return turn(room, s, "x" * 900, by=holder) if holder != me else b""


@flood
def turns_of_many_parts(dice: Random, room: Room, me: str, count: int) -> bytes:
    who = site(room, me)
    s = who.ordering.S + 1 + count
    key = site(room, holder_of(room, s - 1, me)).state.key
    header = Header(who.state.version, key, key, 0, s, 0)
    return sealed(Code.TOKEN_BC, header, TURN.pack(8192, 0, count % 8000) + b"x")


@flood
def wishes(dice: Random, room: Room, me: str, count: int) -> bytes:
    other = next(n for n in ring_order(room, me) if n != me)
    key = site(room, other).state.key
    content = write_runs([OriginRun.of(key, 10**6 + count, [4], [b"y" * 1000])])
    return sealed(Code.DATA_BC_RQU, Header(site(room, me).state.version, key, key, 0, 0), content)


ON_A_RING = ("early_turns", "turns_of_many_parts", "wishes")
FLOODED = [pytest.param(kind, as_listener, id=f"{kind} on a ring") for kind in FLOODS] + [
    pytest.param(kind, as_candidate, id=f"{kind} at a candidate")
    for kind in FLOODS
    if kind not in ON_A_RING
]


@pytest.mark.parametrize(("kind", "phase"), FLOODED)
def test_a_flood_of_one_kind_fills_no_memory(
    kind: str, phase: Callable[[], tuple[Room, str]]
) -> None:
    room, me = phase()
    victim, dice = Victim(lambda: (room, me)), Random(kind)
    who = victim.site
    start = weight(who)
    for count in range(400):
        packet = FLOODS[kind](dice, room, me, count)
        assert victim.step(handed(room, "b", packet)) <= RESEND_MAX + 160
        if victim.is_over:
            break
    most = 3_000_000 if kind == "turns_of_many_parts" else 12_000
    assert weight(who) - start < most


def test_a_ring_survives_hostile_packets() -> None:
    """What is mangled on the wire has a wrong checksum: nothing of it is believed."""
    room = quiet("a", "b", "c")
    dice = Random(5)
    room.obey("say b one\nadvance 20ms")
    packets = [sent.sealed for sent in room.sent]
    for _ in range(500):
        packet = bytearray(dice.choice(packets))
        packet[dice.randrange(len(packet))] ^= 1 << dice.randrange(8)
        for name in "abc":
            site(room, name).step(room.now_us, Received(Address("10.0.0.7", 1), [bytes(packet)]))
    said = room.obey("say c two\nadvance 30ms")
    assert said.count("delivers c#1:1 two") == 3


def test_packets_of_a_former_ring_change_nothing() -> None:
    """All packets of the first ring are replayed on the second."""
    room = together("a", "b", "c", "d")
    room.obey("say a one\nadvance 40ms")
    old = [sent.sealed for sent in room.sent]
    room.obey("crash d")
    gather(room, *"abc")
    room.pass_ms(50)
    heard = {name: room.words(name) for name in "abc"}
    version = site(room, "a").state.ring.version
    for packet in old:
        for name in "abc":
            if opened(packet).header.sender != site(room, name).state.key:
                room._step(room.actors[name], Received(Address("10.0.0.4", 7000), [packet]))
    room.obey("say b two\nadvance 60ms")
    assert {name: room.words(name) for name in "abc"} == {n: [*w, "two"] for n, w in heard.items()}
    assert {site(room, name).state.ring.version for name in "abc"} == {version}


def test_what_is_asked_of_one_that_is_over_is_nothing() -> None:
    room = started("a", sites=1)
    room.obey("join a")
    step(room, "a", Leave())
    assert step(room, "a", Expired(Timer.T_REFORM)) == []
    assert step(room, "a", Multicast([b"x"])) == []
