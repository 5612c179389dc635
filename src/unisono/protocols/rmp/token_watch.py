"""[RMP-17] Watches the token: it moves, or there is a fault."""

from __future__ import annotations

from typing import Final

from unisono.core import Effect
from unisono.parts.detector import Detector
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.state import Outgoing, Timer, TokenRing
from unisono.protocols.rmp.token import TokenRotation

TOKEN: Final = "token"


class TokenWatch:
    """When the token moved last, as one site has seen it."""

    def __init__(
        self, parameters: Parameters, state: TokenRing, outgoing: Outgoing, token: TokenRotation
    ) -> None:
        self._detect_us = parameters.detect_us
        self._look_us = parameters.detect_us // 8
        self._state = state
        self._outgoing = outgoing
        self._token = token
        self._detector: Detector[str] = Detector(self._detect_us, self._look_us)
        self._moved_us = 0
        """When the token moved last, or was shown again."""

    def start(self) -> None:
        self._moved_us = self._state.now_us
        self._detector.watch(TOKEN, self._state.now_us)

    def moved(self) -> None:
        """An ACK came that was news."""
        self._moved_us = self._state.now_us
        self._detector.hear(TOKEN, self._state.now_us)

    def is_silent(self, out: list[Effect]) -> bool:
        """Whether the token stood still for too long. Before that its last ACK is shown again."""
        now_us = self._state.now_us
        self._detector.look(now_us)
        if self._state.frozen:
            return False
        if self._detector.is_silent(TOKEN):
            return True
        if now_us - self._moved_us > self._detect_us // 4:
            self._moved_us = now_us
            self._token.show_latest(out)
        return False

    def keep_on(self, out: list[Effect]) -> None:
        """At the end of a step: nobody is watched alone, or while the ring is reformed."""
        if len(self._state.token_list) < 2 or self._state.frozen:
            self._detector.rest(TOKEN)
        elif not self._detector.is_watched(TOKEN):
            self.start()
        if not self._outgoing.is_armed(Timer.WATCH):
            self._outgoing.arm(Timer.WATCH, self._look_us, out)
