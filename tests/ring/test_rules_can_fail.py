"""Each rule of the ring is taken away once, and the test that shows it fails: so it does show it.

RNG-1 and RNG-22 to RNG-24 are of the daemon, the actions and the curves, and are shown there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any

import pytest

from tests.plants import Patch, Plant, after, rules_of, without
from tests.ring import test_figures as figures_tests
from tests.ring import test_packets as packets
from tests.ring import test_rules_election as election
from tests.ring import test_rules_machine as machine
from tests.ring import test_rules_membership as membership
from tests.ring import test_rules_order as order
from tests.ring.harness import rebind, site
from unisono.core import Effect, Install
from unisono.fsa import Figure
from unisono.model import View
from unisono.parts.codec import PacketCodec
from unisono.protocols.ring import codes, core, figures, ordering, parameters
from unisono.protocols.ring import packets as wire
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.coordinator import Coordinator
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.election import Election
from unisono.protocols.ring.formation import Formation
from unisono.protocols.ring.installation import Installation
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import Header, TurnPacket
from unisono.protocols.ring.quorum import Quorums
from unisono.protocols.ring.receiver import Receiver
from unisono.protocols.ring.reformation import Reformation
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.ring import Ring
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.token_passing import TokenPassing
from unisono.protocols.ring.turn_reader import TurnReader


class NoRequest:
    """No request is an instance of this one."""


def once_quiet(tests: Any, plant: Plant, *makers: str) -> Plant:
    """The ring comes together as it should; then the bug is there."""

    def later(patch: Patch) -> None:
        for maker in makers or ("quiet",):
            make = getattr(tests, maker)

            def gathering(*names: str, _make: Any = make, **options: int) -> Any:
                room = _make(*names, **options)
                plant(patch)
                for name in room.actors:
                    rebind(site(room, name))
                return room

            patch.setattr(tests, maker, gathering)

    return later


# -- what is planted ----------------------------------------------------------------------------


def any_speaker(self: Any, packet: TurnPacket, out: list[Effect]) -> None:
    """A turn is taken from any sender."""
    self._ordering.take(packet, packet.header.sender)
    self._reader.advance(out)


def hidden_delegates(patch: Patch) -> None:
    """A delegated message is taken for the holder's own."""
    read = Ordering.read

    def own(self: Any, turn: Any) -> Any:
        found = read(self, turn)
        member = self._members[turn.holder]
        found.runs[:] = [run._replace(sender=member) for run in found.runs]
        return found

    patch.setattr(Ordering, "read", own)


def twice(patch: Patch) -> None:
    """A run that comes again counts again."""
    read = Ordering._read_run

    def again(self: Any, run: Any, *rest: Any) -> None:
        self.locals[run.origin] = run.first - 1
        read(self, run, *rest)

    patch.setattr(Ordering, "_read_run", again)


def no_qsus(patch: Patch) -> None:
    """What is early is thrown away."""
    take = Ordering.take

    def strict(self: Any, packet: TurnPacket, holder: int) -> None:
        if packet.header.s <= self.S + 1:
            take(self, packet, holder)
        else:
            self.highest = max(self.highest, packet.header.s)

    patch.setattr(Ordering, "take", strict)


def from_another(self: Any) -> Any:
    """The one after the one that showed the gap."""
    ring = self._state.ring
    members = [member for member in ring.members if member != self._state.me]
    revealed = ring.member(self._revealed)
    return members[(members.index(revealed) + 1) % len(members)]


def safe_on_receipt(patch: Patch) -> None:
    patch.setattr(Ordering, "may_deliver", lambda self, heard: True)


def never_round(patch: Patch) -> None:
    """What a turn reports of its sender is not noted."""
    note_sender = Receiver.note_sender

    def deaf(self: Any, packet: Any, out: Any) -> None:
        if not isinstance(packet, TurnPacket):
            note_sender(self, packet, out)

    patch.setattr(Receiver, "note_sender", deaf)


def the_most(self: Any) -> None:
    at = self.ring.index.get(self.key)
    if at is not None:
        self.K[at] = self.S
    self.safe = max(self.safe, *self.K)


def no_k(patch: Patch) -> None:
    note = Ordering.note
    patch.setattr(Ordering, "note", lambda self, key, s, k: note(self, key, s, 0))


def forget_all(self: Any) -> None:
    self.window.forget(self.S)


def reversed_ids(patch: Patch) -> None:
    """R3 the other way round."""
    mine, its = Election.my_key, Election.key

    def negative(key: Any) -> Any:
        return *key[:3], tuple(-ord(letter) for letter in key[3].name)

    patch.setattr(Election, "my_key", lambda self: negative(mine(self)))
    patch.setattr(Election, "key", staticmethod(lambda packet: negative(its(packet))))


def without_part(part: int) -> Plant:
    """One of R1 to R3 is not looked at."""

    def plant(patch: Patch) -> None:
        mine, its = Election.my_key, Election.key

        def less(key: Any) -> Any:
            return tuple(0 if at == part else each for at, each in enumerate(key))

        patch.setattr(Election, "my_key", lambda self: less(mine(self)))
        patch.setattr(Election, "key", staticmethod(lambda packet: less(its(packet))))

    return plant


def any_part_goes_on(patch: Patch) -> None:
    """Any number of members is enough."""
    patch.setattr(Quorums, "are_met", lambda self, people: True)
    patch.setattr(Formation, "size", lambda self, names, *rest: len(names))


def always_an_election(self: Any, event: Any, out: list[Effect]) -> None:
    self._election.suspects = {self._token.holder_key()}
    self._agenda.push(Code.E_REFSTART)
    self._agenda.push(Code.E_INIT)


def at_once(self: Any, out: list[Effect]) -> None:
    """A change is begun wherever the token is."""
    self._agenda.push(Code.E_REFSTART)
    self._agenda.push(Code.E_COORDINATOR)


def told_early(self: Any, ring: Any, out: list[Effect]) -> None:
    """The application sees a ring when it is accepted."""
    if ring.version.number > 1:
        out.append(Install(View(ring.members, id=str(ring.version))))


def nobody_is_new(patch: Patch) -> None:
    change = DeliveryQueue.change

    def blind(self: Any, ring: Any, captures: bool, former: Any = ()) -> None:
        change(self, ring, captures, former)
        self._items.extend(replace(self._items.pop(), joined=()) for _ in range(1))

    patch.setattr(DeliveryQueue, "change", blind)


ALL_HEADER = (Code.TS_ALIVE_RQU, Code.FAST_ACK)


def no_length(patch: Patch) -> None:
    """The length field of a packet is not checked."""
    read = wire.read

    def careless(kind: int, life: int, body: memoryview) -> Any:
        octets = bytearray(body)
        at = wire.HEADER_BYTES
        octets[at - 4 : at] = (at if kind in ALL_HEADER else len(octets)).to_bytes(4, "big")
        return read(kind, life, memoryview(octets[:at] if kind in ALL_HEADER else octets))

    patch.setattr(wire, "read", careless)


def no_originator(patch: Patch) -> None:
    octets = Header.packed
    patch.setattr(
        Header, "packed", lambda self, length: octets(self._replace(origin=self.sender), length)
    )


def a_row_less(patch: Patch) -> None:
    last = [a for a in figures.SEND.arrows if a.on is Code.RB_DATA_RQU][-1]
    arrows = tuple(a for a in figures.SEND.arrows if a is not last)
    patch.setattr(figures, "SEND", Figure("send", figures.SEND.start, arrows))


def an_event_less(patch: Patch) -> None:
    arrows = tuple(a for a in figures.SEND.arrows if a.on is not Code.E_ACK)
    patch.setattr(figures, "SEND", Figure("send", figures.SEND.start, arrows))


def another_name(patch: Patch) -> None:
    names = {code.name: code.value for code in Code} | {"HELLO": 1}
    del names["MEMBER_JOIN"]
    patch.setattr(codes, "Code", IntEnum("Code", names))


def internal_last(patch: Patch) -> None:
    """Internal events wait until all else is done."""
    push, conclude = Agenda.push, Site._conclude
    aside: dict[int, list[tuple[Code, Any]]] = {}

    def later(self: Any, code: Code, packet: Any = None) -> None:
        aside.setdefault(id(self), []).append((code, packet))

    def concluding(self: Any, out: list[Effect]) -> None:
        while told := aside.pop(id(self.agenda), []):
            for code, packet in told:
                push(self.agenda, code, packet)
            self._settle(out)
        conclude(self, out)

    patch.setattr(Agenda, "push", later)
    patch.setattr(Site, "_conclude", concluding)


def internal_another_time(patch: Patch) -> None:
    """The next coordinator learns of it only with the next event."""
    push = Agenda.push

    def but_one(self: Any, code: Code, packet: Any = None) -> None:
        if code is not Code.E_COORDINATOR:
            push(self, code, packet)

    patch.setattr(Agenda, "push", but_one)


def impatient(self: Any, event: Any, out: list[Effect]) -> None:
    self._detection.detector.detect_us = 1


def other_values(patch: Patch) -> None:
    presets = {**parameters.PRESETS, "paper": {**parameters.PRESETS["paper"], "tries": 3}}
    patch.setattr(parameters, "PRESETS", presets)


def no_timer(which: Timer) -> Plant:
    def plant(patch: Patch) -> None:
        arm = Agenda.arm

        def but_one(self: Any, timer: Timer, after_us: int, out: list[Effect]) -> None:
            if timer is not which:
                arm(self, timer, after_us, out)

        patch.setattr(Agenda, "arm", but_one)

    return plant


PLANTS: list[tuple[str, Callable[..., None], Plant]] = [
    ("RNG-2", order.test_whose_turn_it_is_follows_from_s_and_each_turn_raises_it_by_one,
     without(Ring, "holder", lambda self, s: (s + 2) % len(self.seats))),
    ("RNG-2", order.test_a_turn_of_one_that_does_not_hold_the_token_is_not_taken,
     without(Receiver, "take_turn", any_speaker)),
    ("RNG-2", order.test_no_loss_loses_the_token, without(Receiver, "ping")),
    ("RNG-3", order.test_a_holder_with_nothing_to_send_multicasts_null_after_t_send,
     without(TokenPassing, "rest")),
    ("RNG-4", order.test_urgent_messages_are_delegated_to_the_holder,
     without(TokenPassing, "forward")),
    ("RNG-4", order.test_a_delegated_message_precedes_the_originators_own_turn,
     hidden_delegates),
    ("RNG-4", order.test_a_message_delegated_twice_is_delivered_once, twice),
    ("RNG-5", order.test_what_is_early_waits_and_is_linked_when_the_gap_closes, no_qsus),
    ("RNG-6", order.test_a_gap_is_asked_from_the_sender_that_revealed_it,
     without(Repair, "_source", from_another)),
    ("RNG-6", order.test_a_repair_goes_to_the_requester_alone_unchanged,
     without(Repair, "send_ranges")),
    ("RNG-6", order.test_a_sender_seen_to_be_behind_is_sent_what_it_lacks,
     without(Repair, "help")),
    ("RNG-7", order.test_without_acks_a_message_is_safe_after_a_full_round,
     once_quiet(order, never_round)),
    ("RNG-7", order.test_nothing_that_is_to_be_safe_is_delivered_on_receipt, safe_on_receipt),
    ("RNG-8", order.test_receivers_ack_to_the_next_holder_which_informs_all_a_phase_later,
     without(TurnReader, "_acknowledge")),
    ("RNG-8", order.test_k_is_the_least_that_any_has, without(Ordering, "settle", the_most)),
    ("RNG-8", order.test_all_up_to_k_is_delivered, no_k),
    ("RNG-9", order.test_about_one_rings_worth_of_turns_is_kept,
     without(ordering, "HISTORY_ROUNDS", 50)),
    ("RNG-9", order.test_what_a_member_may_still_ask_for_is_kept,
     without(Ordering, "_forget", forget_all)),
    ("RNG-10", election.test_a_ring_is_created_by_invitation, without(Reformation, "_answer")),
    ("RNG-10", election.test_a_member_without_an_invitation_waits_a_random_time_and_then_invites,
     without(RingSearch, "listen",
             lambda self, out: self._agenda.arm(Timer.T_REFORM, 100_000, out))),
    ("RNG-10", lambda: election.test_of_two_candidates_the_one_with_version_then_s_then_id_wins(
        "R1", 1), without_part(0)),
    ("RNG-10", lambda: election.test_of_two_candidates_the_one_with_version_then_s_then_id_wins(
        "R2", 1), without_part(2)),
    ("RNG-10", lambda: election.test_of_two_candidates_the_one_with_version_then_s_then_id_wins(
        "R3", 1), reversed_ids),
    ("RNG-11", lambda: election.
     test_the_process_before_the_dead_holder_coordinates_without_election(1),
     without(Receiver, "suspect", always_an_election)),
    ("RNG-11", election.test_a_suspicion_is_confirmed_only_by_one_that_receives_nothing_either,
     without(Receiver, "confirms", lambda self, packet: True)),
    ("RNG-12", election.test_when_holder_and_predecessor_die_one_is_elected,
     once_quiet(election, no_timer(Timer.T_REFORM))),
    ("RNG-12", election.test_only_the_majority_continues_and_rings_merge_after_healing,
     any_part_goes_on),
    ("RNG-12", election.test_the_majority_is_of_all_sites_and_not_of_the_last_ring,
     without(Formation, "size", lambda self, names, *rest: len(names))),
    ("RNG-13", election.test_an_operator_may_let_a_minority_continue,
     without(core, "GoOn", NoRequest)),
    ("RNG-14", membership.test_a_join_is_granted_by_the_coordinator_when_it_holds_the_token,
     once_quiet(membership, without(TokenPassing, "wake", at_once), "together")),
    ("RNG-14", membership.test_a_request_to_join_that_is_lost_is_made_again,
     once_quiet(membership, without(Reformation, "ask_to_join"), "together")),
    ("RNG-15", membership.test_a_leaving_member_announces_it_and_the_ring_closes_without_it,
     without(Receiver, "note_quit")),
    ("RNG-15", membership.test_a_leave_that_is_missed_is_found_out_as_a_stop,
     without(Receiver, "ping")),
    ("RNG-16", membership.test_first_all_are_invited_and_what_is_missing_is_sent_again,
     without(Repair, "_send")),
    ("RNG-16", membership.test_then_the_new_ring_goes_round_and_counts_when_all_may_resume,
     once_quiet(membership, without(Coordinator, "all_accepted", lambda self, event: True))),
    ("RNG-16", membership.test_no_application_sees_a_ring_before_resume,
     after(Installation, "accept", told_early)),
    ("RNG-16", membership.test_old_messages_are_committed_before_the_view_with_new_members,
     nobody_is_new),
    ("RNG-17", lambda: membership.test_after_any_failure_all_end_in_one_ring(
        "a member before it answered"),
     once_quiet(membership, without(Coordinator, "may_form", lambda self, event: False))),
    ("RNG-17", lambda: membership.test_after_any_failure_all_end_in_one_ring(
        "the coordinator after it invited"),
     once_quiet(membership, no_timer(Timer.T_REF_RT))),
    ("RNG-17", lambda: membership.test_after_any_failure_all_end_in_one_ring(
        "the coordinator after it sent the ring"),
     once_quiet(membership, without(Reformation, "ask_resume"))),
    ("RNG-18", machine.test_a_packet_has_the_papers_header,
     once_quiet(machine, without(Header, "packed", lambda self, length: wire.HEADER.pack(
         self.version.number, self.sender, 0, self.local, self.s, self.k, length)))),
    ("RNG-18", machine.test_the_originator_of_what_is_sent_again_is_not_its_sender, no_originator),
    ("RNG-18", lambda: machine.test_a_packet_that_matches_nothing_is_counted_and_ignored("kind"),
     without(PacketCodec, "drop")),
    ("RNG-18", lambda: machine.test_a_packet_that_matches_nothing_is_counted_and_ignored("length"),
     no_length),
    ("RNG-18", packets.test_numbers_that_no_member_counts_to_are_nobodys,
     without(wire, "_header", lambda life, body, nbytes: Header(wire.Version(1, life), 3))),
    ("RNG-19", figures_tests.test_every_event_is_decided_in_every_state, a_row_less),
    ("RNG-19", figures_tests.test_every_event_and_timer_of_the_paper_is_in_the_figures,
     an_event_less),
    ("RNG-19", figures_tests.test_the_papers_24_events_have_their_names_and_numbers, another_name),
    ("RNG-20", machine.test_a_timer_that_is_due_goes_before_a_packet,
     without(Site, "_expire_overdue")),
    ("RNG-20", machine.test_internal_events_precede_the_next_packet,
     internal_last),
    ("RNG-20", machine.test_internal_events_precede_timers,
     once_quiet(machine, internal_another_time)),
    ("RNG-21", lambda: machine.test_a_silent_holder_is_asked_c_times_before_it_is_suspected(5),
     once_quiet(machine, after(Receiver, "ping", impatient))),
    ("RNG-21", machine.test_the_papers_values_are_a_preset_by_name, other_values),
    *(
        ("RNG-21", lambda name=name: machine.test_each_timer_is_set_where_the_paper_sets_it(name),
         once_armed)
        for name, once_armed in ((name, no_timer(Timer[name])) for name in machine.FIVE)
    ),
]  # fmt: skip


def name_of(shown: Callable[..., None]) -> str:
    """Of a test, or of a test with its case chosen."""
    code = shown.__code__
    return next((name for name in code.co_names if name.startswith("test_")), shown.__name__)


CASES = [
    pytest.param(*row, id=f"{row[0]} {name_of(row[1])[5:]} {at}") for at, row in enumerate(PLANTS)
]


def test_every_rule_is_taken_away_once() -> None:
    assert {rule for rule, _, _ in PLANTS} == {f"RNG-{number}" for number in range(2, 22)}
    tests = (order, election, membership, machine, figures_tests, packets)
    for rule, shown, _ in PLANTS:
        name = name_of(shown)
        found = next(getattr(each, name) for each in tests if hasattr(each, name))
        assert rule in rules_of(found), name


@pytest.mark.parametrize(("rule", "shown", "plant"), CASES)
def test_a_rule_is_missed_when_it_is_gone(
    rule: str, shown: Callable[..., None], plant: Plant, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, LookupError, pytest.fail.Exception)) as caught:
        shown()
    story = "".join(map(str, caught.traceback))
    assert "in together" not in story, "it never came to what it shows"
