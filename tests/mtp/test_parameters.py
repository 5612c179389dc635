"""The paper's model of the parameters, the presets made by it, and what may be set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import Misuse
from unisono.protocols import spec
from unisono.protocols.mtp.parameters import (
    DEFAULTS,
    PRESETS,
    WINDOW_MAX,
    WINDOW_MIN,
    Model,
    Parameters,
    from_round_trip,
    model,
)


@pytest.mark.rule("MTP-21")
def test_the_model_finds_the_papers_numbers() -> None:
    """[MTP 4] 40 ms for the disk, 1.2 ms on the wire, 5 ms of work each for net and disk."""
    found = model(fault_us=40_000, wire_us=1_200, net_us=5_000, store_us=5_000)
    assert found == Model(
        heartbeat_us=160_000, window=14, retention=3, tokens=3, buffers=126, held_us=480_000
    )
    two = model(40_000, 1_200, 5_000, 5_000, tokens=2)
    assert (two.tokens, two.buffers) == (2, 84), "t is 2 to 3"
    megabit = 1_000_000 * 8 * 1_500 // (1_200 + 5_000 + 5_000)
    assert 1_000_000 <= megabit < 1_100_000, "11.2 ms a packet are 1 Mbit/s"


@pytest.mark.rule("MTP-21", "MTP-17")
def test_dallying_lengthens_the_retention_and_what_is_held() -> None:
    plain, dallying = (model(40_000, 1_200, 5_000, 5_000, dally=f) for f in (0, 4))
    assert (dallying.retention, dallying.held_us) == (7, 7 * 160_000)
    assert dallying.buffers == plain.buffers * 7 // 3
    assert (dallying.heartbeat_us, dallying.window) == (plain.heartbeat_us, plain.window)


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 200),
    st.integers(1, 32),
)
def test_the_model_hangs_together(
    fault: int, wire: int, net: int, store: int, dally: int, tokens: int
) -> None:
    found = model(fault, wire, net, store, dally, tokens)
    assert found.heartbeat_us == 4 * fault
    assert found.window == 1 or found.window * (wire + net + store) <= found.heartbeat_us
    assert (found.window + 1) * (wire + net + store) > found.heartbeat_us
    assert found.buffers == tokens * found.window * found.retention


@pytest.mark.parametrize(
    "wrong",
    [
        {"fault_us": 0, "wire_us": 1, "net_us": 1},
        {"fault_us": 1, "wire_us": 0, "net_us": 0},
        {"fault_us": 1, "wire_us": 1, "net_us": 1, "tokens": 0},
        {"fault_us": 1, "wire_us": 1, "net_us": 1, "dally": -1},
    ],
)
def test_the_model_refuses_what_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(Misuse, match="above 0"):
        model(**wrong)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_setting_that_works(name: str) -> None:
    preset = PRESETS[name]
    parameters = Parameters.of(preset)
    assert parameters.retention == preset["dally"] + 3
    assert parameters.detect_us >= 4 * parameters.heartbeat_us
    assert WINDOW_MIN <= parameters.window <= WINDOW_MAX


def test_a_longer_way_has_a_longer_heartbeat() -> None:
    loopback, lan, wan = (Parameters.of(PRESETS[name]) for name in ("loopback", "lan", "wan"))
    assert loopback.heartbeat_us < lan.heartbeat_us < wan.heartbeat_us
    assert loopback.dally == lan.dally == 0 < wan.dally
    assert wan.heartbeat_us == 4 * 80_000


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (-5, 10)])
def test_a_round_trip_that_cannot_be_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(Misuse, match="above 0"):
        from_round_trip(*wrong)


@given(st.integers(1, 10**7), st.integers(1, 10**10), st.integers(0, 200))
def test_what_was_measured_can_be_set(round_trip: int, rate: int, dally: int) -> None:
    Parameters.of(from_round_trip(round_trip, rate, dally))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed": 1}, "no option 'speed'; it has: master, masters, tokens"),
        ({"tokens": -1}, "must not be negative"),
        ({"tokens": 0}, "tokens must be 1 to 32, got 0"),
        ({"tokens": 33}, "tokens must be 1 to 32"),
        ({"masters": 10}, "masters must be 1 to 9"),
        ({"master": 2}, "master must be 0 to 1"),
        ({"master": 4, "masters": 3}, "master must be 0 to 3"),
        ({"window": 7}, "window must be 8 to 8192"),
        ({"heartbeat_us": 499}, "heartbeat_us must be 500 to"),
        ({"dally": 201}, "dally must be 0 to 200"),
        ({"detect_us": 19_999, "heartbeat_us": 500}, "detect_us must be 20000 to"),
        ({"detect_us": 30_000}, "at least 4 heartbeats, so 40000, got 30000"),
        ({"members_count_max": 257}, "members_count_max must be 1 to 256"),
        ({"unicast": 2}, "unicast must be 0 to 1"),
    ],
)
def test_options_out_of_bounds_are_refused_with_the_range(
    options: dict[str, int], words: str
) -> None:
    with pytest.raises(Misuse, match=words):
        Parameters.of(options)


def test_the_defaults_are_a_setting() -> None:
    parameters = Parameters.of({})
    assert parameters.retention == 3
    assert {name: getattr(parameters, name) for name in DEFAULTS} == dict(DEFAULTS)


@pytest.mark.rule("MTP-1")
def test_the_masters_are_configured() -> None:
    assign_roles = spec("mtp").assign_roles
    assert [assign_roles(index, 4, {})["master"] for index in range(4)] == [1, 0, 0, 0]
    assert [assign_roles(index, 5, {"masters": 3})["master"] for index in range(5)] == [
        1,
        2,
        3,
        0,
        0,
    ]
