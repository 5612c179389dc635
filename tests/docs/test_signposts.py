"""The names in *Where is what* exist, and protocol READMEs list the laws of the spec."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.documents import ROOT, section
from unisono.protocols import specs

PROTOCOLS = ("rmcast", "mtp", "ring")
COLUMNS = (*PROTOCOLS, "rmp", "transis")
NAMED = re.compile(r"`(\w+)\.py`: ((?:`[\w.]+`(?:, )?)+)")


def signposts() -> list[tuple[str, str, str]]:
    """Protocol, module and name, of each row of the table."""
    found = []
    for line in section("CONTRIBUTING", "Where is what").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 1 + len(COLUMNS):
            for protocol, cell in zip(COLUMNS, cells[1:], strict=True):
                for module, names in NAMED.findall(cell):
                    found += [(protocol, module, name) for name in re.findall(r"[\w.]+", names)]
    return found


def test_the_table_has_signposts() -> None:
    assert len(signposts()) >= 25


@pytest.mark.parametrize(("protocol", "module", "name"), signposts())
def test_a_signpost_leads_to_code(protocol: str, module: str, name: str) -> None:
    path = f"unisono.protocols.{protocol}" + ("" if module == "__init__" else f".{module}")
    value = import_module(path)
    for part in name.split("."):
        value = getattr(value, part)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_readme_lists_the_laws_of_its_spec(protocol: str) -> None:
    readme = ROOT / "src" / "unisono" / "protocols" / protocol / "README.md"
    row = re.search(r"\| laws it keeps \|.*\n.*\n\|[^|]*\|([^|]*)\|", readme.read_text("utf-8"))
    assert row and tuple(re.findall(r"`(\w+)`", row[1])) == specs()[protocol].laws


def test_the_readme_of_transis_lists_its_laws() -> None:
    readme = ROOT / "src" / "unisono" / "protocols" / "transis" / "README.md"
    listed = re.search(r"^Laws: ([^.]*)\.", readme.read_text("utf-8"), re.MULTILINE)
    assert listed and tuple(re.findall(r"`(\w+)`", listed[1])) == specs()["transis"].laws
