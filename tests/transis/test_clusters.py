"""Clusters joined by wide links: one group, the same laws [TRA §1 Figure 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchmarks.wide_links import measured
from tests.plants import Patch, without
from unisono.core import CoreConfig
from unisono.errors import Misuse
from unisono.model import Address, Member, Service
from unisono.protocols.transis.cluster_core import ClusteredTransis
from unisono.protocols.transis.cluster_member import ClusterMember
from unisono.protocols.transis.cluster_views import GroupView, ViewRounds
from unisono.sim import FaultEvent, Outcome, Plan, run
from unisono.sim.plan import LinkPlan, Router, Weather

FAST = {"wide_detect_us": 1_000_000}
FOUR = tuple(tuple(range(at, at + 3)) for at in (0, 3, 6, 9))


def chaos(seed: int, nodes: int = 6, clusters: int = 3, messages: int = 30) -> Outcome:
    return run(
        Plan(
            protocol="transis",
            nodes=nodes,
            clusters=clusters,
            seed=seed,
            faults="chaos",
            messages=messages,
        )
    )


def story(
    *events: FaultEvent,
    clusters: Sequence[tuple[int, ...]] = FOUR,
    fault_us: int = 6_000_000,
    **weather_fields: Any,
) -> Outcome:
    """Calm clusters, 40 ms apart, but for these faults."""
    weather = Weather(
        fault_us=fault_us,
        schedule=events,
        clusters=tuple(clusters),
        routers=tuple(Router(each, LinkPlan("constant", 20_000)) for each in clusters),
        services=(Service.CAUSAL, Service.AGREED),
        large_ppm=0,
        **weather_fields,
    )
    nodes = sum(map(len, clusters))
    plan = Plan(
        protocol="transis",
        nodes=nodes,
        seed=7,
        messages=10 * nodes,
        weather=weather,
        options=FAST,
    )
    return run(plan)


def delivered(outcome: Outcome, node: str) -> list[tuple[str, int]]:
    assert outcome.history is not None
    return [
        (row.sender or "", row.number or 0)
        for row in outcome.history.rows
        if row.kind == "deliver" and row.node == node
    ]


def sent(outcome: Outcome) -> set[tuple[str, int]]:
    assert outcome.history is not None
    return {(row.node, row.number or 0) for row in outcome.history.rows if row.kind == "send"}


def views(outcome: Outcome, node: str) -> list[str]:
    """The names of the members of each view."""
    assert outcome.history is not None
    return [
        "".join(sorted(member.partition("#")[0] for member in row.members or ()))
        for row in outcome.history.rows
        if row.kind == "view" and row.node == node
    ]


# -- stories --------------------------------------------------------------------------------------


def test_a_cluster_that_is_cut_off_goes_on_and_merges() -> None:
    cut = FaultEvent("split", 2_500_000, 2_500_000, FOUR[3], tuple(range(9)))
    outcome = story(cut)
    assert not outcome.broken, outcome.violations[:3]
    whole = "abcdefghijkl"  # Who is lost leaves at once; what is left is then reported anew.
    assert views(outcome, "a")[-4:] == [whole, "abcdefghi", "abcdefghi", whole]
    assert views(outcome, "j")[-4:] == [whole, "jkl", "jkl", whole]
    here, there = set(delivered(outcome, "a")), set(delivered(outcome, "j"))
    assert here - there, "what the others said meanwhile is theirs"
    assert there - here, "and the cluster that was cut off went on, too"
    own = {each for each in sent(outcome) if each[0] in "jkl"}
    assert own <= there, "it delivered all of its own"


def test_what_a_speaker_was_about_to_say_its_successor_says() -> None:
    """Its cluster's and the others' messages are delivered everywhere, once."""
    crash = FaultEvent("crash", 2_500_000, 500_000, (0,))
    outcome = story(crash, clusters=FOUR[:2])
    assert not outcome.broken, outcome.violations[:3]
    stayed = "bcdef"
    said = {each for each in sent(outcome) if each[0] in stayed}
    for node in stayed:
        theirs = [each for each in delivered(outcome, node) if each[0] in stayed]
        assert sorted(theirs) == sorted(said)


def test_newcomers_have_the_state_of_the_group() -> None:
    """Of one cluster the first time all are away; of another one of three."""
    all_of_one = FaultEvent("crash", 2_500_000, 300_000, FOUR[1])
    one = FaultEvent("crash", 2_600_000, 300_000, (1,))
    outcome = story(all_of_one, one, clusters=FOUR[:2], with_state=True)
    assert not outcome.broken, outcome.violations[:3]
    assert outcome.counts["adopted"] >= 4


def test_a_slow_reader_of_one_cluster_stops_the_senders_and_no_more() -> None:
    slow = FaultEvent("slow", 2_000_000, 3_000_000, (1,))
    outcome = story(slow, clusters=FOUR[:2])
    assert not outcome.broken, outcome.violations[:3]
    assert "excluded" not in outcome.counts


@pytest.mark.parametrize(("service", "most"), [(Service.CAUSAL, 1), (Service.AGREED, 2)])
def test_delivery_takes_few_round_trips_and_few_bytes(service: Service, most: int) -> None:
    found = measured(service, 40_000, senders=2, clusters=2, count=8)
    assert max(found.latencies) <= most
    assert found.overhead < 2, "one copy a cluster, and acknowledgments"


# -- chaos ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "nodes", "clusters"),
    [
        # Newcomers that missed a view.
        (14, 3, 2),
        # A cluster of two histories.
        (53, 7, 2),
        # What a cluster had said when it came back as another.
        (208, 5, 4),
        # A member that left without a majority of its cluster never ended.
        (398, 6, 3),
        # It ended as if it had delivered all that it owed.
        (424, 7, 3),
        # It left at once, though its cluster had a majority again.
        (47, 6, 3),
        # It departed before its slow reader had everything.
        (20166, 9, 2),
        # A cluster that came back amid the agreement was waited for as what it had been.
        (20584, 7, 3),
        # A cluster with a new history was held for the one that it replaced.
        (20620, 8, 3),
    ],
)
def test_the_laws_hold_under_chaos(seed: int, nodes: int, clusters: int) -> None:
    outcome = chaos(seed, nodes, clusters, 40)
    assert not outcome.broken, outcome.violations[:3]


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 1400, 20))
def test_the_laws_hold_under_much_chaos(first: int) -> None:
    for seed in range(first, first + 20):
        nodes = 3 + seed % 7
        outcome = chaos(seed, nodes, min(nodes, 2 + seed % 3), 40)
        assert not outcome.broken, (seed, outcome.violations[:3])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_thousand_members_are_one_group() -> None:
    found = measured(
        Service.AGREED,
        150_000,
        senders=1,
        clusters=20,
        each=50,
        count=1,
        detect_us=8_000_000,
        answer_us=20_000,
        wide_detect_us=20_000_000,
        wide_answer_us=50_000,
    )
    assert max(found.latencies) <= 2


# -- the laws can fail ----------------------------------------------------------------------------


def begun_anew(patch: Patch) -> None:
    """A newcomer of a cluster begins with a replica of its own."""
    patch.setattr(ClusteredTransis, "_begin_from", lambda self, image, out: None)


def one_report_is_enough(patch: Patch) -> None:
    take = ViewRounds.take

    def hasty(self: ViewRounds, cluster: Member, report: Any) -> GroupView | None:
        found = take(self, cluster, report)
        if found is None and self.is_pending and self._reports:
            self.is_pending = False
            self.view = GroupView(f"{report.wide}.{self._number}", dict(self._reports), self._along)
            return self.view
        return found

    patch.setattr(ViewRounds, "take", hasty)


MUTANTS: list[tuple[Callable[[Patch], None], str, tuple[int, int, int]]] = [
    (one_report_is_enough, "view_order", (2, 5, 2)),
    (begun_anew, "agreement", (2, 5, 2)),
    (without(ClusterMember, "_begin_again"), "progress", (103, 5, 2)),
]


@pytest.mark.parametrize(("plant", "law", "world"), MUTANTS)
def test_a_planted_bug_is_caught(
    plant: Callable[[Patch], None],
    law: str,
    world: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    seed, nodes, clusters = world
    assert law in chaos(seed, nodes, clusters, 40).broken


# -- bad input ------------------------------------------------------------------------------------

HERE, THERE = Address("10.0.0.1", 7000), Address("10.0.1.1", 7000)


def made(clusters: dict[str, tuple[Address, ...]], **options: int) -> ClusteredTransis:
    return ClusteredTransis(
        CoreConfig(Member("a", HERE, 1), "g", 1, options=options, clusters=clusters)
    )


@pytest.mark.parametrize(
    ("clusters", "text"),
    [
        ({"here": (THERE,)}, "10.0.0.1:7000 is in none of clusters="),
        ({"here": (HERE,), "there": (HERE,)}, "names an address twice"),
        ({"here": (HERE,), "there": ()}, "'there' has 0 processes: name 1 to 64"),
        ({str(n): (Address("10.0.0.1", 7000 + n),) for n in range(65)}, "65 clusters: 64 at most"),
    ],
)
def test_a_bad_list_of_clusters_is_refused(
    clusters: dict[str, tuple[Address, ...]], text: str
) -> None:
    with pytest.raises(Misuse, match=text):
        made(clusters)


def test_options_that_the_list_of_clusters_decides_are_refused() -> None:
    with pytest.raises(Misuse, match="sites"):
        made({"here": (HERE,)}, sites=3)


def test_a_protocol_that_does_not_span_clusters_says_so() -> None:
    with pytest.raises(Misuse, match="mtp does not span clusters"):
        run(Plan(protocol="mtp", nodes=4, clusters=2))
