"""Admission: the first site of the token list admits whoever asks, when it has the token.

Everything that it delivered is then in the order before the admission: the state that it captures
there is the group's state at that place, whatever the levels of the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from unisono.core import EVERYONE, Capture, Captured, Cause, CoreConfig, Effect, Fail, Send
from unisono.layout import encode, size_of
from unisono.model import Member
from unisono.parts.codec import PacketCodec
from unisono.parts.identity import key_of
from unisono.parts.packing import fragments
from unisono.parts.state_transfer import StateServer
from unisono.protocols.rmp.delivery import OrderedDelivery
from unisono.protocols.rmp.group_state import AddMember, Entry, Summon
from unisono.protocols.rmp.ordering import RANGES_MAX, OrderingQueue
from unisono.protocols.rmp.packets import (
    MemberLine,
    PacketKind,
    Part,
    Refuse,
    RingAnnounce,
    RingJoin,
    RingSnapshot,
    SourceMark,
    StatePiece,
    StateRequest,
)
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.repair import Repair
from unisono.protocols.rmp.requests import write_request
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.send_queue import SendQueue
from unisono.protocols.rmp.sources import Sources
from unisono.protocols.rmp.state import Outgoing, TokenRing
from unisono.wire import ENVELOPE_BYTES

UNSTABLE_VIEWS_MAX: Final = 4
"""No process is admitted while so many views are not stable."""
CANDIDATES_MAX: Final = 64
UNORDERED_MAX: Final = 512
"""Blocks that may wait for their order when a process is admitted."""
LATE: Final = "a later incarnation of this name is known; join again as a new incarnation"
TAKEN: Final = "the name {} is taken"


class Candidate(NamedTuple):
    """A process that is to be admitted."""

    request: RingJoin
    since_us: int


class AdmittingSite:
    """One site's part in admitting others."""

    def __init__(
        self,
        config: CoreConfig,
        parameters: Parameters,
        state: TokenRing,
        codec: PacketCodec,
        outgoing: Outgoing,
        sources: Sources,
        queue: OrderingQueue,
        resilience: Resilience[Any],
        delivery: OrderedDelivery,
        send_queue: SendQueue,
        repair: Repair,
        is_stuck: Callable[[], bool],
        is_dead: Callable[[int], bool],
    ) -> None:
        self._packet_bytes = config.packet_bytes_max
        self._parameters = parameters
        self._state = state
        self._codec = codec
        self._outgoing = outgoing
        self._sources = sources
        self._queue = queue
        self._resilience = resilience
        self._delivery = delivery
        self._send_queue = send_queue
        self._repair = repair
        self._is_stuck = is_stuck
        self._is_dead = is_dead
        piece_bytes = self._packet_bytes - ENVELOPE_BYTES - size_of(StatePiece)
        self._states: StateServer[int] = StateServer(piece_bytes)
        self._candidates: dict[int, Candidate] = {}
        self._welcomes: dict[int, list[bytes]] = {}
        self._announced_us = 0
        """When the first site of this ring announced it last."""

    # -- announcements ----------------------------------------------------------------------------

    def announce(self, out: list[Effect], to: Member | None = None, waiting: bool = False) -> None:
        """`waiting`: the ring is being reformed, and admits nobody yet."""
        state = self._state
        size, stamp = len(state.group.entries), 0 if waiting else state.now_us
        record = RingAnnounce(state.me, state.name, state.epoch, size, state.primary, stamp)
        target = EVERYONE if to is None else (to.address,)
        self._outgoing.send(PacketKind.ANNOUNCE, record, out, target, 0)

    def announce_if_first(self, out: list[Effect]) -> None:
        state = self._state
        if state.trid and state.token_list and state.token_list[0] == state.key:
            if not state.frozen:
                self.announce(out)

    # Deviates [RMP §3.3 partitions]: a ring that hears of a greater one of its group stops, and its
    # members join that. The paper leaves it to the application.
    def hear_other_ring(self, packet: RingAnnounce) -> None:
        """Two rings of one group: the lesser one gives up, and its members join the other. One
        that is being reformed waits for its outcome, unless that is the lesser in any case."""
        state = self._state
        if packet.trid == state.name:
            self._announced_us = state.now_us
        elif packet.site in state.group.members() and not state.frozen:
            self._codec.drop("announce")  # A member of this ring leads no other.
        elif packet.stamp and (packet.primary, packet.size, packet.trid) > self._rank():
            state.stop(Fail("another ring of this group goes on", Cause.EXCLUDED))
        elif packet.stamp and state.frozen and self._is_stuck():
            state.stop(Fail("too few are left, and another ring goes on", Cause.TOO_FEW))

    def _rank(self) -> tuple[bool, int, int]:
        """Of this ring; while it is reformed, the highest that can result."""
        state = self._state
        lost = sum(map(self._is_dead, state.token_list)) if state.frozen else 0
        return (state.primary, len(state.group.entries) - lost, state.name)

    # -- admission --------------------------------------------------------------------------------

    def is_back(self, packet: RingJoin, out: list[Effect]) -> bool:
        """Whether a member has ended: a later incarnation of it asks from the same address. It has
        to wait until the ring is reformed."""
        members = self._state.group.members()
        back = not packet.withdrawn and any(_is_later(packet.member, m) for m in members)
        if back:
            self.announce(out, packet.member, waiting=True)
        return back

    def consider(self, packet: RingJoin, out: list[Effect]) -> None:
        """Whether to admit it; the first site of the token list decides."""
        state, key = self._state, key_of(packet.member)
        if not packet.withdrawn and self._has_to_wait():
            self.announce(out, packet.member, waiting=True)
        if not state.trid or state.token_list[:1] != (state.key,) or state.frozen:
            return
        if key in self._welcomes and key in state.group.entries:
            out.append(Send((packet.member.address,), self._welcomes[key]))
            return
        if packet.withdrawn:
            self._candidates.pop(key, None)
            return
        if key in state.group.entries:
            return
        for entry in state.group.entries.values():
            known = entry.member
            if known.name != packet.member.name:
                continue
            if known.address != packet.member.address:
                self._refuse(packet.member, Refuse(key, TAKEN.format(known.name)), out)
            elif known.incarnation > packet.member.incarnation:
                refusal = Refuse(key, LATE, True, known.incarnation)
                self._refuse(packet.member, refusal, out)
            return  # A former incarnation is removed first.
        if not 0 <= state.now_us - packet.echo <= self._parameters.detect_us // 2:
            self.announce(out, packet.member)
            return
        if state.leaving or len(state.quorums.views) > UNSTABLE_VIEWS_MAX:
            return
        if len(self._candidates) < CANDIDATES_MAX:
            if key not in self._candidates:
                self._send_queue.request(write_request(Summon(state.key)))
            self._candidates[key] = Candidate(packet, state.now_us)

    def _has_to_wait(self) -> bool:
        """The ring is being reformed, or is about to be since its first site is not heard: who asks
        to join must not found another."""
        state = self._state
        if state.frozen:
            return not self._is_stuck()
        if state.leaving or state.key not in state.token_list[1:]:
            return False  # Nor does one that has left, and waits for the others, speak for a ring.
        return state.now_us - self._announced_us > self._parameters.found_us // 2

    def has_candidate(self) -> bool:
        """Whether there is one that may be admitted now."""
        state, sources = self._state, self._sources
        if not self._candidates or state.frozen or state.leaving:
            return False
        if not sources.is_whole(state.group.entries):
            return False
        if not self._delivery.is_inside:  # Nobody joins a ring whose founding is not shown yet.
            return False
        return sources.can_all_be_named(self._queue.ordered, UNORDERED_MAX, RANGES_MAX)

    def admit(self, out: list[Effect]) -> None:
        """We have the token: the candidate that waits longest is the last in this ACK."""
        state = self._state
        if not self.has_candidate():
            return
        key = next(iter(self._candidates))
        asked, since_us = self._candidates.pop(key)
        if state.now_us - since_us > self._parameters.detect_us or key in state.group.entries:
            return
        if asked.wants_state:
            self._states.expect(key)
        change = AddMember(key, Entry(asked.member, asked.vote))
        request = write_request(change)
        block = self._send_queue.request_block(request, state.now_us, self._queue.held)
        self._repair.send_block(block, out)
        self._sources.put_last(state.key, block)

    def _refuse(self, member: Member, refusal: Refuse, out: list[Effect]) -> None:
        self._outgoing.send(PacketKind.REFUSE, refusal, out, (member.address,), 0)

    def welcome(self, key: int, member: Member, timestamp: int, out: list[Effect]) -> None:
        state = self._state
        with_state = key in self._states.known()
        snapshot = RingSnapshot(
            timestamp,
            self._delivery.place,
            state.epoch,
            state.primary,
            with_state,
            state.group.hops,
            state.key,
            tuple(MemberLine(*entry) for entry in state.group.entries.values()),
            tuple((n, tuple(map(key_of, q))) for n, q in state.group.locks.queues.items()),
            tuple(SourceMark(*mark) for mark in self._sources.marks(self._queue.ordered)),
            tuple((t, tuple(sorted(members))) for t, members in state.quorums.views),
            state.name,
            state.trids,
            state.renewals,
        )
        room = self._packet_bytes - ENVELOPE_BYTES - size_of(Part)
        pieces = fragments(encode(snapshot), room, room)
        self._welcomes[key] = [
            self._codec.seal(
                PacketKind.WELCOME,
                encode(Part(key, timestamp, part, len(pieces), piece)),
                state.trid,
            )
            for part, piece in enumerate(pieces)
        ]
        out.append(Send((member.address,), self._welcomes[key]))
        if with_state:
            self._delivery.follow(Capture(key))

    # -- state ---

    def serve_state(self, packet: StateRequest, out: list[Effect]) -> None:
        """A request for no pieces reports that the joiner has all of it."""
        to = self._state.address(packet.sender)
        if not packet.pieces:
            self._states.forget(packet.sender)
        pieces = self._states.pieces(packet.sender, packet.offset, packet.pieces)
        for total, offset, piece in pieces if to is not None else ():
            record = StatePiece(self._state.key, packet.sender, total, offset, piece)
            self._outgoing.send(PacketKind.STATE, record, out, (to,))  # type: ignore[arg-type]

    def keep_state(self, event: Captured) -> None:
        if isinstance(event.key, int):
            self._states.keep_expected(event.key, event.state)

    def forget_welcomes(self) -> None:
        """Those that have arrived: their receivers pass the token."""
        entries, has_passed = self._state.group.entries, self._resilience.has_passed
        for key in [k for k in self._welcomes if has_passed(k) or k not in entries]:
            del self._welcomes[key]
        for key in self._states.known():
            if key not in entries and key not in self._candidates:
                self._states.forget(key)


def _is_later(member: Member, known: Member) -> bool:
    """Whether it is a later incarnation, at the same address."""
    return member[:2] == known[:2] and member.incarnation > known.incarnation
