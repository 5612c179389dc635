"""Simulated RMP: what once failed."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest

from tests.rmp.levels import all_levels, broken
from tests.rmp.stage import Stage
from unisono.core import Effect, Fail
from unisono.model import Address, Member, Service
from unisono.parts.turn import GOES_ON, MORE, MessageGroup, OriginRun, Turn, write_runs
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.data_packets import BLOCK_HEAD
from unisono.protocols.rmp.membership import Membership
from unisono.protocols.rmp.sources import Sources
from unisono.sim.plan import LinkPlan, Plan, Weather
from unisono.sim.run import run as simulate

SEEDS = int(os.environ.get("UNISONO_SEEDS") or 10_000)
FIRST = int(os.environ.get("UNISONO_FIRST") or 0)
SOAKED = os.environ.get("UNISONO_PROTOCOL") or ""


@pytest.mark.parametrize(
    ("nodes", "seed"),
    [
        (6, 174),  # one that was removed and admitted again was counted among all
        (6, 1100557),  # a request for many slots was larger than a packet may be
        (9, 960010),  # below the minimum size, one after the other gave up: half a minute
        (6, 3000889),  # a block came after its site had told what it holds: the others never got it
        (8, 3002578),  # two rings, each of which wanted its own stamp back, asked without end
        (5, 3000055),  # one that had left, and waited for the others, kept joiners waiting
        (9, 960116),  # one joined between two blocks of a large message, and never got it
    ],
)
def test_a_seed_that_once_failed_holds(nodes: int, seed: int) -> None:
    outcome = simulate(Plan(protocol="rmp", nodes=nodes, seed=seed, faults="chaos", messages=60))
    assert outcome.violations == ()


@pytest.mark.parametrize(
    "seed",
    [
        1200147,  # an unreliable message that was held up came after its sender had left
        800463,  # what the lost had left followed from messages that nobody had any more
        800505,  # one that had left, with a slow reader, was excluded and showed no more views
        803005,  # a token site that was cut off had shown a view that the others never had
        803172,  # on a wide network, those below the minimum size gave up one after the other
        803375,  # so did a part of a network that stays apart
        810546,  # one that went on alone by its vote ordered what was under way otherwise
        2500510,  # one that was cut off waited for members that were back on another ring
        2501670,  # so did four, for one that had founded a ring before it read its welcome
        2501736,  # one that had left waited for ever for one that had left too
        2501802,  # the reform site had not heard of a vote for more, and went on with fewer
        1003770,  # one that was paused left by an ACK that nobody got, and was not excluded
        1006087,  # one that was paused showed a vote that nobody else ever had
        1200397,  # the last that left departed before its last messages were delivered
        830151,  # false alarms of one that lacked the last ACK kept the others from showing it
    ],
)
def test_all_levels_with_locks_and_votes(seed: int) -> None:
    assert simulate(all_levels(seed)).violations == ()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(SOAKED not in ("", "rmp"), reason="another protocol is soaked")
def test_thousands_of_seeds_with_all_levels_locks_and_votes() -> None:
    """All seven levels in every run, 3 to 9 members. `UNISONO_FIRST` is the first seed."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = [each for each in pool.imap(broken, range(FIRST, FIRST + SEEDS), 8) if each]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("nodes", "seed", "options"),
    [
        (4, 980066, {"minimum": 1}),  # waited 30 periods for a dead reform site, then yielded
        (9, 991002, {"block_packets": 1}),  # joiners founded a rival: its first site had crashed
        (7, 3000393, {}),
        (9, 3002488, {}),
    ],
)
def test_nobody_is_excluded_long_after_the_last_fault(
    nodes: int, seed: int, options: dict[str, int]
) -> None:
    plan = Plan(protocol="rmp", nodes=nodes, seed=seed, messages=60, options=options)
    assert simulate(plan).violations == ()


def test_nobody_joins_in_the_middle_of_a_large_message() -> None:
    member = Member("b", Address("10.0.0.1", 1), 1)
    sources = Sources(1 << 20, lambda reason: None)
    sources.add(7, member)
    for number, mark, whole in ((1, MORE, False), (2, MORE | GOES_ON, False), (3, GOES_ON, True)):
        run = OriginRun(7, 1, (MessageGroup(1, 4, Service.AGREED | mark),), (b"part",))
        sources.put(7, Turn(number, 7, 0, write_runs([run], bytes(8)), 1400))
        assert sources.is_whole({7}) is whole
        assert sources.is_whole({8}), "one that has left completes nothing"


def test_what_may_follow_from_messages_that_are_lost_is_dropped() -> None:
    sources = Sources(1 << 20, lambda reason: None)
    sources.add(7, Member("b", Address("10.0.0.1", 1), 1))
    for number, after in ((1, 5), (2, 9), (3, 9)):
        run = OriginRun(7, number, (MessageGroup(1, 4, Service.AGREED),), (b"text",))
        content = write_runs([run], BLOCK_HEAD.pack(after))
        sources.put(7, Turn(number, 7, 0, content, 1400))
    assert [run.number for run in sources.leftover(7, ((1, 3),), 0, 8)] == [1]


def test_within_a_part_that_goes_on_by_its_votes_there_is_one_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What three of the others had left, the first of two survivors delivers in another order."""
    link = LinkPlan("constant", 3000, 0, loss_ppm=50_000)
    weather = Weather(fault_us=2_000_000, link=link, parts=((0, 1, 2), (3, 4)))
    plan = Plan(
        protocol="rmp", nodes=5, seed=5, messages=400, weather=weather, options={"minimum": 2}
    )
    assert simulate(plan).violations == ()
    begin = Membership.begin_epoch

    def turned(self: Any, new_list: NewList, out: list[Effect]) -> None:
        if not new_list.primary and new_list.members[0] == self._state.key:
            new_list = new_list._replace(leftovers=new_list.leftovers[::-1])
        begin(self, new_list, out)

    monkeypatch.setattr(Membership, "begin_epoch", turned)
    assert "state" in simulate(plan).broken


def test_those_below_the_minimum_size_give_up_together() -> None:
    stage = Stage("a", "b", "c", "d", "e", "f", detect_us=200_000, verdict_us=2_000_000)
    for name in "abc":
        stage.kill(name)
    began_us, ended_us = stage.now_us, dict[str, int]()
    while len(ended_us) < 3 and stage.now_us < began_us + 20_000_000:
        stage.run(10_000)
        for name in "def":
            if stage.only(name, Fail):
                ended_us.setdefault(name, stage.now_us - began_us)
    assert sorted(ended_us) == ["d", "e", "f"]
    assert max(ended_us.values()) < 4_500_000, ended_us
