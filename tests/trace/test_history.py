"""How each life ended, and where its obligations begin."""

from __future__ import annotations

import pytest

from tests.laws.telling import story
from unisono.trace.history import cut_of, histories_of


def ends(text: str, torn: str = "") -> dict[str, str]:
    return {key: life.end for key, life in story(text, torn=torn).lives.items()}


def test_ends_as_rows_tell_them() -> None:
    text = """
        a: view 1 a b c d | view 2 a
        b: view 1 a b c d | left | crash
        c: view 1 a b c d | stop suspected
        d: view 1 a b c d | crash
    """
    assert ends(text) == {"a#1": "alive", "b#1": "left", "c#1": "stopped", "d#1": "crashed"}


@pytest.mark.parametrize(
    ("text", "torn", "vanished"),
    [
        ("a: view 1 a b | view 2 a\nb: view 1 a b", "", "b#1"),
        ("a: view 1 a b | view 2 a\nb: view 1 a b | view 3 b", "", ""),
        ("a: view 1 a b | view 2 a | crash\nb: view 1 a b", "", ""),
        ("a: view 1 a b | view 2 a | left\nb: view 1 a b", "", "b#1"),
        ("a: view 1 a b\nb: view 1 a b", "b", "b#1"),
        ("a: view 1 a b | left\nb: view 1 a b", "a", ""),
        ("a: view 1 a\na#2: join", "", "a#1"),
        ("a: view 1 a b\nb: view 1 a b c\nc: view 1 a b c | view 2 c", "", "a#1 b#1"),
    ],
)
def test_who_has_vanished(text: str, torn: str, vanished: str) -> None:
    assert " ".join(key for key, end in ends(text, torn).items() if end == "vanished") == vanished


def test_where_obligations_begin() -> None:
    text = """
        a: view 1 a b
        b: view 1 a b cut a:3 z:8 | view 2 a b c cut a:9
    """
    b = story(text).lives["b#1"]
    assert [b.base(f"{name}#1") for name in "abcxz"] == [3, 0, 0, None, 8]
    assert b.final == {"a#1", "b#1", "c#1"}


@pytest.mark.parametrize(
    ("detail", "cut"),
    [
        (None, {}),
        ("", {}),
        ("a#1:3", {"a#1": 3}),
        ("a#1:3 b#1#2:4", {"a#1": 3, "b#1#2": 4}),
        ("two%20words%25#1:0", {"two words%#1": 0}),
        ("expelled c#1:", {}),
        ("a#1:3  b#1:4", {}),
        ("a#1:3 and more", {}),
        ("a#1:" + "9" * 30, {}),
        ("#1:3", {}),
        ("a#1:3 " * 5000 + "x", {}),
    ],
)
def test_a_cut_is_told_from_a_sentence(detail: str | None, cut: dict[str, int]) -> None:
    assert cut_of(detail) == cut


def test_a_run_of_two_groups_is_two_histories() -> None:
    rows = story("a: view 1 a\nb: view 1 b").rows
    mixed = [row._replace(group="h") if row.node == "b" else row for row in rows]
    assert [(h.group, list(h.lives)) for h in histories_of("r", mixed)] == [
        ("g", ["a#1"]),
        ("h", ["b#1"]),
    ]
