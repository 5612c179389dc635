"""Leaving: an ordered removal, and the time until the others need nothing from this site."""

from __future__ import annotations

from typing import Any, Final

from unisono.core import Cause, Effect, Fail
from unisono.parts.codec import PacketCodec
from unisono.protocols.rmp.membership import Membership
from unisono.protocols.rmp.packets import Gone, PacketKind
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.send_queue import SendQueue
from unisono.protocols.rmp.state import Outgoing, TokenRing

UNFINISHED: Final = "left, and the others no longer keep what came before"


class Leaving:
    """A site that its application has told to leave."""

    def __init__(
        self,
        state: TokenRing,
        codec: PacketCodec,
        outgoing: Outgoing,
        resilience: Resilience[Any],
        send_queue: SendQueue,
        membership: Membership,
    ) -> None:
        self._state = state
        self._codec = codec
        self._outgoing = outgoing
        self._resilience = resilience
        self._send_queue = send_queue
        self._membership = membership
        self._is_requested = False

    def ask_if_ready(self) -> None:
        """Once all that was multicast is in the order."""
        queue = self._send_queue
        if not self._is_requested and queue.is_empty() and not queue.has_flights():
            self._is_requested = True
            self._membership.leave()

    def expel(self) -> None:
        """A member will not wait any longer."""
        if self._state.leaving:
            self._state.stop(Fail(UNFINISHED, Cause.EXCLUDED))
        else:
            self._codec.drop("malformed")

    def is_done(self, out: list[Effect]) -> bool:
        """Whether the removal is in the order, and every other site holds it."""
        removed_at = self._membership.removed_at
        if removed_at is None:
            return False
        if self._state.token_list and self._resilience.stable() < removed_at:
            return False
        self._state.decide(removed_at)
        self._outgoing.send(PacketKind.GONE, Gone(self._state.key), out)
        return True
