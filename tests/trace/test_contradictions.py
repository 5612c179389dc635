"""An incarnation in two files: both judges agree on whether the files contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.laws.doctoring import TOLD, write_rows
from tests.laws.judged_here import judged_here
from tests.laws.telling import story, write_trace
from unisono.trace.reading import read_trace
from unisono.trace.record import Row

Change = Callable[[list[Row]], tuple[list[Row], list[Row]]]

# fmt: off
CHANGES: dict[str, tuple[Change, bool]] = {
    "the same again": (lambda r: (r, r), False),
    "a part again": (lambda r: (r, r[1:3]), False),
    "another digest": (lambda r: (r, [*r[:1], r[1]._replace(digest=7), *r[2:]]), True),
    "another view": (lambda r: (r, [r[0]._replace(members=("c#1",)), *r[1:]]), True),
    "two rows the other way round": (
        lambda r: (r, [r[0], r[2]._replace(step=1), r[1]._replace(step=2)]), True),
    "what the first had in quarantine": (
        lambda r: ([r[0], r[1]._replace(kind="?"), *r[2:]], r), False),
    "repeated in the first": (lambda r: ([r[0], r[1], r[1], *r[2:]], r), False),
}
# fmt: on


@pytest.mark.parametrize("name", CHANGES)
def test_two_files_of_an_incarnation_are_compared(tmp_path: Path, name: str) -> None:
    change, contradicts = CHANGES[name]
    write_trace(story(TOLD, run="r"), tmp_path)
    rows = [row for row in read_trace(tmp_path).runs["r"] if row.node == "c"]
    first, second = change(rows)
    write_rows(tmp_path / "run=r" / "c-1.parquet", first)
    write_rows(tmp_path / "run=r" / "c-1x.parquet", second)
    trace = read_trace(tmp_path)
    assert trace.contradicted == ({"r": frozenset({"c#1"})} if contradicts else {})
    found = [row for row in judged_here(tmp_path, {}) if row["what"] == "contradicted"]
    assert [(row["run"], row["life"]) for row in found] == [("r", "c#1")] * contradicts
