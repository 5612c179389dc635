"""The bank of the example with real kills: the total stands, and no action hangs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks, section
from tests.harness import ROOT, output_of
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("bank")]

ASKED = os.environ.get("UNISONO_PROTOCOL") or "ring"
SOAK_S = float(os.environ.get("UNISONO_BANK_S") or 120)


def bank(seconds: float, *more: str, within_s: float = LIMIT_S) -> dict[str, Any]:
    words = (str(ROOT / "examples" / "bank.py"), "--json", "--seconds", str(seconds))
    output = output_of(*words, "--port", str(free_port()), *more, within_s=within_s)
    found: dict[str, Any] = json.loads(output)
    assert not found["wrong"] and found["total"] == 500
    return found


@pytest.mark.rule("RNG-23")
def test_money_moves_while_members_are_killed() -> None:
    found = bank(6, "--every-s", "1.5")
    assert found["kills"] >= 1 and found["done"] >= 5, found


@pytest.mark.soak
@pytest.mark.skipif(ASKED != "ring", reason=f"{ASKED} is soaked")
@pytest.mark.timeout(0)
def test_money_moves_for_two_minutes_of_kills() -> None:
    found = bank(SOAK_S, within_s=SOAK_S * 2 + 120)
    print(found)
    assert found["kills"] >= SOAK_S / 10 and found["done"] >= SOAK_S, found


@pytest.mark.rule("RNG-23")
def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    (program,) = blocks(section("PATTERNS", "Transactions"), "python")
    path = tmp_path / "notary.py"
    path.write_text(program.replace('protocol="ring"', f'protocol="ring", port={free_port()}'))
    output = output_of(str(path))
    assert output.startswith("done: ann-") and output.endswith("Committed()\n")
