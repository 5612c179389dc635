"""A group led by one coordinator: joining, views, failures, state transfer and leaving.

The coordinator's stream is the group's log. A view is an entry of it, so all members install it
between the same two messages. A member has one link, to the coordinator, and stops when that is
lost. The protocol decides which messages enter the log, and which of its entries are delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import auto
from typing import Any, Final, NamedTuple

from unisono import core
from unisono.core import EVERYONE, Arm, Cause, CoreConfig, Effect, Fail
from unisono.fields import U64, Incarnation
from unisono.fsa import Arrow, Figure, Named, always, discarded, stay
from unisono.layout import decode, encode
from unisono.model import Address, Member, Message, Service, View
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.parts.fragment_stream import FragmentStream
from unisono.parts.identity import key_of
from unisono.parts.links import LinkBeat, LinkChunk, LinkData, Links
from unisono.parts.packet_set import PacketSet
from unisono.parts.state_exchange import StateExchange
from unisono.parts.state_transfer import TransferPiece, TransferRequest
from unisono.parts.views import next_view
from unisono.wire import NO_LIFE

VIEW, FAREWELL = 4, 8
"""Flags of a chunk: a view of the coordinator, the last entry of a member that leaves."""
FORMER_MAX: Final = 1024
"""Members of the past that are remembered."""


class LinkJoin(NamedTuple):
    member: Member

    def label(self) -> str:
        return "join"


class LinkWelcome(NamedTuple):
    joiner: U64
    coordinator: Member
    first: U64
    """The chunk of the log with which the joiner begins: the view that adds it."""
    with_state: bool

    def label(self) -> str:
        return f"welcome from {self.first}"


class LinkStop(NamedTuple):
    """The addressee is not admitted, or was removed."""

    key: U64
    reason: str
    superseded_by: Incarnation = 0

    def label(self) -> str:
        return f"refuse: {self.reason}"


PACKETS: Final = (
    LinkJoin, LinkWelcome, LinkStop, LinkData, LinkBeat, TransferRequest, TransferPiece,
)  # fmt: skip


class ListedMember(NamedTuple):
    member: Member
    number: U64
    """Of its last message in the log."""


class LoggedView(NamedTuple):
    """The payload of a VIEW chunk."""

    seq: U64
    """Messages in the log before it."""
    members: tuple[ListedMember, ...]
    left: tuple[U64, ...]
    """Keys of the members that left; the others that are missing failed."""


class CentralState(Named):
    OUTSIDE = auto()
    SEEKING = auto()
    CATCHING_UP = auto()
    MEMBER = auto()
    LEAVING = auto()
    DONE = auto()


class CentralTimer(Named):
    BEAT = auto()


OUTSIDE, SEEKING, CATCHING_UP, MEMBER, LEAVING, DONE = CentralState
INSIDE: Final = (CATCHING_UP, MEMBER, LEAVING)


class CentralMembership:
    """One process: the coordinator, or a member."""

    def __init__(
        self, config: CoreConfig, terms: Terms, packets: PacketSet, is_coordinator: bool,
        detect_us: int, members_count_max: int,
    ) -> None:  # fmt: skip
        self.is_coordinator = is_coordinator
        self.clock = CoreClock(config.seed)
        self.codec = PacketCodec(packets.protocol, packets.names, terms)
        self.links = Links(config, self.codec, packets, detect_us)
        self.transfer = StateExchange(config, self.links)
        self._config, self._packets = config, packets
        self._me, self._key = config.me, key_of(config.me)
        self._members_count_max = members_count_max
        self._admission = Admission(self.codec, terms)
        self._end: Effect | None = None
        # The log as of the last entry that was read.
        self._log: FragmentStream[LinkChunk] | None = None
        self._view = View(())
        self._members: dict[int, Member] = {}
        self._numbers: dict[int, int] = {}
        self._seq = 0
        # The coordinator's: the log as of the last entry that was appended.
        self._listed: dict[int, ListedMember] = {}
        self._appended = 0
        self._left: dict[int, int] = {}
        """By member that left, the last chunk of the view without it."""
        self._former: deque[int] = deque(maxlen=FORMER_MAX)

    def is_for_coordinator(self, event: object) -> bool:
        return self.is_coordinator

    def held(self) -> dict[Member, int]:
        return {self._members[key]: number for key, number in self._numbers.items()}

    # -- packets ----------------------------------------------------------------------------------

    def accepted(self, now_us: int, event: core.Event, out: list[Effect]) -> Iterator[Any]:
        """A step begins: the packets of a burst that concern this process, or the event itself."""
        self.clock.tick(now_us)
        self.links.tick(now_us)
        if not isinstance(event, core.Received):
            yield event
            return
        for packet, life in self._packets.opened(self.codec, event.packets):
            if self._concerns_us(packet, life, event.source, out):
                yield packet
        if self.codec.odd:  # A process has other options: one of us cannot be in this group.
            size = len(self._view.members)
            if reason := self._admission.look(event.source, now_us, size, out):
                self._end = Fail(reason, Cause.REFUSED)

    def _concerns_us(self, packet: Any, life: int, source: Address, out: list[Effect]) -> bool:
        match packet:
            case LinkJoin():
                return self.is_coordinator and packet.member != self._me
            case LinkWelcome(joiner=key) | LinkStop(key=key) | TransferPiece(joiner=key):
                if key == self._key and self._log is None:
                    self.codec.enter(life)
                return key == self._key and life == self.codec.life
        sender = packet.joiner if isinstance(packet, TransferRequest) else packet.sender
        if life != self.codec.life or sender == self._key:
            return False
        if not self.links.hear(sender) and self.is_coordinator:
            stop = LinkStop(sender, "the coordinator has removed this member")
            self.links.send((source,), [stop], out)
        return sender in self.links.peers

    # -- joining ----------------------------------------------------------------------------------

    def found(self, event: core.Join, out: list[Effect]) -> None:
        self.codec.enter(self.clock.random.getrandbits(64) | 1)
        self._log = FragmentStream(window=self.links.own.window)
        self._listed[self._key] = ListedMember(self._me, 0)
        self._append_view()
        out.append(Arm(CentralTimer.BEAT, self.links.beat_us))

    def seek(self, event: object, out: list[Effect]) -> None:
        out.append(Arm(CentralTimer.BEAT, self.clock.jittered(self.links.beat_us)))
        self.links.send(EVERYONE, [LinkJoin(self._me)], out, NO_LIFE)

    def admit(self, packet: LinkJoin, out: list[Effect]) -> None:
        """The view that adds the joiner is the first entry that it gets."""
        joiner, key = packet.member, key_of(packet.member)
        refusal = None if key in self.links.peers else self._refusal(joiner, key)
        if refusal is not None:
            self.links.send((joiner.address,), [refusal], out)
            return
        if key not in self.links.peers:
            self.links.add(joiner, taken=self.links.own.end)
            self._listed[key] = ListedMember(joiner, 0)
            self._append_view()
        first = self.links.peers[key].taken + 1
        welcome = LinkWelcome(key, self._me, first, self._config.with_state)
        self.links.send((joiner.address,), [welcome], out)

    def _refusal(self, joiner: Member, key: int) -> LinkStop | None:
        """A later incarnation replaces an earlier one; the same name elsewhere has to wait."""
        if key in self._former:
            return LinkStop(key, f"{joiner} was a member before", joiner.incarnation)
        for other_key, (other, _) in list(self._listed.items()):
            if other.name == joiner.name and other.address == joiner.address:
                if other.incarnation > joiner.incarnation:
                    return LinkStop(key, f"{other} is a member", other.incarnation)
                self._remove(other_key)
            elif other.name == joiner.name:
                return LinkStop(key, f"the name {joiner.name} is taken by {other.address}")
        if len(self._listed) >= self._members_count_max:
            return LinkStop(key, "the group is full (members_count_max)")
        return None

    def enter(self, packet: LinkWelcome, out: list[Effect]) -> None:
        self._log = self.links.add(packet.coordinator, packet.first - 1).stream
        if packet.with_state:
            self.transfer.start(out)

    def brings_state(self, packet: LinkWelcome) -> bool:
        return packet.with_state

    def is_superseded(self, packet: LinkStop) -> bool:
        return packet.superseded_by > 0

    # -- the log ----------------------------------------------------------------------------------

    def append(self, payload: bytes, number: int, service: int, origin: int | None = None) -> None:
        """A message at the end of our stream: the log, or what we submit to the coordinator.
        `origin` is the key of its sender, if another."""
        key = self._key if origin is None else origin
        self.links.append(payload, 0, key, number, service)
        if self.is_coordinator:
            self._appended += 1
            self._listed[key] = self._listed[key]._replace(number=number)

    def _append_view(self, *left: int) -> None:
        entry = LoggedView(self._appended, tuple(self._listed.values()), left)
        self.links.append(encode(entry), VIEW, self._key, 0, 0)

    def submitted(self) -> Iterator[tuple[int, LinkChunk, bytes]]:
        """At the coordinator, the members' messages that are here and may enter the log: the key of
        the sender, the first chunk and the payload."""
        own = self.links.own
        for key, link in list(self.links.peers.items()):
            while self._key in self._listed and key in self._listed:
                if own.nbytes >= self._config.window_bytes_max:
                    break
                if (found := self.links.next_message(link.stream)) is None:
                    break
                if found[0].flags & FAREWELL:
                    del self._listed[key]
                    self._append_view(key)
                    self._left[key] = own.end
                else:
                    yield key, *found
            if link.taken >= self._left.get(key, link.taken + 1):
                self._drop(key)

    def entries(self) -> Iterator[Message | View]:
        """The entries of the log that can be delivered."""
        while self._log is not None and self._end is None and not self.transfer.is_running():
            if (found := self.links.next_message(self._log)) is None:
                return
            first, payload = found
            if first.flags & VIEW:
                yield from self._next_view(decode(LoggedView, payload))
                continue
            self._seq += 1
            self._numbers[first.origin] = first.number
            place = (self._view.id, self._seq, Service(first.service))
            yield Message(self._members[first.origin], payload, first.number, *place)

    def _next_view(self, entry: LoggedView) -> Iterator[View]:
        assert self._log is not None
        before, keys = self._view.members, {key_of(member): member for member, _ in entry.members}
        if self._key not in keys:
            has_left = self._key in entry.left
            removed = Fail("the coordinator removed this member", Cause.EXCLUDED)
            self._end = core.Depart() if has_left else removed
            return
        if not self.is_coordinator and not self.links.peers.keys() & keys.keys():
            self._end = Fail("the coordinator left", Cause.STOPPED)
            return
        self._members, self._seq = keys, entry.seq
        self._numbers = {key_of(member): number for member, number in entry.members}
        self._view = next_view(
            self._me,
            before,
            keys.values(),
            id=f"{self._log.delivered}-{self.codec.life & 0xFFFFFF:06x}",
            left=[member for member in before if key_of(member) in entry.left],
            cut=() if before or self.is_coordinator else entry.members,
            founded=self.is_coordinator and not before,
        )
        yield self._view

    def install(self, view: View, out: list[Effect]) -> None:
        """Show the view to the application, and capture the state for those that joined."""
        self._admission.entered(self.clock.now_us)
        out.append(core.Install(view))
        if self.is_coordinator and self._config.with_state:
            for member in view.joined:
                if member != self._me:
                    self.transfer.capture(key_of(member), out)

    def transmit(self, out: list[Effect]) -> None:
        """Once a step: send what may leave, and request what is missing."""
        assert self._log is not None
        retain_after = self._log.delivered if self.is_coordinator else self.links.own.end
        self.links.conclude(retain_after, out)

    # -- failures, and the end --------------------------------------------------------------------

    def beat(self, event: object, out: list[Effect]) -> None:
        out.append(Arm(CentralTimer.BEAT, self.links.beat_us))
        self.links.report(out)
        self.transfer.tick(out)
        for key in self.links.silent():
            if self.is_coordinator:
                self._remove(key)
            else:
                self._end = Fail("the coordinator is silent", Cause.STOPPED)

    def _remove(self, key: int) -> None:
        self._drop(key)
        if self._listed.pop(key, None) is not None and self._key in self._listed:
            self._append_view()

    def _drop(self, key: int) -> None:
        self.links.drop(key)
        self.transfer.forget(key)
        self._left.pop(key, None)
        self._former.append(key)

    def give_up(self, packet: LinkStop, out: list[Effect]) -> None:
        cause = Cause.SUPERSEDED if packet.superseded_by else Cause.EXCLUDED
        self._end = Fail(packet.reason, cause, packet.superseded_by)

    def leave(self, event: core.Leave, out: list[Effect]) -> None:
        if self.is_coordinator:
            del self._listed[self._key]
            self._append_view(self._key)
        else:
            self.links.append(b"", FAREWELL, self._key, 0, 0)

    def is_not_needed(self, event: object) -> bool:
        """The coordinator may go: all members have the whole log."""
        end = self.links.own.end
        if not self.is_coordinator or self._log is None or self._log.delivered < end:
            return False
        return all(link.taken >= end for link in self.links.peers.values())

    def has_ended(self, event: object) -> bool:
        return self._end is not None

    def end(self, event: object, out: list[Effect]) -> None:
        self.links.report(out)
        out += [core.Disarm(CentralTimer.BEAT), self._end or core.Depart()]


M, L, T, BEAT = CentralMembership, Links, StateExchange, CentralTimer.BEAT
# fmt: off
ARROWS: Final = (
    #     from                on               when                  do              to
    Arrow(OUTSIDE,            core.Join,       M.is_for_coordinator, M.found,        MEMBER),
    Arrow(OUTSIDE,            core.Join,       always,               M.seek,         SEEKING),
    Arrow((OUTSIDE, SEEKING, CATCHING_UP), core.Leave, always,       M.end,          DONE),
    Arrow(SEEKING,            BEAT,            always,               M.seek,         SEEKING),
    Arrow(SEEKING,            LinkWelcome,     M.brings_state,       M.enter,        CATCHING_UP),
    Arrow(SEEKING,            LinkWelcome,     always,               M.enter,        MEMBER),
    Arrow(SEEKING,            LinkStop,        M.is_superseded,      M.give_up,      SEEKING),
    Arrow(SEEKING,            LinkStop,        always,               stay,           SEEKING),

    Arrow((SEEKING, *INSIDE), None,            M.has_ended,          M.end,          DONE),
    Arrow(CATCHING_UP,        TransferPiece,   always,               T.take,         CATCHING_UP),
    Arrow(CATCHING_UP,        None,            T.is_complete,        T.adopt,        MEMBER),
    Arrow(MEMBER,             LinkJoin,        always,               M.admit,        MEMBER),
    Arrow(MEMBER,             core.Leave,      always,               M.leave,        LEAVING),
    Arrow(LEAVING,            None,            M.is_not_needed,      M.end,          DONE),

    Arrow(INSIDE,             LinkData,        always,               L.take,         None),
    Arrow(INSIDE,             LinkBeat,        always,               L.answer,       None),
    Arrow(INSIDE,             LinkStop,        always,               M.give_up,      None),
    Arrow(INSIDE,             TransferRequest, always,               T.serve,        None),
    Arrow(INSIDE,             core.Captured,   always,               T.keep,         None),
    Arrow(INSIDE,             BEAT,            always,               M.beat,         None),
)
# fmt: on
EVENTS: Final = (
    core.Join,
    core.Leave,
    core.Multicast,
    core.Congested,
    core.Captured,
    core.Restart,
    core.Unreachable,
    BEAT,
)  # fmt: skip


def central_figure(name: str, packets: PacketSet, *arrows: Arrow) -> Figure:
    """The figure of membership and of a protocol; what neither mentions is discarded."""
    known = (*ARROWS, *arrows)
    rest = discarded(known, CentralState, (*packets.records, *EVENTS))
    return Figure(name, OUTSIDE, (*known, *rest))
