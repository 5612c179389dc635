"""`python -m benchmarks.levels`: what it draws and writes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from benchmarks.levels import BEGIN, END, LEVELS, PICTURES, keep, systems
from unisono.bench.system import Workload


def some_rows() -> list[dict[str, Any]]:
    named = [("unisono-" + protocol, level) for protocol in LEVELS for level in
             LEVELS[protocol].split()]  # fmt: skip
    return [
        {
            "system": system,
            "service": service,
            "members": members,
            "messages_per_s": 1e6 / members / rank,
            "latency_us": {"p50": 100.0 * members * rank},
            "latency_by_load_us": {"0.25": {"p50": 200.0 * rank}, "0.5": {"p50": 300.0 * rank}},
        }
        for rank, (system, service) in enumerate([("raw", "unreliable"), *named], 1)
        for members in (3, 5)
    ]


def test_a_run_is_drawn_and_fills_the_page(tmp_path: Path) -> None:
    page = tmp_path / "BENCHMARKS.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    about = {"cores": 2, "load_before": 0.1, "python": "3.11", "date": "2026-01-01"}
    written = keep(tmp_path / "figures", {"results": some_rows(), "about": about})
    assert [path.name for path in written[1:-1]] == [f"{each.name}.svg" for each in PICTURES]
    for path in written[1:-1]:
        drawn = "".join(ET.parse(path).getroot().itertext())
        assert "rmp resilient(majority)" in drawn and "ring safe" in drawn
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after\n") and "old" not in text
    assert "| rmp fifo | 1,200 | 2,000 | 800 | 1,200 | 83,333 | 50,000 |" in text
    assert "Of 3 members, a lone `fifo` message takes 4.0 times as long" in text
    assert "Of 5 members, `rmp` orders 2.00 times as much as `ring`." in text


def test_every_level_of_the_three_is_measured() -> None:
    for system in systems():
        for service in system.services:
            assert system.refuses(Workload(3, 64, 1, service)) == ""
