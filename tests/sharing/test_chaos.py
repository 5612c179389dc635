"""Shared objects under faults: copies are equal, and what was confirmed is kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import unisono
from tests.sharing import histories
from unisono.laws import OPERATION_LAWS
from unisono.laws.columnar import judge_trace
from unisono.programs import Program
from unisono.programs.program import Main
from unisono.services.objects.collections import DictState
from unisono.services.objects.state import Ticket
from unisono.services.objects.table import ObjectTable
from unisono.services.sharing import upkeep
from unisono.sim import Plan, run
from unisono.trace.operations import operations_in

PROTOCOLS = ("ring", "mtp", "rmp")
SEEDS = int(os.environ.get("UNISONO_SEEDS") or 400)
FIRST = int(os.environ.get("UNISONO_FIRST") or 0)
ONLY = os.environ.get("UNISONO_PROTOCOL") or ""


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
    if ONLY in ("", protocol):
        stands(name, protocol, range(FIRST, FIRST + SEEDS))


def broken_by(main: Main, faults: str, seeds: range) -> set[str]:
    plan = Plan(protocol="ring", nodes=3, messages=0, faults=faults, program=Program(main))
    found: set[str] = set()
    for seed in seeds:
        found |= {*run(replace(plan, seed=seed)).broken}
        if found:
            break
    return found


def test_stale_reads_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: who reads is told what it last saw at an earlier place."""
    seen: dict[tuple[int, str], object] = {}

    def get(state: DictState, ticket: Ticket, key: str) -> object:
        found = seen.get((id(state), key), state.entries.get(key))
        seen[id(state), key] = state.entries.get(key)
        return found

    monkeypatch.setattr(DictState, "do_get", get)
    assert broken_by(histories.read_and_write, "mild", range(5)) == {"linearizable"}


def test_locks_that_are_held_twice_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the others do not wait for the end of a lease."""
    monkeypatch.setattr(upkeep, "PATIENCE", 0.05)
    assert broken_by(histories.take_turns, "chaos", range(20)) == {"held_by_one"}


def test_operations_of_a_simulated_run_are_verified(tmp_path: Path) -> None:
    program = Program(histories.take_turns)
    plan = Plan(protocol="ring", nodes=3, messages=0, faults="mild", seed=1, program=program)
    assert not run(replace(plan, trace=tmp_path)).broken
    ((_, found),) = judge_trace(tmp_path, lambda _: ()).items()
    assert {found.verdict.laws[law] for law in OPERATION_LAWS} == {"kept"}
    (folder,) = tmp_path.glob("run=*")
    assert any(each.result for each in operations_in(folder).operations.values())


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
