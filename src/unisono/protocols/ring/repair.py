"""[RNG-6] Retransmission in both directions: gaps are requested, members that lag are helped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from unisono.core import Effect, Send
from unisono.layout import encode
from unisono.model import Member
from unisono.parts.turn import Turn
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    NO_HEADER,
    RANGE_BYTES,
    WHOLE,
    Header,
    Range,
    ResendRequest,
    key_of,
)
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.send_queue import SendQueue
from unisono.protocols.ring.state import RingState

RESEND_MAX: Final = 128
"""Packets sent for one request; the rest is requested again."""
TAIL_SHARE: Final = 4
"""The rest of a turn may take this share of T_RT: its holder has other work."""
TAIL_TIMES: Final = 4
"""And this many times as long as usual, which is long where many share a processor."""
HELP_MAX: Final = 32
"""Packets sent to a member that lags, without a request."""


@dataclass(eq=False)
class Repair:
    """What one member requests, and retransmits."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _ordering: Ordering
    _send_queue: SendQueue
    _builder: PacketBuilder

    def __post_init__(self) -> None:
        self._revealed = 0
        """The key of the member whose turn revealed the gap."""
        self._rounds = 0
        self._since_us: int | None = None
        """When the present gap was seen, if it has not been requested."""
        self._usual_us = self._parameters.t_rt_us // (2 * TAIL_TIMES)
        """How long a gap lasts that closes by itself: mostly the rest of a turn."""
        self._helped: dict[int, tuple[int, int]] = {}
        """By key: up to where it was helped, and when."""
        self._requested: dict[int, int] = {}
        """By key: the last turn of ours that it requested."""

    # -- requests --------------------------------------------------------------------------------

    def note_revealed(self, sender: int) -> None:
        self._revealed = sender
        self._rounds = 0

    def watch_gap(self, event: object, out: list[Effect]) -> None:
        """A gap appeared. The rest may only be on its way."""
        if self._ordering.is_lost():
            self.request(None, out)
        else:
            agenda, parameters = self._agenda, self._parameters
            self._since_us = agenda.now_us
            tail_us = max(parameters.t_rt_us // TAIL_SHARE, TAIL_TIMES * self._usual_us)
            agenda.arm(Timer.REPAIR, max(parameters.t_send_us, tail_us), out)

    def check_gap(self, out: list[Effect]) -> None:
        """More arrived, and the gap is still open: is it known to be a loss now?"""
        if self._since_us is not None and self._ordering.is_lost():
            self.request(None, out)

    def gap_closed(self, event: object, out: list[Effect]) -> None:
        if self._since_us is not None:
            took_us = min(self._agenda.now_us - self._since_us, self._parameters.t_rt_us)
            self._usual_us += (took_us - self._usual_us) // 8
            self._since_us = None

    def stop(self) -> None:
        self._since_us = None

    def new_ring(self) -> None:
        self._helped.clear()
        self._requested.clear()
        self._rounds = 0
        self.stop()

    def request(self, event: object, out: list[Effect]) -> None:
        """Request what is missing from the member that revealed it, then from others."""
        if not self._ordering.gaps():
            return
        self._rounds += 1
        t_rt_us = self._parameters.t_rt_us
        if self._since_us is not None and not self._ordering.is_lost():  # Perhaps too early.
            self._usual_us = min(t_rt_us, self._usual_us * 3 // 2)
        self._since_us = None
        source = self._source()
        if source is not None:
            self.request_from(source, out)
        self._agenda.arm(Timer.REPAIR, t_rt_us // 2, out)

    def request_from(self, member: Member, out: list[Effect]) -> None:
        self._builder.count("nak")
        most = (self._send_queue.piece_bytes - 2) // RANGE_BYTES
        request = ResendRequest(NO_HEADER, tuple(self._ordering.gaps()[:most]))
        self._builder.to(member, Code.RESEND_RQU, encode(request), out)

    def _source(self) -> Member | None:
        # Deviates [RNG Retransmission]: the paper asks the sender that revealed the gap; it may be
        # dead, so the third request goes to another member.
        ring, me, ordering = self._state.ring, self._state.me, self._ordering
        revealed = ring.member(self._revealed)
        if self._rounds <= 2 and revealed is not None and revealed != me:
            return revealed
        next_s = ordering.S + 1
        able = [
            seat.member
            for at, seat in enumerate(ring.seats)
            if ordering.K[at] >= next_s and seat.member != me
        ]
        if not able:
            able = [member for member in ring.members if member != me]
        return able[self._rounds % len(able)] if able else None

    # -- retransmission --------------------------------------------------------------------------

    def send_ranges(self, to: Member, ranges: Sequence[Range], out: list[Effect]) -> None:
        """What was requested, as far as it is here."""
        found = self._ordering.pieces(ranges, RESEND_MAX)
        mine = {turn.s for turn, _ in found if turn.holder == self._state.key and turn.content}
        lost = next((each for each in ranges if each[0] in mine), None)
        if lost is not None and not self._is_late(key_of(to), lost):
            self._send_queue.pace.note_lost()
        self._send(to, found, out)

    def _is_late(self, key: int, requested: Range) -> bool:
        """The first request for the rest of a turn: it may have been delayed by ourselves."""
        s, first, last = requested
        before, self._requested[key] = self._requested.get(key, 0), s
        return before != s and first > 0 and last == WHOLE

    def help(self, member: Member, key: int, s: int, out: list[Effect]) -> None:
        """Send a member that has turns up to s what follows, but not twice in a row."""
        ordering, now_us = self._ordering, self._agenda.now_us
        upto = ordering.S
        helped, when_us = self._helped.get(key, (0, 0))
        if helped >= upto and now_us - when_us < self._parameters.t_rt_us // 2:
            return
        self._helped[key] = (upto, now_us)
        first = max(s, ordering.window.floor) + 1
        last = min(upto, first + HELP_MAX)
        ranges = [(turn, 0, WHOLE) for turn in range(first, last + 1)]
        self._send(member, ordering.pieces(ranges, HELP_MAX), out)

    def _send(self, to: Member, found: list[tuple[Turn, range]], out: list[Effect]) -> None:
        if not found:
            return
        self._builder.count("repair", sum(len(indices) for _, indices in found))
        state, safe = self._state, self._ordering.safe
        for turn, indices in found:
            header = Header(state.version, state.key, turn.holder, 0, turn.s, safe)
            packets = self._builder.turn(Code.RESEND_DATA, header, turn, indices)
            out.append(Send((to.address,), packets))
