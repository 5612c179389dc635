"""[TRA-18] Dynamic voting in a group: the primary component follows the processes that are left."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from unisono.config import PACKET_BYTES_MIN
from unisono.core import CoreConfig
from unisono.errors import Misuse
from unisono.layout import decode, encode
from unisono.model import Address, Member
from unisono.parts.identity import key_of
from unisono.protocols.transis.core import Transis
from unisono.protocols.transis.packets import Agree, agree_bytes
from unisono.protocols.transis.parameters import Parameters
from unisono.protocols.transis.primary import (
    ATTEMPTS_MAX,
    PrimaryMemory,
    PrimarySession,
    write_memory,
)
from unisono.protocols.transis.voting import DynamicMajority
from unisono.sim.plan import Plan
from unisono.sim.run import Outcome, run
from unisono.wire import ENVELOPE_BYTES

SITES = 5
HOST = "fe80:1111:2222:3333:4444:5555:6666:7777%" + "e" * 24


def simulated(seed: int, faults: str = "partition") -> Outcome:
    options = {"sites": SITES, "dynamic": 1}
    plan = Plan(
        protocol="transis", nodes=SITES, seed=seed, faults=faults, messages=40, options=options
    )
    return run(plan)


def primaries(outcome: Outcome) -> dict[int, int]:
    """By number of a primary component, how many members it has."""
    assert outcome.history is not None
    rows = (row for trace in outcome.history.lives.values() for row in trace.views)
    told = ((row, change.split()) for row in rows for change in row.changes or ())
    return {int(words[1]): len(row.members or ()) for row, words in told if words[0] == "primary"}


@pytest.mark.rule("TRA-18")
def test_the_primary_component_follows_the_processes_that_are_left() -> None:
    sizes: set[int] = set()
    for seed in (101, 128):
        outcome = simulated(seed)
        assert outcome.violations == ()
        sizes.update(primaries(outcome).values())
    assert sizes & {1, 2}, "a majority of a majority operates"


@pytest.mark.catches("one_component")
def test_processes_that_forget_the_last_primary_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def restore(self: DynamicMajority, records: Iterable[bytes]) -> None:
        """A bug: nothing is remembered through a crash."""

    monkeypatch.setattr(DynamicMajority, "restore", restore)
    assert any("one_component" in simulated(seed, "chaos").broken for seed in range(40))


def member(at: int) -> Member:
    return Member(f"{at}" + "m" * 62, Address(HOST, 65535), (1 << 63) - 1)


def full(sites: int) -> DynamicMajority:
    """A member that remembers as much as it can."""
    made = DynamicMajority(member(0).name, sites, is_durable=True)
    names = tuple(f"{key_of(member(at)):016x}" for at in range(sites))
    attempts = tuple(PrimarySession(2 + at, names[at:]) for at in range(ATTEMPTS_MAX))
    made.restore([write_memory(PrimaryMemory(90, PrimarySession(1, names), attempts))])
    return made


@pytest.mark.parametrize("sites", [1, 5, 32, 64])
def test_what_a_member_remembers_fits_its_agreement(sites: int) -> None:
    told = full(sites).report()
    agree = Agree(1, member(0), 1, (1,) * sites, 1, False, False, False, memory=told)
    assert decode(Agree, encode(agree)) == agree
    assert len(encode(agree)) <= agree_bytes(sites) <= 1400 - ENVELOPE_BYTES


def test_a_path_with_too_small_packets_is_refused() -> None:
    options = {"sites": 32, "dynamic": 1}
    config = CoreConfig(member(0), "g", 1, packet_bytes_max=PACKET_BYTES_MIN, options=options)
    with pytest.raises(Misuse, match=r"need packets of \d+ bytes"):
        Transis(config)
    with pytest.raises(Misuse, match="needs sites="):
        Parameters.of({"dynamic": 1})


def test_who_has_no_storage_has_no_vote() -> None:
    voters = [DynamicMajority(name, 3, is_durable=name != "c") for name in "abc"]
    members = {Member(name, Address("127.0.0.1", at), 1): at for at, name in enumerate("abc")}
    for parts, expected in (((0, 1, 2), True), ((0, 2), True), ((1, 2), False), ((2,), False)):
        told = {one: voters[at].report() for one, at in members.items() if at in parts}
        for at in parts:
            out: list[object] = []
            voters[at].vote(told, out)  # type: ignore[arg-type]
            assert bool(out) == (expected and at != 2)
        for at in parts:
            (change,) = voters[at].enter(told)
            assert voters[at].may_operate == expected == (change.what.value == "primary")
