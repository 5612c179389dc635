"""QCMT: messages, views and state requests, in the order in which the application gets them.

A slow reader, or a newcomer that waits for the state, delays them; the ring goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from unisono.core import Capture, Deliver, Effect, Install
from unisono.model import Change, ChangeKind, Member, View, changes_of
from unisono.parts.message_runs import MessageRun, MessageRuns
from unisono.protocols.ring.ordering import Ordering, TurnMessages
from unisono.protocols.ring.packets import NO_VERSION
from unisono.protocols.ring.ring import Ring
from unisono.protocols.ring.state import RingState

BACKLOG_BYTES: Final = 4 << 20
"""A holder whose application lags by more keeps the token until it has caught up."""
MESSAGE_BYTES: Final = 32
"""What a message costs beside its payload."""


class StateMark(NamedTuple):
    """The application is asked for its state here, for the newcomers of this version."""

    version: object


class DeliveryQueue:
    """What waits for the application of one member."""

    def __init__(self, state: RingState, ordering: Ordering) -> None:
        self._state = state
        self._ordering = ordering
        self._items: deque[TurnMessages | View | StateMark] = deque()
        self._nbytes = 0
        """Of payload that waits."""
        self._shown: tuple[Member, ...] = ()
        self._version = NO_VERSION
        """Of the last ring shown to the application, or queued for it."""
        self.has_view = False
        """A view was shown to the application, or is queued for it."""
        self.congested = False
        """The application takes no more for now."""

    def __len__(self) -> int:
        return len(self._items)

    def hold_back(self, on: bool) -> None:
        self.congested = on

    def append(self, messages: TurnMessages) -> None:
        self._items.append(messages)
        self._nbytes += messages.nbytes + MESSAGE_BYTES * messages.count

    def is_far_behind(self) -> bool:
        """The holder keeps the token until its application has caught up, which stops all."""
        blocked = self.congested or not self._state.memory
        return blocked and self._nbytes > BACKLOG_BYTES

    def marks(self) -> dict[Member, int]:
        """By sender, the number of its last message that waits; it may have left the ring."""
        waiting = (item for item in self._items if isinstance(item, TurnMessages))
        runs = (run for each in waiting for run in each.runs)
        return {run.sender: run.number + run.times - 1 for run in runs}

    def change(self, ring: Ring, captures: bool, former: Sequence[Ring] = ()) -> None:
        """[RNG-16] The ring as a view that names the newcomers. Of the former rings, which were not
        shown, some may have been formed by the operator's request. The founding that was not known
        to be in force is shown: sequence numbers count from there."""
        for founding in former if not self.has_view else ():
            if founding.is_founding and self._state.me in founding.members:
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
        changes = changes_of(self._state.me, joined, went, failed, first and ring.is_founding)
        if parted or (first and ring.trunk > NO_VERSION):
            # To newcomers too: the member that was let go on may die before it shows the view.
            changes = (*changes, Change(ChangeKind.PARTED))
        view = View(
            members,
            id=str(ring.version),
            joined=joined,
            left=left,
            seq=ring.seq,
            cut=cut,
            detail=f"{len(members)} of {ring.size}",
            changes=changes,
            founding=str(ring.founding) if first else "",
        )
        if parted:
            self._part(ring, min(each.known for each in parted))
        self._shown, self._version = members, ring.version
        self.has_view = True
        self._items.append(view)
        if captures:
            self._items.append(StateMark(ring.version))

    def _part(self, ring: Ring, known: int) -> None:
        """[RNG-13] A safe message that is not known to be with all of the last view, of which some
        members are missing, cannot be safe in it. It and all behind it are delivered in a
        transitional view of those that remain, all of which have it."""
        for at, item in enumerate(self._items):
            if isinstance(item, TurnMessages) and item.safe and item.s > known:
                stayed = tuple(member for member in self._shown if member in ring.members)
                seq = item.runs[0].seq
                assert seq is not None
                view = View(
                    stayed,
                    id=f"{ring.version}-transitional",
                    seq=seq - 1,
                    transitional=True,
                    stayed=stayed,
                )
                self._items.insert(at, view)
                return

    def start_anew(self) -> None:
        """Nothing was delivered yet, and a later state will arrive."""
        self._items.clear()
        self._nbytes = 0
        self._shown, self._version = (), NO_VERSION
        self.has_view = False

    def deliver(self, out: list[Effect]) -> None:
        """Deliver what may be delivered."""
        items = self._items
        if not items or self.congested or not self._state.memory or not self.has_view:
            return
        runs: list[MessageRun] = []
        while items:
            item = items[0]
            if isinstance(item, TurnMessages):
                if (item.safe or item.others) and not self._ordering.may_deliver(item):
                    break
                runs += item.runs
                self._nbytes -= item.nbytes + MESSAGE_BYTES * item.count
            else:
                if runs:
                    out.append(Deliver(MessageRuns(runs)))
                    runs = []
                out.append(Install(item) if isinstance(item, View) else Capture(item.version))
            items.popleft()
        if runs:
            out.append(Deliver(MessageRuns(runs)))
