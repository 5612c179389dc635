"""What the paper asks of election and failures, rule by rule."""

from __future__ import annotations

import pytest

from tests.ring.harness import (
    EVERYONE,
    Room,
    armed_in,
    at_rest,
    gather,
    handed,
    header_of,
    holder_of,
    invitation,
    lawful,
    leader_of,
    packets_in,
    quiet,
    ring_order,
    sealed,
    site,
    started,
    step,
    together,
)
from unisono.core import Join as Joining
from unisono.core import Restart
from unisono.model import Address, Member
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import NO_VERSION, Bits, Version, key_of
from unisono.protocols.ring.ring import read_record

# -- RNG-10 creation and election ---------------------------------------------------------------


@pytest.mark.rule("RNG-10")
def test_a_ring_is_created_by_invitation() -> None:
    """A candidate invites; those that agree answer; it is P0 of the new ring, version 1."""
    room = started("a", "b", "c")
    room.obey("join a b c")
    gather(room, *"abc")
    first = room.of(Code.REF_INV_BC)[0]
    assert first.to == EVERYONE
    assert room.of(Code.REF_INV_BC) == [first], "there was no need for a second"
    agreed = room.of(Code.RSP_POS)
    assert {sent.by for sent in agreed} == set("abc") - {first.by}
    assert {sent.to for sent in agreed} == {(room.actors[first.by].address,)}
    assert ring_order(room)[0] == first.by
    assert site(room, "a").state.ring.version == Version(1, site(room, first.by).state.key)


@pytest.mark.rule("RNG-10")
def test_a_member_without_an_invitation_waits_a_random_time_and_then_invites() -> None:
    waits = set()
    for name in "abcdef":
        room = started(*"abcdef", t_reform_us=100_000)
        room.obey(f"make {name}")
        waits.add(armed_in(step(room, name, Joining()))[Timer.T_REFORM])
        room.obey(f"join {name}\nadvance 99ms")
        assert not room.of(Code.REF_INV_BC)
        room.pass_ms(120)
        assert room.of(Code.REF_INV_BC, by=name)
    assert len(waits) > 3, "they do not all invite at once"
    assert all(100_000 <= wait_us < 200_000 for wait_us in waits)


OLD, NEW = Version(3, 7), Version(4, 1)
BETTER = {
    "R1": ((NEW, 5, "a"), (OLD, 9, "z")),
    "R2": ((OLD, 6, "a"), (OLD, 5, "z")),
    "R3": ((OLD, 5, "n"), (OLD, 5, "b")),
}
"""Of two candidates the first: its version, S and name; then the other's."""


def candidate(version: Version, s: int, name: str) -> Member:
    return Member(name, Address("10.0.0.9", 7000), 1)


@pytest.mark.rule("RNG-10")
@pytest.mark.parametrize("rule", ["R1", "R2", "R3"])
@pytest.mark.parametrize("mine", [0, 1])
def test_of_two_candidates_the_one_with_version_then_s_then_id_wins(rule: str, mine: int) -> None:
    """R1 the higher version, R2 then the higher S, R3 then the higher site id; the other yields."""
    me, other = BETTER[rule][mine], BETTER[rule][1 - mine]
    room = started(me[2], "q")
    room.obey(f"join {me[2]}")
    stand_as(room, *me)
    member = candidate(*other)
    invites = invitation(member, other[0], other[1], attempt=99, bits=Bits.MEMORY)
    said = packets_in(step(room, me[2], handed(room, me[2], invites)))
    answers = [p.code for to, p in said if to == (member.address,)]
    assert answers == [Code.RSP_POS if mine else Code.RSP_NEG]
    state = site(room, me[2]).coordinator.state.name
    assert state == ("INIT" if mine else "W_RSP"), "a member that yields is no candidate"


def stand_as(room: Room, version: Version, s: int, name: str) -> None:
    """Make this one a candidate with such a past."""
    from unisono.parts.window import Window
    from unisono.protocols.ring.ring import Ring, RingLink, Seat

    who = site(room, name)
    seats = (Seat(who.me), Seat(candidate(version, s, "other")))
    who.state.ring = Ring(version, seats, (), 2, s, 0, (RingLink(version, s),), who.me)
    who.ordering.window = Window(s)
    who.state.memory = True
    who.state.seen = version.number
    room.until(lambda: who.coordinator.state.name == "W_RSP", late_ms=400)


@pytest.mark.rule("RNG-10")
def test_an_inviter_that_knows_less_is_denied_and_votes_for_one_that_knows_more() -> None:
    """The version decides also among those that do not invite."""
    room = quiet("a", "b", "c")
    order = ring_order(room)
    stranger = Member("zz", Address("10.0.0.9", 7000), 1)
    room.obey(f"crash {order[2]}")
    room.until(lambda: site(room, order[0]).reformation.state.name == "W_TR", late_ms=2_500)
    said = packets_in(
        step(room, order[0], handed(room, "a", invitation(stranger, NO_VERSION, 0, 99, 0)))
    )
    assert [p.code for _, p in said] == [Code.RSP_NEG]


# -- RNG-11 single failure ----------------------------------------------------------------------


@pytest.mark.rule("RNG-11")
@pytest.mark.parametrize("seat", [0, 1, 3])
def test_the_process_before_the_dead_holder_coordinates_without_election(seat: int) -> None:
    room = quiet("a", "b", "c", "d", "e")
    order = ring_order(room)
    dead, prior = order[seat], order[seat - 1]
    at_rest(room, by=dead)
    room.obey(f"crash {dead}")
    gather(room, *(set("abcde") - {dead}), late_ms=2_500)
    assert {sent.by for sent in room.of(Code.REF_INV_BC)} == {prior}, "there is no other candidate"
    reports = room.of(Code.COORD_RQU)
    assert {sent.to for sent in reports} <= {(room.actors[prior].address,)}
    assert not room.of(Code.RSP_NEG)
    assert ring_order(room, prior)[0] == prior
    lawful(room)


@pytest.mark.rule("RNG-11")
def test_a_suspicion_is_confirmed_only_by_one_that_receives_nothing_either() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder, prior, third = holder_of(room, s), holder_of(room, s + 2), holder_of(room, s + 1)
    suspect = site(room, holder).state.key.to_bytes(8, "big")
    report = handed(room, third, sealed(Code.COORD_RQU, header_of(room, third), suspect))
    assert packets_in(step(room, prior, report)) == []
    site(room, prior).detection.tries = 1
    said = packets_in(step(room, prior, report))
    assert [p.code for _, p in said] == [Code.REF_INV_BC]


# -- RNG-12 many failures, partition ------------------------------------------------------------


@pytest.mark.rule("RNG-12")
def test_when_holder_and_predecessor_die_one_is_elected() -> None:
    room = quiet("a", "b", "c", "d", "e")
    s = at_rest(room)
    dead = {holder_of(room, s), holder_of(room, s + 4)}
    room.obey("\n".join(f"crash {name}" for name in sorted(dead)))
    left = set("abcde") - dead
    gather(room, *left)
    assert leader_of(room) in left
    room.obey(f"say {min(left)} on")
    room.until(lambda: all(room.words(name) == ["on"] for name in left))
    lawful(room)


@pytest.mark.rule("RNG-12")
def test_only_the_majority_continues_and_rings_merge_after_healing() -> None:
    """Of five, three go on; two block, deliver nothing, and keep inviting."""
    room = quiet("a", "b", "c", "d", "e")
    order = ring_order(room)
    many, few = order[:3], order[3:]
    room.obey(f"split {' '.join(many)} | {' '.join(few)}")
    room.obey(f"say {few[0]} blocked")
    gather(room, *many)
    views = {name: len(room.actors[name].views) for name in few}
    room.hush()
    room.obey(f"say {many[0]} on\nadvance 3000ms")
    assert all(room.words(name) == ["on"] for name in many)
    assert all(room.words(name) == [] for name in few)
    assert {name: len(room.actors[name].views) for name in few} == views, "they form no ring"
    assert len([sent for sent in room.of(Code.REF_INV_BC) if sent.by in few]) > 3
    assert not any(site(room, name).state.is_normal for name in few)
    join_again(room, room.obey("heal\nadvance 2000ms"))
    gather(room, *"abcde")
    lawful(room)


def halved() -> Room:
    """Two and two, and neither side goes on."""
    room = quiet("a", "b", "c", "d")
    order = ring_order(room)
    room.obey(f"split {' '.join(order[:2])} | {' '.join(order[2:])}\nadvance 3000ms")
    assert not any(site(room, name).state.is_normal for name in "abcd")
    return room


@pytest.mark.rule("RNG-12")
def test_without_a_majority_all_block_and_then_one_ring_continues() -> None:
    room = halved()
    join_again(room, room.obey("heal\nadvance 2000ms"))
    gather(room, *"abcd")
    room.obey("say a on")
    room.until(lambda: all(room.words(name)[-1:] == ["on"] for name in "abcd"))
    lawful(room)


def join_again(room: Room, told: str) -> None:
    """By the request of the application."""
    for line in told.splitlines():
        if "stops: the ring has gone on without this member" in line:
            room.obey(f"join {line.split()[0]}")


@pytest.mark.rule("RNG-12")
def test_a_suspect_that_answers_the_invitation_is_on_the_new_ring() -> None:
    """[RNG Fault tolerant] During the reformation the others see that it is alive after all."""
    room = halved()
    room.obey("heal")
    gather(room, *"abcd")
    assert all(actor.incarnation == 1 for actor in room.actors.values())


@pytest.mark.rule("RNG-12")
def test_a_blocked_member_takes_nothing_more_from_its_application() -> None:
    """As docs/CONTRIBUTING.md has it: a minority that blocks has `room()` 0."""
    room = halved()
    assert [site(room, name).send_credit() for name in "abcd"] == [0, 0, 0, 0]


@pytest.mark.rule("RNG-12")
def test_the_majority_is_of_all_sites_and_not_of_the_last_ring() -> None:
    """Of five, two die; of the three, one dies: two are most of the ring, and block."""
    room = quiet("a", "b", "c", "d", "e")
    room.obey("crash d\ncrash e")
    gather(room, *"abc")
    room.obey("crash c\nadvance 3000ms")
    assert not site(room, "a").state.is_normal
    assert not site(room, "b").state.is_normal


# -- RNG-13 operator's choice -------------------------------------------------------------------


@pytest.mark.rule("RNG-13")
def test_an_operator_may_let_a_minority_continue() -> None:
    room = quiet("a", "b", "c", "d", "e")
    order = ring_order(room)
    few = sorted(order[3:])
    for name in order[:3]:
        room.obey(f"crash {name}")
    told = room.obey("advance 3000ms")
    assert "warns: blocked: 2 of 5" in told
    assert not any(site(room, name).state.is_normal for name in few)
    room.obey(f"request {few[0]} go_on")
    gather(room, *few)
    room.obey(f"say {few[1]} on")
    room.until(lambda: all(room.words(name) == ["on"] for name in few))
    lawful(room)


@pytest.mark.rule("RNG-13")
def test_the_operators_request_changes_nothing_on_a_healthy_ring() -> None:
    room = quiet("a", "b", "c", "d", "e")
    room.obey("request a go_on\ncrash c\ncrash d\ncrash e\nadvance 4000ms")
    assert not site(room, "a").state.is_normal
    assert not site(room, "b").state.is_normal


# -- what is kept over a crash ------------------------------------------------------------------


@pytest.mark.rule("RNG-10")
def test_a_restarted_process_remembers_its_version() -> None:
    """R1 needs it: a member without memory could win with an older ring."""
    room = together("a", "b", "c")
    record = read_record(room.actors["a"].records[-1])
    assert record.version == site(room, "a").state.ring.version
    assert record.names == tuple(ring_order(room))
    room.obey("crash a\nmake a")
    step(room, "a", Restart(tuple(room.actors["a"].records)))
    assert site(room, "a").state.version == record.version


@pytest.mark.rule("RNG-10")
def test_a_promise_is_kept_over_a_crash() -> None:
    """A returning member answers no lower version than the one it had promised."""
    room = started("a", "b", "c", sites=3)
    room.obey("join a")
    other = Member("b", Address("10.0.0.2", 7000), 1)
    room._step(room.actors["a"], handed(room, "b", invitation(other, NO_VERSION, 0, 7, 0)))
    assert read_record(room.actors["a"].records[-1]).pledged == Version(7, key_of(other))
    room.obey("crash a\njoin a")
    low = invitation(Member("c", Address("10.0.0.3", 7000), 1), NO_VERSION, 0, 6, 0)
    said = packets_in(step(room, "a", handed(room, "c", low)))
    assert [p.code for _, p in said] == [Code.RSP_NEG]
