"""A replayable group in simulated chaos: offsets, rows delivered once, and planted bugs caught."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.replay_history.applications import FED, Scribe, judge
from unisono.model import Message
from unisono.replay_history import ReplayHistory, RowFields
from unisono.sim.applications import ApplicationSpec
from unisono.sim.campaign import campaign
from unisono.sim.plan import Plan
from unisono.sim.run import run

SEEDS = int(os.environ.get("UNISONO_SEEDS", "1000"))


def failures(protocol: str, seeds: range, jobs: int = 1) -> str:
    plan = Plan(protocol=protocol, application=FED)
    found = campaign(protocol, seeds, "mild", (3, 7), jobs, messages=80, plan=plan)
    return "\n".join(f"{each.replay}\n    {each.text}" for each in found.failures)


@pytest.mark.parametrize("protocol", ["ring", "mtp"])
def test_all_members_have_the_same_offsets_and_rows_once(protocol: str) -> None:
    assert not failures(protocol, range(12))


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("protocol", ["ring", "mtp"])
def test_all_count_alike_in_many_runs(protocol: str) -> None:
    assert not failures(protocol, range(SEEDS), jobs=2)


# -- it would be seen ----------------------------------------------------------------------------


class Forgetful(ReplayHistory):
    """Hands over no writers."""

    def state(self) -> bytes:
        kept, self._writers = self._writers, {}
        try:
            return super().state()
        finally:
            self._writers = kept


class Gullible(ReplayHistory):
    """Looks at the epoch of a row alone."""

    def _row(self, fields: RowFields) -> bytes | None:
        query, partition, epoch, row, payload = fields
        if self._writers.get((query, partition), (-1, 0))[0] > epoch:
            return None
        self._writers[query, partition] = (epoch, row)
        return bytes(payload)


class Counting(ReplayHistory):
    """Counts what it drops."""

    def deliver(self, message: Message):  # type: ignore[no-untyped-def]
        delivered = super().deliver(message)
        self.offset += delivered is None
        return delivered


class Newborn(ReplayHistory):
    """Thinks that every group was founded when it came."""

    def adopt(self, state: object) -> None:
        pass


def made(chronicler: type[ReplayHistory]) -> type[Scribe]:
    return type("Made", (Scribe,), {"chronicler": chronicler})


@pytest.mark.parametrize("bug", [Forgetful, Gullible, Counting, Newborn])
def test_a_planted_bug_is_seen(bug: type[ReplayHistory]) -> None:
    for seed in range(40):
        plan = Plan(protocol="ring", nodes=5, seed=seed, faults="crash", messages=120)
        if run(replace(plan, application=ApplicationSpec(made(bug), judge))).violations:
            return
    pytest.fail(f"{bug.__name__} was not seen")
