"""What the paper asks of packets, of the order of events and of timers, rule by rule."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.ring.harness import (
    EVERYONE,
    GROUP,
    Room,
    S,
    armed_in,
    at_rest,
    control,
    gather,
    handed,
    header_of,
    holder_of,
    invitation,
    losing,
    opened,
    packets_in,
    quiet,
    ring_order,
    sealed,
    silence_holder,
    site,
    started,
    step,
    together,
    turn,
)
from unisono.core import Expired, Join, Multicast, Send
from unisono.model import Address, Member, Service
from unisono.protocols.ring import parameters
from unisono.protocols.ring.codes import NEVER_SENT, WAITS, Code, Timer
from unisono.protocols.ring.packets import HEADER_BYTES, PROTOCOL, TURN, Bits, Version, code_of
from unisono.wire import ENVELOPE_BYTES, FRONT_BYTES, SUM_BYTES, note_in, seal, unseal

# -- RNG-18 packet ------------------------------------------------------------------------------


def fields_of(packet: bytes) -> dict[str, int]:
    """The paper's header, read by hand: some of it stands in the envelope of all protocols."""
    front = struct.unpack_from("!HBBBBQQ", packet)
    rest = struct.unpack_from("!QQQQQQI", packet, FRONT_BYTES)
    names = ("version", "sender", "sid", "ls", "s", "k", "len")
    return {
        "protocolID": front[2],
        "code": front[3],
        "coordinator": front[6],
        **dict(zip(names, rest, strict=True)),
    }


@pytest.mark.rule("RNG-18")
def test_a_packet_has_the_papers_header() -> None:
    """protocolID, version, sender, mid (originator, local number), s, k, code, len, coordinator."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder = holder_of(room, s)
    who = site(room, holder)
    room.obey(f"service agreed\nsay {holder} one two")
    (said,) = room.of(Code.TOKEN_BC)
    assert fields_of(said.sealed) == {
        "protocolID": PROTOCOL,
        "version": who.state.ring.version.number,
        "sender": who.state.key,
        "sid": who.state.key,
        "ls": 2,
        "s": s + 1,
        "k": said.packet.header.k,
        "code": Code.TOKEN_BC,
        "len": len(said.sealed) - ENVELOPE_BYTES,
        "coordinator": site(room, ring_order(room)[0]).state.key,
    }
    assert 0 < said.packet.header.k <= s


@pytest.mark.rule("RNG-18")
def test_the_originator_of_what_is_sent_again_is_not_its_sender() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, last = holder_of(room, s), holder_of(room, s + 3)
    step(room, last, handed(room, first, turn(room, s + 1, "word", by=first)))
    asks = control(room, holder_of(room, s + 2), Code.TS_ALIVE_RQU, s=s)
    again = [p for _, p in packets_in(step(room, last, asks)) if code_of(p) is Code.RESEND_DATA]
    assert [(p.header.sender, p.header.origin) for p in again] == [
        (site(room, last).state.key, site(room, first).state.key)
    ]


@pytest.mark.rule("RNG-18")
def test_there_are_control_data_and_ring_packets() -> None:
    """A control packet is all header; every code on the wire is one of those."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    room.obey(f"service safe\nsay {holder_of(room, s)} word")
    room.loses = losing(Code.TOKEN_BC, by=holder_of(room, s))
    room.pass_ms(20)
    room.loses = None
    room.obey(f"advance 100ms\ncrash {ring_order(room)[1]}")
    room.obey("advance 3000ms")
    plain = {Code.FAST_ACK, Code.RESUME, Code.NEWTR_ACK, Code.TS_ALIVE_RQU, Code.TS_ALIVE_RSP}
    assert {sent.code for sent in room.sent} >= plain | {Code.TOKEN_BC, Code.NEWTR_BC}
    for sent in room.sent:
        octets = len(sent.sealed) - ENVELOPE_BYTES
        assert fields_of(sent.sealed)["len"] == octets
        assert (octets == HEADER_BYTES) == (sent.code in plain)
        assert fields_of(sent.sealed)["code"] == sent.code
        assert sent.code not in NEVER_SENT


def strange(room: Room) -> dict[str, bytes]:
    """Packets that match nothing, by the reason they are counted under."""
    header = header_of(room, "b")
    good = sealed(Code.TS_ALIVE_RQU, header)
    body = good[FRONT_BYTES:-SUM_BYTES]
    life = header.version.leader
    return {
        "short": good[:9],
        "corrupt": good[:-1] + bytes([good[-1] ^ 1]),
        "foreign": b"GET / HTTP/1.1" * 4,
        "protocol": seal(PROTOCOL + 1, Code.TS_ALIVE_RQU, GROUP, life, body),
        "group": seal(PROTOCOL, Code.TS_ALIVE_RQU, GROUP ^ 1 << 40, life, body),
        "kind": seal(PROTOCOL, 99, GROUP, life, body),
        "malformed": seal(PROTOCOL, Code.TS_ALIVE_RQU, GROUP, life, body[:20]),
        "length": seal(PROTOCOL, Code.TS_ALIVE_RQU, GROUP, life, body + b"more"),
        "version": sealed(
            Code.TOKEN_BC, header._replace(version=Version(0, 7)), TURN.pack(1, 0, 0)
        ),
    }


@pytest.mark.rule("RNG-18")
@pytest.mark.parametrize(
    "reason",
    "short corrupt foreign protocol group kind malformed length version".split(),
)
def test_a_packet_that_matches_nothing_is_counted_and_ignored(reason: str) -> None:
    room = quiet("a", "b", "c", "d")
    at_rest(room)
    before = dict(site(room, "a").counts), S(room, "a")
    effects = step(room, "a", handed(room, "b", strange(room)[reason]))
    if (
        reason == "protocol"
    ):  # A member of our group uses another protocol: it is informed, no more.
        (told,) = effects
        assert isinstance(told, Send) and [note_in(packet) is None for packet in told.packets] == [
            False
        ]
    else:
        assert effects == []
    counts = site(room, "a").counts
    assert counts.get(f"drop.{reason}", 0) == before[0].get(f"drop.{reason}", 0) + 1
    assert S(room, "a") == before[1]


@pytest.mark.rule("RNG-18")
def test_a_turn_of_a_member_whose_turn_it_is_not_leaves_no_trace() -> None:
    """It does not even count as an acknowledgment, and opens no gap."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    speaker, hearer = holder_of(room, s + 1), holder_of(room, s + 2)
    wrong = turn(room, s + 1, "x", by=speaker)
    assert step(room, hearer, handed(room, speaker, wrong)) == []
    assert site(room, hearer).receive.state.name == "NORMAL"


@pytest.mark.rule("RNG-18")
@pytest.mark.parametrize("code", sorted(NEVER_SENT))
def test_what_is_never_on_the_wire_is_no_packet(code: Code) -> None:
    """Internal events have codes too: a packet with one is counted and ignored."""
    room = quiet("a", "b", "c")
    at_rest(room)
    assert step(room, "a", handed(room, "b", sealed(code, header_of(room, "b")))) == []
    assert site(room, "a").counts["drop.kind"] == 1


# -- RNG-20 event order -------------------------------------------------------------------------


@pytest.mark.rule("RNG-20")
def test_a_timer_that_is_due_goes_before_a_packet() -> None:
    """A large packet must not make a holder late."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder, other = holder_of(room, s), holder_of(room, s + 1)
    late_us = room.now_us + 2_000_000
    ping = control(room, other, Code.TS_ALIVE_RQU)
    said = [code_of(p) for _, p in packets_in(site(room, holder).step(late_us, ping))]
    assert said == [Code.TOKEN_BC, Code.RESEND_DATA, Code.TS_ALIVE_RSP]


@pytest.mark.rule("RNG-20")
def test_internal_events_precede_the_next_packet() -> None:
    """The others wait for our turn: it is sent before any packet is processed."""
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    first, second, third = (holder_of(room, s + more) for more in range(3))
    step(room, second, Multicast([b"mine"], Service.AGREED))
    ping = sealed(Code.TS_ALIVE_RQU, header_of(room, third, s=s + 1))
    burst = handed(room, first, turn(room, s + 1, "one", by=first), ping)
    said = [code_of(p) for _, p in packets_in(step(room, second, burst))]
    assert said[0] is Code.TOKEN_BC
    assert said[-1] is Code.TS_ALIVE_RSP


@pytest.mark.rule("RNG-20")
def test_internal_events_precede_timers() -> None:
    """Suspicion, the end of normal operation and the invitation are one step."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    prior = holder_of(room, s + 2)
    who = site(room, prior)
    silence_holder(who)
    said = packets_in(step(room, prior, Expired(Timer.T_RT)))
    assert [(to, code_of(p)) for to, p in said] == [(EVERYONE, Code.REF_INV_BC)]
    assert (who.send.state.name, who.receive.state.name) == ("INIT", "INIT")
    assert who.coordinator.state.name == "W_RSP"


# -- RNG-21 five timers -------------------------------------------------------------------------

FIVE = ("T_SEND", "T_RT", "T_REFORM", "T_REF_RT", "T_TS")


@pytest.mark.rule("RNG-21")
def test_the_five_timers_are_there_by_name_and_can_be_set() -> None:
    assert tuple(timer.name for timer in Timer)[:5] == FIVE
    assert {f"{name.lower()}_us" for name in FIVE} <= parameters.DEFAULTS.keys()


def when_t_send() -> tuple[Room, str, Any]:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second = holder_of(room, s), holder_of(room, s + 1)
    return room, second, handed(room, first, turn(room, s + 1, by=first))


def when_t_rt() -> tuple[Room, str, Any]:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, third = holder_of(room, s), holder_of(room, s + 2)
    return room, third, handed(room, first, turn(room, s + 1, by=first))


def when_t_reform() -> tuple[Room, str, Any]:
    room = started("a", "b", "c")
    room.obey("make a")
    return room, "a", Join()


def when_t_ref_rt() -> tuple[Room, str, Any]:
    room = started("a", "b", "c")
    room.obey("join a")
    site_of = Member("b", Address("10.0.0.2", 7000), 1)
    invites = invitation(site_of, site(room, "a").state.version, 0, 1, Bits.STATE)
    return room, "a", handed(room, "b", invites)


def when_t_ts() -> tuple[Room, str, Any]:
    room = started("a", "b", "c")
    room.obey("join a")
    return room, "a", Expired(Timer.T_REFORM)


ARMED: dict[str, tuple[Callable[[], tuple[Room, str, Any]], int, int]] = {
    "T_SEND": (when_t_send, 2_000, 1_000_000),
    "T_RT": (when_t_rt, 20_000, 1_020_000),
    "T_REFORM": (when_t_reform, 100_000, 200_000),
    "T_REF_RT": (when_t_ref_rt, 200_000, 200_000),
    "T_TS": (when_t_ts, 30_000, 30_000),
}


@pytest.mark.rule("RNG-21")
@pytest.mark.parametrize("name", FIVE)
def test_each_timer_is_set_where_the_paper_sets_it(name: str) -> None:
    """By an idle holder, by those that expect a turn, that wait for an invitation, that wait
    for a ring, by a coordinator."""
    when, least_us, most_us = ARMED[name]
    room, who, event = when()
    armed = armed_in(step(room, who, event))
    assert least_us <= armed[Timer[name]] <= most_us
    rest = [timer.name for timer in armed if timer.name in FIVE and timer.name != name]
    assert rest == [], "only one of the five is on at any time"


@pytest.mark.rule("RNG-21")
@pytest.mark.parametrize("tries", [1, 2, 5])
def test_a_silent_holder_is_asked_c_times_before_it_is_suspected(tries: int) -> None:
    room = quiet("a", "b", "c", "d", tries=tries)
    s = at_rest(room)
    dead, prior = holder_of(room, s), holder_of(room, s + 3)
    room.obey(f"crash {dead}")
    room.until(lambda: room.of(Code.REF_INV_BC, by=prior), late_ms=2_000)
    asked = room.of(Code.TS_ALIVE_RQU, by=prior)
    assert len(asked) == tries
    assert asked[0].to == (room.actors[dead].address,)
    times = [sent.at_us for sent in asked] + [room.of(Code.REF_INV_BC, by=prior)[0].at_us]
    pauses = {after - before for before, after in pairwise(times)}
    assert pauses == {site(room, prior).parameters.t_rt_us}, "T_RT between them"


@pytest.mark.rule("RNG-21")
def test_a_holder_that_answers_is_not_suspected() -> None:
    room = quiet("a", "b", "c", "d", tries=2)
    s = at_rest(room)
    holder, other = holder_of(room, s), holder_of(room, s + 1)
    who = site(room, other)
    for _ in range(6):
        step(room, other, Expired(Timer.T_RT))
        assert who.receive.state.name == "NORMAL"
        step(room, other, control(room, holder, Code.TS_ALIVE_RSP))


@pytest.mark.rule("RNG-21")
def test_the_papers_values_are_a_preset_by_name() -> None:
    """RMP sets C = 2, T_SEND = 0.5 second and T_RT = 1 second."""
    paper = parameters.Parameters.of(parameters.PRESETS["paper"])
    assert (paper.tries, paper.t_send_us, paper.t_rt_us) == (2, 500_000, 1_000_000)
    room = together(*"abc", **{**parameters.PRESETS["paper"], "sites": 3})
    room.obey("service agreed\nsay a word")
    room.until(lambda: all(room.words(name) == ["word"] for name in "abc"), step_ms=10)
    room.obey("crash c")
    gather(room, "a", "b", late_ms=20_000)


def test_a_packet_of_theirs_can_be_opened_by_hand() -> None:
    room = quiet("a", "b", "c")
    room.pass_ms(1_500)
    for sent in room.sent:
        assert opened(sent.sealed) == sent.packet
        assert unseal(sent.sealed, PROTOCOL, GROUP).life == fields_of(sent.sealed)["coordinator"]


def test_a_suspended_member_reads_what_waits_before_it_gives_up() -> None:
    """Else one that got no processor for a while would leave the reformation that waits for it."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    me, holder = holder_of(room, s + 1), holder_of(room, s)
    who = site(room, me)
    late_us = room.now_us + 5_000_000
    who.step(late_us, handed(room, holder, turn(room, s + 1, by=holder)))
    assert not who.detection.tries, "the turn that was waited for has come"
    assert who.state.is_normal


def test_a_holder_that_answered_is_not_watched_once_its_turn_is_here() -> None:
    """Else its silence would count while others have the token."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    holder, me = holder_of(room, s), holder_of(room, s + 2)
    who, key = site(room, me), site(room, holder).state.key
    step(room, me, Expired(Timer.T_RT))
    step(room, me, control(room, holder, Code.TS_ALIVE_RSP))
    assert not who.detection.tries and who.detection.detector.is_watched(key)
    step(room, me, handed(room, holder, turn(room, s + 1, by=holder)))
    assert not who.detection.detector.is_watched(key)


def test_a_member_reads_what_has_arrived_before_it_invites() -> None:
    """However little its timer is late: it may not have run since the packet came."""
    room = quiet("a", "b", "c")
    me = holder_of(room, at_rest(room))
    who = site(room, me)
    for timer in WAITS:
        who.agenda.arm(timer, 1_000, [])
    who.agenda.arm(Timer.T_SEND, 1_000, [])
    who.agenda.tick(room.now_us + 2_000)
    assert who.agenda.overdue() == [Timer.T_SEND]
