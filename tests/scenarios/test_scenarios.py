"""Every history here happens as it is written. `pytest --rewrite` writes what happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage

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
