"""Bugs planted in MTP, each caught by the law it breaks: the checker can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.mtp.harness import Room, core, handed, together
from unisono.core import Deliver, Effect, Install
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.agreement import ACCEPTED, PENDING, REJECTED, Consumer, Next
from unisono.protocols.mtp.batch import Batch, MembershipChange, head_of, read_content
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.joining import Joiner
from unisono.protocols.mtp.membership import Membership
from unisono.protocols.mtp.message_receiver import MessageReceiver
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import Ack, Data, PacketKind, Propose, Support, key_of
from unisono.protocols.mtp.repair import Repair
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.state import StateSource
from unisono.protocols.mtp.token_master import TokenMaster
from unisono.protocols.mtp.web import Web
from unisono.sim.plan import Plan
from unisono.sim.run import run

SEEDS_MAX = 40


def laws_broken(faults: str, until: str, first: int = 0, **options: int) -> set[str]:
    """What a few seeds break; stops as soon as `until` is among it."""
    broken: set[str] = set()
    for seed in range(first, first + SEEDS_MAX):
        nodes = 3 + seed % 5
        plan = Plan(
            protocol="mtp", nodes=nodes, seed=seed, faults=faults, messages=100, options=options
        )
        broken |= set(run(plan).broken)
        if until in broken:
            break
    return broken


# -- order and agreement ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.catches("agreement")
def test_delivering_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the data is here, without the master's word."""
    due = Consumer.due

    def hasty(self: Any, data: Any) -> Next:
        if self.status.get(self.next_out, PENDING) is PENDING and self.next_in > self.next_out:
            if data(self.next_out).value == "here":
                return Next.DELIVER
        return due(self, data)

    monkeypatch.setattr(Consumer, "due", hasty)
    assert "agreement" in laws_broken("mild", "agreement", first=12)


@pytest.mark.slow
@pytest.mark.catches("agreement")
def test_skipping_what_was_accepted_and_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    due = Consumer.due

    def impatient(self: Any, data: Any) -> Next:
        found = due(self, data)
        waits = self.status.get(self.next_out) is ACCEPTED and found is Next.WAIT
        return Next.SKIP if waits else found

    monkeypatch.setattr(Consumer, "due", impatient)
    assert "agreement" in laws_broken("loss", "agreement", first=1)


@pytest.mark.slow
@pytest.mark.catches("agreement")
def test_treating_an_unknown_status_as_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due = Consumer.due

    def guessing(self: Any, data: Any) -> Next:
        found = due(self, data)
        unheard = self.status.get(self.next_out, PENDING) is PENDING
        return Next.SKIP if found is Next.REJOIN and unheard else found

    monkeypatch.setattr(Consumer, "due", guessing)
    # Under many a seed it runs on and on, for half a minute.
    assert "agreement" in laws_broken("partition", "agreement", first=26)


@pytest.mark.catches("validity")
def test_not_sending_rejected_messages_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = SendQueue.settle

    def resigned(self: Any) -> None:
        settle(self)
        for batch in self._again:
            self._flight_bytes -= self._cost(batch)
        self._again.clear()

    monkeypatch.setattr(SendQueue, "settle", resigned)
    assert "validity" in laws_broken("mild", "validity", first=19, masters=3)


@pytest.mark.catches("no_duplication")
def test_delivering_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Ordering._append

    def twice(self: Any, origin: int, batch: Batch, heard: list[Any]) -> None:
        append(self, origin, batch, heard)
        if batch.first == 3:
            append(self, origin, batch, heard)

    monkeypatch.setattr(Ordering, "_append", twice)
    assert "no_duplication" in laws_broken("none", "no_duplication")


@pytest.mark.catches("no_creation")
def test_delivering_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Ordering._append

    def garbled(self: Any, origin: int, batch: Batch, heard: list[Any]) -> None:
        append(self, origin, batch, heard)
        if heard and heard[-1][-1].number == 5:
            *others, last = heard[-1]
            heard[-1] = [*others, last._replace(payload=last.payload + b"!")]

    monkeypatch.setattr(Ordering, "_append", garbled)
    assert "no_creation" in laws_broken("none", "no_creation")


# -- views --------------------------------------------------------------------------------------


@pytest.mark.catches("virtual_synchrony")
def test_a_view_that_is_not_in_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change counts when its packet comes, not when its turn comes."""
    take, change, deliver = MessageReceiver.take, Membership.apply_change, Ordering.deliver
    early: dict[Any, MembershipChange] = {}
    done: set[Any] = set()

    def noticed(self: Any, data: Data, now_us: int) -> Any:
        message = take(self, data, now_us)
        if message is not None and head_of(message.slices()) is None:
            content = read_content(message.slices())
            assert isinstance(content, MembershipChange)
            early[self, data.number] = content
        return message

    def at_once(self: Any, apply_change: Any, out: list[Effect]) -> None:
        member = apply_change.__self__
        for inbound, number in [key for key in early if key[0] is self._inbound]:
            content = early.pop((inbound, number))
            mine = member._key in {gone.key for gone in content.gone}
            if not content.ends and not mine and not self.spooling:
                change(member, number, content, out)
                done.add((member, number))
        deliver(self, apply_change, out)

    def in_turn(self: Any, number: int, content: MembershipChange, out: list[Effect]) -> bool:
        return (self, number) in done or change(self, number, content, out)

    monkeypatch.setattr(MessageReceiver, "take", noticed)
    monkeypatch.setattr(Ordering, "deliver", at_once)
    monkeypatch.setattr(Membership, "apply_change", in_turn)
    assert "virtual_synchrony" in laws_broken("mild", "virtual_synchrony")


@pytest.mark.catches("self_inclusion")
def test_a_view_without_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    change = Membership.apply_change

    def without_me(self: Any, number: int, content: MembershipChange, out: list[Effect]) -> bool:
        goes_on = change(self, number, content, out)
        last = out[-1] if out else None
        if isinstance(last, Install) and len(last.view.members) > 2:
            members = tuple(m for m in last.view.members if key_of(m) != self._key)
            out[-1] = replace(last, view=replace(last.view, members=members))
        return goes_on

    monkeypatch.setattr(Membership, "apply_change", without_me)
    assert "self_inclusion" in laws_broken("none", "self_inclusion")


@pytest.mark.catches("view_order")
def test_a_change_that_one_overlooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is no coordinator takes a failure for a false alarm."""
    change = Membership.apply_change

    def lenient(self: Any, number: int, content: MembershipChange, out: list[Effect]) -> bool:
        if not self._replicas.leads and self._web._me.name == "b":
            content = replace(content, gone=tuple(gone for gone in content.gone if gone.left))
        return change(self, number, content, out)

    monkeypatch.setattr(Membership, "apply_change", lenient)
    assert "view_order" in laws_broken("crash", "view_order")


# -- joining ------------------------------------------------------------------------------------


@pytest.mark.catches("agreement")
def test_a_joiner_that_starts_one_late(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = Joiner.enter

    def late(self: Any, packet: Any, out: list[Effect]) -> None:
        enter(self, packet, out)
        self._consumer.next_out += 1

    monkeypatch.setattr(Joiner, "enter", late)
    assert "agreement" in laws_broken("mild", "agreement")


@pytest.mark.catches("total_order")
def test_a_joiner_that_counts_places_one_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = Web.take_over

    def ahead(self: Any, roster: bytes, me: Any) -> Any:
        view = take_over(self, roster, me)
        self.seq += 1
        return view

    monkeypatch.setattr(Web, "take_over", ahead)
    assert "total_order" in laws_broken("none", "total_order")


@pytest.mark.catches("causal")
def test_a_member_that_receives_the_last_packet_first(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Ordering.deliver

    def reversed_(self: Any, apply_change: Any, out: list[Effect]) -> None:
        start = len(out)
        deliver(self, apply_change, out)
        me = self._web._me
        if me is not None and me.name == "b":
            for place, effect in enumerate(out[start:], start):
                if isinstance(effect, Deliver):
                    out[place] = Deliver(list(reversed(effect.messages)))

    monkeypatch.setattr(Ordering, "deliver", reversed_)
    assert "causal" in laws_broken("none", "causal")


@pytest.mark.catches("state")
def test_a_state_that_is_taken_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting until all before is settled, and the state as of whenever."""
    keep = StateSource.keep_state
    stale: dict[int, Any] = {}

    def swapped(self: Any, event: Any, out: list[Effect]) -> None:
        previous = stale.get(id(self))
        stale[id(self)] = event.state
        keep(self, replace(event, state=previous) if previous is not None else event, out)

    monkeypatch.setattr(StateSource, "keep_state", swapped)
    assert "state" in laws_broken("mild", "state")


# -- progress -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.catches("progress")
def test_never_asking_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repair, "request_missing", lambda self, out: None)
    assert "progress" in laws_broken("loss", "progress", first=1)


@pytest.mark.slow
@pytest.mark.catches("progress")
def test_never_giving_up_a_holder_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MasterAdmission, "fail", lambda self, key: None)
    assert "progress" in laws_broken("crash", "progress")


@pytest.mark.catches("progress")
def test_an_idle_master_that_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinator, "advertise", lambda self, out: None)
    assert "progress" in laws_broken("mild", "progress")


# -- the council --------------------------------------------------------------------------------


@pytest.mark.catches("prefix")
def test_taking_over_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(self: Any, *parts: Any) -> None:
        init(self, *parts)
        self.majority = 1

    init = Replicas.__init__
    monkeypatch.setattr(Replicas, "__init__", alone)
    assert "prefix" in laws_broken("partition", "prefix", first=19, masters=3)


# -- scenarios that chaos seldom reaches ---------------------------------------------------------

JUDGED = "check prefix total_order fifo virtual_synchrony"


def broken_in(room: Room) -> set[str]:
    lines = room.obey(JUDGED).splitlines()
    return {line.partition(":")[0] for line in lines if "broken" in line}


def gathered() -> Room:
    """Three masters and two more. All have delivered a first message: from it on they compare."""
    room = together("a", "b", "c", "d", "e", masters=3)
    room.obey("say e first\nadvance 30ms")
    return room


def cut_apart(room: Room | None = None) -> Room:
    """The coordinator is cut off with d, which sends; so does e, with the other masters."""
    room = room or gathered()
    room.obey("split a d | b c e\nsay d lonely\nsay e many\nadvance 3000ms")
    return room


def half_told() -> Room:
    """a and c have decided, b has not learned it; a dies, and the producer. Then e sends."""
    room = gathered()
    for name in "debc":
        room.obey(f"lose 999 a > {name} empty")
    room.obey("lose 999 a > b propose\nsay d kept\nadvance 8ms\ncrash a\ncrash d\nheal")
    room.obey("advance 2000ms\nsay e next\nadvance 500ms")
    return room


def two_sides() -> Room:
    """a and b do not receive each other, c receives both, and b takes over with c's support."""
    room = gathered()
    room.obey("cut a > b\nadvance 1200ms\nsplit a d | b e\nadvance 250ms\nsay d left\nsay e right")
    room.obey("advance 300ms")
    return room


def forgotten() -> Room:
    """a and c have decided, b was away. a dies, c forgets; c and b are most of the masters."""
    room = Room()
    room.obey("start mtp a b c d e masters=3\njoin a b c\nadvance 1000ms")
    first = room.sends(Propose, "a")[0]
    room.obey("join d e\nadvance 1000ms\nsay e first\nadvance 30ms\nsplit a c d e | b")
    room.obey("advance 850ms\nsay d decided\nadvance 50ms\ncrash a\namnesia c\njoin c")
    room._step(room.actors["c"], handed(room, first))
    room.obey("heal\nadvance 3000ms\nsay e other\nadvance 1500ms")
    return room


def out_of_turn() -> Room:
    """Of two messages of d the first is lost, and the coordinator dies."""
    room = gathered()
    number = core(room, "a").tokens.machine.next
    for name in "abce":
        room.obey(f"lose 999 d > {name} data {number}.")
    room.obey("say d one\nadvance 5ms\nsay d two\nadvance 20ms\ncrash a\nadvance 2500ms")
    return room


STORIES = [cut_apart, half_told, two_sides, forgotten, out_of_turn]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_without_a_bug_the_stories_break_nothing(story: Callable[[], Room]) -> None:
    assert broken_in(story()) == set()


@pytest.mark.catches("prefix")
def test_showing_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    propose = Replicas.propose

    def hasty(self: Any, value: bytes, out: list[Effect]) -> None:
        propose(self, value, out)
        self.committed = self.version

    room = gathered()
    monkeypatch.setattr(Replicas, "propose", hasty)
    assert "prefix" in broken_in(cut_apart(room))


@pytest.mark.catches("prefix")
def test_taking_over_with_what_one_knows_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    supported = Replicas.take_support

    def proud(self: Any, packet: Support) -> bool:
        mine = (self.accepted, self.version, self.value)
        if not supported(self, packet):
            return False
        self.accepted, self.version, self.value = mine
        return True

    monkeypatch.setattr(Replicas, "take_support", proud)
    assert "prefix" in broken_in(half_told())


@pytest.mark.catches("prefix")
def test_taking_over_and_rejecting_what_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = TokenMaster.take_over

    def harsh(self: Any, value: bytes) -> None:
        take_over(self, value)
        number = self.machine.next - 1
        if number >= self._consumer.next_out:
            self.machine.status[number] = REJECTED

    monkeypatch.setattr(TokenMaster, "take_over", harsh)
    assert "prefix" in broken_in(half_told())


@pytest.mark.catches("prefix")
def test_obeying_a_lower_ballot(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Replicas.hold_proposal

    def obedient(self: Any, packet: Propose, out: list[Effect]) -> None:
        if self.seated and packet.ballot < self.ballot:
            ack = Ack(NO_HEADER, self.rank, packet.ballot, packet.version)
            to = (self._clock.source,)
            self._packets.send_in(self.web, PacketKind.ACK, ack, to, out)
        else:
            hold(self, packet, out)

    monkeypatch.setattr(Replicas, "hold_proposal", obedient)
    assert "prefix" in broken_in(two_sides())


@pytest.mark.catches("prefix")
def test_a_vote_after_amnesia(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that remembers nothing takes the first proposal that comes for the beginning."""
    hold = Replicas.hold_proposal

    def gullible(self: Any, packet: Propose, out: list[Effect]) -> None:
        if not self.seated and self.rank and packet.version == 1:
            self.web = self._clock.web
        hold(self, packet, out)

    monkeypatch.setattr(Replicas, "hold_proposal", gullible)
    assert "prefix" in broken_in(forgotten())


@pytest.mark.catches("fifo")
def test_accepting_a_producers_messages_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(self: Any) -> None:
        for number in sorted(self.machine.holder):
            slices = self._ordering.slices_of(number)
            if slices is not None and not self._outbound.is_leaving(number):
                self.machine.seen(number)
                self._sizes[number] = len(slices)

    monkeypatch.setattr(TokenMaster, "accept", accept)
    assert "fifo" in broken_in(out_of_turn())
