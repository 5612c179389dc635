"""The end of a member: its last header reports it, so that the others need not detect it."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Cause, Depart, Disarm, Effect, Event, Expired, Fail, Leave, Send
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.packet_builder import PacketBuilder, addresses
from unisono.protocols.rmcast.packets import FAILED, LEFT, Refuse, StreamStatus
from unisono.protocols.rmcast.roster import Roster
from unisono.protocols.rmcast.states import Timer


@dataclass(eq=False)
class Ending:
    """Departs or fails."""

    _roster: Roster
    _builder: PacketBuilder
    _failures: Failures

    def depart(self, event: Event, out: list[Effect]) -> None:
        self._end(LEFT, Depart(), out)

    def abandon(self, event: Leave, out: list[Effect]) -> None:
        """It left before it had the group's state."""
        self._end(FAILED, Depart(), out)

    def stop(self, event: object, out: list[Effect]) -> None:
        """[RMC A3.21] quit(), with a reason for the application."""
        assert self._failures.verdict is not None
        self._end(FAILED, Fail(self._failures.verdict, self._failures.cause), out)

    def give_up(self, packet: Refuse, out: list[Effect]) -> None:
        cause = Cause.SUPERSEDED if packet.known else Cause.REFUSED
        self._end(FAILED, Fail(packet.reason, cause, packet.known), out)

    def go_unanswered(self, event: Expired, out: list[Effect]) -> None:
        self._end(FAILED, Fail("left before the others had taken over", Cause.STOPPED), out)

    def _end(self, how: StreamStatus, last: Effect, out: list[Effect]) -> None:
        if self._roster.key in self._roster.peers:
            to = addresses(self._roster.reporters())
            self._roster.mark(self._roster.mine(), how)
            if to:
                out.append(Send(to, [self._builder.beat()]))
        out.extend(Disarm(timer) for timer in Timer)
        out.append(last)
