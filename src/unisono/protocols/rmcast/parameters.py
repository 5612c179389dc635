"""The options, and the periods derived from one goal: detect a failure within `detect_us`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unisono.parts.options import checked

DEFAULTS: Final[Mapping[str, int]] = {
    "detect_us": 1_000_000,
    "found_us": 0,
    "members_count_max": 32,
}
"""`found_us` 0 is half of `detect_us`."""
BOUNDS: Final = {"detect_us": (20_000, 3_600_000_000), "members_count_max": (1, 64)}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The periods and bounds of one member."""

    detect_us: int
    """T_i of Algorithm 2: a member that is silent for this long is removed."""
    beat_us: int
    """H_i of Algorithm 2: every member gets a packet from us at least this often."""
    ask_us: int
    """Between two requests for the same chunks."""
    seek_us: int
    """Between two attempts to find the group."""
    found_us: int
    """A seeker that finds no member for this long founds the group."""
    announce_us: int
    """Between two announcements, by which components find each other."""
    leave_us: int
    """A leaver that gets no answer stops after this long."""
    members_count_max: int

    @staticmethod
    def of(options: Mapping[str, int]) -> Parameters:
        chosen = checked("rmcast", DEFAULTS, options, BOUNDS)
        detect_us = chosen["detect_us"]
        beat_us = detect_us // 8
        return Parameters(
            detect_us=detect_us,
            beat_us=beat_us,
            ask_us=beat_us // 4,
            seek_us=beat_us // 2,
            found_us=chosen["found_us"] or detect_us // 2,
            announce_us=beat_us * 2,
            leave_us=detect_us * 2,
            members_count_max=chosen["members_count_max"],
        )
