"""What one site knows of its ring, shared by the parts that work on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import auto
from typing import Any, Final

from unisono.core import EVERYONE, Arm, Disarm, Effect, Fail, Send, Target
from unisono.fsa import Named
from unisono.layout import encode
from unisono.model import Address, Burst, Member
from unisono.parts.codec import PacketCodec
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.group_state import GroupState
from unisono.protocols.rmp.packets import PROTOCOL
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.wire import seal_batch

TRIDS_MAX: Final = 4
"""Identifiers by which a ring's packets are known: earlier ones are forgotten."""


class Timer(Named):
    """What it means that each expired."""

    JOIN = auto()
    """Nobody has answered: ask again."""
    FOUND = auto()
    """Nobody is there: found the ring."""
    ANNOUNCE = auto()
    TOKEN = auto()
    """The token has rested long enough."""
    PASS = auto()
    """The token was not accepted."""
    RESEND = auto()
    """Blocks of ours were not named by an ACK."""
    REPAIR = auto()
    """Slots are still empty."""
    WATCH = auto()
    """Look whether the token moves."""
    REFORM = auto()
    """The reformation makes no progress."""


# As constants: looking one up in its class takes ten times as long, and each step uses these.
REPAIR: Final = Timer.REPAIR
WATCH: Final = Timer.WATCH


class TokenRing:
    """The ring that this site is on."""

    def __init__(self, me: Member, key: int) -> None:
        self.me = me
        self.key = key
        self.now_us = 0
        self.trid = 0
        """What our packets carry. 0: on no ring."""
        self.name = 0
        """The identifier with which the epoch began: views are named by it."""
        self.trids: tuple[int, ...] = ()
        """What packets of this ring may carry: `trid`, and those before it or to come."""
        self.renewals: tuple[tuple[int, int], ...] = ()
        """Identifiers to come, each with the slot that announced it."""
        self.epoch = 0
        self.group = GroupState({})
        self.quorums = ViewQuorums.of(0, frozenset())
        self.primary = True
        self.frozen = False
        """A reformation is under way: nothing more is ordered in this epoch."""
        self.first_holder = 0
        """Who has the token before the first ACK of the epoch."""
        self.changed = 0
        """The slot of the last change of the group that applications see."""
        self.stable = 0
        """Every member is known to hold every slot up to this one."""
        self.decided = 0
        """Slots up to this one stay in the order: no reformation can lose them."""
        self.verdict: Fail | None = None
        self.leaving = False

    @property
    def token_list(self) -> tuple[int, ...]:
        return tuple(self.group.entries)

    def address(self, key: int) -> Address | None:
        entry = self.group.entries.get(key)
        return entry.member.address if entry is not None else None

    def others(self) -> tuple[Address, ...]:
        return tuple(e.member.address for k, e in self.group.entries.items() if k != self.key)

    def view_id(self, timestamp: int) -> str:
        return f"{self.epoch}.{timestamp}-{self.name & 0xFFFFFF:06x}"

    def step(self, now_us: int) -> None:
        self.now_us = now_us

    def leave(self) -> None:
        """The application leaves."""
        self.leaving = True

    def enter(
        self, trid: int, epoch: int, group: GroupState, quorums: ViewQuorums, primary: bool = True
    ) -> None:
        """This site is on a ring, founded or joined."""
        self.trid = self.name = trid
        self.trids, self.renewals = (trid,), ()
        self.epoch, self.primary = epoch, primary
        self.group, self.quorums = group, quorums
        self.first_holder = next(iter(group.entries))

    def change(self, group: GroupState, timestamp: int) -> None:
        """The order has changed the group; other members make another view."""
        if group.entries.keys() != self.group.entries.keys():
            self.quorums = self.quorums.changed(timestamp, group.entries.keys())
        self.group = group

    # -- [RMP-16] the ring's identifier -----------------------------------------------------------

    def name_as(
        self, name: int, trids: tuple[int, ...], renewals: tuple[tuple[int, int], ...]
    ) -> None:
        """As those call the ring who admitted us."""
        self.name, self.trids, self.renewals = name, trids, renewals

    def announce_trid(self, trid: int, timestamp: int) -> bool:
        """The order has announced another identifier: its packets are ours. False: it is none."""
        if not trid or trid in self.trids:
            return False
        self.trids = (*self.trids, trid)[-TRIDS_MAX:]
        self.renewals = (*self.renewals, (timestamp, trid))
        return True

    def renew(self, timestamp: int) -> None:
        """Everybody holds all slots up to this one: what they announced is known to all."""
        while self.renewals and self.renewals[0][0] <= timestamp:
            self.trid, self.renewals = self.renewals[0][1], self.renewals[1:]

    def show_change(self, timestamp: int) -> None:
        """Applications see what was changed there."""
        self.changed = timestamp

    def decide(self, timestamp: int) -> None:
        """A quorum holds every slot up to this one."""
        self.decided = max(self.decided, timestamp)

    def settle(self, timestamp: int) -> None:
        """Every member holds all slots up to this one."""
        self.stable = timestamp
        self.quorums = self.quorums.settled(timestamp)

    def freeze(self) -> None:
        self.frozen = True

    def resume(self) -> None:
        self.frozen = False

    def reform(self, new_list: NewList, group: GroupState, base: int) -> None:
        """The next epoch begins behind this slot."""
        quorums = ViewQuorums.of(base, group.entries.keys())
        primary = self.primary and new_list.primary
        self.enter(new_list.trid, new_list.epoch, group, quorums, primary)
        self.decide(base)
        self.frozen = False

    def stop(self, fail: Fail) -> None:
        if self.verdict is None:
            self.verdict = fail


class Outgoing:
    """Seals packets and arms timers."""

    def __init__(self, codec: PacketCodec, state: TokenRing) -> None:
        self._codec = codec
        self._state = state
        self._armed: set[Timer] = set()

    def send(
        self,
        kind: int,
        record: Any,
        out: list[Effect],
        to: Target = EVERYONE,
        trid: int | None = None,
    ) -> None:
        self.send_each(kind, (record,), out, to, trid)

    def send_each(
        self,
        kind: int,
        records: Iterable[Any],
        out: list[Effect],
        to: Target = EVERYONE,
        trid: int | None = None,
    ) -> None:
        """A packet for each, sent together."""
        life = self._state.trid if trid is None else trid
        out.append(Send(to, [self._codec.seal(kind, encode(each), life) for each in records]))

    def send_train(
        self, kind: int, head: bytes, pieces: Sequence[bytes], out: list[Effect]
    ) -> None:
        """To everyone, as one burst: packets with the same head, their index, and a piece each."""
        codec, life = self._codec, self._state.trid
        codec.sent(kind, len(pieces))
        packets = seal_batch(PROTOCOL, kind, codec.group, life, head, pieces)
        out.append(Send(EVERYONE, Burst(memoryview(packets), len(packets) // len(pieces))))

    def arm(self, timer: Timer, after_us: int, out: list[Effect]) -> None:
        self._armed.add(timer)
        out.append(Arm(timer, after_us))

    def is_armed(self, timer: Timer) -> bool:
        return timer in self._armed

    def expired(self, timer: Timer) -> None:
        self._armed.discard(timer)

    def disarm(self, timer: Timer, out: list[Effect]) -> None:
        if timer in self._armed:
            self._armed.discard(timer)
            out.append(Disarm(timer))
