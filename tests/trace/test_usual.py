"""What is read by pattern is what the whole grammar reads, and our own files are read so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.trace.test_torn import written
from unisono.trace import torn
from unisono.trace.compact import Malformed
from unisono.trace.parquet import _NAMES, LISTS, SCHEMA, _model
from unisono.trace.usual import page_head, usual_of


def size_of(tmp_path: Path, count: int, each: int) -> torn.FileBytes:
    path, _ = written(tmp_path, count, each)
    with path.open("rb") as file:
        return torn.FileBytes(file.fileno(), path.stat().st_size)


def flipped(data: bytes, dice: random.Random) -> bytes:
    bad = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        bad[dice.randrange(len(bad))] = dice.choice((0, 1, 0x0C, 0x15, 0x1C, dice.randrange(256)))
    return bytes(bad[: dice.choice((len(bad), len(bad), dice.randrange(len(bad))))])


def pages_of(file: torn.FileBytes) -> list[int]:
    groups = torn.whole_groups(file, tuple(name in LISTS for name in SCHEMA.names))
    return [page.offset for group in groups for chunk in group.chunks for page in chunk.pages]


def test_our_own_headers_are_usual(tmp_path: Path) -> None:
    file = size_of(tmp_path, 90, 5)
    found = usual_of(_model()).groups(torn.footer_of(file))
    assert found is not None
    rows, groups = found
    assert (rows, len(groups)) == (90, 18)
    assert found == torn._any_groups(torn.footer_of(file), _NAMES)
    offsets = pages_of(file)
    assert len(offsets) == 18 * len(_NAMES) * 2
    for offset in offsets:
        data = file.at(offset, 512)
        assert page_head(data) == torn._any_head(data)


def test_a_footer_read_by_pattern_is_read_alike_by_the_grammar(tmp_path: Path) -> None:
    footer = torn.footer_of(size_of(tmp_path, 4, 2))
    dice = random.Random(3)
    usual = usual_of(_model())
    alike = 0
    for _ in range(1500):
        bad = flipped(footer, dice)
        found = usual.groups(bad)
        if found is not None:
            assert found == torn._any_groups(bad, _NAMES)
            alike += 1
    assert alike > 50


def test_a_page_read_by_pattern_is_read_alike_by_the_grammar(tmp_path: Path) -> None:
    file = size_of(tmp_path, 4, 2)
    heads = [file.at(offset, 40) for offset in pages_of(file)]
    dice = random.Random(5)
    seen = {True: 0, False: 0}
    for _ in range(4000):
        data = flipped(dice.choice(heads), dice)
        found = page_head(data)
        seen[found is not None] += 1
        if found is not None:
            assert found == torn._any_head(data)
    assert min(seen.values()) > 500


def test_a_number_without_end_is_none() -> None:
    data = b"\x15\x00\x15" + b"\x80" * 11
    assert page_head(data) is None
    with pytest.raises(Malformed):
        torn._any_head(data)
