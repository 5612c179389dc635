"""A configuration: the members that agreed to be together, until the next one is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unisono.model import Member
from unisono.parts.identity import key_of
from unisono.wire import tag_of


def life_of(proposed: Mapping[int, int]) -> int:
    """The identifier of a membership set: of its keys, each with the stamp of its attempt. A member
    never returns to an earlier stamp, so no two configurations have one identifier."""
    return tag_of(" ".join(f"{key:x}.{stamp}" for key, stamp in sorted(proposed.items()))) | 1


def short_life(life: int) -> str:
    """As views and labels show it."""
    return f"{life & 0xFFFFFFFF:08x}"


class Configuration(NamedTuple):
    """What all its members know alike."""

    life: int
    number: int
    """The highest stamp in the set: a member's configurations have rising numbers."""
    members: tuple[Member, ...]
    """By rank."""
    stamps: Mapping[int, int]
    """By key."""

    @property
    def id(self) -> str:
        """As views name it."""
        return f"{self.number}-{short_life(self.life)}"

    @property
    def keys(self) -> tuple[int, ...]:
        return tuple(map(key_of, self.members))

    def rank(self, key: int) -> int:
        return self.keys.index(key)


NOWHERE = Configuration(0, 0, (), {})
"""Before the first one."""
