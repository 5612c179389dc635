"""A broken member has the group's key and says anything: what cannot be true is not believed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rmp.stage import Stage
from tests.rmp.test_hostile import block, key, next_block, send
from unisono.config import Config
from unisono.core import Adopt, Fail, Stabilize
from unisono.errors import BadPacket
from unisono.layout import decode, encode
from unisono.model import Address, Member, Resilient, Service
from unisono.parts.identity import key_of
from unisono.parts.turn import MessageGroup, OriginRun, write_runs
from unisono.protocols.rmp.data_packets import (
    DATA,
    UNIFORM,
    BestEffort,
    BlockFront,
    UniformFront,
)
from unisono.protocols.rmp.group_state import AddMember, Entry, RenewTrid
from unisono.protocols.rmp.ordering import RANGES_MAX, OrderingQueue, TokenAck
from unisono.protocols.rmp.packets import (
    AckFields,
    Nack,
    PacketKind,
    RingAnnounce,
    StatePiece,
    TokenAccepted,
)
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.reform_packets import (
    BallotFields,
    Fault,
    NewListFields,
    Proposal,
    Resume,
    Sync,
)
from unisono.protocols.rmp.requests import write_request
from unisono.sealing.records import OVERHEAD_BYTES
from unisono.wire import ENVELOPE_BYTES

HUGE = 1 << 61
DETECT_US = 200_000


def trio(*more: str) -> Stage:
    return Stage("a", "b", "c", *more, detect_us=DETECT_US)


def together_still(stage: Stage, *names: str) -> None:
    """All are members, and what each says is delivered to all in one order."""
    for name in names:
        stage.multicast(name, name.encode())
    stage.run(20 * DETECT_US)
    assert [stage.only(name, Fail) for name in names] == [[]] * len(names)
    assert {tuple(stage.members(name)) for name in names} == {names}
    found = [tuple(stage.payloads(name))[-len(names) :] for name in names]
    assert len(set(found)) == 1 and sorted(found[0]) == [name.encode() for name in names]


def to_all(stage: Stage, kind: PacketKind, record: Any, names: str = "ac") -> None:
    for name in names:
        send(stage, name, kind, encode(record))


def lists(stage: Stage, *names: str, sync: int | None = None, trid: int = 7) -> NewListFields:
    held = stage.cores["a"]._queue.held if sync is None else sync
    epoch = stage.cores["a"]._state.epoch + 1
    return NewListFields(tuple(key(stage, n) for n in names), held, (), epoch, trid, True)


def holder(stage: Stage) -> str:
    """Whom the token was passed to."""
    found = stage.cores["a"]._token.holder()
    return next(name for name in stage.cores if key(stage, name) == found)


# -- order ----------------------------------------------------------------------------------------


def test_an_ack_of_a_site_without_the_token_is_none() -> None:
    stage = trio()
    liar = next(name for name in "abc" if name != holder(stage))
    sites = "".join(name for name in "abc" if name != liar)
    held, its = stage.cores["a"]._queue.held, key(stage, liar)
    to_all(stage, PacketKind.ACK, AckFields(its, its, held + 1, its, 0, ()), sites)
    assert all(not stage.cores[name]._queue.has_gap() for name in sites)
    together_still(stage, *"abc")


def test_of_two_acks_of_one_slot_that_of_the_token_site_counts() -> None:
    """The false one came first, when it was not known yet who has the token."""
    queue = OrderingQueue(Holding())
    assert queue.put(TokenAck(2, 3, 1))
    assert queue.put(TokenAck(1, 1, 2))
    assert [a for a in queue.filled() if isinstance(a, TokenAck)] == [TokenAck(1, 1, 2)]
    assert queue.latest == TokenAck(1, 1, 2) and not queue.has_gap()
    assert queue.put(TokenAck(2, 2, 3))
    assert [a for a in queue.filled() if isinstance(a, TokenAck)] == [TokenAck(2, 2, 3)]


class Holding:
    """Blocks, all of which are here."""

    def has(self, source: int, number: int) -> bool:
        return True


def test_a_token_that_is_passed_to_nobody_is_not_passed() -> None:
    stage = trio()
    its, sites = key(stage, holder(stage)), "".join(n for n in "abc" if n != holder(stage))
    held = stage.cores["a"]._queue.held
    to_all(stage, PacketKind.ACK, AckFields(its, its, held + 1, 99, 0, ()), sites)
    together_still(stage, *"abc")


@pytest.mark.parametrize("ahead", [2, 40_000])
def test_slots_that_nobody_made_are_given_up(ahead: int) -> None:
    """Nobody can fill them: all answer the reform site, and what they hold is what there is."""
    stage = trio()
    held, its = stage.cores["a"]._queue.held, key(stage, "b")
    to_all(stage, PacketKind.ACK, AckFields(its, its, held + ahead, its, 0, ()))
    together_still(stage, *"abc")


def test_blocks_that_nobody_sent_are_given_up() -> None:
    stage = trio()
    its, sites = key(stage, holder(stage)), "".join(n for n in "abc" if n != holder(stage))
    named = ((key(stage, "c"), next_block(stage, "a", "c"), next_block(stage, "a", "c") + 50),)
    held, next_site = stage.cores["a"]._queue.held, key(stage, sites[0])
    to_all(stage, PacketKind.ACK, AckFields(its, its, held + 1, next_site, 0, named), sites)
    together_still(stage, *"abc")


def test_only_the_next_site_confirms_and_only_what_it_was_passed() -> None:
    stage = Stage("a", "b", "c", detect_us=4_000_000)  # It shows the last ACK after a quarter.
    to_all(stage, PacketKind.CONFIRM, TokenAccepted(key(stage, "b"), HUGE))
    stage.is_lost = lambda by, to, what: by == "a" and what.startswith("ack")
    began_us = stage.now_us
    stage.multicast("a", b"x")
    stage.run(850_000)
    acks = stage.sent("a", "ack", began_us)
    assert acks.count(acks[-1]) > 1, "one that is lost is repeated"


def test_packets_that_contradict_cannot_wedge_a_block() -> None:
    stage = trio()
    number = next_block(stage, "a", "b")
    for of in (2, 900):
        send(stage, "a", PacketKind.DATA, DATA.pack(key(stage, "b"), number, of, 0, 0) + b"x")
    stage.multicast("b", bytes(4000))
    stage.run(5 * DETECT_US)
    assert stage.payloads("a") == stage.payloads("c") == [bytes(4000)]
    together_still(stage, *"abc")


def test_a_message_number_that_nobody_can_reach_is_malformed() -> None:
    stage = trio()
    run = OriginRun(key(stage, "b"), (1 << 64) - 1, (MessageGroup(1, 1, Service.AGREED),), (b"x",))
    content = write_runs([run])
    to_all(stage, PacketKind.BEST_EFFORT, BestEffort(key(stage, "b"), 0, content))
    for name in "ac":
        send(stage, name, PacketKind.DATA, block(stage, "b", next_block(stage, "a", "b"), content))
    assert stage.cores["a"].counts["drop.malformed"] == 2
    stage.start("d")
    stage.run(20 * DETECT_US)
    assert stage.only("b", Fail), "it does not know its own block, and holds up the token"
    assert sorted(stage.members("a")) == sorted(stage.members("d")) == ["a", "c", "d"]


def test_unreliable_messages_cannot_keep_others_out() -> None:
    stage = trio()
    to_all(stage, PacketKind.BEST_EFFORT, BestEffort(key(stage, "b"), HUGE, b""))
    assert stage.cores["a"].counts["drop.ahead"] == 1
    front = UniformFront(key(stage, "b"), 1, 1, 1, 0, HUGE)
    send(stage, "a", PacketKind.UNIFORM, encode(front) + b"x")
    assert stage.cores["a"].counts["drop.ahead"] == 2
    stage.start("d")
    stage.run(5 * DETECT_US)
    assert sorted(stage.members("d")) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("first", "length", "times", "at"),
    [(1, 2, 2, 0), (1, 0, 0, 0), ((1 << 62) - 1, 1, 3, 0), ((1 << 62) - 9, 1, 3, 9), (0, 1, 3, 0)],
)
def test_unreliable_messages_that_cannot_be_are_malformed(
    first: int, length: int, times: int, at: int
) -> None:
    stage = trio()
    before = len(stage.payloads("a"))
    front = UNIFORM.pack(key(stage, "b"), first, length, times, at, 0)
    send(stage, "a", PacketKind.UNIFORM, front + b"xyz")
    assert stage.cores["a"].counts["drop.malformed"] == 1
    assert len(stage.payloads("a")) == before


def test_a_message_is_never_stable_at_fewer_than_none() -> None:
    stage = trio()
    run = OriginRun(key(stage, "b"), 1, (MessageGroup(1, 1, Service.SAFE),), (b"x",))
    front = DATA.pack(*BlockFront(key(stage, "b"), next_block(stage, "a", "b"), 1, -9, 0))
    send(stage, "a", PacketKind.DATA, front + bytes(8) + write_runs([run]))
    assert stage.cores["a"].counts["drop.malformed"] == 1 and not stage.only("a", Stabilize)


def test_requests_for_what_was_never_sent_do_not_slow_a_sender() -> None:
    stage = trio()
    congestion = stage.cores["a"]._send_queue._congestion
    before = congestion.nbytes
    for number in (500, HUGE):
        send(
            stage,
            "a",
            PacketKind.NACK,
            encode(Nack(key(stage, "b"), 0, (), ((key(stage, "a"), number, 0, 9),))),
        )
    assert congestion.nbytes == before


# -- the group ------------------------------------------------------------------------------------


def test_only_the_first_site_admits_and_renews() -> None:
    stage = trio()
    ghost = Member("x", Address("10.9.9.9", 7), 1)
    add = AddMember(key_of(ghost), Entry(ghost, 1))
    false = AddMember(77, Entry(ghost, 1))
    for name, request in (("b", add), ("b", RenewTrid(5)), ("a", false)):
        stage.cores[name]._send_queue.request(write_request(request))
        stage.multicast(name, b"x")
    stage.run(5 * DETECT_US)
    assert stage.cores["c"].counts["drop.malformed"] == 3
    together_still(stage, *"abc")


def test_a_member_of_this_ring_announces_no_other() -> None:
    stage = trio()
    lie = RingAnnounce(stage.cores["b"].me, 99, 1, 65_535, True, 1)
    to_all(stage, PacketKind.ANNOUNCE, lie)
    assert stage.cores["a"].counts["drop.announce"] == 1
    together_still(stage, *"abc")


def test_the_state_of_a_joiner_comes_from_its_sponsor_alone() -> None:
    stage = trio()
    stage.start("d")
    stage.cores["d"]._joiner._with_state = True
    asked: list[str] = []

    def noted(by: str, to: str, what: str) -> bool:
        if by == "d" and what.startswith("state-ask"):
            asked.append(to)
        return False

    stage.is_lost = noted
    while not asked and stage.now_us < 60_000_000:
        stage.run(1_000)
    sponsor = asked[0]  # It has no state to send: the group was founded without.
    other = next(name for name in "abc" if name != sponsor)
    for name, adopted in ((other, 0), (sponsor, 1)):
        piece = StatePiece(key(stage, name), key(stage, "d"), 5, 0, b"false")
        send(stage, "d", PacketKind.STATE, encode(piece))
        assert len(stage.only("d", Adopt)) == adopted


# -- reformation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["b", "bc", "abc"])
def test_one_site_alone_ends_no_ring(names: str) -> None:
    """Those that took no part ask the others, which know of no such list."""
    stage = trio()
    record = Proposal(key(stage, "b"), BallotFields(0, 0), lists(stage, *names))
    to_all(stage, PacketKind.COMMIT, record)
    together_still(stage, *"abc")


def test_who_was_left_out_hears_it_of_two() -> None:
    stage = trio("d", "e")
    stage.is_lost = lambda by, to, what: (by == "e") != (to == "e")
    stage.run(10 * DETECT_US)
    assert sorted(stage.members("a")) == list("abcd") and not stage.only("e", Fail)
    stage.is_lost = lambda by, to, what: False
    stage.run(10 * DETECT_US)
    assert stage.only("e", Fail)


@pytest.mark.parametrize("round", [1 << 20, 1 << 62])
def test_a_ballot_above_which_there_is_none_is_not_promised(round: int) -> None:
    stage = trio()
    to_all(stage, PacketKind.FAULT, Fault(key(stage, "b"), round, stage.cores["b"].me))
    record = Proposal(key(stage, "b"), BallotFields(round, key(stage, "b")), lists(stage, *"bc"))
    to_all(stage, PacketKind.NEW_LIST, record)
    stage.run(5 * DETECT_US)
    stage.kill("c")
    together_still(stage, *"ab")


def test_nobody_proposes_or_resumes_for_another() -> None:
    stage = trio()
    ballot = BallotFields(1, key(stage, "a"))
    to_all(stage, PacketKind.NEW_LIST, Proposal(key(stage, "b"), ballot, lists(stage, "b")), "c")
    to_all(stage, PacketKind.RESUME, Resume(key(stage, "b"), ballot), "c")
    other = Fault(key(stage, "b"), 1, Member("x", Address("10.9.9.9", 7), 1))
    to_all(stage, PacketKind.FAULT, other, "c")
    assert stage.cores["c"].counts["drop.malformed"] == 3
    together_still(stage, *"abc")


def answered(stage: Stage, lie: dict[str, Any]) -> None:
    """c dies, and b answers the reform site a with a lie."""
    core = stage.cores["a"]
    stage.kill("c")
    stage.is_lost = lambda by, to, what: by == "b" and what.startswith("fault")
    while core._reformation._attempt is None:
        stage.run(1_000)
    ballot = BallotFields(*core._reformation._attempt.ballot)
    views = tuple((t, tuple(sorted(m))) for t, m in core._state.quorums.views)
    true = Sync(key(stage, "b"), ballot, core._queue.held, views, (), None, 1, True)
    send(stage, "a", PacketKind.SYNC, encode(true._replace(**lie)))


LIES: dict[str, dict[str, Any]] = {
    "a slot that nobody can hold": {"held": HUGE},
    "blocks without end": {"unordered": ((5, ((1, HUGE),)),)},
    "no view": {"views": ()},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_false_synchronization_point_is_not_gathered(lie: str) -> None:
    stage = trio()
    answered(stage, LIES[lie])
    stage.run(20 * DETECT_US)
    together_still(stage, *"ab")


def test_a_view_that_would_make_two_of_five_a_quorum_is_not_believed() -> None:
    stage = Stage(*"abcde", detect_us=DETECT_US)
    mine = stage.cores["a"]._state.quorums
    held = stage.cores["a"]._queue.held
    pair = frozenset((key(stage, "a"), key(stage, "b")))
    for lie in (ViewQuorums.of(HUGE, pair), ViewQuorums.of(mine.views[-1].timestamp, pair)):
        assert not mine.agrees_with(lie, held)
    later = mine.changed(held + 5, pair)
    assert mine.agrees_with(later, held), "it may know more"
    assert later.agrees_with(mine, held + 5), "or less"


def test_a_vote_of_a_ballot_to_come_is_not_gathered() -> None:
    stage = trio()
    accepted = (BallotFields(1 << 40, key(stage, "b")), lists(stage, "b"))
    answered(stage, {"accepted": accepted})
    stage.run(20 * DETECT_US)
    assert not stage.only("a", Fail)
    together_still(stage, *"ab")


def test_a_false_alarm_reveals_no_slot_that_nobody_can_hold() -> None:
    stage = trio()
    ballot = BallotFields(1, key(stage, "b"))
    stage.is_lost = lambda by, to, what: to == "b"
    to_all(stage, PacketKind.FAULT, Fault(key(stage, "b"), 1, stage.cores["b"].me))
    to_all(stage, PacketKind.RESUME, Resume(key(stage, "b"), ballot, held=HUGE))
    assert all(not stage.cores[name]._queue.has_gap() for name in "ac")
    stage.is_lost = lambda by, to, what: False
    together_still(stage, *"abc")


def test_resilience_is_still_reported() -> None:
    """What the checks above let through: the honest path, with each kind of packet."""
    stage = trio("d")
    stage.multicast("a", b"kept", service=Resilient(Resilient.ALL))
    stage.run(5 * DETECT_US)
    assert [len(each.holders) for each in stage.only("a", Stabilize)] == [4]


def test_an_ack_that_is_no_packet_any_more_is_not_sent_on() -> None:
    """Whoever asks for it is answered by one packet, which the path carries."""
    ranges = tuple((source + 1, 1, 1) for source in range(RANGES_MAX + 1))
    longest = encode(AckFields(1, 1, 1, 1, 1, ranges[:-1]))
    assert decode(AckFields, longest).named == ranges[:-1]
    assert len(longest) + ENVELOPE_BYTES <= Config(group="g").packet_bytes_max - OVERHEAD_BYTES
    with pytest.raises(BadPacket):
        decode(AckFields, encode(AckFields(1, 1, 1, 1, 1, ranges)))
