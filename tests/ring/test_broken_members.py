"""A broken member has the group's key and says anything. Nothing it says is believed unless it may
say so and it can be true, nothing else is written to stable storage, and the others go on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.ring.harness import (
    LATE_MS,
    Room,
    at_rest,
    gather,
    handed,
    header_of,
    holder_of,
    invitation,
    opened,
    quiet,
    ring_order,
    sealed,
    site,
    started,
    step,
    turn,
)
from unisono.core import Adopt, Multicast, Received
from unisono.layout import encode
from unisono.model import Address, Member, Service
from unisono.parts.turn import COUNT_MAX, TURN_COUNT_MAX, MessageGroup, OriginRun, write_runs
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.fault_detection import HOLE_TIMES
from unisono.protocols.ring.packets import (
    NO_HEADER,
    ROUND_MAX,
    ROUNDS_AHEAD_MAX,
    TURN,
    Bits,
    Header,
    StatePiece,
    Version,
)

STRANGER = Member("x", Address("10.9.9.9", 7), 1)


def drops(room: Room, reason: str) -> int:
    found = [a.inner.counts.get(f"drop.{reason}", 0) for a in room.actors.values() if a.core]
    return sum(found)


def to_all(room: Room, packet: bytes, by: str = "") -> None:
    """The packet arrives at all but its sender."""
    source = room.actors[by].address if by else STRANGER.address
    for name, actor in room.actors.items():
        if name != by and actor.core is not None:
            room._step(actor, Received(source, [packet]))


def others(room: Room, who: str) -> list[str]:
    return [name for name in room.actors if name != who]


def all_go_on(room: Room, *names: str) -> None:
    """They agree on a ring, and on what is said on it."""
    gather(room, *names)
    before = {name: len(room.words(name)) for name in names}
    room.obey("\n".join(f"say {name} still{name}" for name in names))
    room.until(lambda: all(len(room.words(n)) >= before[n] + len(names) for n in names))
    said = [room.words(name)[before[name] :] for name in names]
    assert sorted(said[0]) == sorted(f"still{name}" for name in names)
    assert all(each == said[0] for each in said)


# -- versions and attempts -----------------------------------------------------------------------


@pytest.mark.rule("RNG-18")
@pytest.mark.parametrize("number", [1 << 31, 1 << 40, ROUND_MAX])
def test_a_version_that_nobody_can_have_reached_stops_no_change(number: int) -> None:
    room = quiet("a", "b", "c", sites=0)
    header = header_of(room, "c", version=Version(number, site(room, "c").state.key))
    to_all(room, sealed(Code.TS_ALIVE_RQU, header), "c")
    room.obey("crash c")
    all_go_on(room, "a", "b")
    reached = site(room, "a").state.version.number
    if number > ROUNDS_AHEAD_MAX:
        assert reached < 100 and drops(room, "version") == 2
    room.obey("start ring d\njoin d")
    all_go_on(room, "a", "b", "d")


@pytest.mark.parametrize("number", [1 << 31, ROUND_MAX])
def test_an_attempt_that_nobody_can_have_reached_is_not_promised_and_not_kept(number: int) -> None:
    room = quiet("a", "b", "c", sites=0)
    members = {name: room.actors[name].inner.me for name in "abc"}
    bad = ring_order(room)[2]
    room.obey(f"crash {bad}")
    room.until(lambda: any(site(room, n).detection.tries for n in others(room, bad)))
    version = site(room, ring_order(room)[0]).state.version
    s = site(room, ring_order(room)[0]).ordering.S
    to_all(room, invitation(members[bad], version, s, number, Bits.MEMORY))
    for name in others(room, bad):
        pledged = site(room, name).state.record.pledged.number
        assert pledged in (number, version.number) if number < ROUNDS_AHEAD_MAX else pledged < 100
    all_go_on(room, *others(room, bad))
    names = others(room, bad)
    room.obey(f"crash {names[0]}\ncrash {names[1]}\nstart ring {' '.join(names)}")
    room.obey(f"join {' '.join(names)}")
    all_go_on(room, *names)


def test_a_process_without_a_past_believes_a_group_that_is_far_along() -> None:
    room = quiet("a", "b", sites=0)
    far = ROUNDS_AHEAD_MAX - 10
    header = header_of(room, "b", version=Version(far, 7))
    to_all(room, sealed(Code.TS_ALIVE_RQU, header))
    room.obey("start ring c\njoin c")
    all_go_on(room, "a", "b", "c")
    assert site(room, "a").state.version.number > far
    room.obey("start ring d\njoin d")
    all_go_on(room, *"abcd")


# -- turns ---------------------------------------------------------------------------------------


def part_of_a_turn(room: Room, s: int, by: str, code: Code = Code.TOKEN_BC) -> bytes:
    """The first of 8192 packets."""
    who = site(room, by)
    header = Header(who.state.ring.version, who.state.key, who.state.key, 0, s, 0)
    return sealed(code, header, TURN.pack(8192, 0, 0) + bytes(50))


def test_a_turn_that_its_holder_began_otherwise_is_the_holders_last() -> None:
    """The first of 8192 packets of a turn comes early; then the turn, which is one packet."""
    room = quiet("a", "b", "c", sites=0)
    bad = holder_of(room, at_rest(room))
    to_all(room, part_of_a_turn(room, site(room, bad).ordering.S + 1, bad), bad)
    all_go_on(room, *"abc")
    assert drops(room, "contradiction") >= 2
    assert len({site(room, name).state.ring.version for name in "abc"}) == 1


def test_what_others_claim_of_a_turn_gives_way_to_its_holder() -> None:
    room = quiet("a", "b", "c", sites=0)
    s = at_rest(room)
    bad = holder_of(room, s + 1)
    to_all(room, part_of_a_turn(room, s + 1, bad, Code.RESEND_DATA), bad)
    all_go_on(room, *"abc")
    assert drops(room, "contradiction") >= 1


def test_a_turn_that_never_becomes_whole_makes_its_holder_suspect() -> None:
    """It lives, answers, and never sends the rest: another ring is formed, and the turn is void."""
    room = quiet("a", "b", "c", sites=0)
    s = at_rest(room)
    bad = holder_of(room, s)
    version = site(room, bad).state.ring.version
    to_all(room, part_of_a_turn(room, s + 1, bad), bad)
    room.loses = lambda source, target, packet: (
        source == bad and type(packet).__name__ == "TurnPacket" and packet.header.version == version
    )
    late_ms = (HOLE_TIMES + 4) * site(room, bad).parameters.detect_us // 1000
    good = others(room, bad)
    room.until(lambda: site(room, good[0]).state.ring.version > version, 10, late_ms)
    room.loses = None
    all_go_on(room, *good)


def test_a_whole_turn_before_its_time_is_not_believed() -> None:
    """A later turn than ours does not exist before we have sent ours: so nobody delivers it here,
    and another one there."""
    room = quiet("a", "b", "c", sites=0)
    s = at_rest(room)
    bad = holder_of(room, s)
    early = turn(room, s + 10, "forged", by=bad)
    for name in others(room, bad)[:1]:
        room._step(room.actors[name], handed(room, bad, early))
    room.obey("\n".join(f"say {name} {name}{n}" for n in range(3) for name in "abc"))
    all_go_on(room, *"abc")
    assert drops(room, "ahead") and not any("forged" in room.words(name) for name in "abc")
    assert room.words("a") == room.words("b") == room.words("c")


def test_a_turn_is_sent_again_only_by_members() -> None:
    room = quiet("a", "b", "c", sites=0)
    s, me = at_rest(room), ring_order(room)[0]
    header = Header(site(room, me).state.ring.version, 77, 77, 0, s + 1, 0)
    content = write_runs([OriginRun.of(site(room, me).state.key, 1, [4], [b"forged"])])
    packet = sealed(Code.RESEND_DATA, header, TURN.pack(1, 0, 0) + content)
    for name in "abc":
        assert not step(room, name, handed(room, me, packet))
        assert site(room, name).counts["drop.turn"] == 1
        assert s == site(room, name).ordering.S
    all_go_on(room, *"abc")


@pytest.mark.parametrize("by", ["stranger", "member"])
@pytest.mark.parametrize("field", ["s", "k"])
def test_safe_is_what_we_have_ourselves(by: str, field: str) -> None:
    """A FAST_ACK says that everyone has turn 2^62, or that its sender has."""
    room = quiet("a", "b", "c", sites=0)
    at_rest(room)
    header = header_of(room, "c", **{field: 1 << 62})
    if by == "stranger":
        header = header._replace(sender=77)
    to_all(room, sealed(Code.FAST_ACK, header), "c")
    for name in "ab":
        ordering = site(room, name).ordering
        assert ordering.safe <= ordering.S and ordering.highest == ordering.S
        assert site(room, name).counts["drop.ahead"] == 1
    assert max(site(room, "a").ordering.K) <= site(room, "a").ordering.S
    room.obey("service safe")
    all_go_on(room, *"abc")


def test_empty_messages_are_counted_before_they_are_made(run_count: int = 256) -> None:
    """Four million of them are 6 KB on the wire."""
    run = OriginRun(7, 1, [MessageGroup(COUNT_MAX, 0, 4)], [])
    room = quiet("a", "b", "c", sites=0)
    s = at_rest(room)
    bad = holder_of(room, s)
    key = site(room, bad).state.key
    runs = [run._replace(origin=key, first=1 + n * COUNT_MAX) for n in range(run_count)]
    header = Header(site(room, bad).state.ring.version, key, key, 0, s + 1, 0)
    content = write_runs(runs)
    pieces = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    for at, piece in enumerate(pieces):
        packet = sealed(Code.TOKEN_BC, header, TURN.pack(len(pieces), 0, at) + piece)
        to_all(room, packet, bad)
    assert all(s < site(room, name).ordering.S for name in others(room, bad))
    assert drops(room, "malformed") == 2
    assert all(room.words(name) == [] for name in others(room, bad))


def test_honest_members_send_many_empty_messages() -> None:
    room = quiet("a", "b", "c", sites=0)
    at_rest(room)
    count = TURN_COUNT_MAX // 2
    for name in "abc":
        room._step(room.actors[name], Multicast([b""] * count, Service.AGREED))
    room.until(lambda: all(len(room.heard.get(n, [])) == 3 * count for n in "abc"), 20)
    assert drops(room, "malformed") == 0


# -- members -------------------------------------------------------------------------------------


def test_one_quit_is_one_reformation() -> None:
    """Somebody says that c leaves. It does not, and is on the next ring; nobody asks again."""
    room = quiet("a", "b", "c", sites=0)
    views = len(room.actors["a"].views)
    member = room.actors["c"].inner.me
    header = header_of(room, "c")
    forged = invitation(member, header.version, header.s, 0, 0, Code.QUIT)
    to_all(room, forged, "c")
    room.pass_ms(LATE_MS)
    assert len(room.actors["a"].views) <= views + 2
    assert site(room, "a").state.ring.version.number <= header.version.number + 2
    all_go_on(room, *"abc")


def test_a_joiner_takes_the_state_from_the_one_it_asked() -> None:
    room = quiet("a", "b", "c", sites=0, state=1)
    room.obey("say a one\nadvance 100ms\nstart ring d state=1")
    room.loses = lambda source, target, packet: type(packet).__name__ == "StatePiece"
    room.obey("join d")
    room.until(lambda: site(room, "d").transfer.is_waiting())
    oldest = site(room, "d").state.ring.oldest
    bad = next(n for n in "abc" if oldest is not None and n != oldest.name)
    tail = encode(StatePiece(NO_HEADER, 6, 0, b"forged"))
    version = site(room, "d").state.ring.version
    for key in (site(room, bad).state.key, 77):
        packet = sealed(Code.STATE, Header(version, key), tail)
        assert not any(isinstance(e, Adopt) for e in step(room, "d", handed(room, bad, packet)))
    assert site(room, "d").counts["drop.stranger"] == 2
    room.loses = None
    room.until(lambda: not site(room, "d").transfer.is_waiting())
    all_go_on(room, *"abcd")


def test_a_broken_member_costs_no_more_than_itself() -> None:
    """It says all of this, again and again; the others deliver the same, and go on."""
    dice = Random(7)
    room = quiet("a", "b", "c", "d", sites=0)
    bad = "d"
    for _ in range(60):
        who: Any = site(room, bad)
        if room.actors[bad].core is None:
            break
        s = site(room, "a").ordering.S + dice.randint(0, 12)
        header = header_of(room, bad, s=dice.choice((s, 1 << 62)), k=dice.choice((0, s, 1 << 62)))
        packet = dice.choice(
            (
                sealed(Code.FAST_ACK, header),
                sealed(Code.TS_ALIVE_RQU, header._replace(version=Version(1 << 61, 5))),
                part_of_a_turn(room, s, bad, dice.choice((Code.TOKEN_BC, Code.RESEND_DATA))),
                turn(room, s + 4, "forged", by=bad),
                invitation(who.me, who.state.version, s, ROUND_MAX, Bits.MEMORY),
            )
        )
        assert opened(packet)
        to_all(room, packet, bad)
        room.obey(f"say {dice.choice('abc')} word\nadvance 10ms")
    room.obey(f"crash {bad}")
    all_go_on(room, *"abc")
    assert room.words("a") == room.words("b") == room.words("c")
    assert "forged" not in room.words("a")


def test_nothing_of_this_hinders_a_first_start() -> None:
    room = started("a", "b", "c", sites=3)
    room.obey("join a b c")
    all_go_on(room, *"abc")
    assert not drops(room, "ahead") and not drops(room, "version")
