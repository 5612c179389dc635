"""The membership of all lightweight groups, decided by the ring's total order. Pure: the same input
in the same order yields the same views with the same ids at every daemon.

Only messages of the ring decide. Its views do not: a daemon that was partitioned and returns gets
every message it missed, but no view without it. So a daemon that sees another one gone multicasts
`DaemonLost`, and all remove its clients at the sequence number of the first such record.

Each view of a group and each message in the total order has a sequence number. A daemon that joins
later gets a snapshot and counts on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.client.frames import PlacedFrame, level_code, member_bytes
from unisono.core import Answer
from unisono.daemon import records
from unisono.daemon.effects import (
    AdoptState,
    AnswerClient,
    CaptureState,
    DeliverBundle,
    Disconnect,
    Effect,
    HoldBack,
    InstallView,
    Parted,
    Release,
    ReportPlace,
)
from unisono.daemon.locks import GroupLocks, LockQueue
from unisono.daemon.records import (
    ClientDied,
    ClientJoined,
    ClientKey,
    ClientLeft,
    ClientLock,
    ClientMulticast,
    ClientState,
    DaemonLost,
    StateKey,
)
from unisono.errors import BadPacket, Misuse
from unisono.fields import U32_COUNT, U64, Bit, bounded, table
from unisono.layout import decode, encode, field_of
from unisono.model import Buffer, Change, ChangeKind, Member, View, is_ordered
from unisono.wire import tag_of

SNAPSHOT_VERSION: Final = 5
MEMBERS_COUNT_MAX: Final = 16_384
"""The most that fit the frame of a view, whatever their names."""


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """Bounds shared by all daemons: those of the first one hold, and snapshots pass them on."""

    groups_count_max: int = 4096
    members_count_max: int = 4096
    """In one group."""
    clients_count_max: int = 65_535
    """In all groups."""

    def __post_init__(self) -> None:
        check_positive(self)
        if self.members_count_max > MEMBERS_COUNT_MAX:
            raise Misuse(f"members_count_max: give at most {MEMBERS_COUNT_MAX}")


@dataclass(slots=True)
class Client:
    """A member of a lightweight group."""

    key: ClientKey
    member: Member
    group: str
    with_state: bool
    ready: bool
    """It has the group's state, or does not request it."""
    replayable: bool = False
    format: str = ""
    closed: bool = False
    requested_seq: int = 0
    """The sequence number of the state that it waits for."""
    giver: ClientKey | None = None
    encoded: bytes = b""
    """The member as a frame has it."""

    def __post_init__(self) -> None:
        self.encoded = member_bytes(self.member)


class SnapshotClient(NamedTuple):
    """A client in a snapshot."""

    key: ClientKey
    member: Member
    group: str
    with_state: Bit
    ready: Bit
    replayable: Bit
    format: str
    closed: Bit
    requested_seq: U64
    giver: ClientKey | None


Limit: TypeAlias = Annotated[int, bounded("I", 1, (1 << 32) - 1)]


class Snapshot(NamedTuple):
    """A registry, for a daemon that joins the ring."""

    version: Annotated[int, bounded("H", SNAPSHOT_VERSION, SNAPSHOT_VERSION, "version")]
    incarnation: str
    seq: U64
    groups_count_max: Limit
    members_count_max: Annotated[int, bounded("I", 1, MEMBERS_COUNT_MAX)]
    clients_count_max: Limit
    clients: Annotated[tuple[SnapshotClient, ...], table(field_of(SnapshotClient), U32_COUNT)]
    locks: Annotated[tuple[LockQueue, ...], table(field_of(LockQueue), U32_COUNT)]


class Registry:
    """Ordered input in, effects for the clients of one daemon out."""

    def __init__(self, me: Member, limits: RegistryLimits | None = None) -> None:
        self.me = me
        self.limits = limits or RegistryLimits()
        self.incarnation = ""
        """Of the ring: unique to it."""
        self.seq = 0
        self.counts: Counter[str] = Counter()
        self._clients: dict[ClientKey, Client] = {}
        self._groups: dict[str, dict[ClientKey, Client]] = {}
        self._here: dict[str, tuple[int, ...]] = {}
        """Our own clients, by group."""
        self._closed: set[str] = set()
        """Groups to which only members send."""
        self._locks = GroupLocks()
        self._apply: dict[type, Callable[..., list[Effect]]] = {
            ClientMulticast: self._sent,
            ClientJoined: self._joined,
            ClientLeft: self._left,
            ClientDied: self._died,
            ClientState: self._state,
            ClientLock: self._locked,
            DaemonLost: self._lost,
        }

    def identify(self, me: Member) -> None:
        """The ring has admitted this daemon."""
        self.me = me

    def members(self, group: str) -> tuple[Member, ...]:
        return tuple(client.member for client in self._groups.get(group, {}).values())

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def clients_of(self, daemon: Member) -> tuple[int, ...]:
        return tuple(key.number for key in self._clients if key.daemon == daemon)

    # -- input ----------------------------------------------------------------------------------

    def ring(self, view: View) -> list[bytes]:
        """The records to multicast after this view of the ring: daemons that are gone."""
        there = set(view.members)
        last: dict[Member, int] = {}
        for daemon, number in self._clients:
            if daemon not in there:
                last[daemon] = max(number, last.get(daemon, 0))
        return [records.encoded(DaemonLost(number, daemon)) for daemon, number in last.items()]

    def deliver(self, daemon: Member, data: Buffer) -> list[Effect]:
        """A message of the ring. Anything but a record is counted and dropped."""
        try:
            record = records.read(data)
        except BadPacket as error:
            self.counts[f"drop.record_{error.reason}"] += 1
            return []
        return self._apply[type(record)](daemon, record)

    def _sent(self, daemon: Member, sent: ClientMulticast) -> list[Effect]:
        level, groups, bundle = sent.submit
        if sent.stranger is not None:
            client, (name, incarnation) = None, sent.stranger
            sender = member_bytes(Member(name, daemon.address, incarnation))
        else:
            client = self._clients.get(ClientKey(daemon, sent.number))
            if client is None:
                # Sent in a former incarnation of its daemon: the client is in no group now.
                self.counts["drop.unknown_client"] += 1
                return []
            sender = client.encoded
        seq = 0
        if is_ordered(level):
            seq = self.seq + 1
            self.seq += sent.messages
        effects: list[Effect] = []
        own = client.group if client is not None else ""
        refused = tuple(each for each in groups if each in self._closed and each != own)
        if daemon == self.me and (refused or own not in groups):
            placed = PlacedFrame(sent.before + 1, sent.messages, seq, refused)
            effects.append(ReportPlace(sent.number, placed))
        if refused:
            # Only in a total order do all daemons know the same groups as closed at this place.
            groups = () if seq else tuple(each for each in groups if each not in refused)
        if len(groups) == 1:
            to = self._here.get(groups[0], ())
        else:
            to = tuple(number for group in groups for number in self._here.get(group, ()))
        if to:
            code = level_code(level)
            bundled = DeliverBundle(to, sender, sent.before + 1, seq, *code, bundle, sent.messages)
            effects.append(bundled)
        return effects

    def _joined(self, daemon: Member, joined: ClientJoined) -> list[Effect]:
        key = ClientKey(daemon, joined.number)
        if reason := self._refusal(key, joined):
            self.counts["refused"] += 1
            return [Disconnect(key.number, reason)] if daemon == self.me else []
        if not self.incarnation:
            self.incarnation = f"{tag_of(f'{daemon} {daemon.address} {joined.number}') >> 32:08x}"
        member = Member(joined.name, daemon.address, joined.incarnation)
        with_state = joined.with_state
        terms = (joined.replayable, joined.format, joined.closed)
        client = Client(key, member, joined.group, with_state, not with_state, *terms)
        self._clients[key] = client
        self._groups.setdefault(joined.group, {})[key] = client
        if joined.closed:
            self._closed.add(joined.group)
        changes = (Change(ChangeKind.JOINED, (member,)),)
        view = self._next_view(joined.group, changes, f"{member.name} joined")
        new = (key.number,) if daemon == self.me else ()
        return [*self._pair(joined.group), InstallView(self._here[joined.group], view, new)]

    def _refusal(self, key: ClientKey, joined: ClientJoined) -> str:
        inside, limits = self._groups.get(joined.group), self.limits
        if key in self._clients:
            return f"this client is in group {self._clients[key].group} already"
        if len(self._clients) >= limits.clients_count_max:
            return f"the ring has {limits.clients_count_max} clients, its limit: let one leave"
        if inside is None:
            if len(self._groups) >= limits.groups_count_max:
                return f"the ring has {limits.groups_count_max} groups, its limit: let one end"
            return ""
        if len(inside) >= limits.members_count_max:
            return f"group {joined.group} has {limits.members_count_max} members, its limit"
        if any(client.member.name == joined.name for client in inside.values()):
            return f"name {joined.name} is taken in group {joined.group}"
        first = next(iter(inside.values()))
        for term in ("replayable", "closed"):
            if (value := getattr(first, term)) != getattr(joined, term):
                its, ours = str(value).lower(), str(not value).lower()
                return (
                    f"the group {joined.group!r} has {term}={its} and this member has"
                    f" {term}={ours}: give {term}={its}, or join a group of another name"
                )
        if (its := first.format) != joined.format:
            instead = f"give format={its}" if its else "leave out format="
            return (
                f"the group {joined.group!r} has format={its or 'none'} and this member has"
                f" format={joined.format or 'none'}: {instead}, or join a group of another"
                " name"
            )
        return ""

    def _left(self, daemon: Member, left: ClientLeft) -> list[Effect]:
        client = self._clients.get(ClientKey(daemon, left.number))
        effects: list[Effect] = []
        if client is not None:
            effects += self._remove([client], f"{client.member.name} left", ChangeKind.LEFT)
        return [*effects, Parted(left.number)] if daemon == self.me else effects

    def _died(self, daemon: Member, removed: ClientDied) -> list[Effect]:
        client = self._clients.get(ClientKey(daemon, removed.number))
        return self._remove([client], f"{client.member.name}: {removed.reason}") if client else []

    def _lost(self, daemon: Member, lost: DaemonLost) -> list[Effect]:
        """Removes all of its clients at this sequence number. Repeating it changes nothing."""
        removed = [
            client
            for key, client in self._clients.items()
            if key.daemon == lost.daemon and key.number <= lost.last
        ]
        effects = self._remove(removed, f"daemon {lost.daemon.name} is gone")
        if lost.daemon == self.me:
            reason = "the daemon was partitioned and the ring went on without it: join again"
            effects = [*(Disconnect(client.key.number, reason) for client in removed), *effects]
        return effects

    def _state(self, daemon: Member, state: ClientState) -> list[Effect]:
        client = self._clients.get(state.to)
        expected = client and client.giver and (client.giver.daemon, client.requested_seq)
        if client is None or expected != (daemon, state.requested_seq):
            self.counts["drop.late_state"] += 1
            return []
        here = client.key.daemon == self.me
        if state.failed:
            reason = bytes(state.state).decode("utf-8", "replace")
            refusal: list[Effect] = [Disconnect(client.key.number, reason)] if here else []
            return [
                *refusal,
                *self._remove([client], f"{client.member.name} got no state: {reason}"),
            ]
        client.ready, client.giver = True, None
        return [AdoptState(client.key.number, state.state)] if here else []

    def _locked(self, daemon: Member, lock: ClientLock) -> list[Effect]:
        client = self._clients.get(ClientKey(daemon, lock.number))
        if client is None:
            self.counts["drop.unknown_client"] += 1
            return []
        group, own = client.group, daemon == self.me
        changes, answers = self._locks.request(group, client.member, lock.request, own)
        effects: list[Effect] = []
        if changes:
            view = self._next_view(group, changes, ", ".join(map(str, changes)))
            if self._here[group]:
                effects.append(InstallView(self._here[group], view, ()))
        return [*effects, *self._answer(group, answers)]

    def _answer(self, group: str, answers: list[tuple[Member, Answer]]) -> list[Effect]:
        numbers = {client.member: key.number for key, client in self._groups[group].items()}
        return [AnswerClient(numbers[member], answer) for member, answer in answers]

    # -- views and state transfer ---------------------------------------------------------------

    def _remove(
        self, removed: Iterable[Client], reason: str, how: ChangeKind = ChangeKind.FAILED
    ) -> list[Effect]:
        """One view for each of their groups, in the order of the groups."""
        by_group: dict[str, list[Client]] = {}
        for client in removed:
            by_group.setdefault(client.group, []).append(client)
        effects: list[Effect] = []
        for group in [name for name in self._groups if name in by_group]:
            inside, out = self._groups[group], by_group[group]
            for client in out:
                del inside[client.key], self._clients[client.key]
            change = Change(how, tuple(client.member for client in out))
            changes, answers = self._locks.remove(group, change.who)
            view = self._next_view(group, (change, *changes), reason)
            if not inside:
                del self._groups[group], self._here[group]
                self._closed.discard(group)
                continue
            effects += self._pair(group)
            if self._here[group]:
                effects.append(InstallView(self._here[group], view, ()))
            effects += self._answer(group, answers)
        return effects

    def _next_view(self, group: str, changes: tuple[Change, ...], reason: str) -> View:
        inside = self._groups[group]
        self.seq += 1
        self._here[group] = tuple(key.number for key in inside if key.daemon == self.me)
        members = tuple(client.member for client in inside.values())
        name, here = f"{self.incarnation}.{self.seq}", self.seq
        first, concerned, *_ = changes[0]
        joined = concerned if first is ChangeKind.JOINED else ()
        left = concerned if first in (ChangeKind.LEFT, ChangeKind.FAILED) else ()
        return View(members, name, joined, left, here, detail=reason, changes=changes)

    def _pair(self, group: str) -> list[Effect]:
        """Give each client that waits for the state a giver, or let it begin without one. A state
        that is requested again is that of this sequence number, not of the first."""
        inside = self._groups[group]
        effects: list[Effect] = []
        for client in inside.values():
            if client.ready or client.giver in inside:
                continue
            able = (each for each in inside.values() if each.ready and each.with_state)
            giver = next(able, None)
            here = client.key.daemon == self.me
            if giver is None:
                client.ready, client.giver = True, None
                effects += [Release(client.key.number)] if here else []
                continue
            client.giver, client.requested_seq = giver.key, self.seq
            if here:
                effects.append(HoldBack(client.key.number))
            if giver.key.daemon == self.me:
                key = encode(StateKey(client.key, client.requested_seq))
                effects.append(CaptureState(giver.key.number, key))
        return effects

    # -- snapshots for joining daemons ----------------------------------------------------------

    def snapshot(self) -> bytes:
        clients = tuple(
            SnapshotClient(*(getattr(client, name) for name in SnapshotClient._fields))
            for inside in self._groups.values()
            for client in inside.values()
        )
        limits: tuple[int, int, int] = astuple(self.limits)
        locks = self._locks.queues()
        return encode(
            Snapshot(SNAPSHOT_VERSION, self.incarnation, self.seq, *limits, clients, locks)
        )

    @classmethod
    def restored(cls, me: Member, state: bytes) -> Registry:
        _, incarnation, seq, *limits, clients, locks = decode(Snapshot, state)
        found = cls(me, RegistryLimits(*limits))
        found.incarnation, found.seq, found._locks = incarnation, seq, GroupLocks(locks)
        for each in clients:
            client, key, group = Client(*each), each.key, each.group
            found._clients[key] = found._groups.setdefault(group, {}).setdefault(key, client)
        for group, inside in found._groups.items():
            found._here[group] = tuple(key.number for key in inside if key.daemon == me)
            found._closed |= {group for client in inside.values() if client.closed}
        return found


def check_positive(bounds: Any) -> None:
    for field in fields(bounds):
        value = getattr(bounds, field.name)
        if not isinstance(value, int) or value <= 0:
            raise Misuse(f"{field.name}={value!r}: give a whole number above 0")
