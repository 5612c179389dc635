"""Who is in which group, as the ring's one order tells it. Pure: the same input in the same order
brings the same views with the same ids at every daemon, and what is to be done for its clients.

Only messages of the ring decide. A view of the ring does not, since a daemon that was apart for a
while may come back and be sent each message that it missed, but no view without it: who sees that
a daemon is gone says so, and all take its clients out at the place of the first who did.

A place is counted for each view of a group and for each message that is in the total order. A
daemon that comes later is handed a snapshot and counts on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from unisono.client.frames import level_code, member_bytes
from unisono.daemon import records
from unisono.daemon.records import (
    ClientDied,
    ClientJoined,
    ClientKey,
    ClientLeft,
    ClientMulticast,
    ClientState,
    DaemonLost,
)
from unisono.errors import BadPacket, Misuse
from unisono.fields import U32, U32_COUNT, U64, Bit, bounded, table
from unisono.layout import decode, encode, field_of
from unisono.model import Buffer, Change, ChangeKind, Member, Service, ServiceLevel, View
from unisono.wire import tag_of

SNAPSHOT_VERSION: Final = 2
MEMBERS_COUNT_MAX: Final = 16_384
"""As many as the frame of a view holds, whatever their names."""


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """Bounds that all daemons must have alike: those of the first one hold, and are handed on."""

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
    octets: bytes
    """The member as bytes."""
    fed: bool = False
    ready: bool = True
    """It has the group's state, or does not want it."""
    giver: ClientKey | None = None
    asked: int = 0
    """The place of the state that it waits for."""


class SnapshotClient(NamedTuple):
    """A client in a snapshot."""

    key: ClientKey
    member: Member
    group: str
    with_state: Bit
    ready: Bit
    fed: Bit
    asked: U64
    giver: ClientKey | None


class Snapshot(NamedTuple):
    """A registry, for a daemon that joins the ring."""

    version: Annotated[int, bounded("H", SNAPSHOT_VERSION, SNAPSHOT_VERSION, "version")]
    life: str
    place: U64
    groups_count_max: U32
    members_count_max: U32
    clients_count_max: U32
    clients: Annotated[tuple[SnapshotClient, ...], table(field_of(SnapshotClient), U32_COUNT)]


# -- what a daemon is to do for its own clients -------------------------------------------------


class DeliverBundle(NamedTuple):
    """Hand this bundle to these clients."""

    to: tuple[int, ...]
    sender: bytes
    number: int
    seq: int
    code: int
    k: int
    bundle: Buffer
    messages: int


class InstallView(NamedTuple):
    """Put the view into the streams of these clients; who is new among them needs all of it."""

    to: tuple[int, ...]
    view: View
    new: tuple[int, ...]


class CaptureState(NamedTuple):
    """This client is to give its state as it is here."""

    giver: int
    key: bytes


class HoldBack(NamedTuple):
    """Hold back what comes for this client, from here on, until its state is there. What was held
    before will be in that state."""

    number: int


class AdoptState(NamedTuple):
    """The state is there: it goes before what was held back."""

    number: int
    state: Buffer


class Release(NamedTuple):
    """Nobody is left to give the state: what was held back is all there is."""

    number: int


class Disconnect(NamedTuple):
    """The client is not in a group, or not any more: it is told why."""

    number: int
    reason: str


class Parted(NamedTuple):
    """The client is out, as it asked."""

    number: int


Effect: TypeAlias = (
    DeliverBundle
    | InstallView
    | CaptureState
    | HoldBack
    | AdoptState
    | Release
    | Disconnect
    | Parted
)


class Registry:
    """Ordered input in, effects for the clients of one daemon out."""

    def __init__(self, me: Member, limits: RegistryLimits | None = None) -> None:
        self.me = me
        self.limits = limits or RegistryLimits()
        self.life = ""
        """Of the ring: a name that no other life of it has."""
        self.place = 0
        self.counts: Counter[str] = Counter()
        self._clients: dict[ClientKey, Client] = {}
        self._groups: dict[str, dict[ClientKey, Client]] = {}
        self._here: dict[str, tuple[int, ...]] = {}
        """Our own clients, by group."""
        self._apply: dict[type, Callable[..., list[Effect]]] = {
            ClientMulticast: self._said,
            ClientJoined: self._joined,
            ClientLeft: self._left,
            ClientDied: self._gone,
            ClientState: self._given,
            DaemonLost: self._lost,
        }

    def members(self, group: str) -> tuple[Member, ...]:
        return tuple(client.member for client in self._groups.get(group, {}).values())

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def clients_of(self, daemon: Member) -> tuple[int, ...]:
        return tuple(key.number for key in self._clients if key.daemon == daemon)

    # -- input ----------------------------------------------------------------------------------

    def ring(self, view: View) -> list[bytes]:
        """What is to be said in the ring after this view of it: which daemons are gone."""
        there = set(view.members)
        last: dict[Member, int] = {}
        for daemon, number in self._clients:
            if daemon not in there:
                last[daemon] = max(number, last.get(daemon, 0))
        return [records.lost(daemon, number) for daemon, number in last.items()]

    def heard(self, daemon: Member, octets: Buffer) -> list[Effect]:
        """A record of a daemon's. What is no record is counted, and nothing else."""
        try:
            record = records.read(octets)
        except BadPacket as error:
            self.counts[f"drop.record_{error.reason}"] += 1
            return []
        return self._apply[type(record)](daemon, record)

    def _said(self, daemon: Member, said: ClientMulticast) -> list[Effect]:
        level, groups, bundle = said.submit
        if said.stranger is not None:
            name, incarnation = said.stranger
            sender = member_bytes(Member(name, daemon.address, incarnation))
        else:
            client = self._clients.get(ClientKey(daemon, said.number))
            if client is None:
                # Said in a former life of its daemon, and so by nobody who is in a group.
                self.counts["drop.unknown_client"] += 1
                return []
            sender = client.octets
        seq = 0
        if ordered(level):
            seq = self.place + 1
            self.place += said.messages
        if len(groups) == 1:
            to = self._here.get(groups[0], ())
        else:
            to = tuple(number for group in groups for number in self._here.get(group, ()))
        if not to:
            return []
        return [
            DeliverBundle(
                to, sender, said.before + 1, seq, *level_code(level), bundle, said.messages
            )
        ]

    def _joined(self, daemon: Member, joined: ClientJoined) -> list[Effect]:
        key = ClientKey(daemon, joined.number)
        if why := self._why_not(key, joined):
            self.counts["refused"] += 1
            return [Disconnect(key.number, why)] if daemon == self.me else []
        if not self.life:
            self.life = f"{tag_of(f'{daemon} {daemon.address} {joined.number}') >> 32:08x}"
        member = Member(joined.name, daemon.address, joined.incarnation)
        client = Client(key, member, joined.group, joined.with_state, member_bytes(member))
        client.ready, client.fed = not joined.with_state, joined.fed
        self._clients[key] = client
        self._groups.setdefault(joined.group, {})[key] = client
        change = Change(ChangeKind.JOINED, (member,))
        view = self._next_view(joined.group, change, f"{member.name} joined")
        new = (key.number,) if daemon == self.me else ()
        return [*self._pair(joined.group), InstallView(self._here[joined.group], view, new)]

    def _why_not(self, key: ClientKey, joined: ClientJoined) -> str:
        inside, limits = self._groups.get(joined.group), self.limits
        if key in self._clients:
            return f"this client is in group {self._clients[key].group} already"
        if len(self._clients) >= limits.clients_count_max:
            return f"the ring has its {limits.clients_count_max} clients: let one leave first"
        if inside is None:
            if len(self._groups) >= limits.groups_count_max:
                return f"the ring has its {limits.groups_count_max} groups: let one end first"
            return ""
        if len(inside) >= limits.members_count_max:
            return f"group {joined.group} has its {limits.members_count_max} members"
        if any(client.member.name == joined.name for client in inside.values()):
            return f"name {joined.name} is taken in group {joined.group}"
        if any(client.fed != joined.fed for client in inside.values()):
            its, ours = str(not joined.fed).lower(), str(joined.fed).lower()
            return (
                f"the group {joined.group!r} has fed={its} and this member has fed={ours}:"
                f" give fed={its}, or join a group of another name"
            )
        return ""

    def _left(self, daemon: Member, left: ClientLeft) -> list[Effect]:
        client = self._clients.get(ClientKey(daemon, left.number))
        effects: list[Effect] = []
        if client is not None:
            effects += self._remove([client], f"{client.member.name} left", ChangeKind.LEFT)
        return [*effects, Parted(left.number)] if daemon == self.me else effects

    def _gone(self, daemon: Member, gone: ClientDied) -> list[Effect]:
        client = self._clients.get(ClientKey(daemon, gone.number))
        return self._remove([client], f"{client.member.name}: {gone.why}") if client else []

    def _lost(self, daemon: Member, lost: DaemonLost) -> list[Effect]:
        """All of them at this one place. Who says it again changes nothing."""
        gone = [
            client
            for key, client in self._clients.items()
            if key.daemon == lost.daemon and key.number <= lost.last
        ]
        effects = self._remove(gone, f"daemon {lost.daemon.name} is gone")
        if lost.daemon == self.me:
            why = "the daemon was apart from the ring, which went on without it: join again"
            effects = [*(Disconnect(client.key.number, why) for client in gone), *effects]
        return effects

    def _given(self, daemon: Member, given: ClientState) -> list[Effect]:
        client = self._clients.get(given.to)
        asked = client and client.giver and (client.giver.daemon, client.asked)
        if client is None or asked != (daemon, given.asked):
            self.counts["drop.late_state"] += 1
            return []
        here = client.key.daemon == self.me
        if given.failed:
            why = bytes(given.state).decode("utf-8", "replace")
            refusal: list[Effect] = [Disconnect(client.key.number, why)] if here else []
            return [*refusal, *self._remove([client], f"{client.member.name} got no state: {why}")]
        client.ready, client.giver = True, None
        return [AdoptState(client.key.number, given.state)] if here else []

    # -- what follows ---------------------------------------------------------------------------

    def _remove(
        self, gone: Iterable[Client], why: str, how: ChangeKind = ChangeKind.FAILED
    ) -> list[Effect]:
        """Out of their groups: one view for each group, in the order of the groups."""
        by_group: dict[str, list[Client]] = {}
        for client in gone:
            by_group.setdefault(client.group, []).append(client)
        effects: list[Effect] = []
        for group in [name for name in self._groups if name in by_group]:
            inside, out = self._groups[group], by_group[group]
            for client in out:
                del inside[client.key], self._clients[client.key]
            change = Change(how, tuple(client.member for client in out))
            view = self._next_view(group, change, why)
            if not inside:
                del self._groups[group], self._here[group]
                continue
            effects += self._pair(group)
            if self._here[group]:
                effects.append(InstallView(self._here[group], view, ()))
        return effects

    def _next_view(self, group: str, change: Change, why: str) -> View:
        inside = self._groups[group]
        self.place += 1
        self._here[group] = tuple(key.number for key in inside if key.daemon == self.me)
        members = tuple(client.member for client in inside.values())
        name, here = f"{self.life}.{self.place}", self.place
        came = change.what is ChangeKind.JOINED
        joined, left = (change.who, ()) if came else ((), change.who)
        return View(members, name, joined, left, here, detail=why, changes=(change,))

    def _pair(self, group: str) -> list[Effect]:
        """Who waits for the state has a giver in the group, or begins without it. A state that is
        asked for again is that of this place, not of the first."""
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
            client.giver, client.asked = giver.key, self.place
            if here:
                effects.append(HoldBack(client.key.number))
            if giver.key.daemon == self.me:
                key = records.state_key(client.key, client.asked)
                effects.append(CaptureState(giver.key.number, key))
        return effects

    # -- for a daemon that comes later ----------------------------------------------------------

    def snapshot(self) -> bytes:
        clients = tuple(
            SnapshotClient(
                client.key,
                client.member,
                client.group,
                client.with_state,
                client.ready,
                client.fed,
                client.asked,
                client.giver,
            )
            for inside in self._groups.values()
            for client in inside.values()
        )
        limits: tuple[int, int, int] = astuple(self.limits)
        return encode(Snapshot(SNAPSHOT_VERSION, self.life, self.place, *limits, clients))

    @classmethod
    def restored(cls, me: Member, state: bytes) -> Registry:
        _, life, place, *limits, clients = decode(Snapshot, state)
        found = cls(me, RegistryLimits(*limits))
        found.life, found.place = life, place
        for key, member, group, with_state, ready, fed, asked, giver in clients:
            client = Client(key, member, group, with_state, member_bytes(member), fed, ready)
            client.giver, client.asked = giver, asked
            found._clients[key] = found._groups.setdefault(group, {}).setdefault(key, client)
        for group, inside in found._groups.items():
            found._here[group] = tuple(key.number for key in inside if key.daemon == me)
        return found


def check_positive(bounds: Any) -> None:
    for field in fields(bounds):
        value = getattr(bounds, field.name)
        if not isinstance(value, int) or value <= 0:
            raise Misuse(f"{field.name}={value!r}: give a whole number above 0")


def ordered(level: ServiceLevel) -> bool:
    """Whether messages of this level have a place in the total order."""
    return not isinstance(level, Service) or level >= Service.AGREED
