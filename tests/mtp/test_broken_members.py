"""A broken member has the group's key and says anything: who may not decide is not believed."""

from __future__ import annotations

import pytest

from tests.mtp.harness import GROUP, Room, core, forged, gather, header_of, step, together
from unisono.core import Fail, Received, Send
from unisono.protocols.mtp.agreement import PENDING, REJECTED
from unisono.protocols.mtp.ordering import GRANTS_MAX
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import (
    BALLOTS_AHEAD_MAX,
    NUMBER_MAX,
    PROTOCOL,
    Ack,
    Data,
    Empty,
    Expel,
    Grant,
    LeaveRequest,
    Nak,
    PacketKind,
    Stand,
    granted_to,
    key_of,
    write_header,
)
from unisono.wire import seal


def all_go_on(room: Room, *names: str) -> None:
    gather(room, *names)
    said = room.obey("\n".join(f"say {n} still{n}" for n in names) + "\nadvance 900ms")
    for word in (f"still{name}" for name in names):
        assert said.count(word) == len(names), said


def test_only_a_master_expels() -> None:
    room = together("a", "b", "c")
    key = key_of(core(room, "c").me)
    found = step(room, "c", forged(room, "b", PacketKind.EXPEL, Expel(NO_HEADER, key)))
    assert not any(isinstance(effect, Fail) for effect in found)
    assert core(room, "c").counts["drop.stranger"] == 1
    all_go_on(room, *"abc")
    found = step(room, "c", forged(room, "a", PacketKind.EXPEL, Expel(NO_HEADER, key)))
    assert any(isinstance(effect, Fail) for effect in found)


def test_only_the_master_grants_tokens() -> None:
    room = together("a", "b", "c")
    number = core(room, "c").consumer.next_out
    grant = Grant(NO_HEADER, 1, number)
    assert not step(room, "c", forged(room, "b", PacketKind.GRANT, grant, base=number))
    assert core(room, "c").counts["drop.stranger"] == 1
    all_go_on(room, *"abc")


def test_a_grant_for_another_is_none() -> None:
    """A sound packet of the master, copied to a second member: both would send one message."""
    room = together("a", "b", "c")
    number = core(room, "c").consumer.next_out
    grant = Grant(NO_HEADER, granted_to(key_of(core(room, "b").me), 1), number)
    assert not step(room, "c", forged(room, "a", PacketKind.GRANT, grant, base=number))
    assert core(room, "c").counts["drop.stranger"] == 1
    all_go_on(room, *"abc")


def test_numbers_that_no_master_granted_are_not_waited_for() -> None:
    """Each of them would be looked for in every step, and asked for."""
    room = together("a", "b", "c")
    first = core(room, "c").ordering.known_next
    step(room, "c", forged(room, "b", PacketKind.EMPTY, Empty(NO_HEADER), next=first + 50_000))
    header = write_header(header_of(room, "b"))
    body = Data.body(header, 7, first + 40_000, 0, True, b"x")
    life = core(room, "c").codec.life
    packet = seal(PROTOCOL, PacketKind.DATA, GROUP, life, body)
    step(room, "c", Received(room.actors["b"].address, [packet]))
    assert core(room, "c").counts["drop.window"] == 1
    assert core(room, "c").ordering.known_next <= first + GRANTS_MAX * core(room, "c").consumer.t
    all_go_on(room, *"abc")


def test_a_nak_of_any_length_is_answered_by_packets_that_fit() -> None:
    room = together("a", "b", "c")
    nak = Nak(NO_HEADER, ((1, 0, 0),) * 2000)
    effects = step(room, "a", forged(room, "b", PacketKind.NAK, nak))
    sent = [packet for effect in effects if isinstance(effect, Send) for packet in effect.packets]
    assert sent and max(map(len, sent)) <= 1400


def test_a_stranger_asks_for_nobodys_leave() -> None:
    room = together("a", "b", "c")
    step(room, "a", forged(room, "b", PacketKind.LEAVE, LeaveRequest(NO_HEADER), sender=77))
    assert core(room, "a").counts["drop.stranger"] == 1
    all_go_on(room, *"abc")


@pytest.mark.parametrize("ballot", [(1 << 31) - 1, BALLOTS_AHEAD_MAX + 9, NUMBER_MAX - 1])
@pytest.mark.parametrize("kind", ["empty", "ack", "stand"])
def test_a_ballot_that_nobody_can_have_reached_stops_no_master(kind: str, ballot: int) -> None:
    room = together("a", "b", "c", "d", masters=3)
    packet = {
        "empty": (PacketKind.EMPTY, Empty(NO_HEADER, ballot=ballot, master=core(room, "a").me)),
        "ack": (PacketKind.ACK, Ack(NO_HEADER, 2, ballot, 1)),
        "stand": (PacketKind.STAND, Stand(NO_HEADER, 2, ballot)),
    }[kind]
    for name in "acd":
        room._step(room.actors[name], forged(room, "b", *packet))
    if ballot > BALLOTS_AHEAD_MAX or kind == "empty":
        assert core(room, "a").counts["drop.ballot"] == 1
        assert core(room, "a").replicas.leads
    room.obey("advance 3000ms")
    all_go_on(room, *"abcd")
    room.obey("crash a\nadvance 4000ms")
    all_go_on(room, *"bcd")


def test_a_member_that_is_no_master_decides_nothing() -> None:
    """Its header says that what is under way is rejected."""
    room = together("a", "b", "c", "d")
    room.obey("lose 9 a > c\nsay d one\nadvance 2ms")
    number = core(room, "c").consumer.next_out
    last = (REJECTED,) * core(room, "c").consumer.t
    lies = forged(room, "b", PacketKind.EMPTY, Empty(NO_HEADER), last=last, base=number + 2)
    step(room, "c", lies)
    assert core(room, "c").ordering.status(number) is PENDING
    all_go_on(room, *"abcd")
