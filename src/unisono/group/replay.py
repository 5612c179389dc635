"""What a replayable group has more than others: offsets, rows that count once, and a history.

Between the session and the stream of such a group stands its history, which strips its own framing
from what the application reads, drops repeated rows, and answers the other members' recalls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from unisono import replay_history as words
from unisono.errors import Misuse
from unisono.group.recall import Recalls
from unisono.model import Member, Message, Service, ServiceLevel, View
from unisono.net.stream import AdoptMark, CaptureMark, Entry, Rejoined, Stable
from unisono.replay_history import ReplayHistory, SinkRows, is_ordered


def check_ordered(level: ServiceLevel, protocol: str) -> None:
    """Offsets are the same for all only where the order is."""
    if not is_ordered(level):
        from unisono.protocols import ordered

        name = level.name.lower() if isinstance(level, Service) else str(level)
        raise Misuse(
            f"a fed group has one order for all: {protocol} with service={name} has not;"
            f" use {' or '.join(ordered())}, with agreed or safe"
        )


class Replay:
    """The history of a group at one of its members, and its part in recalls."""

    def __init__(
        self,
        retain_bytes: int,
        has_state: bool,
        send: Callable[[Sequence[bytes], ServiceLevel], Awaitable[int]],
        where: Callable[[], tuple[Member, View]],
        bytes_max: Callable[[], int],
        fail: Callable[[str], None],
    ) -> None:
        """`has_state`: the application hands over a state of its own."""
        self.history = ReplayHistory(retain_bytes)
        self.recalls = Recalls(self.history, send, where, bytes_max)
        self.sealed = words.plain
        self._has_state = has_state
        self._fail = fail

    def rows(self, whose: SinkRows, first_row: int, payloads: list[bytes]) -> list[bytes]:
        """A sink's rows as messages of the group."""
        return words.rows(whose, first_row, payloads)

    def counts(self) -> dict[str, int]:
        return {
            "fed.repeated": self.history.repeated_count,
            "fed.forgotten_writers": self.history.forgotten_count,
            "drop.fed_malformed": self.history.malformed_count,
            "drop.recall": self.recalls.refused_count,
        }

    def close(self) -> None:
        self.recalls.close()

    # -- from the session to the stream -----------------------------------------------------------

    def received(self, messages: Sequence[Message]) -> list[Message]:
        """Of these messages, what the application reads."""
        found: list[Message] = []
        hear, control = self.history.hear, self.recalls.hear
        for message in messages:
            heard = hear(message)
            if isinstance(heard, Message):
                found.append(heard)
            elif heard is not None:
                control(heard)
        return found

    def entry(self, entry: Entry) -> Entry | None:
        """What the application's stream has in place of this entry, which is no message."""
        match entry:
            case View():
                return self.history.see(entry)
            case Stable(messages, holders):
                return Stable(tuple(map(words.bare, messages)), holders)
            case CaptureMark():
                return self._capture(entry)
            case AdoptMark(state):
                return self._adopt(state)
            case Rejoined():
                self.history.begin()
                # Offsets are the history's own, and `recall` has what was missed.
                return replace(entry, missed=None, lost=_own(entry.lost))
        return entry

    def _capture(self, mark: CaptureMark) -> CaptureMark | None:
        """The history is captured here, the application's state when its reader comes to it."""
        state = self.history.state()
        front = len(state).to_bytes(4, "big") + state

        def answer(key: Hashable, own: bytes) -> None:
            mark.answer(key, front + own)

        if self._has_state:
            return CaptureMark(mark.key, answer)
        answer(mark.key, b"")
        return None

    def _adopt(self, state: bytes) -> AdoptMark | None:
        end = 4 + int.from_bytes(state[:4], "big")
        try:
            self.history.adopt(state[4:end])
        except Misuse as error:
            self._fail(str(error))
            return None
        return AdoptMark(state[end:]) if self._has_state else None


def _own(payloads: Iterable[bytes]) -> tuple[bytes, ...]:
    """Of what was multicast, what the application itself multicast: rows are repeated by their
    sink, and questions by the asker."""
    return tuple(text for each in payloads if (text := words.plainly(each)) is not None)
