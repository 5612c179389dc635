"""The feed: a member that appends the group's messages to a durable log and serves it to readers.

Its parts are imported on first use: a reader needs no member, a member no client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.feed.client import FeedClient, FeedGone
    from unisono.feed.site import Feed

__all__ = ["Feed", "FeedClient", "FeedGone"]

_HOME_OF = {"Feed": "site", "FeedClient": "client", "FeedGone": "client"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'unisono.feed' has no attribute {name!r}")
    return getattr(import_module(f"unisono.feed.{_HOME_OF[name]}"), name)
