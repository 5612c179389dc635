"""What goes to the application, in its order: turns, views, and the places where state is taken.

A reader that is slow, or a newcomer that waits for the state, holds it up; the ring goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from unisono.core import Capture, Deliver, Effect, Install
from unisono.model import Change, ChangeKind, Member, View, changes_of
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.protocols.ring.ordering import Heard, Ordering
from unisono.protocols.ring.packets import NO_VERSION
from unisono.protocols.ring.ring import Ring


class StateMark(NamedTuple):
    """Here the application's state is taken, for those who join in this version."""

    version: object


class DeliveryQueue:
    """QCMT, up to the door."""

    def __init__(self, me: Member) -> None:
        self._me = me
        self._items: deque[Heard | View | StateMark] = deque()
        self.octets = 0
        """Of payload that waits."""
        self._shown: tuple[Member, ...] = ()
        self._version = NO_VERSION
        """Of the ring that the application saw last, or will."""
        self.has_view = False
        """The application has seen one, or will."""

    def __len__(self) -> int:
        return len(self._items)

    def hear(self, heard: Heard) -> None:
        self._items.append(heard)
        self.octets += heard.octets + 32 * heard.count

    def marks(self) -> dict[Member, int]:
        """By sender, its last message that waits here: it may be on no ring any more."""
        waiting = (item for item in self._items if isinstance(item, Heard))
        spans = (span for each in waiting for span in each.spans)
        return {span.sender: span.number + span.times - 1 for span in spans}

    def change(self, ring: Ring, captures: bool, former: Sequence[Ring] = ()) -> None:
        """[RNG-16] The ring, delivered as a membership message that says who is new. Of the
        former ones that led to it and were not shown, some may have been formed by the operator's
        word. A founding that was never heard to be in force is shown: places count from there."""
        for founding in former[:1] if not self.has_view else ():
            if len(founding.chain) == 1 and self._me in founding.members:
                self.change(founding, False)
        parted = [each for each in (*former, ring) if each.parted and each.version > self._version]
        members = ring.members
        before = set(self._shown)
        first = not self.has_view
        known = (*ring.seats, *ring.absent) if first else ()
        joined = tuple(seat.member for seat in ring.seats if seat.member not in before)
        left = tuple(member for member in self._shown if member not in members)
        absent = {seat.member for seat in ring.absent}
        went = [member for member in left if member not in absent]
        failed = [member for member in left if member in absent]
        cut = tuple((seat.member, seat.local) for seat in known if seat.local)
        changes = changes_of(self._me, joined, went, failed, first and len(ring.chain) == 1)
        if parted or (first and ring.trunk > NO_VERSION):
            # A newcomer to a part is told too: the one that was let go on may die untold.
            changes = (*changes, Change(ChangeKind.PARTED))
        view = View(
            members,
            id=str(ring.version),
            joined=joined,
            left=left,
            seq=ring.place,
            cut=cut,
            detail=f"{len(members)} of {ring.size}",
            changes=changes,
        )
        if parted:
            self._part(ring, min(each.known for each in parted))
        self._shown, self._version = members, ring.version
        self.has_view = True
        self._items.append(view)
        if captures:
            self._items.append(StateMark(ring.version))

    def _part(self, ring: Ring, known: int) -> None:
        """[RNG-13] What asks to be safe and is not known to be with all of the view before, of whom
        some are not here, cannot be safe in it. Those who were let go on hear it, and all behind
        it, in a transitional view of their own: with them it is safe."""
        for at, item in enumerate(self._items):
            if isinstance(item, Heard) and item.safe and item.s > known:
                stayed = tuple(member for member in self._shown if member in ring.members)
                view = View(
                    stayed,
                    id=f"{ring.version}-transitional",
                    seq=item.spans[0].seq - 1,
                    transitional=True,
                    stayed=stayed,
                )
                self._items.insert(at, view)
                return

    def begin_again(self) -> None:
        """Nothing was delivered yet, and a later state will come."""
        self._items.clear()
        self.octets = 0
        self._shown, self._version = (), NO_VERSION
        self.has_view = False

    def pump(self, ordering: Ordering, out: list[Effect]) -> None:
        """Deliver what may be delivered."""
        items = self._items
        spans: list[MessageRun] = []
        while items:
            item = items[0]
            if isinstance(item, Heard):
                if (item.safe or item.others) and not ordering.may_deliver(item):
                    break
                spans += item.spans
                self.octets -= item.octets + 32 * item.count
            else:
                if spans:
                    out.append(Deliver(MessageRuns(spans)))
                    spans = []
                out.append(Install(item) if isinstance(item, View) else Capture(item.version))
            items.popleft()
        if spans:
            out.append(Deliver(MessageRuns(spans)))
