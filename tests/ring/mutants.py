"""Bugs to plant in the ring, each with the law it breaks and the weather that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.plants import Mutant, Patch
from unisono.core import Effect
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.protocols.ring.ballot import Ballot
from unisono.protocols.ring.delivery import DeliveryQueue
from unisono.protocols.ring.formation import Formation
from unisono.protocols.ring.leaving import Leaving
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import TurnPacket
from unisono.protocols.ring.quorum import Quorums
from unisono.protocols.ring.receiver import Receiver
from unisono.protocols.ring.reformation import Reformation
from unisono.protocols.ring.repair import Repair
from unisono.protocols.ring.ring_search import RingSearch
from unisono.protocols.ring.state import RingState
from unisono.protocols.ring.state_transfer import StateTransfer
from unisono.protocols.ring.token import TokenPosition


def safe_delivered_on_receipt(patch: Patch) -> None:
    """What should wait until everyone has it does not."""
    patch.setattr(Ordering, "may_deliver", lambda self, heard: True)


def k_taken_as_the_most(patch: Patch) -> None:
    """A message is safe once any member has it."""
    settle = Ordering.settle

    def hasty(self: Any) -> None:
        settle(self)
        self.safe = max((self.safe, *self.K))

    patch.setattr(Ordering, "settle", hasty)


def majority_not_needed(patch: Patch) -> None:
    """Any part continues."""
    patch.setattr(Quorums, "are_met", lambda self, people: True)
    patch.setattr(Formation, "size", lambda self, names, *rest: len(names))


def base_ignored(patch: Patch) -> None:
    """A new ring is accepted, and offered, though turns of the old one are missing."""
    is_offered = Reformation.is_offered

    def careless(self: Any, packet: Any) -> bool:
        ring, state = self._offer(packet), self._state
        listed = ring is not None and state.memory and state.key in ring.index
        return is_offered(self, packet) or listed

    patch.setattr(Reformation, "is_offered", careless)
    patch.setattr(Ballot, "is_complete", lambda self, packet: True)


def cut_of_a_newcomer_wrong(patch: Patch) -> None:
    """A joiner's streams of the others begin one later."""
    change = DeliveryQueue.change

    def late(self: Any, ring: Any, *more: Any) -> None:
        change(self, ring, *more)
        items = list(self._items)
        at = max(at for at, item in enumerate(items) if hasattr(item, "cut"))
        view: Any = items[at]
        self._items[at] = replace(view, cut=tuple((who, n + 1) for who, n in view.cut))

    patch.setattr(DeliveryQueue, "change", late)


def leaver_departs_early(patch: Patch) -> None:
    """A member announces its leave and ends, whatever the others lack."""

    def abrupt(self: Any, out: list[Effect]) -> None:
        self._lifecycle.leaving = self._lifecycle.released = True

    patch.setattr(Leaving, "leave", abrupt)


def history_forgotten_too_early(patch: Patch) -> None:
    """What one has read itself is thrown away, though others lack it."""
    forget = Ordering._forget

    def at_once(self: Any) -> None:
        forget(self)
        self.window.forget(self.S)

    patch.setattr(Ordering, "_forget", at_once)


def place_not_taken_over(patch: Patch) -> None:
    """After a change everyone counts on from what it has itself."""
    enter = Ordering.enter

    def own(self: Any, ring: Any) -> None:
        seq = self.seq
        enter(self, ring)
        self.seq = seq

    patch.setattr(Ordering, "enter", own)


def gaps_never_asked_for(patch: Patch) -> None:
    patch.setattr(Repair, "request", lambda self, event, out: None)
    patch.setattr(Repair, "help", lambda self, member, key, s, out: None)
    patch.setattr(Repair, "watch_gap", lambda self, event, out: None)


def nobody_stands(patch: Patch) -> None:
    """A member without an invitation waits for ever."""
    listen = RingSearch.listen

    def but_once(self: Any, out: list[Effect]) -> None:
        if not self._election._delivery.has_view:
            listen(self, out)

    patch.setattr(RingSearch, "listen", but_once)


def state_of_another_place(patch: Patch) -> None:
    """The state that is handed over is that of the last newcomer."""
    keep = StateTransfer.keep
    last: dict[int, Any] = {}

    def stale(self: Any, event: Any) -> None:
        before = last.get(id(self), event)
        last[id(self)] = event
        keep(self, replace(event, state=before.state))

    patch.setattr(StateTransfer, "keep", stale)


def two_holders_at_a_time(patch: Patch) -> None:
    """Now and then the member after the holder sends a turn too, and it is taken."""

    def generous(self: Any) -> bool:
        state, s = self._state, self._ordering.S
        at = state.ring.index.get(state.key)
        holder = state.ring.holder(s) if state.ring.seats else -1
        if not state.in_force or s % 9 != 4:
            return bool(state.in_force and at == holder)
        return at in (holder, (holder + 1) % len(state.ring.seats))

    def from_anyone(self: Any, packet: TurnPacket, out: list[Effect]) -> None:
        self._ordering.take(packet, packet.header.sender)
        self._reader.advance(out)

    patch.setattr(TokenPosition, "is_here", generous)
    patch.setattr(Receiver, "take_turn", from_anyone)


def others_bytes(patch: Patch) -> None:
    read = Ordering.read

    def garbled(self: Any, turn: Any) -> Any:
        found = read(self, turn)
        found.runs[:] = [
            MessageRun.of(m._replace(payload=m.payload + b"!") if m.number == 5 else m)
            for m in MessageRuns(found.runs)
        ]
        return found

    patch.setattr(Ordering, "read", garbled)


def view_without_oneself(patch: Patch) -> None:
    change = DeliveryQueue.change

    def selfless(self: Any, ring: Any, *more: Any) -> None:
        change(self, ring, *more)
        at = max(at for at, item in enumerate(self._items) if hasattr(item, "cut"))
        view: Any = self._items[at]
        if len(view.members) > 2:
            members = tuple(member for member in view.members if member != self._state.me)
            self._items[at] = replace(view, members=members)

    patch.setattr(DeliveryQueue, "change", selfless)


def last_first(patch: Patch) -> None:
    """One member reads a turn from its end."""
    read = Ordering.read

    def backwards(self: Any, turn: Any) -> Any:
        found = read(self, turn)
        if self.ring.index.get(self.key) == 1:
            found.runs[:] = map(MessageRun.of, reversed(MessageRuns(found.runs)))
        return found

    patch.setattr(Ordering, "read", backwards)


def view_before_what_was_said(patch: Patch) -> None:
    """One member gets a view before the messages that precede it."""
    change = DeliveryQueue.change

    def hasty(self: Any, ring: Any, *more: Any) -> None:
        before = len(self._items)
        change(self, ring, *more)
        if before and ring.members[0] != self._state.me and self.has_view:
            self._items.rotate(len(self._items) - before)

    patch.setattr(DeliveryQueue, "change", hasty)


def quorum_always_true(patch: Patch) -> None:
    """Anyone counts, and any number is enough."""
    patch.setattr(Quorums, "are_met", lambda self, people: True)
    patch.setattr(Quorums, "have_majority", lambda self, names, voting: True)


def promise_not_kept(patch: Patch) -> None:
    """After a crash a member has forgotten what it promised and accepted, and votes by its
    name."""

    def forgetful(self: Any, stable: object) -> None:
        self.record = self.record._replace(votes=True)

    patch.setattr(RingState, "restore", forgetful)
    patch.setattr(Quorums, "voting", lambda self, people: set(people))


def safe_at_a_majority(patch: Patch) -> None:
    """Safe is what more than half of the ring have."""
    settle = Ordering.settle

    def hasty(self: Any) -> None:
        settle(self)
        if self.K:
            self.safe = max(self.safe, sorted(self.K, reverse=True)[len(self.K) // 2])

    patch.setattr(Ordering, "settle", hasty)


IN_A_STORY = [
    Mutant(safe_delivered_on_receipt, "safe", "none"),
    Mutant(k_taken_as_the_most, "safe", "none"),
]
"""For these two members have to die with what only they have; chaos seldom finds it."""

MUTANTS = [
    Mutant(majority_not_needed, "quorum", "partition"),
    Mutant(base_ignored, "virtual_synchrony", "mild", 12),
    Mutant(cut_of_a_newcomer_wrong, "no_creation", "mild"),
    Mutant(leaver_departs_early, "validity", "mild", 1),
    Mutant(history_forgotten_too_early, "progress", "loss"),
    Mutant(place_not_taken_over, "total_order", "mild"),
    Mutant(gaps_never_asked_for, "progress", "loss"),
    Mutant(nobody_stands, "progress", "partition", 13),
    Mutant(state_of_another_place, "state", "mild", 1),
    Mutant(two_holders_at_a_time, "total_order", "none", 6),
    Mutant(others_bytes, "no_creation", "none"),
    Mutant(view_without_oneself, "self_inclusion", "none"),
    Mutant(last_first, "fifo", "none"),
    Mutant(view_before_what_was_said, "virtual_synchrony", "mild", 1),
    Mutant(quorum_always_true, "one_place", "chaos", 11),
    Mutant(promise_not_kept, "one_place", "chaos", 11),
    Mutant(safe_at_a_majority, "received_by_all", "chaos"),
]
