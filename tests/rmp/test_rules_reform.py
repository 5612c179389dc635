"""Reformation, its verdicts, ring identifiers and detection [RMP-11 to RMP-17]."""

from __future__ import annotations

import pytest

from tests.rmp.theatre import DETECT_US, Room, is_data_of, together
from unisono.core import Cause, Fail
from unisono.model import ChangeKind
from unisono.protocols.rmp.agreement import Attempt, NewList, ReformBallot, SyncPoint
from unisono.protocols.rmp.data_packets import Data
from unisono.protocols.rmp.packets import AckFields, PacketKind
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.reform_packets import Fault, Proposal, Sync
from unisono.protocols.rmp.state import Timer
from unisono.requests import LimitScope, VoteSize

REFORM = (PacketKind.FAULT, PacketKind.SYNC, PacketKind.NEW_LIST, PacketKind.ACCEPT)


def crash(room: Room, *names: str) -> None:
    room.obey("\n".join(f"crash {name}" for name in names))


def without(room: Room, left: str) -> None:
    """Until all that are left have reformed the ring."""
    room.until(lambda: all(room.views(n) and room.members(n) == left for n in left))


# -- two phases -----------------------------------------------------------------------------------


@pytest.mark.rule("RMP-11")
def test_a_reformation_has_two_phases_and_slaves_answer_the_reform_site() -> None:
    room = together("a", "b", "c", "d")
    crash(room, "d")
    without(room, "abc")
    committed = room.of(PacketKind.COMMIT)[0]
    reformer = committed.by
    kinds = [sent.kind for sent in room.sent if sent.kind in REFORM]
    assert list(dict.fromkeys(kinds)) == list(REFORM), "in this order"
    for kind, multicast in zip(REFORM, (True, False, True, False), strict=True):
        for sent in room.of(kind):
            if sent.at_us <= committed.at_us:
                assert isinstance(sent.to, tuple) is not multicast
    slaves = set("abc") - {reformer}
    final = room.of(PacketKind.NEW_LIST, by=reformer)[-1].packet.ballot
    for kind in (PacketKind.SYNC, PacketKind.ACCEPT):
        assert {s.by for s in room.of(kind) if s.packet.ballot == final} == slaves
    confirmed = max(s.at_us for s in room.of(PacketKind.ACCEPT) if s.packet.ballot == final)
    assert confirmed <= committed.at_us, "normal operation resumes when all have confirmed"
    room.multicast("a", "after")
    room.until(lambda: all(room.payloads(name) == ["after"] for name in "abc"))


@pytest.mark.rule("RMP-11")
def test_the_recovery_follows_all_that_a_survivor_has_ordered() -> None:
    """b's last ACK reaches a alone: a has delivered what it orders, so c and d do too."""
    room = together("b", "a", "c", "d")
    room.rest_at("b")
    room.loses = lambda by, to, packet: by == "b" and to != "a"
    room.multicast("b", "last")
    room.pass_ms(3)
    assert room.payloads("a") == ["last"]
    crash(room, "b")
    room.loses = lambda by, to, packet: isinstance(packet, (AckFields, Data))
    room.until(lambda: room.of(PacketKind.NEW_LIST))
    assert not room.payloads("c") and not room.payloads("d")
    room.loses = None
    without(room, "acd")
    for name in "acd":
        assert room.payloads(name) == ["last"]
        assert not room.found(name, Fail)
    order = {name: [type(e).__name__ for e in room.effects[name]] for name in "acd"}
    assert all(o.index("Deliver") < o.index("Install") for o in order.values())


@pytest.mark.rule("RMP-11")
def test_a_slave_confirms_only_when_it_holds_everything_up_to_the_point() -> None:
    room = together("b", "a", "c", "d")
    room.rest_at("b")
    key = room.key("b")
    room.loses = lambda by, to, packet: (
        (by == "b" and to != "a") or (by == "a" and to == "c" and is_data_of(packet, key))
    )
    room.multicast("b", "last")
    room.pass_ms(3)
    crash(room, "b")
    room.until(lambda: room.of(PacketKind.NEW_LIST))
    first = room.of(PacketKind.NEW_LIST)[0].packet
    accepted = [s for s in room.of(PacketKind.ACCEPT, by="c") if s.packet.ballot == first.ballot]
    held = room.site("c")._queue.held
    assert held >= first.new_list.sync or not accepted
    without(room, "acd")
    assert room.payloads("c") == ["last"]


# -- verdicts -------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-12")
def test_a_reformation_that_succeeds_is_a_view() -> None:
    room = together("a", "b", "c")
    crash(room, "c")
    without(room, "ab")
    assert ChangeKind.RECOVERED in {change.what for change in room.changes("a")}


@pytest.mark.rule("RMP-12")
def test_below_the_minimum_size_the_verdict_is_failure_and_the_site_is_idle() -> None:
    room = together("a", "b", "c")
    crash(room, "b", "c")
    room.until(lambda: room.found("a", Fail))
    (fail,) = room.found("a", Fail)
    assert fail.cause is Cause.TOO_FEW
    assert not room.views("a")
    room.forget()
    room.pass_ms(2_000)
    assert not room.sent and not room.effects.get("a")


@pytest.mark.rule("RMP-12")
def test_a_member_that_delivered_what_the_others_cannot_get_stops() -> None:
    """a delivers b's last message, is cut off, and the others go on without it."""
    room = together("b", "a", "c", "d", "e")
    room.rest_at("b")
    room.loses = lambda by, to, packet: by == "b" and to != "a"
    room.multicast("b", "last")
    room.pass_ms(3)
    assert room.payloads("a") == ["last"]
    room.obey("crash b\nsplit a | c d e")
    room.loses = None
    without(room, "cde")
    room.obey("heal")
    room.until(lambda: room.found("a", Fail))
    (fail,) = room.found("a", Fail)
    assert fail.cause in (Cause.EXCLUDED, Cause.ATOMICITY_VIOLATED)
    assert "last" not in room.payloads("c")


# -- abort ----------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-13")
def test_two_reform_sites_end_in_one_list() -> None:
    room = together("a", "b", "c", "d", "e")
    crash(room, "e")
    room.loses = lambda by, to, packet: isinstance(packet, Fault)
    room.until(lambda: len({sent.by for sent in room.of(PacketKind.FAULT)}) > 1)
    room.loses = None
    without(room, "abcd")
    assert len({view.id for name in "abcd" for view in room.views(name)}) == 1


@pytest.mark.rule("RMP-13")
@pytest.mark.parametrize("kind", [PacketKind.SYNC, PacketKind.ACCEPT])
def test_when_the_reform_site_dies_another_begins(kind: PacketKind) -> None:
    room = together("a", "b", "c", "d", "e")
    crash(room, "e")
    room.until(lambda: len({s.by for s in room.of(kind)}) > 1)
    reformer = room.names()[room.of(kind)[-1].packet.ballot.site]
    crash(room, reformer)
    left = "".join(name for name in "abcd" if name != reformer)
    without(room, left)
    assert len({room.views(name)[-1].id for name in left}) == 1


@pytest.mark.rule("RMP-13")
def test_sites_of_an_attempt_that_was_given_up_wait_for_different_times() -> None:
    room = together("a", "b", "c", "d", "e")
    crash(room, "e")
    room.until(lambda: len({s.by for s in room.of(PacketKind.SYNC)}) > 2)
    reformer = room.names()[room.of(PacketKind.SYNC)[-1].packet.ballot.site]
    room.loses = lambda by, to, packet: isinstance(packet, (Fault, Proposal, Sync))
    crash(room, reformer)
    left = [name for name in "abcd" if name != reformer]
    room.until(lambda: all(room.reform_state(name) == "ABORT_RECOVERY" for name in left))
    waits = {room.actors[name].deadlines[Timer.REFORM] for name in left}
    assert len(waits) == len(left)
    room.loses = None
    without(room, "".join(left))


# -- false alarm ----------------------------------------------------------------------------------


@pytest.mark.rule("RMP-14")
def test_when_all_sites_answer_the_ring_goes_on_as_it_was() -> None:
    room = together("a", "b", "c")
    trid = room.site("a")._state.trid
    room.loses = lambda by, to, packet: isinstance(packet, AckFields)
    room.until(lambda: room.of(PacketKind.FAULT))
    room.loses = None
    room.until(lambda: room.of(PacketKind.RESUME))
    room.pass_ms(50)
    assert not room.of(PacketKind.NEW_LIST)
    assert {room.site(name)._state.trid for name in "abc"} == {trid}
    room.multicast("a", "after")
    room.until(lambda: all(room.payloads(name) == ["after"] for name in "abc"))
    assert not any(room.views(name) for name in "abc")


# -- no admission ---------------------------------------------------------------------------------


@pytest.mark.rule("RMP-15")
def test_a_new_list_names_nobody_who_was_not_a_member() -> None:
    known = ViewQuorums.of(0, {1, 2, 3})
    answers = {site: SyncPoint(4, known) for site in (1, 2, 9)}
    found = Attempt(ReformBallot(1, 1), answers).propose(2, 2, (1, 2, 3, 9))
    assert isinstance(found, NewList)
    assert found.members == (1, 2)


@pytest.mark.rule("RMP-15")
def test_parts_that_both_go_on_do_not_merge() -> None:
    """A member of the lesser part stops; it may join the other."""
    room = together("a", "b", "c", "d")
    for name in "abcd":
        room.request(name, VoteSize(1))
    room.until(lambda: all(len(room.changes(name)) == 4 for name in "abcd"))
    room.obey("split a b | c d")
    without(room, "ab")
    without(room, "cd")
    views = {name: len(room.views(name)) for name in "abcd"}
    room.obey("heal")
    room.pass_ms(3_000)
    stopped = {name for name in "abcd" if room.found(name, Fail)}
    assert stopped in ({"a", "b"}, {"c", "d"})
    assert all(room.found(name, Fail)[0].cause is Cause.EXCLUDED for name in stopped)
    for name in set("abcd") - stopped:
        assert len(room.views(name)) == views[name], "nobody was admitted"


# -- ring identifiers -----------------------------------------------------------------------------


@pytest.mark.rule("RMP-16")
def test_each_reformation_renames_the_ring_and_packets_of_others_are_dropped() -> None:
    room = together("a", "b", "c", "d")
    before = room.site("a")._state.trid
    room.obey("pause d")
    without(room, "abc")
    trids = {room.site(name)._state.trid for name in "abc"}
    assert len(trids) == 1 and before not in trids
    room.forget()
    room.multicast("a", "new")
    room.until(lambda: room.payloads("b"))
    of_ring = [s for s in room.sent if s.kind in (PacketKind.DATA, PacketKind.ACK)]
    assert of_ring and {sent.trid for sent in of_ring} == trids
    room.obey("resume d")
    room.until(lambda: room.found("d", Fail))
    counts = room.site("d").counts
    assert counts.get("drop.ring", 0) or not room.payloads("d")
    assert room.payloads("d") == []


@pytest.mark.rule("RMP-16")
def test_packets_of_another_ring_are_counted_and_change_nothing() -> None:
    room = together("a", "b")
    before = room.site("a").counts.get("drop.ring", 0)
    ring = room.site("b")._state
    ring.enter(ring.trid ^ 2, ring.epoch, ring.group, ring.quorums)
    room.multicast("b", "from elsewhere")
    room.pass_ms(3)
    assert room.payloads("a") == []
    assert room.site("a").counts["drop.ring"] > before


# -- detection ------------------------------------------------------------------------------------


@pytest.mark.rule("RMP-17")
@pytest.mark.parametrize(("hops", "tries"), [(1, 4), (8, 12)])
def test_a_site_is_faulty_after_r_tries_by_the_scope(hops: int, tries: int) -> None:
    room = together("a", "b", "c", tries=4)
    if hops > 1:
        room.request("a", LimitScope(hops))
        room.until(lambda: all(room.changes(name) for name in "abc"))
    room.forget()
    crash(room, "c")
    without(room, "ab")
    final = room.of(PacketKind.NEW_LIST)[0]
    asked = room.of(PacketKind.FAULT, by=final.by)
    last = max(s.packet.round for s in asked)
    assert len([s for s in asked if s.packet.round == last]) == tries
    period_us = room.site("a")._parameters.period_within(hops)
    assert final.at_us - asked[0].at_us >= tries * period_us


@pytest.mark.rule("RMP-17")
def test_the_papers_numbers_are_the_defaults() -> None:
    chosen = Parameters.of({})
    assert chosen.tries_within(1) == 10
    assert chosen.tries_within(2) >= 30
    assert chosen.period_max_us == 2_000_000
    patient = Parameters.of({"detect_us": 10**9})
    assert patient.period_within(1) == 2_000_000 < patient.period_within(2)


@pytest.mark.rule("RMP-17")
def test_a_fault_is_suspected_after_the_token_stood_still() -> None:
    room = together("a", "b", "c")
    crashed_us = room.now_us
    crash(room, "c")
    room.until(lambda: room.of(PacketKind.FAULT))
    assert DETECT_US // 2 <= room.now_us - crashed_us <= 5 * DETECT_US, "by the usual gaps"
