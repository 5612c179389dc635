"""Who we are when nobody says: a name for this process, and a number for each of its lives."""

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
"""2026-01-01 UTC. Incarnations are the milliseconds since then, and random bits behind them."""
RANDOM_BITS: Final = 20
INCARNATION_MAX: Final = (1 << 63) - 1
TOLD_MAX: Final = INCARNATION_MAX - (1 << 50)
"""Above it there are still numbers for a thousand million lives."""

_last_incarnation = 0
_unnamed = itertools.count(1)


def new_incarnation(above: int = 0) -> int:
    """Higher than `above` and than any former one of this process. While the wall clock goes
    forward, also higher than one of its name that ran before; where it was set back, still another
    number, whatever the clock says: the last bits are random."""
    global _last_incarnation
    clock = max(0, time.time_ns() // 1_000_000 - EPOCH_MS)
    least = max(above, _last_incarnation) >> RANDOM_BITS
    number = max(clock, least + 1) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    if number > INCARNATION_MAX:
        raise Misuse(
            f"a former life has the number {above}, and no higher one is left: give another name="
        )
    _last_incarnation = number
    return number


def believed(told: int) -> int:
    """The number that others tell of a later life; 0 when it is of the last days of the year 2304:
    whoever came back above any number would have used them up, and its stable file would keep
    that."""
    return told if told <= TOLD_MAX else 0


def default_name() -> str:
    """Host and process id; a process's second unnamed member has a `-2` behind it."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:40] or "host"
    count = next(_unnamed)
    return f"{host}-{os.getpid()}" + (f"-{count}" if count > 1 else "")
