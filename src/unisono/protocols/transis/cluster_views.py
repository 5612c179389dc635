"""The views of members that a group of clusters installs: one round of reports for each.

In a round each cluster reports its members, and passes on no message of theirs until all reports
are delivered; then the view begins. So whatever precedes a cluster's report is delivered before the
view everywhere, whatever is said in the view follows all reports, and causal order does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from unisono.model import Change, ChangeKind, Member, View, changes_of
from unisono.parts.identity import key_of
from unisono.protocols.transis.cluster_messages import ClusterReport
from unisono.wire import tag_of


class GroupView(NamedTuple):
    """A view of members, alike in all clusters that install it."""

    id: str
    reports: Mapping[Member, ClusterReport]
    """By cluster."""
    along: frozenset[Member]
    """Clusters that come along from the last view of this one."""
    formers: frozenset[int] = frozenset()
    """Tags of views that it is the rest of: what was said in them is still delivered."""

    @property
    def tag(self) -> int:
        return tag_of(self.id)

    def rest(self, name: str, along: frozenset[Member]) -> GroupView:
        """What remains of it when the other clusters are lost."""
        reports = {
            each: report._replace(
                members=tuple(row._replace(settled=True) for row in report.members)
            )
            for each, report in self.reports.items()
            if each in along
        }
        return GroupView(name, reports, along, self.formers | {self.tag})

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(sorted(row.member for each in self.reports.values() for row in each.members))

    def source(self, cluster: Member) -> Member | None:
        """The cluster whose state the newcomers of this one get: their own; else the first of the
        largest component that has one."""
        settled = {
            each: sum(row.settled for row in report.members)
            for each, report in self.reports.items()
        }
        if settled[cluster]:
            return cluster
        sizes: dict[int, int] = {}
        for each, count in settled.items():
            former = self.reports[each].former
            sizes[former] = sizes.get(former, 0) + count
        known = [each for each, count in settled.items() if count]
        return min(known, key=lambda each: (-sizes[self.reports[each].former], each), default=None)

    def newcomers(self, cluster: Member) -> list[Member]:
        return [row.member for row in self.reports[cluster].members if not row.settled]

    def seen_by(self, me: Member, before: View | None) -> View:
        """As a member's application is shown it."""
        rows = {row.member: row for each in self.reports.values() for row in each.members}
        came = {
            row.member
            for cluster in (self.along if before is not None else ())
            if cluster in self.reports
            for row in self.reports[cluster].members
            if row.settled and before is not None and row.member in before.members
        }
        members, former = self.members, before.members if before is not None else ()
        joined = tuple(each for each in members if each not in former)
        gone = tuple(each for each in former if each not in rows)
        keys = {key for each in self.reports.values() for key in each.left}
        changes = changes_of(
            me,
            [each for each in joined if not rows[each].settled],
            [each for each in gone if key_of(each) in keys],
            [each for each in gone if key_of(each) not in keys],
            not any(row.settled for row in rows.values()),
        )
        merged = tuple(each for each in joined if rows[each].settled)
        if merged and before is not None:
            changes = (*changes, *Change(ChangeKind.MERGED, merged).seen_by(me))
        cut = tuple(
            (each, rows[each].sent)
            for each in members
            if each not in came and each != me and rows[each].sent
        )
        return View(
            members, self.id, joined, gone, cut=cut, stayed=tuple(sorted(came)), changes=changes
        )


class ViewRounds:
    """The rounds of one cluster."""

    def __init__(self) -> None:
        self._wide: View | None = None
        self._number = 0
        self._reports: dict[Member, ClusterReport] = {}
        self._along: frozenset[Member] = frozenset()
        self.is_pending = False
        self.view: GroupView | None = None

    @property
    def clusters(self) -> Collection[Member]:
        return self._wide.members if self._wide is not None else ()

    def is_along(self, cluster: Member) -> bool:
        """It has come along with this one ever since the view was installed."""
        return cluster in self._along

    def install(self, wide: View, me: Member) -> GroupView | None:
        """The clusters have a new view: all of them report. Those that are lost leave the view of
        members at once."""
        self._wide, self._number = wide, 0
        self._along = self._along & frozenset(wide.stayed) | {me}
        self.begin()
        if self.view is None or self._along.issuperset(self.view.reports):
            return None
        # Of two that meet in one view of clusters each has a rest of its own.
        self.view = self.view.rest(f"{wide.id}.{min(self._along).name}", self._along)
        return self.view

    def restart(self, before: Member, me: Member) -> None:
        """This cluster is another member of the wide group, and waits for its first view."""
        self._wide, self._reports, self.is_pending = None, {}, True
        if self.view is not None:
            reports = {
                me if key == before else key: each for key, each in self.view.reports.items()
            }
            self.view = self.view._replace(reports=reports)

    def begin(self) -> None:
        self._number += 1
        self._reports = {}
        self.is_pending = True

    def front(self) -> tuple[int, int, int]:
        """What a report begins with."""
        assert self._wide is not None
        return tag_of(self._wide.id), self._number, self.view.tag if self.view else 0

    def is_first_of_next(self, report: ClusterReport) -> bool:
        """Another cluster has begun a round."""
        return self._is_here(report) and not self.is_pending and report.number == self._number + 1

    def _is_here(self, report: ClusterReport) -> bool:
        return self._wide is not None and report.wide == tag_of(self._wide.id)

    def take(self, cluster: Member, report: ClusterReport) -> GroupView | None:
        """The view, with the last report of a round."""
        if not (self.is_pending and self._is_here(report) and report.number == self._number):
            return None
        assert self._wide is not None
        self._reports[cluster] = report
        if self._reports.keys() != set(self._wide.members):
            return None
        self.is_pending = False
        name = f"{self._wide.id}.{self._number}"
        self.view = GroupView(name, dict(self._reports), self._along)
        self._along = frozenset(self._wide.members)
        return self.view
