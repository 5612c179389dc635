"""What the documents state about the laws holds: CONCEPTS.md on claims and the literature, and
README.md on who keeps each guarantee."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import section
from unisono.laws import LAWS
from unisono.protocols import specs

ROOT = Path(__file__).parents[2]
TEXT = section("CONCEPTS", "The laws")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.replace(" |\n", " | \n").splitlines()
    if line.startswith("| ")
]

CKV = """Self inclusion, Initial view event, Local monotonicity, Primary component membership,
Delivery integrity, No duplication, Sending view delivery, Same view delivery, Virtual synchrony,
Transitional set, Agreement on successors, Safe message prefix, Safe indications, FIFO delivery,
Reliable FIFO, Causal delivery, Reliable causal, Strong total order, Weak total order,
Reliable total order, Membership precision, Multicast liveness, Self delivery,
Safe indication liveness, Termination of delivery"""
EVS = "1.1 1.2 1.3 1.4 2.1 2.2 3 4 5 6.1 6.2 6.3 7.1 7.2"


def test_the_table_has_each_law_with_its_sentence_and_claims() -> None:
    table = {row[0]: row for row in ROWS if re.fullmatch(r"`\w+`", row[0])}
    assert table.keys() == {f"`{law}`" for law in LAWS}
    head = next(row for row in ROWS if row[0] == "law")
    for law in LAWS.values():
        _, sentence, *claims = table[f"`{law.name}`"][: 2 + len(specs())]
        assert sentence == law.sentence
        for column, said in zip(head[2:], claims, strict=False):
            claimed = law.name in specs()[column.strip("`")].laws
            assert said == ("claimed" if claimed else "–"), (law.name, column)


@pytest.mark.parametrize(
    "name",
    [f"[CKV] {' '.join(name.split())}" for name in CKV.split(",")]
    + [f"[EVS] {number} " for number in EVS.split()],
)
def test_each_property_of_the_literature_stands_beside_a_law_or_a_reason(name: str) -> None:
    (row,) = [row for row in ROWS if f"{row[0]} ".startswith(name)]
    laws = re.findall(r"`(\w+)`", row[1])
    assert set(laws) <= LAWS.keys()
    assert laws or len(row[2]) > 20, "no law, and no reason"


def test_every_law_is_named_beside_the_literature_or_explained() -> None:
    after = TEXT.partition("Nobody claims")[2]
    assert {law for law in LAWS if f"`{law}`" not in after} == set()


def test_the_readme_lists_the_protocols_that_keep_each_claimed_law() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| guarantee |"))
    shown: set[str] = set()
    columns = re.findall(r"`(\w+)`", lines[start])
    for line in lines[start + 2 :]:
        if not line:
            break
        _, _, cited, *cells, _ = line.split("|")
        laws = set(re.findall(r"`(\w+)`", cited))
        for column, cell in zip(columns, cells, strict=True):
            claimed = laws <= set(specs()[column].laws)
            assert cell.strip() == ("kept" if claimed else "not claimed"), (line, column)
        shown |= laws
    assert shown == {law for spec in specs().values() for law in spec.laws}
