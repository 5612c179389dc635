"""[TRA-17] What the application is shown of a change: the end of the former configuration, and the
view of the new one.

With one history nothing is shown outside of the primary component until it is known whose history
goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unisono.core import Cause, Effect, Fail, Warn
from unisono.model import Change, ChangeKind, Member, View, changes_of
from unisono.protocols.transis.configuration import Configuration
from unisono.protocols.transis.delivery import ApplicationQueue
from unisono.protocols.transis.histories import OUTDATED, state_source
from unisono.protocols.transis.ordering import LastRuns
from unisono.protocols.transis.packets import Agree
from unisono.protocols.transis.state import LocalMember
from unisono.protocols.transis.state_transfer import StateTransfer
from unisono.protocols.transis.voting import PrimaryLayer

APART_MAX: Final = 1024
"""With one history, configurations outside of the primary component after which a member begins
again, since they wait to be shown."""


class ViewInstallation:
    """From configurations to the views of one member's application."""

    def __init__(
        self,
        local: LocalMember,
        delivery: ApplicationQueue,
        transfer: StateTransfer,
        primary: PrimaryLayer,
        one_history: bool,
    ) -> None:
        self._local = local
        self._delivery = delivery
        self._transfer = transfer
        self._primary = primary
        self._one_history = one_history
        self.history = 0
        """The number of the last primary component that this member was in."""
        self._apart = 0
        """With one history, configurations since then."""

    def is_new(self) -> bool:
        """This member has shown no view to its application, and has no state of the group."""
        return not self._delivery.shown or self._delivery.awaits_state

    def start_anew(self) -> None:
        """Nothing was shown yet, and a later state will come."""
        self._transfer.cancel()
        self._delivery.start_anew()

    def end(
        self, last: LastRuns, came: tuple[Member, ...], members: tuple[Member, ...], next_id: str
    ) -> None:
        """What is left of the former configuration; behind a transitional view, where some of its
        members do not come along."""
        if self.is_new():
            return
        self._delivery.append(last.regular)
        if len(came) < len(members):
            name = f"{next_id}-transitional"
            self._delivery.install(View(came, name, transitional=True, stayed=came))
            self._delivery.append(last.transitional)

    def leave(self) -> bool:
        """No view follows. Whether messages are lost with this member."""
        return self._delivery.drop_apart()

    def install(
        self,
        configuration: Configuration,
        reports: Sequence[Agree],
        former: int,
        left: set[Member],
        out: list[Effect],
    ) -> None:
        """The new configuration, by the reports of its members."""
        is_new = self.is_new()
        came = set[Member]() if is_new else _came(reports, former)
        view = self._view(configuration, reports, came, left, is_new)
        if view.primary:
            self.history = configuration.number
        if view.primary is not None:
            # The application's messages wait, those that it has already sent among them.
            out.append(Warn("" if view.primary else self._primary.waits))
        is_apart = self._one_history and not view.primary
        self._delivery.stand_apart(is_apart)
        self._apart = self._apart + 1 if is_apart else 0
        if self._apart > APART_MAX and not is_new:
            self._local.stop(Fail(OUTDATED, Cause.EXCLUDED))
        if not (is_apart and is_new):
            self._delivery.install(view)
        if not is_apart:
            self._transfer.enter(state_source(reports), is_new, out)

    def _view(
        self,
        configuration: Configuration,
        reports: Sequence[Agree],
        came: set[Member],
        left: set[Member],
        is_new: bool,
    ) -> View:
        me, before = self._local.me, self._delivery.shown
        members = configuration.members
        new = {report.sender for report in reports if report.is_new}
        sent = {report.sender: report.sent for report in reports}
        joined = tuple(member for member in members if member not in before)
        gone = tuple(member for member in before if member not in members)
        founded = new.issuperset(members)
        changes = changes_of(
            me,
            [member for member in joined if member in new],
            [member for member in gone if member in left],
            [member for member in gone if member not in left],
            founded,
        )
        merged = tuple(member for member in joined if member not in new)
        if merged and not is_new:
            changes = (*changes, *Change(ChangeKind.MERGED, merged).seen_by(me))
        changes = (*changes, *self._primary.enter(members))
        cut = tuple(
            (member, sent[member])
            for member in members
            if member not in came and member != me and sent[member]
        )
        stayed = () if is_new else tuple(sorted(came))
        return View(
            members, configuration.id, joined, gone, cut=cut, stayed=stayed, changes=changes
        )


def _came(reports: Sequence[Agree], former: int) -> set[Member]:
    """The transitional set: those that come along from my last view."""
    return {
        report.sender
        for report in reports
        if former and report.former == former and not report.is_new
    }
