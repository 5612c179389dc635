"""[TRA-12] The first stage, as data: the set that this member suggests, and what others suggested.

A set has a stamp for each of its members: the number of that member's attempt. A member has one
attempt under way at a time, and begins another, with a higher stamp, whenever it takes back what it
agreed to. So equal sets are the same attempt of all their members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from unisono.layout import HOST_CHARS_MAX, encode, size_of
from unisono.model import Member
from unisono.parts.identity import key_of
from unisono.protocols.transis.configuration import life_of
from unisono.protocols.transis.packets import NAME_CHARS_MAX, ComponentAnnounce, Suggest

HEARD_MAX: Final = 256
"""Processes whose last suggestion is remembered."""
STAMPS_AHEAD_MAX: Final = 1 << 20
"""Stamps rise by one with each attempt. One that is further ahead than this is not believed: a
single wrong one would use up all that there are."""
ENTRY_BYTES: Final = 16
"""A key and its stamp."""
FAILED_BYTES: Final = 8
FAILED_MIN: Final = 8
"""Of those that failed, so many at least are named."""


def members_that_fit(packet_bytes: int) -> int:
    """How many a suggestion in one packet can name, whatever its sender's name and address."""
    rest = size_of(Suggest) + NAME_CHARS_MAX + HOST_CHARS_MAX + FAILED_MIN * FAILED_BYTES
    return (packet_bytes - rest) // ENTRY_BYTES


class Suggestion:
    """What this member suggests. Both sets only grow until a configuration is installed, and nobody
    is in both, so the first stage ends."""

    def __init__(self, me: Member, members_count_max: int) -> None:
        self._me = me
        self._key = key_of(me)
        self._count_max = members_count_max
        self.stamp = 0
        self._revision = 0
        self.proposed: dict[int, int] = {}
        """By key, the stamp of its attempt."""
        self.failed: set[int] = set()
        """Those that this member does not want, or that do not want it."""
        self.members: dict[int, Member] = {self._key: me}
        """By key, those that have introduced themselves."""
        self._named: dict[str, set[int]] = {me.name: {self._key}}
        """Their keys, by name."""
        self._heard: dict[int, Suggest] = {}
        self._highest = 0
        self.life = 0
        """The identifier of the set as it is."""

    # -- my own -----------------------------------------------------------------------------------

    def begin(self, others: Mapping[int, int]) -> None:
        """My next attempt, with these."""
        self.stamp = self._highest = max(self._highest, *others.values(), 0) + 1
        wanted = {key: stamp for key, stamp in others.items() if key not in self.failed}
        self.proposed = {**wanted, self._key: self.stamp}
        self._revise()

    def end(self) -> None:
        """A configuration was installed."""
        self.failed.clear()

    def _revise(self) -> None:
        self._revision += 1
        self.life = life_of(self.proposed)

    def packet(self, packet_bytes: int) -> Suggest:
        """With as many of those that failed as fit."""
        proposed = tuple(sorted(self.proposed.items()))
        made = Suggest(self._me, self.stamp, self._revision, proposed, ())
        room = packet_bytes - len(encode(made))
        return made._replace(failed=tuple(sorted(self.failed))[: room // FAILED_BYTES])

    def add(self, member: Member, stamp: int) -> bool:
        """A process of another component answered."""
        self._know(member, stamp)
        return self._propose(key_of(member), stamp) and self._is_revised()

    def fail(self, keys: Iterable[int]) -> bool:
        """Go on without these; whether that is new."""
        new = {key for key in keys if key != self._key} - self.failed
        self.failed |= new
        for key in new:
            self.proposed.pop(key, None)
        return bool(new) and self._is_revised()

    def _is_revised(self) -> bool:
        self._revise()
        return True

    def _propose(self, key: int, stamp: int) -> bool:
        known = self.proposed.get(key)
        if key == self._key or key in self.failed or stamp <= (known or 0):
            return False
        if known is None and len(self.proposed) >= self._count_max:
            return False
        self.proposed[key] = stamp
        return True

    # -- others' ----------------------------------------------------------------------------------

    def is_news(self, packet: Suggest) -> bool:
        """Whether it is later than all that its sender suggested."""
        known = self._heard.get(key_of(packet.sender))
        return known is None or (packet.stamp, packet.revision) > (known.stamp, known.revision)

    def is_reachable(self, packet: Suggest | ComponentAnnounce) -> bool:
        """Whether its stamps can be. A group that has changed this often is caught up with, packet
        by packet."""
        proposed = packet.proposed if isinstance(packet, Suggest) else ()
        if (
            max(packet.stamp, *(stamp for _, stamp in proposed), 0)
            <= self._highest + STAMPS_AHEAD_MAX
        ):
            return True
        self._highest += STAMPS_AHEAD_MAX
        return False

    def hear(self, packet: Suggest) -> None:
        """It is news, from one that hears this member."""
        self._know(packet.sender, max((stamp for _, stamp in packet.proposed), default=0))
        key = key_of(packet.sender)
        self._heard.pop(key, None)
        self._heard[key] = packet
        if len(self._heard) > HEARD_MAX:
            gone = next(iter(self._heard))
            del self._heard[gone]
            self._forget(gone)

    def _know(self, member: Member, stamp: int) -> None:
        self._highest = max(self._highest, stamp)
        key = key_of(member)
        if key != self._key:
            self.members[key] = member
            self._named.setdefault(member.name, set()).add(key)

    def _forget(self, key: int) -> None:
        member = self.members.pop(key, None)
        if member is not None:
            named = self._named[member.name]
            named.discard(key)
            if not named:
                del self._named[member.name]

    def former(self, member: Member) -> list[int]:
        """Of those that are suggested, earlier incarnations of this one's name."""
        return [
            key
            for key in self._named.get(member.name, ())
            if key in self.proposed and self.members[key].incarnation < member.incarnation
        ]

    def merge(self, packet: Suggest) -> bool:
        """Suggest what this one does, too; whether that is new. Who does not want me is not wanted:
        of two that do not hear each other one goes, and everybody takes the first that it hears of.
        """
        sender = key_of(packet.sender)
        if sender in self.failed:
            return False
        if self._key in packet.failed:
            return self.fail([sender])
        changed = self.fail(key for key in packet.failed if key != sender)
        for key, stamp in packet.proposed:
            changed |= self._propose(key, stamp)
        changed |= self._propose(sender, packet.stamp)
        if changed:
            self._revise()
        return changed

    def lists_me_since(self, packet: Suggest, stamp: int) -> bool:
        """Whether its sender has heard of my attempt since this one."""
        return dict(packet.proposed).get(self._key, -1) >= stamp

    def is_elsewhere(self, key: int, stamp: int) -> bool:
        """Whether a process is in no attempt with me: not in my set, or in a later one."""
        return key not in self.failed and stamp > self.proposed.get(key, 0)

    def unlike(self) -> list[int]:
        """Those of the set that are not known to suggest the same."""
        found = []
        for key, stamp in self.proposed.items():
            heard = self._heard.get(key)
            if key != self._key and (
                heard is None or heard.stamp != stamp or dict(heard.proposed) != self.proposed
            ):
                found.append(key)
        return found

    def is_taken_back(self, packet: Suggest) -> bool:
        """In the second stage: whether its sender has left the set."""
        stamp = self.proposed.get(key_of(packet.sender))
        if stamp is None or packet.stamp < stamp or not self.is_news(packet):
            return False
        return packet.stamp > stamp or dict(packet.proposed) != self.proposed
