"""The bench of shared objects: what it says of systems that are not there, protobuf, and ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import turns
from benchmarks.durable.etcd_client import field
from benchmarks.objects import __main__ as objects
from benchmarks.objects.etcd_client import fields, number_field, value_of, varint


def test_numbers_and_texts_are_read_as_they_are_written() -> None:
    for number in (0, 1, 127, 128, 300, 1 << 62):
        assert list(fields(number_field(2, number))) == [(2, number)]
    assert varint(300) == b"\xac\x02"
    message = field(1, b"header") + number_field(2, 300) + field(3, b"key")
    assert value_of(message, 3) == b"key"
    assert value_of(message, 4) is None


def test_what_is_missing_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(turns, "PATH", str(tmp_path))
    monkeypatch.setattr(objects, "ZOOKEEPER", tmp_path / "zookeeper.jar")
    monkeypatch.setattr("benchmarks.peers.tools.find_spec", lambda module: None)
    assert objects.main(["--missing", "--directory", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert "unisono: ready" in told
    assert "zookeeper: zookeeper is not installed: make bench-peers" in told
    assert sum(line.endswith("is not installed: make bench-peers") for line in told) == 3
    with pytest.raises(SystemExit):
        objects.main(["--systems", "paper"])


@pytest.mark.real
@pytest.mark.soak
def test_ours_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--systems", "unisono", "--seconds", "0.3", "--directory", str(tmp_path)]
    assert objects.main([*arguments, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    loads = [(row["what"], row["outstanding"]) for row in rows]
    assert loads == [(what, count) for what in objects.WHAT for count in objects.CALLERS]
    assert all(row["rate"] > 0 for row in rows)
