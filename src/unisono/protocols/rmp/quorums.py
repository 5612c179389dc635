"""Which parts of a group may decide for the group.

Beyond the paper [RMP §2.4], whose optimistic majority counts the current members alone: two parts
that disagree on the last joins and leaves could each find a majority of the view that it knows. A
view is *stable* once every member of it holds the change that made it. A quorum has a majority of
the last stable view and of **each** view after it.

Any two quorums meet, whatever their members know. Let part A begin at the stable view V(i) and part
B at V(m), i <= m. Everyone who is still a member at V(m) holds V(m), since it is stable, so A,
which has a majority of a view of such members, knows V(m) too. Both have a majority of V(m).
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple


class ViewMark(NamedTuple):
    """A view in the order: the timestamp that made it, and the keys of its members."""

    timestamp: int
    members: frozenset[int]


class ViewQuorums(NamedTuple):
    """The last stable view, and those after it."""

    # Deviates [RMP §2.4 majority]: a majority of each view since the last stable one. The paper
    # counts members, optimistically or with those that left.

    views: tuple[ViewMark, ...]

    @staticmethod
    def of(timestamp: int, members: Set[int]) -> ViewQuorums:
        return ViewQuorums((ViewMark(timestamp, frozenset(members)),))

    def changed(self, timestamp: int, members: Set[int]) -> ViewQuorums:
        """With a view that is not stable yet."""
        return ViewQuorums((*self.views, ViewMark(timestamp, frozenset(members))))

    def settled(self, timestamp: int) -> ViewQuorums:
        """Every member holds everything up to this timestamp: earlier views no longer count."""
        base = 0
        for index, view in enumerate(self.views):
            if view.timestamp <= timestamp:
                base = index
        return ViewQuorums(self.views[base:]) if base else self

    def before(self, timestamp: int) -> ViewQuorums:
        """Without the views that were made at this timestamp or later."""
        return ViewQuorums(tuple(view for view in self.views if view.timestamp < timestamp))

    def merged(self, other: ViewQuorums) -> ViewQuorums:
        """What two members of one epoch know together: the later base, and every view after it."""
        base = max(self.views[0].timestamp, other.views[0].timestamp)
        known = {view.timestamp: view for view in (*self.views, *other.views)}
        return ViewQuorums(tuple(known[t] for t in sorted(known) if t >= base))

    def agrees_with(self, other: ViewQuorums, held: int) -> bool:
        """Whether another member of the epoch may know those, where this one holds every slot up to
        `held`. Its last stable view is known here, since it is stable; so are its later ones."""
        known = {view.timestamp: view for view in self.views}
        if other.views[0].timestamp > held:
            return False
        since = self.views[0].timestamp
        return all(known.get(v.timestamp) == v for v in other.views if since <= v.timestamp <= held)

    @property
    def members(self) -> frozenset[int]:
        """Of the current view."""
        return self.views[-1].members

    def has_majority(self, present: Set[int]) -> bool:
        """Whether these are a quorum."""
        return all(2 * len(view.members & present) > len(view.members) for view in self.views)
