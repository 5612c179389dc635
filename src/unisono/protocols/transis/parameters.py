"""The options, and the periods derived from one goal: detect a failure within `detect_us`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unisono.errors import Misuse
from unisono.parts.options import checked

DEFAULTS: Final[Mapping[str, int]] = {
    "detect_us": 1_000_000,
    "found_us": 0,
    "answer_us": 1_000,
    "token": 0,
    "vertex_packets": 88,
    "members_count_max": 32,
    "sites": 0,
    "dynamic": 0,
    "one_history": 0,
}
"""`found_us` 0 is half of `detect_us`; `token` 1 chooses the token order [TRA-10];
`sites`, where it is not 0, is how many processes there are: only a component with more than half of
them operates; with `dynamic` 1 that is so at first, and then one with a majority of the last that
did [TRA-18]. With `one_history` 1, too, who was outside of it comes back as a newcomer, with its
state, and a process sees no view before its first primary component."""
VERTEX_PACKETS_MAX: Final = 128
MEMBERS_MAX: Final = 64
BOUNDS: Final = {
    "detect_us": (20_000, 3_600_000_000),
    "answer_us": (0, 1_000_000),
    "token": (0, 1),
    "vertex_packets": (1, VERTEX_PACKETS_MAX),
    "members_count_max": (1, MEMBERS_MAX),
    "sites": (0, MEMBERS_MAX),
    "dynamic": (0, 1),
    "one_history": (0, 1),
}
MERGE_DOUBLINGS: Final = 4
"""The pause before the next merge doubles this often at most."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The periods and bounds of one member."""

    detect_us: int
    """A member that is silent for this long is removed; one that does not answer a suggestion
    likewise."""
    look_us: int
    """Between two looks for silent members."""
    alive_us: int
    """The longest that an idle member is silent."""
    urge_us: int
    """The same while something of its own is not acknowledged by all."""
    answer_us: int
    """The same while others wait for it."""
    repeat_us: int
    """Between two suggestions."""
    nak_us: int
    """Between two requests for the same vertices, at first."""
    answers_us: int
    """The longest that answers are given to come where they were slow."""
    found_us: int
    """A process that hears of nobody founds the group after this long."""
    settle_us: int
    """So long a suggestion that others joined waits for more of them."""
    merge_us: int
    """The pause between attempts to merge, after one that failed; it doubles."""
    vertex_packets: int
    members_count_max: int
    token: bool
    sites: int
    dynamic: bool
    one_history: bool

    @staticmethod
    def of(options: Mapping[str, int]) -> Parameters:
        chosen = checked("transis", DEFAULTS, options, BOUNDS)
        if chosen["sites"] > chosen["members_count_max"]:
            raise Misuse(
                f"transis option sites={chosen['sites']} is over"
                f" members_count_max={chosen['members_count_max']}"
            )
        for name in ("dynamic", "one_history"):
            if chosen[name] and not chosen["sites"]:
                raise Misuse(f"transis option {name}=1 needs sites=, the number of all processes")
        detect_us = chosen["detect_us"]
        return Parameters(
            detect_us=detect_us,
            look_us=detect_us // 16,
            alive_us=detect_us // 8,
            urge_us=max(detect_us // 64, chosen["answer_us"]),
            answer_us=chosen["answer_us"],
            repeat_us=detect_us // 32,
            nak_us=max(1_000, detect_us // 256),
            answers_us=detect_us // 8,
            found_us=chosen["found_us"] or detect_us // 2,
            settle_us=detect_us // 64,
            merge_us=detect_us // 4,
            vertex_packets=chosen["vertex_packets"],
            members_count_max=chosen["members_count_max"],
            token=bool(chosen["token"]),
            sites=chosen["sites"],
            dynamic=bool(chosen["dynamic"]),
            one_history=bool(chosen["one_history"]),
        )
