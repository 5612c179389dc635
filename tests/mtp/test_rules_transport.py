"""What the paper asks of the transport, rule by rule: addresses, packets, headers, window, NAKs."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mtp.harness import (
    EVERYONE,
    GROUP,
    Room,
    core,
    delivered,
    forged,
    handed,
    packets_in,
    step,
    together,
)
from unisono.core import Deliver, Effect, Expired, Install, Multicast, Received, Send
from unisono.parts.admission import Terms
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.agreement import ACCEPTED, PENDING
from unisono.protocols.mtp.message_sender import Held, MessageSender
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import (
    KINDS,
    PROTOCOL,
    Data,
    Deny,
    Empty,
    Grant,
    Header,
    JoinRequest,
    Nak,
    PacketKind,
    Refuse,
    ReplicaSeat,
    TokenRequest,
    write_header,
)
from unisono.protocols.mtp.states import Timer
from unisono.wire import FRONT_BYTES, NO_LIFE, SUM_BYTES, seal

HEADLESS = (JoinRequest, Refuse, ReplicaSeat)


def at(room: Room, *names: str) -> tuple[object, ...]:
    return tuple(room.actors[name].address for name in names)


# -- MTP-2 addresses ----------------------------------------------------------------------------


@pytest.mark.rule("MTP-2")
def test_packets_of_another_life_of_the_web_are_ignored_and_counted() -> None:
    room = together("a", "b", "c")
    room.obey("lose 1 b > c data\nsay b word\nadvance 100ms")
    theirs = [s for s in room.sent if not isinstance(s.packet, HEADLESS)]
    assert len({type(s.packet) for s in theirs}) >= 5
    fresh = together("a", "b", "c")
    c = core(fresh, "c")
    before = c.consumer.next_out, c.ordering.known_next, dict(c.consumer.status)
    dropped = c.counts.get("drop.life", 0)
    for sent in theirs:
        other = seal(
            PROTOCOL, sent.sealed[4], GROUP, sent.life ^ 4, sent.sealed[FRONT_BYTES:-SUM_BYTES]
        )
        effects = step(fresh, "c", Received(fresh.actors["b"].address, [other]))
        assert not [e for e in effects if isinstance(e, Deliver | Install | Send)]
    assert c.counts["drop.life"] - dropped == len([s for s in theirs if s.by != "c"])
    assert (c.consumer.next_out, c.ordering.known_next, dict(c.consumer.status)) == before


@pytest.mark.rule("MTP-2")
def test_there_are_four_kinds_of_address_and_each_names_this_life() -> None:
    room = together("a", "b", "c")
    room.obey("lose 2 b > c data\nsay b word\nadvance 60ms\nstart mtp d\njoin d\nadvance 5ms")
    life = core(room, "a").codec.life
    assert life != NO_LIFE
    places = {type(s.packet): s for s in room.sent}
    assert places[Data].to in (EVERYONE, at(room, "c")), "the web's, or those that need it"
    assert room.sends(Data, "b")[0].to == EVERYONE
    assert places[TokenRequest].to == at(room, "a"), "the master's"
    assert places[Grant].to == at(room, "b"), "a member's"
    assert (places[JoinRequest].to, places[JoinRequest].life) == (EVERYONE, NO_LIFE), "for joining"
    assert {s.life for s in room.sent if not isinstance(s.packet, HEADLESS)} == {life}


# -- MTP-8 packets ------------------------------------------------------------------------------


@pytest.mark.rule("MTP-8")
def test_a_message_is_cut_into_numbered_packets_and_only_the_last_is_not_full() -> None:
    room = together("a", "b", "c", packet=600)
    number = core(room, "a").tokens.machine.next
    room.obey("shout b 2000\nadvance 30ms\nsay b next\nadvance 30ms")
    sent = room.sends(Data, "b")
    packets = [s.packet for s in sent if isinstance(s.packet, Data)]
    count = len(packets) - 1
    assert count == 4
    assert [(p.number, p.packet) for p in packets] == [
        *((number, p) for p in range(count)),
        (number + 1, 0),
    ]
    assert [p.end for p in packets] == [False] * (count - 1) + [True, True]
    assert [len(s.sealed) for s in sent[: count - 1]] == [600] * (count - 1), "full"
    assert len(sent[count - 1].sealed) < 600, "the last of its message"


@pytest.mark.rule("MTP-8")
def test_many_small_messages_fill_packets() -> None:
    room = together("a", "b")
    words = " ".join(["word"] * 800)
    room.obey(f"say b {words}\nadvance 30ms")
    sizes = [len(s.sealed) for s in room.sends(Data, "b")]
    assert len(sizes) == 3
    assert sizes[:-1] == [1400, 1400]
    assert len(room.actors["a"].log) == 800


# -- MTP-9 header -------------------------------------------------------------------------------


@pytest.mark.rule("MTP-9")
def test_every_packet_has_the_pace_the_last_statuses_and_the_next_number() -> None:
    room = together("a", "b", "c", tokens=3, state=1)
    room.obey("say b one\nadvance 20ms\nlose 1 a > c data\nsay a two\nadvance 40ms")
    room.obey(
        "start mtp d\njoin d\nadvance 400ms\nsay d three\nadvance 40ms\nleave d\nadvance 80ms"
    )
    kinds = set()
    for sent in room.sent:
        if isinstance(sent.packet, HEADLESS):
            continue
        header = sent.packet.header
        pace = core(room, sent.by).pace
        assert header.heartbeat_us == pace.heartbeat_us == 10_000
        assert 256 < header.window <= 512
        assert 3 <= header.retention <= 5
        assert len(header.last) == header.t == 3
        assert header.next >= header.base > 0
        kinds.add(type(sent.packet).__name__)
    assert kinds >= {"Data", "Empty", "TokenRequest", "Grant", "Nak", "Report", "Confirm"}
    assert kinds >= {"StateRequest", "StatePiece", "LeaveRequest"}


@pytest.mark.rule("MTP-9")
def test_what_is_sent_again_has_its_old_data_and_number_and_a_header_of_now() -> None:
    room = together("a", "b", "c", "d", tokens=4)
    core(room, "a").tokens.machine.t_cur = 4
    room.obey("lose 99 d > a data\nsay d early\nadvance 4ms")
    room.obey("lose 9 b > c data\nsay b word\nadvance 5ms")
    first = room.of(Data, "b")[0]
    assert first.header.last[0] is PENDING, "d's message is not settled"
    assert first.header.window == 512
    room.obey("heal")
    room._step(room.actors["a"], handed(room, room.sends(Data, "d")[0]))
    core(room, "a").pace.window, core(room, "a").pace.retention = 100, 5
    room.obey("say a more\nadvance 3ms")
    assert core(room, "b").pace.window == 100, "the master set another pace"
    number, packet = first.number, first.packet
    nak = forged(room, "c", PacketKind.NAK, Nak(NO_HEADER, ((number, packet, packet),)))
    ((to, again),) = packets_in(step(room, "b", nak))
    assert isinstance(again, Data)
    assert to == at(room, "c")
    assert (again.number, again.packet, again.end, again.origin) == (
        (first.number, first.packet, first.end, first.origin)
    )
    assert bytes(again.piece) == bytes(first.piece)
    assert (again.header.window, again.header.retention) == (100, 5)
    assert again.header.last[0] is ACCEPTED
    assert again.header.next > first.header.next


# -- MTP-10 window ------------------------------------------------------------------------------


@pytest.mark.rule("MTP-10")
def test_a_producer_sends_at_most_a_window_in_a_heartbeat() -> None:
    room = together("a", "b", "c", window=8, packet=600)
    room.obey("shout b 20000\nadvance 200ms")
    times = [s.at_us for s in room.sends(Data, "b")]
    assert len(times) == 40
    beats = Counter((time - times[0]) // 10_000 for time in times)
    assert set(beats.values()) == {8}
    assert max(sum(t <= u < t + 10_000 for u in times) for t in times) == 8
    assert {actor.log[-1] for actor in room.actors.values()} == {"b#1:1"}


@pytest.mark.rule("MTP-10")
@pytest.mark.parametrize(
    ("window", "tokens", "packets"),
    [(8, 1, 8), (8, 3, 24), (512, 2, 1_024), (512, 3, 1_536), (512, 8, 1_536), (4_000, 2, 4_000)],
)
def test_a_producer_has_a_window_for_each_of_its_tokens(
    window: int, tokens: int, packets: int
) -> None:
    header = write_header(Header(1, 1, 0, 1, 1, 10_000, window, 3, 8))
    codec, pace = PacketCodec(PROTOCOL, KINDS, Terms("g")), Pacing(10_000, window, 3)
    outlet = MessageSender(codec, pace, 0)
    for number in range(tokens):
        outlet.send(Held(1, 1 + number, [b"x"] * 5_000))
    out: list[Effect] = []
    for now_us in (10_000, 15_000):
        outlet.pump(now_us, lambda number: header, out)
    assert outlet.sent_count == packets, "and no more before the next heartbeat"


@pytest.mark.rule("MTP-10")
def test_repairs_go_before_new_data_and_count_in_the_window() -> None:
    room = together("a", "b", "c", window=8, packet=600)
    number = core(room, "a").tokens.machine.next
    room.obey("shout b 20000\nadvance 2ms")  # The token is here, and the first window has left.
    b = core(room, "b")
    assert [p.packet for p in room.of(Data, "b")] == list(range(8))
    nak = forged(room, "c", PacketKind.NAK, Nak(NO_HEADER, ((number, 2, 4),)))
    assert packets_in(step(room, "b", nak)) == [], "the window is used up"
    room.now_us += 10_000
    sent = packets_in(b.step(room.now_us, Expired(Timer.HEARTBEAT)))
    data = [(to, p.packet) for to, p in sent if isinstance(p, Data)]
    assert [p for _, p in data] == [2, 3, 4, 8, 9, 10, 11, 12]
    assert [to for to, _ in data] == [at(room, "c")] * 3 + [EVERYONE] * 5


# -- MTP-11 empty packets -----------------------------------------------------------------------


@pytest.mark.rule("MTP-11")
def test_a_holder_whose_message_is_not_settled_reports_how_much_it_sent() -> None:
    """All of b's packets are lost. None could know, but for its empty packet."""
    room = together("a", "b", "c", packet=600)
    number = core(room, "a").tokens.machine.next
    room.obey("lose 3 b > a data\nlose 3 b > c data\nshout b 1200\nadvance 4ms")
    heard = delivered(room.obey("advance 100ms"))
    empties = [e for e in room.of(Empty, "b") if e.number == number]
    assert (empties[0].packets, empties[0].ended) == (3, True)
    assert room.sends(Empty, "b")[0].to == EVERYONE
    assert heard == {name: ["1200"] for name in "abc"}


@pytest.mark.rule("MTP-11")
def test_an_idle_master_advertises_the_statuses_so_that_nothing_waits() -> None:
    room = together("a", "b", "c")
    said = room.obey("lose 1 a > c empty\nsay b word\nadvance 4ms")
    assert delivered(said) == {"a": ["word"], "b": ["word"]}, "c has the data, and waits"
    said = room.obey("advance 25ms")
    assert delivered(said) == {"c": ["word"]}, "nothing more was sent"
    tellers = [s for s in room.sends(Empty, "a") if s.to == EVERYONE]
    assert len(tellers) >= 2
    assert all(s.packet.header.next == core(room, "a").ordering.known_next for s in tellers[1:])  # type: ignore[union-attr]


@pytest.mark.rule("MTP-11")
def test_a_quiet_web_still_receives_from_its_master() -> None:
    room = together("a", "b", "c")
    room.obey("advance 2000ms")
    assert len(room.of(Empty, "a")) >= 15, "once a beat: an eighth of detect_us"


# -- MTP-12 NAK ---------------------------------------------------------------------------------


@pytest.mark.rule("MTP-12")
def test_missing_packets_are_requested_by_range_and_sent_to_the_requester() -> None:
    room = together("a", "b", "c", packet=600)
    number = core(room, "a").tokens.machine.next
    for packet in (2, 3, 4, 7):
        room.obey(f"lose 1 b > c data {number}.{packet}")
    heard = delivered(room.obey("shout b 5000\nadvance 60ms"))
    nak = room.sends(Nak, "c")[0]
    assert isinstance(nak.packet, Nak)
    assert nak.packet.ranges == ((number, 2, 4), (number, 7, 7))
    assert nak.to == at(room, "b"), "of the producer"
    again = [s for s in room.sends(Data, "b") if s.at_us > nak.at_us]
    assert [s.packet.packet for s in again] == [2, 3, 4, 7]  # type: ignore[union-attr]
    assert {s.to for s in again} == {at(room, "c")}
    assert heard == {name: ["5000"] for name in "abc"}


@pytest.mark.rule("MTP-12")
def test_a_repair_that_few_want_goes_to_them_and_one_that_many_want_to_the_web() -> None:
    room = together("a", "b", "c", "d", "e", "f", window=8, packet=600)
    number = core(room, "a").tokens.machine.next
    room.obey("shout b 20000\nadvance 2ms")  # The window is used up: NAKs gather.
    for name, first, last in (("c", 1, 2), ("d", 2, 2), ("c", 5, 5), ("e", 5, 5), ("f", 5, 5)):
        step(
            room, "b", forged(room, name, PacketKind.NAK, Nak(NO_HEADER, ((number, first, last),)))
        )
    room.now_us += 10_000
    sent = packets_in(core(room, "b").step(room.now_us, Expired(Timer.HEARTBEAT)))
    repairs = {p.packet: to for to, p in sent if isinstance(p, Data) and p.packet < 8}
    assert repairs == {1: at(room, "c"), 2: at(room, "c", "d"), 5: EVERYONE}


@pytest.mark.rule("MTP-12")
def test_a_repair_for_all_is_also_for_one_that_came_after_the_token() -> None:
    """With unicast a token names its destinations. A joiner that requests is not among them."""
    room = together("a", "b", "c", "d", unicast=1, dally=3)
    number = core(room, "a").tokens.machine.next
    room.obey("say a word\nadvance 1ms")
    held = core(room, "a").outbound.held[number]
    held.to = at(room, "a", "b", "c")  # type: ignore[assignment]
    nak = forged(room, "d", PacketKind.NAK, Nak(NO_HEADER, ((number, 0, 0),)))
    room.now_us += 40_000
    ((to, packet),) = [sent for sent in packets_in(step(room, "a", nak)) if sent[0] != EVERYONE]
    assert isinstance(packet, Data)
    assert to == at(room, "a", "b", "c", "d")


@pytest.mark.rule("MTP-12")
def test_a_producer_answers_for_as_long_as_it_retains() -> None:
    room = together("a", "b", "c", heartbeat_us=20_000)
    number = core(room, "a").tokens.machine.next
    room.obey("say b word\nadvance 59ms")  # 57 ms after it was sent, of three heartbeats.
    nak = Nak(NO_HEADER, ((number, 0, 0),))
    ((_, packet),) = packets_in(step(room, "b", forged(room, "c", PacketKind.NAK, nak)))
    assert isinstance(packet, Data), "all have it, and still it is kept"
    room.obey("advance 500ms")
    assert core(room, "b").outbound.held == {}, "and not for ever"


@pytest.mark.rule("MTP-12")
def test_the_master_answers_when_the_producer_is_gone() -> None:
    room = together("a", "b", "c", detect_us=400_000)
    room.obey("lose 1 b > c data\nsay b word\nadvance 4ms\ncrash b")
    assert delivered(room.obey("advance 500ms"))["c"] == ["word"]


# -- MTP-13 nak deny ----------------------------------------------------------------------------


@pytest.mark.rule("MTP-13")
def test_a_request_for_what_is_no_longer_held_is_denied() -> None:
    room = together("a", "b", "c")
    number = core(room, "a").tokens.machine.next
    room.obey("say b word\nadvance 600ms")
    nak = Nak(NO_HEADER, ((number, 0, 0),))
    ((to, packet),) = packets_in(step(room, "b", forged(room, "c", PacketKind.NAK, nak)))
    assert isinstance(packet, Deny)
    assert (to, packet.numbers) == (at(room, "c"), (number,))


def awaiting(room: Room) -> int:
    """c knows that a message was accepted, and has nothing of it."""
    number = core(room, "a").tokens.machine.next
    room.obey("lose 999 b > c data\nlose 999 a > c data\nsay b word\nadvance 60ms")
    assert core(room, "c").consumer.next_out == number
    assert core(room, "c").ordering.status(number) is ACCEPTED
    return number


@pytest.mark.rule("MTP-13", "MTP-6")
def test_a_member_that_needs_what_is_denied_rejoins() -> None:
    room = together("a", "b", "c")
    number = awaiting(room)
    room._step(room.actors["c"], forged(room, "b", PacketKind.DENY, Deny(NO_HEADER, (number,))))
    assert core(room, "c").fail_stop.reason is None, "the master may still have it"
    room._step(room.actors["c"], forged(room, "a", PacketKind.DENY, Deny(NO_HEADER, (number,))))
    assert room.lines[-1] == f"c stops: message {number} was accepted and cannot be had"
    said = room.obey("heal\njoin c\nadvance 400ms\nsay c back\nadvance 30ms")
    assert delivered(said) == {name: ["back"] for name in "abc"}


@pytest.mark.rule("MTP-13")
def test_a_denial_of_what_is_not_needed_changes_nothing() -> None:
    room = together("a", "b", "c")
    number = core(room, "a").tokens.machine.next
    room.obey("say b word\nadvance 30ms")
    room._step(
        room.actors["c"], forged(room, "a", PacketKind.DENY, Deny(NO_HEADER, (number, number + 5)))
    )
    assert room.obey("state c") == "c is MEMBER"


# -- Nothing is received twice -------------------------------------------------------------------


def test_a_duplicate_packet_is_taken_once() -> None:
    room = together("a", "b", "c")
    room.obey("lose 9 a > c empty\nsay b word\nadvance 4ms")
    data = room.sends(Data, "b")[0]
    step(room, "c", handed(room, data))
    assert core(room, "c").counts["drop.duplicate"] == 1, "before it is delivered"
    room.obey("heal\nadvance 30ms")
    step(room, "c", handed(room, data))
    assert core(room, "c").counts["drop.late"] == 1, "and after"
    assert room.actors["c"].log == ["b#1:1"]


def test_own_packets_that_loop_back_are_dropped() -> None:
    room = together("a", "b")
    sent = [e for e in step(room, "a", Multicast([b"x"])) if isinstance(e, Send)]
    effects = step(room, "a", Received(room.actors["a"].address, sent[0].packets))
    assert core(room, "a").counts["drop.own"] == 1
    assert not [e for e in effects if isinstance(e, Deliver)]
