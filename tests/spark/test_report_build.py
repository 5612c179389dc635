"""The page from the tables of a real pipeline, and from the traces they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks, section
from tests.spark import pages
from tests.spark.test_report import Seen
from unisono.protocols import specs
from unisono.spark.report import build
from unisono.spark.report.build import build_report
from unisono.spark.report.markup import anchor_of


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from unisono.spark.pipeline import run_pipeline

    top, _, _ = pages.sample(tmp_path_factory.getbasetemp() / "report-traces")
    claimed = {name: list(spec.laws) for name, spec in specs().items()}
    return top, run_pipeline(spark, top, tmp_path_factory.mktemp("out"), claimed, silver=False)


def test_the_tables_and_the_traces_make_the_page(spark: Any, made: tuple[Path, Any]) -> None:
    top, result = made
    text = build_report(spark, result.out, top)
    seen = Seen(text)
    for part in ("laws", "broken", "summary", "curves", "recoveries", "measures", "quarantine"):
        assert part in seen.ids, part
    broken = [run for run, verdict in result.verdicts.items() if not verdict.kept]
    assert broken
    assert seen.tags.count("article") == len(broken)
    for run in broken:
        assert anchor_of(run) in seen.ids
        assert result.replays[run] in seen.text
    assert text.count('class="scroll drawing"') == len(broken)
    assert text == build_report(spark, result.out, top)


def test_the_docs_make_the_same_page(spark: Any, made: tuple[Path, Any]) -> None:
    top, result = made
    (example,) = blocks(section("SPARK", "The report"), "python")
    shown: dict[str, Any] = {"spark": spark, "out": result.out, "traces": top}
    exec(example, shown)
    assert shown["html"] == build_report(spark, result.out, top)


def test_a_page_without_its_traces_says_why_it_has_no_diagrams(
    spark: Any, made: tuple[Path, Any], tmp_path: Path
) -> None:
    _, result = made
    text = build_report(spark, result.out, tmp_path)
    assert "No diagram: its trace is no longer there" in text
    assert 'class="scroll drawing"' not in text


def test_recoveries_of_many_runs_are_counted_in_classes(
    spark: Any, made: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = made
    plain = build._recoveries(spark, result.out)
    assert plain
    monkeypatch.setattr(build, "FOLDERS_PER_TASK", 0)
    classed = build._recoveries(spark, result.out)
    assert classed.keys() == plain.keys()
    for key, line in plain.items():
        assert sum(n for _, n in classed[key]) == sum(n for _, n in line)
        assert classed[key][-1][0] == line[-1][0]
