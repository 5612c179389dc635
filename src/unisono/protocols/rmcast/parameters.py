"""One goal, the rest derived: notice a death within `detect_us`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unisono.errors import Misuse

DEFAULTS: Final[Mapping[str, int]] = {
    "detect_us": 1_000_000,
    "found_us": 0,
    "members_count_max": 32,
}
"""What may be set. `found_us` 0 stands for half of `detect_us`."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The periods and bounds of one member."""

    detect_us: int
    """T_i of Algorithm 2: a member not heard for so long is removed."""
    beat_us: int
    """H_i of Algorithm 2: nobody is left without a packet from us for longer."""
    ask_us: int
    """A request is repeated after so long."""
    seek_us: int
    """Between two attempts to find the group."""
    found_us: int
    """A seeker that finds nobody for so long founds the group."""
    announce_us: int
    """Between two announcements by which separated parts find each other."""
    leave_us: int
    """A leaver that is not answered goes after so long."""
    members_count_max: int
    """One more is refused."""

    @staticmethod
    def of(options: Mapping[str, int]) -> Parameters:
        for name, value in options.items():
            if name not in DEFAULTS:
                raise Misuse(f"rmcast has no option {name!r}; it has: {', '.join(DEFAULTS)}")
            if value < 0:
                raise Misuse(f"rmcast option {name} must not be negative, got {value}")
        chosen = {**DEFAULTS, **options}
        detect = chosen["detect_us"]
        if not 20_000 <= detect <= 3_600_000_000:
            raise Misuse(f"rmcast option detect_us must be 20000 to 3600000000, got {detect}")
        if not 1 <= chosen["members_count_max"] <= 64:
            raise Misuse("rmcast option members_count_max must be between 1 and 64")
        beat = detect // 8
        return Parameters(
            detect_us=detect,
            beat_us=beat,
            ask_us=beat // 4,
            seek_us=beat // 2,
            found_us=chosen["found_us"] or detect // 2,
            announce_us=beat * 2,
            leave_us=detect * 2,
            members_count_max=chosen["members_count_max"],
        )
