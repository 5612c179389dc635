"""The default name of a member, and incarnation numbers."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import socket
import time
from typing import Final

from unisono.errors import Misuse

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01 UTC. An incarnation is the milliseconds since then, followed by random bits."""
RANDOM_BITS: Final = 20
INCARNATION_MAX: Final = (1 << 63) - 1
BELIEVED_MAX: Final = INCARNATION_MAX - (1 << 50)
"""Leaves a thousand million incarnations above it."""

_last_incarnation = 0
_unnamed = itertools.count(1)


def new_incarnation(above: int = 0) -> int:
    """Higher than `above` and than any former one of this process. Unless the wall clock was set
    back, also higher than that of any former process of its name; even then a different number, as
    the last bits are random."""
    global _last_incarnation
    clock = max(0, time.time_ns() // 1_000_000 - EPOCH_MS)
    least = max(above, _last_incarnation) >> RANDOM_BITS
    number = max(clock, least + 1) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    if number > INCARNATION_MAX:
        raise Misuse(
            f"incarnation {above} is known and no higher number is left: give another name="
        )
    _last_incarnation = number
    return number


def believed(incarnation: int) -> int:
    """A later incarnation that others report; 0 if it is of the last days of the year 2304: joining
    above a forged number would use up the numbers, and a stable file would keep that."""
    return incarnation if incarnation <= BELIEVED_MAX else 0


def default_name() -> str:
    """Host and process id; the second unnamed member of a process gets the suffix `-2`."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:40] or "host"
    count = next(_unnamed)
    return f"{host}-{os.getpid()}" + (f"-{count}" if count > 1 else "")
