"""Leaving: a farewell in the causal order; the leaver goes when the others need nothing from it."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Arm, Effect, Expired, Leave
from unisono.protocols.rmcast.control import Bye, write_control
from unisono.protocols.rmcast.ordering import Ordering
from unisono.protocols.rmcast.packets import MEMBER, AckEntry
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.roster import UNKNOWN, Roster
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.states import Timer


@dataclass(eq=False)
class Leaving:
    """A member from its farewell to its end."""

    _parameters: Parameters
    _roster: Roster
    _ordering: Ordering
    _send_queue: SendQueue

    def __post_init__(self) -> None:
        self._taken = 0
        """How much of our stream the others had received when we last looked."""
        self._answers: dict[int, dict[int, AckEntry]] = {}
        """By member, its first header that acknowledges the farewell."""

    def start(self, event: Leave, out: list[Effect]) -> None:
        """The farewell is the last message of our stream. We deliver what is multicast by members
        that do not know of it yet, and retain what we have, until all have it."""
        self._send_queue.append_farewell(write_control(Bye()))
        self.wait_on(event, out)

    def wait_on(self, event: Leave | Expired, out: list[Effect]) -> None:
        self._taken = self._received_by_others()
        out.append(Arm(Timer.LEAVE, self._parameters.leave_us))

    def _received_by_others(self) -> int:
        key = self._roster.key
        return sum(peer.row.get(key, UNKNOWN).received for peer in self._roster.others())

    def others_progress(self, event: Expired) -> bool:
        """The others have received more since we last looked."""
        return self._received_by_others() > self._taken

    def note_answers(self) -> None:
        """The first header of a member that has our farewell lists what it delivered before it."""
        key, farewell = self._roster.key, self._send_queue.farewell
        for peer in self._roster.others():
            if peer.key not in self._answers and peer.row.get(key, UNKNOWN).delivered >= farewell:
                self._answers[peer.key] = peer.row

    def is_handed_over(self, event: object) -> bool:
        """Every member has our farewell; what any delivered without knowing of it is delivered
        here; and what we delivered is delivered by all, other leavers included."""
        roster = self._roster
        others, leavers = roster.others(), roster.leavers
        if roster.unsettled() or any(peer.key not in self._answers for peer in others):
            return False
        theirs = [*(self._answers[p.key] for p in others), *(p.row for p in leavers)]
        for key, stream in roster.peers.items():
            target = max((row.get(key, UNKNOWN).delivered for row in theirs), default=0)
            if stream.delivered < target and not self._ordering.is_over(stream):
                return False
            has_ended = stream.status is not MEMBER
            for peer in (*others, *leavers):
                entry = peer.row.get(key)
                if entry is None and has_ended:
                    continue  # It has settled and forgotten it.
                if entry is None or entry.delivered < stream.delivered:
                    return False
        return True
