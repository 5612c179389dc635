"""Application events as marks on a line."""

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
    STABLE: "stable",
    VIEWED: "view",
    DEPARTED: "leaves",
    STOPPED: "stops",
    CRASHED: "crashes",
    GONE: "vanishes",
}
"""The legend's text of each mark, in order."""

_PLAIN: Final = {"send": SENT, "deliver": DELIVERED, "stable": STABLE}


@dataclass(slots=True)
class Mark:
    """One event, or several of a kind that happened together."""

    life: str
    step: int
    t_us: int
    kind: str
    text: str
    details: list[str] = field(default_factory=list)
    """For the tooltip."""


def marks_of(
    rows: Iterable[Row],
    lives: Mapping[str, Lifeline],
    arrivals_us: Mapping[str, Sequence[int]],
    together_us: int,
) -> list[Mark]:
    """By time. Sends and deliveries within `together_us` are one mark, unless a packet arrived
    between them (`arrivals_us`, by life)."""
    found: list[Mark] = []
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(life_of(row), []).append(row)
    for key, life in lives.items():
        mine = sorted(parts.get(key, ()), key=lambda row: row.step)
        found += _of_life(mine, lives, arrivals_us.get(key, ()), together_us)
        if life.end == VANISHED:
            found.append(Mark(key, 1 << 62, life.end_us, GONE, "vanishes"))
    return sorted(found, key=lambda mark: (mark.t_us, mark.life, mark.step))


def _of_life(
    rows: Sequence[Row], lives: Mapping[str, Lifeline], arrivals_us: Sequence[int], together_us: int
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
                between = bisect_right(arrivals_us, row.t_us) > bisect_right(arrivals_us, first_us)
                if run[0].kind != row.kind or between or row.t_us - first_us > together_us:
                    end_run()
            run.append(row)
            continue
        mark = _of_row(row, lives)
        if mark is None:
            continue
        end_run()
        # A returning process has a restart and a join row: one mark suffices.
        if mark.kind == JOINED and found and found[-1].kind == JOINED:
            continue
        found.append(mark)
        if mark.kind in ENDS:
            return found
    end_run()
    return found


def _of_row(row: Row, lives: Mapping[str, Lifeline]) -> Mark | None:
    life = lives[life_of(row)]
    kind, text, detail = row.kind, "", f"{life.key} {row.kind}"
    if row.kind in ("join", "restart"):
        again = life.name != life.node
        kind, text = JOINED, f"{life.name} joins again" if again else "joins"
        detail = f"{life.key} joins" + (f", at {row.peer}" if row.peer else "")
    elif row.kind in VIEWS:
        names = [lives[each].name if each in lives else each for each in row.members or ()]
        kind, text = VIEWED, "{" + " ".join(names) + "}"
        passing = "transitional " * (row.kind != "view")
        text = f"{passing}{text}"
        detail = f"{passing}view {row.view} at {life.key}: {' '.join(row.members or ())}"
        detail += f"; {row.detail}" if row.detail else ""
    elif row.kind == "crash":
        kind, text = CRASHED, "crashes"
        detail = f"{life.key} crashes" + (f": {row.detail}" if row.detail else "")
    elif row.kind == "leave" and row.detail == LEFT:
        text, detail = "leaves", f"{life.key} leaves"
    elif row.kind == "leave":
        kind, text, detail = STOPPED, f"stops: {row.detail}", f"{life.key} stops: {row.detail}"
    else:
        return None
    return Mark(life.key, row.step, row.t_us, kind, text, [detail])


def _of_messages(rows: Sequence[Row], lives: Mapping[str, Lifeline]) -> Mark:
    first = rows[0]
    kind = _PLAIN[first.kind]
    details = [
        f"{first.kind} {message_of(row)}"
        + (f", seq {row.seq}" if row.seq is not None else "")
        + f", {row.service}, {row.size} bytes"
        for row in rows
    ]
    if kind == DELIVERED:
        text = _deliveries(rows, lives)
    else:
        text = f"{first.kind} {runs((row.number or 0, row.number or 0) for row in rows)}"
    return Mark(life_of(first), first.step, first.t_us, kind, text, details)


def _deliveries(rows: Sequence[Row], lives: Mapping[str, Lifeline]) -> str:
    """Messages in the order of their delivery, then their sequence numbers."""
    parts: list[list[Row]] = []
    for row in rows:
        before = parts[-1][-1] if parts else None
        follows = before is not None and sender_of(before) == sender_of(row)
        if follows and before is not None and row.number == (before.number or 0) + 1:
            parts[-1].append(row)
        else:
            parts.append([row])
    texts = []
    for part in parts:
        sender, first, last = sender_of(part[0]), part[0].number, part[-1].number
        name = lives[sender].name if sender in lives else sender
        texts.append(f"{name}.{first}" if first == last else f"{name}.{first}–{last}")
    seqs = [(row.seq, row.seq) for row in rows if row.seq is not None]
    return ", ".join(texts) + (f" #{runs(seqs)}" if seqs else "")
