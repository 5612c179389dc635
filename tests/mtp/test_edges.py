"""Rare turns of events that once went wrong, each acted out."""

from __future__ import annotations

import pytest

from tests.mtp.harness import GROUP, Room, core, gather, handed, seen, together
from unisono.core import Effect, Received
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.protocols.mtp.decision import machine_of, value_of
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import (
    PROTOCOL,
    JoinRequest,
    PacketKind,
    Propose,
    ReplicaSeat,
    Stand,
    StateRequest,
    key_of,
)
from unisono.protocols.mtp.states import Timer
from unisono.wire import NO_LIFE, seal


@pytest.mark.rule("MTP-19")
def test_a_vote_does_not_outlive_its_voters_memory() -> None:
    """Of five masters, b supports e, forgets it, and then decides with a and c. A late vote of d
    must not make e the coordinator by the vote that b has forgotten."""
    room = together("a", "b", "c", "d", "e", "f", "g", masters=5)
    room.obey("say f first\nadvance 2000ms")
    room.obey("split e g | a c d f\nlose 9999 a > e propose")
    e = core(room, "e")
    e.replicas.heard_us = e.clock.listened_us - 5_000_000
    room.obey("advance 130ms")
    assert sorted(e.replicas._supports) == [2, 5]
    stand = room.sends(Stand, "e")[-1]
    room.obey("amnesia b\nsplit e | b\njoin b\nadvance 300ms")
    assert core(room, "b").replicas.ballot == 1, "b knows nothing of e's ballot"
    before = core(room, "c").replicas.version
    room.obey("split d | a b c f\nsay f decided")
    for _ in range(40):
        room.obey("advance 1ms")
        if core(room, "c").replicas.version == before + 2:
            break
    room.obey("split c | a b f\nadvance 40ms")
    assert room.actors["f"].log == ["f#1:1", "f#1:2"]
    for name in "eg":
        room._cut -= {("d", name), (name, "d")}
    room._step(room.actors["d"], handed(room, stand))
    room.obey("advance 30ms")
    assert not e.replicas.leads
    room.obey("say g other\nadvance 100ms\nheal\nadvance 3000ms")
    assert "broken" not in room.obey("check prefix total_order agreement")
    assert room.actors["g"].log[:2] == ["f#1:1", "f#1:2"]


@pytest.mark.rule("MTP-19")
def test_what_waited_under_one_ballot_is_not_held_under_another() -> None:
    room = together("a", "b", "c", "d", "e", "f", masters=5)
    replicas = core(room, "b").replicas
    replicas.accepted, replicas.value = 0, b""
    machine = machine_of(core(room, "a").replicas.value, 8)
    number = machine.next
    machine.grant(7)
    machine.seen(number)
    version, out = replicas.version + 1, list[Effect]()
    proposal = Propose(NO_HEADER, 1, version, value_of(machine))
    replicas._consider(proposal, room.actors["a"].address, out)
    assert replicas.waiting, "its data is not here"
    for rank, name in ((3, "c"), (4, "d"), (5, "e")):
        where = (rank, 5, core(room, name).me, replicas.web, 5, version, rank == 5)
        replicas.hear_seat(ReplicaSeat(*where, 0, replicas._nonce, 1 << 20), out)
    assert replicas.ballot == 5
    replicas._holds = lambda value: True
    replicas.settle(out)
    assert replicas.accepted == 0


@pytest.mark.rule("MTP-19")
def test_a_new_coordinator_asks_for_the_statuses_it_lacks() -> None:
    """It is more than the replicas's tail behind, and a rejected number breaks the chain of
    statuses that repaired messages carry."""
    room = together("a", "b", "c", "d", "e", masters=3, tokens=1)
    room.obey("\n".join(f"lose 9999 e > {name} data" for name in "abcd"))
    room.obey("split a b d e | c")
    for k in range(3):
        room.obey(f"say d p{k}\nadvance 8ms")
    room.obey("say e x\nadvance 10ms\ncrash e\nadvance 5ms")
    core(room, "a").admission.fail(key_of(core(room, "e").me))
    room.obey("advance 150ms")
    for k in range(50):
        room.obey(f"say d m{k}\nadvance 5ms")
    c = core(room, "c")
    assert core(room, "b").consumer.next_out - c.consumer.next_out > 32
    room.obey("crash a\nadvance 5ms\nheal")
    c.replicas.heard_us = c.replicas._stood_us = -9_000_000
    room.actors["c"].deadlines[Timer.BEAT] = room.now_us
    room.obey("advance 20000ms\nsay d after\nadvance 2000ms")
    assert room.actors["d"].log[-1] == room.actors["b"].log[-1] == "d#1:54"


@pytest.mark.rule("MTP-14")
def test_a_joiner_whose_confirm_was_lost_is_confirmed_by_the_next_master() -> None:
    room = Room()
    room.obey("start mtp a b c d e masters=3\njoin a b c d")
    gather(room, *"abcd")
    room.obey("lose 9999 a > e confirm\njoin e")
    for _ in range(400):
        room.obey("advance 1ms")
        if "e" in seen(room, "d"):
            break
    room.obey("crash a\nadvance 5000ms")
    assert core(room, "e").machine.state.name == "MEMBER"
    assert seen(room, "e") == {"b", "c", "d", "e"}


@pytest.mark.rule("MTP-20")
def test_joiners_of_one_burst_are_judged_together() -> None:
    room = together("a", "z", members_count_max=3)
    room.obey("advance 10ms")

    def asking(name: str, host: str, incarnation: int) -> bytes:
        member = Member(name, Address(host, 7000), incarnation)
        return seal(PROTOCOL, PacketKind.JOIN, GROUP, NO_LIFE, encode(JoinRequest(member, False)))

    burst = [
        asking("x", "10.9.9.1", 1),
        asking("x", "10.9.9.1", 2),
        asking("y", "10.9.9.2", 1),
        asking("y", "10.9.9.3", 1),
    ]
    room._step(room.actors["a"], Received(Address("10.9.9.9", 7000), burst))
    room.obey("advance 50ms")
    assert list(map(str, room.actors["a"].views[-1].members)) == ["a#1", "z#1", "x#2"]


@pytest.mark.rule("MTP-15")
def test_a_state_that_is_no_longer_requested_is_freed() -> None:
    """The packet by which a joiner reports that it has all may be lost."""
    room = Room()
    room.obey("start mtp a b c state=1\njoin a\nadvance 1000ms\nsay a hello\nadvance 50ms\njoin b")
    for _ in range(3000):
        room.obey("advance 1ms")
        if [packet for packet in room.of(StateRequest, "b") if packet.pieces == 0]:
            break
    room._queue.clear()
    room.obey("advance 2ms\nheal\nadvance 20000ms")
    assert core(room, "b").machine.state.name == "MEMBER"
    assert not len(core(room, "a").source._server)


@pytest.mark.rule("MTP-15")
def test_a_late_state_request_expels_no_member() -> None:
    """Packets overtake each other: the question may come after the word that all is here."""
    room = Room()
    room.obey("start mtp a b c state=1\njoin a\nadvance 1000ms\njoin b\nadvance 1000ms")
    asked = [s.sealed for s in room.sent if isinstance(s.packet, StateRequest) and s.by == "b"]
    room._step(room.actors["a"], Received(core(room, "b").me.address, asked[:1]))
    room.obey("advance 1000ms")
    assert core(room, "b").machine.state.name == "MEMBER"


@pytest.mark.rule("MTP-15")
def test_a_resumed_machine_continues_the_state_transfer() -> None:
    """Neither waited for the other: both were away."""
    room = Room()
    room.obey("start mtp a b state=1\njoin a\nadvance 1000ms\nsay a hello\nadvance 50ms\njoin b")
    while core(room, "b").machine.state.name != "CATCHING_UP":
        room.obey("advance 1ms")
    room.obey("split a | b\nadvance 5ms\npause a\npause b\nadvance 5000ms")
    room.obey("heal\nresume a\nresume b\nadvance 200ms")
    assert core(room, "b").machine.state.name == "MEMBER"
    assert core(room, "b").me.incarnation == 1


@pytest.mark.rule("MTP-19")
def test_the_last_of_several_masters_learns_that_the_others_have_left() -> None:
    room = together("a", "b", "c", "d", masters=3)
    room.obey("leave a\nadvance 3000ms\nleave b\nadvance 1000ms")
    said = room.obey("advance 3000ms")
    assert "too few of the web's masters are left" in said
