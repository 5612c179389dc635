"""What is measured of a run: throughput, latency and protocol work.

Latency is from the message's first send to its delivery, by the clocks of the trace: exact in
simulation and on one machine. A quantile is the smallest latency that at least this part of the
deliveries does not exceed. Rates are per member: deliveries divided by the time from an
incarnation's first message to its last, both summed over incarnations.
"""

from __future__ import annotations

from typing import Final

QUANTILES: Final = {
    "p50_us": 0.5,
    "p90_us": 0.9,
    "p99_us": 0.99,
    "p999_us": 0.999,
    "max_us": 1.0,
}
CURVE: Final = (*(step / 50 for step in range(50)), 0.99, 0.995, 0.999, 1.0)
"""The quantiles at which a latency curve is drawn."""
BINS: Final = 60
"""Points of a curve over time."""
BIN_US_MIN: Final = 10_000
"""The least width of a bin."""
WORK: Final = (
    "packets_out",
    "octets_out",
    "retransmissions",
    "naks",
    "drops",
    "token_rotation_p50_us",
    "token_rotation_max_us",
)
"""Measures of protocol work: null if not traced."""
