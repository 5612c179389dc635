"""The primary component: never two at a time, and one whenever a majority is together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.transis.primary_explorer import Explorer, TwoPrimaries
from unisono.errors import BadPacket, Misuse
from unisono.model import Change, ChangeKind, Member
from unisono.protocols.transis import SPEC
from unisono.protocols.transis.parameters import Parameters
from unisono.protocols.transis.primary import (
    ATTEMPTS_MAX,
    FormPrimary,
    PrimaryMemory,
    PrimaryReport,
    PrimarySession,
    PrimaryVoting,
    Remember,
    Step,
    Tell,
    has_majority,
    read_report,
    write_memory,
    write_report,
)
from unisono.protocols.transis.voting import StaticMajority
from unisono.sim.plan import Plan
from unisono.sim.run import Outcome
from unisono.sim.run import run as simulate


class Forgetful(PrimaryVoting):
    """Does not remember what it attempts: dynamic voting as it is told first."""

    def _open_attempts(self, formed: PrimarySession | None) -> list[PrimarySession]:
        return []


class Hasty(PrimaryVoting):
    """Tells the others before it has recorded the attempt."""

    def _vote(self) -> list[Step]:
        return super()._vote()[::-1]


@pytest.mark.rule("TRA-18")
@pytest.mark.parametrize("is_begun", [False, True])
def test_there_are_never_two_primary_components(is_begun: bool) -> None:
    explorer = Explorer(2, is_begun=is_begun)
    explorer.explore()
    assert explorer.most_formed == 2 + is_begun


@pytest.mark.soak
@pytest.mark.rule("TRA-18")
@pytest.mark.parametrize("is_begun", [False, True])
def test_nor_through_three_configurations(is_begun: bool) -> None:
    explorer = Explorer(3, is_begun=is_begun)
    explorer.explore()
    assert explorer.most_formed == 3 + is_begun


@pytest.mark.parametrize(
    "voting", [Hasty, pytest.param(Forgetful, marks=pytest.mark.soak)], ids=lambda it: it.__name__
)
def test_voting_that_forgets_makes_two(voting: type[PrimaryVoting]) -> None:
    with pytest.raises(TwoPrimaries):
        Explorer(3, voting, is_begun=True).explore()


# One process among others, as their memories say.


def vote(
    name: str, told: dict[str, PrimaryMemory], process_count: int = 5
) -> PrimarySession | None:
    """What these attempt."""
    voting = PrimaryVoting(name, process_count)
    voting.restore([write_memory(told[name])])
    voting.begin(told)
    steps: list[Step] = []
    for each, memory in told.items():
        steps += voting.take(each, PrimaryReport(False, memory))
    if not steps:
        return None
    remember, tell = steps
    assert isinstance(remember, Remember) and isinstance(tell, Tell)
    assert tell.report.memory == remember.memory == voting.memory
    formed = [voting.take(each, tell.report) for each in told][-1]
    assert isinstance(formed[0], FormPrimary) and isinstance(formed[1], Remember)
    return formed[0].session


def those(names: str, memory: PrimaryMemory) -> dict[str, PrimaryMemory]:
    return dict.fromkeys(names, memory)


NEW = PrimaryMemory()
OF_FOUR = PrimaryMemory(7, PrimarySession(7, tuple("abcd")))


@pytest.mark.rule("TRA-18")
@pytest.mark.parametrize(
    ("told", "number"),
    [
        (those("abc", NEW), 1),
        (those("ab", NEW), None),
        # It follows the processes that are left.
        (those("abc", OF_FOUR), 8),
        (those("ab", OF_FOUR), 8),
        (those("cd", OF_FOUR), None),
        (those("bc", OF_FOUR) | those("e", NEW), None),
        (those("ab", OF_FOUR) | those("e", NEW), 8),
        # An attempt that may have succeeded counts too, until a member of it denies it.
        (those("ab", PrimaryMemory(8, OF_FOUR.formed, (PrimarySession(8, tuple("acd")),))), None),
        (
            those("ab", PrimaryMemory(8, OF_FOUR.formed, (PrimarySession(8, tuple("acd")),)))
            | those("c", OF_FOUR),
            9,
        ),
    ],
)
def test_who_may_form(told: dict[str, PrimaryMemory], number: int | None) -> None:
    for name in told:
        formed = vote(name, told)
        assert formed == (None if number is None else PrimarySession(number, tuple(sorted(told))))


def test_half_of_them_is_enough_with_the_first() -> None:
    assert has_majority("ab", "abcd") and not has_majority("cd", "abcd")
    assert has_majority("bcd", "abcd") and not has_majority("ae", "abcd")


def test_too_many_open_attempts_are_not_added_to() -> None:
    sets = [("a", "b", f"c{number}") for number in range(ATTEMPTS_MAX)]
    attempts = tuple(PrimarySession(8 + at, names) for at, names in enumerate(sets))
    told = those("ab", PrimaryMemory(30, PrimarySession(7, ("a", "b")), attempts))
    assert vote("a", told, ATTEMPTS_MAX + 2) is None
    fewer = {name: it._replace(attempts=attempts[1:]) for name, it in told.items()}
    assert vote("a", fewer, ATTEMPTS_MAX + 2)


def test_reports_of_others_and_of_other_attempts_are_ignored() -> None:
    voting = PrimaryVoting("a", 1)
    voting.begin("a")
    assert voting.take("stranger", PrimaryReport(False, NEW)) == []
    assert voting.take("a", PrimaryReport(True, NEW)) == []
    assert len(voting.take("a", PrimaryReport(False, NEW))) == 2
    assert voting.take("a", PrimaryReport(False, NEW)) == []
    assert voting.take("a", PrimaryReport(True, OF_FOUR)) == []


def test_records_and_reports_round_trip_and_hostile_ones_are_refused() -> None:
    report = PrimaryReport(True, PrimaryMemory(9, OF_FOUR.formed, (PrimarySession(9, ("a", "d")),)))
    assert read_report(write_report(report)) == report
    voting = PrimaryVoting("a", 3)
    record = write_memory(report.memory)
    voting.restore([write_memory(NEW), record, record[:-1]])
    assert voting.memory == report.memory
    for at in range(len(write_report(report))):
        with pytest.raises(BadPacket):
            read_report(write_report(report)[:at])


# In a group: the component that has a majority of all processes.


def components(seed: int) -> Outcome:
    """Of four processes, through any faults."""
    plan = Plan(
        protocol="transis",
        nodes=4,
        seed=seed,
        faults="chaos",
        messages=60,
        options={"sites": 4},
        spec=SPEC,
    )
    return simulate(plan)


def test_a_majority_that_no_component_may_reach_is_refused() -> None:
    with pytest.raises(Misuse, match="sites=40 is over members_count_max=32"):
        Parameters.of({"sites": 40})
    assert Parameters.of({"sites": 40, "members_count_max": 40}).sites == 40


@pytest.mark.rule("TRA-18")
def test_only_the_component_with_a_majority_operates() -> None:
    told = set()
    for outcome in map(components, range(4)):
        assert outcome.violations == () and outcome.history is not None
        for trace in outcome.history.lives.values():
            in_view = ""
            for row in trace.rows:
                if row.kind == "view":
                    (in_view,) = {"primary", "secondary"} & set(row.changes or ())
                    assert (in_view == "primary") == (len(row.members or ()) > 2)
                    told.add(in_view)
                elif row.kind == "deliver":
                    assert in_view == "primary"
    assert told == {"primary", "secondary"}


@pytest.mark.catches("one_component")
def test_components_that_all_operate_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(self: StaticMajority, members: Iterable[Member]) -> tuple[Change, ...]:
        self.may_operate = True
        return (Change(ChangeKind.PRIMARY),)

    monkeypatch.setattr(StaticMajority, "enter", enter)
    assert any("one_component" in components(seed).broken for seed in range(12))


def test_too_few_processes_are_not_asked_to_operate() -> None:
    plan = Plan(protocol="transis", nodes=3, seed=1, faults="mild", options={"sites": 8})
    outcome = simulate(plan)
    assert outcome.violations == () and outcome.delivered == 0
