"""Each rule of MTP is taken away once, and the test that shows it fails: so it does show it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.mtp import test_parameters as parameters
from tests.mtp import test_rules_order as order
from tests.mtp import test_rules_pace as pace
from tests.mtp import test_rules_replicas as replicas
from tests.mtp import test_rules_transport as transport
from tests.mtp import test_rules_web as web
from tests.plants import Patch, Plant, after, once_together, rules_of, without
from unisono.core import Effect
from unisono.parts.codec import PacketCodec
from unisono.parts.packing import sliced
from unisono.protocols.mtp import admission, batch, message_sender
from unisono.protocols.mtp.agreement import PENDING, Consumer, Master, Next, Producer
from unisono.protocols.mtp.coordinator import Coordinator
from unisono.protocols.mtp.joining import Joiner
from unisono.protocols.mtp.leaving import Leaver
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.membership import Membership
from unisono.protocols.mtp.message_receiver import IncomingMessage, MessageReceiver
from unisono.protocols.mtp.message_sender import MessageSender
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packet_writer import PacketWriter
from unisono.protocols.mtp.packets import Propose, Stand
from unisono.protocols.mtp.repair import Repair
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.token_master import TokenMaster


def everybody_is_a_master(self: Any, *rest: Any) -> None:
    self.rank = max(self.rank, 1)


def any_life(patch: Patch) -> None:
    admit = PacketCodec.admit

    def admitting(self: Any, packets: Any) -> Any:
        return (envelope._replace(life=self.life) for envelope in admit(self, packets))

    patch.setattr(PacketCodec, "admit", admitting)


def headers_of_the_next_number(patch: Patch) -> None:
    header = PacketWriter.header
    patch.setattr(PacketWriter, "header", lambda self, base=0: header(self))


def overwriting(patch: Patch) -> None:
    def learn(self: Any, number: int, last: Any) -> bool:
        for k, its in enumerate(last, 1):
            self.status[number - k] = its
        self.next_in = max(number, self.next_in)
        return True

    patch.setattr(Consumer, "learn", learn)


def guessing(patch: Patch) -> None:
    due = Consumer.due

    def skip(self: Any, data: Any) -> Next:
        found = due(self, data)
        return Next.SKIP if found is Next.REJOIN else found

    patch.setattr(Consumer, "due", skip)


def one_status_less(patch: Patch) -> None:
    last = Master.last

    def fewer(self: Any, count: int = 0) -> Any:
        return (*last(self, count)[:-1], PENDING)

    patch.setattr(Master, "last", fewer)


def old_packets(patch: Patch) -> None:
    """What was sent once is kept, and sent again as it was."""
    packets, packet, kept = (
        MessageSender._packets,
        MessageSender._packet,
        dict[tuple[int, int, int], bytes](),
    )

    def keeping(self: Any, held: Any, row: range, header: Any) -> Any:
        kept.update({(id(self), held.number, p): packet(self, held, p, header) for p in row})
        return packets(self, held, row, header)

    def cached(self: Any, held: Any, number: int, header: Any) -> bytes:
        return kept[id(self), held.number, number]

    patch.setattr(MessageSender, "_packets", keeping)
    patch.setattr(MessageSender, "_packet", cached)


def no_window(patch: Patch) -> None:
    pump = MessageSender.pump

    def open_(self: Any, now_us: int, header: Any, out: list[Effect]) -> None:
        self._beat_us, self._left = now_us, 10**6
        pump(self, now_us, header, out)

    patch.setattr(MessageSender, "pump", open_)


def repairs_last(patch: Patch) -> None:
    repair = MessageSender._repair

    def unless_busy(self: Any, now_us: int, header: Any, out: list[Effect]) -> None:
        if not self._fresh:
            repair(self, now_us, header, out)

    patch.setattr(MessageSender, "_repair", unless_busy)


def no_denials(patch: Patch) -> None:
    answer = Repair.answer_nak

    def silent(self: Any, packet: Any, out: list[Effect]) -> None:
        here = self._outbound.held
        answer(self, packet._replace(ranges=tuple(r for r in packet.ranges if r[0] in here)), out)

    patch.setattr(Repair, "answer_nak", silent)


def first_off_by_one(patch: Patch) -> None:
    confirm = admission.Confirm
    patch.setattr(
        admission, "Confirm", lambda h, key, first, *rest: confirm(h, key, first + 1, *rest)
    )


def views_when_they_come(patch: Patch) -> None:
    """A plain member sees a change when its data comes, before what is ordered before it."""
    take, change, seen = MessageReceiver.take, Membership.apply_change, dict[Any, list[Effect]]()
    early: dict[Any, Any] = {}
    deliver = Ordering.deliver

    def at_once(self: Any, data: Any, now_us: int) -> Any:
        message = take(self, data, now_us)
        if message is not None and batch.head_of(message.slices()) is None:
            early[self, data.number] = batch.read_content(message.slices())
        return message

    def delivering(self: Any, apply_change: Any, out: list[Effect]) -> None:
        member = apply_change.__self__
        for inbound, number in [key for key in early if key[0] is self._inbound]:
            content = early.pop((inbound, number))
            change(member, number, content, seen.setdefault((member, number), []))
        deliver(self, apply_change, out)

    def in_turn(self: Any, number: int, content: Any, out: list[Effect]) -> bool:
        if (self, number) not in seen:
            return change(self, number, content, out)
        out.extend(seen[self, number])
        return True

    patch.setattr(MessageReceiver, "take", at_once)
    patch.setattr(Ordering, "deliver", delivering)
    patch.setattr(Membership, "apply_change", in_turn)


def no_dally(self: Any, *rest: Any) -> None:
    self._dally = 0


def all_tokens(self: Any) -> bool:
    return not self.holder or min(self.holder) > self.next - self.t_max


def alone(self: Any, *rest: Any) -> None:
    self.majority = 1


def a_vote_for_all(patch: Patch) -> None:
    support, hold = Replicas.support, Replicas.hold_proposal

    def generous(self: Any, packet: Stand, out: list[Effect]) -> None:
        self.accepted = self.accepted or 1
        support(self, packet, out)

    def gullible(self: Any, packet: Propose, out: list[Effect]) -> None:
        self.web = self._clock.web
        self.version = 0 if not self.accepted else self.version
        hold(self, packet, out)

    patch.setattr(Replicas, "support", generous)
    patch.setattr(Replicas, "hold_proposal", gullible)


def half_a_heartbeat(patch: Patch) -> None:
    model = parameters.model

    def wrong(*numbers: int, **named: int) -> Any:
        found = model(*numbers, **named)
        return found._replace(heartbeat_us=found.heartbeat_us // 2)

    patch.setattr(parameters, "model", wrong)


def hasty(patch: Patch) -> None:
    """Delivers what is here, whatever the master has decided."""
    due = Consumer.due

    def at_once(self: Any, data: Any) -> Next:
        here = data(self.next_out).value == "here"
        return Next.DELIVER if here else due(self, data)

    patch.setattr(Consumer, "due", at_once)


PLANTS: list[tuple[str, Callable[..., None], Plant]] = [
    ("MTP-1", web.test_no_member_makes_itself_a_master,
     after(Replicas, "__init__", everybody_is_a_master)),
    ("MTP-1", web.test_a_leaving_member_repeats_its_request_until_it_is_removed,
     without(Leaver, "insist")),
    ("MTP-2", transport.test_packets_of_another_life_of_the_web_are_ignored_and_counted, any_life),
    ("MTP-3", order.test_a_grant_has_the_statuses_of_the_last_t_messages,
     headers_of_the_next_number),
    ("MTP-3", order.test_a_grant_names_the_addresses_to_send_to,
     without(Coordinator, "_addresses", lambda self: ())),
    ("MTP-3", order.test_one_that_asks_twice_gets_the_same_token,
     without(TokenMaster, "request", lambda self, key, packet: self.requests.update(
         {key: (packet.request, 1)}))),
    ("MTP-3", order.test_a_producer_sends_rejected_messages_again_in_order,
     without(Producer, "settled", lambda self, status: ([], []))),
    ("MTP-4", order.test_a_web_has_at_most_t_tokens_out,
     without(Master, "may_grant", lambda self: True)),
    ("MTP-5", order.test_a_message_is_pending_until_the_master_has_seen_its_end,
     without(IncomingMessage, "whole", property(lambda self: self.packets > 0))),
    ("MTP-5", order.test_a_message_is_rejected_when_its_sender_is_held_for_failed,
     without(TokenMaster, "reject")),
    ("MTP-6", order.test_a_late_packet_never_undoes_a_status, overwriting),
    ("MTP-6", order.test_what_was_accepted_and_cannot_be_had_makes_the_member_join_again, guessing),
    ("MTP-7", order.test_t_holders_in_a_row_may_fail_and_one_more_forces_a_rejoin, one_status_less),
    ("MTP-7", order.test_one_more_than_t_makes_a_member_join_again_and_never_differ, guessing),
    ("MTP-8", transport.test_a_message_is_cut_into_numbered_packets_and_only_the_last_is_not_full,
     without(batch, "sliced", lambda chunks, size: sliced(chunks, size // 2))),
    ("MTP-9", transport.test_what_is_sent_again_has_its_old_data_and_number_and_a_header_of_now,
     old_packets),
    ("MTP-10", transport.test_a_producer_sends_at_most_a_window_in_a_heartbeat, no_window),
    ("MTP-10", transport.test_repairs_go_before_new_data_and_count_in_the_window, repairs_last),
    ("MTP-11", transport.test_a_holder_whose_message_is_not_settled_reports_how_much_it_sent,
     without(SendQueue, "advertise")),
    ("MTP-11", transport.test_an_idle_master_advertises_the_statuses_so_that_nothing_waits,
     once_together(transport, without(Coordinator, "advertise"))),
    ("MTP-12", transport.test_missing_packets_are_requested_by_range_and_sent_to_the_requester,
     without(message_sender, "FEW", 0)),
    ("MTP-12", transport.test_a_repair_that_few_want_goes_to_them_and_one_that_many_want_to_the_web,
     without(message_sender, "FEW", 99)),
    ("MTP-12", transport.test_a_producer_answers_for_as_long_as_it_retains,
     without(Repair, "forget", lambda self, stable: self._outbound.held.clear())),
    ("MTP-13", transport.test_a_request_for_what_is_no_longer_held_is_denied, no_denials),
    ("MTP-13", transport.test_a_member_that_needs_what_is_denied_rejoins,
     without(Repair, "take_denial")),
    ("MTP-14", web.test_a_confirm_has_the_master_the_incarnation_and_the_first_message,
     once_together(web, first_off_by_one)),
    ("MTP-14", web.test_a_returning_member_learns_whether_it_is_the_same_web,
     without(Joiner, "remember")),
    ("MTP-15", web.test_for_a_joiner_with_state_nothing_is_granted_until_all_before_is_settled,
     after(admission.MasterAdmission, "begin_change",
           lambda self: setattr(self, "holding", False))),
    ("MTP-16", pace.test_consumers_in_need_pull_towards_safety_and_calm_towards_speed,
     without(Coordinator, "_set_pace")),
    ("MTP-16", pace.test_what_members_hold_is_bounded_while_one_reads_nothing,
     without(TokenMaster, "_has_room", lambda self, packets: True)),
    ("MTP-17", pace.test_most_need_not_ask_when_they_dally,
     after(MessageReceiver, "__init__", no_dally)),
    ("MTP-18", pace.test_the_tokens_in_use_go_down_to_one_and_up_to_t_max,
     without(Coordinator, "_set_pace")),
    ("MTP-18", pace.test_only_t_cur_tokens_are_out_though_every_header_has_t_max_statuses,
     without(Master, "may_grant", all_tokens)),
    ("MTP-19", replicas.test_no_token_is_granted_before_most_replicas_know_of_it,
     after(Replicas, "__init__", alone)),
    ("MTP-19", replicas.test_a_cohort_answers_only_when_it_holds_the_data_that_is_accepted,
     without(Ordering, "holds", lambda self, value: True)),
    ("MTP-19", replicas.test_a_cohort_takes_over_rejects_what_is_pending_and_it_is_the_same_web,
     without(Replicas, "may_stand", lambda self: False)),
    ("MTP-19", replicas.test_a_restarted_replica_has_no_vote_before_it_is_brought_up_to_date,
     a_vote_for_all),
    ("MTP-20", web.test_all_see_the_same_members_at_the_same_message,
     once_together(web, views_when_they_come)),
    ("MTP-20", web.test_what_members_report_is_added_to_what_the_master_noticed,
     without(MemberWatch, "_suspected", lambda self, key: False)),
    ("MTP-21", parameters.test_the_model_finds_the_papers_numbers, half_a_heartbeat),
    ("MTP-22", web.test_what_some_have_and_the_master_has_not_is_delivered_by_none, hasty),
    ("MTP-23", web.test_the_part_with_the_master_continues_and_the_other_delivers_no_more,
     once_together(web, without(TokenMaster, "accept"))),
]  # fmt: skip
CASES = [pytest.param(*row, id=f"{row[0]} {row[1].__name__[5:]}") for row in PLANTS]


def test_every_rule_is_taken_away_once() -> None:
    assert {rule for rule, _, _ in PLANTS} == {f"MTP-{number}" for number in range(1, 24)}
    for rule, shown, _ in PLANTS:
        assert rule in rules_of(shown), shown.__name__


@pytest.mark.parametrize(("rule", "shown", "plant"), CASES)
def test_a_rule_is_missed_when_it_is_gone(
    rule: str, shown: Callable[..., None], plant: Plant, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    given = {"monkeypatch": monkeypatch, "end": "crash c", "t": 2}
    wanted = {name: given[name] for name in inspect.signature(shown).parameters}
    with pytest.raises((AssertionError, ValueError, LookupError)) as caught:
        shown(**wanted)
    assert "not together" not in str(caught.value), "it never came to what it shows"
