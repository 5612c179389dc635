"""The bounds of multi-RPC."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from unisono.errors import Misuse

ANSWER_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Bounds of one member or caller, and what happens at each."""

    calls_count_max: int = 1024
    """Calls made here and under way: `Full`."""
    answer_bytes_max: int = 1 << 20
    """An answer to a call made here; a larger one becomes the failure `TOO_LARGE`."""
    partial_bytes_max: int = 64 << 20
    """Answers that have arrived in part; beyond it pieces are refused, and sent again later."""
    executing_count_max: int = 1024
    """Coroutines of the handler under way: the failure `BUSY`."""
    callers_count_max: int = 4096
    """Callers whose last executed call is remembered, so that none is executed twice; the least
    recent is forgotten."""
    outside_count_max: int = 1024
    """Calls of non-members for which departures are still reported; the oldest is forgotten."""
    reply_bytes_max: int = 8 << 20
    """Answers that one caller has not acknowledged: the failure `BUSY`; beyond twice that, none."""
    links_count_max: int = 1024
    """Callers that answers are on the way to; answers to more are dropped."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or not 1 <= value < 1 << 32:
                raise Misuse(f"{field.name}={value!r}: give a number from 1 to 2^32-1")
        if self.answer_bytes_max > ANSWER_BYTES_MAX:
            raise Misuse(f"answer_bytes_max={self.answer_bytes_max}: at most {ANSWER_BYTES_MAX}")
