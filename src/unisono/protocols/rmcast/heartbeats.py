"""Algorithm 2: every member gets a packet from us each heartbeat; quiet ones are probed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unisono.core import Arm, Effect, Expired, Probe, Send
from unisono.model import Address
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.packet_builder import PacketBuilder, addresses
from unisono.protocols.rmcast.packets import additions, key_of
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.repair import Repair
from unisono.protocols.rmcast.roster import Roster
from unisono.protocols.rmcast.send_queue import REPORT_BYTES
from unisono.protocols.rmcast.states import Timer


@dataclass(eq=False)
class Heartbeats:
    """Heartbeats, probes and early reports."""

    _parameters: Parameters
    _roster: Roster
    _builder: PacketBuilder
    _failures: Failures
    _repair: Repair
    _clock: CoreClock
    _withholds: Callable[[], bool]
    """Whether nothing can be delivered for now."""
    _ticks: Sequence[Callable[[list[Effect]], None]]
    """Called once a heartbeat."""

    def __post_init__(self) -> None:
        self._probing = False

    def beat(self, event: Expired, out: list[Effect]) -> None:
        """Remove silent members. Those that got no packet lately get a heartbeat, with every
        request that is open."""
        out.append(Arm(Timer.BEAT, self._parameters.beat_us))
        self._failures.look()
        now_us = self._clock.now_us
        due_us = now_us - self._parameters.beat_us // 2
        peers = [peer for peer in self._roster.others() if peer.sent_us <= due_us]
        leavers, coming = self._roster.leavers, self._coming()
        asks, rounds = self._repair.open_requests()
        if peers or leavers or coming:
            for peer in peers:
                peer.sent_us, peer.unreported = now_us, 0
            to = (*addresses((*peers, *leavers)), *coming)
            out.append(Send(to, self._builder.beats_with(asks, rounds)))
        for tick in self._ticks:
            tick(out)
        if not self._probing:
            self._probe(out)

    def _coming(self) -> list[Address]:
        """While nothing can be delivered, an addition waits in its stream, but the newcomer counts
        us as a member already: without a packet from us it would suspect us."""
        if not self._withholds():
            return []
        peers, tombs = self._roster.peers, self._roster.tombs
        named = [member for peer in peers.values() for member in additions(peer.undelivered())]
        return [each.address for each in named if key_of(each) not in {*peers, *tombs}]

    def probe(self, event: Expired, out: list[Effect]) -> None:
        self._probe(out)

    def _probe(self, out: list[Effect]) -> None:
        """Probe quiet members often: each pair must receive from each other, and with packet loss a
        few heartbeats in a row are lost too."""
        # Deviates [RMC A2.4]: the paper removes a member that did not send in time.
        quiet = self._failures.quiet()
        self._probing = bool(quiet)
        if quiet:
            out.append(Arm(Timer.PROBE, self._parameters.ask_us))
            to = addresses(quiet)
            out.append(Probe(to))
            out.append(Send(to, [self._builder.beat(probes=True)]))

    def report(self, out: list[Effect]) -> None:
        """A member that sends much gets a report before the next heartbeat: its flight may be
        full."""
        peers = [p for p in self._roster.peers.values() if p.unreported >= REPORT_BYTES]
        if peers:
            for peer in peers:
                peer.unreported = 0
            out.append(Send(addresses(peers), [self._builder.beat()]))
