"""The short key by which packets refer to one incarnation of a member."""

from __future__ import annotations

from functools import lru_cache

from unisono.model import Member
from unisono.wire import tag_of


@lru_cache(maxsize=256)
def key_of(member: Member, bits: int = 64) -> int:
    """A hash of name, address and incarnation."""
    tag = tag_of(f"{member.name}|{member.address}|{member.incarnation}")
    return tag & (1 << bits) - 1
