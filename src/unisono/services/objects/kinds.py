"""The kinds of shared objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unisono.services.objects.collections import CounterState, DictState
from unisono.services.objects.state import SharedState

KINDS: Final[Mapping[str, type[SharedState]]] = {
    kind.KIND: kind for kind in (CounterState, DictState)
}
