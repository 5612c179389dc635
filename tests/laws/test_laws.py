"""Each law catches what breaks it, and lets pass what does not."""

from __future__ import annotations

import pytest

from tests.laws.stories import DOCTORED, SOUND, Doctored, Sound, story
from unisono.errors import Misuse
from unisono.laws import LAWS, VIOLATIONS_MAX, Violation, judge, judge_all, sentence
from unisono.trace.history import History


def named(item: Doctored | Sound) -> str:
    return item.name.replace(" ", "-")


@pytest.mark.parametrize(
    "doctored",
    [
        pytest.param(item, marks=pytest.mark.catches(item.law), id=f"{item.law}-{named(item)}")
        for item in DOCTORED
    ],
)
def test_a_doctored_history_is_caught_by_its_law(doctored: Doctored) -> None:
    verdict = judge(doctored.history, LAWS)
    assert verdict.laws[doctored.law] == "broken"
    assert verdict.violations == sorted(set(verdict.violations))
    for violation in verdict.violations:
        assert "\n" not in sentence(violation)
        assert violation.law in sentence(violation)


@pytest.mark.parametrize("sound", SOUND, ids=named)
def test_a_sound_history_keeps_every_law(sound: Sound) -> None:
    verdict = judge(sound.history, LAWS.keys() - sound.but)
    assert [sentence(found) for found in verdict.violations] == []
    assert set(verdict.laws.values()) <= {"kept", "not claimed"}


def test_every_law_has_two_doctored_histories() -> None:
    for law in LAWS:
        assert sum(item.law == law for item in DOCTORED) >= 2, law


def test_verdicts_do_not_depend_on_the_order_of_rows() -> None:
    for item in DOCTORED:
        history = item.history
        turned = History(history.run, history.protocol, "g", history.rows[::-1], history.torn)
        assert judge(turned, LAWS) == judge(history, LAWS)


def test_a_law_that_is_not_claimed_is_not_asked() -> None:
    broken = story("a: view 1 a b | send | a:1 | a:1")
    verdict = judge(broken, ["fifo"])
    assert verdict.kept
    assert verdict.laws["fifo"] == "kept"
    assert verdict.laws["no_duplication"] == "not claimed"
    assert verdict.violations == []


def test_an_unknown_law_is_named() -> None:
    with pytest.raises(Misuse, match="no law gravity; there are no_creation"):
        judge(story(""), ["gravity"])


def test_violations_are_bounded_and_the_first_are_reported() -> None:
    sends = " | ".join("send" for _ in range(300))
    verdict = judge(story(f"a: view 1 a | {sends}"), ["validity"])
    assert len(verdict.violations) == VIOLATIONS_MAX
    assert verdict.violations[0].message == "a#1:1"
    assert verdict.violations[1].message == "a#1:10", "their order is that of strings"


def test_a_run_of_two_groups_has_one_verdict() -> None:
    good = story("a: view 1 a | send | a:1")
    bad = story("a: view 1 a | send | send | a:1")
    verdict = judge_all([good, bad], lambda protocol: ["validity"])["story"]
    assert verdict.laws["validity"] == "broken"
    assert verdict.laws["fifo"] == "not claimed"
    assert len(verdict.violations) == 1


# -- what exactly is said ------------------------------------------------------------------------


def found_by(law: str, text: str, service: str = "causal", torn: str = "") -> list[Violation]:
    return LAWS[law].check(story(text, service, torn))


def test_a_causal_violation_names_what_was_needed() -> None:
    text = """
        a: view 1 a b c | send | send | a:1 | a:2 | b:1
        b: view 1 a b c | a:1 | a:2 | send | b:1
        c: view 1 a b c | a:1 | b:1 | a:2
    """
    detail = "delivered before what it depends on"
    assert found_by("causal", text) == [
        Violation("causal", "story", "c#1", "b#1:1", "a#1:2", detail)
    ]


def test_a_shortest_cycle_is_reported() -> None:
    """No two of the lives disagree; the cycle through d is longer by one."""
    text = """
        a: view 1 a b c d | send | a:1 | b:1
        b: view 1 a b c d | send | b:1 | c:1
        c: view 1 a b c d | send | c:1 | d:1 | a:1
        d: view 1 a b c d | send | d:1
    """
    words = "a#1:1 before b#1:1 at a#1, b#1:1 before c#1:1 at b#1, c#1:1 before a#1:1 at c#1"
    assert found_by("total_order", text, "agreed") == [
        Violation("total_order", "story", "a#1", "a#1:1", "", f"cycle: {words}")
    ]


def test_an_agreement_violation_names_the_smallest_witness_once() -> None:
    text = """
        a: view 1 a b c | send | a:1
        b: view 1 a b c | a:1
        c: view 1 a b c
    """
    assert found_by("agreement", text) == [
        Violation("agreement", "story", "c#1", "a#1:1", "a#1", "not delivered")
    ]


def test_a_message_in_two_forms_is_reported_of_all_that_differ_from_the_smallest() -> None:
    text = """
        b: view 1 a b c d | a:1!
        c: view 1 a b c d | a:1
        d: view 1 a b c d | a:1!
    """
    assert found_by("no_creation", text) == [
        Violation("no_creation", "story", "c#1", "a#1:1", "a#1", "not as at b#1")
    ]


def test_a_hole_is_named_by_its_first_number_and_only_once() -> None:
    text = """
        a: view 1 a b | send | send | send | send | a:1 | a:2 | a:3 | a:4
        b: view 1 a b | a:1 | a:4
    """
    assert found_by("fifo", text) == [
        Violation("fifo", "story", "b#1", "a#1:4", "a#1", "without 2")
    ]


def test_a_swap_of_neighbours_is_reported_once_for_each_pair() -> None:
    text = """
        a: view 1 a b c | send | send | send | a:1 | a:2 | a:3
        b: view 1 a b c | a:2 | a:1 | a:3
        c: view 1 a b c | a:1 | a:2 | a:3
    """
    found = found_by("total_order", text, "agreed")
    assert [(v.life, v.message, v.other) for v in found] == [
        ("a#1", "a#1:2", "b#1"),
        ("b#1", "a#1:1", "c#1"),
    ]


def test_the_tail_of_a_vanished_sender_may_be_unwritten_but_not_its_middle() -> None:
    text = """
        a: view 1 a b | send 1 | send 3
        b: view 1 a b | a:1 | a:2 | a:3 | a:4 | view 2 b
    """
    assert [v.message for v in found_by("no_creation", text)] == ["a#1:2"]


def test_without_a_total_order_prefix_finds_nothing() -> None:
    assert found_by("prefix", "a: view 1 a b | send | a:1\nb: view 1 a b | send | b:1") == []


def test_lives_that_never_met_are_not_compared() -> None:
    text = "a: view 1 a | send | a:1\nb: view 2 b | send | b:1"
    for law in ("prefix", "agreement", "virtual_synchrony", "total_order"):
        assert found_by(law, text, "agreed") == []
