"""The vocabulary of rows, and the rules about files: what is put into quarantine.

A row that fails a check of its own (`row_checks`) goes to quarantine with the check's reason. Two
more checks look at other files, which are in the order of their names; run, node and number
identify an incarnation:

`REPEATED`: a row that passed its own checks, of an incarnation of which an earlier file holds a
row that passed, with the same step or a later one. So a long trace may span several files, one
after the other, and a copied file is noticed. A row that is not repeated is *fresh*.
`AFTER_TORN`: a fresh row that has an earlier part of its trace missing before it. Either an earlier
file of its own chain (`stem.parquet`, `stem.s000001.parquet`, …) is torn or not there; or an
earlier file with fresh rows of its incarnation is torn, or has such a gap before it.

The rows that remain are judged in the order of their files and within each file, and
their steps are counted anew in that order: a row that someone put in, copied or moved is judged
where it stands, whatever step it claims.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from unisono.model import Service
from unisono.trace.record import MESSAGE_KINDS, WORK_KINDS

KINDS: Final = frozenset(MESSAGE_KINDS + WORK_KINDS)
ABOUT_MESSAGES: Final = ("send", "deliver", "stable")
"""Kinds of rows that are about a message."""
VIEWS: Final = ("view", "transitional")
"""Kinds of rows that are about a view."""

LEVELS: Final = {level.name.lower(): int(level) for level in Service}

REPEATED: Final = "already recorded by another file"
TORN: Final = "torn"
"""How the reason begins that a file ends, or has nothing, as when its process was killed."""
AFTER_TORN: Final = "after a torn part"

_resilient = re.compile(r"resilient\(([0-9]+|majority|all)\)").fullmatch


@lru_cache(64)
def level_of(service: str | None) -> int:
    """How strong a service is, as a number; resilient messages are ordered like agreed ones."""
    if service is None:
        return -1
    level = LEVELS.get(service)
    if level is not None:
        return level
    return LEVELS["agreed"] if _resilient(service) else -1
