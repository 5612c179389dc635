"""Digests of the code that determines a result: results of other code are recomputed."""

from __future__ import annotations

import hashlib
import importlib.resources
from functools import cache
from importlib.resources.abc import Traversable
from typing import Final

SIMULATES: Final = "core errors fsa laws model parts protocols sim trace wire"
"""Packages that determine a simulated run, to the byte."""
SIMULATES_NOT: Final = "laws/columnar"
"""except this."""
JUDGES: Final = "core errors laws model trace spark"
"""Packages that determine the tables,"""
JUDGES_NOT: Final = "spark/analyses spark/report spark/source spark/sweep"
"""except these."""


@cache
def digest_of(rooms: str, without: str = "") -> str:
    """Equal for two installations with the same code in these packages."""
    digest = hashlib.blake2b(digest_size=8)
    top = importlib.resources.files("unisono")
    for room in rooms.split():
        here = top / room
        found = _sources(here, room) if here.is_dir() else [(f"{room}.py", top / f"{room}.py")]
        for name, path in found:
            if not any(name.startswith(f"{other}/") for other in without.split()):
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            found += _sources(path, f"{name}/{path.name}")
        elif path.name.endswith(".py"):
            found.append((f"{name}/{path.name}", path))
    return found
