"""What docs/SPARK.md shows works, and the yardstick's table has its place there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks, section
from tests.laws.stories import DOCTORED, write_trace
from tests.yardstick.__main__ import put_into
from unisono.errors import BadTrace, Misuse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "SPARK.md"
SCALE = section("SPARK", "Laws at scale")


def test_the_examples_run(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history = DOCTORED[0].history
    rows = tuple(row._replace(protocol="ring") for row in history.rows)
    write_trace(type(history)(history.run, "ring", "g", rows), tmp_path / "traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unisono.spark.session.open_session", lambda master: spark)
    for code in blocks(SCALE, "python"):
        # The JVM does not follow a change of directory.
        code = code.replace('"results', f'"{tmp_path}/results')
        exec(compile(code, str(PAGE), "exec"), {})
        shown = capsys.readouterr().out
        assert "no_creation" in shown
        assert "broken" in shown


def test_mistakes_get_one_clear_line(spark: Any, tmp_path: Path) -> None:
    from unisono.spark.pipeline import run_pipeline

    with pytest.raises(BadTrace, match="no such directory"):
        run_pipeline(spark, tmp_path / "none", tmp_path / "out", {})
    write_trace(DOCTORED[0].history, tmp_path / "traces")
    with pytest.raises(Misuse, match="no law gravity; there are no_creation"):
        run_pipeline(spark, tmp_path / "traces", tmp_path / "out", {"p": ["gravity"]})


def test_the_command_is_as_the_page_says() -> None:
    (command,) = re.findall(r"^python -m (tests\.yardstick .*)$", PAGE.read_text(), re.MULTILINE)
    module, *arguments = shlex.split(command)
    told = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert arguments
    for argument in arguments:
        if argument.startswith("--"):
            assert argument in told


def test_the_table_is_put_into_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    put_into(page, "old")
    put_into(page, "| new |")
    text = page.read_text()
    assert "old" not in re.findall(r"<!-- yardstick -->(.*?)<!--", text, re.DOTALL)[0]
    assert "<!-- yardstick -->\n| new |\n<!-- end of yardstick -->" in text
    (tmp_path / "none.md").write_text("nothing")
    with pytest.raises(SystemExit, match="no place for the table"):
        put_into(tmp_path / "none.md", "| new |")
