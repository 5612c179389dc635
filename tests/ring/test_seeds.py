"""Simulated rings: seeds that once failed, and a few fresh ones."""

from __future__ import annotations

import os

import pytest

from tests.ring.soaking import soak
from unisono.model import Service
from unisono.protocols.ring import SPEC
from unisono.protocols.ring.parameters import DEFAULTS
from unisono.sim.plan import Plan
from unisono.sim.run import run

# By faults: nodes and seed. What each of them found is stated where it was mended.
KEPT = {
    "none": ((8, 12), (8, 26)),
    "loss": ((6, 24), (7, 39), (7, 46), (8, 19)),
    "crash": ((8, 5), (8, 47), (9, 13), (9, 27)),
    "partition": ((5, 58),),
    "mild": (
        *((8, 40), (9, 97), (8, 250), (9, 363), (8, 376)),
        *((4, 400), (9, 503), (9, 860), (9, 1140)),
        *((3, 84), (8, 1342), (8, 1552), (3, 1652), (9, 1644), (9, 2057)),
    ),
}
CASES = [(faults, nodes, seed) for faults, rows in KEPT.items() for nodes, seed in rows]


SOAKED = int(os.environ.get("UNISONO_SEEDS") or 3000) // 10


def nodes_of(seed: int) -> int:
    return 3 + seed % 7


def chaos(nodes: int, seed: int, messages: int = 60, **options: int) -> Plan:
    """As it was found: with options that are not drawn."""
    plain = {name: DEFAULTS[name] for name in SPEC.chaos} | {"sites": nodes}
    return Plan(
        protocol="ring", nodes=nodes, seed=seed, faults="chaos", messages=messages,
        options={**plain, **options},
    )  # fmt: skip


@pytest.mark.parametrize(("faults", "nodes", "seed"), CASES)
def test_a_seed_that_once_failed_holds(faults: str, nodes: int, seed: int) -> None:
    outcome = run(Plan(protocol="ring", nodes=nodes, seed=seed, faults=faults, messages=200))
    assert outcome.violations == (), outcome.replay


@pytest.mark.parametrize(("nodes", "seed"), [(4, 64), (4, 281)])
def test_an_agreed_message_has_one_place(nodes: int, seed: int) -> None:
    """A holder delivered a delegated message, its turn was lost with it, and the originator
    sent it again."""
    plan = Plan(
        protocol="ring", nodes=nodes, seed=seed, faults="mild", messages=200,
        service=Service.AGREED,
    )  # fmt: skip
    assert run(plan).violations == ()


@pytest.mark.parametrize(("nodes", "seed"), [(5, 3000), (7, 47), (7, 48), (7, 11), (3, 10)])
def test_a_member_that_never_had_a_view_has_nothing_to_lose(nodes: int, seed: int) -> None:
    """A founding that never was in force, or a state that never came, kept all from beginning; and
    messages from before a part was let continue were attributed to the view before."""
    assert run(chaos(nodes, seed)).violations == ()


def test_a_late_turn_does_not_keep_one_from_joining() -> None:
    """It had promised the ring that would admit it, received a turn of the one before, and asked
    again; the others formed the ring, and left it out when it did not answer."""
    assert run(chaos(3, 3115)).violations == ()


@pytest.mark.parametrize(("nodes", "seed"), [(5, 7081), (9, 20_093), (6, 20_347), (8, 20_519)])
def test_a_part_continued_by_request_waits_for_those_that_outrank_it(nodes: int, seed: int) -> None:
    """They received its turns, gave up their own ring and asked to join it; it stopped, waited for
    them to form one, and formed its own again: so for ever."""
    assert run(chaos(nodes, seed)).violations == ()


def test_a_member_that_was_stopped_and_rejoins_keeps_its_vote() -> None:
    """One of a bare majority was behind, was stopped, and came back without its memory: too
    few were left that remember. A process that is stopped and joins again has its records."""
    assert run(chaos(9, 20_802)).violations == ()


def test_only_a_founding_is_marked_as_one() -> None:
    """One that had accepted the founding ring and never learned that it was in force reported
    the next one as the founding. Where none learned it, all report it: mild 9, 363."""
    assert run(chaos(4, 7337, 80)).violations == ()


def test_a_part_is_marked_though_its_first_ring_was_never_in_force() -> None:
    """The operator's word formed a ring that not all accepted, and the next one was shown as if a
    majority had formed it."""
    assert run(chaos(3, 2785, 100)).violations == ()


def test_a_part_is_not_blocked_by_one_that_never_came_in() -> None:
    """One was let go on alone, and formed a ring with another that did not accept it: from then on
    it waited for more than half of the sites."""
    assert run(chaos(3, 31_217, tries=3, turn_packets=1)).violations == ()


def test_a_part_that_lost_its_memory_does_not_begin_anew_as_small_as_it_was() -> None:
    """Two of four sites, by the operator's word; both forgot, and they began anew without it."""
    plan = Plan(protocol="ring", nodes=4, seed=22_314, faults="chaos", messages=60)
    assert run(plan).violations == ()


def test_a_delegated_message_in_flight_is_sent_again_in_a_part() -> None:
    assert run(chaos(2, 638)).violations == ()


def test_a_member_that_leads_instead_is_not_sent_back_to_the_ring() -> None:
    """One without memory invited; one that remembered denied and invited in turn, and reported the
    first that the ring went on. That one returned to it, denied the other, and so for ever."""
    plan = Plan(protocol="ring", nodes=8, seed=90_207, faults="mild", messages=120)
    assert run(plan).violations == ()


def test_a_newcomer_makes_no_majority_of_a_part() -> None:
    """Of nine, eight were in the group; four of them and the ninth were cut off for good. The other
    four and a newcomer of another name would be as many: neither may go on."""
    assert run(Plan(protocol="ring", nodes=9, seed=101_197, messages=60)).violations == ()


def test_a_founding_that_never_was_in_force_does_not_block_the_next() -> None:
    """One acknowledgement never came. Of the five that were to be on that ring three were left in
    a part of six of nine sites, with the one that had formed it and knew that it never was."""
    assert run(Plan(protocol="ring", nodes=9, seed=160, messages=60)).violations == ()


@pytest.mark.parametrize(
    ("nodes", "seed"), [(8, 201_361), (8, 201_898), (3, 201_456), (3, 203_193)]
)
def test_no_false_alarm_for_joiners_of_parts_stopped_members_or_clocks_set_back(
    nodes: int, seed: int
) -> None:
    assert run(Plan(protocol="ring", nodes=nodes, seed=seed, messages=60)).violations == ()


def test_no_law_blames_a_founding_that_only_a_member_of_a_later_part_reported() -> None:
    assert run(Plan(protocol="ring", nodes=3, seed=81_010, messages=60)).violations == ()


@pytest.mark.parametrize(("nodes", "seed"), [(3, 200_311), (7, 202_836), (7, 301_386)])
def test_no_law_blames_members_that_forgot_before_they_showed_the_view_that_excluded_one(
    nodes: int, seed: int
) -> None:
    assert run(Plan(protocol="ring", nodes=nodes, seed=seed, messages=60)).violations == ()


def test_a_majority_that_keeps_no_records_need_not_begin_without_the_others() -> None:
    """The run ends partitioned before any ring was formed."""
    for seed in (304_110, 305_126):
        assert run(Plan(protocol="ring", nodes=9, seed=seed, messages=60)).violations == ()


def test_a_name_of_a_ring_that_never_was_in_force_has_no_vote() -> None:
    """A majority by number, of which two are new to the group, is not asked to go on."""
    assert run(Plan(protocol="ring", nodes=9, seed=308_323, messages=60)).violations == ()


def test_what_a_step_was_to_deliver_was_received_by_one_that_crashed_amid_it() -> None:
    """A part was let continue: the core of one had the messages of those it left, and no longer
    reported them."""
    assert run(Plan(protocol="ring", nodes=9, seed=305_609, messages=60)).violations == ()


def test_a_joiner_of_a_part_learns_that_it_was_continued_by_request() -> None:
    """The one that was let go on died before it showed a view of the part."""
    assert run(Plan(protocol="ring", nodes=4, seed=203_273, messages=60)).violations == ()


@pytest.mark.parametrize(
    ("nodes", "seed"),
    [
        (3, 800_456),  # one of a pair founded a group while the other was cut off
        (8, 1_000_667),  # three of six founded a group while the others were cut off
        (4, 800_257),  # a newcomer stopped requesting the state when a reformation was given up
    ],
)
def test_the_group_forms(nodes: int, seed: int) -> None:
    assert run(Plan(protocol="ring", nodes=nodes, seed=seed, messages=60)).violations == ()


def test_one_that_leaves_does_not_depart_with_a_ring_that_gave_up_its_last_turns() -> None:
    """It had as many turns as the ring of the others was based on, of which its last was another:
    it departed with that ring, and delivered as safe what nobody else did."""
    assert run(Plan(protocol="ring", nodes=8, seed=1_300_276, messages=60)).violations == ()


def test_the_founding_of_a_coordinator_that_gave_it_up_is_forgotten() -> None:
    """It asked the ring that the others had founded to join, with the memory of its own founding,
    which was never in force, and was told that it is stale."""
    assert run(Plan(protocol="ring", nodes=7, seed=700_449, messages=60)).violations == ()


def test_a_founding_that_was_accepted_after_another_ring_is_shown() -> None:
    """A newcomer had accepted a ring before that never came into force; all who remembered died."""
    assert run(Plan(protocol="ring", nodes=3, seed=1_200_592, messages=60)).violations == ()


def test_of_two_that_found_a_group_at_once_one_yields() -> None:
    """Each heard the other's invitation, and founded alone before it got the other's denial."""
    assert run(Plan(protocol="ring", nodes=3, seed=1_200_188, messages=60)).violations == ()


def test_no_law_blames_one_that_was_let_go_on_for_what_the_others_had_gone_on_with() -> None:
    assert run(Plan(protocol="ring", nodes=4, seed=1_200_053, messages=60)).violations == ()


def test_no_law_blames_a_founding_after_all_clocks_were_set_back() -> None:
    assert run(Plan(protocol="ring", nodes=3, seed=700_243, messages=60)).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40_000, 40_020, 10))
def test_the_laws_hold_under_chaos(first: int) -> None:
    """3 to 9 members, of known or unknown size."""
    for seed in range(first, first + 10):
        options, faults = ({"sites": 0}, "mild") if seed % 3 == 0 else ({}, "chaos")
        plan = Plan(
            protocol="ring", nodes=nodes_of(seed), seed=seed, faults=faults, messages=60,
            options=options,
        )  # fmt: skip
        outcome = run(plan)
        assert outcome.violations == (), outcome.replay


@soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("faults", ["loss", "crash", "partition"])
def test_a_tenth_as_many_seeds_of_one_kind_of_fault_break_no_law(faults: str) -> None:
    """Chaos is soaked for all protocols alike; these are the ring's own weather."""
    for seed in range(60_000, 60_000 + SOAKED):
        options = {"sites": 0} if seed % 2 else {}
        plan = Plan(
            protocol="ring", nodes=nodes_of(seed), seed=seed, faults=faults, options=options
        )
        outcome = run(plan)
        assert outcome.violations == (), outcome.replay


def test_one_that_was_let_go_on_before_it_had_the_view_owes_nothing_of_it() -> None:
    """The others formed a ring with it, but it never learned that this was in force, and went on by
    its operator's word; without it they delivered as safe, with the ring after, what was left."""
    assert run(Plan(protocol="ring", nodes=8, seed=1_000_036, messages=60)).violations == ()


def test_no_law_blames_a_founder_that_crashes_before_it_shows_whom_it_admitted() -> None:
    """It founded alone, admitted one, and crashed with its own views half shown."""
    assert run(Plan(protocol="ring", nodes=4, seed=1_002_205, messages=60)).violations == ()


def test_one_that_returns_to_its_ring_still_knows_why_that_was_stopped() -> None:
    """Two led at once; one gave up, and who had promised it the next ring went back to the old one
    and denied the other's invitation, again and again."""
    assert run(Plan(protocol="ring", nodes=5, seed=1_004_652, messages=60)).violations == ()


def test_no_law_blames_a_newcomer_that_goes_on_alone_where_all_others_left() -> None:
    """Nobody is in both views: those that left agreed to the newcomer's."""
    assert run(Plan(protocol="ring", nodes=3, seed=1_004_450, messages=60)).violations == ()


def test_no_law_blames_two_that_crash_or_stop_before_they_show_whom_they_admitted() -> None:
    assert run(Plan(protocol="ring", nodes=3, seed=1_300_229, messages=60)).violations == ()


def test_no_law_takes_a_lone_founding_for_that_of_a_group_that_had_its_own() -> None:
    assert run(Plan(protocol="ring", nodes=5, seed=1_315_307, messages=60)).violations == ()


@pytest.mark.parametrize(("nodes", "seed"), [(3, 1_401_786), (5, 1_401_517)])
def test_a_newcomer_tells_the_founding_that_nobody_showed(nodes: int, seed: int) -> None:
    assert run(Plan(protocol="ring", nodes=nodes, seed=seed, messages=60)).violations == ()
