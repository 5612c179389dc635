"""The bench of durable systems: its load, what it says of systems that are not there, and ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks import turns
from benchmarks.durable import __main__ as durable
from benchmarks.durable.etcd_client import field
from benchmarks.durable.load import SIZE, measured, update
from tests.waiting import run_story


def test_an_update_has_its_size() -> None:
    for number in (0, 1, 12_345_678):
        key, value = update(number)
        assert len(key + value) == SIZE


def test_as_many_calls_are_outstanding_as_asked_for() -> None:
    most = running = 0

    async def call(number: int) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def story() -> None:
        found = await measured(call, 16, 0.05)
        assert found["rate"] > 0 and 1 <= found["p50_ms"] <= found["p99_ms"]

    run_story(story())
    assert most == 16


def test_a_field_is_protobuf() -> None:
    assert field(1, b"key") + field(2, b"") == b"\x0a\x03key\x12\x00"


def test_what_is_missing_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(turns, "PATH", str(tmp_path))
    monkeypatch.setattr("benchmarks.peers.tools.find_spec", lambda module: None)
    assert durable.main(["--missing", "--directory", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert (
        "unisono: ready" in told and "etcd: etcd-server is not installed: make bench-peers" in told
    )
    assert sum(line.endswith("is not installed: make bench-peers") for line in told) == 3
    with pytest.raises(SystemExit):
        durable.main(["--systems", "raft"])


@pytest.mark.real
@pytest.mark.soak
def test_ours_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--systems", "unisono", "--seconds", "0.3", "--directory", str(tmp_path)]
    assert durable.main([*arguments, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["what"], row["outstanding"]) for row in rows] == [
        *(("put", count) for count in durable.OUTSTANDING),
        *(("get", 16), ("get_latest", 16)),
    ]
    assert all(row["rate"] > 0 for row in rows)
