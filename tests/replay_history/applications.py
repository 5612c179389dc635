"""A simulated replayable group: its members keep histories, and sinks repeat their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from unisono import replay_history
from unisono.model import Message, ServiceLevel, View
from unisono.replay_history import ReplayHistory, SinkRows
from unisono.sim.applications import ApplicationContext, ApplicationEnd, ApplicationSpec

QUERIES, PARTITIONS, ROWS = 2, 2, 5


def row_text(query: str, partition: int, epoch: int, row: int) -> bytes:
    return f"{query} {partition} {epoch} {row}".encode()


class Scribe:
    """One incarnation: what it delivered, each with its offset; and tasks of queries that it runs,
    from their first row on each time, whatever was sent before."""

    chronicler = ReplayHistory

    def __init__(self, scene: ApplicationContext) -> None:
        self.history = self.chronicler(retain_bytes=2000)
        self.dice = scene.dice
        self.me = scene.me
        self.found: list[tuple[str, int, bytes]] = []
        """The group's life, place and payload."""
        self.kept: list[str] = []
        self.count = 0

    def deliver(self, message: Message) -> Sequence[bytes]:
        delivered = self.history.deliver(message)
        if isinstance(delivered, Message):
            assert delivered.seq is not None
            self.found.append((self.history.incarnation, delivered.seq, delivered.payload))
            past = self.history.messages(1, delivered.seq)
            if [each.seq for each in past] != list(
                range(delivered.seq - len(past) + 1, delivered.seq + 1)
            ):
                self.kept.append(f"the past of {delivered.seq} has holes")
        return ()

    def install(self, view: View) -> Sequence[bytes]:
        self.history.see(view)
        return ()

    def prompt(self) -> Sequence[bytes]:
        self.count += 1
        if self.dice.random() < 0.5:
            text = f"{self.me}:{self.count}".encode()
            return [replay_history.plain(b"\xf5" + text if self.dice.random() < 0.2 else text)]
        query, partition = f"q{self.dice.randrange(QUERIES)}", self.dice.randrange(PARTITIONS)
        epoch, row = self.history.last_row(query, partition) or (0, -1)
        # The next epoch begins when the one before is done, at the earliest; the same again when
        # the query does not learn that it was done.
        if row == ROWS - 1 and self.dice.random() < 0.6:
            epoch += 1
        payloads = [row_text(query, partition, epoch, n) for n in range(ROWS)]
        whole = replay_history.rows(SinkRows(query, partition, epoch), 0, payloads)
        return whole[: self.dice.randint(1, ROWS)] if self.dice.random() < 0.3 else whole

    def state(self) -> bytes:
        return self.history.state()

    def adopt(self, state: bytes) -> Sequence[bytes]:
        self.history.adopt(state)
        return ()

    def is_idle(self) -> bool:
        return True


def judge(lived: Sequence[ApplicationEnd], service: ServiceLevel) -> Iterable[str]:
    """One order and one place for all, and each row once."""
    said: dict[tuple[str, int], bytes] = {}
    for each in lived:
        scribe: Scribe = each.application
        yield from scribe.kept
        last: dict[str, int] = {}
        for incarnation, offset, payload in scribe.found:
            if offset != last.get(incarnation, offset - 1) + 1:
                yield f"{each.me}: place {offset} after {last[incarnation]}"
            last[incarnation] = offset
            if said.setdefault((incarnation, offset), payload) != payload:
                yield f"{each.me}: {payload!r} at {offset}, elsewhere {said[incarnation, offset]!r}"
    ends = {(s.history.incarnation, s.history.offset) for s in _of_alive(lived)}
    if len(ends) > 1:
        yield f"the living end at {sorted(ends)}"
    yield from _rows_judged(said)


def _of_alive(lived: Sequence[ApplicationEnd]) -> list[Scribe]:
    return [each.application for each in lived if each.alive]


def _rows_judged(said: dict[tuple[str, int], bytes]) -> Iterable[str]:
    """In one life of the group the rows of a writer come in order, none twice, none left out."""
    last: dict[tuple[str, bytes, bytes], tuple[int, int]] = defaultdict(lambda: (-1, ROWS - 1))
    begun: set[tuple[str, bytes, bytes]] = set()
    for (incarnation, offset), payload in sorted(said.items()):
        if not payload.startswith(b"q"):
            continue
        query, partition, *at = payload.split()
        key, (epoch, row) = (incarnation, query, partition), map(int, at)
        before = last[key]
        follows = before == (epoch, row - 1) or (row == 0 and before == (epoch - 1, ROWS - 1))
        if key in begun and not follows:
            yield f"{payload.decode()} at {offset} after {before}"
        begun.add(key)
        last[key] = (epoch, row)


FED = ApplicationSpec(Scribe, judge)
