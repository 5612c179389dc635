"""How long the token rests, when it is passed early, and what a lone message changes.

Pure: it is given the turns in order and the numbers of the ring, and knows no other part.
"""

from __future__ import annotations

from typing import Final

from unisono.model import Member
from unisono.parts.turn import Turn
from unisono.protocols.ring.packets import Flag
from unisono.protocols.ring.ring import Ring

REST_STEPS: Final = 4
"""How often T_SEND is doubled where the token rests, before the first idle round."""
LONE_TIMES: Final = 2
"""A message after this many T_SEND of silence is a lone one."""


class TokenPolicy:
    """What the turns so far imply for the next one: the same at all members that have them."""

    __slots__ = (
        "_ack_turn",
        "_idle_us",
        "_last_sender",
        "_lone",
        "_passed",
        "_quiet",
        "_safe_turn",
        "_sent_us",
        "_t_send_us",
        "idle",
    )

    def __init__(self, t_send_us: int, idle_us: int) -> None:
        self._t_send_us = t_send_us
        self._idle_us = idle_us
        self.idle = 0
        """Empty turns in a row."""
        self._quiet = 0
        """Turns in a row that carried all that their holders had to send."""
        self._last_sender: Member | None = None
        """The originator of the last message in the order: the token rests there."""
        self._sent_us = 0
        """When the last turn with messages arrived."""
        self._lone = False
        """That turn was a lone message."""
        self._safe_turn = 0
        """The last turn with a safe message."""
        self._ack_turn = 0
        """The last turn that all were to acknowledge to its next holder."""
        self._passed = 0
        """The last turn that this member passed early."""

    def new_ring(self) -> None:
        """Newcomers do not know the last sender, so the token rests nowhere yet."""
        self._last_sender = None
        self._lone = False
        self._passed = self._safe_turn = self._ack_turn = 0

    def start(self, members: int) -> None:
        """The ring starts, or continues after an attempt to reform it."""
        self.idle = 0
        self._quiet = members

    def note(self, turn: Turn, now_us: int) -> None:
        """The next turn in order."""
        flags = turn.flags
        if not flags and not turn.content:  # As nearly all are, of an idle ring.
            self.idle += 1
            self._quiet += 1
            return
        if turn.content or flags & Flag.WANTED:
            self.idle = 0
            self._sent_us = now_us
            self._lone = bool(flags & Flag.LONE)
        else:
            self.idle += 1
        self._quiet = 0 if flags & Flag.WANTED else self._quiet + 1
        if flags & Flag.SAFE:
            self._safe_turn = turn.s
        if flags & Flag.ACK:
            self._ack_turn = turn.s

    def note_sender(self, member: Member) -> None:
        self._last_sender = member

    def note_passed(self, s: int) -> None:
        """This member passed turn s early."""
        self._passed = max(self._passed, s)

    def was_passed(self, s: int) -> bool:
        """The turn after s was passed early before the ring stopped: others may have it, so it
        stays NULL."""
        return self._passed > s

    def is_wanted(self, members: int) -> bool:
        """In the last round a member had more to send than its turn could carry."""
        return self._quiet < members > 1

    def is_lone(self, now_us: int) -> bool:
        """A message sent now follows a silence."""
        return now_us - self._sent_us > LONE_TIMES * self._t_send_us

    def awaits_acks(self, s: int, safe: int) -> bool:
        """[RNG-8] The holder of turn s + 1 is being sent acks: its turn will report k to all."""
        return self._ack_turn == s and safe < s

    def is_acked_turn(self, s: int) -> bool:
        return self._ack_turn == s

    def wait_us(self, ring: Ring, s: int) -> int:
        """How long the holder of turn s + 1 waits if it has nothing to send.

        Not at all for a round after a message, so that the holder learns what all have, and for two
        after a safe one, so that all learn it. After a lone message the first NULL waits half of
        T_SEND: nobody needs the token, and a NULL would wake members that still deliver. Then the
        token rests with the last sender, which is likely to send again: each round twice as long,
        up to `idle_us`.
        """
        # Deviates [RNG T_SEND]: the paper always waits T_SEND, and admits that NULL messages waste
        # the network. Here an idle ring slows down step by step, and any request wakes it.
        count, idle = len(ring.seats), self.idle
        if self._safe_turn + count > s:
            return 0
        if idle < count - 1:
            return self._t_send_us // 2 if self._lone and not idle else 0
        steps = max(0, idle // count - 1)
        if self._last_sender is not None:
            if self._last_sender != ring.members[ring.holder(s)]:
                return 0
            steps += REST_STEPS
        return min(self._idle_us, self._t_send_us << min(steps, 30))
