"""How much the network takes: the network window grows while nothing is lost, and halves when
something is [TRA-11].

Where queues on the way are shorter than a window of one size, all members together fill them, and
what overflows is sent again, into the same queues.
"""

from __future__ import annotations

from typing import Final

from unisono.protocols.transis.graph import CausalGraph

FIRST_BYTES: Final = 1 << 18
"""The window at first, a guess. It doubles with each window that is acknowledged until something is
lost, and is then cut to `SECOND_BYTES`."""
SECOND_BYTES: Final = 1 << 16
LEAST_BYTES: Final = 1 << 15
STEP_BYTES: Final = 1_000
"""After that it grows by so much with each window that is acknowledged."""
BURST_SHARE: Final = 4
BURST_PACKETS_MIN: Final = 2
"""What is sent at once is this share of the window at most, but so many packets at least."""


# Deviates [TRA §3.1 window]: it follows what is lost. The paper's has one size.
class NetworkWindow:
    """The bound on the network window, as one member knows it."""

    def __init__(self, nbytes_max: int) -> None:
        self._nbytes_max = nbytes_max
        self.nbytes = min(FIRST_BYTES, nbytes_max)
        self._is_guess = True
        self._judged = 0
        """Losses among so many first vertices of this configuration are answered for."""

    def new_configuration(self) -> None:
        self._judged = 0

    def burst_packets(self, nbytes: int) -> int:
        """How many packets of this size may be sent at once: all members may, at the same time."""
        return max(BURST_PACKETS_MIN, self.nbytes // (BURST_SHARE * nbytes))

    def acknowledged(self, nbytes: int, left: int) -> None:
        """All have so much more, and not all have the rest. A window that is not used says nothing
        about what the network takes."""
        if 2 * (nbytes + left) >= self.nbytes:
            grown = nbytes if self._is_guess else STEP_BYTES * nbytes // self.nbytes
            self.nbytes = min(self._nbytes_max, self.nbytes + grown)

    def lost(self, graph: CausalGraph) -> None:
        """Something is requested, here or by another member. What was under way when the window was
        halved is no reason to halve it once more."""
        if graph.received_count < self._judged:
            return
        self._judged = graph.entered_count
        halved = min(self.nbytes // 2, SECOND_BYTES) if self._is_guess else self.nbytes // 2
        self.nbytes = max(min(LEAST_BYTES, self._nbytes_max), halved)
        self._is_guess = False
