"""Options and presets, and the paper's model of heartbeat, window and retention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from unisono.errors import Misuse
from unisono.parts.options import checked

DEFAULTS: Final[Mapping[str, int]] = {
    "master": 0,
    "masters": 1,
    "tokens": 8,
    "heartbeat_us": 10_000,
    "window": 512,
    "dally": 0,
    "detect_us": 1_000_000,
    "members_count_max": 64,
    "unicast": 0,
}
"""The options. `master` differs per process: 0 is a plain member, 1 to `masters` the rank of a
master replica. All others are the same at every member."""

TOKENS_MAX: Final = 32
MASTERS_MAX: Final = 9
WINDOW_MIN: Final = 8
WINDOW_MAX: Final = 8192
DETECT_MAX_US: Final = 3_600_000_000
BOUNDS: Final = {
    "masters": (1, MASTERS_MAX),
    "tokens": (1, TOKENS_MAX),
    "heartbeat_us": (500, 60_000_000),
    "window": (WINDOW_MIN, WINDOW_MAX),
    "dally": (0, 200),
    "detect_us": (20_000, DETECT_MAX_US),
    "members_count_max": (1, 256),
    "unicast": (0, 1),
}


class Model(NamedTuple):
    """What section 4 derives from the speed of disks, wires and processors."""

    heartbeat_us: int
    window: int
    retention: int
    tokens: int
    buffers: int
    """Packets that a consumer must be able to hold."""
    held_us: int
    """How long each of them is held at least."""


def model(
    fault_us: int, wire_us: int, net_us: int, store_us: int = 0, dally: int = 0, tokens: int = 3
) -> Model:
    """[MTP 4] The parameters that follow from what the machines can do.

    `fault_us` is the worst common delay of a process: a disk access, or a scheduling pause; it may
    double, and twice that is the time constant. A packet costs its time on the wire and its
    processing for the network and for the store it comes from.
    """
    if min(fault_us, wire_us + net_us + store_us, tokens) <= 0 or dally < 0:
        raise Misuse("times and tokens must be above 0, and dally at least 0")
    heartbeat_us = 2 * (2 * fault_us)
    window = max(1, heartbeat_us // (wire_us + net_us + store_us))
    retention = dally + 3
    return Model(
        heartbeat_us,
        window,
        retention,
        tokens,
        tokens * window * retention,
        heartbeat_us * retention,
    )


def from_round_trip(round_trip_us: int, bytes_per_s: int, dally: int = 0) -> dict[str, int]:
    """Options for a measured round trip, and the rate that a member can receive."""
    if round_trip_us <= 0 or bytes_per_s <= 0:
        raise Misuse("round_trip_us and bytes_per_s must be above 0")
    fault_us = max(round_trip_us, 1_250)  # A scheduling pause.
    made = model(fault_us, max(1, 1_400 * 1_000_000 // bytes_per_s), 1, dally=dally)
    return {
        "heartbeat_us": made.heartbeat_us,
        "window": min(WINDOW_MAX, max(WINDOW_MIN, made.window)),
        "dally": dally,
        "detect_us": min(max(500_000, 100 * made.heartbeat_us), DETECT_MAX_US),
    }


PRESETS: Final[Mapping[str, Mapping[str, int]]] = {
    "loopback": from_round_trip(300, 400_000_000),
    "lan": from_round_trip(2_000, 100_000_000),
    "wan": from_round_trip(80_000, 10_000_000, dally=4),
}
"""For `join(..., options=PRESETS["wan"])`: round trips of 0.3, 2 and 80 ms."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The settings of one member."""

    master: int
    masters: int
    tokens: int
    """t_max."""
    heartbeat_us: int
    window: int
    dally: int
    """f: a NAK waits a random 0 to f heartbeats."""
    retention: int
    detect_us: int
    """A member that is silent for this long has failed."""
    beat_us: int
    """The longest silence of a member that has not failed."""
    lost_us: int
    """A member gives up when the master is silent for this long."""
    buffers: int
    """[MTP 4] The most packets that a consumer must hold, unless one message is larger."""
    members_count_max: int
    unicast: bool
    """Grants list the members' addresses to send to, instead of the multicast address."""

    @staticmethod
    def of(options: Mapping[str, int]) -> Parameters:
        chosen = checked("mtp", DEFAULTS, options, BOUNDS)
        if chosen["master"] > chosen["masters"]:
            raise Misuse(
                f"mtp option master must be 0 to {chosen['masters']}, got {chosen['master']}"
            )
        if chosen["detect_us"] < 4 * chosen["heartbeat_us"]:
            raise Misuse(
                f"mtp option detect_us must be at least 4 heartbeats, so"
                f" {4 * chosen['heartbeat_us']}, got {chosen['detect_us']}"
            )
        detect = chosen["detect_us"]
        return Parameters(
            master=chosen["master"],
            masters=chosen["masters"],
            tokens=chosen["tokens"],
            heartbeat_us=chosen["heartbeat_us"],
            window=chosen["window"],
            dally=chosen["dally"],
            retention=chosen["dally"] + 3,
            detect_us=detect,
            beat_us=detect // 8,
            lost_us=detect * (2 if chosen["masters"] == 1 else 4),
            buffers=chosen["tokens"] * chosen["window"] * (chosen["dally"] + 3),
            members_count_max=chosen["members_count_max"],
            unicast=bool(chosen["unicast"]),
        )


def alike(options: Mapping[str, int]) -> Mapping[str, int]:
    """The options that are the same at every member."""
    return {k: v for k, v in {**DEFAULTS, **options}.items() if k != "master"}
