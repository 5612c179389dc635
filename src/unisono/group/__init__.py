"""Groups: `join` one as a member of this process, and hold it as a `Group`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from unisono import config as configs
from unisono.config import Config, JoinOptions
from unisono.errors import Misuse
from unisono.group.group import Group
from unisono.group.joining import Joining, Opening
from unisono.group.locks import Lock
from unisono.group.member import MemberFactory
from unisono.group.session import SESSIONS, SessionFactory
from unisono.group.stats import Stats
from unisono.net.handle import Handle
from unisono.net.send_buffer import Full
from unisono.net.stream import (
    Blocked,
    Rejoined,
    Shed,
    Stable,
    StreamBatch,
    Unblocked,
    Unstable,
)
from unisono.spec import ProtocolSpec

__all__ = [
    "Blocked",
    "Full",
    "Group",
    "Handle",
    "Joining",
    "Lock",
    "Opening",
    "Rejoined",
    "Shed",
    "Stable",
    "Stats",
    "StreamBatch",
    "Unblocked",
    "Unstable",
    "join",
]


def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    spec: ProtocolSpec | None = None,
    **options: Unpack[JoinOptions],
) -> Joining:
    """Join a group as a member: as `unisono.join` without `daemon=`."""
    read = configs.read(group, config, options)
    if read.daemon:
        raise Misuse("daemon= is for unisono.join: a member is in the group itself")
    return as_member(read, snapshot, restore, spec)


def as_member(
    config: Config,
    snapshot: Callable[[], bytes] | None,
    restore: Callable[[bytes], None] | None,
    spec: ProtocolSpec | None,
) -> Joining:
    if spec is None:
        from unisono import protocols

        spec = protocols.spec(config.protocol)
    spec = configs.spans_clusters(config, spec)
    with_state = configs.check_state(config, snapshot, restore)
    elsewhere = SESSIONS.get()
    sessions: SessionFactory
    if elsewhere is not None:
        sessions = elsewhere(config, spec, with_state, snapshot)
    else:
        sessions = MemberFactory(config, spec, with_state)
    return Joining(Group(config, sessions, snapshot, restore))
