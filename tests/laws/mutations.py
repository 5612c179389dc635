"""Histories doctored by chance: rows dropped, repeated, moved and altered."""

from __future__ import annotations

import random
from collections.abc import Callable

from unisono.trace.history import History
from unisono.trace.record import LEFT, Row


def places(rows: list[Row], *kinds: str) -> list[int]:
    return [place for place, row in enumerate(rows) if row.kind in kinds]


def drop(*kinds: str) -> Callable[[list[Row], random.Random], None]:
    def doctor(rows: list[Row], dice: random.Random) -> None:
        del rows[dice.choice(places(rows, *kinds))]

    return doctor


def alter(kind: str, /, **fields: object) -> Callable[[list[Row], random.Random], None]:
    def doctor(rows: list[Row], dice: random.Random) -> None:
        place = dice.choice(places(rows, kind))
        rows[place] = rows[place]._replace(**fields)  # type: ignore[arg-type]

    return doctor


def repeat(kind: str) -> Callable[[list[Row], random.Random], None]:
    """The row once more, a good while later in the same life."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        row = rows[dice.choice(places(rows, kind))]
        rows.append(row._replace(step=row.step + 2 * dice.randrange(1, 40) + 1))

    return doctor


def swap(kind: str) -> Callable[[list[Row], random.Random], None]:
    """Two of one life change places."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        first = dice.choice(places(rows, kind))
        life = rows[first][2:4]
        second = dice.choice([p for p in places(rows, kind) if rows[p][2:4] == life])
        one, two = rows[first], rows[second]
        rows[first], rows[second] = one._replace(step=two.step), two._replace(step=one.step)

    return doctor


def swap_places(rows: list[Row], dice: random.Random) -> None:
    """Two deliveries of one life have each other's place."""
    first = dice.choice(places(rows, "deliver"))
    life = rows[first][2:4]
    second = dice.choice([p for p in places(rows, "deliver") if rows[p][2:4] == life])
    one, two = rows[first], rows[second]
    rows[first], rows[second] = one._replace(seq=two.seq), two._replace(seq=one.seq)


def end(kind: str, detail: str | None) -> Callable[[list[Row], random.Random], None]:
    """A life ends in the middle, and goes on all the same."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        row = rows[dice.choice(places(rows, "deliver"))]
        rows.append(
            Row(*row[:4], step=row.step + 1, t_us=row.t_us, kind=kind, view="", detail=detail)
        )

    return doctor


def notice(service: str) -> Callable[[list[Row], random.Random], None]:
    """A message is said to be stable, at some that may not hold it."""

    def doctor(rows: list[Row], dice: random.Random) -> None:
        row = rows[dice.choice(places(rows, "deliver", "send"))]
        holders = tuple(dice.sample(["a#1", "b#1", "c#1", "n1#1", "n2#1", "z#1"], 2))
        about = row._replace(step=row.step + 1, kind="stable", service=service, members=holders)
        rows.append(about)

    return doctor


def let_go_on(rows: list[Row], dice: random.Random) -> None:
    """A view is of a part that was let go on, and has one member less."""
    place = dice.choice(places(rows, "view"))
    members = rows[place].members or ()
    fewer = tuple(each for each in members if each != dice.choice(members)) or members
    rows[place] = rows[place]._replace(changes=("parted",), members=fewer)


def nothing_held(rows: list[Row], dice: random.Random) -> None:
    """No life holds anything at the end of a view, and one delivers nothing more."""
    rows[:] = [row._replace(number=1) if row.kind == "receipt" else row for row in rows]
    silence(rows, dice)


def well(rows: list[Row], dice: random.Random) -> None:
    """The world says that nothing ailed anybody, and nobody crashed."""
    rows[:] = [row for row in rows if row.kind != "crash"]
    first = {row[2:4]: row for row in reversed(rows)}
    rows += [row._replace(kind="fault", detail="none", step=row.step + 1) for row in first.values()]


def silence(rows: list[Row], dice: random.Random) -> None:
    """One life hears nothing more from some step on."""
    row = rows[dice.choice(places(rows, "deliver"))]
    rows[:] = [
        each
        for each in rows
        if each.kind != "deliver" or each[2:4] != row[2:4] or each.step < row.step
    ]


def forget(rows: list[Row], dice: random.Random) -> None:
    """All that one life told is lost, unless it is the last."""
    life = dice.choice(rows)[2:4]
    rows[:] = [each for each in rows if each[2:4] != life] or rows


DOCTORS: dict[str, Callable[[list[Row], random.Random], None]] = {
    "drop a delivery": drop("deliver"),
    "drop a send": drop("send"),
    "drop a view": drop("view"),
    "drop an end": drop("leave", "crash", "join"),
    "deliver twice": repeat("deliver"),
    "send twice": repeat("send"),
    "install twice": repeat("view"),
    "swap deliveries": swap("deliver"),
    "swap views": swap("view"),
    "swap sends": swap("send"),
    "alter a digest": alter("deliver", digest=7),
    "alter a size": alter("deliver", size=99),
    "alter a number": alter("deliver", number=3),
    "alter a number beyond all": alter("deliver", number=10**12),
    "alter a sender": alter("deliver", sender="b", sender_incarnation=1),
    "alter a place": alter("deliver", seq=5),
    "alter a place beyond all": alter("deliver", seq=10**15),
    "swap places": swap_places,
    "alter a service": alter("deliver", service="safe"),
    "send unreliably": alter("send", service="unreliable"),
    "alter a view's members": alter("view", members=("b#1", "a#1", "b#1")),
    "alter a view's name": alter("view", view="?"),
    "alter a cut": alter("view", detail="a#1:9 b#1:2 a#1:4 c%20d%2525#7:1"),
    "a cut that is none": alter("view", detail="a#1:9 b#1:2\n"),
    "leave in the middle": end("leave", LEFT),
    "stop in the middle": end("leave", "expelled"),
    "crash in the middle": end("crash", None),
    "lower a receipt": alter("receipt", number=1),
    "drop a receipt": drop("receipt"),
    "a receipt of nothing": alter("receipt", sender="z", number=9),
    "all receipts of nothing": nothing_held,
    "alter a transitional set": alter("view", stayed=("a#1", "z#9")),
    "a view in between": alter("view", kind="transitional"),
    "found anew": alter("view", changes=("founded",)),
    "let a part go on": let_go_on,
    "a notice of stability": notice("resilient(2)"),
    "a notice for all": notice("resilient(all)"),
    "all are well": well,
    "silence": silence,
    "forget": forget,
}


def doctored(history: list[Row], name: str, seed: int, times: int) -> History:
    # Time goes faster, so that most files have one row group: each costs as much as its rows.
    rows = [row._replace(step=2 * row.step, t_us=row.t_us // 8) for row in history]
    dice = random.Random(seed)
    for _ in range(times):
        # What is not there cannot be doctored.
        try:
            DOCTORS[name](rows, dice)
        except IndexError:
            break
    whole = {(row.node, row.incarnation, row.step): row for row in rows}
    return History(f"{name} {seed} {times}", rows[0].protocol, "g", tuple(by_step(whole)))


def by_step(rows: dict[tuple[str, int, int], Row]) -> list[Row]:
    return [rows[key] for key in sorted(rows)]
