"""What the paper asks of rmcast, rule by rule. Each test fails without its rule."""

from __future__ import annotations

import pytest

from tests.rmcast.harness import beat, core, packets_in, step, together
from unisono.core import Cause, Deliver, Expired, Fail, Multicast, Received, Send
from unisono.model import Address, Member
from unisono.protocols.rmcast.packets import AckEntry, Beat, Data, Header, StreamStatus
from unisono.protocols.rmcast.roster import Roster
from unisono.protocols.rmcast.states import Timer


def delivered(text: str) -> dict[str, list[str]]:
    """Per member, what it delivered, in order."""
    heard: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "delivers":
            heard.setdefault(words[0], []).append(words[3])
    return heard


# -- RMC-1 send ---------------------------------------------------------------------------------


@pytest.mark.rule("RMC-1")
def test_sending_raises_the_timestamp_delivers_to_oneself_and_unicasts_to_each_other() -> None:
    stage = together("a", "b", "c")
    a = core(stage, "a")
    before = a.roster.mine().delivered
    effects = step(stage, "a", Multicast([b"hello"]))
    assert isinstance(effects[0], Deliver)
    assert effects[0].messages[0].payload == b"hello"
    ((to, packet),) = packets_in(effects)
    assert set(to) == {stage.actors["b"].address, stage.actors["c"].address}
    assert isinstance(packet, Data)
    assert bytes(packet.chunks[0].payload) == b"hello"
    assert packet.header.entries[a.roster.key].delivered == before + 1
    assert set(packet.header.entries) == set(a.roster.peers), "the ack list names everyone"


@pytest.mark.rule("RMC-1")
def test_a_burst_of_messages_shares_packets() -> None:
    stage = together("a", "b")
    sent = packets_in(step(stage, "a", Multicast([b"x" * 10] * 50)))
    assert len(sent) == 1
    assert [c.message for c in sent[0][1].chunks] == list(range(1, 51))  # type: ignore[union-attr]


# -- RMC-2 causal order -------------------------------------------------------------------------


@pytest.mark.rule("RMC-2")
def test_an_answer_waits_for_what_it_answers() -> None:
    stage = together("a", "b", "c")
    stage.obey("lose 1 a > c\nsay a question\nadvance 2ms")
    early = delivered(stage.obey("say b answer\nadvance 1ms"))
    assert "c" not in early, "the answer is here, the question is not"
    late = delivered(stage.obey("advance 400ms"))
    assert late["c"] == ["question", "answer"]


@pytest.mark.rule("RMC-2")
def test_concurrent_messages_may_be_delivered_in_different_orders() -> None:
    stage = together("a", "b")
    heard = delivered(stage.obey("say a ours\nsay b theirs\nadvance 5ms"))
    assert heard == {"a": ["ours", "theirs"], "b": ["theirs", "ours"]}


# -- RMC-3 integrity ----------------------------------------------------------------------------


@pytest.mark.rule("RMC-3")
def test_a_message_is_delivered_at_most_once() -> None:
    stage = together("a", "b")
    effects = step(stage, "a", Multicast([b"once"]))
    packets = next(e.packets for e in effects if isinstance(e, Send))
    source = stage.actors["a"].address
    dropped = core(stage, "b").counts.get("drop.duplicate", 0)
    first = step(stage, "b", Received(source, packets))
    again = step(stage, "b", Received(source, packets))
    assert [type(e) for e in first].count(Deliver) == 1
    assert [type(e) for e in again].count(Deliver) == 0
    assert core(stage, "b").counts["drop.duplicate"] == dropped + 1


@pytest.mark.rule("RMC-3")
def test_only_members_are_listened_to() -> None:
    stage = together("a", "b")
    stranger = Roster(Member("x", Address("10.0.0.9", 7000), 1), 1400)
    stranger.add(stranger.me, 0, 0)
    effects = step(stage, "b", beat(stage, "a", "b", stranger.header()))
    assert not effects
    assert core(stage, "b").counts["drop.stranger"] == 1


@pytest.mark.rule("RMC-3")
def test_packets_in_our_name_are_dropped() -> None:
    stage = together("a", "b")
    effects = step(stage, "b", Multicast([b"mine"]))
    packets = next(e.packets for e in effects if isinstance(e, Send))
    assert not step(stage, "b", Received(stage.actors["a"].address, packets))
    assert core(stage, "b").counts["drop.own"] == 1


# -- RMC-4 agreement ----------------------------------------------------------------------------


@pytest.mark.rule("RMC-4")
def test_what_is_missing_is_asked_of_everyone_known_to_have_it() -> None:
    stage = together("a", "b", "c")
    stage.obey("lose 1 a > c\nsay a lost\nadvance 2ms")
    b = core(stage, "b")
    assert not packets_in(step(stage, "c", beat(stage, "b", "c", b.roster.header())))
    effects = step(stage, "a", Multicast([b"next"]))
    packets = next(e.packets for e in effects if isinstance(e, Send))
    sent = packets_in(step(stage, "c", Received(stage.actors["a"].address, packets)))
    asks = [(to, p) for to, p in sent if isinstance(p, Beat) and p.asks]
    (to, packet) = asks[0]
    assert set(to) == {stage.actors["a"].address, stage.actors["b"].address}
    assert packet.asks[0][0] == core(stage, "a").roster.key


@pytest.mark.rule("RMC-4")
def test_a_quiet_group_still_repairs() -> None:
    stage = together("a", "b", "c")
    stage.obey("lose 1 a > c\nsay a lost\nadvance 5ms")
    heard = delivered(stage.obey("advance 400ms"))
    assert heard == {"c": ["lost"]}, "nobody said anything more: the heartbeats did it"


@pytest.mark.rule("RMC-4")
def test_any_holder_answers_when_the_originator_cannot() -> None:
    stage = together("a", "b", "c")
    stage.obey("lose 1 a > c\nsay a lost\nadvance 2ms\ncut a > c\ncut c > a")
    heard = delivered(stage.obey("advance 500ms"))
    assert heard == {"c": ["lost"]}
    assert core(stage, "b").counts["repair"] >= 1


# -- RMC-5 heartbeat ----------------------------------------------------------------------------


@pytest.mark.rule("RMC-5")
def test_every_packet_of_a_member_carries_the_lists_and_resets_the_time_out() -> None:
    stage = together("a", "b", "c", state=1)
    b = core(stage, "b")
    a_key = core(stage, "a").roster.key
    stage.now_us += 50_000
    for effects in (
        step(stage, "a", Multicast([b"data"])),
        [e for e in core(stage, "a").step(stage.now_us, _tick()) if isinstance(e, Send)],
    ):
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.to, tuple):
                stage.now_us += 1_000
                before = b.roster.peers[a_key].heard_us
                step(stage, "b", Received(stage.actors["a"].address, effect.packets))
                assert b.roster.peers[a_key].heard_us > before
                assert set(b.roster.peers[a_key].row) == set(b.roster.peers)


def _tick() -> Expired:
    return Expired(Timer.BEAT)


@pytest.mark.rule("RMC-5")
def test_a_member_that_only_sends_data_is_not_suspected() -> None:
    stage = together("a", "b")
    for _ in range(30):
        said = stage.obey("say a busy\nadvance 100ms")
        assert "stops" not in said
        assert "view" not in said


# -- RMC-6 failure ------------------------------------------------------------------------------


@pytest.mark.rule("RMC-6")
def test_a_silent_member_is_removed_within_the_time_asked_for() -> None:
    stage = together("a", "b", "c", detect_us=400_000)
    stage.obey("crash c")
    assert "view" not in stage.obey("advance 300ms")
    said = stage.obey("advance 300ms")
    assert "a view" in said
    assert "b view" in said


@pytest.mark.rule("RMC-6")
def test_last_messages_that_one_survivor_delivered_reach_the_others() -> None:
    stage = together("a", "b", "c")
    stage.obey("cut c > a\nsay c farewell\nadvance 3ms\ncrash c")
    heard = delivered(stage.obey("advance 1500ms"))
    assert heard == {"a": ["farewell"]}


@pytest.mark.rule("RMC-6")
def test_last_messages_that_none_could_deliver_are_delivered_by_none() -> None:
    stage = together("a", "b", "c")
    stage.obey("lose 1 c > a\nlose 1 c > b\nsay c lost\nsay c beyond")
    stage.obey("cut a > c\ncut b > c\nadvance 3ms\ncrash c")
    said = stage.obey("advance 2000ms")
    assert delivered(said) == {}
    assert said.count("view") == 2, "and the survivors go on without it"


# -- RMC-7 suspicion ----------------------------------------------------------------------------


@pytest.mark.rule("RMC-7")
def test_a_member_held_for_failed_stops_with_a_reason() -> None:
    stage = together("a", "b", "c")
    a, c = core(stage, "a"), core(stage, "c")
    entries = dict(a.roster.header().entries)
    entries[c.roster.key] = entries[c.roster.key]._replace(status=StreamStatus.FAILED)
    effects = step(stage, "c", beat(stage, "a", "c", Header(a.roster.key, entries)))
    assert Fail("a#1 holds this member for failed", Cause.EXCLUDED) in effects


@pytest.mark.rule("RMC-7")
def test_a_member_that_delivered_more_of_the_failed_than_the_others_will_stops() -> None:
    stage = together("a", "b", "c")
    stage.obey("cut c > a\nsay c farewell\nadvance 3ms\ncrash c")
    a, b, c_key = core(stage, "a"), core(stage, "b"), core(stage, "c").roster.key
    assert b.roster.peers[c_key].delivered == 1
    entries = dict(a.roster.header().entries)
    entries[c_key] = AckEntry(0, 0, StreamStatus.CLOSED)
    effects = step(stage, "b", beat(stage, "a", "b", Header(a.roster.key, entries)))
    reasons = [e.reason for e in effects if isinstance(e, Fail)]
    assert reasons == ["delivered more from c#1 (1) than a#1 will (0)"]


@pytest.mark.rule("RMC-7")
def test_one_that_delivered_more_of_an_ended_stream_is_removed() -> None:
    stage = together("a", "b", "c")
    a, b = core(stage, "a"), core(stage, "b")
    a.roster.tombs[77] = 3
    entries = dict(b.roster.header().entries)
    entries[77] = AckEntry(4, 4, StreamStatus.FAILED)
    step(stage, "a", beat(stage, "b", "a", Header(b.roster.key, entries)))
    assert a.roster.peers[b.roster.key].status in (StreamStatus.FAILED, StreamStatus.CLOSED)


@pytest.mark.rule("RMC-7")
def test_a_removed_member_that_still_sends_is_informed() -> None:
    stage = together("a", "b", "c")
    said = stage.obey("cut a > b\ncut c > b\nadvance 1300ms\nheal\nadvance 1200ms")
    assert "b stops:" in said


# -- RMC-8 clean-up -----------------------------------------------------------------------------


@pytest.mark.rule("RMC-8")
def test_what_all_have_delivered_is_forgotten() -> None:
    stage = together("a", "b", "c")
    for _ in range(20):
        stage.obey("say a one two three\nsay b four\nadvance 5ms")
    said = stage.obey("advance 400ms\nheld a\nheld b\nheld c")
    assert said.splitlines()[-3:] == ["a holds 0", "b holds 0", "c holds 0"]


@pytest.mark.rule("RMC-8")
def test_what_one_lacks_is_kept_and_the_window_bounds_it() -> None:
    stage = together("a", "b", "c")
    a = core(stage, "a")
    stage.obey("cut a > c")
    full = a.send_credit()
    said = 0
    while a.send_credit() > 0 and said < 200:
        stage.obey("shout a 60000\nadvance 1ms")
        said += 1
    assert said <= full // 60_000 + 1, "at the bound the application waits"
    held = sum(len(p.window) for p in a.roster.peers.values())
    assert held > 0
    stage.obey("heal\nadvance 3000ms")
    assert a.send_credit() == full


@pytest.mark.rule("RMC-8")
def test_ended_streams_are_remembered_only_so_many() -> None:
    roster = Roster(Member("a", Address("10.0.0.1", 1), 1), 1400)
    for number in range(500):
        peer = roster.add(Member("b", Address("10.0.0.2", 1), number), 1, 0)
        roster.bury(peer)
    assert len(roster.tombs) <= 64


# -- RMC-9 additions ----------------------------------------------------------------------------


@pytest.mark.rule("RMC-9")
def test_a_member_is_added_at_a_definite_place() -> None:
    stage = together("a", "b")
    stage.obey("start rmcast c\nsay a one\nsay b two\nadvance 10ms")
    said = stage.obey("join c\nadvance 10ms\nsay b three\nadvance 10ms")
    assert "c view" in said
    assert "from a#1:1 b#1:1" in said
    assert delivered(said)["c"] == ["three"]


@pytest.mark.rule("RMC-9")
def test_messages_sent_during_its_join_reach_the_joiner() -> None:
    """The addition and b's message are concurrent: neither knew of the other."""
    stage = together("a", "b")
    stage.obey("start rmcast c\njoin c\nadvance 3ms")
    said = stage.obey("say b meanwhile\nadvance 400ms")
    heard = delivered(said)
    assert heard["a"] == heard["b"] == heard["c"] == ["meanwhile"]


@pytest.mark.rule("RMC-9")
def test_a_process_that_came_back_replaces_its_old_self_at_once() -> None:
    stage = together("a", "b", "c")
    stage.obey("crash c")
    said = stage.obey("join c\nadvance 300ms")
    views = [line for line in said.splitlines() if line.startswith("a view")]
    assert views[-1].endswith("a#1 b#1 c#2")


@pytest.mark.rule("RMC-9")
def test_a_full_group_refuses_with_a_reason() -> None:
    stage = together("a", "b", members_count_max=2)
    said = stage.obey("start rmcast c\njoin c\nadvance 20000ms")
    assert "c stops: the group is full (members_count_max=2)" in said


@pytest.mark.rule("RMC-9")
def test_every_view_names_the_members_that_joined_and_left() -> None:
    stage = together("a", "b", "c")
    stage.obey("crash c")
    stage.obey("advance 1500ms\njoin c\nadvance 300ms")
    gone, back = stage.actors["a"].views[-2:]
    assert ([str(m) for m in gone.left], list(gone.joined)) == (["c#1"], [])
    assert ([str(m) for m in back.joined], list(back.left)) == (["c#2"], [])


@pytest.mark.rule("RMC-9")
def test_a_request_that_waited_too_long_admits_no_ghost() -> None:
    """c asked and died while a slept; a wakes and finds the request."""
    stage = together("a", "b")
    stage.obey("start rmcast c\npause a\njoin c\nadvance 20ms\ncrash c\nadvance 200ms")
    said = stage.obey("resume a\nadvance 600ms")
    assert "c#1" not in said


@pytest.mark.rule("RMC-9")
def test_a_part_counts_only_those_it_received_from() -> None:
    """A member that admitted many and heard none of them does not stop a group that lives."""
    stage = together("a", "b", "c")
    a = core(stage, "a")
    for number in range(9):
        ghost = Member(f"ghost{number}", Address("10.0.1.1", number), 1)
        a.roster.add(ghost, 9, stage.now_us - 2_000_000)
    assert a.merging._size() == 3
