"""[TRA-12] The membership: who suggests what, who agrees, and what each configuration begins with.

Suggest: a member multicasts the set that it suggests, takes over what others add to it or remove
from it, and drops those that do not answer, until all of the set suggest the same. Agree: all of
the set tell what they hold of their former configurations, request what they lack, and tell when
they lack nothing. Then each ends its former configuration and installs the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unisono.core import EVERYONE, Cause, CoreConfig, Effect, Fail
from unisono.model import Member
from unisono.parts.identity import key_of
from unisono.protocols.transis.failure import SilenceWatch
from unisono.protocols.transis.flush import Flush
from unisono.protocols.transis.merging import ComponentSearch
from unisono.protocols.transis.packets import Agree, ComponentAnnounce, Refuse, Suggest
from unisono.protocols.transis.parameters import Parameters
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.protocols.transis.states import Timer
from unisono.protocols.transis.suggestion import Suggestion
from unisono.protocols.transis.views import ViewInstallation
from unisono.wire import ENVELOPE_BYTES

NAMES_MAX: Final = 1024
"""Names whose latest incarnation is remembered."""


class Membership:
    """One member's part in changes of configurations."""

    def __init__(
        self,
        config: CoreConfig,
        parameters: Parameters,
        local: LocalMember,
        outgoing: PacketSender,
        suggestion: Suggestion,
        failures: SilenceWatch,
        merging: ComponentSearch,
        flush: Flush,
        views: ViewInstallation,
    ) -> None:
        self._parameters = parameters
        self._local = local
        self._outgoing = outgoing
        self._suggestion = suggestion
        self._failures = failures
        self._merging = merging
        self._flush = flush
        self._views = views
        self._packet_bytes = config.packet_bytes_max - ENVELOPE_BYTES
        self._since_us = 0
        """When the suggestion last changed, by the time in which this process listened."""
        self._settles_us = 0
        """Until then others may join the suggestion."""
        self._founds_us = 0
        self._names: dict[str, Member] = {local.me.name: local.me}
        """By name, its latest incarnation."""

    # -- the first stage --------------------------------------------------------------------------

    def start(self, event: object, out: list[Effect]) -> None:
        """[TRA-16] Members start alone and merge."""
        found_us = self._local.clock.jittered(self._parameters.found_us)
        self._founds_us = self._local.now_us + found_us
        self._outgoing.arm(Timer.LOOK, self._parameters.look_us, out)
        self._begin({}, out)

    def _begin(self, more: Mapping[int, int], out: list[Effect]) -> None:
        self._suggestion.begin({**self._local.configuration.stamps, **more})
        self._tell(out)

    def _tell(self, out: list[Effect]) -> None:
        """The suggestion is new."""
        self._since_us = self._failures.listened_us
        self._failures.watch(self._suggestion.proposed, self._suggestion.members)
        self._suggest(out)

    def _suggest(self, out: list[Effect]) -> None:
        packet = self._suggestion.packet(self._packet_bytes)
        self._outgoing.send([packet], out, EVERYONE)
        self._outgoing.arm(Timer.MEMBERSHIP, self._repeat_us(), out)

    def _repeat_us(self) -> int:
        wait_us = self._settles_us - self._local.now_us
        return (
            min(self._parameters.repeat_us, wait_us) if wait_us > 0 else self._parameters.repeat_us
        )

    def _is_settling(self) -> bool:
        if self._local.now_us < self._settles_us:
            return True
        alone = len(self._suggestion.proposed) == 1
        return alone and self._views.is_new() and self._local.now_us < self._founds_us

    def calls_me(self, packet: Suggest) -> bool:
        """A member of my configuration has left it; or one of another component suggests to be
        together with me, as I am now."""
        if not self._suggestion.is_news(packet) or self._is_former(packet.sender):
            return False
        stamp = self._local.configuration.stamps.get(key_of(packet.sender))
        if stamp is not None:
            return packet.stamp > stamp
        return self._suggestion.lists_me_since(packet, self._suggestion.stamp)

    def join_in(self, packet: Suggest, out: list[Effect]) -> None:
        self._suggestion.begin(self._local.configuration.stamps)
        self._take(packet)
        self._tell(out)

    def is_relevant(self, packet: Suggest) -> bool:
        suggestion = self._suggestion
        key = key_of(packet.sender)
        if not suggestion.is_news(packet) or self._is_former(packet.sender):
            return False
        if key in suggestion.failed or key in suggestion.proposed:
            return True
        since = max(1, self._local.configuration.stamps.get(self._local.key, 0))
        return suggestion.lists_me_since(packet, since)

    def merge(self, packet: Suggest, out: list[Effect]) -> None:
        if self._take(packet):
            self._tell(out)

    def _take(self, packet: Suggest) -> bool:
        suggestion = self._suggestion
        known = set(suggestion.proposed)
        suggestion.hear(packet)
        changed = suggestion.merge(packet)
        if self._local.key in packet.failed or not known.issuperset(suggestion.proposed):
            self._await_more()
        return self._replace(packet.sender) or changed

    def _await_more(self) -> None:
        """Others joined, or do not want me: they may be about to say more."""
        self._settles_us = self._local.now_us + self._parameters.settle_us

    def greet(self, packet: Suggest | ComponentAnnounce, out: list[Effect]) -> None:
        """A process that does not know me is told that I am here; one of an earlier incarnation
        that a later one is."""
        sender, key = packet.sender, key_of(packet.sender)
        if self._is_former(sender):
            # One that is alike has to come back as a later one, too.
            known = max(self._names[sender.name].incarnation, sender.incarnation + 1)
            refuse = Refuse(key, f"a later incarnation of {sender.name} is known", known)
            self._outgoing.send([refuse], out, (sender.address,))
        elif key != self._local.key:
            if self._suggestion.is_elsewhere(key, packet.stamp):
                self._merging.greet(sender.address, sender, packet.stamp, out)

    def greet_source(self, out: list[Effect]) -> None:
        """A packet of another configuration came from there."""
        if self._merging.may_begin():
            self._merging.greet(self._local.source, None, 0, out)

    def answers_me(self, packet: ComponentAnnounce) -> bool:
        """A process of another component hears me, and I hear it."""
        if self._is_former(packet.sender) or not self._merging.hears_me(packet):
            return False
        return self._suggestion.is_elsewhere(key_of(packet.sender), packet.stamp)

    def may_merge(self, packet: ComponentAnnounce) -> bool:
        return self._merging.may_begin() and self.answers_me(packet)

    def suggest_merge(self, packet: ComponentAnnounce, out: list[Effect]) -> None:
        self._suggestion.begin(self._local.configuration.stamps)
        self.add(packet, out)

    def add(self, packet: ComponentAnnounce, out: list[Effect]) -> None:
        self._suggestion.add(packet.sender, packet.stamp)
        self._replace(packet.sender)
        self._await_more()
        self._founds_us = self._local.now_us + self._parameters.found_us
        self._tell(out)

    # -- names ------------------------------------------------------------------------------------

    def _is_former(self, member: Member) -> bool:
        """A later incarnation of its name is known; or another process with the same one, which is
        no newcomer any more."""
        known = self._names.get(member.name)
        if known is None or known == member:
            return False
        return known.incarnation >= member.incarnation

    def _replace(self, member: Member) -> bool:
        """A process has but one incarnation: earlier ones of this one's name are gone."""
        if member.name == self._local.me.name and member.incarnation > self._local.me.incarnation:
            reason = f"a later incarnation of {member.name} is in the group"
            self._local.stop(Fail(reason, Cause.SUPERSEDED, member.incarnation))
        self._names.pop(member.name, None)
        self._names[member.name] = member
        if len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]
        return self._suggestion.fail(self._suggestion.former(member))

    def is_refused(self, packet: Refuse) -> bool:
        later = packet.known > self._local.me.incarnation
        return packet.key == self._local.key and later

    def give_up(self, packet: Refuse, out: list[Effect]) -> None:
        self._local.stop(Fail(packet.reason, Cause.SUPERSEDED, packet.known))

    # -- those that do not answer -----------------------------------------------------------------

    def look(self, event: object, out: list[Effect]) -> None:
        self._failures.probe(out)
        self._outgoing.arm(Timer.LOOK, self._parameters.look_us, out)

    def must_change(self, event: object) -> bool:
        """Somebody is silent, or vertices run out of numbers."""
        self._failures.look()
        return bool(self._failures.silent()) or self._flush.is_used_up()

    def drop_silent(self, event: object, out: list[Effect]) -> None:
        """[TRA-15] The others go on without those that are silent, if any are."""
        self._suggestion.fail(self._failures.silent())
        self._outgoing.arm(Timer.LOOK, self._parameters.look_us, out)
        self._begin({}, out)

    def urge(self, event: object, out: list[Effect]) -> None:
        """Who does not suggest the same, long after this suggestion was made, is dropped."""
        self._failures.look()
        late = [key for key in self._suggestion.unlike() if self._is_late(key)]
        if self._suggestion.fail({*self._failures.silent(), *late} & {*self._suggestion.proposed}):
            self._tell(out)
        else:
            self._suggest(out)

    def _is_late(self, key: int) -> bool:
        return self._failures.listened_us - self._since_us > self._failures.limit_us(key)

    # -- the second stage -------------------------------------------------------------------------

    def is_agreed(self, event: object) -> bool:
        """All of the set suggest it."""
        if self._is_settling():
            return False
        unlike = self._suggestion.unlike()
        return not unlike or self._flush.has_reports(self._suggestion.life, unlike)

    def agree(self, event: object, out: list[Effect]) -> None:
        self._since_us = self._failures.listened_us
        self._flush.begin(self._suggestion.life, self._suggestion.proposed)
        self.repeat(event, out)

    def repeat(self, event: object, out: list[Effect]) -> None:
        self._flush.tell(out)
        self._outgoing.arm(Timer.MEMBERSHIP, self._parameters.repeat_us, out)

    def note(self, packet: Agree, out: list[Effect]) -> None:
        if not self._is_former(packet.sender) and self._flush.note(packet):
            self._since_us = self._failures.listened_us

    def gather(self, event: object, out: list[Effect]) -> None:
        self._flush.gather(out)
        self._since_us = self._failures.listened_us

    def recover(self, event: object, out: list[Effect]) -> None:
        self._flush.recover()
        self.repeat(event, out)

    def is_taken_back(self, packet: Suggest) -> bool:
        """Its sender has left the set; or is a later incarnation of one of it, which is gone."""
        suggestion = self._suggestion
        return suggestion.is_taken_back(packet) or bool(suggestion.former(packet.sender))

    def suggest_again(self, packet: Suggest, out: list[Effect]) -> None:
        suggestion = self._suggestion
        is_member = key_of(packet.sender) in suggestion.proposed
        self._flush.abandon()
        suggestion.begin(suggestion.proposed)
        if is_member:
            self._take(packet)
        else:
            self._replace(packet.sender)
        self._tell(out)

    def is_overdue(self, event: object) -> bool:
        self._failures.look()
        return bool(self._late())

    def _late(self) -> list[int]:
        silent = self._failures.silent()
        return [*silent, *(key for key in self._flush.awaited() if self._is_late(key))]

    def drop_late(self, event: object, out: list[Effect]) -> None:
        """The set does not come about: suggest another."""
        late = self._late()
        self._flush.abandon()
        self._suggestion.fail(late)
        self._suggestion.begin(self._suggestion.proposed)
        self._outgoing.arm_within(Timer.LOOK, self._parameters.look_us, out)
        self._tell(out)

    # -- the new configuration --------------------------------------------------------------------

    def install(self, event: object, out: list[Effect]) -> None:
        suggestion = self._suggestion
        self._flush.install(out)
        configuration = self._local.configuration
        members = dict(zip(self._local.keys, configuration.members, strict=True))
        self._failures.watch(self._local.keys, members)
        self._merging.ended(bool(suggestion.failed))
        suggestion.end()
        self._settles_us = 0
        self._outgoing.disarm(Timer.MEMBERSHIP, out)

    # -- leaving ----------------------------------------------------------------------------------

    def is_outside(self, event: object) -> bool:
        """No configuration has this member."""
        return not self._local.keys

    def leave(self, event: object, out: list[Effect]) -> None:
        self._local.leave()

    def may_leave(self, event: object) -> bool:
        return self._flush.may_leave()

    def suggest_leave(self, event: object, out: list[Effect]) -> None:
        self._begin({}, out)

    def remind(self, packet: Agree, out: list[Effect]) -> None:
        """Who does not know yet that all are recovered."""
        self._flush.remind(packet, out)
