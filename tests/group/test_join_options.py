"""The keywords of join are typed: a type checker finds what join itself would refuse."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from unisono import Config, JoinOptions, protocols

ROOT = Path(__file__).parents[2]

RIGHT = """
import unisono
from pathlib import Path
from unisono.protocols.mtp.parameters import PRESETS

async def main() -> None:
    unisono.join("g", name="a", sites=3, detect_ms=500, peers=["a:7400"], trace=Path("x"))
    unisono.join("g", service=unisono.SAFE, slow="shed", options=PRESETS["lan"])
    shared: unisono.JoinOptions = {"daemon": "unix:/d", "join_s": 3}
    async with unisono.join("g", **shared) as group:
        await group.multicast(b"x", to=("g", "h"))
"""
WRONG = {
    'join("g", nme="a")': 'Unexpected keyword argument "nme" for "join"; did you mean "name"?',
    'join("g", sites="3")': 'Argument "sites" to "join" has incompatible type "str"',
    'join("g", slow="no")': 'Argument "slow" to "join" has incompatible type',
    'join("g", options={"beat_us": "5"})': 'Dict entry 0 has incompatible type "str": "str"',
}


def test_the_keywords_are_the_fields_of_config_and_the_options_of_the_catalogue() -> None:
    specs = [*protocols.specs().values()]
    specs += [spec.clustered for spec in specs if spec.clustered is not None]
    own = {name for spec in specs for name in spec.options}
    assert set(JoinOptions.__annotations__) == {field.name for field in fields(Config)} | own


LISTS = ("peers", "clusters")
"""A list or a text with commas; held as a tuple."""


def test_a_keyword_takes_what_its_field_holds() -> None:
    taken, held = get_type_hints(JoinOptions), get_type_hints(Config)
    for name, kind in taken.items():
        of_field = held.get(name, int)
        if of_field != kind and name not in LISTS:
            assert of_field in get_args(kind), name


@pytest.mark.slow
def test_mypy_refuses_what_join_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    wrong = "from unisono import join\n" + "\n".join(WRONG)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(wrong)
    monkeypatch.chdir(tmp_path)
    # Not the project's own configuration: a user has another.
    output, errors, _ = api.run(
        ["--strict", "--config-file=", "--cache-dir=cache", "--hide-error-context", "."]
    )
    found = [line for line in output.splitlines() if ": error: " in line]
    assert not errors and len(found) == len(WRONG), output + errors
    for at, (line, why) in enumerate(zip(found, WRONG.values(), strict=True), 2):
        assert line.startswith(f"wrong.py:{at}: ") and why in line, line
