"""Group communication for Python: the same messages, in the same order, to every member."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.client import Connection, connect, join
    from unisono.config import Config, JoinOptions
    from unisono.core import Answer, Cause
    from unisono.errors import (
        BadPacket,
        BadTrace,
        Forgotten,
        Misuse,
        Refused,
        Stopped,
        TooLarge,
        Undelivered,
        UnisonoError,
    )
    from unisono.group import Full, Group, Handle, Joining, Rejoined, Shed, Stable, StreamBatch
    from unisono.model import (
        Address,
        Change,
        ChangeKind,
        ChangeScope,
        Member,
        Message,
        Resilient,
        Service,
        View,
    )

    UNRELIABLE, RELIABLE, FIFO = Service.UNRELIABLE, Service.RELIABLE, Service.FIFO
    CAUSAL, AGREED, SAFE = Service.CAUSAL, Service.AGREED, Service.SAFE
    MAJORITY, ALL = Resilient.MAJORITY, Resilient.ALL

__version__ = "0.1.0"

# Where each public name lives. A name is imported when it is first asked for, so that importing
# unisono costs nothing and pulls in nothing.
_HOMES = {
    "client": ("Connection", "connect", "join"),
    "config": ("Config", "JoinOptions"),
    "core": ("Answer", "Cause"),
    "errors": (
        *("BadPacket", "BadTrace", "Forgotten"),
        *("Misuse", "Refused", "Stopped", "TooLarge", "Undelivered", "UnisonoError"),
    ),
    "group": ("StreamBatch", "Full", "Group", "Handle", "Joining", "Rejoined", "Shed", "Stable"),
    "model": (
        *("Address", "Change", "Member", "Message"),
        *("Resilient", "Service", "View", "ChangeKind", "ChangeScope"),
    ),
    "model.Service": ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "SAFE"),
    "model.Resilient": ("MAJORITY", "ALL"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AGREED",
    "ALL",
    "CAUSAL",
    "FIFO",
    "MAJORITY",
    "RELIABLE",
    "SAFE",
    "UNRELIABLE",
    "Address",
    "Answer",
    "BadPacket",
    "BadTrace",
    "Cause",
    "Change",
    "ChangeKind",
    "ChangeScope",
    "Config",
    "Connection",
    "Forgotten",
    "Full",
    "Group",
    "Handle",
    "JoinOptions",
    "Joining",
    "Member",
    "Message",
    "Misuse",
    "Refused",
    "Rejoined",
    "Resilient",
    "Service",
    "Shed",
    "Stable",
    "Stopped",
    "StreamBatch",
    "TooLarge",
    "Undelivered",
    "UnisonoError",
    "View",
    "connect",
    "join",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'unisono' has no attribute {name!r}")
    module, _, owner = home.partition(".")
    found: Any = import_module(f"unisono.{module}")
    if owner:
        found = getattr(found, owner)
    value = globals()[name] = getattr(found, name)
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
