"""The laws of order: FIFO, causal and total."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from unisono.laws.cycles import shortest_cycle
from unisono.laws.succession import MERGED, tells
from unisono.laws.verdict import Finding
from unisono.trace.checks import LEVELS, VIEWS, level_of
from unisono.trace.history import (
    History,
    IncarnationTrace,
    cut_of,
    message_of,
    number_of,
    sender_of,
)
from unisono.trace.record import Row

FIFO, CAUSAL, AGREED = LEVELS["fifo"], LEVELS["causal"], LEVELS["agreed"]


def fifo(history: History) -> Iterator[Finding]:
    """The messages of one sender are delivered in the order sent, without gaps.

    Of the deliveries of sender s at life q with level fifo or above, in q's order, let *before* be
    the largest number delivered earlier or q's base for s at that step, whichever is larger
    (nothing earlier and no base: the first delivery is free). A base is what the cut says of the
    first view that has s or names it in its cut, or 0, and from a later view that names it on what
    that one says. A delivery of number n breaks the law when
    - `after N`: n is below the largest number N delivered earlier; or
    - `without N`: some message of s with level fifo or above, known from any send or deliver row of
      the history, has a number between before and n; N is the smallest.
    """
    yield from _disorder(history, (FIFO,))


def fifo_by_level(history: History) -> Iterator[Finding]:
    """A message is delivered after its sender's earlier ones of the same or a weaker level.

    As `fifo`, for pairs of messages of one sender of which the earlier is not the stronger: a
    weaker message may be delivered before an earlier stronger one. A delivery of number n at level
    l breaks the law when
    - `after N`: a larger number with level l or above was delivered earlier; N is the largest; or
    - `without N`: some message of s at a level k from fifo up to l has a number between n and the
      largest number delivered earlier with level k or above, or the base; N is the smallest.
    """
    yield from _disorder(history, range(FIFO, max(LEVELS.values()) + 1))


def _disorder(history: History, floors: Sequence[int]) -> Iterator[Finding]:
    """Violations of the order of senders, where levels from one floor up to the next are one."""
    known = _numbers_by_floor(history, floors)
    for trace in history.lives.values():
        largest: dict[tuple[int, str], int] = {}
        for row in trace.deliveries:
            sender, number, level = sender_of(row), number_of(row), level_of(row.service)
            mine = [floor for floor in floors if floor <= level]
            if not mine:
                continue
            base, later, gaps = trace.base(sender, row.step), 0, []
            for floor in mine:
                earlier = largest.get((floor, sender))
                later = earlier or 0
                before = base if earlier is None or (base or 0) > earlier else earlier
                if before is not None:
                    gaps += _first_between(known.get((floor, sender), []), before, number)
                largest[floor, sender] = max(number, earlier or 0)
            if number < later:
                yield Finding(trace.key, message_of(row), sender, f"after {later}")
            elif gaps:
                yield Finding(trace.key, message_of(row), sender, f"without {min(gaps)}")


def _numbers_by_floor(history: History, floors: Sequence[int]) -> dict[tuple[int, str], list[int]]:
    """By floor and sender, the rising numbers of its messages from this floor up to the next."""
    numbers: dict[tuple[int, str], set[int]] = {}
    for sender, service, number in history.derived(_messages_known):
        floor = max((each for each in floors if each <= level_of(service)), default=None)
        if floor is not None:
            numbers.setdefault((floor, sender), set()).add(number)
    return {key: sorted(known) for key, known in numbers.items()}


def numbers_known(history: History, level: int) -> dict[str, list[int]]:
    """By sender, the rising numbers of its messages with this level or above."""
    numbers: dict[str, list[int]] = {}
    for sender, service, number in history.derived(_messages_known):
        if level_of(service) >= level:
            numbers.setdefault(sender, []).append(number)
    return {sender: sorted(set(known)) for sender, known in numbers.items()}


def _messages_known(history: History) -> set[tuple[str, str | None, int]]:
    """Sender, service and number of each message that was sent or delivered."""
    return {
        (sender_of(row), row.service, number_of(row))
        for trace in history.lives.values()
        for row in (*trace.sends, *trace.deliveries)
    }


def _first_between(numbers: list[int], low: int, high: int) -> list[int]:
    """At most one."""
    at = bisect_right(numbers, low)
    return [number for number in numbers[at : at + 1] if number < high]


def causal(history: History) -> Iterator[Finding]:
    """A message is delivered after all messages that causally precede it.

    Only messages of level causal or above count. Of message m sent by life p (its first send row),
    need(m)[s] is the largest number of sender s that p delivered before that row, by step, or, when
    larger, the largest number known of s (from any send or deliver row) that is not above what a
    cut in a view of p before that row says of s: what p adopted, it knows. Of p itself it is the
    largest number p sent before m. When life q delivers m, then for each s for which q has a base
    at that step (see `fifo`), the largest number of s that q delivered earlier, or the base, is at
    least need(m)[s]. The violation names q and m; the other is the message needed.
    From a view of q on in which components merge, nothing is needed of an s that was in a view of q
    and is not in that one, until a view has it again: what the components knew of those who are
    gone was theirs alone. They merge where the view has the change `merged`, or where somebody
    returns: it was in a view of q, and not in the one before; or it did not come along from that
    one, by the transitional set of the view.
    """
    needs: dict[str, dict[str, int]] = {}
    known = numbers_known(history, CAUSAL)
    for trace in history.lives.values():
        _gather_needs(trace, needs, known)
    for trace in history.lives.values():
        largest: dict[str, int] = {}
        gone = Departed()
        for row in trace.events:
            if row.kind == "view":
                gone.see(row)
            if row.kind != "deliver" or level_of(row.service) < CAUSAL:
                continue
            message, sender = message_of(row), sender_of(row)
            for source, number in needs.get(message, {}).items():
                if largest.get(source, 0) >= number or source in gone.members:
                    continue
                base = trace.base(source, row.step)
                if base is not None and base < number:
                    detail = "delivered before what it depends on"
                    yield Finding(trace.key, message, f"{source}:{number}", detail)
            largest[sender] = max(number_of(row), largest.get(sender, 0))


class Departed:
    """Senders of which nothing is needed any more, since components merged without them."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        self._met: set[str] = set()
        self._last: set[str] = set()

    def see(self, view: Row) -> None:
        now = set(view.members or ())
        came = self._last if view.stayed is None else self._last & set(view.stayed)
        if (now & self._met) - came or tells(view, MERGED):
            self.members |= self._met
        self.members -= now
        self._met |= now
        self._last = now


def _gather_needs(
    trace: IncarnationTrace, needs: dict[str, dict[str, int]], known: dict[str, list[int]]
) -> None:
    """Needs are shared between sends until something new is delivered, and copied only then."""
    current: dict[str, int] = {}
    own = 0
    for row in trace.events:
        if row.kind == "view":
            for sender, upto in cut_of(row.detail).items():
                numbers = known.get(sender, [])
                at = bisect_right(numbers, upto)
                if at and numbers[at - 1] > current.get(sender, 0) and sender != trace.key:
                    current = {**current, sender: numbers[at - 1]}
            continue
        if level_of(row.service) < CAUSAL:
            continue
        if row.kind == "deliver":
            sender, number = sender_of(row), number_of(row)
            if number > current.get(sender, 0) and sender != trace.key:
                current = {**current, sender: number}
        else:
            if own:
                current = {**current, trace.key: own}
            needs.setdefault(message_of(row), current)
            own = max(own, number_of(row))


def _ordered(trace: IncarnationTrace) -> dict[str, Row]:
    """Its deliveries of level agreed or above in its order, each message once."""
    rows: dict[str, Row] = {}
    for message, row in zip(trace.messages, trace.deliveries, strict=True):
        if level_of(row.service) >= AGREED:
            rows.setdefault(message, row)
    return rows


def total_order(history: History) -> Iterator[Finding]:
    """Any two members deliver their common messages in the same order.

    Only messages of level agreed or above count (resilient ones too), each at its first delivery.
    - `after M here, before it there`: for lives p < q, of the messages both delivered, in p's
      order, M and m are neighbours, and q delivered m before M. Named are p, m, and q.
    - `place N here, M there`: m has the place N (`seq`) at this life, and another place M at the
      smallest life that delivered it with a place, which is the other.
    - `place N after M`: at one life, of the messages with places, m's place N is not above that of
      the one before it, M.
    - `cycle: M before N at P, …`: no two lives disagree, but there is no one order that all keep.
      Told is one shortest cycle, in which each message is delivered before the next at a life, and
      of these the smallest in its words, beginning at its smallest message, which is named, with
      the first of the lives.
    """
    sequences = {key: _ordered(trace) for key, trace in history.lives.items()}
    inverted = False
    for p, q, first, second in inversions(sequences):
        inverted = True
        yield Finding(p, second, q, f"after {first} here, before it there")
    if not inverted:
        yield from cycle({key: list(rows) for key, rows in sequences.items()})
    reference: dict[str, tuple[str, int]] = {}
    for key, rows in sequences.items():
        last: int | None = None
        for message, row in rows.items():
            if row.seq is None:
                continue
            if last is not None and row.seq <= last:
                yield Finding(key, message, "", f"place {row.seq} after {last}")
            last = row.seq
            other, place = reference.setdefault(message, (key, row.seq))
            if place != row.seq:
                yield Finding(key, message, other, f"place {row.seq} here, {place} there")


def cycle(sequences: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """A shortest cycle in what incarnations delivered, if there is one."""
    steps = shortest_cycle(sequences)
    if steps:
        text = ", ".join(f"{one} before {two} at {at}" for one, two, at in steps)
        message, _, key = steps[0]
        yield Finding(key, message, "", f"cycle: {text}")


def inversions(
    sequences: Mapping[str, Iterable[str]],
) -> Iterator[tuple[str, str, str, str]]:
    """For incarnations p < q, neighbours in p's order of what both have that q has the other way
    round: p, q and the two items. The mapping is in the order of keys."""
    positions = {
        key: {item: at for at, item in enumerate(items)} for key, items in sequences.items()
    }
    for (p, mine), (q, theirs) in combinations(positions.items(), 2):
        for first, second in pairwise(item for item in mine if item in theirs):
            if theirs[first] > theirs[second]:
                yield p, q, first, second


def prefix(history: History) -> Iterator[Finding]:
    """Of any two members' sequences of ordered messages, one is a prefix of the other.

    Only messages of level agreed or above count, each at its first delivery. For lives p < q that
    each delivered some, the sequences are laid side by side: from their beginnings, if both have
    the same first view; else from p's first message on where q has it; else from q's first message
    on where p has it; else they are not compared. At the first place where both have a message and
    the two differ, the law is broken: named are p, its message, q, and q's message in the detail.
    """
    sequences = {key: list(_ordered(trace)) for key, trace in history.lives.items()}
    for p, q in combinations((key for key in sequences if sequences[key]), 2):
        mine, yours = sequences[p], sequences[q]
        if not _same_start(history.lives[p], history.lives[q]):
            if mine[0] in yours:
                yours = yours[yours.index(mine[0]) :]
            elif yours[0] in mine:
                mine = mine[mine.index(yours[0]) :]
            else:
                continue
        for left, right in zip(mine, yours, strict=False):
            if left != right:
                yield Finding(p, left, q, f"{right} there")
                break


def view_prefix(history: History) -> Iterator[Finding]:
    """Of any two members' ordered messages in one view, one's are a prefix of the other's.

    Only messages of level agreed or above count, each at its first delivery, with the last regular
    view V before it at that life: not behind a transitional view, and of a view installed twice
    only the first time. The life that delivered most of them in V is the reference, of several the
    smallest. At the first place where a life and the reference both have a message and the two
    differ, the law is broken: `M there, in view V`. Named are the life and its message; the other
    is the reference, and M its message.
    """
    by_view: dict[str, dict[str, list[str]]] = {}
    for key, trace in history.lives.items():
        for view, messages in _by_view(trace).items():
            by_view.setdefault(view, {})[key] = messages
    for view, sequences in by_view.items():
        other = max(sequences, key=lambda key: len(sequences[key]))
        for key, mine in sequences.items():
            for here, there in zip(mine, sequences[other], strict=False):
                if here != there:
                    yield Finding(key, here, other, f"{there} there, in view {view}")
                    break


def _by_view(trace: IncarnationTrace) -> dict[str, list[str]]:
    """The ordered messages that it delivered in each regular view."""
    found: dict[str, list[str]] = {}
    ordered = {row.step: message for message, row in _ordered(trace).items()}
    mine: list[str] | None = None
    for row in trace.rows:
        if row.kind in VIEWS:
            mine = None
            if row.kind == "view" and row.view not in found:
                mine = found[row.view] = []
        elif mine is not None and row.kind == "deliver" and row.step in ordered:
            mine.append(ordered[row.step])
    return found


def _same_start(p: IncarnationTrace, q: IncarnationTrace) -> bool:
    return p.inside and q.inside and p.views[0].view == q.views[0].view
