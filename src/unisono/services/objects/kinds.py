"""The kinds of shared objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unisono.services.objects.collections import (
    CacheState,
    CounterState,
    DictState,
    ListState,
    NumbersState,
    SetState,
)
from unisono.services.objects.meetings import BarrierState, OnceState, PartyState
from unisono.services.objects.permits import (
    ElectionState,
    LockState,
    ReadWriteLockState,
    SemaphoreState,
)
from unisono.services.objects.queues import QueueState, TopicState
from unisono.services.objects.state import SharedState

_ALL: Final[tuple[type[SharedState], ...]] = (
    *(CacheState, CounterState, DictState, ListState, NumbersState, SetState),
    *(BarrierState, OnceState, PartyState),
    *(ElectionState, LockState, ReadWriteLockState, SemaphoreState),
    *(QueueState, TopicState),
)
KINDS: Final[Mapping[str, type[SharedState]]] = {kind.KIND: kind for kind in _ALL}
