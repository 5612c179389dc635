"""Five machines, nearly, that lose a packet of a hundred: a Transis group parts into three and two,
both parts go on, and merge, again and again; and its traces keep every law.

`UNISONO_TIMES` says how often.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from statistics import median

import pytest

from tests.cli.ring_cluster import Cluster, Fault, cluster, read
from tests.cli.running import unisono
from tests.waiting import until
from unisono.laws import judge
from unisono.protocols.transis import SPEC

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c", "d", "e")
PARTS = (("a", "b", "c"), ("d", "e"))
LOSS_PERCENT = 1
TIMES = int(os.environ.get("UNISONO_TIMES") or 10)
MERGE_S_MAX = 2.0
"""In the median, from the healing of the network to the view of all at the last of them."""


class Parting(Cluster):
    """The members, and the network between them."""

    def options(self, name: str) -> dict[str, object]:
        common = super().options(name)
        del common["sites"], common["stable"]
        return {**common, "protocol": "transis", "insecure": True, "window_bytes_max": 1 << 20}

    def see(self, *parts: tuple[str, ...]) -> bool:
        return all(self.cats[name].view == sorted(part) for part in parts for name in part)

    def part_and_merge(self) -> float:
        """Seconds that the merge took."""
        self._block([Fault(0, 1, "cut", PARTS[1])], 0.5)
        self.say()
        until(lambda: self.see(*PARTS), "both parts", self.words)
        self.speak(*PARTS)
        healed_s = time.monotonic()  # It takes a while, and some merge meanwhile.
        self._block([], 0.0)
        until(lambda: self.see(NAMES), "one view of all", self.words)
        took_s = time.monotonic() - healed_s
        self.speak(NAMES)
        return took_s

    def speak(self, *parts: tuple[str, ...]) -> None:
        """Each sends, and each hears all of its part."""
        self._said += 1
        texts = {part: {f"{name} said {self._said}" for name in part} for part in parts}
        for part in parts:
            for name in part:
                self.cats[name].write(f"{name} said {self._said}")
        until(lambda: all(map(self.hear, texts, texts.values())), "what each part said", self.words)

    def hear(self, part: tuple[str, ...], texts: set[str]) -> bool:
        heard = ({text for _, _, text in self.cats[name].messages} for name in part)
        return all(texts <= each for each in heard)


def check(times: int, folder: Path) -> None:
    with cluster(NAMES, folder, kind=Parting, loss_percent=LOSS_PERCENT) as group:
        until(lambda: group.see(NAMES), "one view of all", group.words)
        took_s = [group.part_and_merge() for _ in range(times)]
        group.rest()
    print(json.dumps({"merged_after_s": [round(each, 3) for each in took_s]}))
    verified = unisono("verify", str(folder / "trace"), "--json")
    assert verified.returncode == 0, verified.stdout
    history = read(folder / "trace", NAMES)
    verdict = judge(history, SPEC.laws)
    assert not verdict.violations, verdict.violations[:10]
    assert {verdict.laws[law] for law in SPEC.laws} == {"kept"}
    assert len(history.lives) == len(NAMES), "nobody stopped"
    merges = {row.view for life in history.lives.values() for row in life.views
              if any(each.startswith("merged") for each in row.changes or ())}  # fmt: skip
    assert len(merges) >= times
    assert median(took_s) <= MERGE_S_MAX


def test_a_group_parts_and_merges_once(tmp_path: Path) -> None:
    check(1, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_group_parts_and_merges_ten_times(tmp_path: Path) -> None:
    check(TIMES, tmp_path)
