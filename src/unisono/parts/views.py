"""The next view at a member, from its members and those of the one before."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from unisono.model import Member, View, changes_of


def next_view(
    me: Member,
    before: Collection[Member],
    members: Iterable[Member],
    id: str,
    left: Collection[Member] = (),
    cut: Iterable[tuple[Member, int]] = (),
    founded: bool = False,
    seq: int | None = None,
    detail: str = "",
) -> View:
    """Members that are gone have failed, unless they are among those that `left`."""
    ordered = tuple(sorted(members))
    joined = tuple(member for member in ordered if member not in before)
    gone = tuple(member for member in before if member not in ordered)
    changes = changes_of(
        me,
        joined,
        [member for member in gone if member in left],
        [member for member in gone if member not in left],
        founded,
    )
    return View(ordered, id, joined, gone, seq, tuple(cut), detail, changes=changes)
