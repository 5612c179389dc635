"""Shared objects under faults: copies are equal, and what was confirmed is kept."""

from __future__ import annotations

import pytest

import unisono
from tests.sharing import histories
from unisono.programs import Program
from unisono.services.objects.table import ObjectTable
from unisono.sim import Plan, run

PROTOCOLS = ("ring", "mtp", "rmp")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dict_and_counter(protocol: str) -> None:
    unisono.chaos(
        seeds=5,
        protocol=protocol,
        nodes=4,
        invariant=histories.equal_copies,
        converged=histories.nothing_is_lost,
    )(histories.dict_and_counter)()


def test_a_state_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: joiners are not handed the counter."""
    restore = ObjectTable.restore

    def forgetful(table: ObjectTable, state: bytes) -> None:
        restore(table, state)
        table._objects.pop(("counter", "sold"), None)

    monkeypatch.setattr(ObjectTable, "restore", forgetful)
    program = Program(histories.dict_and_counter, histories.equal_copies)
    outcome = run(Plan(protocol="ring", nodes=4, messages=0, seed=1, program=program))
    assert outcome.broken == ("invariant",)
