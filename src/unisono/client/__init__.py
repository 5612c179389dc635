"""`join` a group, as a member or through the local daemon; `connect` to send only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from unisono import config as configs
from unisono.client.connection import Connecting, Connection, connect
from unisono.client.factory import DaemonFactory
from unisono.config import JoinOptions
from unisono.errors import Misuse
from unisono.group import Group, Joining, as_member
from unisono.spec import ProtocolSpec

__all__ = ["Connecting", "Connection", "connect", "join"]


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
    """Join a group: `async with join("orders") as group` or `group = await join("orders")`.

    The group is a name or a URL; `config` a TOML file with a table `[group]`, or a URL; `options`
    are the fields of `Config` and the protocol's own (`JoinOptions`). Keywords win. `snapshot` and
    `restore` hand the application's state to joiners. `spec` is a protocol outside the catalogue;
    its own options go into `options={...}`.
    With `daemon="unix:/path"` the group is reached through the daemon that listens there.
    """
    read = configs.read(group, config, options)
    if not read.daemon:
        return as_member(read, snapshot, restore, spec)
    if spec is not None:
        raise Misuse("spec= cannot be used with daemon=: the daemon chooses the protocol")
    with_state = configs.check_state(read, snapshot, restore)
    return Joining(Group(read, DaemonFactory(read, with_state), snapshot, restore))
