"""Group communication for Python: the same messages, in the same order, to every member."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono import sync as sync
    from unisono.client import Connection, connect, join
    from unisono.config import Config, JoinOptions
    from unisono.core import Answer, Cause
    from unisono.errors import (
        BadPacket,
        BadTrace,
        ClosedGroup,
        Denied,
        Diverged,
        Forgotten,
        LockLost,
        Misuse,
        NotHeld,
        NotResilient,
        Refused,
        Stopped,
        TooLarge,
        Undelivered,
        UnisonoError,
        WrongKey,
    )
    from unisono.group import (
        Blocked,
        Full,
        Group,
        Handle,
        Joining,
        Lock,
        Rejoined,
        Shed,
        Stable,
        Stats,
        StreamBatch,
        Unblocked,
        Unstable,
    )
    from unisono.model import (
        Address,
        Change,
        ChangeKind,
        ChangeScope,
        Member,
        Message,
        Resilient,
        Service,
        SizeVote,
        View,
    )
    from unisono.programs import chaos
    from unisono.requests import (
        AcquireLock,
        GoOn,
        GroupCommand,
        LimitScope,
        ReleaseLock,
        VoteSize,
    )
    from unisono.services.replicated_objects import ReplicatedObject, replicate_object, replicated
    from unisono.services.replicating import LogEntry, ReplicatedLog, replicate
    from unisono.services.sqlite.database import Database, SqlTransaction, sqlite
    from unisono.state_machine import StateMachine

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
        *("BadPacket", "BadTrace", "ClosedGroup", "Denied", "Diverged", "Forgotten"),
        *("LockLost", "NotHeld", "NotResilient"),
        *("Misuse", "Refused", "Stopped", "TooLarge", "Undelivered", "UnisonoError"),
        "WrongKey",
    ),
    "group": (
        "Blocked",
        "Full",
        "Group",
        "Handle",
        "Joining",
        "Lock",
        "Rejoined",
        "Shed",
        "Stable",
        "Stats",
        "StreamBatch",
        "Unblocked",
        "Unstable",
    ),
    "model": (
        *("Address", "Change", "Member", "Message"),
        *("Resilient", "Service", "SizeVote", "View", "ChangeKind", "ChangeScope"),
    ),
    "programs": ("chaos",),
    "requests": ("AcquireLock", "GoOn", "GroupCommand", "LimitScope", "ReleaseLock", "VoteSize"),
    "services.replicated_objects": ("ReplicatedObject", "replicate_object", "replicated"),
    "services.replicating": ("LogEntry", "ReplicatedLog", "replicate"),
    "services.sqlite.database": ("Database", "SqlTransaction", "sqlite"),
    "state_machine": ("StateMachine",),
    "model:Service": ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "SAFE"),
    "model:Resilient": ("MAJORITY", "ALL"),
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
    "AcquireLock",
    "Address",
    "Answer",
    "BadPacket",
    "BadTrace",
    "Blocked",
    "Cause",
    "Change",
    "ChangeKind",
    "ChangeScope",
    "ClosedGroup",
    "Config",
    "Connection",
    "Database",
    "Denied",
    "Diverged",
    "Forgotten",
    "Full",
    "GoOn",
    "Group",
    "GroupCommand",
    "Handle",
    "JoinOptions",
    "Joining",
    "LimitScope",
    "Lock",
    "LockLost",
    "LogEntry",
    "Member",
    "Message",
    "Misuse",
    "NotHeld",
    "NotResilient",
    "Refused",
    "Rejoined",
    "ReleaseLock",
    "ReplicatedLog",
    "ReplicatedObject",
    "Resilient",
    "Service",
    "Shed",
    "SizeVote",
    "SqlTransaction",
    "Stable",
    "StateMachine",
    "Stats",
    "Stopped",
    "StreamBatch",
    "TooLarge",
    "Unblocked",
    "Undelivered",
    "UnisonoError",
    "Unstable",
    "View",
    "VoteSize",
    "WrongKey",
    "chaos",
    "connect",
    "join",
    "replicate",
    "replicate_object",
    "replicated",
    "sqlite",
]


def __getattr__(name: str) -> Any:
    if name == "sync":
        return import_module("unisono.sync")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'unisono' has no attribute {name!r}")
    module, _, owner = home.partition(":")
    found: Any = import_module(f"unisono.{module}")
    if owner:
        found = getattr(found, owner)
    value = globals()[name] = getattr(found, name)
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
