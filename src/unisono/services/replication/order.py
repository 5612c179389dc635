"""[FTO §3] The updates of one replica: red ones, whose content is kept, and the green order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from unisono.services.replication.records import Line, LogCheckpoint, Update, UpdateKind


class UpdateOrder:
    """What one replica knows of the order. The content of green updates is with the log."""

    def __init__(self, members: Iterable[str]) -> None:
        self.green = 0
        """The last position of the green order."""
        self.base = 0
        """The log has the green updates after this position."""
        self.cuts: dict[str, int] = {}
        """By submitter, the number up to which all its updates are known."""
        self.greens: dict[str, int] = {}
        """By submitter, the number of its last green update."""
        self.members: tuple[str, ...] = tuple(sorted(members))
        """Of the replication group, as the green order has it."""
        self.gone: frozenset[str] = frozenset()
        """Those that were taken out."""
        self._red: dict[str, deque[Update]] = {}

    @property
    def red_count(self) -> int:
        return sum(map(len, self._red.values()))

    def reds(self) -> list[Update]:
        """In the order in which they become green when a component is installed [FTO §3 OR-2]."""
        return [update for name in sorted(self._red) for update in self._red[name]]

    def reds_after(self, submitter: str, number: int) -> list[Update]:
        return [each for each in self._red.get(submitter, ()) if each.number > number]

    def is_next(self, update: Update) -> bool:
        """Whether all of its submitter before it are known, and it is not."""
        return update.number == self.cuts.get(update.submitter, 0) + 1

    def mark_red(self, update: Update) -> bool:
        """Whether it was unknown. One that does not follow the last of its submitter is ignored: it
        will be sent again."""
        if not self.is_next(update):
            return False
        self.cuts[update.submitter] = update.number
        self._red.setdefault(update.submitter, deque()).append(update)
        return True

    def mark_green(self, update: Update) -> bool:
        """Whether it is the next of its submitter; others are ignored alike at all members."""
        name, number = update.submitter, update.number
        if number != self.greens.get(name, 0) + 1:
            return False
        self.green += 1
        self.greens[name] = number
        if red := self._red.get(name):
            assert red[0].number == number, f"{red[0]} is red, {update} is green"
            red.popleft()
            if not red:
                del self._red[name]
        self.cuts[name] = max(number, self.cuts.get(name, 0))
        if update.kind is UpdateKind.ADD:
            self._add(update.content.decode())
        elif update.kind is UpdateKind.REMOVE:
            self._remove(update.content.decode())
        return True

    def _add(self, name: str) -> None:
        self.members = tuple(sorted({*self.members, name}))
        self.gone -= {name}

    def _remove(self, name: str) -> None:
        self.members = tuple(each for each in self.members if each != name)
        self.gone |= {name}

    def checkpoint(self, state: bytes) -> LogCheckpoint:
        return LogCheckpoint(self.green, lines_of(self.greens), self.members, state)

    def next_red(self, submitter: str) -> Update:
        return self._red[submitter][0]

    def adopt(self, checkpoint: LogCheckpoint, kept: int = 0) -> None:
        """Go on from this checkpoint, which is ahead; the log has so many updates before it."""
        assert checkpoint.position >= self.green
        self.green = checkpoint.position
        self.base = checkpoint.position - kept
        self.greens = dict(checkpoint.cuts)
        removed = set(self.members).difference(checkpoint.members)
        self.members, self.gone = checkpoint.members, self.gone | removed
        for name, number in self.greens.items():
            left = deque(self.reds_after(name, number))
            self._red.pop(name, None)
            if left:
                self._red[name] = left
            self.cuts[name] = max(number, self.cuts.get(name, 0))

    def forget_before(self, position: int) -> None:
        """The log no longer has the green updates up to this position."""
        self.base = max(self.base, position)


def lines_of(numbers: Mapping[str, int]) -> tuple[Line, ...]:
    return tuple(Line(name, number) for name, number in sorted(numbers.items()))


class Submissions:
    """The replica's own updates on their way to the others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first = self._last = 0
        """The numbers of those that this log has seen made."""
        self._waiting: deque[Update] = deque()
        """Logged, and not yet sent: no component takes them now."""
        self._sent: deque[Update] = deque()
        """On their way in this component."""

    def make(self, kind: UpdateKind, contents: Sequence[bytes]) -> list[Update]:
        made = []
        self._first = self._first or self._last + 1
        for content in contents:
            self._last += 1
            made.append(Update(self._name, self._last, kind, content))
        self._waiting.extend(made)
        return made

    def recall(self, first: int, last: int) -> None:
        """Those in the log, at a start."""
        self._first, self._last = first, last

    def know(self, number: int) -> None:
        """One with this number exists."""
        self._last = max(self._last, number)

    def has_logged(self, update: Update) -> bool:
        """Whether it was made with this log, and not with one that was lost."""
        return update.submitter == self._name and 0 < self._first <= update.number

    def take(self) -> list[Update]:
        """Those to send now."""
        taken = list(self._waiting)
        self._sent.extend(taken)
        self._waiting.clear()
        return taken

    def came(self, number: int) -> None:
        """They came back, up to this one."""
        while self._sent and self._sent[0].number <= number:
            self._sent.popleft()

    def outstanding(self) -> list[Update]:
        """Those that have not come back."""
        return [*self._sent, *self._waiting]

    def exchange(self) -> list[Update]:
        """Those that have not come back: from here on they are exchanged as red ones, and not sent
        as new ones."""
        found = self.outstanding()
        self._sent.clear()
        self._waiting.clear()
        return found
