"""The changes of the group in the order, and the views that follow from them [RMP §2.1]."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from unisono.core import Answer, Cause, Effect, Reach, Request
from unisono.model import Change, ChangeKind, Member, View
from unisono.parts.codec import PacketCodec
from unisono.parts.identity import key_of
from unisono.parts.locks import LockAnswers
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.group_state import (
    AddMember,
    Applied,
    ChangeRequest,
    MemberRequest,
    RemoveMember,
    RenewTrid,
)
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.requests import REQUESTS, read_request, write_request
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.send_queue import SendQueue
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import TokenRing
from unisono.requests import AcquireLock, ReleaseLock


class Membership:
    """The group's state at one site, as the order changes it."""

    def __init__(
        self,
        state: TokenRing,
        codec: PacketCodec,
        sources: Sources,
        queue: OrderingQueue,
        resilience: Resilience[Any],
        delivery: OrderedDelivery,
        send_queue: SendQueue,
        welcome: Callable[[int, Member, int, list[Effect]], None],
    ) -> None:
        self._state = state
        self._codec = codec
        self._sources = sources
        self._queue = queue
        self._resilience = resilience
        self._delivery = delivery
        self._send_queue = send_queue
        self._welcome = welcome
        self._requests: deque[Request] = deque()
        """Those of our application that are not applied yet."""
        self._lock_answers = LockAnswers(state.me)
        self.removed_at: int | None = None
        """The timestamp at which we left."""

    # -- in the order -----------------------------------------------------------------------------

    def apply(self, source: int, data: bytes, timestamp: int, out: list[Effect]) -> None:
        """A request of this site whose slot is reached."""
        request = read_request(data)
        if request is None or not self._may_request(source, request):
            self._codec.drop("malformed")
        else:
            self._change(source, request, timestamp, out)

    def _may_request(self, source: int, request: ChangeRequest) -> bool:
        """The first site admits and renews; the rest is asked for by whom it concerns."""
        if isinstance(request, AddMember):
            is_its_own = request.key == key_of(request.entry.member)
            return is_its_own and self._state.token_list[:1] == (source,)
        if isinstance(request, RenewTrid):
            return self._state.token_list[:1] == (source,)
        return source == request.key

    def _change(
        self, source: int, request: ChangeRequest, timestamp: int, out: list[Effect]
    ) -> None:
        state = self._state
        before = state.group
        applied = before.applied(request)
        state.change(applied.state, timestamp)
        joined: tuple[Member, ...] = ()
        left: tuple[Member, ...] = ()
        if isinstance(request, AddMember) and applied.changes:
            joined = (request.entry.member,)
            self._sources.add(request.key, request.entry.member)
            self._resilience.add(request.key, timestamp)
        elif isinstance(request, RemoveMember) and applied.changes:
            left = (before.entries[request.key].member,)
            self._resilience.remove(request.key, state.now_us)
            if request.key == state.key:
                self.removed_at = timestamp
                state.show_change(timestamp)
                self._delivery.close()
                return
        elif isinstance(request, RenewTrid) and not state.announce_trid(request.trid, timestamp):
            self._codec.drop("malformed")
        if applied.changes:
            self._show(timestamp, joined, left, applied.changes)
        if joined and source == state.key:
            self._welcome(key_of(joined[0]), joined[0], timestamp, out)
        if state.group.hops != before.hops:
            self._delivery.follow(Reach(state.group.hops))
        self._answer(source, request, applied)

    def _show(
        self,
        timestamp: int,
        joined: tuple[Member, ...],
        left: tuple[Member, ...],
        changes: Iterable[Change],
    ) -> None:
        """[RMP-8] What happened, as a view at this place of the order."""
        state = self._state
        state.show_change(timestamp)
        view = View(
            state.group.members(),
            state.view_id(timestamp),
            joined,
            left,
            seq=self._delivery.place,
            changes=tuple(each for change in changes for each in change.seen_by(state.me)),
        )
        self._delivery.install(view, timestamp)

    def has_left(self) -> bool:
        """Whether its removal is in the order for good: an ACK that nobody got removes nobody."""
        return self.removed_at is not None and self.removed_at <= self._state.decided

    # -- requests of the application --------------------------------------------------------------

    def request(self, event: Request) -> None:
        """It travels in the order, and is answered there."""
        command = event.what
        if not isinstance(command, REQUESTS) or not self._state.trid or self._state.leaving:
            text = "this member is not in the group, or leaves it"
            self._delivery.follow(Answer(command.NAME, Cause.REFUSED, text, event.key))
            return
        self._requests.append(event)
        self._send_queue.request(write_request(MemberRequest(self._state.key, command)))

    def _answer(self, source: int, request: ChangeRequest, applied: Applied) -> None:
        """Requests of one member are applied in the order in which it made them."""
        if not isinstance(request, MemberRequest) or source != self._state.key:
            answers = self._lock_answers.to_waiting(applied.locks)
        else:
            what, key = request.what, self._requests.popleft().key
            if isinstance(what, (AcquireLock, ReleaseLock)):
                locks = applied.state.locks
                answers = self._lock_answers.to_own(what, key, applied.locks, locks)
            else:
                cause = Cause.REFUSED if applied.denied else None
                answers = [Answer(what.NAME, cause, applied.denied, key)]
        for answer in answers:
            self._delivery.follow(answer)

    # -- epochs -----------------------------------------------------------------------------------

    def begin_epoch(self, new_list: NewList, out: list[Effect]) -> None:
        """[RMP-11] What the reformation decided: its leftovers, then the recovery, as one view."""
        state = self._state
        before = state.group
        slots = new_list.sync
        # Deviates [RMP §3 order]: what survivors hold of the lost follows the synchronization point
        # before the view. The paper drops what no ACK had named.
        for source, ranges in new_list.leftovers:
            ordered = self._queue.ordered.get(source, 0)
            found = self._sources.leftover(source, ranges, ordered, new_list.sync)
            self._delivery.messages(found, ordered=True)
            slots += sum(last - first + 1 for first, last in ranges)
        base = slots + 1
        applied = before.reformed(new_list.members)
        state.reform(new_list, applied.state, base)
        for key in before.entries.keys() - state.group.entries.keys():
            self._sources.remove(key)
        self._queue.begin(new_list.sync, base, new_list.members[0])
        self._resilience.begin(new_list.members, 0)
        gone = tuple(m for m in before.members() if m not in state.group.members())
        # A part that goes on by its votes, without a quorum, counts on its own from here.
        parted = () if new_list.primary else (Change(ChangeKind.PARTED),)
        self._show(base, (), gone, (*applied.changes, *parted))
        for answer in self._lock_answers.to_waiting(applied.locks):
            self._delivery.follow(answer)

    def leave(self) -> None:
        self._send_queue.request(write_request(RemoveMember(self._state.key)))
