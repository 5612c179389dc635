"""The laws of replication accept what is right and find what is not."""

from __future__ import annotations

import pytest

from unisono.laws.replication import REPLICATION_LAWS, ReplicaEvent, judge_replication


def told(story: str) -> list[ReplicaEvent]:
    """A row a line: name, what, then `submitter:number`, `@position` and `=members`."""
    events = []
    for at, line in enumerate(filter(None, map(str.strip, story.splitlines()))):
        name, what, *rest = line.split()
        position, submitter, number, members = 0, "", 0, ()
        for word in rest:
            if word[0] == "@":
                position = int(word[1:])
            elif word[0] == "=":
                members = tuple(word[1:])
            else:
                submitter, text = word.split(":")
                number = int(text)
        events.append(ReplicaEvent(at, name, what, position, submitter, number, members))
    return events


SOUND = """
    a started @0
    b started @0
    a red a:1
    a green a:1 @1
    b green a:1 @1
    b red b:1
    b green b:1 @2
    a stable @1 =ab
    b crashed
    a green b:1 @2
    b started @2
    c adopted @2
    a end @2
    b end @2
    c end @2
"""


CHECKPOINT = """
    a started @0
    a green a:1 @1
    c adopted @4
    c green a:4 @5
    c green b:1 @6
"""
"""Positions 2 to 4 were told by one that is lost."""


def test_a_sound_history_keeps_all_laws() -> None:
    assert not judge_replication("", told(SOUND))
    assert not judge_replication("", told(CHECKPOINT))


@pytest.mark.parametrize(
    ("law", "old", "new"),
    [
        ("green_prefix", "a green b:1 @2", "a green a:2 @2"),
        ("green_without_gap", "b green b:1 @2", "b green b:1 @3"),
        ("durable", "b started @2", "b started @1"),
        ("kept_to_the_end", "b end @2", "b end @1"),
        ("kept_to_the_end", "a red a:1", "a red a:9"),
        ("red_fifo", "b red b:1", "b green a:3 @3"),
        ("red_fifo", "c green a:4 @5", "c green a:6 @5"),
        ("red_fifo", "c green b:1 @6", "c green a:1 @6"),
        ("stable_is_logged", "a stable @1 =ab", "a stable @2 =ab"),
        ("stable_is_logged", "a stable @1 =ab", "a stable @1 =abc"),
        ("applied_once", "b crashed", "b green a:1 @3"),
        ("applied_once", "b red b:1", "c green a:1 @3"),
    ],
)
def test_what_is_wrong_is_found(law: str, old: str, new: str) -> None:
    (story,) = (each for each in (SOUND, CHECKPOINT) if old in each)
    broken = judge_replication("", told(story.replace(old, new, 1)))
    assert law in {each.law for each in broken}


def test_each_law_has_a_history_that_breaks_it() -> None:
    (mark,) = (each for each in test_what_is_wrong_is_found.pytestmark if each.args)  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(REPLICATION_LAWS)
