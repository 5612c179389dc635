"""Shared objects under faults: copies are equal, and what was confirmed is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

import unisono
from tests.sharing import histories
from unisono.programs import Program
from unisono.services.objects.table import ObjectTable
from unisono.sim import Plan, run

PROTOCOLS = ("ring", "mtp", "rmp")


CASES = {
    "dict and counter": (
        histories.dict_and_counter,
        histories.equal_copies,
        histories.nothing_is_lost,
    ),
    "lock": (histories.take_turns, histories.one_holder, histories.tokens_rise),
    "queue": (histories.work, histories.each_job_once, histories.no_job_is_lost),
    "everything else": (histories.everything, histories.unique_and_once, None),
}


def stands(name: str, protocol: str, seeds: range) -> None:
    main, invariant, converged = CASES[name]
    unisono.chaos(
        seeds=seeds, protocol=protocol, nodes=4, invariant=invariant, converged=converged
    )(main)()


@pytest.mark.parametrize("name", CASES)
def test_a_service_stands_a_few_seeds(name: str) -> None:
    stands(name, PROTOCOLS[len(name) % 3], range(1))


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CASES)
def test_a_service_stands_many_seeds(name: str, protocol: str) -> None:
    stands(name, protocol, range(400))


def test_a_state_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: joiners are not handed the counter."""
    restore = ObjectTable.restore

    def forgetful(table: ObjectTable, state: bytes) -> None:
        restore(table, state)
        table._objects.pop(("counter", "sold"), None)

    monkeypatch.setattr(ObjectTable, "restore", forgetful)
    program = Program(histories.dict_and_counter, histories.equal_copies)
    plan = Plan(protocol="ring", nodes=4, messages=0, faults="crash", program=program)
    assert any(run(replace(plan, seed=seed)).broken for seed in range(5))
