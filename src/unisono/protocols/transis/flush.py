"""[TRA-12, TRA-13] The second stage: what all of a set bring along, and how it becomes one.

Each tells what it holds of its former configuration. What any of those that come from the same one
holds, all of them request. Who holds all of it says so, and from then on the end of the former
configuration is settled there: when all have said so, each delivers what is left, the same as the
others that come along, and the new configuration begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from unisono.core import EVERYONE, Cause, Effect, Fail, Warn
from unisono.model import Change, ChangeKind, Member, View, changes_of
from unisono.parts.identity import key_of
from unisono.protocols.transis.configuration import Configuration
from unisono.protocols.transis.delivery import ApplicationQueue
from unisono.protocols.transis.histories import OUTDATED, outdated, state_source
from unisono.protocols.transis.ordering import LastRuns, Ordering
from unisono.protocols.transis.packets import INDEX_RENEWED, Agree
from unisono.protocols.transis.repair import Repair
from unisono.protocols.transis.send_queue import SendQueue
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.state_transfer import StateTransfer
from unisono.protocols.transis.voting import PrimaryLayer

APART_MAX: Final = 1024
"""With one history, configurations outside of the primary component after which a member begins
again, since they wait to be shown."""
FORMER_MAX: Final = 64
"""Configurations of mine whose packets are known to be late."""


class Flush:
    """One member's part in the second stage."""

    def __init__(
        self,
        local: LocalMember,
        outgoing: PacketSender,
        queue: SendQueue,
        repair: Repair,
        delivery: ApplicationQueue,
        transfer: StateTransfer,
        primary: PrimaryLayer,
        one_history: bool,
        new_ordering: Callable[[Configuration, Mapping[Member, int]], Ordering],
    ) -> None:
        self._local = local
        self._outgoing = outgoing
        self._queue = queue
        self._repair = repair
        self._delivery = delivery
        self._transfer = transfer
        self._primary = primary
        self._one_history = one_history
        self._new_ordering = new_ordering
        self.ordering: Ordering | None = None
        """The stream of the configuration; None before the first."""
        self.life = 0
        """Of the set that is agreed on; 0: none is."""
        self._proposed: dict[int, int] = {}
        self._reports: dict[int, Agree] = {}
        self._outdated: set[int] = set()
        """By key, those of the set that have to begin again."""
        self._early: dict[int, Agree] = {}
        """By key, what others told before this member agreed."""
        self._last: Agree | None = None
        """What this member told last of the configuration that it is in."""
        self._is_gathered = False
        self._is_proved = False
        """Somebody has installed the set, so all of it are recovered."""
        self.former: dict[int, None] = {}
        self._history = 0
        """The number of the last primary component that this member was in."""
        self._apart = 0
        """With one history, configurations since then."""

    def is_new(self) -> bool:
        """This member has shown no view to its application, and has no state of the group."""
        return not self._delivery.shown or self._delivery.awaits_state

    def is_used_up(self) -> bool:
        """A member of the configuration has hardly a number left for its vertices."""
        return self.ordering is not None and max(self.ordering.graph.acks()) > INDEX_RENEWED

    # -- reports ----------------------------------------------------------------------------------

    def has_reports(self, life: int, keys: Iterable[int]) -> bool:
        """Whether these agreed to this set already."""
        return all(key in self._early and self._early[key].life == life for key in keys)

    def begin(self, life: int, proposed: Mapping[int, int]) -> None:
        local = self._local
        self.life, self._proposed = life, dict(proposed)
        self._is_gathered = self._is_proved = False
        is_new = self.is_new()
        if is_new:
            self._transfer.cancel()
            self._delivery.start_anew()
        # Deviates [TRA §4 flow]: messages flow through the first stage, which may last, and wait in
        # the second, of a round trip or two. The paper's flow through both.
        received = self.ordering.close() if self.ordering is not None else ()
        leaving = local.leaving and not self._queue
        mine = Agree(
            life,
            local.me,
            local.configuration.life,
            received,
            self._queue.sent,
            False,
            is_new,
            leaving,
            memory=self._primary.report(),
            history=self._history,
        )
        early = self._early.items()
        self._reports = {local.key: mine} | {
            key: report for key, report in early if report.life == life and key in proposed
        }
        self._early = {}

    def abandon(self) -> None:
        self.life = 0
        self._reports = {}

    def tell(self, out: list[Effect]) -> None:
        self._last = self._reports[self._local.key]
        self._outgoing.send([self._last], out, EVERYONE, self.life)

    def remind(self, packet: Agree, out: list[Effect]) -> None:
        """A member of the configuration does not know yet that all are recovered."""
        last, configuration = self._last, self._local.configuration
        if last is not None and last.life == packet.life == configuration.life:
            if packet.sender in configuration.members and not packet.installed:
                to = (packet.sender.address,)
                self._outgoing.send([last._replace(installed=True)], out, to, last.life)

    def note(self, packet: Agree) -> bool:
        """Another's report; whether it says something new."""
        if not self._is_sound(packet):
            return False
        key = key_of(packet.sender)
        if packet.installed:
            self.prove(packet.life)
        if not self.life:
            self._early[key] = packet
            return True
        known = self._reports.get(key)
        if packet.life != self.life or key not in self._proposed:
            return False
        if known is not None and (known.recovered or not packet.recovered):
            return False
        self._reports[key] = packet
        return True

    def _is_sound(self, packet: Agree) -> bool:
        members = self._local.configuration.members
        if packet.former and packet.former == self._local.configuration.life:
            return packet.sender in members and len(packet.received) == len(members)
        return True

    def is_of_this_set(self, packet: Agree) -> bool:
        return packet.life == self.life

    def awaited(self) -> list[int]:
        """Those without which this stage does not end."""
        silent = [key for key in self._proposed if key not in self._reports]
        if silent:
            return silent
        if not self._is_recovered():
            return [
                self._local.keys[rank]
                for rank in self._repair.holders()
                if rank != self._local.rank
            ]
        return [key for key, report in self._reports.items() if not report.recovered]

    # -- one end for all that come along ----------------------------------------------------------

    def knows_all(self, event: object) -> bool:
        return not self._is_gathered and len(self._reports) == len(self._proposed)

    def _companions(self) -> dict[int, Agree]:
        """By rank in the former configuration, those that come along, and this member."""
        life, keys = self._local.configuration.life, self._local.keys
        return {
            keys.index(key): report
            for key, report in self._reports.items()
            if life and report.former == life
        }

    def gather(self, out: list[Effect]) -> None:
        """[TRA-13] A message of the lost counts if any that comes along has it."""
        self._is_gathered = True
        self._outdated = outdated(self._reports) if self._one_history else set()
        self._primary.vote({each.sender: each.memory for each in self._stay().values()}, out)
        if self.ordering is None:
            return
        holders = {rank: report.received for rank, report in self._companions().items()}
        upto = list(map(max, zip(*holders.values(), strict=True)))
        self.ordering.limit(upto)
        self._repair.know_holders(holders)

    def _stay(self) -> dict[int, Agree]:
        """By key, those that will be together."""
        return {
            key: report
            for key, report in self._reports.items()
            if not report.leaving and key not in self._outdated
        }

    def _is_recovered(self) -> bool:
        if not self._is_gathered:
            return False
        return self.ordering is None or self.ordering.graph.is_complete()

    def lacks_nothing(self, event: object) -> bool:
        return self._is_recovered() and not self._reports[self._local.key].recovered

    def recover(self) -> None:
        key = self._local.key
        self._reports[key] = self._reports[key]._replace(recovered=True)

    def prove(self, life: int) -> bool:
        """A packet of this configuration came: whoever sent it has seen that all are recovered."""
        if life != self.life or not self.life:
            return False
        self._is_proved = True
        return self._reports[self._local.key].recovered

    def are_recovered(self, event: object) -> bool:
        if not self._is_gathered or not self._reports[self._local.key].recovered:
            return False
        return self._is_proved or all(report.recovered for report in self._reports.values())

    def is_leaver(self, event: object) -> bool:
        return self.are_recovered(event) and self._local.key not in self._stay()

    # -- the new configuration --------------------------------------------------------------------

    def _end_former(self) -> None:
        """[TRA-17] All that come along deliver the same."""
        if self.ordering is None:
            return
        companions = self._companions()
        last: LastRuns = self.ordering.end(companions.keys())
        if self.is_new():
            return
        self._delivery.append(last.regular)
        members = self._local.configuration.members
        if len(companions) < len(members):
            came = tuple(members[rank] for rank in sorted(companions))
            name = f"{self._configuration_id()}-transitional"
            self._delivery.install(View(came, name, transitional=True, stayed=came))
            self._delivery.append(last.transitional)

    def _configuration_id(self) -> str:
        return Configuration(self.life, max(self._proposed.values()), (), {}).id

    def depart(self, event: object, out: list[Effect]) -> None:
        self.tell(out)
        if self._local.key in self._outdated:
            self._local.stop(Fail(OUTDATED, Cause.EXCLUDED))
        else:
            self._end_former()

    def install(self, out: list[Effect]) -> None:
        local, reports = self._local, self._reports
        is_new = self.is_new()
        self._end_former()
        stay = self._stay()
        together = tuple(sorted(report.sender for report in stay.values()))
        stamps = {key: self._proposed[key] for key in stay}
        number = max(self._proposed.values())
        former, configuration = (
            local.configuration,
            Configuration(self.life, number, together, stamps),
        )
        came = set[Member]() if is_new else self._came(stay, former)
        if former.life:
            self.former[former.life] = None
            if len(self.former) > FORMER_MAX:
                del self.former[next(iter(self.former))]
        sent = {report.sender: report.sent for report in stay.values()}
        local.enter(configuration)
        self.ordering = self._new_ordering(configuration, sent)
        self._repair.new_configuration()
        self._queue.new_configuration()
        gone = {report.sender for report in reports.values() if report.leaving}
        new = {report.sender for report in stay.values() if report.is_new}
        view = self._view(configuration, came, sent, new, gone, is_new)
        if view.primary:
            self._history = number
        if view.primary is not None:
            # The application's messages wait, those that it has already sent among them.
            out.append(Warn("" if view.primary else self._primary.waits))
        self._show(view, stay, is_new, out)
        self.life = 0
        self._reports, self._early = {}, {}

    def _show(self, view: View, stay: Mapping[int, Agree], is_new: bool, out: list[Effect]) -> None:
        """With one history nothing is shown outside of the primary component, until it is known
        whose history goes on."""
        is_apart = self._one_history and not view.primary
        self._delivery.stand_apart(is_apart)
        self._apart = self._apart + 1 if is_apart else 0
        if self._apart > APART_MAX and not is_new:
            self._local.stop(Fail(OUTDATED, Cause.EXCLUDED))
        if not (is_apart and is_new):
            self._delivery.install(view)
        if not is_apart:
            self._transfer.enter(state_source(stay.values()), is_new, out)

    def _came(self, stay: Mapping[int, Agree], former: Configuration) -> set[Member]:
        """The transitional set: those that come along from my last view."""
        return {
            report.sender
            for report in stay.values()
            if former.life and report.former == former.life and not report.is_new
        }

    def _view(
        self,
        configuration: Configuration,
        came: set[Member],
        sent: Mapping[Member, int],
        new: set[Member],
        left: set[Member],
        is_new: bool,
    ) -> View:
        me, before = self._local.me, self._delivery.shown
        members = configuration.members
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
