"""Sending: gathered while a token is awaited, cut into packets, bounded, sent again."""

from __future__ import annotations

import pytest

from tests.mtp.harness import Room, core, delivered, forged, packets_in, payloads_of, step, together
from unisono.core import Multicast
from unisono.model import Service
from unisono.parts.identity import key_of
from unisono.protocols.mtp.batch import BATCH_BYTES_MAX, Batch, MembershipChange, read_content
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import Data, Grant, PacketKind, TokenRequest, granted_to


def batches(room: Room, by: str) -> list[Batch]:
    """The messages of one packet each that a member sent, as batches."""
    found = [read_content([packet.piece]) for packet in room.of(Data, by)]
    return [content for content in found if not isinstance(content, MembershipChange)]


def test_a_lone_message_goes_at_once() -> None:
    room = together("a", "b", "c")
    heard = delivered(room.obey("say b alone\nadvance 4ms"))
    assert heard == {name: ["alone"] for name in "abc"}, "request, grant, data, acceptance"
    heard = delivered(room.obey("say a alone\nadvance 0ms"))
    assert heard == {"a": ["alone"]}, "the master has its token in the same step"
    assert delivered(room.obey("advance 1ms")) == {"b": ["alone"], "c": ["alone"]}


def test_messages_gathered_while_a_token_is_awaited_are_sent_as_one() -> None:
    room = together("a", "b", "c")
    number = core(room, "a").tokens.machine.next
    room.obey("say b one\nadvance 1ms\nsay b two three\nsay b four\nadvance 10ms")
    assert [payloads_of(batch) for batch in batches(room, "b")] == [
        [b"one", b"two", b"three", b"four"]
    ]
    assert len(room.of(TokenRequest)) == len(room.of(Grant)) == 1
    assert core(room, "a").tokens.machine.next == number + 1
    assert room.actors["c"].log == [f"b#1:{n}" for n in (1, 2, 3, 4)]


def test_messages_after_the_token_arrived_request_another() -> None:
    room = together("a", "b", "c")
    room.obey("say b one\nadvance 2ms\nsay b two\nadvance 10ms")
    assert [payloads_of(batch) for batch in batches(room, "b")] == [[b"one"], [b"two"]]
    assert [batch.first for batch in batches(room, "b")] == [1, 2]


def test_a_batch_has_its_bound_and_the_rest_goes_with_the_next() -> None:
    room = together("a", "b")
    payload = b"x" * 40_000
    step(room, "b", Multicast([payload] * 60))
    speech = core(room, "b").send_queue
    first, second = speech._gather(), speech._gather()
    assert (first.count, first.nbytes) == (26, 26 * 40_000)
    assert first.nbytes <= BATCH_BYTES_MAX < first.nbytes + 40_000
    assert (second.first, second.count) == (27, 26)
    assert speech._gather().count == 8
    assert speech._gather().count == 0


def test_a_message_larger_than_a_batch_is_sent_alone() -> None:
    room = together("a", "b", "c")
    room.obey(f"shout b {3 << 20}\nsay b after\nadvance 500ms")
    assert {actor.log[-1] for actor in room.actors.values()} == {"b#1:2"}
    data = room.of(Data, "b")
    assert max(packet.packet for packet in data) > 2_000
    assert len({packet.number for packet in data}) == 2


def test_the_byte_window_bounds_the_send_credit() -> None:
    room = together("a", "b")
    full = core(room, "b").send_credit()
    assert full == 4 << 20
    room.obey("cut a > b\nshout b 1000000\nshout b 1000000")
    assert full - core(room, "b").send_credit() == 2 * (1_000_000 + 32)
    step(room, "b", Multicast([b"x" * (3 << 20)]))
    assert core(room, "b").send_credit() == 0, "the application waits"
    room.obey("heal\nadvance 800ms")
    assert core(room, "b").send_credit() == full, "accepted: it counts no more"


def test_no_member_may_send_before_it_joined_or_while_it_leaves() -> None:
    room = together("a", "b")
    room.obey("start mtp c\nmake c")
    assert core(room, "c").send_credit() == 0
    room.obey("join c")
    assert core(room, "c").send_credit() == 0
    room.obey("advance 400ms")
    assert core(room, "c").send_credit() > 0
    room.obey("leave c")
    assert core(room, "c").send_credit() == 0


def test_a_congested_application_has_no_send_credit() -> None:
    room = together("a", "b")
    assert core(room, "b").send_credit() > 0
    room.obey("congest b on")
    assert core(room, "b").send_credit() == 0
    room.obey("congest b off")
    assert core(room, "b").send_credit() > 0


def test_a_token_that_is_not_needed_is_given_back() -> None:
    """An old grant comes once more: its number must not stay pending."""
    room = together("a", "b", "c")
    number = core(room, "b").ordering.known_next
    request = granted_to(key_of(core(room, "b").me), 0)
    grant = forged(room, "a", PacketKind.GRANT, Grant(NO_HEADER, request, number), base=number)
    sent = packets_in(step(room, "b", grant))
    ((_, packet),) = [(to, p) for to, p in sent if isinstance(p, Data)]
    assert isinstance(packet, Data)
    content = read_content([packet.piece])
    assert not isinstance(content, MembershipChange)
    assert content.count == 0
    assert core(room, "b").counts["token_returned"] == 1


@pytest.mark.parametrize("service", list(Service)[:5])
def test_a_message_keeps_the_service_it_asked_for(service: Service) -> None:
    room = together("a", "b")
    for effect in step(room, "a", Multicast([b"word"], service)):
        room._perform(room.actors["a"], effect)
    delivered_at_b: list[Service] = []
    perform = room._perform

    def note(actor: object, effect: object) -> None:
        for message in getattr(effect, "messages", ()):
            delivered_at_b.append(message.service)
        perform(actor, effect)  # type: ignore[arg-type]

    room._perform = note  # type: ignore[method-assign]
    room.obey("advance 30ms")
    assert set(delivered_at_b) == {service}


def test_messages_of_no_bytes_arrive() -> None:
    room = together("a", "b", "c")
    step(room, "b", Multicast([b"", b"x", b""]))
    room.obey("advance 60ms")
    room.obey("say b more\nadvance 60ms")
    assert room.actors["c"].log == [f"b#1:{n}" for n in (1, 2, 3, 4)]


def test_rejected_messages_are_sent_again_before_later_ones() -> None:
    """A cohort takes over twice; d's messages keep their order and are delivered once."""
    room = together("a", "b", "c", "d", "e", "f", masters=5)
    for name in "abcef":
        room.obey(f"lose 9999 d > {name} data")
    room.obey(
        "say d one\nadvance 6ms\nsay d two\nadvance 6ms\ncrash a\nadvance 1500ms\nsay d three"
    )
    said = room.obey("crash b\nadvance 1800ms\nheal\nadvance 1500ms")
    assert delivered(said) == {name: ["one", "two", "three"] for name in "cdef"}
    assert "broken" not in room.obey("check fifo no_duplication total_order")
    assert core(room, "d").send_credit() == core(room, "e").send_credit(), (
        "and nothing of the window is lost"
    )
