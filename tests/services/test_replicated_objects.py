"""Replicated objects: plain classes in the simulated world, under chaos; what makes replicas differ
is found, and named."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unisono
from tests.harness import ROOT, output_of
from tests.waiting import run_story
from unisono.errors import BadPacket, Misuse
from unisono.programs import Program, SimulatedMember
from unisono.services.replicated_objects import ObjectMachine
from unisono.services.replication.values import decode_value, encode_value
from unisono.sim import Outcome, Plan, Weather, run
from unisono.sim.plan import SECOND_US

CALM = Weather(fault_us=SECOND_US)
DURABLE = (True,) * 3


class Bank:
    def __init__(self) -> None:
        self.balances: dict[str, int] = {}
        self.seen: set[str] = set()

    @unisono.replicated
    def pay(self, name: str, amount: int) -> int:
        if amount < 0:
            raise ValueError("no debts")
        self.balances[name] = self.balances.get(name, 0) + amount
        self.seen.add(name)
        return self.balances[name]

    @unisono.replicated
    def look_at_the_clock(self) -> None:
        self.balances["time"] = time.time_ns()

    @unisono.replicated
    def roll(self) -> None:
        self.balances["dice"] = random.randrange(1 << 30)

    def ask(self) -> None:
        """No update."""


def outcome_of(
    calls: Callable[[unisono.ReplicatedObject[Bank], str], Any],
    compared: list[list[list[str]]],
    seed: int = 1,
    faults: str = "",
) -> Outcome:
    """Three replicas, each of which makes these calls; at the end all are alike. `compared` gets
    who has paid, as those see it that are there then."""

    async def main(name: str, state: Bank) -> None:
        replica = unisono.replicate_object(
            state, "bank", name=name, members=["a", "b", "c"], path="bank"
        )
        try:
            async with replica as bank:
                logs[id(state)] = bank.log
                await calls(bank, name)
                await bank.log.ended()
        except unisono.Denied:  # Its log is lost.
            return

    logs: dict[int, unisono.ReplicatedLog] = {}

    def converged(members: list[SimulatedMember]) -> None:
        alive = [each.state for each in members if each.alive and id(each.state) in logs]
        states = {logs[id(each)].position: ObjectMachine(each).snapshot() for each in alive}
        for each in alive:
            assert states[logs[id(each)].position] == ObjectMachine(each).snapshot()
        compared.append([sorted(each.seen) for each in alive])

    program = Program(main, converged=converged)
    weather = {"faults": faults} if faults else {"weather": CALM}
    return run(
        Plan(protocol="ring", nodes=3, messages=0, seed=seed, program=program, **weather)  # type: ignore[arg-type]
    )


async def honest(bank: unisono.ReplicatedObject[Bank], name: str) -> None:
    for amount in range(1, 4):
        balance = await bank.update(Bank.pay, name, amount)
        assert balance == bank.state.balances[name] or balance > 0
    assert await bank.query(lambda state: state.balances[name], "strict") >= 6
    with pytest.raises(ValueError, match="no debts"):
        await bank.update(Bank.pay, name, -1)


def test_replicas_of_an_object_are_alike() -> None:
    outcome = outcome_of(honest, compared := [])
    assert not outcome.broken, outcome.violations
    assert compared == [[["a", "b", "c"]] * 3]


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 30), marks=pytest.mark.soak)])
def test_replicas_of_an_object_are_alike_under_chaos(seeds: range) -> None:
    """One that has lost its log is refused, so not all are there in the end."""
    compared: list[list[list[str]]] = []
    for seed in seeds:
        outcome = outcome_of(honest, compared, seed, "crash" if seed % 2 else "chaos")
        assert not outcome.broken, (seed, outcome.violations)
    assert [["a", "b", "c"]] * 3 in compared


@pytest.mark.parametrize("method", [Bank.look_at_the_clock, Bank.roll])
def test_a_method_that_is_not_deterministic_is_named(method: Any) -> None:
    async def calls(bank: unisono.ReplicatedObject[Bank], name: str) -> None:
        await bank.update(Bank.pay, name, 1)
        await bank.update(method)

    outcome = outcome_of(calls, [])
    assert f"called Bank.{method.__name__}()" in outcome.violations[0].detail


def test_the_airline_of_the_example_keeps_every_sale_in_one_order() -> None:
    output = output_of(str(ROOT / "examples" / "airline.py"))
    assert "rebooked to" in output and " sales in one order; overbooked: " in output
    assert "overbooked: nobody" not in output and "wrong" not in output


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("aß ")
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text("ab") | st.integers(), inner)
        | st.frozensets(st.integers() | st.text("ab"))
        | st.sets(st.tuples(st.integers()))
    ),
    max_leaves=8,
)


@given(VALUES)
def test_values_round_trip(value: Any) -> None:
    decoded = decode_value(encode_value(value, "it"))
    assert decoded == value and type(decoded) is type(value)


def test_equal_sets_are_equal_bytes() -> None:
    one, other = set(range(0, 80, 8)), set(range(72, -8, -8))
    assert encode_value(one, "it") == encode_value(other, "it")


def test_what_is_no_plain_value_is_refused() -> None:
    with pytest.raises(Misuse, match="has a object"):
        encode_value([object()], "it")
    for wrong in (b"", b'{"x":[]}', b'{"t":1}', b'{"t":[],"s":[]}', b"\xff"):
        with pytest.raises(BadPacket):
            decode_value(wrong)


class Bare:
    pass


def test_misuse_is_told() -> None:
    with pytest.raises(Misuse, match="mark methods"):
        ObjectMachine(Bare())
    half = Bank()
    half.snapshot = bytes  # type: ignore[attr-defined]
    with pytest.raises(Misuse, match="give it both"):
        ObjectMachine(half)

    async def story() -> None:
        replica = unisono.replicate_object(
            Bank(), "bank", name="a", members=["a"], path="/dev/null/nowhere"
        )
        with pytest.raises(Misuse, match="writable path"):
            async with replica:
                pass

    run_story(story())

    async def calls(bank: unisono.ReplicatedObject[Bank], name: str) -> None:
        with pytest.raises(Misuse, match=r"Bank\.ask is no update"):
            bank.update(Bank.ask)
        with pytest.raises(Misuse, match="not a method of Bank"):
            bank.update(len)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match=r"call of pay\(\) has a object"):
            bank.update(Bank.pay, object(), 1)  # type: ignore[arg-type]
        await bank.update(Bank.pay, name, 1)

    assert not outcome_of(calls, []).broken
