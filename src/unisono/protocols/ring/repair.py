"""[RNG-6] Repair in both directions: a gap is asked for, and who is seen to be behind is helped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from unisono.core import Effect, Send
from unisono.model import Member
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packets import (
    RANGE_BYTES,
    WHOLE,
    Control,
    Header,
    Range,
    ResendRequest,
    key_of,
)
from unisono.protocols.ring.turn import Turn
from unisono.wire import Writer

if TYPE_CHECKING:
    from unisono.protocols.ring.core import Site

RESEND_MAX: Final = 128
"""Packets that one request brings; the rest is asked for again."""
TAIL_SHARE: Final = 4
"""So long, as a share of T_RT, may the rest of a turn be on its way: its holder has other work."""
TAIL_TIMES: Final = 4
"""And so many times as long as it usually takes, which is long where many share a processor."""
HELP_MAX: Final = 32
"""Packets that one who is behind is sent without asking."""


class Repair:
    """What one member asks for, and sends again."""

    def __init__(self, core: Site) -> None:
        self._core = core
        self._revealed = 0
        """The key of the one whose turn showed the gap."""
        self._rounds = 0
        self._since_us: int | None = None
        """When the gap was seen that is there, and for which nobody was asked."""
        self._usual_us = core.parameters.t_rt_us // (2 * TAIL_TIMES)
        """How long one is there that closes by itself: mostly the rest of a turn."""
        self._helped: dict[int, tuple[int, int]] = {}
        """By key: up to where it was helped, and when."""
        self._asked: dict[int, int] = {}
        """By key: the last turn of ours that it wanted to have again."""

    def reveal(self, sender: int) -> None:
        self._revealed = sender
        self._rounds = 0

    def look(self, out: list[Effect]) -> None:
        """There is a gap. It may be that the rest is only on its way."""
        core = self._core
        if core.ordering.is_lost():
            self.ask(out)
        else:
            self._since_us = core.now_us
            t_send_us, t_rt_us = core.parameters.t_send_us, core.parameters.t_rt_us
            usual_us = TAIL_TIMES * self._usual_us
            core.arm(Timer.REPAIR, max(t_send_us, t_rt_us // TAIL_SHARE, usual_us), out)

    def look_again(self, out: list[Effect]) -> None:
        """More has come, and the gap is still there: it may now be known to be one."""
        if self._since_us is not None and self._core.ordering.is_lost():
            self.ask(out)

    def closed(self) -> None:
        """The gap is no more."""
        if self._since_us is not None:
            took_us = min(self._core.now_us - self._since_us, self._core.parameters.t_rt_us)
            self._usual_us += (took_us - self._usual_us) // 8
            self._since_us = None

    def stop(self) -> None:
        """Nothing is waited for."""
        self._since_us = None

    def ask(self, out: list[Effect]) -> None:
        """Ask the one whose turn revealed the gap; if that brings nothing, others that have it."""
        core = self._core
        ranges = core.ordering.gaps()
        if not ranges:
            return
        self._rounds += 1
        if self._since_us is not None and not core.ordering.is_lost():  # It may be too early.
            self._usual_us = min(core.parameters.t_rt_us, self._usual_us * 3 // 2)
        self._since_us = None
        target = self._source()
        if target is not None:
            self.ask_of(target, out)
        core.arm(Timer.REPAIR, core.parameters.t_rt_us // 2, out)

    def ask_of(self, target: Member, out: list[Effect]) -> None:
        core = self._core
        core.codec.count("nak")
        most = (core.send_queue.piece_bytes - 2) // RANGE_BYTES
        flat = [value for each in core.ordering.gaps()[:most] for value in each]
        core.to(target, Code.RESEND_RQU, Writer().rows("QHH", 3, flat).done(), out)

    def _source(self) -> Member | None:
        # Deviates [RNG Retransmission]: the paper asks the sender that revealed the gap; it may be
        # dead, so the third time somebody else is asked.
        core = self._core
        revealed = core.ring.member(self._revealed)
        if self._rounds <= 2 and revealed is not None and revealed != core.me:
            return revealed
        next_s = core.ordering.S + 1
        able = [
            seat.member
            for at, seat in enumerate(core.ring.seats)
            if core.ordering.K[at] >= next_s and seat.member != core.me
        ]
        if not able:
            able = [member for member in core.ring.members if member != core.me]
        return able[self._rounds % len(able)] if able else None

    def resend(self, packet: ResendRequest, out: list[Effect]) -> None:
        core = self._core
        member = core.ring.member(packet.header.sender)
        if packet.header.version != core.ring.version or member is None:
            core.codec.drop("version")
            return
        self.send_ranges(member, packet.ranges, out)

    def send_ranges(self, to: Member, ranges: Sequence[Range], out: list[Effect]) -> None:
        core = self._core
        found = core.ordering.pieces(ranges, RESEND_MAX)
        mine = {turn.s for turn, _ in found if turn.holder == core.key and turn.content}
        asked = next((each for each in ranges if each[0] in mine), None)
        if asked is not None and not self._is_late(key_of(to), asked):
            core.send_queue.pace.lost()
        self.send(to, found, out)

    def _is_late(self, key: int, asked: Range) -> bool:
        """Asked for the rest of a turn for the first time: it may have been on its way, for we may
        have been kept from sending it."""
        s, first, last = asked
        before, self._asked[key] = self._asked.get(key, 0), s
        return before != s and first > 0 and last == WHOLE

    def send(self, to: Member, found: list[tuple[Turn, range]], out: list[Effect]) -> None:
        core = self._core
        if not found:
            return
        core.codec.count("repair", sum(len(indices) for _, indices in found))
        for turn, indices in found:
            header = Header(core.version, core.key, turn.holder, 0, turn.s, core.ordering.safe)
            packets = core.turn_packets(Code.RESEND_DATA, header, turn, indices)
            out.append(Send((to.address,), packets))

    def help(self, member: Member, key: int, s: int, out: list[Effect]) -> None:
        """It has turns up to s only: send it what follows, but not the same again at once."""
        core = self._core
        upto = core.ordering.S
        helped, when_us = self._helped.get(key, (0, 0))
        if helped >= upto and core.now_us - when_us < core.parameters.t_rt_us // 2:
            return
        self._helped[key] = (upto, core.now_us)
        first = max(s, core.ordering.window.floor) + 1
        last = min(upto, first + HELP_MAX)
        ranges = [(turn, 0, WHOLE) for turn in range(first, last + 1)]
        self.send(member, core.ordering.pieces(ranges, HELP_MAX), out)

    def say_alive(self, packet: Control, out: list[Effect]) -> None:
        """[TS_ALIVE_RQU] The one who asks is behind, or we are, or we are slow."""
        core = self._core
        key = packet.header.sender
        member = core.ring.member(key)
        if packet.header.version != core.ring.version or member is None:
            core.codec.drop("version")
            return
        if packet.header.s < core.ordering.S:
            self.help(member, key, packet.header.s, out)
        core.to(member, Code.TS_ALIVE_RSP, b"", out)

    def forget(self) -> None:
        self._helped.clear()
        self._asked.clear()
        self._rounds = 0
        self.stop()
