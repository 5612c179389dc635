"""The options of the ring, and presets of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unisono.errors import Misuse
from unisono.parts.options import checked

DEFAULTS: Final[Mapping[str, int]] = {
    "sites": 0,
    "detect_us": 800_000,
    "t_send_us": 2_000,
    "t_rt_us": 20_000,
    "tries": 0,
    "t_reform_us": 100_000,
    "t_ref_rt_us": 200_000,
    "t_ts_us": 30_000,
    "idle_us": 1_000_000,
    "turn_packets": 1_024,
    "forget_us": 60_000_000,
    "members_count_max": 64,
}
"""The options, the same at every member. `sites` is N, the number of processes that the whole
group has; 0 is *those that came*. `detect_us` is the goal for finding a dead member; `tries` sets
the same in the paper's terms, as a multiple of T_RT; 0 leaves it to the goal."""

TIMES: Final = ("detect_us", "t_send_us", "t_rt_us", "t_reform_us", "t_ref_rt_us", "t_ts_us")

PRESETS: Final[Mapping[str, Mapping[str, int]]] = {
    "lan": {name: DEFAULTS[name] for name in TIMES},
    "loopback": {
        "detect_us": 60_000,
        "t_send_us": 500,
        "t_rt_us": 3_000,
        "t_reform_us": 30_000,
        "t_ref_rt_us": 40_000,
        "t_ts_us": 6_000,
    },
    "wan": {
        "detect_us": 3_000_000,
        "t_send_us": 20_000,
        "t_rt_us": 300_000,
        "t_reform_us": 1_000_000,
        "t_ref_rt_us": 2_000_000,
        "t_ts_us": 500_000,
    },
    "paper": {
        "detect_us": 2_000_000,
        "t_send_us": 500_000,
        "t_rt_us": 1_000_000,
        "tries": 2,
        "t_reform_us": 2_000_000,
        "t_ref_rt_us": 4_000_000,
        "t_ts_us": 1_000_000,
        "idle_us": 500_000,
        "turn_packets": 1,
        "forget_us": 0,
    },
}
"""For `join(..., options=PRESETS["wan"])`. [RNG Timers] `paper` has C = 2, T_SEND = 0.5 s and
T_RT = 1 s, one packet a turn, and counts failed members for good."""

SITES_MAX: Final = 256
LEAST_TRIES: Final = 4
"""T_RT is at most this share of `detect_us`, so that one lost packet is no failure."""
ROUNDS_MAX: Final = 12
"""Requests to a member that does not answer, in a reformation."""
HOUR_US: Final = 3_600_000_000
BOUNDS: Final = {
    "sites": (0, SITES_MAX),
    **dict.fromkeys(
        ("t_send_us", "t_rt_us", "t_reform_us", "t_ref_rt_us", "t_ts_us", "idle_us"),
        (100, HOUR_US),
    ),
    "detect_us": (400, HOUR_US),
    "tries": (0, 1000),
    "turn_packets": (1, 4096),
    "members_count_max": (1, SITES_MAX),
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The options of one member."""

    sites: int
    detect_us: int
    """A member silent for this long has failed, unless it is known to be slower."""
    t_send_us: int
    """Γ + δ: the least time that an idle holder keeps the token on an idle ring."""
    t_rt_us: int
    """δ + Δ + T: the expected turn should have arrived by then."""
    tries: int
    """C: requests to a silent holder before it is suspected, where all are fast enough."""
    t_reform_us: int
    """A member without an invitation waits this long, or up to twice, and then invites."""
    t_ref_rt_us: int
    t_ts_us: int
    idle_us: int
    """The longest time that an idle holder keeps the token."""
    turn_packets: int
    """The most packets of a turn."""
    forget_us: int
    """Where `sites` is 0: a member that failed is no longer counted after this; 0 is never."""
    members_count_max: int

    @property
    def waiting_us(self) -> int:
        """How long a member that accepted a ring waits for RESUME."""
        return ROUNDS_MAX // 2 * (self.t_ref_rt_us // 2)

    @staticmethod
    def of(options: Mapping[str, int]) -> Parameters:
        chosen = checked("ring", DEFAULTS, options, BOUNDS)
        if chosen["sites"] > chosen["members_count_max"]:
            raise Misuse(
                f"ring option sites={chosen['sites']} is over"
                f" members_count_max={chosen['members_count_max']}"
            )
        if chosen["idle_us"] < chosen["t_send_us"]:
            raise Misuse(
                f"ring option idle_us must be at least t_send_us={chosen['t_send_us']},"
                f" got {chosen['idle_us']}"
            )
        if chosen["tries"]:
            chosen["detect_us"] = chosen["tries"] * chosen["t_rt_us"]
        else:
            chosen["t_rt_us"] = min(chosen["t_rt_us"], chosen["detect_us"] // LEAST_TRIES)
            chosen["tries"] = chosen["detect_us"] // chosen["t_rt_us"]
        return Parameters(**chosen)

    @property
    def look_us(self) -> int:
        """How often a member that waits for others runs at least."""
        return max(self.t_rt_us, self.t_ref_rt_us // 2)
