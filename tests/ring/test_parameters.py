"""What may be set on a ring, the presets, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ring.harness import gather, started
from unisono.errors import Misuse
from unisono.protocols import spec
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.parameters import DEFAULTS, PRESETS, SITES_MAX, TIMES, Parameters


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_setting_that_works(name: str) -> None:
    preset = PRESETS[name]
    assert set(TIMES) <= preset.keys() <= DEFAULTS.keys() - {"sites", "members_count_max"}
    parameters = Parameters.of(preset)
    assert parameters.t_send_us < parameters.t_rt_us <= parameters.t_reform_us
    assert parameters.t_ts_us <= parameters.t_ref_rt_us, "a coordinator ends before it is given up"
    assert parameters.t_send_us <= parameters.idle_us
    room = started("a", "b", "c", **preset, sites=3)
    room.obey("join a b c")
    gather(room, *"abc", late_ms=20_000)


@pytest.mark.rule("RNG-21")
def test_the_papers_numbers_are_a_preset() -> None:
    """C = 2, T_SEND = 0.5 s, T_RT = 1 s; a turn is a packet, and failed members count for good."""
    paper = PRESETS["paper"]
    assert (paper["tries"], paper["t_send_us"], paper["t_rt_us"]) == (2, 500_000, 1_000_000)
    assert (paper["turn_packets"], paper["forget_us"]) == (1, 0)
    assert paper["idle_us"] == paper["t_send_us"], "a quiet holder always waits T_SEND"


def test_a_longer_way_has_longer_timers() -> None:
    loopback, lan, wan = (Parameters.of(PRESETS[name]) for name in ("loopback", "lan", "wan"))
    for name in ("t_send_us", "t_rt_us", "t_reform_us", "t_ref_rt_us", "t_ts_us"):
        assert getattr(loopback, name) < getattr(lan, name) < getattr(wan, name)
    assert lan == Parameters.of({})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed": 1}, "ring has no option 'speed'; it has: sites, detect_us, t_send_us, t_rt_us"),
        ({"tries": -1}, "tries must not be negative, got -1"),
        ({"tries": 1001}, "tries must be 0 to 1000"),
        ({"detect_us": 399}, "detect_us must be 400 to"),
        ({"sites": SITES_MAX + 1}, "sites must be 0 to 256"),
        ({"sites": 65}, "sites=65 is over members_count_max=64"),
        ({"t_send_us": 99}, "t_send_us must be 100 to"),
        ({"t_rt_us": 0}, "t_rt_us must be 100 to"),
        ({"t_reform_us": 1}, "t_reform_us must be 100 to"),
        ({"t_ref_rt_us": 1}, "t_ref_rt_us must be 100 to"),
        ({"t_ts_us": 3_600_000_001}, "t_ts_us must be 100 to"),
        ({"idle_us": 1_000}, "idle_us must be at least t_send_us=2000, got 1000"),
        ({"turn_packets": 0}, "turn_packets must be 1 to 4096, got 0"),
        ({"turn_packets": 4097}, "turn_packets must be 1 to 4096"),
        ({"members_count_max": 0}, "members_count_max must be 1 to 256"),
        ({"members_count_max": 257}, "members_count_max must be 1 to 256"),
        ({"forget_us": -5}, "forget_us must not be negative"),
    ],
)
def test_options_out_of_bounds_are_refused_with_the_range(
    options: dict[str, int], words: str
) -> None:
    with pytest.raises(Misuse, match=words):
        Parameters.of(options)


def test_the_defaults_are_a_setting() -> None:
    assert Parameters.of({}) == Parameters.of(DEFAULTS)
    assert spec("ring").options == DEFAULTS


@given(st.integers(0, 64), st.integers(100, 10**6), st.integers(1, 1000), st.integers(1, 4096))
def test_what_is_within_bounds_can_be_set(sites: int, us: int, tries: int, packets: int) -> None:
    chosen = {"sites": sites, "t_rt_us": us, "tries": tries, "turn_packets": packets}
    found = Parameters.of(chosen)
    assert (found.sites, found.t_rt_us, found.tries, found.turn_packets) == (
        (sites, us, tries, packets)
    )


# -- the size of the group ----------------------------------------------------------------------


def test_a_member_started_as_one_of_many_knows_the_size() -> None:
    ring = spec("ring")
    assert ring.assign_roles(2, 5, {"tries": 3}) == {"sites": 5, "tries": 3}
    assert ring.assign_roles(2, 5, {"sites": 0}) == {"sites": 0}, "unless another size is given"


@pytest.mark.parametrize(("sites", "least"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_the_quorum_is_more_than_half_of_the_group(sites: int, least: int) -> None:
    assert spec("ring").quorum({"sites": sites}) == least


def test_a_join_in_vain_reports_how_many_are_needed() -> None:
    ring = spec("ring")
    told = "too few of sites=5 are heard: start all of them, or with stable= at least 3"
    assert ring.advice({"sites": 5}) == told
    assert ring.advice({"sites": 1}) == ring.advice({}) == ""


def test_a_group_of_another_size_is_not_joined() -> None:
    room = started("a", "b", "c", sites=3)
    room.has_terms = True
    room.obey("join a b c")
    gather(room, *"abc")
    room._options["sites"] = 4
    said = room.obey("start ring d\njoin d\nadvance 500ms")
    assert (
        "d stops: the group 'stage' has sites=3 and this member has sites=4: give sites=3" in said
    )


def test_a_full_group_refuses() -> None:
    room = started("a", "b", sites=0, members_count_max=2)
    room.obey("join a b")
    gather(room, *"ab")
    said = room.obey("start ring c\njoin c\nadvance 800ms")
    assert "c stops: the group is full: members_count_max=2" in said


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_a_turn_has_no_more_packets_than_set(most: int) -> None:
    room = started("a", "b", "c", turn_packets=most, packet=400)
    room.obey("join a b c")
    gather(room, *"abc")
    room.hush()
    room.obey("shout a 9000\nshout b 9000\nsay c one two three\nadvance 400ms")
    parts = [sent.packet.of for sent in room.of(Code.TOKEN_BC)]
    assert max(parts) == most
    assert all(len(room.heard[name]) == 5 for name in "abc")


def test_detect_us_and_the_papers_tries_agree() -> None:
    by_goal = Parameters.of({"detect_us": 200_000})
    by_tries = Parameters.of({"tries": 10})
    assert by_goal == by_tries
    assert (by_goal.detect_us, by_goal.t_rt_us, by_goal.tries) == (200_000, 20_000, 10)


def test_a_holder_is_asked_four_times_however_short_the_goal() -> None:
    short = Parameters.of({"detect_us": 10_000})
    assert (short.t_rt_us, short.tries) == (2_500, 4)
