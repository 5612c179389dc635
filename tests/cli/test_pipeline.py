"""`unisono pipeline` agrees with `unisono verify`, and leaves a report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.running import refused, unisono
from tests.cli.test_sim import doctored


@pytest.mark.spark
@pytest.mark.slow
def test_spark_and_this_process_give_one_verdict(tmp_path: Path) -> None:
    for seed in ("7", "8"):
        arguments = ("--nodes", "3", "--seed", seed, "--messages", "30", "--trace", "sound")
        assert unisono("sim", *arguments, cwd=tmp_path).returncode == 0
    both = tmp_path / "both"
    (one, other) = sorted((tmp_path / "sound").iterdir())
    shutil.copytree(one, both / one.name)
    doctored(other, both / other.name)
    verified = unisono("verify", "both", "--json", cwd=tmp_path)
    measured = unisono(
        "pipeline", "both", "--out", "out", "--master", "local[2]", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert measured.returncode == verified.returncode == 1, measured.stderr
    both_done = {"processed": 2, "skipped": 0}
    assert json.loads(measured.stdout) == json.loads(verified.stdout) | both_done
    assert not measured.stderr
    assert "<html" in (tmp_path / "out" / "report.html").read_text()


def test_a_bad_master_is_reported_before_spark_starts(tmp_path: Path) -> None:
    unisono("sim", "--nodes", "2", "--messages", "3", "--trace", "trace", cwd=tmp_path)
    found = unisono("pipeline", "trace", "--out", "out", "--master", "here", cwd=tmp_path)
    refused(found, "here", "local[*]")


def test_a_foreign_directory_is_reported_before_spark_starts(tmp_path: Path) -> None:
    folder = tmp_path / "foreign" / "run=x"
    folder.mkdir(parents=True)
    (folder / "a-1.parquet").write_text("not Parquet")
    refused(unisono("pipeline", str(tmp_path / "foreign"), "--out", str(tmp_path)), "foreign")
