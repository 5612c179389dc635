"""The parts of `unisono bench` that only a checkout has: its `benchmarks` folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from unisono.bench.system import System
from unisono.errors import Misuse

PACKAGE: Final = "benchmarks"
ROOT: Final = Path(__file__).resolve().parents[3]
"""The checkout, if the package lies in one: `ROOT/src/unisono/bench/checkout.py`."""


class Extras(NamedTuple):
    """What `benchmarks` adds to the command."""

    peers: Callable[[], dict[str, System]]
    """Other systems by name, whether installed here or not."""
    page: Callable[[Mapping[str, Any]], str]
    """Results as one HTML file."""
    paper: Callable[[str, Mapping[str, int], Path, bool, bool], int]
    """The curves of the ring's paper: protocol, options, directory, quick, as JSON; exit code."""


def extras(needed_by: str) -> Extras:
    """The checkout's extras; `Misuse` naming what needs them where there is no checkout."""
    if not (ROOT / "src" / "unisono").is_dir() or not (ROOT / PACKAGE / "__init__.py").is_file():
        raise Misuse(
            f"{needed_by} needs the benchmarks, which are not installed with the package:"
            " clone the repository, run `make setup` there and use its .venv/bin/unisono"
        )
    if sys.path[0] != str(ROOT):
        sys.path.insert(0, str(ROOT))
    found = import_module(PACKAGE).EXTRAS
    assert isinstance(found, Extras)
    return found


def environment() -> dict[str, str]:
    """For a process of our own Python that imports `benchmarks`."""
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
