"""What the paper asks of agreement and order, rule by rule: tokens, statuses, the consumer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mtp.harness import core, delivered, forged, handed, packets_in, step, together
from unisono.core import EVERYONE, Deliver, Fail, Multicast
from unisono.parts.identity import key_of
from unisono.protocols.mtp import ordering
from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Consumer,
    DataStatus,
    Master,
    MessageStatus,
    Next,
    Producer,
    SendToken,
)
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import (
    WHOLE,
    Empty,
    Grant,
    Nak,
    PacketKind,
    TokenRequest,
    granted_to,
)
from unisono.protocols.mtp.packets import Data as DataPacket

HERE = lambda number: DataStatus.HERE  # noqa: E731


# -- MTP-3 token --------------------------------------------------------------------------------


@pytest.mark.rule("MTP-3")
def test_a_sender_requests_a_token_and_is_granted_a_number() -> None:
    room = together("a", "b", "c")
    asked = packets_in(step(room, "b", Multicast([b"word"])))
    ((to, request),) = asked
    assert isinstance(request, TokenRequest), "nothing is sent before the token is here"
    assert to == (room.actors["a"].address,), "to the master alone"
    number = core(room, "a").tokens.machine.next
    ((to, grant),) = packets_in(step(room, "a", forged(room, "b", PacketKind.REQUEST, request)))
    assert isinstance(grant, Grant)
    assert (to, grant.number) == ((room.actors["b"].address,), number)
    assert grant.request == granted_to(key_of(core(room, "b").me), 1)
    ((to, data),) = packets_in(step(room, "b", forged(room, "a", PacketKind.GRANT, grant)))
    assert isinstance(data, DataPacket)
    assert (to, data.number) == (EVERYONE, number)


@pytest.mark.rule("MTP-3")
def test_a_grant_has_the_statuses_of_the_last_t_messages() -> None:
    room = together("a", "b", "c", "d", "e", tokens=3, detect_us=400_000)
    room.obey("say b fine\nadvance 30ms\nlose 99 c > a data\nsay c doomed\nadvance 2ms\ncrash c")
    room.obey("advance 1000ms")
    core(room, "a").tokens.machine.t_cur = 3
    room.hush()
    room.obey("lose 99 d > a data\nsay d waits\nadvance 5ms\nsay e last\nadvance 5ms")
    to_d, to_e = room.of(Grant, "a")
    assert to_e.number == to_d.number + 1 == to_e.header.base
    status = core(room, "a").tokens.machine.status
    assert to_e.header.last == (PENDING, *(status[to_d.number - k] for k in (1, 2)))
    assert REJECTED in status.values(), "c's message was rejected"
    assert [to_e.header.t, len(to_e.header.last)] == [3, 3]


@pytest.mark.rule("MTP-3")
def test_a_grant_names_the_addresses_to_send_to() -> None:
    room = together("a", "b", "c", "d", unicast=1)
    room.obey("say b word\nadvance 1ms\nadvance 10ms")
    (grant,) = room.of(Grant)
    assert set(grant.audience) == {actor.address for actor in room.actors.values()}
    (data,) = room.sends(DataPacket, "b")
    assert data.to == grant.audience, "the message goes to the token's addresses"
    assert {actor.log[-1] for actor in room.actors.values()} == {"b#1:1"}
    room = together("a", "b", "c")
    room.obey("say b word\nadvance 10ms")
    assert room.of(Grant)[0].audience == (), "else to the web's one address"
    assert room.sends(DataPacket, "b")[0].to == EVERYONE


@pytest.mark.rule("MTP-3")
def test_one_that_asks_twice_gets_the_same_token() -> None:
    room = together("a", "b", "c")
    room.obey("lose 2 a > b grant\nsay b word")
    said = room.obey("advance 300ms")
    assert len({grant.number for grant in room.of(Grant)}) == 1 < len(room.of(Grant))
    assert delivered(said) == {name: ["word"] for name in "abc"}


# -- MTP-4 grant rule ---------------------------------------------------------------------------


@pytest.mark.rule("MTP-4")
@given(st.integers(1, 8))
def test_no_token_is_granted_while_the_oldest_status_is_pending(t: int) -> None:
    master: Master[str] = Master(t)
    for _ in range(t):
        assert master.may_grant()
        master.grant("holder")
    assert not master.may_grant(), "t are out"
    for number in range(2, t + 1):
        master.seen(number)
        assert not master.may_grant(), "the oldest of the t is still pending"
    master.failed(1)
    assert master.may_grant(), "and rejected is as good as accepted"


@pytest.mark.rule("MTP-4")
def test_a_web_has_at_most_t_tokens_out() -> None:
    room = together("a", "b", "c", "d", "e", tokens=2)
    core(room, "a").tokens.machine.t_cur = 2
    for name in "bcde":
        room.obey(f"lose 999 {name} > a data")
    room.obey("say b one\nsay c two\nsay d three\nsay e four\nadvance 300ms")
    assert len(core(room, "a").tokens.machine.holder) == 2
    assert len({grant.number for grant in room.of(Grant)}) == 2
    said = room.obey("heal\nadvance 500ms")
    assert sorted(delivered(said)["e"]) == ["four", "one", "three", "two"], "and then the others"


# -- MTP-5 status rule --------------------------------------------------------------------------


@pytest.mark.rule("MTP-5")
@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from("gsf"), st.integers(1, 12))))
def test_a_settled_status_never_changes(t: int, script: list[tuple[str, int]]) -> None:
    master: Master[str] = Master(t)
    settled: dict[int, MessageStatus] = {}
    for what, number in script:
        if what == "g":
            if master.may_grant():
                master.grant("holder")
            continue
        changed = master.seen(number) if what == "s" else master.failed(number)
        if changed:
            assert number not in settled
            settled[number] = ACCEPTED if what == "s" else REJECTED
        for k, its in enumerate(master.last(), 1):
            if master.next - k >= 1:
                assert its is settled.get(master.next - k, PENDING)


@pytest.mark.rule("MTP-5")
def test_a_message_is_pending_until_the_master_has_seen_its_end() -> None:
    room = together("a", "b", "c", packet=600)
    number = core(room, "a").tokens.machine.next
    room.obey(f"lose 9 b > a data {number}.2\nshout b 1200\nadvance 12ms")
    master = core(room, "a").tokens.machine
    assert len(room.of(DataPacket, "b")) == 3
    assert [p.end for p in room.of(DataPacket, "b")] == [False, False, True]
    assert master.status[number] is PENDING, "the end is not here"
    assert delivered(room.obey("advance 1ms")) == {}, "and so none delivers"
    heard = delivered(room.obey("heal\nadvance 100ms"))
    assert master.status[number] is ACCEPTED
    assert heard == {name: ["1200"] for name in "abc"}


@pytest.mark.rule("MTP-5")
@pytest.mark.parametrize("end", ["crash c", "cut a c"])
def test_a_message_is_rejected_when_its_sender_is_held_for_failed(end: str) -> None:
    room = together("a", "b", "c", "d", detect_us=400_000)
    number = core(room, "a").tokens.machine.next
    room.obey("lose 99 c > a data\nsay c unheard\nadvance 5ms")
    late = room.sends(DataPacket, "c")[0]
    room.obey(end)
    machine = core(room, "a").tokens.machine
    assert machine.status[number] is PENDING
    heard = delivered(room.obey("advance 1000ms\nsay b after\nadvance 50ms"))
    assert machine.status[number] is REJECTED
    assert [heard[name] for name in "abd"] == [["after"]] * 3, "and all skip it"
    step(room, "a", handed(room, late))
    assert machine.status[number] is REJECTED, "its end comes too late"


# -- MTP-6 consumer -----------------------------------------------------------------------------


@pytest.mark.rule("MTP-6")
@given(
    st.integers(1, 4),
    st.lists(st.sampled_from((ACCEPTED, REJECTED)), max_size=24),
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 15)), max_size=40),
)
def test_accepted_messages_are_delivered_in_order_and_rejected_ones_skipped(
    t: int, decided: list[MessageStatus], heard: list[tuple[int, int]]
) -> None:
    """Tokens arrive late, twice, out of order and with some statuses still pending."""
    wanted = [number for number, its in enumerate(decided, 1) if its is ACCEPTED]
    consumer, got = Consumer(t), list[int]()
    for before, known in heard:
        number = min(before, len(decided)) + 1
        last = tuple(
            decided[number - k - 1] if number > k and known >> k - 1 & 1 else PENDING
            for k in range(1, t + 1)
        )
        consumer.learn(number, last)
        while (due := consumer.due(HERE)) in (Next.DELIVER, Next.SKIP):
            got += [consumer.next_out] * (due is Next.DELIVER)
            consumer.step_on()
        assert got == wanted[: len(got)], "never anything but a beginning of what was decided"
        settled = set(range(1, consumer.next_out))
        assert all(decided[n - 1] is REJECTED for n in settled - set(got))
        assert (due is Next.REJOIN) == (consumer.next_in - consumer.next_out > t)


@pytest.mark.rule("MTP-6")
def test_a_late_packet_never_undoes_a_status() -> None:
    consumer = Consumer(3)
    assert consumer.learn(3, (PENDING, ACCEPTED, REJECTED))
    assert not consumer.learn(3, (PENDING, PENDING, REJECTED))
    consumer.learn(4, (PENDING, PENDING, PENDING))
    assert consumer.due(HERE) is Next.DELIVER


@pytest.mark.rule("MTP-6")
def test_what_was_accepted_and_cannot_be_had_makes_the_member_join_again() -> None:
    consumer = Consumer(2)
    consumer.learn(2, (ACCEPTED, REJECTED))
    assert consumer.due(lambda number: DataStatus.COMING) is Next.WAIT
    assert consumer.due(lambda number: DataStatus.LOST) is Next.REJOIN


@pytest.mark.rule("MTP-6")
def test_a_status_that_stays_unknown_for_more_than_t_is_asked_for_and_then_given_up() -> None:
    room = together("a", "b", "c", tokens=2)
    number = core(room, "c").consumer.next_out
    room.obey("cut a c\ncut b c\nsay a one\nadvance 20ms\nsay a two\nadvance 20ms\nsay b three")
    room.obey("advance 20ms\nheal")
    room.hush()
    c = core(room, "c")
    last = (ACCEPTED, ACCEPTED)
    step(room, "c", forged(room, "b", PacketKind.EMPTY, Empty(NO_HEADER), last=last))
    assert c.consumer.due(HERE) is Next.REJOIN, "as Figure 3 has it"
    room.now_us += 40_000
    effects = step(room, "c", forged(room, "b", PacketKind.EMPTY, Empty(NO_HEADER), last=last))
    ((to, nak),) = packets_in(effects)
    assert isinstance(nak, Nak) and (number, WHOLE, WHOLE) in nak.ranges
    assert to == (room.actors["a"].address,)
    heard = delivered(room.obey("advance 200ms"))
    assert heard == {"c": ["one", "two", "three"]}, "the master still knew"


# -- MTP-7 t failures ---------------------------------------------------------------------------


def with_failures(t: int, failures: int) -> tuple[Next, int]:
    """What a consumer that knows all before finds, when so many holders in a row fail unheard; and
    how many statuses it has yet to learn."""
    master: Master[int] = Master(t)
    consumer = Consumer(t)
    master.seen(master.grant(0).number)
    consumer.learn(master.next, master.last())
    for holder in range(1, failures + 1):
        master.failed(master.grant(holder).number)
    token = master.grant(99)
    consumer.learn(token.number, token.last)
    while consumer.next_out < token.number:
        found = consumer.due(HERE)
        if found not in (Next.DELIVER, Next.SKIP):
            break
        consumer.step_on()
    return consumer.due(HERE), token.number - consumer.next_out


@pytest.mark.rule("MTP-7")
@pytest.mark.parametrize("t", range(1, 9))
def test_t_holders_in_a_row_may_fail_and_one_more_forces_a_rejoin(t: int) -> None:
    assert with_failures(t, t) == (Next.WAIT, 0), "for the next message: nothing is lost"
    assert with_failures(t, t + 1) == (Next.REJOIN, t + 1), "the first status is out of sight"


@pytest.mark.rule("MTP-7")
def test_a_row_of_t_holders_fails_and_the_others_lose_nothing() -> None:
    room = together("a", "b", "c", "d", "e", tokens=2, detect_us=400_000)
    for name in "cd":
        for other in "abe":
            room.obey(f"lose 999 {name} > {other} data\nlose 999 {name} > {other} empty")
    core(room, "a").tokens.machine.t_cur = 2
    room.obey("say b before\nadvance 20ms\nsay c never\nsay d neither\nadvance 10ms")
    assert len(core(room, "a").tokens.machine.holder) == 2
    said = room.obey("crash c\ncrash d\nsay b after\nadvance 1500ms")
    assert delivered(said) == {name: ["after"] for name in "abe"}
    assert "stops" not in said
    assert "broken" not in room.obey("check prefix agreement total_order virtual_synchrony")


@pytest.mark.rule("MTP-7")
def test_one_more_than_t_makes_a_member_join_again_and_never_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """e receives nothing while more than t messages are settled, and the master has forgotten."""
    monkeypatch.setattr(ordering, "HISTORY_MAX", 2)
    room = together("a", "b", "c", "d", "e", tokens=2)
    room.obey("cut a e\ncut b e\ncut c e\ncut d e\nsay b one\nadvance 20ms\nsay c two")
    room.obey("advance 20ms\nsay d three\nadvance 20ms\nsay b four\nadvance 400ms")
    said = room.obey("heal\nsay b five\nadvance 300ms")
    assert "e" not in delivered(said), "nothing is delivered out of order"
    assert "e stops: the status of message" in said
    said = room.obey("join e\nadvance 400ms\nsay e back\nadvance 50ms")
    assert delivered(said) == {name: ["back"] for name in "abcde"}
    assert "broken" not in room.obey("check prefix total_order fifo virtual_synchrony")


# -- Figure 2 -----------------------------------------------------------------------------------


@pytest.mark.rule("MTP-3", "MTP-5")
def test_a_producer_sends_rejected_messages_again_in_order() -> None:
    producer: Producer[str] = Producer()
    for number, batch in ((3, "one"), (5, "two"), (6, "three"), (9, "four")):
        assert producer.ask() > 0
        producer.granted(SendToken(number, ()), batch)
    assert not producer.asking
    status = {3: ACCEPTED, 5: REJECTED, 6: REJECTED, 9: PENDING}
    assert producer.settled(lambda n: status[n]) == (["one"], ["two", "three"])
    status[9] = REJECTED
    assert producer.settled(lambda n: status[n]) == ([], ["four"])
    assert producer.settled(lambda n: status[n]) == ([], [])


def test_what_is_delivered_counts_from_the_views_and_messages_before_it() -> None:
    room = together("a", "b")
    effects = step(room, "a", Multicast([b"one", b"two"]))
    (deliver,) = [e for e in effects if isinstance(e, Deliver)]
    places = [message.seq for message in deliver.messages]
    view = room.actors["a"].views[-1]
    assert view.seq is not None
    assert places == [view.seq + 1, view.seq + 2]
    assert not [e for e in effects if isinstance(e, Fail)]
