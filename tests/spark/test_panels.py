"""The analyses on the page: what is shown, and that text from traces cannot break out."""

from __future__ import annotations

from datetime import date
from typing import Any

from unisono.spark.report.model import Findings
from unisono.spark.report.panels import SHOWN_MAX, panels

LINK = {
    "run": "<b>", "sender": "a", "receiver": "b", "sent": 1000, "again": 7, "received": 900,
    "lost": 0.1, "p50_us": 1500, "p99_us": None, "ahead_us": -2500,
}  # fmt: skip
PARTS = {
    "protocol": "ring", "service": "safe", "messages": 3, "token_us": 1000.0,
    "order_us": 3000.0, "spread_us": 4000.0, "stable_us": 7000.0,
}  # fmt: skip


def shown(**analyses: Any) -> dict[str, str]:
    findings = Findings({}, [], 0, 0, [], analyses=analyses)
    return {anchor: html for anchor, (_, html) in panels(findings).items() if html}


def test_nothing_to_show_is_no_section() -> None:
    day = {"day": date(2026, 5, 1), "changed": False}
    assert shown(links=[], trends=[day], factors=[{"protocol": "ring"}]) == {}


def test_a_link_is_shown_with_loss_and_clock() -> None:
    (text,) = shown(links=[LINK]).values()
    for part in ("&lt;b&gt;", "a → b", "1,000", "10.00 %", "1.50 ms", "−2.50 ms", "–"):
        assert part in text, part
    assert "More in the table" not in text
    (text,) = shown(links=[LINK] * (SHOWN_MAX + 1)).values()
    assert text.count("a → b") == SHOWN_MAX and "More in the table" in text


def test_the_parts_of_a_latency_are_stacked() -> None:
    (text,) = shown(latency_parts=[PARTS, PARTS | {"service": "agreed", "token_us": None}]).values()
    for part in ("left:0.0%;width:12.5%", "left:12.5%;width:37.5%", "left:50.0%;width:50.0%"):
        assert part in text, part
    assert "token 1.00 ms, order 3.00 ms, spread 4.00 ms, stable after 7.00 ms" in text
    assert "3 messages: order 3.00 ms, spread 4.00 ms" in text


def test_components_are_a_river_that_parts() -> None:
    view = {
        "run": "<b>",
        "view": "1",
        "members": 3,
        "installed": 3,
        "installed_by": "a b c",
        "took_us": 7,
    }
    one = view | {"from_us": 9_000_000, "until_us": 11_000_000}
    here = one | {"view": "2", "installed": 2, "installed_by": "a c", "from_us": 11_000_000}
    there = one | {"view": "3", "installed": 1, "installed_by": "b", "from_us": 11_000_000}
    rows = [one, here | {"until_us": 19_000_000}, there | {"until_us": None}]
    (text,) = shown(components=rows).values()
    (_, whole), (_, larger), (_, smaller) = (
        (part[: part.index('"')], part.count("<rect")) for part in text.split('<g class="')[1:]
    )
    assert (whole, larger, smaller) == (3, 2, 1)
    assert text.count('<g class="s0"') == 2 and text.count('<g class="s1"') == 1
    for part in ("&lt;b&gt;", "2: a c, for 8.00 s", "2.00 s", "the end"):
        assert part in text, part
