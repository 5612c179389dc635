"""Ordering, repair and resilience [RMP-1 to RMP-7], at sites that exchange packets."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.rmp.theatre import Room, is_data_of, together
from unisono.model import Resilient, Service
from unisono.protocols.rmp.data_packets import BestEffort, Uniform
from unisono.protocols.rmp.packets import AckFields, PacketKind

# -- the token ------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-1")
def test_each_ack_continues_the_one_before_and_the_token_goes_round() -> None:
    room = together("b", "a", "c")
    for text in ("1", "2", "3", "4"):
        room.multicast("a", f"a{text}")
        room.multicast("c", f"c{text}")
        room.pass_ms(20)
    acks = room.acks()
    names = room.names()
    assert sum(len(ack.named) for ack in acks) >= 4
    for before, after in pairwise(acks):
        assert after.timestamp == before.ack().end + 1, "blocks take the timestamps that follow"
        assert after.site == before.next_site, "only the site with the token orders"
    around = "bac" * len(acks)
    assert "".join(names[ack.site] for ack in acks) in around
    assert len({tuple(room.payloads(name)) for name in "abc"}) == 1
    assert len(room.payloads("b")) == 8


@pytest.mark.rule("RMP-1")
def test_the_timestamps_follow_the_list_of_the_ack() -> None:
    room = together("b", "a", "c")
    room.rest_at("b")
    room.loses = lambda by, to, packet: to == "b" and isinstance(packet, AckFields)
    held = {name: room.site(name)._queue.held for name in "abc"}
    assert len(set(held.values())) == 1
    room.multicast("a", "first")
    room.until(lambda: room.payloads("c"))
    (ack,) = [ack for ack in room.acks() if ack.named]
    assert ack.timestamp == held["b"] + 1
    assert [(t, s) for t, s, _ in ack.ack().slots()] == [(ack.timestamp + 1, room.key("a"))]


def missing_data(room: Room) -> None:
    """c misses everything that b multicasts of its own, also when it is repeated."""
    key = room.key("b")
    room.loses = lambda by, to, packet: to == "c" and is_data_of(packet, key)


@pytest.mark.rule("RMP-2")
def test_a_site_with_an_empty_slot_does_not_accept_the_token() -> None:
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    missing_data(room)
    room.multicast("b", "lost at c")
    room.until(lambda: room.token_state("c") == "GETTING_PACKETS")
    room.pass_ms(300)
    assert room.token_state("c") == "GETTING_PACKETS"
    assert not [s for s in room.of(PacketKind.ACK, by="c") if s.packet.site == room.key("c")]
    room.loses = None
    room.until(lambda: room.payloads("c") == ["lost at c"])
    room.until(lambda: [a for a in room.acks() if a.site == room.key("c")])


@pytest.mark.rule("RMP-2")
def test_a_rotation_proves_that_all_hold_what_was_ordered_before() -> None:
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    missing_data(room)
    room.multicast("b", "lost at c", Resilient(Resilient.ALL))
    room.pass_ms(500)
    assert room.payloads("b") == ["lost at c"]
    assert not room.stable("b")
    room.loses = None
    room.until(lambda: room.stable("b"))


# -- the ordering queue ---------------------------------------------------------------------------


@pytest.mark.rule("RMP-3")
def test_an_empty_slot_is_requested_by_a_multicast_nack() -> None:
    room = together("b", "a", "c")
    room.rest_at("b")
    room.loses = lambda by, to, packet: to == "c" and is_data_of(packet, room.key("b"))
    room.multicast("b", "one")
    room.until(lambda: room.of(PacketKind.NACK))
    room.loses = None
    (nack,) = room.of(PacketKind.NACK)
    (ack,) = [ack for ack in room.acks() if ack.named]
    assert nack.by == "c" and not isinstance(nack.to, tuple), "all may answer"
    assert [(s, n) for s, n, _, _ in nack.packet.blocks] == [
        (s, n) for _, s, n in ack.ack().slots()
    ]
    room.until(lambda: room.payloads("c") == ["one"])


@pytest.mark.rule("RMP-3")
def test_any_site_that_has_it_may_answer() -> None:
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    room.loses = lambda by, to, packet: (by, to) == ("b", "c") and is_data_of(packet, room.key("b"))
    room.multicast("b", "one")
    room.until(lambda: room.payloads("c") == ["one"])
    assert [s for s in room.of(PacketKind.DATA, by="a") if s.packet.sender == room.key("b")]


@pytest.mark.rule("RMP-3")
def test_a_missing_ack_is_requested_too() -> None:
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    missed: list[int] = []

    def once(by: str, to: str, packet: object) -> bool:
        if to != "c" or not isinstance(packet, AckFields) or missed[1:]:
            return False
        if not missed:
            missed.append(packet.timestamp)
        if packet.timestamp != missed[0]:
            missed.append(packet.timestamp)
            return False
        return True

    room.loses = once
    room.multicast("a", "one")
    room.until(lambda: room.payloads("c") == ["one"])
    assert any(s.packet.acks for s in room.of(PacketKind.NACK, by="c"))


@pytest.mark.rule("RMP-4")
def test_a_quiet_token_moves_on_by_null_acks_after_a_time_out() -> None:
    room = together("b", "a", "c", idle_us=50_000)
    room.rest_at("b")
    room.forget()
    room.pass_ms(50 * 7)
    acks = room.acks()
    assert len(acks) >= 6
    assert not any(ack.named for ack in acks)
    assert {room.names()[ack.site] for ack in acks} == set("abc")
    names = room.names()
    made = [s for s in room.of(PacketKind.ACK) if names[s.packet.site] == s.by]
    first = {s.packet.timestamp: s.at_us for s in reversed(made)}
    times = [first[ack.timestamp] for ack in acks[1:]]
    assert all(b - a >= 50_000 for a, b in pairwise(times)), "it rests"


@pytest.mark.rule("RMP-5")
def test_figure_1_at_three_sites() -> None:
    """Timestamps are those of the figure, counted from where the token comes to B."""
    room = together("b", "a", "c", idle_us=60_000, pass_us=20_000)
    room.rest_at("c")
    names = room.names()
    # The token comes to B when both packets are there, so that one ACK names them.
    room.obey("delay c > b")
    room.until(lambda: room.token_state("c") == "PASSING_TOKEN")
    base = room.site("c")._queue.held
    room.forget()
    room.loses = lambda by, to, packet: (by, to) == ("b", "c") and is_data_of(packet, room.key("b"))
    room.multicast("a", "A,1")
    room.pass_ms(2)
    room.multicast("b", "B,1")
    room.obey("release")
    room.until(lambda: room.of(PacketKind.NACK, by="c"))
    room.loses = None
    room.until(lambda: room.token_state("c") == "TOKEN_SITE")
    room.multicast("a", "A,2")
    room.until(lambda: all(len(room.payloads(name)) == 3 for name in "abc"))
    imposed = []
    for ack in (ack for ack in room.acks() if ack.timestamp > base):
        at = ack.timestamp - base
        imposed.append((at, "ACK", names[ack.site], names[ack.next_site]))
        imposed += [(t - base, "Data", names[s], n) for t, s, n in ack.ack().slots()]
    first = {
        name: min(n for _, kind, who, n in imposed if kind == "Data" and who == name)
        for name in "ab"
    }
    read = [
        (t, kind, who, n - first[who] + 1 if kind == "Data" else n) for t, kind, who, n in imposed
    ]
    assert read[:6] == [
        (1, "ACK", "b", "a"),
        (2, "Data", "a", 1),
        (3, "Data", "b", 1),
        (4, "ACK", "a", "c"),
        (5, "ACK", "c", "b"),
        (6, "Data", "a", 2),
    ]
    for name in "abc":
        assert room.payloads(name) == ["A,1", "B,1", "A,2"]


# -- services -------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-6")
def test_each_level_is_delivered_as_early_as_it_promises() -> None:
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    room.loses = lambda by, to, packet: isinstance(packet, AckFields)
    levels = (Service.UNRELIABLE, Service.RELIABLE, Service.FIFO, Service.AGREED)
    for level in levels:
        room.multicast("a", level.name, level)
    room.pass_ms(20)
    assert set(room.payloads("c")) == {"UNRELIABLE", "RELIABLE", "FIFO"}, "no ACK has arrived"
    room.loses = None
    room.until(lambda: "AGREED" in room.payloads("c"))


@pytest.mark.rule("RMP-6")
def test_an_unreliable_message_is_sent_once() -> None:
    room = together("b", "a", "c")
    room.loses = lambda by, to, packet: to == "c" and isinstance(packet, BestEffort)
    room.multicast("a", "perhaps", Service.UNRELIABLE)
    room.pass_ms(500)
    assert room.payloads("b") == ["perhaps"]
    assert room.payloads("c") == []
    assert len(room.of(PacketKind.BEST_EFFORT)) == 1


@pytest.mark.rule("RMP-6")
def test_of_many_unreliable_messages_those_of_a_lost_packet_alone_are_missing() -> None:
    room = together("b", "a", "c")
    room.loses = lambda by, to, packet: to == "c" and isinstance(packet, Uniform) and packet.at == 1
    texts = [f"{number:04}" for number in range(1500)]
    room.multicast_all("a", texts, Service.UNRELIABLE)
    room.pass_ms(500)
    packets = room.of(PacketKind.UNIFORM)
    assert [sent.packet.at for sent in packets] == list(range(len(packets))), "each was sent once"
    times = packets[0].packet.times
    assert room.payloads("a") == room.payloads("b") == texts
    assert room.payloads("c") == texts[:times] + texts[2 * times :]
    assert [m.number for m in room.messages("c")][times] == 2 * times + 1


@pytest.mark.rule("RMP-6")
def test_source_order_waits_for_the_source_and_reliable_does_not() -> None:
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    lost: set[int] = set()

    def first_block(by: str, to: str, packet: object) -> bool:
        if to != "c" or not is_data_of(packet, room.key("a")):  # type: ignore[arg-type]
            return False
        lost.add(packet.number)  # type: ignore[attr-defined]
        return bool(packet.number == min(lost))  # type: ignore[attr-defined]

    room.loses = first_block
    room.multicast("a", "lost", Service.FIFO)
    room.pass_ms(1)
    room.multicast("a", "reliable", Service.RELIABLE)
    room.pass_ms(1)
    room.multicast("a", "fifo", Service.FIFO)
    room.pass_ms(20)
    assert room.payloads("c") == ["reliable"]
    room.loses = None
    room.until(lambda: len(room.payloads("c")) == 3)
    assert room.payloads("c") == ["reliable", "lost", "fifo"]


@pytest.mark.rule("RMP-6")
@pytest.mark.rule("RMP-7")
@pytest.mark.parametrize(
    ("k", "after"), [(2, 2), (Resilient.MAJORITY, 2), (3, 3), (Resilient.ALL, 3)]
)
def test_order_comes_first_and_resilience_with_the_passes_of_the_token(k: int, after: int) -> None:
    """b orders, a passes, c passes: as many sites hold it as have passed the token."""
    room = together("b", "a", "c", detect_us=2_000_000)
    room.rest_at("b")
    unheard = set("bac")
    room.loses = lambda by, to, packet: isinstance(packet, AckFields) and by in unheard
    room.multicast("b", "kept", Resilient(k))
    room.pass_ms(5)
    assert room.payloads("b") == ["kept"], "ordered by its own ACK"
    for count, passes in enumerate("bac", 1):
        unheard.discard(passes)
        room.pass_ms(250)  # The ACK is repeated.
        assert bool(room.stable("b")) == (count >= after)
    (effect,) = [e for e in room.effects["b"] if type(e).__name__ == "Stabilize"]
    assert len(effect.holders) >= after  # type: ignore[attr-defined]


@pytest.mark.rule("RMP-7")
def test_only_what_asked_for_it_is_reported_stable() -> None:
    room = together("b", "a", "c")
    room.multicast("a", "plain")
    room.multicast("a", "kept", Resilient(2))
    room.until(lambda: room.stable("a"))
    room.pass_ms(200)
    assert room.stable("a") == ["kept"]
