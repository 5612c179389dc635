"""The raw burst path in separate processes, shortly: that it runs, not how fast."""

from __future__ import annotations

import pytest

from unisono.net import bench

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_the_raw_path_is_measured_beside_bare_sockets() -> None:
    found = bench.raw(seconds=0.2, rounds=1)
    assert found["bare_packets_s"] > 0 and found["driver_packets_s"] > 0
    assert found["ratio"] > 0 and len(found["ratios"]) == 1
