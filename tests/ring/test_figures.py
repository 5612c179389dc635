"""The four machines are the paper's, whole, and runs walk them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.ring.harness import (
    Room,
    at_rest,
    control,
    handed,
    header_of,
    holder_of,
    invitation,
    losing,
    quiet,
    ring_order,
    sealed,
    silence_holder,
    site,
    step,
    turn,
)
from tests.ring.heavy import heavy
from tests.scenarios.walking import in_runs, in_scenarios
from unisono.core import Expired, Multicast
from unisono.fsa import Figure, unwalked
from unisono.layout import encode
from unisono.model import Address, Member, Service
from unisono.protocols import spec
from unisono.protocols.ring import codes, figures
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import (
    NO_VERSION,
    TURN,
    Bits,
    Header,
    MemberRecord,
    Version,
    code_of,
)
from unisono.sim.plan import Plan
from unisono.spec import ProtocolSpec

PAPERS_EVENTS = """MEMBER_JOIN FAST_ACK REF_INV_BC RESUME RESUME_RQU RSP_POS RSP_NEG NEWTR_ACK
    ABORT_BC_RQU COORD_RQU TS_ALIVE_RQU TS_ALIVE_RSP NEWTR_BC RB_DATA_RQU DATA_BC_RQU TOKEN_BC
    RESEND_DATA E_ACK E_COORDINATOR E_INIT E_ABORT_REF E_REFSTART E_REFEND E_SENDABLE""".split()
PAPERS_TIMERS = ["T_SEND", "T_RT", "T_REFORM", "T_REF_RT", "T_TS"]
PAPERS_STATES = {
    "send": ["INIT", "NORMAL", "WAITACK"],
    "receive": ["INIT", "NORMAL", "RESEND"],
    "coordinator": ["INIT", "W_RSP", "W_REF"],
    "reformation": ["INIT", "W_TR", "W_RSU"],
}

UNWALKED = {
    "reformation: W_RSU --RELEASE/be_released--> W_RSU": "a released member was offered no ring",
    "coordinator: W_REF --TOKEN_BC[is_my_ring]/resume--> INIT": (
        "no turn is sent on a ring before its coordinator has sent RESUME"
    ),
}
"""Arrows that neither stories nor chaos take, and why."""


def machines() -> tuple[Figure, ...]:
    """As the module has them now."""
    return (figures.SEND, figures.RECEIVE, figures.COORDINATOR, figures.REFORMATION)


def names_of(figure: Figure) -> list[str]:
    return [f"{figure.name}: {name}" for name in figure.names()]


# -- RNG-19 four machines -----------------------------------------------------------------------


@pytest.mark.rule("RNG-19")
def test_there_are_four_machines_of_the_papers_three_states() -> None:
    found = {figure.name: [state.name for state in figure.states()] for figure in machines()}
    assert found == PAPERS_STATES
    assert all(figure.start.name == "INIT" for figure in machines())


@pytest.mark.rule("RNG-19")
def test_every_event_is_decided_in_every_state() -> None:
    """The paper's two-dimensional table has an entry for each event and state."""
    assert [wrong for figure in machines() for wrong in figure.undecided()] == []


@pytest.mark.rule("RNG-19")
def test_the_papers_24_events_have_their_names_and_numbers() -> None:
    assert [codes.Code(number).name for number in range(1, 25)] == PAPERS_EVENTS


@pytest.mark.rule("RNG-19")
def test_every_event_and_timer_of_the_paper_is_in_the_figures() -> None:
    known = {getattr(on, "name", None) for figure in machines() for on in figure.events()}
    assert set(PAPERS_EVENTS) | set(PAPERS_TIMERS) <= known


@pytest.mark.rule("RNG-19")
def test_codes_added_to_the_papers_are_few_and_numbered_after_them() -> None:
    added = {code.name for code in Code if code > 24}
    assert added == {
        "RING_INFO", "RESEND_RQU", "QUIT", "RELEASE", "STALE", "REFUSE", "STATE_ASK", "STATE",
        "E_AWAITED",
    }  # fmt: skip
    assert [timer.name for timer in Timer] == [*PAPERS_TIMERS, "REPAIR", "LEAVE"]


@pytest.mark.rule("RNG-19")
def test_a_member_that_sent_its_turn_waits_for_the_next() -> None:
    """[RNG Figure 7] After multicasting, Send is in waitack until the next turn has come."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder, following = holder_of(room, s), holder_of(room, s + 1)
    step(room, holder, Multicast([b"word"], Service.AGREED))
    assert site(room, holder).send.state.name == "WAITACK"
    step(room, holder, handed(room, following, turn(room, s + 2, by=following)))
    assert site(room, holder).send.state.name == "NORMAL"


# -- arrows that few runs take ------------------------------------------------------------------


def with_a_gap(room: Room) -> tuple[str, str, int]:
    """One that lacks a turn, one that has it, and S."""
    s = at_rest(room)
    second, last = holder_of(room, s + 1), holder_of(room, s + 3)
    step(room, last, handed(room, second, turn(room, s + 2, "two", by=second)))
    assert site(room, last).receive.state.name == "RESEND"
    return last, second, s


def an_old_turn_in_a_gap(code: Code) -> Callable[[Room], str]:
    def story(room: Room) -> str:
        me, other, s = with_a_gap(room)
        header = header_of(room, other, version=Version(0, 5), s=s)
        step(room, me, handed(room, other, sealed(code, header, TURN.pack(1, 0, 0))))
        return me

    return story


def without_a_gap(room: Room) -> tuple[str, str, int]:
    """The same two, when nothing is lacking."""
    s = at_rest(room)
    return holder_of(room, s + 3), holder_of(room, s + 1), s


Told = Callable[[Room], tuple[str, str, int]]


def a_report(room: Room, told: Told = without_a_gap) -> str:
    """The holder is silent for me too, and I come before it."""
    me, other, s = told(room)
    site(room, me).detection.tries = 1
    suspect = site(room, holder_of(room, s)).state.key.to_bytes(8, "big")
    header = header_of(room, other)
    step(room, me, handed(room, other, sealed(Code.COORD_RQU, header, suspect)))
    return me


def an_invitation_of_one_that_knows_less(room: Room) -> str:
    me, other, s = with_a_gap(room)
    who = site(room, me)
    who.detection.tries = 1
    member = site(room, other).me
    invites = invitation(member, who.state.ring.version, s - 1, 99, Bits.MEMORY)
    step(room, me, handed(room, other, invites))
    return me


def a_later_ring_in_a_gap(room: Room) -> str:
    me, other, s = with_a_gap(room)
    header = header_of(room, other, version=Version(9, 5), s=s)
    step(room, me, handed(room, other, sealed(Code.TOKEN_BC, header, TURN.pack(1, 0, 0))))
    return me


def a_ring_that_goes_on_elsewhere(room: Room) -> str:
    """A coordinator learns of a later ring by the answer to its request to join."""
    s = at_rest(room)
    me = holder_of(room, s + 3)
    room.obey(f"split {me} | {' '.join(n for n in room.actors if n != me)}")
    room.until(lambda: site(room, me).coordinator.state.name == "W_RSP", late_ms=4_000)
    member = Member("z", Address("10.0.0.9", 7000), 1)
    info = invitation(member, Version(9, 5), 9, 0, Bits.IN_FORCE, code=Code.RING_INFO)
    step(room, me, handed(room, me, info))
    return me


def a_ring_again(room: Room, told: Told = without_a_gap) -> str:
    """To its coordinator my acknowledgment was lost, and it is in force here all the same."""
    me, other, _ = told(room)
    header = header_of(room, other)
    step(room, me, handed(room, other, sealed(Code.NEWTR_BC, header, b"\0\1")))
    return me


def an_invitation_without_a_reason(room: Room) -> str:
    me, other, s = with_a_gap(room)
    invites = invitation(
        site(room, other).me, site(room, me).state.ring.version, s + 2, 99, Bits.MEMORY
    )
    step(room, me, handed(room, other, invites))
    return me


def a_holder_that_was_only_slow(room: Room) -> str:
    """I have reported it, and wait for an invitation, when its turn comes."""
    s = at_rest(room)
    holder, me = holder_of(room, s), holder_of(room, s + 2)
    who = site(room, me)
    silence_holder(who)
    step(room, me, Expired(Timer.T_RT))
    assert who.receive.state.name == "INIT"
    step(room, me, handed(room, holder, turn(room, s + 1, by=holder)))
    assert who.state.is_normal
    return me


def with_a_ring_that_is_not_accepted(room: Room) -> str:
    """The coordinator of a new ring, which no acknowledgment reaches."""
    room.loses = losing(Code.NEWTR_ACK)
    room.obey(f"crash {holder_of(room, at_rest(room))}")
    room.until(lambda: room.of(Code.NEWTR_BC), late_ms=3_000)
    me = room.of(Code.NEWTR_BC)[0].by
    assert site(room, me).coordinator.state.name == "W_REF"
    return me


def a_later_ring_than_the_one_just_formed(room: Room) -> str:
    me = with_a_ring_that_is_not_accepted(room)
    header = header_of(room, me, version=Version(9, 5), sender=77)
    step(room, me, handed(room, me, sealed(Code.TOKEN_BC, header, TURN.pack(1, 0, 0))))
    return me


def an_invitation_of_one_with_a_later_ring(room: Room) -> str:
    me = with_a_ring_that_is_not_accepted(room)
    stranger = Member("z", Address("10.0.0.9", 7000), 1)
    invites = invitation(stranger, Version(9, 5), 99, 99, Bits.MEMORY)
    step(room, me, handed(room, me, invites))
    return me


def a_later_ring_than_the_one_promised(room: Room) -> str:
    """A leader that died was promised a ring, and another goes on elsewhere."""
    room.obey(f"crash {holder_of(room, at_rest(room))}")
    room.until(lambda: room.of(Code.RSP_POS), late_ms=3_000)
    me = room.of(Code.RSP_POS)[0].by
    assert site(room, me).reformation.state.name == "W_TR"
    header = header_of(room, me, version=Version(9, 5), sender=77)
    step(room, me, handed(room, me, sealed(Code.TOKEN_BC, header, TURN.pack(1, 0, 0))))
    return me


def the_word_after_all(code: Code) -> Callable[[Room], str]:
    """The ring was accepted, the word to resume never came, and the wait for it was given up."""

    def story(room: Room) -> str:
        dead = holder_of(room, at_rest(room))
        me = next(name for name in "abcd" if name not in (dead, prior_of(room, dead)))
        room.loses = lambda by, to, packet: (
            to == me and code_of(packet) not in (Code.REF_INV_BC, Code.NEWTR_BC)
        )
        room.obey(f"crash {dead}")
        room.until(lambda: site(room, me).reformation.state.name == "W_RSU", late_ms=3_000)
        room.loses = lambda by, to, packet: to == me
        room.until(lambda: site(room, me).reformation.state.name == "INIT")
        leader = ring_order(room, me)[0]
        who = site(room, leader)
        version, key = site(room, me).state.ring.version, who.state.key
        header = Header(version, key, key, 0, who.ordering.S, 0)
        person = encode(MemberRecord(code, header, 0, Bits.IN_FORCE, 0, NO_VERSION, who.me))
        tails = {Code.RESUME: b"", Code.TOKEN_BC: TURN.pack(1, 0, 0), Code.RSP_NEG: person}
        step(room, me, handed(room, leader, sealed(code, header, tails[code])))
        return me

    return story


def prior_of(room: Room, name: str) -> str:
    order = ring_order(room)
    return order[order.index(name) - 1]


AFTER_ALL = "[is_in_force]/install--> INIT"
RARE: dict[str, Callable[[Room], str]] = {
    "receive: RESEND --TOKEN_BC/drop_foreign--> RESEND": an_old_turn_in_a_gap(Code.TOKEN_BC),
    "receive: RESEND --RESEND_DATA/drop_foreign--> RESEND": an_old_turn_in_a_gap(Code.RESEND_DATA),
    "receive: NORMAL --COORD_RQU[confirms]/coordinate--> INIT": a_report,
    "receive: RESEND --COORD_RQU[confirms]/coordinate--> INIT": (
        partial(a_report, told=with_a_gap)
    ),
    "receive: RESEND --REF_INV_BC[should_lead]/lead_instead--> INIT": (
        an_invitation_of_one_that_knows_less
    ),
    "receive: RESEND --TOKEN_BC[is_later]/follow_later--> INIT": (a_later_ring_in_a_gap),
    "coordinator: W_RSP --RING_INFO[is_later]/join_other_ring--> INIT": (
        a_ring_that_goes_on_elsewhere
    ),
    "receive: NORMAL --NEWTR_BC[is_my_ring]/acknowledge_ring--> NORMAL": a_ring_again,
    "receive: RESEND --NEWTR_BC[is_my_ring]/acknowledge_ring--> RESEND": (
        partial(a_ring_again, told=with_a_gap)
    ),
    "receive: RESEND --REF_INV_BC/deny--> RESEND": an_invitation_without_a_reason,
    "reformation: INIT --TOKEN_BC[may_return]/return_to_ring--> INIT": (
        a_holder_that_was_only_slow
    ),
    "coordinator: W_REF --TOKEN_BC[is_later]/join_other_ring--> INIT": (
        a_later_ring_than_the_one_just_formed
    ),
    "coordinator: W_REF --REF_INV_BC[is_worthier]/yield_to_inviter--> INIT": (
        an_invitation_of_one_with_a_later_ring
    ),
    "reformation: W_TR --TOKEN_BC[is_past_promise]/follow_later--> INIT": (
        a_later_ring_than_the_one_promised
    ),
    f"reformation: INIT --RESUME{AFTER_ALL}": the_word_after_all(Code.RESUME),
    f"reformation: INIT --TOKEN_BC{AFTER_ALL}": the_word_after_all(Code.TOKEN_BC),
    f"reformation: INIT --RSP_NEG{AFTER_ALL}": the_word_after_all(Code.RSP_NEG),
}


@pytest.mark.parametrize("arrow", RARE)
def test_an_arrow_that_runs_seldom_take_is_there_and_taken(arrow: str) -> None:
    room = quiet("a", "b", "c", "d")
    me = RARE[arrow](room)
    assert site(room, me).transition_counts().get(arrow) == 1
    step(room, me, control(room, next(n for n in "abcd" if n != me), Code.TS_ALIVE_RQU))


# -- walked -------------------------------------------------------------------------------------


def faulty(ring: ProtocolSpec) -> Iterator[Plan]:
    for seed in (*range(5_000, 5_030), 5_100, 5_144):
        options = {"sites": 0} if seed % 3 == 0 else {}
        yield Plan(
            protocol="ring", spec=ring, nodes=3 + seed % 6, seed=seed, messages=40,
            faults=("mild", "partition")[seed % 2], options=options,
        )  # fmt: skip
    yield from (heavy(seed, ring) for seed in range(8))


@pytest.mark.slow
def test_stories_and_chaos_walk_every_arrow_that_does_something() -> None:
    """Discarding apart: an arrow that is never taken has never been tried."""
    walks = in_runs("ring", faulty) + in_scenarios("ring")
    seen = {name for walk in walks for name, count in walk.items() if count} | RARE.keys()
    # Most rows of Receive are for both of its states at work: one walk tries the row.
    seen |= {name.replace("NORMAL", "RESEND") for name in seen if name.startswith("receive: ")}
    untried = {
        name
        for figure in machines()
        for name in names_of(figure)
        if name not in seen and "/stay" not in name
    }
    assert untried <= UNWALKED.keys()


def test_only_arrows_of_the_figures_are_excused() -> None:
    known = {name for figure in machines() for name in names_of(figure)}
    assert UNWALKED.keys() <= known
    assert RARE.keys() <= known
    assert unwalked(figures.SEND, []) == figures.SEND.names()


def test_the_arrow_by_which_turns_are_counted_is_of_the_send_machine() -> None:
    ring = spec("ring")
    taken = [name for name in ring.arrows if re.search(ring.token_arrow, name)]
    assert taken and set(taken) == {
        f"send: {step.name}"
        for steps in figures.SEND.index.values()
        for step in steps
        if step.do.__name__ == "take_turn"
    }
