"""A sound group, and a bug planted in it: some law must see each."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.laws import LAWS, judge
from unisono.trace.history import History
from unisono.trace.record import Row, digest_of

MEMBERS = ("a", "b", "c", "d")


def orderly(seed: int, count: int = 40) -> list[Row]:
    """A group that agrees on everything: one sequence, two views, everyone hears it all."""
    dice = random.Random(seed)
    members = tuple(f"{name}#1" for name in MEMBERS)
    rows: list[Row] = []
    steps = dict.fromkeys(MEMBERS, 0)
    sent = dict.fromkeys(MEMBERS, 0)

    def tell(node: str, kind: str, view: str, **fields: object) -> None:
        row = Row("story", "g", node, 1, steps[node], steps[node], kind, view)
        rows.append(row._replace(**fields))  # type: ignore[arg-type]
        steps[node] += 1

    def tell_view(view: str) -> None:
        for node in MEMBERS:
            tell(node, "view", view, members=members)

    tell_view("1")
    for place in range(1, count + 1):
        sender = dice.choice(MEMBERS)
        sent[sender] += 1
        message = {
            "sender": sender,
            "sender_incarnation": 1,
            "number": sent[sender],
            "service": "safe",
            "size": 2,
            "digest": digest_of(b"%d" % place),
        }
        view = "1" if place <= count // 2 else "2"
        tell(sender, "send", view, **message)
        for node in MEMBERS:
            tell(node, "deliver", view, seq=place, **message)
        if place == count // 2:
            tell_view("2")
    return rows


def picked(rows: list[Row], dice: random.Random, kind: str, spare: int = 1) -> int:
    """The place of a row of this kind; not among the last of its life."""
    places = [
        place
        for place, row in enumerate(rows)
        if row.kind == kind
        and sum(1 for other in rows[place + 1 :] if (other.node, other.kind) == (row.node, kind))
        >= spare
    ]
    return dice.choice(places)


def swap(rows: list[Row], dice: random.Random) -> None:
    place = picked(rows, dice, "deliver")
    node = rows[place].node
    after = next(
        other
        for other in range(place + 1, len(rows))
        if rows[other].node == node and rows[other].kind == "deliver"
    )
    one, two = rows[place], rows[after]
    rows[place], rows[after] = two._replace(step=one.step), one._replace(step=two.step)


def drop(rows: list[Row], dice: random.Random) -> None:
    del rows[picked(rows, dice, "deliver", spare=0)]


def repeat(rows: list[Row], dice: random.Random) -> None:
    row = rows[picked(rows, dice, "deliver", spare=0)]
    step = max(other.step for other in rows if other.node == row.node) + 1
    rows.append(row._replace(step=step))


def alter(rows: list[Row], dice: random.Random) -> None:
    place = picked(rows, dice, "deliver", spare=0)
    rows[place] = rows[place]._replace(digest=(rows[place].digest or 0) ^ 1)


def invent(rows: list[Row], dice: random.Random) -> None:
    del rows[picked(rows, dice, "send", spare=0)]


def renumber(rows: list[Row], dice: random.Random) -> None:
    place = picked(rows, dice, "deliver", spare=0)
    rows[place] = rows[place]._replace(seq=1000 + place)


def misplace_view(rows: list[Row], dice: random.Random) -> None:
    """One life installs the second view one delivery too late."""
    node = dice.choice(MEMBERS)
    mine = [place for place, row in enumerate(rows) if row.node == node and row.kind != "send"]
    view = next(place for place in mine if rows[place].kind == "view" and rows[place].view == "2")
    after = mine[mine.index(view) + 1]
    one, two = rows[view], rows[after]
    rows[view], rows[after] = two._replace(step=one.step), one._replace(step=two.step)


def forget_member(rows: list[Row], dice: random.Random) -> None:
    place = picked(rows, dice, "view", spare=0)
    members = rows[place].members or ()
    gone = dice.choice([member for member in members if member != f"{rows[place].node}#1"])
    rows[place] = rows[place]._replace(members=tuple(m for m in members if m != gone))


def forget_self(rows: list[Row], dice: random.Random) -> None:
    place = picked(rows, dice, "view", spare=0)
    members = rows[place].members or ()
    me = f"{rows[place].node}#1"
    rows[place] = rows[place]._replace(members=tuple(m for m in members if m != me))


Mutant = Callable[[list[Row], random.Random], None]

# fmt: off
MUTANTS: list[tuple[Mutant, tuple[str, ...]]] = [
    (swap,          ("total_order", "prefix")),
    (drop,          ("agreement", "safe")),
    (repeat,        ("no_duplication",)),
    (alter,         ("no_creation",)),
    (invent,        ("no_creation",)),
    (renumber,      ("total_order",)),
    (misplace_view, ("virtual_synchrony",)),
    (forget_member, ("view_order",)),
    (forget_self,   ("self_inclusion", "view_order")),
]
# fmt: on


@given(st.integers(0, 10_000))
def test_an_orderly_group_keeps_every_law(seed: int) -> None:
    assert judge(History("r", "story", "g", tuple(orderly(seed))), LAWS).kept


@pytest.mark.parametrize(
    ("mutant", "laws"),
    [
        pytest.param(mutant, laws, marks=pytest.mark.catches(*laws), id=mutant.__name__)
        for mutant, laws in MUTANTS
    ],
)
def test_a_mutant_is_caught(mutant: Mutant, laws: tuple[str, ...]) -> None:
    for seed in range(12):
        rows = orderly(seed)
        mutant(rows, random.Random(seed))
        verdict = judge(History("r", "story", "g", tuple(rows)), LAWS)
        for law in laws:
            assert verdict.laws[law] == "broken", (law, seed)
