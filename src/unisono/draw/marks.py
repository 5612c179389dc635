"""What the application of each life noticed, as marks on its line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from unisono.draw.flights import Lifeline
from unisono.draw.labels import runs
from unisono.trace.checks import VIEWS
from unisono.trace.history import VANISHED, life_of, message_of, sender_of
from unisono.trace.record import LEFT, Row

JOINED: Final = "join"
SENT: Final = "send"
DELIVERED: Final = "deliver"
STABLE: Final = "stable"
VIEWED: Final = "view"
DEPARTED: Final = "leave"
STOPPED: Final = "stop"
CRASHED: Final = "crash"
GONE: Final = "vanish"
ENDS: Final = (DEPARTED, STOPPED, CRASHED, GONE)

MARKS: Final = {
    JOINED: "joins",
    SENT: "sent by the application",
    DELIVERED: "delivered to the application",
    STABLE: "told to be stable",
    VIEWED: "view",
    DEPARTED: "leaves",
    STOPPED: "stops",
    CRASHED: "crashes",
    GONE: "not heard of again",
}
"""What each mark is called in a legend, in the legend's order."""

_PLAIN: Final = {"send": SENT, "deliver": DELIVERED, "stable": STABLE}


@dataclass(slots=True)
class Mark:
    """One thing, or several of a kind that happened together."""

    life: str
    step: int
    t_us: int
    kind: str
    text: str
    told: list[str] = field(default_factory=list)
    """All of it, for who points at the mark."""


def marks_of(
    rows: Iterable[Row],
    lives: Mapping[str, Lifeline],
    heard_us: Mapping[str, Sequence[int]],
    together_us: int,
) -> list[Mark]:
    """In the order of time. Sends and deliveries that follow each other within so long are one,
    unless something was heard between them: when, by life and in order, is `heard_us`."""
    found: list[Mark] = []
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(life_of(row), []).append(row)
    for key, life in lives.items():
        mine = sorted(parts.get(key, ()), key=lambda row: row.step)
        found += _of_life(mine, lives, heard_us.get(key, ()), together_us)
        if life.end == VANISHED:
            found.append(Mark(key, 1 << 62, life.end_us, GONE, "not heard of again"))
    return sorted(found, key=lambda mark: (mark.t_us, mark.life, mark.step))


def _of_life(
    rows: Sequence[Row], lives: Mapping[str, Lifeline], heard_us: Sequence[int], together_us: int
) -> list[Mark]:
    found: list[Mark] = []
    run: list[Row] = []

    def end_run() -> None:
        if run:
            found.append(_of_messages(run, lives))
            run.clear()

    for row in rows:
        if row.kind in _PLAIN:
            if run:
                first_us = run[0].t_us
                between = bisect_right(heard_us, row.t_us) > bisect_right(heard_us, first_us)
                if run[0].kind != row.kind or between or row.t_us - first_us > together_us:
                    end_run()
            run.append(row)
            continue
        mark = _of_row(row, lives)
        if mark is None:
            continue
        end_run()
        # A process that comes back tells of its restart and of its join: one of them will do.
        if mark.kind == JOINED and found and found[-1].kind == JOINED:
            continue
        found.append(mark)
        if mark.kind in ENDS:
            return found
    end_run()
    return found


def _of_row(row: Row, lives: Mapping[str, Lifeline]) -> Mark | None:
    life = lives[life_of(row)]
    kind, text, told = row.kind, "", f"{life.key} {row.kind}"
    if row.kind in ("join", "restart"):
        again = life.name != life.node
        kind, text = JOINED, f"{life.name} joins again" if again else "joins"
        told = f"{life.key} joins" + (f", at {row.peer}" if row.peer else "")
    elif row.kind in VIEWS:
        names = [lives[each].name if each in lives else each for each in row.members or ()]
        kind, text = VIEWED, "{" + " ".join(names) + "}"
        passing = "transitional " * (row.kind != "view")
        text = f"{passing}{text}"
        told = f"{passing}view {row.view} at {life.key}: {' '.join(row.members or ())}"
        told += f"; {row.detail}" if row.detail else ""
    elif row.kind == "crash":
        kind, text = CRASHED, "crashes"
        told = f"{life.key} crashes" + (f": {row.detail}" if row.detail else "")
    elif row.kind == "leave" and row.detail == LEFT:
        text, told = "leaves", f"{life.key} leaves"
    elif row.kind == "leave":
        kind, text, told = STOPPED, f"stops: {row.detail}", f"{life.key} stops: {row.detail}"
    else:
        return None
    return Mark(life.key, row.step, row.t_us, kind, text, [told])


def _of_messages(rows: Sequence[Row], lives: Mapping[str, Lifeline]) -> Mark:
    first = rows[0]
    kind = _PLAIN[first.kind]
    told = [
        f"{first.kind} {message_of(row)}"
        + (f", place {row.seq}" if row.seq is not None else "")
        + f", {row.service}, {row.size} octets"
        for row in rows
    ]
    if kind == DELIVERED:
        text = _heard(rows, lives)
    else:
        text = f"{first.kind} {runs((row.number or 0, row.number or 0) for row in rows)}"
    return Mark(life_of(first), first.step, first.t_us, kind, text, told)


def _heard(rows: Sequence[Row], lives: Mapping[str, Lifeline]) -> str:
    """Messages in the order of their delivery, and their places in the total order behind them."""
    parts: list[list[Row]] = []
    for row in rows:
        before = parts[-1][-1] if parts else None
        follows = before is not None and sender_of(before) == sender_of(row)
        if follows and before is not None and row.number == (before.number or 0) + 1:
            parts[-1].append(row)
        else:
            parts.append([row])
    words = []
    for part in parts:
        who, first, last = sender_of(part[0]), part[0].number, part[-1].number
        name = lives[who].name if who in lives else who
        words.append(f"{name}.{first}" if first == last else f"{name}.{first}–{last}")
    places = [(row.seq, row.seq) for row in rows if row.seq is not None]
    return ", ".join(words) + (f" #{runs(places)}" if places else "")
