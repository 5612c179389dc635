"""The feed and members are killed again and again; the log holds every message once, in order."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.feed.kills import check, delivered, hush, playing, rehearse, settle, traffic
from tests.feed.stage import everything


def drawn(seed: int, count: int, every_s: float) -> list[tuple[float, str, float]]:
    """Kills by a seed; the feed every other time, never two members at once."""
    dice = random.Random(seed)
    names = ["feed" if n % 2 else dice.choice("abc") for n in range(count)]
    return [(1 + n * every_s, name, dice.choice((0.0, 0.5, 2.0))) for n, name in enumerate(names)]


def tell(place: Path, seed: int, count: int, every_s: float) -> int:
    with playing(place) as play:
        rehearse(play)
        traffic(play, 1 + count * every_s, drawn(seed, count, every_s))
        settle(play)
        hush(play)
        play.kill("feed")
    found = everything(place / "log")
    gaps = [row["detail"] for row in found if row["kind"] == "gap"]
    assert not gaps
    rows = [(row["place"], row["payload"]) for row in found if row["kind"] == "message"]
    check(delivered(play), rows)
    return len(rows)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_feed_that_is_killed_often_has_everything_once(tmp_path: Path) -> None:
    first = int(os.environ.get("UNISONO_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("UNISONO_STORIES", "5"))):
        count = tell(tmp_path / str(seed), seed, count=8, every_s=4.0)
        print(f"\nseed {seed}: {count} messages, each once and in order")
