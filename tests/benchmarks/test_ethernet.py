"""[RNG Figures 13 to 17] The curves on the paper's network, in virtual time: their shape.

The paper prints five points and draws the rest; what its text says of the curves is asked here. How
fast this machine is plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.paper.ethernet import simulated
from benchmarks.paper.plan import FIGURES, QUICK, points, summed_up
from unisono.protocols import spec

pytestmark = [pytest.mark.rule("RNG-24"), pytest.mark.slow]

MEMBERS = (3, 8, 16)
EFFORT = QUICK._replace(simulated_s=0.3, slices=3, sporadic_s=2.0)
SIZES = {figure.number: figure.sizes for figure in FIGURES}
ORDERED, ATOMIC, DELAY, ATOMIC_DELAY, SPORADIC = 13, 14, 15, 16, 17

Medians = Mapping[tuple[int, int, int], float]


@pytest.fixture(scope="module")
def samples() -> dict[tuple[int, int, int], list[float]]:
    """By figure, octets and members."""
    ring = spec("ring")
    options = ring.presets["paper"]
    return {
        (point.figure.number, point.nbytes, count): simulated(ring, options, point, EFFORT)
        for count in MEMBERS
        for point in points(FIGURES, count)
    }


@pytest.fixture(scope="module")
def medians(samples: Mapping[tuple[int, int, int], list[float]]) -> Medians:
    return {key: summed_up(key[2], found).median for key, found in samples.items()}


def test_every_point_of_every_figure_is_there(medians: Medians) -> None:
    assert {key[0] for key in medians} == set(range(13, 18))
    assert len(medians) == len(MEMBERS) * sum(map(len, SIZES.values()))
    assert all(value > 0 for value in medians.values())


@pytest.mark.parametrize("figure", (ORDERED, ATOMIC))
@pytest.mark.parametrize("count", MEMBERS)
def test_larger_messages_are_fewer(medians: Medians, figure: int, count: int) -> None:
    null, small, large = (medians[figure, nbytes, count] for nbytes in SIZES[figure])
    assert null > 2 * small > 4 * large


@pytest.mark.parametrize("figure", (ORDERED, ATOMIC))
@pytest.mark.parametrize("nbytes", (1024, 4096))
def test_larger_groups_order_fewer(medians: Medians, figure: int, nbytes: int) -> None:
    """Two of them speak, and the others pass the token on."""
    few, more, most = (medians[figure, nbytes, count] for count in MEMBERS)
    assert few > more > most


def test_null_messages_are_bound_by_the_processor_and_not_by_the_group(medians: Medians) -> None:
    few, _, most = (medians[ORDERED, 0, count] for count in MEMBERS)
    assert few > 1400, "the paper's peak, with one message a turn; ours share a packet"
    assert 0.8 < most / few < 1.25


def test_the_calculated_rate_is_met(medians: Medians) -> None:
    """571 a second for 1 KB."""
    assert 0.8 < medians[ORDERED, 1024, 3] / 571 < 1.2


def test_atomic_messages_are_not_more_than_ordered_ones(medians: Medians) -> None:
    """But for null messages in a small group: those that wait to be safe share fuller packets. Of
    the largest there are some ten in what is measured, so one more is no difference."""
    for nbytes, counts in ((0, MEMBERS[1:]), (1024, MEMBERS), (4096, MEMBERS)):
        for count in counts:
            assert medians[ATOMIC, nbytes, count] <= 1.1 * medians[ORDERED, nbytes, count]


@pytest.mark.parametrize("nbytes", (64, 1024))
def test_atomic_messages_take_longer_than_ordered_ones(medians: Medians, nbytes: int) -> None:
    for count in MEMBERS:
        assert medians[ATOMIC_DELAY, nbytes, count] > 1.1 * medians[DELAY, nbytes, count]


@pytest.mark.parametrize("figure", (DELAY, ATOMIC_DELAY))
@pytest.mark.parametrize("nbytes", (64, 1024))
def test_the_delay_grows_with_the_group(medians: Medians, figure: int, nbytes: int) -> None:
    few, more, most = (medians[figure, nbytes, count] for count in MEMBERS)
    assert few < more < most
    assert most < 16 / 3 * few, "more slowly than the group"


@pytest.mark.parametrize("figure", (DELAY, ATOMIC_DELAY, SPORADIC))
@pytest.mark.parametrize("count", MEMBERS)
def test_larger_messages_take_longer(medians: Medians, figure: int, count: int) -> None:
    small, large = (medians[figure, nbytes, count] for nbytes in SIZES[figure])
    assert small < large


def test_the_delays_at_three_members_are_near_those_printed(medians: Medians) -> None:
    """1.5 ms for 64 octets and 2.9 ms for 1 KB."""
    assert 0.7 < medians[DELAY, 64, 3] / 1.5 < 1.5
    assert 0.7 < medians[DELAY, 1024, 3] / 2.9 < 1.5


@pytest.mark.parametrize("nbytes", (64, 1024))
def test_a_sporadic_message_takes_a_hop_more_than_one_sent_by_the_holder(
    samples: Mapping[tuple[int, int, int], list[float]], medians: Medians, nbytes: int
) -> None:
    """It is forwarded to the holder first. But unlike in the paper it never waits for the token's
    round, however large the group."""
    for count in MEMBERS[1:]:
        assert medians[SPORADIC, nbytes, count] > 1.4 * min(samples[DELAY, nbytes, count])
    assert medians[SPORADIC, nbytes, 16] < 1.2 * medians[SPORADIC, nbytes, 8]
