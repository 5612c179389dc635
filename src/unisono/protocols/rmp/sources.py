"""The blocks of every source as they arrive, and what each brings for which level of service.

A block's messages are delivered as early as their level permits [RMP-6]: *reliable* ones when the
block is here, *source ordered* ones when all blocks before it are here too, ordered ones when its
slot of the ordering queue is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from unisono.model import Buffer, Member, Message, Service, ServiceLevel
from unisono.parts.message_runs import MessageRun
from unisono.parts.packing import joined
from unisono.parts.turn import (
    GOES_ON,
    MORE,
    IncomingTurn,
    Turn,
)
from unisono.parts.window import Window
from unisono.protocols.rmp.agreement import Ranges
from unisono.protocols.rmp.contents import BlockFragment, Contents, read_block, read_messages
from unisono.protocols.rmp.data_packets import WHOLE, BestEffort, Data, Uniform

AHEAD_MAX: Final = 256
"""Blocks of a source beyond the first that is missing."""
FORMER_MAX: Final = 64
"""Sources that are gone and remembered for their receipts."""


class Growing(NamedTuple):
    """A large message of which the last fragment has not come."""

    number: int
    pieces: list[Buffer]


@dataclass(slots=True)
class Source:
    """One source's stream."""

    member: Member
    blocks: Window[Turn] = field(default_factory=Window)
    incoming: dict[int, IncomingTurn] = field(default_factory=dict)
    contents: dict[int, Contents] = field(default_factory=dict)
    is_cut: bool = False
    """The last message of those blocks is not complete."""
    passed: int = 0
    """Source-ordered messages of blocks up to here were handed over."""
    message: int = 0
    """The last message of the blocks that are in the order."""
    best_effort: int = 0
    """The last unreliable message that was delivered."""
    after: int = 0
    """The last block that was sent before it."""
    delivered: int = 0
    """The highest number of its messages that was handed over."""
    growing: dict[str, Growing] = field(default_factory=dict)
    """By what they wait for."""

    def held(self) -> int:
        """The last message up to which all are here, or that was delivered."""
        whole = [self.contents[n].last for n in self.contents if n <= self.passed]
        return max(self.message, self.delivered, *whole, 0)


class Sources:
    """All sources of one ring, as one site has them."""

    def __init__(self, message_bytes_max: int, drop: Callable[[str], None]) -> None:
        self._message_bytes_max = message_bytes_max
        self._drop = drop
        self.by_key: dict[int, Source] = {}
        self.arrived: dict[int, int] = {}
        """By source, the last block in a row that is here and not in the order, as they came."""
        self.is_urgent = False
        """Something among them is delivered in the order alone."""
        self._lost: dict[int, Source] = {}
        """Those that a reformation removed, while a member of the new ring may lack blocks."""
        self._former: dict[Member, int] = {}
        """Of sources that are gone, the last message up to which all were here."""
        self._wanted: list[tuple[int, int]] = []
        """Blocks that a new list asks us to hold."""
        self.too_large = False
        """Others deliver a message that is too large here."""

    def add(self, key: int, member: Member, block: int = 0, message: int = 0) -> None:
        if key not in self.by_key:
            window: Window[Turn] = Window(block)
            self.by_key[key] = Source(
                member, window, passed=block, message=message, best_effort=message
            )

    def remove(self, key: int) -> None:
        source = self.by_key.pop(key, None)
        self.arrived.pop(key, None)
        if source is not None:
            self._lost[key] = source
            self._former[source.member] = source.held()
            while len(self._former) > FORMER_MAX:
                del self._former[next(iter(self._former))]

    def has(self, source: int, number: int) -> bool:
        found = self.by_key.get(source)
        if found is None:
            return False
        return number <= found.blocks.received or found.blocks.get(number) is not None

    def forget_lost(self) -> None:
        """Every member of the new ring holds what was before it."""
        self._lost.clear()

    def get(self, source: int, number: int) -> Turn | None:
        found = self.by_key.get(source) or self._lost.get(source)
        return found.blocks.get(number) if found is not None else None

    def has_request(self, source: int, number: int) -> bool:
        """Whether the block changes the group's state."""
        return bool(self.requests(source, number))

    def requests(self, source: int, number: int) -> list[bytes]:
        found = self.by_key.get(source)
        contents = found.contents.get(number) if found is not None else None
        return contents.control if contents is not None else []

    # -- arrival ----------------------------------------------------------------------------------

    def take(self, packet: Data) -> list[MessageRun] | None:
        """Packets of a block; with the last of them, what may be delivered at once."""
        source = self.by_key.get(packet.sender)
        if source is None:
            self._drop("stranger")
            return None
        number, blocks = packet.number, source.blocks
        if number <= blocks.received or blocks.get(number) is not None:
            return None
        if number > blocks.received + AHEAD_MAX:
            self._drop("ahead")
            return None
        if packet.of == 1:
            content = bytes(packet.pieces[0])
            block = Turn(number, packet.sender, packet.resilience, content, len(content) or 1)
            return self.put(packet.sender, block)
        found = source.incoming.get(number)
        if found is None or (len(found.pieces), found.flags) != (packet.of, packet.resilience):
            # What contradicts an earlier packet takes its place: that may never become whole.
            found = IncomingTurn(packet.sender, packet.resilience, [None] * packet.of, packet.of)
            source.incoming[number] = found
        found.take(packet.at, packet.pieces)
        if found.missing:
            return None
        del source.incoming[number]
        whole = found.turn(number)
        if whole is None:
            self._drop("malformed")
            return None
        return self.put(packet.sender, whole)

    def put(self, key: int, block: Turn) -> list[MessageRun]:
        """A whole block, ours or another's."""
        source = self.by_key[key]
        contents = read_block(source.member, block, self._drop)
        source.blocks.put(block.s, block)
        source.contents[block.s] = contents
        if contents.ordered or contents.control:
            self.is_urgent = True
        found = self._messages(source, "at once", contents.at_once)
        while source.passed < source.blocks.received:
            source.passed += 1
            passed = source.contents[source.passed]
            found += self._messages(source, "in sequence", passed.in_sequence)
            if passed.last:
                source.is_cut = passed.is_cut
            self.arrived[key] = source.passed
        return found

    def put_last(self, key: int, block: Turn) -> None:
        """A block with a request: its source is the last of those that arrived."""
        self.arrived.pop(key, None)
        self.put(key, block)

    def take_best_effort(self, packet: BestEffort | Uniform) -> list[MessageRun]:
        """Unreliable messages; one that an earlier or a later one of them overtook is dropped."""
        source = self.by_key[packet.sender]
        found: list[MessageRun] = []
        if packet.after > source.blocks.received + AHEAD_MAX:
            self._drop("ahead")
            return found
        for run in self._best_effort(source.member, packet):
            past = source.best_effort + 1 - run.number
            if past < run.times:
                rest = run if past <= 0 else run.parted(past)[1]
                source.best_effort = rest.number + rest.times - 1
                source.after = packet.after
                source.delivered = max(source.delivered, source.best_effort)
                found.append(rest._replace(service=Service.UNRELIABLE))
        return found

    def _best_effort(self, member: Member, packet: BestEffort | Uniform) -> list[MessageRun]:
        """Packets of one length that came together are one run."""
        if isinstance(packet, BestEffort):
            contents = read_messages(member, bytes(packet.content), self._drop)
            return [run for run in contents.at_once if isinstance(run, MessageRun)]
        data, times = b"".join(packet.pieces), packet.times * len(packet.pieces)
        first = packet.first + packet.at * packet.times
        level = Service.UNRELIABLE
        return [MessageRun(member, data, 0, packet.length, times, first, "", None, level)]

    def is_whole(self, members: Container[int]) -> bool:
        """Whether everything that was delivered is in the order once all that arrived is, and no
        message only in part: who joins there could not complete it."""
        cut = (key for key, source in self.by_key.items() if source.is_cut)
        return not any(key in members for key in cut) and all(
            source.blocks.highest <= source.blocks.received >= source.after
            for source in self.by_key.values()
        )

    def can_all_be_named(self, ordered: dict[int, int], blocks_max: int, ranges_max: int) -> bool:
        """Whether one ACK with a request after them can name all blocks that arrived."""
        count = 0
        for key, last in self.arrived.items():
            first = ordered.get(key, 0) + 1
            count += last - first + 1
            if count > blocks_max or any(self.has_request(key, n) for n in range(first, last + 1)):
                return False
        return len(self.arrived) < ranges_max

    # -- what a block brings ----------------------------------------------------------------------

    def ordered(self, key: int, number: int) -> tuple[list[MessageRun], list[bytes]]:
        """The block's slot is reached: its ordered messages, and its requests."""
        source = self.by_key[key]
        contents = source.contents.get(number)
        if contents is None:
            return [], []
        source.message = max(source.message, contents.last)
        if self.arrived.get(key) == number:
            del self.arrived[key]
            self.is_urgent = bool(self.is_urgent and self.arrived)
        return self._messages(source, "ordered", contents.ordered), contents.control

    def leftover(self, key: int, ranges: Ranges, ordered: int, sync: int) -> list[MessageRun]:
        """[RMP-11] Blocks of a lost source that follow the synchronization point, without those up
        to `ordered`: for a site that was behind they were not in the order. After a hole only what
        needs no order can be delivered, and was, when its block came. So it is after a block whose
        source had delivered what stood beyond the synchronization point, and is in no order now.
        """
        source = self.by_key[key]
        found: list[MessageRun] = []
        for first, last in ranges:
            if first > source.blocks.received:
                break
            for number in range(max(first, ordered + 1), min(last, source.blocks.received) + 1):
                if number in source.contents and source.contents[number].after > sync:
                    return found
                found += self.ordered(key, number)[0]
        return found

    def _messages(
        self, source: Source, what: str, waiting: Iterable[MessageRun | BlockFragment]
    ) -> list[MessageRun]:
        found: list[MessageRun] = []
        for each in waiting:
            run = each if isinstance(each, MessageRun) else self._grow(source, what, *each)
            if run is not None:
                source.delivered = max(source.delivered, run.number + run.times - 1)
                found.append(run)
        return found

    def _grow(
        self, source: Source, what: str, number: int, mark: int, level: ServiceLevel, piece: Buffer
    ) -> MessageRun | None:
        """With the last fragment, the message."""
        if not mark & GOES_ON:
            source.growing[what] = Growing(number, [piece])
            return None
        growing = source.growing.get(what)
        if growing is None or growing.number != number:
            self._drop("fragment")
            return None
        growing.pieces.append(piece)
        if sum(map(len, growing.pieces)) > self._message_bytes_max:
            self.too_large = True
        if mark & MORE:
            return None
        del source.growing[what]
        return MessageRun.of(Message(source.member, joined(growing.pieces), number, service=level))

    # -- repair and memory ------------------------------------------------------------------------

    def has_gap(self) -> bool:
        """Something of a source is here whose beginning is not."""
        for source in self.by_key.values():  # Twice as fast as `any`; called in every step.
            if source.incoming or source.blocks.highest > source.blocks.received:
                return True
        return bool(self._wanted) and any(not self.has(*block) for block in self._wanted)

    def want(self, leftovers: Iterable[tuple[int, Ranges]]) -> None:
        """[RMP-11] Blocks of the lost that a new list asks its members to hold."""
        self._wanted = [
            (source, number)
            for source, ranges in leftovers
            for first, last in ranges
            for number in range(first, last + 1)
        ]

    def wants(self, source: int, number: int) -> bool:
        return (source, number) in self._wanted

    def gaps(self, count_max: int) -> list[tuple[int, int]]:
        """Source and number of blocks that are missing, or not whole."""
        found = [block for block in self._wanted if not self.has(*block)]
        for key, source in self.by_key.items():
            highest = max((source.blocks.highest, *source.incoming))
            for first, last in source.blocks.missing(highest, count_max):
                found += [(key, number) for number in range(first, last + 1)][:count_max]
        return found[:count_max]

    def is_tail(self, source: int, number: int) -> bool:
        """Nothing that its source sent later is here: the rest of it may be under way."""
        found = self.by_key.get(source)
        if found is None or number < max((found.blocks.highest, *found.incoming)):
            return False
        incoming = found.incoming.get(number)
        return incoming is None or None not in incoming.pieces[: -incoming.missing]

    def missing(self, source: int, number: int) -> tuple[int, int]:
        """The first packet of a block that is missing, and the last."""
        found = self.by_key.get(source)
        incoming = found.incoming.get(number) if found is not None else None
        if incoming is None:
            return 0, WHOLE
        absent = [index for index, piece in enumerate(incoming.pieces) if piece is None]
        return absent[0], absent[-1]

    def unordered(self, ordered: dict[int, int]) -> tuple[tuple[int, Ranges], ...]:
        """By source, the whole blocks that are here beyond the order."""
        found: list[tuple[int, Ranges]] = []
        for key, source in self.by_key.items():
            base = ordered.get(key, source.blocks.floor)
            numbers = sorted(n for n in source.contents if n > base)
            if numbers:
                found.append((key, _ranges(numbers)))
        return tuple(sorted(found))

    def forget(self, source: int, upto: int) -> None:
        found = self.by_key.get(source)
        if found is not None:
            for block in found.blocks.forget(upto):
                found.contents.pop(block.s, None)

    def marks(self, ordered: dict[int, int]) -> list[tuple[int, int, int]]:
        return [
            (key, ordered.get(key, 0), max(source.message, source.best_effort))
            for key, source in self.by_key.items()
        ]

    def held(self) -> dict[Member, int]:
        """By source, the last message up to which all are here."""
        return self._former | {source.member: source.held() for source in self.by_key.values()}


def _ranges(numbers: list[int]) -> Ranges:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
