"""Joining and founding: from outside to a place on the ring [RMP §2.1]."""

from __future__ import annotations

from random import Random
from typing import Any

from unisono.core import Adopt, Cause, CoreConfig, Effect, Fail, Reach
from unisono.errors import BadPacket
from unisono.layout import decode
from unisono.model import View, changes_of
from unisono.parts.codec import PacketCodec
from unisono.parts.identity import key_of
from unisono.parts.locks import LockTable
from unisono.parts.state_transfer import StateReceiver
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.group_state import HOPS_FIRST, Entry, GroupState
from unisono.protocols.rmp.ordering import OrderingQueue
from unisono.protocols.rmp.packets import (
    PacketKind,
    Part,
    Refuse,
    RingJoin,
    RingSnapshot,
    SourceMark,
    StatePiece,
    StateRequest,
)
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.quorums import ViewMark, ViewQuorums
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import Outgoing, Timer, TokenRing

REFUSALS_MAX = 64


class Joiner:
    """A process that seeks its group, founds it, or is admitted with the group's state."""

    def __init__(
        self,
        config: CoreConfig,
        parameters: Parameters,
        state: TokenRing,
        codec: PacketCodec,
        outgoing: Outgoing,
        random: Random,
        sources: Sources,
        queue: OrderingQueue,
        resilience: Resilience[Any],
        delivery: OrderedDelivery,
    ) -> None:
        self._with_state = config.with_state
        self._parameters = parameters
        self._state = state
        self._codec = codec
        self._outgoing = outgoing
        self._random = random
        self._sources = sources
        self._queue = queue
        self._resilience = resilience
        self._delivery = delivery
        self._receiver: StateReceiver | None = None
        self._sponsor = 0
        self._echo = 0
        self._has_answered = False
        """An announcement was answered in this period: two rings, each of which wants its own stamp
        back, would be answered without end."""
        self._refusals = 0
        self._parts: dict[int, bytes] = {}
        self._parts_of: tuple[int, int] = (0, 0)

    # -- outside ----------------------------------------------------------------------------------

    def seek(self, out: list[Effect], first: bool = False) -> None:
        self._has_answered = False
        self._ask(out)
        self._outgoing.arm(Timer.JOIN, self._about(self._parameters.join_us), out)
        if first:
            self._outgoing.arm(Timer.FOUND, self._about(self._parameters.found_us), out)

    def _ask(self, out: list[Effect], withdrawn: bool = False) -> None:
        vote, state = self._parameters.minimum, self._with_state
        record = RingJoin(self._state.me, vote, state, withdrawn, self._echo)
        self._outgoing.send(PacketKind.JOIN, record, out, trid=0)

    def withdraw(self, out: list[Effect]) -> None:
        self._ask(out, withdrawn=True)

    def _about(self, period_us: int) -> int:
        return period_us + self._random.randrange(period_us // 4 + 1)

    def wait(self, out: list[Effect]) -> None:
        """Somebody else is about to found the ring, or has."""
        self._outgoing.arm(Timer.FOUND, self._about(self._parameters.found_us), out)

    def announced(self, stamp: int, out: list[Effect]) -> None:
        """A ring is there; with a stamp, it admits."""
        if stamp:
            self._echo = stamp
            if not self._has_answered:
                self._has_answered = True
                self._ask(out)
        self.wait(out)

    def found(self, out: list[Effect]) -> None:
        """A member formed its own group."""
        state = self._state
        group = GroupState({state.key: Entry(state.me, self._parameters.minimum)})
        trid = self._random.getrandbits(63) | 1
        state.enter(trid, 1, group, ViewQuorums.of(0, {state.key}))
        self._sources.add(state.key, state.me)
        self._resilience.begin((state.key,), 0)
        self._enter(out)
        changes = changes_of(state.me, joined=(state.me,), founded=True)
        view = View((state.me,), state.view_id(0), (state.me,), seq=0, changes=changes)
        self._delivery.install(view, 0)

    def _enter(self, out: list[Effect]) -> None:
        self._outgoing.disarm(Timer.JOIN, out)
        self._outgoing.disarm(Timer.FOUND, out)
        self.announce_later(out)

    def announce_later(self, out: list[Effect]) -> None:
        self._outgoing.arm(Timer.ANNOUNCE, self._about(self._parameters.announce_us), out)

    def refused(self, packet: Refuse) -> None:
        if packet.receiver != self._state.key or self._state.trid:
            return
        self._refusals += REFUSALS_MAX if packet.final else 1
        if self._refusals >= REFUSALS_MAX:
            cause = Cause.SUPERSEDED if packet.known else Cause.REFUSED
            self._state.stop(Fail(packet.reason, cause, packet.known))

    def welcomed(self, packet: Part, trid: int, out: list[Effect]) -> None:
        """The ring has admitted us: it begins here."""
        state = self._state
        if packet.receiver != state.key or state.trid:
            return
        if self._parts_of != (trid, packet.stamp):
            self._parts_of, self._parts = (trid, packet.stamp), {}
        self._parts[packet.part] = bytes(packet.piece)
        if len(self._parts) < packet.parts:
            return
        whole = b"".join(self._parts[n] for n in sorted(self._parts))
        self._parts = {}
        try:
            self._start(decode(RingSnapshot, whole), trid, out)
        except BadPacket as bad:
            self._codec.drop(bad.reason)

    # Deviates [RMP §2.1 join]: a member begins behind its admission, with the group's state as of
    # there. The paper leaves state to the application.
    def _start(self, snapshot: RingSnapshot, trid: int, out: list[Effect]) -> None:
        state = self._state
        entries = {key_of(line.member): Entry(*line) for line in snapshot.lines}
        if state.key not in entries or trid not in snapshot.trids:
            raise BadPacket("malformed")
        queues = {
            number: tuple(entries[key].member for key in keys if key in entries)
            for number, keys in snapshot.locks
        }
        group = GroupState(entries, LockTable(queues), snapshot.hops)
        if snapshot.hops != HOPS_FIRST:
            out.append(Reach(snapshot.hops))
        views = (ViewMark(t, frozenset(members)) for t, members in snapshot.unstable)
        state.enter(trid, snapshot.epoch, group, ViewQuorums(tuple(views)), snapshot.primary)
        state.name_as(snapshot.name, snapshot.trids, snapshot.renewals)
        marks = {mark.source: mark for mark in snapshot.marks}
        ordered = {key: marks[key].block if key in marks else 0 for key in entries}
        self._queue.start(snapshot.timestamp, ordered)
        self._resilience.begin(entries, 0)  # The others may lack what admitted us.
        self._resilience.add(state.key, snapshot.timestamp)
        self._resilience.hold(snapshot.sponsor, snapshot.timestamp)
        self._delivery.start(snapshot.place, snapshot.with_state)
        for key, entry in entries.items():
            mark = marks.get(key, SourceMark(key, 0, 0))
            self._sources.add(key, entry.member, mark.block, mark.message)
        self._sponsor = snapshot.sponsor
        self._enter(out)
        members = state.group.members()
        cut = tuple((entries[k].member, m.message) for k, m in marks.items() if k in entries)
        view = View(
            members,
            state.view_id(snapshot.timestamp),
            (state.me,),
            seq=snapshot.place,
            cut=tuple(sorted(each for each in cut if each[0] != state.me)),
            changes=changes_of(state.me, joined=(state.me,)),
        )
        if snapshot.with_state:
            self._receiver = StateReceiver()
            self._ask_state(self._receiver.ask(), out)
        state.show_change(snapshot.timestamp)
        self._delivery.install(view, snapshot.timestamp)

    # -- state ------------------------------------------------------------------------------------

    def _ask_state(self, what: tuple[int, int], out: list[Effect]) -> None:
        to = self._state.address(self._sponsor)
        if to is None:
            self._state.stop(Fail("lost the sponsor before its state had come", Cause.STOPPED))
            return
        record = StateRequest(self._state.key, *what)
        self._outgoing.send(PacketKind.STATE_ASK, record, out, (to,))

    def ask_state_again(self, out: list[Effect]) -> None:
        if self._receiver is not None:
            request = self._receiver.ask_if_stalled()
            if request is not None:
                self._ask_state(request, out)

    def take_state(self, packet: StatePiece, out: list[Effect]) -> None:
        receiver = self._receiver
        if receiver is None or packet.receiver != self._state.key:
            return
        if packet.sender != self._sponsor:
            self._codec.drop("sponsor")
            return
        receiver.take(packet.total, packet.offset, packet.piece)
        ahead = receiver.ask_ahead()
        if ahead is not None:
            self._ask_state(ahead, out)
        if receiver.is_done():
            state = receiver.state()
            self._ask_state((len(state), 0), out)
            self._receiver = None
            self._delivery.state_came()
            out.append(Adopt(state))
