"""The page from the tables of a real pipeline, and from the traces they were made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.documents import blocks, section
from tests.spark import pages
from tests.spark.test_report import Seen
from unisono.protocols import specs
from unisono.spark.layout import ALL, CURVES, STALE, SUMMARY, files_in
from unisono.spark.report.build import build_report
from unisono.spark.report.markup import anchor_of

CLAIMED = {name: list(spec.laws) for name, spec in specs().items()}


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from unisono.spark.pipeline import run_pipeline

    top, _, _ = pages.sample(tmp_path_factory.getbasetemp() / "report-traces")
    out = tmp_path_factory.mktemp("out")
    return top, run_pipeline(spark, top, out, CLAIMED, silver=False)


def test_the_tables_and_the_traces_make_the_page(spark: Any, made: tuple[Path, Any]) -> None:
    top, result = made
    text = build_report(result.out, top)
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
    assert text == build_report(result.out, top)


def test_the_docs_make_the_same_page(spark: Any, made: tuple[Path, Any]) -> None:
    top, result = made
    (example,) = blocks(section("SPARK", "The report"), "python")
    shown: dict[str, Any] = {"spark": spark, "out": result.out, "traces": top}
    exec(example, shown)
    assert shown["html"] == build_report(result.out, top)


def test_a_page_without_its_traces_says_why_it_has_no_diagrams(
    spark: Any, made: tuple[Path, Any], tmp_path: Path
) -> None:
    _, result = made
    text = build_report(result.out, tmp_path)
    assert "No diagram: its trace is no longer there" in text
    assert 'class="scroll drawing"' not in text


def test_what_is_made_again_is_the_same(spark: Any, made: tuple[Path, Any], tmp_path: Path) -> None:
    """The tables about many runs and the page, without a run that is new."""
    from unisono.spark.pipeline import run_pipeline

    top, result = made
    again = tmp_path / "again"
    shutil.copytree(result.out, again)
    (again / STALE).touch()
    told = run_pipeline(spark, top, again, CLAIMED, silver=False)
    assert told.processed == () and told.report.read_text() == result.report.read_text()
    for name in (*CURVES, SUMMARY):
        found = [path for path in files_in(result.out, name) if path.stem == ALL]
        assert found
        for path in found:
            other = again / path.relative_to(result.out)
            assert pq.ParquetFile(path).read() == pq.ParquetFile(other).read(), name
