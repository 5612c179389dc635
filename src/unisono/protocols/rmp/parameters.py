"""The options of RMP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unisono.errors import Misuse
from unisono.model import SizeVote
from unisono.protocols.rmp.data_packets import BLOCK_PACKETS_MAX
from unisono.requests import VoteSize

DEFAULTS: Final = {
    "detect_us": 1_000_000,
    "idle_us": 100_000,
    "pass_us": 1_000,
    "join_us": 100_000,
    "found_us": 600_000,
    "announce_us": 500_000,
    "tries": 10,
    "period_max_us": 2_000_000,
    "verdict_us": 10_000_000,
    "block_packets": 64,
    "renew_us": 2_700_000_000,
    "minimum": int(SizeVote.PESSIMISTIC),
}
OWN: Final = frozenset(("minimum",))
"""Options in which members of one group may differ."""
WIDE_TIMES: Final = 3
"""[RMP-17] So many times the tries, and the longest period, in a group of more than one network."""


@dataclass(frozen=True, slots=True)
class Parameters:
    detect_us: int
    """So long without progress of the token is a fault."""
    idle_us: int
    """A quiet token site passes the token after so long [RMP-4]."""
    pass_us: int
    """The same while something is not stable."""
    join_us: int
    """Between two requests to be admitted."""
    found_us: int
    """A process that hears of no ring for so long founds one."""
    announce_us: int
    tries: int
    """R of the paper: a site that does not answer so many times is lost."""
    period_max_us: int
    """The longest retransmission period."""
    verdict_us: int
    """A part below the minimum size keeps trying for so long."""
    block_packets: int
    """Packets in a block, at most."""
    renew_us: int
    """[RMP-16] The first site renews the ring's identifier so often."""
    minimum: int
    """This member's vote on the minimum size: a number of members, or a `SizeVote`."""

    @staticmethod
    def of(options: Mapping[str, int]) -> Parameters:
        chosen = Parameters(**{**DEFAULTS, **options})
        for name in DEFAULTS.keys() - OWN:
            if getattr(chosen, name) < 1:
                raise Misuse(f"{name}={getattr(chosen, name)}: give a number above 0")
        if chosen.block_packets > BLOCK_PACKETS_MAX:
            text = f"block_packets={chosen.block_packets}: give at most {BLOCK_PACKETS_MAX}"
            raise Misuse(text)
        VoteSize(chosen.minimum)  # Checks it.
        return chosen

    def tries_within(self, hops: int) -> int:
        """[RMP-17] R of the paper, by the scope of the group."""
        return self.tries if hops <= 1 else WIDE_TIMES * self.tries

    def period_within(self, hops: int) -> int:
        """[RMP-17] Between two tries; the longest period is by the scope too."""
        longest_us = self.period_max_us if hops <= 1 else WIDE_TIMES * self.period_max_us
        return min(longest_us, max(10_000, self.detect_us // self.tries))
