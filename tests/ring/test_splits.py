"""Stories in which two rings went on, or what was safe was lost: each went wrong once."""

from __future__ import annotations

import pytest

from tests.ring.harness import (
    Room,
    are_together,
    at_rest,
    gather,
    handed,
    header_of,
    invitation,
    lawful,
    losing,
    packets_in,
    ring_order,
    sealed,
    seen,
    site,
    started,
    step,
    together,
)
from unisono.layout import encode
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.packets import NO_HEADER, Abort, Bits, MemberRecord
from unisono.protocols.ring.ring import read_record
from unisono.protocols.ring.states import CoordinatorState


def come_back(room: Room, *names: str) -> None:
    """Members that were stopped are started again."""
    for name in names:
        if site(room, name)._over:
            room.obey(f"join {name}")


def normal(room: Room, names: str) -> set[str]:
    return {name for name in names if site(room, name).state.is_normal}


# -- two rings ------------------------------------------------------------------------------------


def test_one_that_was_replaced_is_no_longer_counted() -> None:
    """Of three, d took the place of c. Both were counted as known, so that c and d were two of
    three, and so were a and b: two rings went on."""
    room = started("a", "b", "c", "d", sites=3)
    room.obey("join a b c")
    gather(room, *"abc")
    room.obey("split a b d | c")
    gather(room, *"ab")
    room.obey("join d")
    gather(room, *"abd")
    room.obey("heal\nsplit a b | c d")
    for _ in range(25):
        room.pass_ms(200)
        come_back(room, "c")
    assert normal(room, "abcd") == set("ab")
    room.obey("say a left\nsay d right\nadvance 500ms")
    assert [room.words(name) for name in "abcd"] == [["left"], ["left"], [], []]
    lawful(room)


def test_the_operators_request_expires_with_its_occasion() -> None:
    """The ring came back by itself, and the word that had let a go on alone was still in force:
    at the next split a went on alone, and so did the majority."""
    room = together("a", "b", "c", sites=3)
    room.obey("cut b > a\ncut c > a")
    room.until(lambda: not site(room, "a").state.is_normal)
    room.obey("request a go_on\nheal")
    room.until(lambda: normal(room, "abc") == set("abc"))
    assert site(room, "a").state.ring.size == 3, "the word was not needed"
    room.obey("split a | b c")
    gather(room, *"bc")
    room.pass_ms(3_000)
    assert normal(room, "abc") == set("bc")
    lawful(room)


# -- a ring that one alone has accepted -----------------------------------------------------------


def half_formed(alone: str) -> tuple[Room, str, str]:
    """Of three, one is cut off; the two others form a ring, but the description is lost on its way:
    its coordinator alone has accepted it. Returned too: the coordinator and its follower."""
    room = together("a", "b", "c", sites=3)
    room.obey(f"say {alone} old\nadvance 200ms")
    left, right = sorted(set("abc") - {alone})
    room.loses = losing(Code.NEWTR_BC)
    room.obey(f"split {alone} | {left} {right}")

    def leaders() -> list[str]:
        states = {name: site(room, name).coordinator.state for name in (left, right)}
        return [name for name, state in states.items() if state is CoordinatorState.W_REF]

    room.until(leaders)
    (leader,) = leaders()
    return room, leader, right if leader == left else left


@pytest.mark.parametrize("alone", ["a", "b", "c"])
def test_a_promise_outlives_the_one_that_made_it(alone: str) -> None:
    """The follower crashed and forgot its promise. It agreed to a lower version with the third;
    later the coordinator's ring, which never was, outbid the one that had been in force, and
    those that remembered what was safe there had to forget it."""
    room, leader, follower = half_formed(alone)
    never = site(room, leader).state.ring.version
    room.obey(f"crash {follower}")
    room.loses = None
    room.obey(f"heal\nsplit {leader} | {follower} {alone}\njoin {follower}")
    gather(room, follower, alone)
    assert site(room, alone).state.ring.version > never
    room.obey(f"say {alone} precious\nadvance 200ms")
    assert room.words(alone) == room.words(follower) == ["old", "precious"]
    room.obey(f"crash {follower}")
    room.until(lambda: not site(room, alone).state.is_normal)
    room.obey(f"heal\nadvance 300ms\njoin {follower}")
    for _ in range(50):
        room.pass_ms(100)
        come_back(room, leader)
        if are_together(room, "abc"):
            break
    assert seen(room, alone) == set("abc")
    assert room.actors[alone].incarnation == 1, "a member that remembers leads, and is not stopped"
    lawful(room)


@pytest.mark.parametrize("later_ms", [50, 600])
@pytest.mark.parametrize("alone", ["a", "b", "c"])
def test_a_record_names_all_that_may_remember(alone: str, later_ms: int) -> None:
    """Coordinator and follower crashed and came back. The record of the ring that never was named
    only the two: they began anew, and the third, which remembered everything, had to stop."""
    room, leader, follower = half_formed(alone)
    assert set(read_record(room.actors[leader].records[-1]).names) == set("abc")
    room.obey(f"crash {follower}\ncrash {leader}")
    room.loses = None
    room.obey(f"join {leader}\njoin {follower}\nadvance {later_ms}ms\nheal")
    gather(room, *"abc")
    assert room.actors[alone].incarnation == 1
    assert ring_order(room)[0] == alone, "a member that remembers leads"
    assert site(room, follower).state.ring.seq == 1, "what was safe is counted"
    lawful(room)


# -- a member that knows more ---------------------------------------------------------------------


def test_a_member_that_leads_instead_does_not_report_its_ring_in_force() -> None:
    room = together("a", "b", "c", sites=3)
    s = at_rest(room)
    me = site(room, "a")
    me.detection.tries = 1
    packet = invitation(site(room, "b").me, me.state.ring.version, s, me.state.seen + 5, 0)
    effects = step(room, "a", handed(room, "b", packet))
    said = [person for _, person in packets_in(effects) if isinstance(person, MemberRecord)]
    assert [person.code for person in said] == [Code.RSP_NEG, Code.REF_INV_BC]
    assert not said[0].has(Bits.IN_FORCE) and said[0].has(Bits.MEMORY)


# -- promises -------------------------------------------------------------------------------------


def test_a_promise_is_not_forgotten_when_a_higher_one_is_called_off() -> None:
    """a had promised 10 to b, then 12 to c, which gave up. It then took itself for free, and
    promised 9 to d, though b may still form 10."""
    room = together("a", "b", "c", "d", "e", sites=5)
    s = at_rest(room)
    version = site(room, "a").state.ring.version

    def invited(by: str, attempt: int) -> list[Code]:
        site(room, "a").detection.tries = 1  # Else a has no reason to stop.
        packet = invitation(site(room, by).me, version, s, attempt, Bits.MEMORY)
        effects = step(room, "a", handed(room, by, packet))
        return [said.code for _, said in packets_in(effects) if isinstance(said, MemberRecord)]

    assert invited("b", 10) == invited("c", 12) == [Code.RSP_POS]
    given_up = sealed(Code.ABORT_BC_RQU, header_of(room, "c"), encode(Abort(NO_HEADER, 12)))
    step(room, "a", handed(room, "c", given_up))
    assert site(room, "a").state.is_normal, "the ring goes on as it was"
    assert invited("d", 9) == [Code.RSP_NEG]
    assert invited("d", 11) == [Code.RSP_NEG]
    assert invited("d", 13) == [Code.RSP_POS]
