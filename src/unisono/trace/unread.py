"""Which rows of which incarnation could not be read, from what is in quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from unisono.trace.checks import REPEATED, TORN

ANYONE: Final = ""
"""Stands for the incarnation of a file whose name is not of the usual form."""


def unread_of(quarantined: Iterable[tuple[str, Sequence[int | None], str]]) -> dict[str, str]:
    """By incarnation, which rows of it could not be read, from files, rows (None: the file) and
    reasons. Rows that another file holds are judged, and the laws know of a torn file's end."""
    rows: dict[str, list[int | None]] = {}
    for path, some, reason in quarantined:
        if reason == REPEATED or (None in some and reason.startswith(f"{TORN}:")):
            continue
        rows.setdefault(path, []).extend(some)
    found: dict[str, str] = {}
    for path, some in sorted(rows.items()):
        known = sorted(at for at in some if at is not None)
        text = path if None in some else f"{path} row {known[0]}"
        more = "" if None in some or len(known) < 2 else f" and {len(known) - 1} more"
        found.setdefault(_life_of(path), text + more)
    return found


def _life_of(path: str) -> str:
    stem = PurePosixPath(path).name.split(".", 1)[0]
    name, dash, incarnation = stem.rpartition("-")
    return f"{unquote(name)}#{incarnation}" if dash and incarnation.isdigit() else ANYONE
