"""Benchmarks of Unisono against other systems, run from a checkout; not part of the wheel.

`peers` are other systems that order messages, `paper` reproduces the curves of the ring's paper,
and `page` renders results as HTML. `unisono bench` reaches all three through `EXTRAS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from unisono.bench.checkout import Extras
from unisono.bench.system import System

# Imported when called: a command needs one of them, and some are programs of members too.


def _peers() -> dict[str, System]:
    from benchmarks.peers import peers

    return peers()


def _page(results: Mapping[str, Any]) -> str:
    from benchmarks.page import page

    return page(results)


def _paper(
    protocol: str, options: Mapping[str, int], directory: Path, quick: bool, as_json: bool
) -> int:
    from benchmarks.paper import paper

    return paper(protocol, options, directory, quick, as_json)


EXTRAS: Final = Extras(_peers, _page, _paper)
