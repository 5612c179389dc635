"""A member of the sequencer protocol.

Members submit their messages to the sequencer, which puts them into one order and sends them to
all; a view is an entry of the same order. When the sequencer is lost, every member stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from unisono.core import Congested, CoreConfig, Deliver, Effect, Event, Multicast
from unisono.fsa import Arrow, Machine, always
from unisono.model import Member, Service, View
from unisono.parts import central_membership
from unisono.parts.admission import Terms
from unisono.parts.central_membership import INSIDE, MEMBER, CentralMembership, central_figure
from unisono.parts.options import checked
from unisono.parts.packet_set import PacketSet

PACKETS: Final = PacketSet(200, *central_membership.PACKETS)
DEFAULTS: Final = {"sequencer": 0, "detect_us": 1_000_000, "members_count_max": 32}
BOUNDS: Final = {
    "sequencer": (0, 1),
    "detect_us": (20_000, 3_600_000_000),
    "members_count_max": (1, 256),
}


class Sequencer:
    """One process: the sequencer, or a member that submits to it."""

    def __init__(self, config: CoreConfig) -> None:
        options = checked("sequencer", DEFAULTS, config.options, BOUNDS)
        is_sequencer = bool(options.pop("sequencer"))
        terms = Terms.of(config, "sequencer", options)
        self.me = config.me
        self._group = group = CentralMembership(config, terms, PACKETS, is_sequencer, **options)
        self._links = group.links
        self._machine = Machine(FIGURE, self, group, group.links, group.transfer)
        self._window_bytes_max = config.window_bytes_max
        self._congested = False
        self._sent = 0

    def step(self, now_us: int, event: Event) -> list[Effect]:
        out: list[Effect] = []
        for each in self._group.accepted(now_us, event, out):
            self._machine.fire(each, out)
        if self._machine.state in INSIDE:
            self._order()
            self._deliver(out)
            self._group.transmit(out)
        self._machine.settle(event, out)
        return out

    def multicast(self, event: Multicast, out: list[Effect]) -> None:
        """The sequencer's own messages enter the order at once, others are submitted to it."""
        service = event.service if isinstance(event.service, Service) else Service.AGREED
        for payload in event.messages:
            self._sent += 1
            self._group.append(payload, self._sent, service)

    def _order(self) -> None:
        """At the sequencer: what a member submitted enters the order once all of it is here."""
        for sender, first, payload in self._group.submitted():
            self._group.append(payload, first.number, first.service, sender)

    def _deliver(self, out: list[Effect]) -> None:
        if self._congested:
            return
        for kind, entries in groupby(self._group.entries(), type):
            if kind is View:
                for view in entries:
                    self._group.install(view, out)
            else:
                out.append(Deliver(list(entries)))

    def hold_back(self, event: Congested, out: list[Effect]) -> None:
        self._congested = event.on

    # -- the rest of the contract -----------------------------------------------------------------

    def send_credit(self) -> int:
        if self._machine.state is not MEMBER or self._congested:
            return 0
        return max(0, self._window_bytes_max - self._links.own.nbytes)

    def held(self) -> Mapping[Member, int]:
        return self._group.held()

    @property
    def counts(self) -> dict[str, int]:
        return self._group.codec.counts

    def transition_counts(self) -> Mapping[str, int]:
        return self._machine.walked


FIGURE: Final = central_figure(
    "sequencer",
    PACKETS,
    #     from    on         when    do                   to
    Arrow(MEMBER, Multicast, always, Sequencer.multicast, MEMBER),
    Arrow(INSIDE, Congested, always, Sequencer.hold_back, None),
)
