"""A world of registries: one order of messages, daemons that apply it at their own pace, and
clients that read their streams, give their state, and record what they read.

Views of the ring are not in the order: each daemon sees them somewhere, and one that was apart for
a while, and comes back, sees none of those without it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from unisono.client.frames import (
    BundleReader,
    FrameKind,
    SubmitFrame,
    bundle_of,
    deliver,
    submit_head,
)
from unisono.client.lock_frames import LockFrame
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
)
from unisono.daemon.records import (
    ClientDied,
    ClientJoined,
    ClientKey,
    ClientLeft,
    ClientLock,
    MulticastFields,
    StateFields,
    Stranger,
    encoded,
)
from unisono.daemon.registry import Registry, RegistryLimits
from unisono.model import Address, ChangeKind, Member, Message, Service, View, is_ordered

GROUPS = ("g", "h", "i")
CLOSED = "i"
"""Only members send to this one."""
LEVELS = (Service.AGREED, Service.AGREED, Service.SAFE, Service.FIFO)


def daemon(at: int) -> Member:
    return Member(f"d{at}", Address("127.0.0.1", 7000 + at), at + 1)


@dataclass(slots=True)
class Reader:
    """A client: its stream, and the application behind it."""

    key: ClientKey
    name: str
    group: str
    with_state: bool
    stream: deque[object] = field(default_factory=deque)
    held: deque[object] | None = None
    views: list[View] = field(default_factory=list)
    heard: list[Message] = field(default_factory=list)
    """Since its own first view."""
    log: list[int] = field(default_factory=list)
    """The application's state: the places of all messages of its group, as far as it knows."""
    said: int = 0
    refused: str = ""
    parted: bool = False
    restored: bool = False
    asked: dict[int, LockFrame] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)

    def put(self, entry: object) -> None:
        (self.stream if self.held is None else self.held).append(entry)

    def read(self, world: World) -> None:
        entry = self.stream.popleft()
        if isinstance(entry, Message):
            assert self.views, "a message before the first view"
            if self.group == CLOSED:
                assert entry.sender in self.views[-1].members, "an outsider in a closed group"
            self.heard.append(entry)
            if entry.seq is not None:
                self.log.append(entry.seq)
        elif isinstance(entry, View):
            self.views.append(entry)
        elif isinstance(entry, Answer):
            assert entry.key not in self.answers, "answered twice"
            self.answers[entry.key] = entry
        elif isinstance(entry, CaptureState):
            state = ",".join(map(str, self.log)).encode()
            world.say(self.key.daemon, encoded(StateFields(False, entry.key, state)))
        elif isinstance(entry, AdoptState):
            assert not self.views and not self.log, "state after the first view"
            self.log = [int(text) for text in bytes(entry.state).decode().split(",") if text]
            self.restored = True


class World:
    """The order is a list; daemon `d` has applied `applied[d]` of it, and sees `seen[d]` next."""

    def __init__(self, seed: int, made: type[Registry] = Registry, daemons: int = 3) -> None:
        self.dice = random.Random(seed)
        self.made = made
        self.order: list[tuple[Member, bytes]] = []
        self.seen: dict[Member, deque[View]] = {}
        self.apart: set[Member] = set()
        self.lines: dict[Member, deque[bytes]] = {}
        """What a daemon multicast and the ring has not ordered yet."""
        self.registries: dict[Member, Registry] = {}
        self.applied: dict[Member, int] = {}
        self.readers: dict[ClientKey, Reader] = {}
        self.gone: set[ClientKey] = set()
        self.snapshots: dict[int, bytes] = {}
        """By how much of the order was applied: all must have the same."""
        self.views: dict[str, View] = {}
        self.alive: list[Member] = []
        self.number = 0
        self._hearing = BundleReader()
        for at in range(daemons):
            self.enter(daemon(at))

    # -- the ring -------------------------------------------------------------------------------

    def together(self) -> list[Member]:
        return [who for who in self.alive if who not in self.apart]

    def view(self) -> None:
        """All that precedes the view is delivered before it."""
        for who in self.together():
            self.settle(who)
            self.seen[who].append(View(tuple(self.together()), f"ring-{len(self.order)}"))

    def look(self, who: Member) -> None:
        if self.seen[who]:
            for record in self.registries[who].ring(self.seen[who].popleft()):
                self.say(who, record)

    def part(self, who: Member) -> None:
        """It is partitioned: the others see that, and it receives nothing until it is back."""
        self.apart.add(who)
        self.view()

    def come_back(self, who: Member) -> None:
        self.apart.discard(who)
        self.view()

    def enter(self, who: Member) -> None:
        """A daemon comes, and is handed the state at its place."""
        if not self.alive:
            self.seen[who] = deque()
            self.registries[who] = self.made(
                who, RegistryLimits(groups_count_max=3, members_count_max=5)
            )
        else:
            giver = self.together()[0]
            self.settle(giver)
            self.seen[who] = deque()
            state = self.registries[giver].snapshot()
            self.registries[who] = self.made.restored(who, state)
        self.applied[who] = len(self.order)
        self.lines[who] = deque()
        self.alive.append(who)
        self.view()

    def crash(self, who: Member) -> None:
        """A daemon dies, and its clients are cut off. Its last records may be lost."""
        for _ in range(self.dice.randint(0, len(self.lines[who]))):
            self.order.append((who, self.lines[who].popleft()))
        self.alive.remove(who)
        self.apart.discard(who)
        del self.lines[who], self.registries[who]
        self.gone |= {key for key in self.readers if key.daemon == who}
        self.view()

    def say(self, who: Member, record: bytes) -> None:
        if who in self.lines:
            self.lines[who].append(record)

    def arrange(self, who: Member) -> None:
        if self.lines[who]:
            self.order.append((who, self.lines[who].popleft()))

    def apply(self, who: Member) -> None:
        at, registry = self.applied[who], self.registries[who]
        if at == len(self.order):
            return
        entry = self.order[at]
        effects = registry.deliver(*entry)
        self.applied[who] = at + 1
        for effect in effects:
            self.perform(who, effect)
        state = registry.snapshot()
        assert self.snapshots.setdefault(at + 1, state) == state, f"{who} differs after {entry}"

    def settle(self, who: Member) -> None:
        while self.applied[who] < len(self.order):
            self.apply(who)

    def perform(self, who: Member, effect: Effect) -> None:
        reader = lambda number: self.readers[ClientKey(who, number)]  # noqa: E731
        if isinstance(effect, DeliverBundle):
            frame = deliver(FrameKind.DELIVER, *effect[1:6], effect.bundle)
            for number in effect.to:
                for message in self._hearing.run(memoryview(frame)[5:], "").messages():
                    reader(number).put(message)
        elif isinstance(effect, InstallView):
            known = self.views.setdefault(effect.view.id, effect.view)
            assert known == effect.view, "one id, one view"
            for number in effect.to:
                reader(number).put(effect.view)
        elif isinstance(effect, AnswerClient):
            reader(effect.number).put(effect.answer)
        elif isinstance(effect, CaptureState):
            reader(effect.giver).put(effect)
        elif isinstance(effect, HoldBack):
            if reader(effect.number).held is None:
                reader(effect.number).held = deque()
            else:
                reader(effect.number).put(None)
        elif isinstance(effect, AdoptState | Release):
            held, reader(effect.number).held = list(reader(effect.number).held or ()), None
            if isinstance(effect, AdoptState):
                held = held[len(held) - held[::-1].index(None) :] if None in held else held
                reader(effect.number).put(effect)
            reader(effect.number).stream.extend(entry for entry in held if entry is not None)
        elif isinstance(effect, Disconnect):
            reader(effect.number).refused = effect.reason
            self.gone.add(ClientKey(who, effect.number))
        elif isinstance(effect, Parted):
            reader(effect.number).parted = True
            self.gone.add(ClientKey(who, effect.number))

    # -- the clients ----------------------------------------------------------------------------

    def join(self, who: Member) -> None:
        self.number += 1
        group = self.dice.choice(GROUPS)
        name = f"c{self.dice.randint(1, 12)}"
        with_state = self.dice.random() < 0.7
        key = ClientKey(who, self.number)
        self.readers[key] = Reader(key, name, group, with_state)
        joined = ClientJoined(
            key.number, group, name, self.number, with_state, closed=group == CLOSED
        )
        self.say(who, encoded(joined))

    def multicast(self, reader: Reader) -> None:
        count = self.dice.randint(1, 3)
        groups = self.dice.sample(GROUPS, self.dice.choice((1, 1, 2, 3)))
        head = submit_head(self.dice.choice(LEVELS), groups)
        bundle = bundle_of([f"{reader.name} {reader.said + i + 1}".encode() for i in range(count)])
        stranger = Stranger(reader.name, 1) if self.dice.random() < 0.1 else None
        self.say(
            reader.key.daemon,
            encoded(MulticastFields(reader.key.number, reader.said, stranger, head + bundle)),
        )
        reader.said += count

    def lock(self, reader: Reader) -> None:
        """Two locks, so that they are fought over."""
        key, dice = len(reader.asked) + 1, self.dice
        release = dice.random() < 0.4
        asked = LockFrame(key, dice.randrange(2), release, not release and dice.random() < 0.7)
        reader.asked[key] = asked
        self.say(reader.key.daemon, encoded(ClientLock(reader.key.number, asked)))

    def present(self) -> list[Reader]:
        return [each for key, each in self.readers.items() if key not in self.gone]

    def step(self) -> None:
        dice, who = self.dice, self.dice.choice(self.together())
        present = self.present()
        reader = dice.choice(present) if present else None
        move = dice.random()
        if move < 0.30:
            self.arrange(who)
        elif move < 0.55:
            self.apply(who)
        elif move < 0.62 or reader is None:
            self.join(who)
        elif move < 0.67:
            self.multicast(reader)
        elif move < 0.75:
            if reader.views:
                self.lock(reader)
        elif move < 0.93:
            if reader.stream:
                reader.read(self)
        elif move < 0.96:
            self.gone.add(reader.key)
            number = reader.key.number
            end = ClientLeft(number) if dice.random() < 0.5 else ClientDied(number, "died")
            self.say(reader.key.daemon, encoded(end))
        elif move < 0.97 and len(self.together()) > 1:
            (self.crash if dice.random() < 0.5 else self.part)(who)
        elif move < 0.98 and self.apart:
            self.come_back(dice.choice(sorted(self.apart)))
        elif move < 0.99:
            self.look(who)
        elif len(self.alive) < 4:
            self.enter(daemon(len(self.applied)))

    def finish(self) -> None:
        """Everything sent is ordered, applied and read; the states that follow from it too."""
        for who in sorted(self.apart):
            self.come_back(who)
        for _ in range(10_000):
            for who in self.alive:
                while self.seen[who]:
                    self.look(who)
                while self.lines[who]:
                    self.arrange(who)
            for who in self.alive:
                self.settle(who)
            waiting = [each for each in self.present() if each.stream]
            for reader in waiting:
                while reader.stream:
                    reader.read(self)
            if (
                not waiting
                and not any(self.lines.values())
                and not any(self.seen[who] for who in self.alive)
            ):
                return
        raise AssertionError("it never settles")


class Twin:
    """The same, slowly and naively: the streams, computed from the order alone."""

    def __init__(self, order: list[tuple[Member, bytes]], limits: RegistryLimits) -> None:
        self.members: dict[str, list[tuple[ClientKey, str]]] = {}
        self.heard: dict[ClientKey, list[tuple[bytes, int]]] = {}
        """Payload and number, from the client's join on."""
        for who, nbytes in order:
            record = records.read(nbytes)
            if isinstance(record, records.ClientJoined):
                self._join(ClientKey(who, record.number), record, limits)
            elif isinstance(record, records.ClientLeft | records.ClientDied):
                gone = ClientKey(who, record.number)
                self._drop(lambda key, gone=gone: key == gone)
            elif isinstance(record, records.DaemonLost):
                self._drop(
                    lambda key, lost=record: key.daemon == lost.daemon and key.number <= lost.last
                )
            elif isinstance(record, records.ClientMulticast):
                self._say(ClientKey(who, record.number), record)

    def _join(self, key: ClientKey, record: records.ClientJoined, limits: RegistryLimits) -> None:
        inside = self.members.get(record.group, [])
        new = not inside and len(self.members) >= limits.groups_count_max
        taken = any(name == record.name for _, name in inside)
        if not new and not taken and len(inside) < limits.members_count_max:
            self.members.setdefault(record.group, []).append((key, record.name))
            self.heard[key] = []

    def _drop(self, gone: object) -> None:
        assert callable(gone)
        kept = {
            group: [each for each in inside if not gone(each[0])]
            for group, inside in self.members.items()
        }
        self.members = {group: inside for group, inside in kept.items() if inside}

    def _say(self, key: ClientKey, record: records.ClientMulticast) -> None:
        of = {each: group for group, inside in self.members.items() for each, _ in inside}
        if record.stranger is None and key not in of:
            return
        groups = list(record.submit.groups)
        outside = record.stranger is not None or of[key] != CLOSED
        if CLOSED in groups and CLOSED in self.members and outside:
            groups.remove(CLOSED)
            if is_ordered(record.submit.level):
                return
        for group in groups:
            for each, _ in self.members.get(group, ()):
                self.heard[each] += cut(record.submit, record.before)


def cut(submit: SubmitFrame, before: int) -> list[tuple[bytes, int]]:
    sender = Member("x", Address("127.0.0.1", 1), 1)
    frame = deliver(FrameKind.DELIVER, _bytes(sender), before + 1, 0, 4, 0, submit.bundle)
    found = BundleReader().run(memoryview(frame)[5:], "").messages()
    return [(message.payload, message.number) for message in found]


def _bytes(member: Member) -> bytes:
    from unisono.client.frames import member_bytes

    return member_bytes(member)


def play(seed: int, made: type[Registry] = Registry, steps: int = 400) -> World:
    """A random history, and all that must hold of it."""
    world = World(seed, made)
    for _ in range(steps):
        world.step()
    world.finish()
    check(world)
    return world


def check(world: World) -> None:
    twin = Twin(world.order, RegistryLimits(groups_count_max=3, members_count_max=5))
    registry = world.registries[world.alive[0]]
    present = {each.key: each for each in world.present()}
    assert all(registry.clients_of(who) == () for who in world.applied if who not in world.alive)
    inside = {key: group for group, all_ in twin.members.items() for key, _ in all_}
    for group in GROUPS:
        names = [name for _, name in twin.members.get(group, ())]
        assert [member.name for member in registry.members(group)] == names
    logs: dict[str, set[tuple[int, ...]]] = {}
    by_place: dict[int, tuple[Member, int, bytes]] = {}
    for key, reader in present.items():
        if key not in inside:
            continue
        assert reader.held is None, f"{key} waits for a state for ever"
        assert reader.views[-1].members == registry.members(inside[key])
        expected = twin.heard[key]
        heard = [(message.payload, message.number) for message in reader.heard]
        if reader.restored:
            assert heard == expected[len(expected) - len(heard) :], key
        else:
            assert heard == expected, key
        for message in reader.heard:
            if message.seq is not None:
                what = (message.sender, message.number, message.payload)
                assert by_place.setdefault(message.seq, what) == what, "one place, one message"
        places = [view.seq for view in reader.views]
        assert places == sorted(set(places)), "views in their order"
        if reader.with_state:
            logs.setdefault(inside[key], set()).add(tuple(reader.log))
        check_locks(reader, registry, inside[key])
    assert all(len(each) == 1 for each in logs.values()), "all that hand state over hold the same"


def check_locks(reader: Reader, registry: Registry, group: str) -> None:
    """The views alone show which member holds a lock, and each request has its answer, but those
    that wait."""
    held: dict[int, Member] = {}
    for view in reader.views:
        for what, who, _, number in view.changes:
            if number is None:
                continue
            if what is ChangeKind.LOCK_GRANTED:
                assert number not in held, "two holders"
                (held[number],) = who
            elif what is ChangeKind.LOCK_RELEASED:
                assert held.pop(number, who[0]) == who[0], "released by another"
        assert set(held.values()) <= set(view.members), "held by the dead"
    queues = {q.number: q.members for q in registry._locks.queues() if q.group == group}
    assert held.items() <= {number: queue[0] for number, queue in queues.items()}.items()
    waits = sum(member.name == reader.name for queue in queues.values() for member in queue[1:])
    assert len(reader.asked) - len(reader.answers) == waits
