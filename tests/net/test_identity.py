"""A life's number: never that of a former life, whatever the wall clock does."""

from __future__ import annotations

import time

import pytest

from unisono.errors import Misuse
from unisono.model import shortened
from unisono.net import identity
from unisono.net.identity import (
    BELIEVED_MAX,
    EPOCH_MS,
    INCARNATION_MAX,
    RANDOM_BITS,
    believed,
    new_incarnation,
)

NOW_NS = (EPOCH_MS + 29_000_000_000) * 1_000_000


class Clock:
    """The wall clock, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._patch.setattr(identity, "_last_incarnation", 0)  # And back, when the test is over.
        self.set(NOW_NS)

    def set(self, at_ns: int) -> None:
        self._patch.setattr(time, "time_ns", lambda: at_ns)
        self._patch.setattr(time, "time", lambda: at_ns / 1e9)

    def new_process(self) -> int:
        """The number of the first life of another process."""
        self._patch.setattr(identity, "_last_incarnation", 0)
        return new_incarnation()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_two_lives_that_begin_at_the_same_instant_are_two(clock: Clock) -> None:
    """With the clock set back between two processes of one name, the number was the same."""
    pairs = [(clock.new_process(), clock.new_process()) for _ in range(40)]
    assert sum(one == other for one, other in pairs) <= 1, "1 in a million, not 40 of 40"


def test_later_lives_have_higher_numbers(clock: Clock) -> None:
    first = clock.new_process()
    clock.set(NOW_NS + 1_000_000)
    assert clock.new_process() > first


def test_a_process_whose_clock_is_set_back_keeps_counting_up(clock: Clock) -> None:
    first = new_incarnation()
    clock.set(NOW_NS - 10**15)
    assert new_incarnation() > first
    clock.set(0)
    assert new_incarnation() > first, "also before 2026"


def test_a_member_that_learns_of_a_later_incarnation_returns_above_it(clock: Clock) -> None:
    later = clock.new_process() + (10**9 << RANDOM_BITS)
    assert later < new_incarnation(above=later) < later + (2 << RANDOM_BITS)


def test_the_numbers_last_for_centuries_and_fit_a_signed_column(clock: Clock) -> None:
    clock.set(int(time.mktime((2270, 1, 1, 0, 0, 0, 0, 0, 0))) * 10**9)
    assert new_incarnation() < 1 << 63
    clock.set(int(time.mktime((2033, 1, 1, 0, 0, 0, 0, 0, 0))) * 10**9)
    assert clock.new_process() >> 31, "32 bits of tenths of a second ended in October 2032"


def test_long_numbers_are_short_for_people() -> None:
    number = clocked = 29_086_314_755_762_241
    assert shortened(f"bob#{number} holds this member for failed") == (
        f"bob#{clocked & 0xFFFFF:05x} holds this member for failed"
    )
    assert shortened("a#1 and b#2, message c#3:4; #12345678901 of it") == (
        f"a#1 and b#2, message c#3:4; #{12345678901 & 0xFFFFF:05x} of it"
    )


def test_the_highest_number_of_all_is_no_reason_to_end_the_others(clock: Clock) -> None:
    """A number above the last raises what callers expect, and the next life is not spoiled."""
    first = clock.new_process()
    with pytest.raises(Misuse, match="no higher number is left"):
        new_incarnation(above=INCARNATION_MAX)
    assert first < new_incarnation() < first + (2 << RANDOM_BITS)


def test_a_report_of_the_last_number_is_not_believed(clock: Clock) -> None:
    later = clock.new_process()
    assert believed(later) == later
    assert believed(BELIEVED_MAX + 1) == 0 == believed(INCARNATION_MAX)
