"""Into a group, for tests that end its session or look at it."""

from __future__ import annotations

from unisono.group import Group
from unisono.group.member import MemberSession


def session_of(group: Group) -> MemberSession:
    """The group's current session, which is a member's."""
    session = group._incarnations.session
    assert isinstance(session, MemberSession)
    return session
