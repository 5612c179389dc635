"""What the paper asks of a replicated master [MTP 5.2], and what isolated and forgetful ones do."""

from __future__ import annotations

import pytest

from tests.mtp.harness import (
    GROUP,
    Room,
    core,
    delivered,
    forged,
    gather,
    handed,
    packets_in,
    seen,
    step,
)
from tests.mtp.harness import together as gathered
from unisono.core import Received
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.protocols.mtp.agreement import ACCEPTED, PENDING, REJECTED
from unisono.protocols.mtp.decision import machine_of, value_of
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import (
    PROTOCOL,
    Ack,
    Empty,
    Grant,
    PacketKind,
    Propose,
    ReplicaSeat,
    Stand,
    Support,
)
from unisono.wire import seal

GROUP_LAWS = "check prefix total_order agreement virtual_synchrony fifo"


def together(*names: str, **options: int) -> Room:
    """Three masters, the first of them coordinator, and those named."""
    return gathered(*names, **{"masters": 3, **options})


def deafen(room: Room, kind: str, source: str, *others: str) -> None:
    for other in others:
        room.obey(f"lose 9999 {source} > {other} {kind}")


# -- nothing is seen before a majority holds it --------------------------------------------------


@pytest.mark.rule("MTP-19")
def test_no_token_is_granted_before_most_replicas_know_of_it() -> None:
    room = together("a", "b", "c", "d")
    deafen(room, "propose", "a", "b", "c")
    room.obey("say d word\nadvance 100ms")
    assert len(core(room, "a").tokens.machine.holder) == 1, "decided"
    assert room.of(Grant) == [], "and not shown"
    assert {p.header.next for p in room.of(Empty, "a")} == {core(room, "d").ordering.known_next}
    said = room.obey("heal\nadvance 60ms")
    assert delivered(said) == {name: ["word"] for name in "abcd"}


@pytest.mark.rule("MTP-19")
def test_no_acceptance_is_seen_before_most_replicas_know_of_it() -> None:
    room = together("a", "b", "c", "d")
    room.obey("say d word\nadvance 4ms")
    deafen(room, "propose", "a", "b", "c")
    number = max(core(room, "a").tokens.machine.holder)
    said = room.obey("advance 100ms")
    assert core(room, "a").tokens.machine.status[number] is ACCEPTED, "decided"
    assert delivered(said) == {}, "not even the coordinator delivers it"
    told = [p.header for p in room.of(Empty, "a") if p.header.base > number]
    assert told
    assert {header.last[header.base - number - 1] for header in told} == {PENDING}
    assert delivered(room.obey("heal\nadvance 60ms")) == {name: ["word"] for name in "abcd"}


@pytest.mark.rule("MTP-19")
def test_what_only_the_dead_coordinator_had_is_rejected_by_the_next() -> None:
    room = together("a", "b", "c", "d")
    deafen(room, "data", "a", "b", "c")
    room.obey("say a lost\nadvance 30ms")
    number = core(room, "a").tokens.machine.next - 1
    assert core(room, "a").tokens.machine.status[number] is ACCEPTED
    for name in "bc":
        cohort = core(room, name).replicas
        assert number in core(room, name).ordering.accepted_in(cohort.owed_value()), "proposed"
        assert number not in core(room, name).ordering.accepted_in(cohort.value), "and not held"
    room.obey("crash a\nheal\nadvance 3000ms")
    said = room.obey("say d word\nadvance 300ms")
    assert delivered(said) == {name: ["word"] for name in "bcd"}, "what is gone is not waited for"
    room.obey(GROUP_LAWS)


@pytest.mark.rule("MTP-19")
def test_one_more_than_half_is_enough_and_one_alone_is_not() -> None:
    room = together("a", "b", "c", "d")
    assert delivered(room.obey("crash c\nsay d two\nadvance 30ms")) == {n: ["two"] for n in "abd"}
    assert delivered(room.obey("crash b\nsay d one\nadvance 30ms")) == {}


@pytest.mark.rule("MTP-19")
def test_a_cohort_answers_only_when_it_holds_the_data_that_is_accepted() -> None:
    """Else all that had it might be gone when the coordinator is."""
    room = together("a", "b", "c", "d", "e")
    for name in "bce":
        deafen(room, "data", "d", name)
        deafen(room, "data", "a", name)
    assert delivered(room.obey("say d word\nadvance 100ms")) == {}
    versions = {p.version for p in room.of(Ack, "b")}
    assert max(versions) < core(room, "a").replicas.version
    room.obey("heal")
    deafen(room, "data", "a", "c", "e")
    deafen(room, "data", "d", "c", "e")
    deafen(room, "data", "b", "c", "e")
    room.obey("advance 60ms")
    assert room.actors["a"].log[-1] == room.actors["b"].log[-1] == "d#1:1", "b is enough"
    said = room.obey("crash a\ncrash d\nheal\nadvance 2500ms")
    heard = delivered(said)
    assert (heard["c"], heard["e"]) == (["word"], ["word"]), "b has it for all"
    assert "broken" not in room.obey(GROUP_LAWS)


# -- taking over --------------------------------------------------------------------------------


@pytest.mark.rule("MTP-19")
def test_a_cohort_takes_over_rejects_what_is_pending_and_it_is_the_same_web() -> None:
    room = together("a", "b", "c", "d", "e")
    life = core(room, "a").codec.life
    for name in "abce":
        deafen(room, "data", "d", name)
    room.obey("say d one\nadvance 5ms\nsay d two three\nadvance 5ms")
    number = max(core(room, "a").tokens.machine.holder)
    said = room.obey("crash a\nheal")
    for name in "abce":
        deafen(room, f"data {number}", "d", name)
    said = room.obey("advance 2500ms")
    assert core(room, "b").replicas.leads
    assert core(room, "b").ordering.status(number) is REJECTED
    assert delivered(said) == {name: ["one", "two", "three"] for name in "bcde"}, "sent again"
    assert {core(room, name).codec.life for name in "bcde"} == {life}
    assert "stops" not in said
    assert seen(room, "d") == set("bcde")
    room.obey("join a")
    gather(room, *"abcde")
    assert room.obey("told a") == "a was told: the same web as before"
    assert "broken" not in room.obey(GROUP_LAWS)


@pytest.mark.rule("MTP-19")
def test_what_was_accepted_stays_accepted() -> None:
    """a has informed only one cohort and itself; the other stands first, and learns it."""
    room = together("a", "b", "c", "d", "e")
    deafen(room, "propose", "a", "b")
    deafen(room, "empty", "a", "d", "e", "b", "c")
    said = room.obey("say d kept\nadvance 8ms")
    assert delivered(said) == {"a": ["kept"]}, "committed by a and c"
    said = room.obey("crash a\nheal\nadvance 2500ms")
    assert core(room, "b").replicas.leads
    assert delivered(said) == {name: ["kept"] for name in "bcde"}


# -- replicas that are cut apart ----------------------------------------------------------------


@pytest.mark.rule("MTP-19")
def test_a_coordinator_that_is_cut_off_decides_nothing() -> None:
    room = together("a", "b", "c", "d", "e")
    said = room.obey("split a d | b c e\nsay d lonely\nsay e many\nadvance 3000ms")
    assert delivered(said) == {name: ["many"] for name in "bce"}
    said = room.obey("heal\nadvance 1500ms")
    assert not core(room, "a").replicas.leads
    assert delivered(said) == {}
    room.obey("join a d")
    gather(room, *"abcde")
    assert delivered(room.obey("say d back\nadvance 50ms")) == {n: ["back"] for n in "abcde"}
    assert "broken" not in room.obey(GROUP_LAWS)


@pytest.mark.rule("MTP-19")
def test_a_cohort_that_is_cut_off_cannot_take_over() -> None:
    room = together("a", "b", "c", "d", "e")
    said = room.obey("split a b d | c e\nadvance 3000ms\nsay d many\nadvance 30ms")
    assert room.of(Stand, "c"), "it tries"
    assert not core(room, "c").replicas.leads
    assert delivered(said) == {name: ["many"] for name in "abd"}


@pytest.mark.rule("MTP-19")
def test_an_old_coordinator_that_wakes_decides_nothing() -> None:
    room = together("a", "b", "c", "d", "e")
    room.obey("pause a\nsay d asleep\nadvance 2500ms\nsay e awake\nadvance 30ms")
    a = core(room, "a")
    assert a.replicas.leads, "it has not noticed"
    room.hush()
    room.obey("resume a\nadvance 1000ms")
    assert not a.replicas.leads
    assert room.of(Grant, "a") == []
    log = room.actors["a"].log
    assert log == room.actors["b"].log[: len(log)]
    assert room.actors["b"].log == ["d#1:1", "e#1:1"]
    assert "broken" not in room.obey(GROUP_LAWS)


@pytest.mark.rule("MTP-19")
def test_a_proposal_under_a_lower_ballot_is_refused() -> None:
    room = together("a", "b", "c", "d")
    c = core(room, "c")
    ballot, version = c.replicas.ballot, c.replicas.version
    step(room, "c", forged(room, "b", PacketKind.STAND, Stand(NO_HEADER, 2, ballot + 1)))
    value = value_of(core(room, "a").tokens.machine)
    late = forged(room, "a", PacketKind.PROPOSE, Propose(NO_HEADER, ballot, version + 1, value))
    ((_, answer),) = packets_in(step(room, "c", late))
    assert isinstance(answer, Ack)
    assert (answer.ballot, answer.version) == (ballot + 1, 0), "a no"
    assert c.replicas.version == version
    effects = step(room, "a", forged(room, "c", PacketKind.ACK, answer))
    assert not core(room, "a").replicas.leads, "and a knows that it leads no more"
    assert not [p for _, p in packets_in(effects) if isinstance(p, Grant)]


@pytest.mark.rule("MTP-19")
def test_the_newest_value_of_the_highest_ballot_is_adopted() -> None:
    room = together("a", "b", "c", "d")
    b = core(room, "b")
    mine = b.replicas.version
    b.replicas.stand([])
    newer = core(room, "a").tokens.machine
    newer.grant(77)
    support = Support(
        NO_HEADER,
        3,
        b.replicas.ballot,
        1,
        mine + 5,
        value_of(newer),
        core(room, "c").replicas._support().lives,
    )
    step(room, "b", forged(room, "c", PacketKind.SUPPORT, support))
    assert b.replicas.leads
    assert b.tokens.machine.next == newer.next
    assert machine_of(b.replicas.value, 8).status[newer.next - 1] is REJECTED, "and pending ends"
    assert b.replicas.version == mine + 6


# -- replicas that forget -----------------------------------------------------------------------


def restarted(room: Room, name: str = "c") -> None:
    """The replica comes back with nothing, and is not brought up to date."""
    others = " ".join(other for other in room.actors if other != name)
    room.obey(f"amnesia {name}\nsplit {name} | {others}\njoin {name}")


def from_a(room: Room, kind: PacketKind, packet: Propose | Stand) -> Received:
    return forged(room, "a" if kind is PacketKind.PROPOSE else "b", kind, packet)


@pytest.mark.rule("MTP-19")
def test_a_restarted_replica_has_no_vote_before_it_is_brought_up_to_date() -> None:
    room = together("a", "b", "c", "d")
    room.obey("say d word\nadvance 50ms")
    version = core(room, "a").replicas.version
    restarted(room)
    room.obey("advance 300ms")
    value = core(room, "a").replicas.value
    for kind, packet in (
        (PacketKind.PROPOSE, Propose(NO_HEADER, 1, version + 1, value)),
        (PacketKind.STAND, Stand(NO_HEADER, 2, 5)),
    ):
        assert packets_in(step(room, "c", from_a(room, kind, packet))) == []
    assert core(room, "c").replicas.accepted == 0
    said = room.obey("heal\nadvance 800ms")
    assert "c: CATCHING_UP > MEMBER" in said
    room.hush()
    heard = delivered(room.obey("crash b\nsay d told\nadvance 30ms"))
    assert heard == {name: ["told"] for name in "acd"}, "now its vote counts"


@pytest.mark.rule("MTP-19")
def test_a_delayed_proposal_does_not_count_for_a_replica_that_restarted() -> None:
    room = together("a", "b", "c", "d")
    room.obey("say d word\nadvance 50ms")
    old = room.sends(Propose, "a")[-2]
    assert isinstance(old.packet, Propose)
    restarted(room)
    room.obey("heal")
    deafen(room, "propose", "a", "c")
    room.obey("advance 300ms")
    c = core(room, "c").replicas
    assert c.seated
    assert not c.accepted, "it knows of the web, and was not given the value"
    assert c.version > old.packet.version
    effects = step(room, "c", handed(room, old))
    assert not [p for _, p in packets_in(effects) if isinstance(p, Ack)]
    assert not c.accepted
    stand = forged(room, "b", PacketKind.STAND, Stand(NO_HEADER, 2, 5))
    assert not [p for _, p in packets_in(step(room, "c", stand)) if isinstance(p, Support)]


@pytest.mark.rule("MTP-19")
def test_not_even_the_first_proposal_of_the_web_counts_when_it_is_late() -> None:
    """a and c had decided what b does not know. c forgot it, and an old packet must not make it
    think that the web has just begun: with its support b would decide once more."""
    room = Room()
    room.obey("start mtp a b c d e masters=3\njoin a b c\nadvance 1000ms")
    first = next(s for s in room.sends(Propose, "a"))
    assert isinstance(first.packet, Propose)
    assert first.packet.version == 1
    room.obey(
        "join d e\nadvance 1000ms\nsplit a c d e | b\nadvance 850ms\nsay d decided\nadvance 50ms"
    )
    room.obey("crash a\namnesia c\njoin c")
    room._step(room.actors["c"], handed(room, first))
    assert core(room, "c").replicas.accepted == 0
    room.obey("heal\nadvance 700ms")
    assert room.of(Stand, "b")
    assert room.of(Support) == []
    assert not core(room, "b").replicas.leads
    assert room.actors["d"].log == ["d#1:1"]
    assert room.actors["b"].log == []


@pytest.mark.rule("MTP-19")
def test_when_most_replicas_have_forgotten_the_web_ends_and_another_begins() -> None:
    room = together("a", "b", "c", "d")
    life = core(room, "d").codec.life
    said = room.obey("amnesia a\namnesia b\njoin a b\nadvance 8000ms")
    assert "c stops:" in said
    assert "d stops:" in said
    room.obey("join c d")
    for name in "cd":
        room.actors[name].views.clear()
    gather(room, *"abcd")
    assert core(room, "d").codec.life != life
    assert room.actors["d"].views[0].detail == "another web than before"
    assert "broken" not in room.obey(GROUP_LAWS)


@pytest.mark.rule("MTP-19")
def test_of_five_masters_two_may_die() -> None:
    room = together("a", "b", "c", "d", "e", "f", masters=5)
    said = room.obey("crash a\ncrash b\nadvance 3000ms\nsay f on\nadvance 40ms")
    assert delivered(said) == {name: ["on"] for name in "cdef"}
    assert delivered(room.obey("crash c\nadvance 3000ms\nsay f off\nadvance 40ms")) == {}


def test_a_seat_of_another_size_of_council_is_not_believed() -> None:
    room = together("a", "b", "c", "d")
    b = core(room, "b")
    before = dict(b.replicas.seats.by_rank)
    other = ReplicaSeat(3, 5, core(room, "d").me, 0, 0, 0, False, 7, 0)
    packet = seal(PROTOCOL, PacketKind.SEAT, GROUP, 0, encode(other))
    assert packets_in(step(room, "b", Received(room.actors["d"].address, [packet]))) == []
    assert b.replicas.seats.by_rank == before
    assert b.counts["drop.seat"] == 1


def test_a_namesake_elsewhere_does_not_end_a_member_of_the_council() -> None:
    """Its higher number is no later incarnation of the member, which is at another address."""
    room = together("a", "b", "c", "d")
    namesake = Member("b", Address("10.0.1.9", 7000), 9)
    seat = ReplicaSeat(2, 3, namesake, 0, 0, 0, False, 7, 0, 9 << 20)
    packet = seal(PROTOCOL, PacketKind.SEAT, GROUP, 0, encode(seat))
    step(room, "a", Received(namesake.address, [packet]))
    assert core(room, "a").replicas.seats.by_rank[2].member == namesake
    assert "stops" not in room.obey("advance 2000ms")


def test_replicas_hold_the_messages_of_others_until_all_have_them() -> None:
    room = together("a", "b", "c", "d", "e")
    deafen(room, "data", "d", "e")
    for name in "abc":
        deafen(room, "data", name, "e")
    room.obey("say d word\nadvance 400ms")
    assert all(core(room, name).outbound.held for name in "abc")
    assert delivered(room.obey("crash d\nheal\nadvance 400ms"))["e"] == ["word"]
    room.obey("advance 2500ms")
    assert not any(core(room, name).outbound.held for name in "abc")


@pytest.mark.rule("MTP-19")
def test_a_replica_that_is_still_catching_up_does_not_take_over() -> None:
    """It would know no member, and turn all of them away."""
    room = together("a", "b", "c", "d", "e")
    room.obey("crash a\nadvance 2500ms")
    deafen(room, "roster", "b", "a")
    deafen(room, "roster", "c", "a")
    assert "a is CATCHING_UP" in room.obey("join a\nadvance 600ms\nstate a")
    said = room.obey("crash b\nadvance 3000ms\nsay d on\nadvance 40ms")
    assert core(room, "c").replicas.leads
    assert delivered(said) == {name: ["on"] for name in "cde"}
    assert "stops" not in said


def test_a_coordinator_takes_one_token_for_its_messages() -> None:
    """It asks itself again while the council has not yet let it have the first."""
    room = together("a", "b", "c", "d")
    number = core(room, "a").tokens.machine.next
    assert delivered(room.obey("say a once\nadvance 40ms"))["d"] == ["once"]
    assert core(room, "a").tokens.machine.next == number + 1
