"""Why a timer fired late is told apart by what the kernel counts."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from unisono.net.lateness import LATE_US, WORDS, Lateness, Sample, reason

BEFORE = Sample(0, 500, 500, 500)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (Sample(10**6, 900_500, 500, 500), "suspended"),
        (Sample(10**6, 500, 900_500, 500), "stalled"),
        (Sample(10**6, 500, 500, 900_500), "busy"),
        (Sample(10**6, 500, 500, 500), "paused"),
    ],
)
def test_what_took_most_of_the_time_is_the_reason(after: Sample, why: str) -> None:
    assert reason(BEFORE, after, 10**6) == why
    assert why in WORDS


def test_it_is_counted_each_time_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    counts: dict[str, int] = {}
    lateness = Lateness(counts)
    now_us = time.monotonic_ns() // 1000
    assert lateness.fired(now_us, LATE_US - 1) == ""
    with caplog.at_level(logging.WARNING, "unisono.net"):
        for _ in range(3):
            why = lateness.fired(time.monotonic_ns() // 1000, 5_000_000)
    assert counts == {f"late.{why}": 3}
    assert len(caplog.records) == 1
    lateness.close()
    lateness.close()


PROGRAM = """
import time
from unisono.net.lateness import Lateness
counts = {}
lateness = Lateness(counts)
print("ready", flush=True)
due = time.monotonic() + 0.1
while "late.paused" not in counts:
    time.sleep(0.05)
    late_us = int((time.monotonic() - due - 0.05) * 1e6)
    lateness.fired(time.monotonic_ns() // 1000, late_us)
    due = time.monotonic()
print(*counts, flush=True)
"""


@pytest.mark.real
@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the kernel does not count")
def test_a_process_that_was_stopped_knows_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            assert process.wait(20) == 0
            assert "late.paused" in process.stdout.read()
        finally:
            process.kill()
