"""[RMP-16] Renews the ring's identifier while traffic flows.

The order announces the new identifier, and from that slot on a site takes packets with either. It
sends with the new one once it knows that every site holds that slot. So no packet is lost to it.
"""

from __future__ import annotations

from random import Random

from unisono.protocols.rmp.group_state import RenewTrid
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.requests import write_request
from unisono.protocols.rmp.send_queue import SendQueue
from unisono.protocols.rmp.state import TokenRing


class TridRenewal:
    """The first site's clock for the ring's identifier."""

    def __init__(
        self, parameters: Parameters, state: TokenRing, send_queue: SendQueue, random: Random
    ) -> None:
        self._renew_us = parameters.renew_us
        self._state = state
        self._send_queue = send_queue
        self._random = random
        self._seen: tuple[int, ...] = ()
        self._since_us = 0

    def ask_if_due(self) -> None:
        """Called now and then."""
        state = self._state
        if state.trids != self._seen:
            self._seen, self._since_us = state.trids, state.now_us
        if state.token_list[:1] != (state.key,) or state.frozen or state.leaving or state.renewals:
            return
        if state.now_us - self._since_us >= self._renew_us:
            self._since_us = state.now_us
            trid = self._random.getrandbits(63) | 1
            self._send_queue.request(write_request(RenewTrid(trid)))
