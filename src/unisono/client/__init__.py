"""How an application comes into a group: as a member itself, or through its machine's daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

from unisono import config as configs
from unisono.client.connection import Connecting, Connection, connect
from unisono.client.group import LocalGroup, LocalJoining
from unisono.core import Offer
from unisono.errors import Misuse
from unisono.group import Joining
from unisono.group import join as join_as_member

__all__ = ["Connecting", "Connection", "LocalGroup", "LocalJoining", "connect", "join"]


@overload
def join(
    group: str | None = None,
    /,
    *,
    daemon: str | os.PathLike[str],
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    **options: Any,
) -> LocalJoining: ...


@overload
def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    offer: Offer | None = None,
    **options: Any,
) -> Joining: ...


def join(
    group: str | None = None,
    /,
    *,
    config: str | Path | None = None,
    snapshot: Callable[[], bytes] | None = None,
    restore: Callable[[bytes], None] | None = None,
    offer: Offer | None = None,
    **options: Any,
) -> Joining:
    """Join a group: `async with join("orders") as group` or `group = await join("orders")`.

    The group is a name or a URL; `config` a TOML file with a table `[group]`, or a URL; `options`
    are the fields of `Config` and the protocol's own. Keywords win. `snapshot` and `restore` hand
    the application's state to those who join. `offer` brings a protocol outside the catalogue.
    With `daemon="unix:/path"` the group is reached through the daemon that listens there.
    """
    read = configs.read(group, config, options)
    if not read.daemon:
        return join_as_member(
            group, config=config, snapshot=snapshot, restore=restore, offer=offer, **options
        )
    if offer is not None:
        raise Misuse("offer= is the daemon's business: with daemon= leave it out")
    if (snapshot is None) != (restore is None):
        raise Misuse("snapshot= and restore= go together: every member may have to do either")
    configs.check_shedding(read, snapshot is not None)
    return LocalJoining(LocalGroup(read, snapshot, restore))
