"""Results as a page."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from benchmarks.page import page
from tests.bench.made_up import results


def drawings(html: str) -> list[ET.Element]:
    parts = html.split("<svg")[1:]
    return [ET.fromstring("<svg" + part.split("</svg>")[0] + "</svg>") for part in parts]


def test_the_page_shows_curves_by_size_and_by_group() -> None:
    told = results(sizes=(64, 1000), members=(3, 16))
    html = page(told)
    assert html == page(told)
    for words in ("By size", "By group", "Times a peer", "Recovery", "Unisono and corosync"):
        assert words in html
    assert "corosync &amp; co." in html and "<b>" not in html
    assert len([each for each in drawings(html) if each.attrib.get("role") == "img"]) == 4 * (4 + 4)
    assert "http" not in html.replace("http://www.w3.org", "")


def test_delays_at_several_loads_are_a_curve() -> None:
    told = results(sizes=(64,))
    assert "share of the peak" not in page(told)
    for row in told["results"]:
        row["latency_by_load_us"]["0.25"] = {"p50": 300.0, "p99": 900.0}
    html = page(told)
    assert len([each for each in drawings(html) if each.attrib.get("role") == "img"]) == 2
    assert "share of the peak" in html


def test_the_page_of_one_load_has_no_curves() -> None:
    html = page(results(sizes=(64,)))
    assert "By size" not in html and "By group" not in html
    assert "64 B, 3 members, all send" in html
