"""[MTP 4] Heartbeat, window and retention of the web, and how the master adapts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.protocols.mtp.packets import Header, Pressure
from unisono.protocols.mtp.parameters import WINDOW_MIN, Parameters

RETENTION_MAX: Final = 200


@dataclass(slots=True)
class Pacing:
    """The values that every `Header` carries."""

    heartbeat_us: int
    window: int
    retention: int

    @staticmethod
    def of(parameters: Parameters) -> Pacing:
        return Pacing(parameters.heartbeat_us, parameters.window, parameters.retention)

    def adopt(self, header: Header) -> None:
        """Take the master's values."""
        if header.heartbeat_us != self.heartbeat_us:
            self.heartbeat_us = max(500, header.heartbeat_us)
        if header.window != self.window or header.retention != self.retention:
            self.window = max(1, header.window)
            self.retention = max(1, header.retention)

    def adapt(self, pressure: Pressure, wished: Parameters) -> None:
        """Move towards safety at once, or back towards the configured values step by step."""
        if pressure is Pressure.LOSING:
            self.window = max(WINDOW_MIN, self.window * 3 // 4)
            self.retention = min(RETENTION_MAX, self.retention + 1, wished.retention * 2)
        elif pressure is Pressure.FULL:
            # The master's grants wait for the slow reader; the window only spares its buffers.
            least = max(WINDOW_MIN, wished.window // 8)
            self.window = min(self.window, max(least, self.window // 2))
            self.heartbeat_us = min(self.heartbeat_us * 5 // 4, wished.heartbeat_us * 2)
        else:
            self.window = min(wished.window, self.window + max(1, self.window // 4))
            self.retention = max(wished.retention, self.retention - 1)
            self.heartbeat_us = max(wished.heartbeat_us, self.heartbeat_us * 4 // 5)
