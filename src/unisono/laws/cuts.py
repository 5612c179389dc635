"""The law of cuts: which messages a view excuses its members from delivering."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from unisono.laws.order import numbers_known
from unisono.laws.verdict import Finding
from unisono.trace.checks import LEVELS
from unisono.trace.history import VANISHED, History, cut_of, number_of, sender_of
from unisono.trace.record import Row

RELIABLE = LEVELS["reliable"]


def cut(history: History) -> Iterator[Finding]:
    """A joiner misses no message that the others had not delivered before it joined.

    Let a view V of life q say in its cut that the messages of sender s up to N were before their
    time, let *had* be the largest number of s that q delivered before V, and n the largest number
    above had, and not above N, of a reliable message of s that is known from any send or deliver
    row. Let p be another life that installed V, and does not name s in its own cut there. The
    largest number of s that p had delivered before V, or that a cut of p before V says, is at least
    n: else `spared up to N in view V; delivered there up to M`. Named are q, the message n of s,
    and the smallest such p. When s has rows, did not vanish, and sent none with a number as large
    as N: `spared up to N in view V; never sent`, with s as the other and no message.
    Who was there is spared nothing. Let n be above had, and above what earlier cuts of q say, and U
    the view that q had right before V; where V has a transitional set, only those in it came along:
    - `spared up to N in view V; together in U`: s is in U, and came along. The other is s.
    - `spared up to N in view V; delivered there on the way from U`: p had U right before V too, the
      two came along with each other, and p delivered n or more of s between the two, and not
      before. The other is the smallest such p.
    """
    known = numbers_known(history, RELIABLE)

    def floor(sender: str, upto: int) -> int:
        numbers = known.get(sender, [])
        at = bisect_right(numbers, upto)
        return numbers[at - 1] if at else 0

    traces = history.lives.items()
    heard = {key: list(delivered_before(trace.events, ("view",))) for key, trace in traces}
    last = {key: max(map(number_of, trace.sends)) for key, trace in traces if trace.sends}
    return unjust_cuts(history, heard, last, floor)


def delivered_before(rows: Iterable[Row], kinds: Container[str]) -> Iterator[dict[str, int]]:
    """Before each row of these kinds, by sender, the largest number delivered."""
    largest: dict[str, int] = {}
    for row in rows:
        if row.kind in kinds:
            yield dict(largest)
        elif row.kind == "deliver":
            sender, number = sender_of(row), number_of(row)
            if number > largest.get(sender, 0):
                largest[sender] = number


def unjust_cuts(
    history: History,
    heard: Mapping[str, Sequence[Mapping[str, int]]],
    last: Mapping[str, int],
    floor: Callable[[str, int], int],
) -> Iterator[Finding]:
    """The law, from these facts about messages: per incarnation and view, the largest number of
    each sender delivered before; per incarnation, the largest number sent; the largest known
    number of a sender that is not above another, 0 for none."""
    at_view: dict[str, dict[str, _AtView]] = {}
    for key, trace in history.lives.items():
        spared: dict[str, int] = {}
        last_view: Row | None = None
        last_heard: Mapping[str, int] = {}
        for row, mine in zip(trace.views, heard[key], strict=True):
            cuts = cut_of(row.detail)
            had = {each: max(mine.get(each, 0), spared.get(each, 0)) for each in {*mine, *spared}}
            at = _AtView(had, cuts, row.stayed, last_view, last_heard, mine)
            at_view.setdefault(row.view, {}).setdefault(key, at)
            last_view, last_heard = row, mine
            for sender, upto in cuts.items():
                spared[sender] = max(upto, spared.get(sender, 0))
    for view, by_key in at_view.items():
        for key, at in by_key.items():
            for sender, upto in at.cuts.items():
                spared_to = f"spared up to {upto} in view {view}"
                source = history.lives.get(sender)
                if source is not None and source.end != VANISHED and upto > last.get(sender, 0):
                    yield Finding(key, "", sender, f"{spared_to}; never sent")
                number = floor(sender, upto)
                if number <= at.had.get(sender, 0):
                    continue
                for other, why in _wrongly_spared(key, sender, number, by_key):
                    yield Finding(key, f"{sender}:{number}", other, f"{spared_to}; {why}")


def _wrongly_spared(
    key: str, sender: str, number: int, by_key: Mapping[str, _AtView]
) -> Iterator[tuple[str, str]]:
    """The incarnations that show that this one should have the message, and how."""
    at = by_key[key]
    if other := _behind(key, sender, number, by_key):
        yield other, f"delivered there up to {by_key[other].had.get(sender, 0)}"
    if at.before is None:
        return
    if sender in (at.before.members or ()) and at.came_with(sender):
        yield sender, f"together in {at.before.view}"
    others = (
        other
        for other, there in by_key.items()
        if other not in (key, sender) and there.before is not None
        if there.before.view == at.before.view and at.came_with(other) and there.came_with(key)
        if there.heard_before.get(sender, 0) < number <= there.heard.get(sender, 0)
    )
    if other := min(others, default=""):
        yield other, f"delivered there on the way from {at.before.view}"


class _AtView(NamedTuple):
    """An incarnation when it installs a view."""

    had: dict[str, int]
    """By sender, the largest number delivered or cut off before."""
    cuts: dict[str, int]
    stayed: tuple[str, ...] | None
    before: Row | None
    """Its view right before."""
    heard_before: Mapping[str, int]
    """By sender, the largest number delivered before that one."""
    heard: Mapping[str, int]
    """The same before this one."""

    def came_with(self, other: str) -> bool:
        return self.stayed is None or other in self.stayed


def _behind(key: str, sender: str, number: int, by_key: Mapping[str, _AtView]) -> str:
    """The smallest other incarnation that had delivered less and is not spared it; or empty."""
    others = (
        other
        for other, at in by_key.items()
        if other != key and sender not in at.cuts and at.had.get(sender, 0) < number
    )
    return min(others, default="")
