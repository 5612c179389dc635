"""The keywords of `join`, typed: editors complete them, and a type checker refuses others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict

from unisono.model import ServiceLevel
from unisono.net.stream import Slow


class JoinOptions(TypedDict, total=False):
    """The keywords of `join`: the fields of `Config`, then the options of all protocols of the
    catalogue. A protocol from elsewhere takes its own in `options`."""

    group: str
    name: str
    protocol: str
    service: str | ServiceLevel
    multicast: str
    peers: str | Sequence[str]
    port: int
    interface: str
    bind: str
    advertise: str
    clusters: Mapping[str, str | Sequence[str]]
    cluster: str
    daemon: str | os.PathLike[str]
    slow: Slow
    queue_count_max: int
    queue_bytes_max: int
    message_bytes_max: int
    window_bytes_max: int
    packet_bytes_max: int
    buffer_bytes: int
    send_queue_bytes_max: int
    offload: bool
    join_s: float
    leave_s: float
    detect_ms: int
    rejoin: bool
    replayable: bool
    retain_bytes: int
    closed: bool
    format: str
    key: bytes | str | os.PathLike[str]
    identity: str | os.PathLike[str]
    allowed: str | os.PathLike[str]
    insecure: bool
    stable: str | os.PathLike[str]
    trace: str | os.PathLike[str]
    detail: bool
    run: str
    options: Mapping[str, int]

    # Options of protocols.
    detect_us: int
    members_count_max: int
    sites: int
    t_send_us: int
    t_rt_us: int
    tries: int
    t_reform_us: int
    t_ref_rt_us: int
    t_ts_us: int
    idle_us: int
    turn_packets: int
    forget_us: int
    master: int
    masters: int
    tokens: int
    heartbeat_us: int
    window: int
    dally: int
    unicast: int
    found_us: int
    pass_us: int
    join_us: int
    announce_us: int
    period_max_us: int
    verdict_us: int
    block_packets: int
    minimum: int
    renew_us: int
    answer_us: int
    token: int
    vertex_packets: int
    dynamic: int
    one_history: int
    wide_detect_us: int
    wide_answer_us: int
