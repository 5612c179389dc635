"""Who we are when nobody says: a name for this process, and a number for each of its lives."""

from __future__ import annotations

import itertools
import os
import re
import socket
import time

EPOCH_S = 1_767_225_600
"""2026-01-01 UTC: incarnations are the tenths of a second since then, and fit 32 bits."""

_last_incarnation = 0
_unnamed = itertools.count(1)


def new_incarnation() -> int:
    """Higher than any former one of this process, and than one of its name that ran before."""
    global _last_incarnation
    _last_incarnation = max(_last_incarnation + 1, int((time.time() - EPOCH_S) * 10))
    return _last_incarnation


def default_name() -> str:
    """Host and process id; a process's second unnamed member has a `-2` behind it."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:40] or "host"
    count = next(_unnamed)
    return f"{host}-{os.getpid()}" + (f"-{count}" if count > 1 else "")
