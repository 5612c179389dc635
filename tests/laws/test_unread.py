"""A violation that unread rows may explain is uncertain, and says which rows those are."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.laws.stories import story, write_trace
from unisono.cli.verify import verify
from unisono.laws import Verdict, judge_all
from unisono.trace.reading import read_trace

TALK = """
    a: view 1 a b c | send | send | a:1 | a:2
    b: view 1 a b c | a:1 | a:2 | c:1
    c: view 1 a b c | send | a:1 | a:2 | c:1 | c:1
"""


def damaged(top: Path, text: str, file: str, *rows: int) -> Verdict:
    """The verdict on a story of which these rows of a file have an unknown kind."""
    write_trace(story(text, run="r"), top)
    path = top / "run=r" / file
    table = pq.read_table(path, partitioning=None)
    kinds = table.column("kind").to_pylist()
    for row in rows:
        kinds[row] = "damaged"
    at = table.schema.get_field_index("kind")
    pq.write_table(table.set_column(at, "kind", pa.array(kinds)), path)
    laws = ("no_creation", "agreement", "no_duplication")
    return judge_all(read_trace(top).histories(), lambda protocol: laws)["r"]


def test_a_lost_send_accuses_nobody_and_is_named(tmp_path: Path) -> None:
    verdict = damaged(tmp_path, TALK, "a-1.parquet", 1, 2)
    assert verdict.laws["no_creation"] == "uncertain"
    created = [each for each in verdict.violations if each.law == "no_creation"]
    for each in created:
        assert each.message.startswith("a#1:")
        assert each.detail.endswith("(uncertain: run=r/a-1.parquet row 1 and 1 more was not read)")
    # It was delivered twice, whatever else there was.
    assert verdict.laws["no_duplication"] == "broken"
    twice = next(each for each in verdict.violations if each.law == "no_duplication")
    assert "uncertain" not in twice.detail


def test_an_uncertain_law_is_not_accepted_as_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(tmp_path, TALK.replace("c:1 | c:1", "c:1"), "a-1.parquet", 1)
    assert verify(tmp_path, True, allow_quarantined=True) == 2
    shown = json.loads(capsys.readouterr().out)["runs"]["r"]
    assert shown["laws"]["no_creation"] == "uncertain"


def test_rows_of_others_excuse_nobody(tmp_path: Path) -> None:
    invented = TALK.replace("c: view 1 a b c | send", "c: view 1 a b c")
    verdict = damaged(tmp_path, invented, "a-1.parquet", 1)
    by_sender = {each.message[0]: each for each in verdict.violations if each.law == "no_creation"}
    assert "uncertain" in by_sender["a"].detail
    assert "uncertain" not in by_sender["c"].detail
    assert verdict.laws["no_creation"] == "broken"


def test_a_law_about_the_group_is_uncertain_whoevers_rows_are_missing(tmp_path: Path) -> None:
    verdict = damaged(tmp_path, TALK.replace(" | a:1 | c:1", " | c:1"), "b-1.parquet", 3)
    assert verdict.laws["agreement"] == "uncertain"


def test_a_file_that_does_not_tell_its_member_may_hold_anyones_rows(tmp_path: Path) -> None:
    write_trace(story(TALK.replace("c | send | a:1", "c | a:1"), run="r"), tmp_path)
    (tmp_path / "run=r" / "junk.parquet").write_bytes(b"junk")
    laws = ("no_creation",)
    verdict = judge_all(read_trace(tmp_path).histories(), lambda protocol: laws)["r"]
    assert verdict.laws["no_creation"] == "uncertain"
    assert {each.detail.partition(" (")[2] for each in verdict.violations} == {
        "uncertain: run=r/junk.parquet was not read)"
    }
