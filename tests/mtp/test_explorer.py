"""Every interleaving of small webs keeps the paper's laws, and planted bugs do not.

The larger webs are walked by `make explore`; docs/SIMULATION.md describes what is explored and how.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.mtp import explorer_mutants as planted
from tests.mtp.explorer import Rejoin, Verdict, explore
from tests.mtp.explorer_parts import ANY, Case, Parts
from unisono.protocols.mtp.agreement import ACCEPTED, REJECTED, Master

STATES_MAX = 200_000
SLOW, SOAK = pytest.mark.slow, pytest.mark.soak


def walk(**how: Any) -> Verdict:
    verdict = explore(Case(**how), STATES_MAX)
    if verdict.story:
        print(verdict.story)
    return verdict


class LongMemory(Master[int]):
    """A master that remembers more than its headers carry, as the core's does."""

    __slots__ = ()

    def __init__(self, t_max: int) -> None:
        super().__init__(t_max, memory=8)


# The laws.


@pytest.mark.rule("MTP-5", "MTP-6", "MTP-22", "MTP-23")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"t": 1}, id="any copies lost, one crash"),
        pytest.param(
            {"t": 1, "slow": 1, "lives": 2, "losses": 0},
            id="a live holder given up, and rejoining",
            marks=SLOW,
        ),
        pytest.param({"t": 2, "losses": 1}, id="two tokens", marks=SLOW),
        pytest.param(
            {"t": 2, "slow": 1, "losses": 0}, id="two tokens, a live holder given up", marks=SOAK
        ),
        pytest.param({"t": 3, "losses": 0}, id="three tokens", marks=SLOW),
        pytest.param(
            {"t": 1, "losses": 0, "empties": 1}, id="an empty packet that comes late", marks=SLOW
        ),
        pytest.param({"t": 2, "t_cur": 1, "losses": 1}, id="one token of two"),
        pytest.param({"messages": (2, 2), "t": 1, "losses": 1}, id="four messages", marks=SOAK),
        pytest.param({"messages": (1, 1, 1), "t": 1, "losses": 0}, id="three members", marks=SLOW),
        pytest.param({"t": 1, "by_master": False}, id="only producers repair"),
        pytest.param({"t": 1, "hasty": True}, id="rejoining as soon as in Figure 3"),
        pytest.param({"t": 1, "tells": True}, id="a master that can be asked for a status"),
        pytest.param({"t": 1, "losses": 1, "master": LongMemory}, id="a master that remembers"),
    ],
)
def test_every_interleaving_keeps_the_laws(how: dict[str, Any]) -> None:
    verdict = walk(**how)
    assert not verdict.broken
    assert verdict.ends and verdict.outcomes


@pytest.mark.rule("MTP-4")
@pytest.mark.parametrize("t", [1, 2, 3])
def test_t_tokens_are_out_at_most_and_may_be(t: int) -> None:
    verdict = walk(t=t, losses=0, crashes=0)
    assert not verdict.broken
    assert verdict.tokens_out == t


# [MTP-7] What failures do to the others. `heard` are decisions that all learn before the next.


@pytest.mark.rule("MTP-7")
@pytest.mark.parametrize(("t", "losses"), [(1, ANY), pytest.param(2, 0, marks=SLOW)])
def test_t_failures_in_a_row_are_borne_and_one_more_forces_a_rejoin(t: int, losses: int) -> None:
    alone = {"t": t, "t_cur": 1, "losses": losses, "hear": False, "heard": (ACCEPTED,)}
    assert walk(messages=(1,) * t + (2,), crashes=t, **alone).least_run() is None
    one_more = walk(messages=(1,) * (t + 2), crashes=t + 1, **alone)
    assert one_more.least_run() == t + 1
    assert one_more.least_failed() == t + 1
    print(one_more.rejoins[Rejoin("status", t + 1, t + 1)])
    assert not one_more.broken


@pytest.mark.rule("MTP-7")
@pytest.mark.parametrize("t", [1, 2])
def test_t_failures_force_a_rejoin_when_no_member_learned_the_earlier_decision(t: int) -> None:
    """The appendix has f ≥ t, the text t + 1: the master must advertise in time."""
    silent = walk(messages=(1,) * (t + 2), t=t, t_cur=1, crashes=t, losses=0, hear=False)
    assert silent.least_run() == t
    assert not silent.broken


@pytest.mark.rule("MTP-7")
def test_with_several_tokens_out_one_failure_may_force_a_rejoin_from_a_silent_master() -> None:
    """While 1 is pending, t - 1 more are granted: only the one after those carries its status."""
    silent = walk(messages=(2, 2), t=2, crashes=1, losses=0, hear=False)
    print(silent.rejoins[Rejoin("status", 1, 1)])
    assert silent.least_failed() == 1
    assert not silent.broken


@pytest.mark.rule("MTP-7")
def test_with_several_tokens_out_failures_need_not_be_in_a_row() -> None:
    verdict = walk(messages=(1, 1, 1), t=2, crashes=2, losses=0, hear=False, heard=(ACCEPTED,))
    print(verdict.rejoins[Rejoin("status", 1, 2)])
    assert (verdict.least_run(), verdict.least_failed()) == (1, 2)
    assert not verdict.broken


@pytest.mark.rule("MTP-7")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"hear": False, "heard": (ACCEPTED, REJECTED)}, id="all learn each decision"),
        pytest.param({"tells": True}, id="the master can be asked"),
    ],
)
def test_no_member_has_to_rejoin_when_the_master_advertises_in_time(how: dict[str, Any]) -> None:
    for messages, t in (((1, 1, 1), 1), ((2, 1), 2)):
        verdict = walk(messages=messages, t=t, crashes=len(messages) - 1, losses=0, **how)
        assert not verdict.broken
        assert not verdict.rejoins


@pytest.mark.rule("MTP-6")
def test_figure_3_alone_rejoins_though_nothing_went_wrong() -> None:
    """An empty packet overtakes what a holder has yet to send: so ask before rejoining."""
    calm: dict[str, Any] = {"t": 1, "crashes": 0, "losses": 0}
    hasty = walk(**calm, hasty=True)
    print(hasty.rejoins[Rejoin("status", 0, 0)])
    assert hasty.least_run() == 0
    assert not walk(**calm).rejoins


@pytest.mark.rule("MTP-6")
def test_data_that_only_a_dead_producer_had_forces_a_rejoin() -> None:
    assert walk(t=1, losses=1, by_master=False).least_run("data") == 0
    assert walk(t=1, losses=1).least_run("data") is None


@pytest.mark.catches("FIFO")
def test_a_master_that_takes_a_producers_messages_out_of_order() -> None:
    assert walk(t=2, losses=0, slow=1, in_order=False).law == "FIFO"


# Bugs planted in the machines.

LOSSY: dict[str, Any] = {"t": 1, "losses": 2, "slow": 1}
WIDE: dict[str, Any] = {"t": 2, "losses": 2, "slow": 1}
PAPER: dict[str, Any] = {"t": 1, "losses": 1, "messages": (1, 1, 0), "by_master": False}
WHOLE: dict[str, Any] = {"t": 2, "losses": 0, "reduce": False}


def bug(law: str, how: dict[str, Any], *unchecked: str, **machine: Any) -> Any:
    """A bug, and the law that it breaks when those before it are not looked at."""
    name = next(iter(machine.values())).__name__
    told = f"{name}, {' '.join(unchecked)} aside" if unchecked else name
    return pytest.param(
        law, {**how, **machine, "unchecked": unchecked}, id=told, marks=pytest.mark.catches(law)
    )


@pytest.mark.parametrize(
    ("law", "how"),
    [
        # The grant rule ignored: more tokens are out, and a status leaves the window unheard.
        bug("MTP-4", LOSSY, master=planted.GrantsFreely),
        bug("MTP-7", LOSSY, "MTP-4", master=planted.GrantsFreely),
        # A settled status changes: what was skipped is delivered elsewhere.
        bug("L2", LOSSY, master=planted.ChangesItsMind),
        bug("AB-1", LOSSY, *"L2 MTP-5 I2 AB-2".split(), master=planted.ChangesItsMind),
        bug("L2", WHOLE, master=planted.RejectsTheSeen),
        bug("AB-1", WHOLE, *"L2 FIFO I2 AB-2".split(), master=planted.RejectsTheSeen),
        bug("L2", WIDE, consumer=planted.Overwrites),
        bug("MTP-7", WIDE, "L2", "AB-2", consumer=planted.Overwrites),
        # What is accepted or unknown is skipped, where Figure 3 rejoins.
        bug("L3", PAPER, consumer=planted.SkipsTheLost),
        bug("I2", PAPER, "L3", consumer=planted.SkipsTheLost),
        bug("AB-1", PAPER, "L3", "I2", "AB-2", consumer=planted.SkipsTheLost),
        bug("L3", LOSSY, consumer=planted.SkipsTheUnknown),
        bug("AB-1", LOSSY, "L3", "AB-2", "I2", consumer=planted.SkipsTheUnknown),
        # The window of statuses off by one, at the master and at a consumer, both ways.
        bug("I1", LOSSY, master=planted.TellsFromTwo),
        bug("AB-2", LOSSY, "I1", master=planted.TellsFromTwo),
        bug("AB-2", LOSSY, master=planted.TellsFromZero),
        bug("MTP-7", LOSSY, "AB-2", master=planted.TellsFromZero),
        bug("I1", LOSSY, consumer=planted.LearnsFromZero),
        bug("A0", LOSSY, "I1", consumer=planted.LearnsFromZero),
        bug("AB-2", LOSSY, consumer=planted.LearnsFromTwo),
        bug("I1", LOSSY, "AB-2", "MTP-7", consumer=planted.LearnsFromTwo),
        bug("AB-2", LOSSY, consumer=planted.WaitsTooLong),
        bug("MTP-7", LOSSY, consumer=planted.RejoinsTooSoon),
        # And others.
        bug("I1", LOSSY, master=planted.ForgetsToMark),
        bug("AB-1", LOSSY, *"I1 AB-2 MTP-7 I2".split(), master=planted.ForgetsToMark),
        bug("A0", LOSSY, consumer=planted.DeliversThePending),
        bug("AB-1", LOSSY, "A0", "AB-2", consumer=planted.DeliversThePending),
        bug("L2", LOSSY, producer=planted.TellsTooSoon),
    ],
)
def test_a_planted_bug_is_caught(law: str, how: dict[str, Any]) -> None:
    verdict = walk(**how)
    assert verdict.law == law
    assert "broken" in verdict.story


# The figures to the letter: why ours deviate.

PRINTED: dict[str, Any] = {"t": 3, "losses": 0, "crashes": 0, "shift": 1}


@pytest.mark.catches("MTP-5")
def test_figure_1_as_printed_accepts_another_message_than_it_has_seen() -> None:
    """It sends out s for message s - 1, and then settles status(next - s): that of message s."""
    figures = {"master": planted.PrintedMaster, "consumer": planted.PrintedConsumer}
    assert walk(**PRINTED, **figures).law == "MTP-5"


@pytest.mark.catches("AB-2")
def test_figure_3_as_printed_never_learns_the_latest_status() -> None:
    """With k from 2 an empty packet cannot carry the status before it; nor with t = 1 any."""
    figures = {"master": planted.MendedMaster, "consumer": planted.PrintedConsumer}
    assert walk(**PRINTED, **figures).law == "AB-2"
    assert walk(t=2, losses=0, consumer=planted.PrintedConsumer).law == "AB-2"
    unaware = walk(t=1, losses=0, consumer=planted.PrintedConsumer, unchecked=("AB-2", "MTP-7"))
    assert unaware.least_run() == 0


@pytest.mark.rule("MTP-4")
def test_figure_1_as_printed_lets_one_token_less_out() -> None:
    figures = {"master": planted.MendedMaster, "consumer": planted.PrintedConsumer}
    assert walk(**PRINTED, **figures, unchecked=("AB-2",)).tokens_out == 2


# The explorer itself.

ALIKE = [
    {"messages": (1, 1), "t": 1, "slow": 1, "losses": 1},
    {"messages": (1, 1), "t": 2, "losses": 1},
    {"messages": (1, 1), "t": 1, "losses": 0, "lives": 2, "by_master": False},
]


@pytest.mark.parametrize("how", ALIKE, ids=str)
def test_what_is_fused_and_forgotten_changes_nothing_that_the_laws_see(how: dict[str, Any]) -> None:
    small, whole = walk(**how), walk(**how, reduce=False)
    assert not small.broken and not whole.broken
    assert small.states < whole.states
    assert small.outcomes == whole.outcomes
    assert set(small.rejoins) == set(whole.rejoins)


def test_forgetting_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parts, "carries", lambda self, at: 0)
    how = ALIKE[-1]
    assert set(walk(**how).rejoins) != set(walk(**how, reduce=False).rejoins)


def test_a_walk_that_grows_too_large_is_given_up() -> None:
    with pytest.raises(OverflowError, match="more than 100 states"):
        explore(Case(), 100)


def test_a_counterexample_names_its_members() -> None:
    story = walk(**LOSSY, consumer=planted.DeliversThePending).story.splitlines()
    assert [" ".join(line.split()) for line in story] == [
        "1 the master grants 1 (nothing before it) to a",
        "2 a sends 1: learns 1 accepted, delivers 1",
        "broken A0: 1 is accepted at a member, not at the master",
        "master 1 pending",
        "a delivered 1; knows 1 accepted",
        "b delivered nothing; knows nothing",
    ]
