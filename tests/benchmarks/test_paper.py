"""`unisono bench paper`: what it measures, draws and writes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.paper.curves import drawn
from benchmarks.paper.page import BEGIN, END, PAGE, keep
from benchmarks.paper.plan import (
    FIGURES,
    MEASURED,
    QUICK,
    SIMULATED,
    Curves,
    CurveSummary,
    as_json,
    figures_for,
    points,
    summed_up,
)
from tests.cli.running import unisono
from tests.harness import ROOT
from unisono.errors import Misuse
from unisono.protocols import spec

NUMBERS = ("13", "14", "15", "16", "17")


def some_curves() -> Curves:
    return {
        (figure.number, origin, nbytes): [
            CurveSummary(count, 1000.0 / count, 900.0 / count, 1200.0 / count, 5)
            for count in (3, 5, 16)
        ]
        for figure in FIGURES
        for origin in (MEASURED, SIMULATED)
        for nbytes in figure.sizes
    }


def found_of(curves: Curves) -> dict[str, object]:
    figures = as_json(FIGURES, curves)
    return {"protocol": "ring", "figures": figures, "missing": [], "repeated": ["once"]}


# -- a run ---------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.rule("RNG-24")
def test_a_quick_run_measures_and_draws_the_five_figures(tmp_path: Path) -> None:
    out = tmp_path / "figures"
    found = unisono("bench", "paper", "--quick", "--json", "--out", str(out))
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert (told["protocol"], told["quick"]) == ("ring", True)
    assert tuple(told["figures"]) == NUMBERS
    absent = len(told["missing"])
    measured = [
        each
        for figure in told["figures"].values()
        for curve in figure["measured"].values()
        for each in curve
    ]
    assert len(measured) + absent >= sum(len(points(FIGURES, count)) for count in QUICK.members)
    assert len(measured) > absent, told["missing"]
    for each in measured:  # A round on a busy machine may end before anything is delivered.
        assert 0 <= each["low"] <= each["median"] <= each["high"] and each["samples"] > 0
    assert any(each["low"] > 0 for each in measured)
    for number in NUMBERS:
        ET.parse(out / f"ring-paper-{number}.svg")
    assert json.loads((out / "ring-paper.json").read_text()) == told


def test_a_protocol_without_safe_has_three_figures() -> None:
    assert [figure.number for figure in figures_for(spec("mtp"))] == [13, 15, 17]


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    curves = some_curves()
    with pytest.raises(Misuse, match="--out"):
        keep(tmp_path / "file", FIGURES, curves, found_of(curves), "here")


# -- drawings and tables -------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_a_drawing_is_sound_and_inside_its_frame(figure: object) -> None:
    assert figure in FIGURES
    curves = some_curves()
    svg = drawn(figure, curves, "a <machine> & more")  # type: ignore[arg-type]
    root = ET.fromstring(svg)
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    circles = [each for each in root.iter() if each.tag.endswith("circle")]
    assert len(circles) >= 2 * 2 * 3
    for each in circles:
        assert 0 < float(each.attrib["cx"]) < width and 0 < float(each.attrib["cy"]) < height
    assert svg == drawn(figure, curves, "a <machine> & more")  # type: ignore[arg-type]


def test_a_figure_without_any_point_is_still_drawn() -> None:
    for figure in FIGURES:
        ET.fromstring(drawn(figure, {}, "nothing came"))


def test_the_page_is_filled_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    page, curves = tmp_path / PAGE, some_curves()
    page.write_text(f"# Before\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    written = keep(tmp_path / "figures", FIGURES, curves, found_of(curves), "here")
    assert page in written and len(written) == 7
    text = page.read_text()
    assert text.startswith(f"# Before\n\n{BEGIN}\n") and text.endswith(f"{END}\n\nafter\n")
    assert "old" not in text
    for number in NUMBERS:
        assert f"(figures/ring-paper-{number}.svg)" in text
    assert "Begun again with a new group: once." in text
    for printed in ("1,400 at 0 B", "1.5 at 64 B, 2.9 at 1 KB", "571 for 1 KB", "250 for 1 KB"):
        assert printed in text
    keep(tmp_path / "figures", FIGURES, curves, found_of(curves), "here")
    assert page.read_text() == text


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page, curves = tmp_path / PAGE, some_curves()
    page.write_text("mine\n")
    assert page not in keep(tmp_path, FIGURES, curves, found_of(curves), "here")
    assert page.read_text() == "mine\n"


def test_a_summary_has_the_median_and_eight_tenths() -> None:
    assert summed_up(3, [float(n) for n in range(1, 12)]) == CurveSummary(3, 6.0, 2.0, 10.0, 11)
    assert summed_up(3, [4.0]) == CurveSummary(3, 4.0, 4.0, 4.0, 1)


def test_what_the_documents_keep_is_from_one_run() -> None:
    """The tables of the page are those of the JSON beside the drawings."""
    kept = json.loads((ROOT / "docs" / "figures" / "ring-paper.json").read_text())
    text = (ROOT / "docs" / PAGE).read_text()
    assert kept["about"] in text.lower() or kept["about"][1:] in text
    for number in NUMBERS:
        svg = (ROOT / "docs" / "figures" / f"ring-paper-{number}.svg").read_text()
        assert kept["about"] in svg
