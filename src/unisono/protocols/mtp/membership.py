"""[MTP 5.3] Membership changes, delivered in the order: what they mean for this member."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Cause, Effect, Install
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.batch import MembershipChange
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.leaving import Leaver
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packets import ROSTER, Expel, key_of
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.state import StateSource
from unisono.protocols.mtp.web import Web


@dataclass(eq=False)
class Membership:
    """Installs views; at a replica, keeps what a coordinator must know of members."""

    _key: int
    _codec: PacketCodec
    _web: Web
    _master: MasterWatch
    _ordering: Ordering
    _replicas: Replicas
    _admission: MasterAdmission
    _source: StateSource
    _leaving: Leaver
    _fail_stop: FailStop

    def apply_change(self, number: int, change: MembershipChange, out: list[Effect]) -> bool:
        """[MTP 5.3] The members change at this message. False if that is our own end."""
        gone = {each.key: each.left for each in change.gone}
        if self._key in gone or change.ends:
            self._end(number, change, gone.get(self._key, False), out)
            return False
        before = self._web.members.copy()
        view = self._web.apply(self._codec.life, number, change)
        for key in before.keys() - self._web.members.keys():
            self._source.forget(key)
        if self._web.members != before:
            out.append(Install(view))
        if self._replicas.rank:
            self._replicas.seats.note_removed(gone)
            self._admission.note(number, change)
            for member, _ in change.joined:
                self._source.keep(key_of(member), ROSTER, self._web.roster())
        if self._replicas.leads:
            self._admission.changed(number, change, out)
        return True

    def _end(self, number: int, change: MembershipChange, left: bool, out: list[Effect]) -> None:
        leads = self._replicas.leads
        if self._leaving.active and (left or (change.ends and leads)):
            self._leaving.finish(number, change.ends)
            if leads:
                self._web.apply(self._codec.life, number, change)
                self._admission.note(number, change)
                self._admission.changed(number, change, out)
        elif change.ends:
            self._fail_stop.request("the master ended the web")
        else:
            self._fail_stop.request("the master holds this member for failed", Cause.EXCLUDED)

    def be_expelled(self, packet: Expel, out: list[Effect]) -> None:
        sender = packet.header.sender
        if sender != self._master.key and sender not in self._replicas.seats.member_keys():
            self._codec.drop("stranger")  # Only masters expel.
        elif packet.key == self._key and (self._ordering.spooling or not packet.stateless):
            reason = "the master does not count this member in the web any more"
            self._fail_stop.request(reason, Cause.EXCLUDED)
