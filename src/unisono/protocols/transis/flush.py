"""[TRA-12, TRA-13] The second stage: what all of a set bring along, and how it becomes one.

Each tells what it holds of its former configuration. What any of those that come from the same one
holds, all of them request. Who holds all of it says so, and from then on the end of the former
configuration is settled there: when all have said so, each delivers what is left, the same as the
others that come along, and the new configuration begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from unisono.core import EVERYONE, Cause, Effect, Fail
from unisono.model import Member
from unisono.parts.identity import key_of
from unisono.protocols.transis.configuration import Configuration
from unisono.protocols.transis.histories import OUTDATED, outdated
from unisono.protocols.transis.ordering import Ordering
from unisono.protocols.transis.packets import INDEX_RENEWED, Agree
from unisono.protocols.transis.repair import Repair
from unisono.protocols.transis.send_queue import SendQueue
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.views import ViewInstallation
from unisono.protocols.transis.voting import PrimaryLayer

LEFT_APART: Final = "left outside of the primary component: what waited for it is lost"
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
        primary: PrimaryLayer,
        views: ViewInstallation,
        one_history: bool,
        new_ordering: Callable[[Configuration, Mapping[Member, int]], Ordering],
    ) -> None:
        self._local = local
        self._outgoing = outgoing
        self._queue = queue
        self._repair = repair
        self._primary = primary
        self._views = views
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

    def is_used_up(self) -> bool:
        """A member of the configuration has hardly a number left for its vertices."""
        return self.ordering is not None and max(self.ordering.graph.acks()) > INDEX_RENEWED

    def may_leave(self) -> bool:
        """This member is to leave, and all its messages are sent; or none are sent here."""
        return self._local.leaving and not (self._queue and self._primary.may_operate)

    # -- reports ----------------------------------------------------------------------------------

    def has_reports(self, life: int, keys: Iterable[int]) -> bool:
        """Whether these agreed to this set already."""
        return all(key in self._early and self._early[key].life == life for key in keys)

    def begin(self, life: int, proposed: Mapping[int, int]) -> None:
        local = self._local
        self.life, self._proposed = life, dict(proposed)
        self._is_gathered = self._is_proved = False
        is_new = self._views.is_new()
        if is_new:
            self._views.start_anew()
        # Deviates [TRA §4 flow]: messages flow through the first stage, which may last, and wait in
        # the second, of a round trip or two. The paper's flow through both.
        received = self.ordering.close() if self.ordering is not None else ()
        leaving = self.may_leave()
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
            history=self._views.history,
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
        members = self._local.configuration.members
        came = tuple(members[rank] for rank in sorted(companions))
        last = self.ordering.end(companions.keys())
        self._views.end(last, came, members, self._configuration_id())

    def _configuration_id(self) -> str:
        return Configuration(self.life, max(self._proposed.values()), (), {}).id

    def depart(self, event: object, out: list[Effect]) -> None:
        self.tell(out)
        if self._local.key in self._outdated:
            self._local.stop(Fail(OUTDATED, Cause.EXCLUDED))
            return
        self._end_former()
        if self._views.leave() or self._queue:
            self._local.stop(Fail(LEFT_APART, Cause.EXCLUDED))

    def install(self, out: list[Effect]) -> None:
        local = self._local
        self._end_former()
        stay = self._stay()
        together = tuple(sorted(report.sender for report in stay.values()))
        stamps = {key: self._proposed[key] for key in stay}
        number = max(self._proposed.values())
        configuration = Configuration(self.life, number, together, stamps)
        former = local.configuration.life
        self._remember(former)
        local.enter(configuration)
        sent = {report.sender: report.sent for report in stay.values()}
        self.ordering = self._new_ordering(configuration, sent)
        self._repair.new_configuration()
        self._queue.new_configuration()
        left = {report.sender for report in self._reports.values() if report.leaving}
        self._views.install(configuration, list(stay.values()), former, left, out)
        self.life = 0
        self._reports, self._early = {}, {}

    def _remember(self, life: int) -> None:
        """Packets of this configuration are late from now on."""
        if life:
            self.former[life] = None
            if len(self.former) > FORMER_MAX:
                del self.former[next(iter(self.former))]
