"""The internal events, by which one machine signals another."""

from __future__ import annotations

from typing import Any

from unisono.protocols.ring.codes import Code


class EventQueue:
    """[RNG-20] Events 18 to 24, processed before any timer or packet."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: list[tuple[Code, Any]] = []

    def push(self, code: Code, packet: Any = None) -> None:
        # Deviates [RNG Event stack]: first in, first out. A stack would start one machine before
        # the others are stopped.
        self.pending.append((code, packet))

    def pop(self) -> tuple[Code, Any]:
        return self.pending.pop(0)
