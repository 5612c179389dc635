"""Token passing: the site with the token orders what has arrived, and passes it on in the ACK.

[RMP-1, 2, 4] Normal operation, as the figure `token` has it.
"""

from __future__ import annotations

from typing import Any

from unisono.core import Effect
from unisono.model import ServiceLevel, is_ordered
from unisono.protocols.rmp.admitting import AdmittingSite
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.group_state import RemoveMember
from unisono.protocols.rmp.ordering import OrderingQueue, TokenAck, next_ack, successor
from unisono.protocols.rmp.packets import AckFields, PacketKind, TokenAccepted
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.requests import read_request
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import Outgoing, Timer, TokenRing

ORDER_COUNT_MAX = 1024
"""Blocks that one ACK names."""


class TokenRotation:
    """One site's part in the rotation of the token."""

    def __init__(
        self,
        parameters: Parameters,
        state: TokenRing,
        outgoing: Outgoing,
        sources: Sources,
        queue: OrderingQueue,
        resilience: Resilience[Any],
        sponsor: AdmittingSite,
        delivery: OrderedDelivery,
    ) -> None:
        self._parameters = parameters
        self._state = state
        self._outgoing = outgoing
        self._sources = sources
        self._queue = queue
        self._resilience = resilience
        self._sponsor = sponsor
        self._delivery = delivery
        self._passing: TokenAck | None = None
        """Our ACK, until its token is accepted."""
        self._is_confirmed = False
        """The next site has sent word that it accepted it."""
        self._accepted_us = 0
        self._rests = False
        """The token is here, and nothing had arrived when it came."""
        self._is_hurried = False
        """What has arrived is ordered in the next step."""

    # -- when -------------------------------------------------------------------------------------

    def holder(self) -> int:
        latest = self._queue.latest
        return self._state.first_holder if latest is None else latest.next_site

    def is_named(self, event: object) -> bool:
        return not self._state.frozen and self.holder() == self._state.key

    def may_accept(self, event: object) -> bool:
        """[RMP-2] Every slot up to the ACK that passes it is filled."""
        return self.is_named(event) and not self._queue.has_gap()

    def can_order(self, event: object) -> bool:
        if self._state.frozen or not self._state.trid:
            return False
        # What was delivered on arrival, here and at its source, is ordered in a step of its own.
        is_new = self._accepted_us == self._state.now_us
        if self._sources.arrived and (self._sources.is_urgent or is_new):
            return True
        return self._sponsor.has_candidate()

    def is_awaited(self, event: object) -> bool:
        """Somebody waits for what our ACK proves, and nothing was ordered lately that another such
        message might follow: in a busy group the ACK names what comes next."""
        state, queue, resilience = self._state, self._queue, self._resilience
        if state.frozen or not state.trid or not (resilience.waits() or self._is_change_open()):
            return False
        proved = resilience.has_proved(state.key, queue.named)
        return not proved and resilience.known() >= queue.named_before

    def _is_change_open(self) -> bool:
        """Whether too few are known to hold the last change: somebody may not show it yet."""
        state = self._state
        unstable = state.changed > state.stable
        return unstable and not self._resilience.is_decided(state.changed, state.quorums)

    def was_accepted(self, event: object) -> bool:
        """By the next site's own ACK, or by its word."""
        mine, latest = self._passing, self._queue.latest
        if mine is None or latest is None or self._state.frozen:
            return True
        return (
            latest.timestamp > mine.timestamp
            or self._is_confirmed
            or mine.next_site == self._state.key
        )

    def is_frozen(self, event: object) -> bool:
        return self._state.frozen

    def may_wait(self, service: ServiceLevel) -> bool:
        """Whether what comes now, or is sent at this level, needs no order in this step."""
        if self.holder() != self._state.key:
            return True
        return self._rests and not self._sources.is_urgent and not is_ordered(service)

    # -- do ---------------------------------------------------------------------------------------

    def wait_for_slots(self, event: object, out: list[Effect]) -> None:
        """[RMP-3] The token waits here for what is missing: it is asked for at once."""

    def order_next(self, out: list[Effect]) -> None:
        """At the end of a step of the token site: what has arrived is ordered in the next."""
        if self._rests and not self._is_hurried and not self._state.frozen:
            self._is_hurried = True
            self._outgoing.arm(Timer.TOKEN, 0, out)

    def accept(self, event: object, out: list[Effect]) -> None:
        self._accepted_us, self._rests, self._is_hurried = self._state.now_us, True, False
        latest = self._queue.latest
        quiet = not self._sources.arrived and not self.is_awaited(event)
        if latest is not None and latest.site != self._state.key and quiet:
            to = self._state.address(latest.site)
            if to is not None:
                # Deviates [RMP §1 confirmation]: a site with nothing to order confirms the token.
                # The paper's waits for the next ACK.
                record = TokenAccepted(self._state.key, latest.timestamp)
                self._outgoing.send(PacketKind.CONFIRM, record, out, (to,))
        # Deviates [RMP §1 NULL ACK]: once every site holds what was ordered, the token rests for
        # `idle_us` at each site; while somebody waits for resilience, see `is_awaited`, it does not
        # rest. The paper has one time-out.
        alone = len(self._state.token_list) <= 1
        settled = alone or self._resilience.needed() >= self._queue.named
        rest_us = self._parameters.idle_us if settled else self._parameters.pass_us
        self._outgoing.arm(Timer.TOKEN, rest_us, out)

    def acknowledge(self, event: object, out: list[Effect]) -> None:
        """Order what has arrived; with nothing it is a NULL ACK."""
        state, self._rests = self._state, False
        self._outgoing.disarm(Timer.TOKEN, out)
        self._sponsor.admit(out)
        ack = next_ack(
            state.key,
            self._queue,
            self._sources.arrived,
            state.token_list,
            ORDER_COUNT_MAX,
            self._sources.has_request,
        )
        ack = ack._replace(
            next_site=successor(state.key, self._list_after(ack)),
            consumed=self._delivery.consumed(ack.end),  # What it names is here, and delivered now.
        )
        self._passing, self._is_confirmed = ack, False
        self._queue.put(ack)
        self._outgoing.send(PacketKind.ACK, AckFields.of(state.key, ack), out)
        if ack.next_site != state.key:
            self._outgoing.arm(
                Timer.PASS, self._parameters.period_within(self._state.group.hops), out
            )

    def _list_after(self, ack: TokenAck) -> tuple[int, ...]:
        """The token list without the site whose leave this ACK orders: it may be gone at once."""
        ring = self._state.token_list
        requests = (
            self._sources.requests(ack.named[-1].source, ack.named[-1].last) if ack.named else []
        )
        for request in map(read_request, requests):
            if isinstance(request, RemoveMember) and len(ring) > 1:
                ring = tuple(site for site in ring if site != request.key)
        return ring

    def repeat(self, event: object, out: list[Effect]) -> None:
        """The next site has not accepted it: it may have missed the ACK."""
        if self._passing is not None:
            record = AckFields.of(self._state.key, self._passing)
            self._outgoing.send(PacketKind.ACK, record, out)
            self._outgoing.arm(
                Timer.PASS, self._parameters.period_within(self._state.group.hops), out
            )

    def confirm(self, packet: TokenAccepted, out: list[Effect]) -> None:
        mine = self._passing
        if mine is not None and packet == (mine.next_site, mine.timestamp):
            self._is_confirmed = True

    def passed(self, event: object, out: list[Effect]) -> None:
        self._passing = None
        self._outgoing.disarm(Timer.PASS, out)

    def stop(self, event: object, out: list[Effect]) -> None:
        """A reformation begins: nothing more is ordered."""
        self._passing, self._rests = None, False
        self._outgoing.disarm(Timer.PASS, out)
        self._outgoing.disarm(Timer.TOKEN, out)

    def show_latest(self, out: list[Effect]) -> None:
        """The token does not move: whoever it was passed to may have missed the ACK."""
        if self._queue.latest is not None:
            record = AckFields.of(self._state.key, self._queue.latest)
            self._outgoing.send(PacketKind.ACK, record, out)
