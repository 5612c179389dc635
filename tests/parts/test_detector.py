"""The failure detector: silence counts only while we listen, within stated bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from unisono.parts.detector import (
    ABSENT_TIMES,
    APART_SHARE,
    FADE,
    FRESH_SHARE,
    GAP_TIMES,
    MOST_TIMES,
    Detector,
)

DETECT_US, LOOK_US = 1_000_000, 100_000
APART_US = DETECT_US // APART_SHARE


def looked_for(detector: Detector[str], since_us: int, for_us: int, every_us: int = LOOK_US) -> int:
    """Look regularly for so long; when it is."""
    for now_us in range(since_us, since_us + for_us + 1, every_us):
        detector.look(now_us)
    return since_us + for_us


def watching(*keys: str) -> Detector[str]:
    detector: Detector[str] = Detector(DETECT_US, LOOK_US)
    for key in keys:
        detector.watch(key, 0)
    return detector


def test_a_peer_that_sends_nothing_is_silent_after_the_goal_and_not_before() -> None:
    detector = watching("a")
    now_us = looked_for(detector, 0, DETECT_US - LOOK_US)
    assert not detector.is_silent("a")
    detector.look(now_us + LOOK_US)
    assert detector.is_silent("a")


def test_a_peer_that_is_received_is_not_silent() -> None:
    detector = watching("a", "b")
    now_us = 0
    for _ in range(5):
        now_us = looked_for(detector, now_us, DETECT_US - LOOK_US)
        detector.hear("a", now_us)
    assert not detector.is_silent("a")
    assert detector.is_silent("b")


def test_the_time_in_which_we_were_stopped_counts_against_no_member() -> None:
    detector = watching("a", "b")
    now_us = looked_for(detector, 0, DETECT_US - LOOK_US)
    assert detector.look(now_us + 30_000_000) > 29_000_000
    assert not detector.is_silent("a")
    assert detector.silence_us("a") <= DETECT_US // FRESH_SHARE
    looked_for(detector, now_us + 30_000_000, DETECT_US // FRESH_SHARE - LOOK_US)
    assert not detector.is_silent("a"), "a fresh period"


def test_a_fresh_period_is_given_once_so_that_a_stuttering_machine_finds_the_dead() -> None:
    detector = watching("a")
    now_us = looks = 0
    while not detector.is_silent("a"):
        now_us += 10 * LOOK_US
        detector.look(now_us)
        looks += 1
        assert looks < 3 * MOST_TIMES * DETECT_US // LOOK_US
    assert looks >= DETECT_US // LOOK_US


def test_longer_gaps_that_were_seen_make_it_patient_and_it_fades() -> None:
    detector = watching("a")
    assert detector.limit_us("a") == DETECT_US
    now_us = looked_for(detector, 0, 800_000)
    detector.hear("a", now_us)
    assert detector.limit_us("a") == GAP_TIMES * 800_000
    for _ in range(FADE):
        now_us = looked_for(detector, now_us, 800_000, 50_000)
        detector.hear("a", now_us)  # Each gap as long: it stays.
    assert detector.limit_us("a") == GAP_TIMES * 800_000
    for _ in range(FADE * 800_000 // LOOK_US):
        now_us += LOOK_US
        detector.hear("a", now_us)
    assert detector.limit_us("a") == DETECT_US


def test_it_is_patient_with_all_while_we_ourselves_are_late() -> None:
    detector = watching("a")
    detector.look(6 * LOOK_US)
    assert detector.limit_us("a") == GAP_TIMES * 5 * LOOK_US


def test_a_pause_of_ours_does_not_count_as_a_slow_machine() -> None:
    detector = watching("a")
    detector.look(MOST_TIMES * DETECT_US)
    assert detector.limit_us("a") == DETECT_US


def test_two_refusals_apart_are_a_death() -> None:
    detector = watching("a", "b")
    assert not detector.refuse("a", 1_000)
    assert not detector.refuse("a", 1_000 + APART_US - 1), "perhaps the answer to one probe"
    assert not detector.is_silent("a")
    assert detector.refuse("a", 1_000 + APART_US)
    assert detector.is_silent("a")
    assert not detector.is_silent("b")
    assert not detector.refuse("nobody", 2_000 + APART_US)


def test_one_refusal_is_never_enough() -> None:
    detector = watching("a")
    detector.refuse("a", 0)
    looked_for(detector, 0, DETECT_US - LOOK_US)
    assert not detector.is_silent("a")


def test_a_sign_of_life_takes_refusals_back() -> None:
    detector = watching("a")
    detector.refuse("a", 0)
    detector.hear("a", 1)
    assert not detector.refuse("a", 2 * APART_US), "the first of its kind again"
    assert detector.refuse("a", 3 * APART_US)
    detector.hear("a", 3 * APART_US + 1)
    assert not detector.is_silent("a"), "it lives after all"


def test_an_absence_of_ours_takes_refusals_back() -> None:
    """Both may be answers to what was sent before it, and heard at once."""
    detector = watching("a")
    detector.refuse("a", 0)
    assert not detector.refuse("a", 3 * LOOK_US)
    assert not detector.is_silent("a")


def test_a_peer_at_rest_is_not_silent_and_starts_over() -> None:
    detector = watching("a")
    now_us = looked_for(detector, 0, 2 * DETECT_US)
    detector.rest("a")
    assert not detector.is_silent("a")
    detector.watch("a", now_us + 2 * DETECT_US)
    assert detector.silence_us("a") == 0
    assert detector.limit_us("a") == DETECT_US, "time in which nobody is watched is no absence"


def test_what_is_known_is_bounded() -> None:
    detector: Detector[int] = Detector(DETECT_US, LOOK_US, peers_max=3)
    for key in range(9):
        detector.watch(key, 0)
    detector.rest(8)
    detector.watch(9, 0)
    assert [key for key in range(10) if detector.is_watched(key)] == [6, 7, 9]


# -- the slow twin ---------------------------------------------------------------------------------


@dataclass
class Twin:
    """The detector as one would explain it: all that ever happened, asked again each time."""

    looks: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """When we looked, and the listening time then."""
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    late: list[tuple[int, int]] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)
    watched: set[str] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)
    refusals: dict[str, list[int]] = field(default_factory=dict)
    """When each was refused since the last sign of its life, or our last absence."""

    def look(self, now_us: int) -> None:
        before_us, listened_us = self.looks[-1]
        passed_us = now_us - before_us
        if self.watched:
            listened_us += min(passed_us, LOOK_US)
        self.looks.append((now_us, listened_us))
        if not self.watched:
            return
        if LOOK_US < passed_us < MOST_TIMES * DETECT_US:
            self.late.append((passed_us - LOOK_US, listened_us))
        if passed_us > ABSENT_TIMES * LOOK_US:
            self.refusals.clear()
            for key in self.watched & self.fresh:
                latest_us = listened_us - self.limit(key) + self.limit(key) // FRESH_SHARE
                if self.heard[key] < latest_us:
                    self.heard[key] = latest_us
                    self.fresh.discard(key)

    def longest(self, gaps: list[tuple[int, int]]) -> int:
        listened_us = self.looks[-1][1]
        return max([0, *(gap_us - (listened_us - at_us) // FADE for gap_us, at_us in gaps)])

    def limit(self, key: str) -> int:
        refusals = self.refusals.get(key, [0])
        if max(refusals) - min(refusals) >= APART_US:
            return 1
        usual_us = max(self.longest(self.gaps.get(key, [])), self.longest(self.late))
        return sorted((DETECT_US, GAP_TIMES * usual_us, MOST_TIMES * DETECT_US))[1]

    def watch(self, key: str, now_us: int) -> None:
        self.look(now_us)
        if key not in self.watched:
            self.watched.add(key)
            self.fresh.add(key)
            self.heard[key] = self.looks[-1][1]

    def rest(self, key: str) -> None:
        self.watched.discard(key)
        self.refusals.pop(key, None)

    def refuse(self, key: str, now_us: int) -> None:
        if key in self.watched:
            self.look(now_us)
            self.refusals.setdefault(key, []).append(self.looks[-1][1])

    def hear(self, key: str, now_us: int) -> None:
        if key in self.watched:
            self.look(now_us)
            listened_us = self.looks[-1][1]
            self.gaps.setdefault(key, []).append((listened_us - self.heard[key], listened_us))
            self.heard[key] = listened_us
            self.fresh.add(key)
            self.refusals.pop(key, None)


DEEDS = st.sampled_from(("look", "look", "look", "hear", "hear", "watch", "rest", "refuse"))
AFTER_US = st.one_of(
    st.integers(0, LOOK_US), st.integers(0, 4 * LOOK_US), st.integers(0, 6 * DETECT_US)
)


@given(st.lists(st.tuples(DEEDS, st.sampled_from("abc"), AFTER_US), max_size=80))
def test_the_detector_equals_its_slow_twin(script: list[tuple[str, str, int]]) -> None:
    detector: Detector[str] = Detector(DETECT_US, LOOK_US)
    twin = Twin()
    now_us = 0
    for what, key, after_us in script:
        now_us += after_us
        if what == "look":
            detector.look(now_us)
            twin.look(now_us)
        elif what == "rest":
            detector.rest(key)
            twin.rest(key)
        elif what == "refuse":
            detector.refuse(key, now_us)
            twin.refuse(key, now_us)
        elif what == "hear":
            detector.hear(key, now_us)
            twin.hear(key, now_us)
        else:
            detector.watch(key, now_us)
            twin.watch(key, now_us)
        listened_us = twin.looks[-1][1]
        for each in "abc":
            assert detector.is_watched(each) == (each in twin.watched)
            if each in twin.watched:
                silence_us = listened_us - twin.heard[each]
                assert detector.limit_us(each) == twin.limit(each)
                assert detector.silence_us(each) == silence_us
                assert detector.is_silent(each) == (silence_us >= twin.limit(each))


@given(st.lists(AFTER_US, max_size=80))
def test_silence_is_never_longer_than_the_time_that_passed(steps: list[int]) -> None:
    detector = watching("a")
    now_us = 0
    for after_us in steps:
        now_us += after_us
        detector.look(now_us)
        assert detector.silence_us("a") <= min(now_us, LOOK_US * len(steps))
        assert DETECT_US <= detector.limit_us("a") <= MOST_TIMES * DETECT_US
