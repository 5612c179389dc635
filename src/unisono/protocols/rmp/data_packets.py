"""Packets of messages: blocks, and unreliable ones, which go in no block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple

from unisono.errors import BadPacket
from unisono.fields import U16, U64, Rest, bounded
from unisono.layout import layout_of, size_of
from unisono.model import Buffer
from unisono.parts.codec import PacketTrain
from unisono.parts.labels import number_range
from unisono.protocols.rmp.reform_packets import NUMBER_MAX, Number

BLOCK_PACKETS_MAX: Final = 1024
WHOLE: Final = 0xFFFF
"""As the last packet of a range: up to the end of the block."""


class BlockFront(NamedTuple):
    """What precedes a piece of a block in its packet."""

    sender: U64
    number: Annotated[int, bounded("Q", 1, NUMBER_MAX)]
    of: Annotated[int, bounded("H", 1, BLOCK_PACKETS_MAX)]
    resilience: Annotated[int, bounded("h", -2, (1 << 15) - 1, text="i16, at least -2")]
    at: U16


DATA: Final = layout_of(BlockFront)
PIECE_AT: Final = size_of(BlockFront)
DATA_BYTES: Final = PIECE_AT - 2
"""What the packets of a block have in common; their index follows."""


class Data(NamedTuple):
    """Packets of a block from index `at` on, of `of`; those of one burst that follow each other."""

    sender: int
    number: int
    at: int
    of: int
    resilience: int
    """k of its messages, as `Resilient` counts; 0: none was asked for."""
    pieces: Sequence[Buffer]

    def label(self) -> str:
        return (
            f"data {self.number} {number_range(self.at + 1, self.at + len(self.pieces))}/{self.of}"
        )


def read_data(body: memoryview) -> Data:
    (source, number, of, k, index), at = DATA.read(body, 0)
    if index >= of:
        raise BadPacket("malformed")
    return Data(source, number, index, of, k, [body[at:]])


class BlockHead(NamedTuple):
    """What precedes the messages of a block."""

    after: U64
    """The slot up to which its source had delivered the order when it made the block: its messages
    may follow from what stands there."""


BLOCK_HEAD: Final = layout_of(BlockHead)
BLOCK_HEAD_BYTES: Final = size_of(BlockHead)


class BestEffort(NamedTuple):
    """Unreliable messages [RMP-6], neither acknowledged nor repaired: a run, as in a block."""

    sender: U64
    after: Number
    """The last block that its source sent before."""
    content: Rest

    def label(self) -> str:
        return "best-effort"


class UniformFront(NamedTuple):
    """What packets of unreliable messages of one length begin with, up to their index. As many
    bytes as in the front of a block: packets of one burst are read together."""

    sender: U64
    first: Annotated[int, bounded("Q", 1, NUMBER_MAX)]
    """The number of the first message of the packet with index 0."""
    length: Annotated[int, bounded("H", 1, (1 << 16) - 1)]
    """Of each message."""
    times: Annotated[int, bounded("H", 1, (1 << 16) - 1)]
    """Messages in a packet."""
    at: U16
    after: Number
    """The last block that its source sent before."""


UNIFORM: Final = layout_of(UniformFront)
UNIFORM_AT: Final = size_of(UniformFront)
AFTER_BYTES: Final = UNIFORM_AT - PIECE_AT
UNIFORM_COUNT_MAX: Final = 1024
"""Packets that share a front."""


class Uniform(NamedTuple):
    """Unreliable messages of one length [RMP-6]: packets from index `at` on, those of one burst
    that follow each other. Each is delivered without the others."""

    sender: int
    first: int
    length: int
    times: int
    at: int
    after: int
    pieces: Sequence[Buffer]

    def label(self) -> str:
        first = self.first + self.at * self.times
        return f"uniform {number_range(first, first + len(self.pieces) * self.times - 1)}"


def read_uniform(body: memoryview) -> Uniform:
    front, at = UNIFORM.read(body, 0)
    sender, first, length, times, index, after = front
    if len(body) - at != length * times or first + (index + 1) * times > NUMBER_MAX:
        raise BadPacket("malformed")
    return Uniform(sender, first, length, times, index, after, [body[at:]])


def read_train(
    train: PacketTrain, front: Data | Uniform, drop: Callable[[str, int], None]
) -> list[Data | Uniform]:
    """Packets that began as this one does: one for each row of those that follow each other."""
    found: list[Data | Uniform] = []
    for first, pieces in train.rows():
        if isinstance(front, Uniform):
            is_sound = front.first + (first + len(pieces)) * front.times <= NUMBER_MAX
            pieces = tuple([piece[AFTER_BYTES:] for piece in pieces])
        else:
            is_sound = first + len(pieces) <= front.of
        if is_sound:
            found.append(front._replace(at=first, pieces=pieces))
        else:
            drop("malformed", len(pieces))
    return found
