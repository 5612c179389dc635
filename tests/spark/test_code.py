"""The digest of the code that decides: another code, another digest, and all is judged anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import unisono
from tests.laws.stories import story, write_trace
from unisono.spark import runs
from unisono.spark.code import JUDGES, JUDGES_NOT, SIMULATES, SIMULATES_NOT, digest_of
from unisono.spark.runs import inputs_in, judge_version

PROGRAM = f"""
from unisono.spark.code import digest_of
print(digest_of({SIMULATES!r}, {SIMULATES_NOT!r}), digest_of({JUDGES!r}, {JUDGES_NOT!r}))
"""


def digests(top: Path) -> list[str]:
    """Of simulating and of judging, by the package that lies there."""
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(top)},
        cwd=top,
    )
    return told.stdout.split()


@pytest.mark.parametrize(
    ("changed", "simulates", "judges"),
    [
        ("laws/order.py", True, True),
        ("trace/history.py", True, True),
        ("sim/run.py", True, False),
        ("laws/columnar/judging.py", False, True),
        ("spark/gold.py", False, True),
        ("spark/report/page.py", False, False),
        ("spark/source/sink.py", False, False),
        ("cli/show.py", False, False),
    ],
)
def test_what_decides_is_in_the_digest(
    tmp_path: Path, changed: str, simulates: bool, judges: bool
) -> None:
    shutil.copytree(
        Path(unisono.__file__).parent,
        tmp_path / "unisono",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    before = digests(tmp_path)
    with (tmp_path / "unisono" / changed).open("a") as file:
        file.write("# another word\n")
    after = digests(tmp_path)
    assert [old != new for old, new in zip(before, after, strict=True)] == [simulates, judges]
    assert before == [digest_of(SIMULATES, SIMULATES_NOT), judge_version()]


def test_other_code_judges_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(story("a: view 1 a", run="one"), tmp_path)
    before = inputs_in(tmp_path)["one"].fingerprint
    assert inputs_in(tmp_path)["one"].fingerprint == before
    monkeypatch.setattr(runs, "judge_version", lambda: "another")
    assert inputs_in(tmp_path)["one"].fingerprint != before
