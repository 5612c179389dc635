"""Replayable groups: offsets, rows delivered once, and recalls.

The history stands between the session and the stream: it numbers messages, strips its framing,
drops repeated rows and answers the other members' recalls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from unisono import replay_history as framing
from unisono.errors import Misuse
from unisono.group.recall import Recalls
from unisono.model import Member, Message, ServiceLevel, View, is_ordered, level_text
from unisono.net.stream import AdoptMark, CaptureMark, Entry, Rejoined, Stable, Unstable
from unisono.replay_history import ReplayHistory, SinkRows
from unisono.spec import ProtocolSpec


def check_ordered(level: ServiceLevel, spec: ProtocolSpec) -> None:
    """`Misuse` unless the whole group delivers such messages in one order."""
    if not (is_ordered(level) and spec.has_one_order):
        from unisono.protocols import with_one_order

        *others, last = with_one_order()
        raise Misuse(
            f"a replayable group needs one total order for all, which {spec.name} with"
            f" service={level_text(level)} has not: use {', '.join(others)} or {last}, with agreed"
            " or safe"
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
        """`has_state`: the application transfers a state of its own."""
        self.history = ReplayHistory(retain_bytes)
        self.recalls = Recalls(self.history, send, where, bytes_max)
        self.sealed = framing.plain
        self._has_state = has_state
        self._fail = fail

    def rows(self, source: SinkRows, first_row: int, payloads: list[bytes]) -> list[bytes]:
        """A sink's rows as messages of the group."""
        return framing.rows(source, first_row, payloads)

    def counts(self) -> dict[str, int]:
        return {
            "replay.repeated": self.history.repeated_count,
            "replay.forgotten_writers": self.history.forgotten_count,
            "drop.replay_malformed": self.history.malformed_count,
            "drop.recall": self.recalls.refused_count,
        }

    def close(self) -> None:
        self.recalls.close()

    # -- from the session to the stream -----------------------------------------------------------

    def received(self, messages: Sequence[Message]) -> list[Message]:
        """Of these messages, what the application reads."""
        found: list[Message] = []
        deliver, control = self.history.deliver, self.recalls.deliver
        for message in messages:
            delivered = deliver(message)
            if isinstance(delivered, Message):
                found.append(delivered)
            elif delivered is not None:
                control(delivered)
        return found

    def entry(self, entry: Entry) -> Entry | None:
        """What the application reads instead of this entry; None for nothing."""
        match entry:
            case View():
                return self.history.see(entry)
            case Stable(messages, holders):
                return Stable(tuple(map(framing.stripped, messages)), holders)
            case Unstable(messages, cause):
                return Unstable(tuple(map(framing.stripped, messages)), cause)
            case CaptureMark():
                return self._capture(entry)
            case AdoptMark(state):
                return self._adopt(state)
            case Rejoined():
                self.history.begin()
                # Offsets are the history's own, and `recall` has what was missed.
                unsaid = None if entry.unsaid is None else _own(entry.unsaid)
                return replace(entry, missed=None, lost=_own(entry.lost), unsaid=unsaid)
        return entry

    def _capture(self, mark: CaptureMark) -> CaptureMark | None:
        """Captures the history now; the application's state is captured when its reader reaches
        the mark."""
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
    """The application's own messages among these: a sink repeats its rows, a requester its
    recall."""
    return tuple(text for each in payloads if (text := framing.own_payload(each)) is not None)
