"""Trace files that someone changed are seen to be; those that an accident changed are excused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laws.doctoring import FILES, Files
from unisono.laws import LAWS, judge
from unisono.trace.reading import read_trace


@pytest.mark.parametrize(
    "item",
    [pytest.param(item, marks=pytest.mark.catches(*item.laws), id=item.run) for item in FILES],
)
def test_what_was_done_to_the_files_is_judged(tmp_path: Path, item: Files) -> None:
    item.write(tmp_path)
    trace = read_trace(tmp_path)
    (history,) = trace.histories()
    verdict = judge(history, LAWS)
    broken = {name for name, word in verdict.laws.items() if word == "broken"}
    if item.laws:
        assert set(item.laws) <= broken
        assert trace.quarantined == [], "what is put aside is not judged"
    else:
        assert broken == set()
        hurt = item.name != "untouched parts"
        assert trace.torn == ({item.run: frozenset({"c#1"})} if hurt else {})
