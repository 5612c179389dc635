"""A checkpoint in pieces, for a member that is far behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unisono.errors import BadPacket
from unisono.layout import decode, encode
from unisono.services.replication.records import CheckpointPiece, LogCheckpoint

CHECKPOINT_PIECE_BYTES: Final = 256 << 10


def checkpoint_pieces(component: str, checkpoint: LogCheckpoint) -> Iterator[CheckpointPiece]:
    whole = encode(checkpoint)
    for offset in range(0, len(whole), CHECKPOINT_PIECE_BYTES):
        piece = whole[offset : offset + CHECKPOINT_PIECE_BYTES]
        yield CheckpointPiece(component, len(whole), offset, piece)


class CheckpointAssembly:
    """The pieces of one component. Its one sender sends them in order."""

    def __init__(self) -> None:
        self._component = ""
        self._whole = bytearray()

    def clear(self) -> None:
        self._component = ""
        self._whole.clear()

    def take(self, piece: CheckpointPiece) -> LogCheckpoint | None:
        """The checkpoint, with its last piece."""
        if piece.offset == 0:
            self.clear()
            self._component = piece.component
        if piece.component != self._component or piece.offset != len(self._whole):
            return None
        self._whole += piece.piece
        if len(self._whole) < piece.total:
            return None
        whole = bytes(self._whole)
        self.clear()
        try:
            return decode(LogCheckpoint, whole)
        except BadPacket:
            return None
