"""Every history here happens as it is written. `pytest --rewrite` writes what happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios import stage as stages
from tests.scenarios.stage import Stage
from unisono.core import Core, CoreConfig
from unisono.protocols import spec

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*/*.txt"))
BLOCK = re.compile(r"(?P<script>(?:(?!----\n).*\n)+?)----\n(?P<said>(?:.+\n)*)", re.MULTILINE)


def played(text: str) -> str:
    """The same text, with what happens behind each row of dashes."""
    stage = Stage()
    return BLOCK.sub(lambda block: f"{block['script']}----\n{stage.obey(block['script'])}\n", text)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_history_happens_as_written(path: Path, rewrite: bool) -> None:
    written = path.read_text()
    happened = played(written)
    if rewrite:
        path.write_text(happened)
    else:
        assert happened == written


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_each_scenario_names_the_arrow_it_exists_for_and_a_law(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"^walked .+\n----\n.+", text, re.MULTILINE), "ends with no arrow walked"
    assert re.search(r"^check \w+", text, re.MULTILINE), "checks no law"
    assert not re.search(r"^walked .+\n----\nquiet", text, re.MULTILINE), "the arrow was not taken"
    assert not re.search(r"^\w+: broken", text, re.MULTILINE)


def test_a_history_that_happens_otherwise_fails() -> None:
    text = "start rmcast a\njoin a\n----\nrmcast: a\na: OUTSIDE > MEMBER\n"
    assert played(text) != text


def test_roles_go_by_the_order_of_start(monkeypatch: pytest.MonkeyPatch) -> None:
    rmcast, told = spec("rmcast"), list[tuple[str, Mapping[str, int]]]()

    def make(setting: CoreConfig) -> Core:
        told.append((str(setting.me), setting.options))
        return rmcast.make(CoreConfig(setting.me, setting.group, setting.seed))

    def ranked(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
        return {**options, "rank": index}

    ranks = replace(rmcast, make=make, assign_roles=ranked)
    monkeypatch.setattr(stages, "spec", lambda name: ranks)
    Stage().obey("start ranks b a tokens=3 state=1\nmake a b\nmake a")
    assert told == [
        ("a#1", {"tokens": 3, "rank": 1}),
        ("b#1", {"tokens": 3, "rank": 0}),
        ("a#2", {"tokens": 3, "rank": 1}),
    ]
