"""The causes of a late timer are distinguished by what the kernel counts."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from unisono.net.lateness import EXPLANATIONS, LATE_US, Lateness, Sample, reason

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
    assert why in EXPLANATIONS


def test_it_is_counted_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
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
lateness, why = Lateness({}), ""
# Time is read once a turn, so that no stop can fall between two turns.
due_us = time.monotonic_ns() // 1000 + 50_000
print("ready", flush=True)
while why != "paused":
    time.sleep(0.05)
    now_us = time.monotonic_ns() // 1000
    if why := lateness.fired(now_us, now_us - due_us):
        print(why, flush=True)
    due_us = now_us + 50_000
"""


@pytest.mark.real
@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the kernel does not count")
def test_a_process_that_was_stopped_knows_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        heard = []
        try:
            # A busy machine may hold it up for longer than we stop it: then it is stopped again.
            while "paused\n" not in heard and len(heard) < 10:
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                time.sleep(1)
                process.send_signal(signal.SIGCONT)
                heard.append(process.stdout.readline())
            assert heard[-1] == "paused\n", heard
            assert process.wait() == 0
        finally:
            process.kill()
