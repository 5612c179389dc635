"""Replicas on a simulated group with extended virtual synchrony, their disks, and all that befalls
both: what a run leaves behind is judged by the laws of replication."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from random import Random
from typing import Any

from unisono.core import Fail, Persist
from unisono.laws.replication import ReplicaEvent, judge_replication, stable_is_logged
from unisono.laws.verdict import Violation, violations
from unisono.net import stable
from unisono.services.replication.effects import (
    AdoptCheckpoint,
    Interrupted,
    Ordered,
    Post,
    RegularView,
    SendCheckpoint,
    SendGreens,
    StableUpTo,
    TellSoon,
    TransitionalView,
)
from unisono.services.replication.engine import ReplicaEngine
from unisono.services.replication.pieces import checkpoint_pieces
from unisono.services.replication.records import (
    CheckpointRecord,
    GreensMessage,
    KeptRecord,
    LogCheckpoint,
    RedRecord,
    Update,
    UpdateKind,
    VotingRecord,
    message_bytes,
    read_record,
    record_bytes,
)
from unisono.services.replication.recovery import greens_of
from unisono.services.replication.voting import electors, has_majority


@dataclass(eq=False)
class SimView:
    """The messages of one view, in their total order, and how far each member has them."""

    id: str
    names: tuple[str, ...]
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    received: dict[str, int] = field(default_factory=dict)
    safe: dict[str, int] = field(default_factory=dict)
    """How far each member knows that all have them."""


class SimDisk:
    """The records of a log: durable ones, and the bytes of a write that is under way."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self._written = b""

    def write(self, records: list[bytes]) -> None:
        self._written = b"".join(stable._written(stable._RECORD, each) for each in records)

    @property
    def is_written(self) -> bool:
        """Whether a sync is to follow."""
        return bool(self._written)

    def sync(self) -> None:
        self.tear(len(self._written))

    def tear(self, nbytes: int) -> None:
        """Only so many bytes of the write are there after a crash, and zeros for the rest."""
        torn = self._written[:nbytes] + bytes(len(self._written) - nbytes)
        entries = stable._sound_entries(BytesIO(torn), len(torn))
        self.records += [entry.data for entry in entries]
        self._written = b""


class SimReplica:
    """A name, its disk, and the process that runs there now."""

    def __init__(self, world: ReplicaWorld, name: str, instance: int, founders: list[str]) -> None:
        self.world, self.name, self.instance, self.founders = world, name, instance, founders
        self.disk = SimDisk()
        self.engine: ReplicaEngine | None = None
        self.stream: deque[Any] = deque()
        self.pending: deque[Any] = deque()
        self.batch: deque[Any] = deque()
        """Effects whose records are written together; then they are performed."""
        self.applied = self.told = 0
        """The last position here, and the last that the application was told."""
        self.state: list[str] = []
        self.tells = False
        self.is_gone = self.is_out = self.is_full = False
        """Lost for ever; taken out of the group; without room on its disk."""

    @property
    def may_start(self) -> bool:
        return not (self.is_gone or self.is_out)

    @property
    def is_busy(self) -> bool:
        return bool(self.pending or self.batch or self.disk.is_written)

    def start(self) -> None:
        assert self.may_start
        self.begin()

    def begin(self) -> None:
        assert self.engine is None
        self.engine = self.world.engine_of(self.name, self.instance, self.founders)
        self.engine.restore(self.disk.records)
        self.applied, self.state = 0, []
        late: list[Update] = []
        for each in greens_of(self.disk.records):
            self._apply(each)
            if isinstance(each, Update) and self.applied > self.told:
                late.append(each)
        assert self.applied == self.engine.order.green
        self.world.note(self.name, "started", self.applied - len(late))
        for at, update in enumerate(late, self.applied - len(late) + 1):
            self.world.note(self.name, "green", at, update)
        self.told = self.applied

    def _apply(self, each: Update | LogCheckpoint) -> None:
        if isinstance(each, LogCheckpoint):
            self.applied = each.position
            self.state = each.state.decode().split()
        else:
            self.applied += 1
            self.state.append(f"{each.submitter}:{each.number}")

    def crash(self) -> None:
        self.engine = None
        self.stream.clear()
        self.pending.clear()
        self.batch.clear()
        if self.disk.is_written:
            self.disk.tear(self.world.dice.randint(0, len(self.disk._written)))
        self.tells = False
        self.world.note(self.name, "crashed")

    def step(self) -> None:
        """The engine takes the next of the stream."""
        assert self.engine is not None
        item = self.stream.popleft()
        if isinstance(item, tuple):
            self.do(self.engine.deliver(*item))
        else:
            self.do(self.engine.install(item))

    def do(self, effects: Iterable[Any]) -> None:
        self.pending.extend(effects)

    def submit(self, kind: UpdateKind = UpdateKind.APPLICATION, content: bytes = b"x") -> None:
        assert self.engine is not None
        made, effects = self.engine.submit([content], kind)
        self.do([effects[0], ("red", made[0]), *effects[1:]])

    def perform(self) -> None:
        """Write the records of all effects that wait, or make them durable, or perform one."""
        if self.disk.is_written:
            self.disk.sync()
        elif self.batch:
            self._perform_one(self.batch.popleft())
        else:
            self.batch, self.pending = self.pending, deque()
            self.disk.write([each.record for each in self.batch if isinstance(each, Persist)])
            if self.is_full and self.disk.is_written:
                self.world.depart(self.name)

    def _perform_one(self, effect: Any) -> None:
        world, engine = self.world, self.engine
        assert engine is not None
        match effect:
            case Persist():
                pass
            case ("red", update):
                world.note(self.name, "red", 0, update)
            case Post():
                world.send(self.name, effect.payload)
            case Ordered():
                for position, update in enumerate(effect.updates, effect.first):
                    self._apply(update)
                    world.note(self.name, "green", position, update)
                self.told = self.applied
                self.do(engine.wrote(self.applied))
            case AdoptCheckpoint():
                self._apply(effect.checkpoint)
                world.note(self.name, "adopted", self.applied)
                self.told = self.applied
                self.do(engine.wrote(self.applied))
            case StableUpTo():
                world.note(self.name, "stable", effect.position, members=effect.members)
            case SendGreens() | SendCheckpoint() if effect.component != engine.component.here:
                pass  # Another exchange has begun.
            case SendGreens():
                greens = self.greens()
                base = self.applied - len(greens)
                some = greens[effect.first - 1 - base : effect.last - base]
                assert len(some) == effect.last - effect.first + 1
                message = GreensMessage(effect.component, effect.first, tuple(some))
                world.send(self.name, message_bytes(message))
            case SendCheckpoint():
                whole = LogCheckpoint(
                    engine.order.green,
                    engine.checkpoint(b"").cuts,
                    engine.order.members,
                    " ".join(self.state).encode(),
                )
                assert self.applied == engine.order.green
                for piece in checkpoint_pieces(effect.component, whole):
                    world.send(self.name, message_bytes(piece))
            case TellSoon():
                self.tells = True
            case Fail():
                assert "taken out" in effect.reason or self.is_gone, effect.reason
                self.is_out = True
                world.depart(self.name)
        world.steps += 1

    def known_logs(self) -> set[str]:
        """Of which it remembers on its disk that they exist."""
        votes = [
            record.vote
            for record in map(read_record, self.disk.records)
            if isinstance(record, VotingRecord)
        ]
        return {name for name, _ in votes[-1].instances} if votes else set()

    def greens(self) -> list[Update]:
        """Those that the log has without a gap up to the last."""
        assert self.engine is not None
        kept = [
            update
            for record in map(read_record, self.disk.records)
            if isinstance(record, KeptRecord)
            for update in record.updates
        ]
        after = [each for each in greens_of(self.disk.records) if isinstance(each, Update)]
        return [*kept, *after][-(self.applied - self.engine.order.base) or len(kept + after) :]

    def compact(self, keep: int) -> None:
        """Make a checkpoint, and keep so many updates before it."""
        engine = self.engine
        assert engine is not None
        if self.is_busy or self.applied != engine.order.green:
            return
        greens = self.greens()
        kept = greens[max(0, len(greens) - keep) :]
        checkpoint = engine.checkpoint(" ".join(self.state).encode())
        engine.order.forget_before(checkpoint.position - len(kept))
        own = [*engine.submissions.outstanding()]
        reds = engine.order.reds()
        self.disk.records = [
            record_bytes(KeptRecord(tuple(kept))),
            record_bytes(CheckpointRecord(checkpoint)),
            record_bytes(VotingRecord(engine.choice.state)),
            record_bytes(RedRecord((*reds, *own))),
        ]

    def tell(self) -> None:
        assert self.engine is not None
        self.tells = False
        self.do(self.engine.tell())


STRIKES = (
    *("part", "part", "crash", "crash_all", "start", "start", "start", "interrupt"),
    *("reconfigure", "lose", "fill", "flurry"),
)


class ReplicaWorld:
    """Everything that happens is drawn from one seed."""

    def __init__(
        self,
        seed: int,
        names: str = "abc",
        newcomers: str = "",
        engine: type[ReplicaEngine] = ReplicaEngine,
    ) -> None:
        self.dice = Random(seed)
        self.kind = engine
        self.steps = 0
        self.rows: list[ReplicaEvent] = []
        self.view_of: dict[str, SimView] = {}
        self.views = 0
        self.replicas: dict[str, SimReplica] = {}
        for at, name in enumerate((*names, *newcomers)):
            self.replicas[name] = SimReplica(self, name, at + 1, list(names))
        self.loss = 0.0
        """How likely a replica is lost, once a run."""

    def engine_of(self, name: str, instance: int, founders: list[str]) -> ReplicaEngine:
        return self.kind(name, instance, founders)

    def note(
        self,
        name: str,
        what: str,
        position: int = 0,
        update: Update | None = None,
        members: tuple[str, ...] = (),
    ) -> None:
        if self.replicas[name].is_gone:
            return  # With its log went what is known of it.
        submitter, number = (update.submitter, update.number) if update else ("", 0)
        self.rows.append(
            ReplicaEvent(len(self.rows), name, what, position, submitter, number, members)
        )

    # -- the group --------------------------------------------------------------------------------

    def send(self, name: str, payload: bytes) -> None:
        view = self.view_of.get(name)
        if view is not None:
            view.messages.append((name, payload))

    def receive(self, name: str, count: int = 1) -> None:
        """A member gets more messages; what all have is delivered, when it comes to know."""
        view = self.view_of[name]
        view.received[name] = min(len(view.messages), view.received.get(name, 0) + count)

    def deliver_safe(self, name: str) -> None:
        view = self.view_of[name]
        line = min(view.received.get(each, 0) for each in view.names)
        self._deliver(view, name, line)
        view.safe[name] = max(line, view.safe.get(name, 0))

    def _deliver(self, view: SimView, name: str, upto: int) -> None:
        for message in view.messages[view.safe.get(name, 0) : upto]:
            self.replicas[name].stream.append(message)

    def part(self, name_sets: list[list[str]]) -> None:
        """New views of these. Those that come along from one view end it alike."""
        alive = {name for name, each in self.replicas.items() if each.engine is not None}
        for names in name_sets:
            together: dict[str, list[str]] = {}
            for name in names:
                if name in self.view_of:
                    together.setdefault(self.view_of[name].id, []).append(name)
            for companions in together.values():
                view = self.view_of[companions[0]]
                regular = max(view.safe.get(each, 0) for each in companions)
                if len(companions) == len(view.names):
                    regular = max(view.received.get(each, 0) for each in companions)
                last = max(view.received.get(each, 0) for each in companions)
                for each in companions:
                    self._deliver(view, each, regular)
                    view.safe[each] = max(regular, view.safe.get(each, 0))
                    if len(companions) < len(view.names):
                        self.replicas[each].stream.append(TransitionalView())
                        self._deliver(view, each, last)
        for names in name_sets:
            assert alive.issuperset(names)
            self.views += 1
            view = SimView(f"v{self.views}", tuple(sorted(names)))
            for name in names:
                self.view_of[name] = view
                self.replicas[name].stream.append(RegularView(view.id, view.names))

    def crash(self, name: str) -> None:
        self.replicas[name].crash()
        self.view_of.pop(name, None)

    def depart(self, name: str) -> None:
        """It leaves the group, and the others go on without it."""
        view = self.view_of.get(name)
        self.crash(name)
        if view is not None:
            rest = [each for each in view.names if self.view_of.get(each) is view]
            self.part([rest] if rest else [])

    def interrupt(self, name: str) -> None:
        """It is excluded: what was not delivered to it is not delivered any more."""
        self.view_of.pop(name, None)
        self.replicas[name].stream.append(Interrupted())

    # -- chance -----------------------------------------------------------------------------------

    def alive(self) -> list[str]:
        return [name for name, each in self.replicas.items() if each.engine is not None]

    def shuffle_views(self) -> None:
        alive = self.alive()
        if not alive:
            return
        self.dice.shuffle(alive)
        cuts = sorted(self.dice.sample(range(len(alive) + 1), min(2, len(alive))))
        if self.dice.random() < 0.5:
            cuts = []
        bounds = [0, *cuts, len(alive)]
        sets = [alive[a:b] for a, b in pairwise(bounds)]
        self.part([each for each in sets if each])

    def run(self, count: int, hazard: float = 0.02) -> None:
        dice = self.dice
        for _ in range(count):
            roll = dice.random()
            if roll < hazard:
                self.strike()
            if roll > 1 - hazard / 2:
                self.calm(dice.randint(1, 40))
            if alive := self.alive():
                self.turn(dice.choice(alive))

    def calm(self, count: int) -> None:
        """Messages are quick for a while, so that components get somewhere."""
        for _ in range(count):
            for name in self.alive():
                replica = self.replicas[name]
                if name in self.view_of:
                    self.receive(name, self.dice.randint(1, 9))
                    self.deliver_safe(name)
                for _ in range(self.dice.randint(0, 16)):
                    if replica.engine is None:
                        break
                    if replica.is_busy:
                        replica.perform()
                    elif replica.stream:
                        replica.step()
            roll = self.dice.random()
            if not self.alive():
                return
            if roll < 0.2:
                self.submit(self.dice.choice(self.alive()))
            elif roll < 0.23:
                self.reconfigure(self.dice.choice(self.alive()))

    def flurry(self) -> None:
        """All submit at once, and only some get to know that all have it, and write it."""
        dice = self.dice
        for name in self.alive():
            for _ in range(dice.randint(0, 2)):
                self.submit(name)
            self.work(name)
        for name in self.alive():
            if name in self.view_of:
                self.receive(name, dice.choice((1, 3, 1 << 30)))
        for name in self.alive():
            if name in self.view_of and dice.random() < 0.5:
                self.deliver_safe(name)
                if dice.random() < 0.7:
                    self.work(name)

    def work(self, name: str) -> None:
        """It does all that is there to do."""
        replica = self.replicas[name]
        while replica.stream or replica.is_busy:
            if replica.is_busy:
                replica.perform()
            else:
                replica.step()

    def return_some(self) -> None:
        """Some of those that are down come back, and get somewhere without the others."""
        for each in self.replicas.values():
            if each.engine is None and each.may_start and self.dice.random() < 0.7:
                each.start()
        self.shuffle_views()
        self.calm(self.dice.randint(1, 12))

    def turn(self, name: str) -> None:
        dice, replica = self.dice, self.replicas[name]
        choice = dice.randrange(7)
        if choice == 0 and name in self.view_of:
            self.receive(name, dice.randint(1, 5))
        elif choice == 1 and name in self.view_of:
            self.deliver_safe(name)
        elif choice == 2 and dice.random() < 0.3 and len(self.rows) < 4000:
            self.submit(name)
        elif choice == 3 and replica.tells:
            replica.tell()
        elif choice == 4 and dice.random() < 0.02:
            replica.compact(dice.randint(0, 5))
        elif replica.is_busy and dice.random() < 0.6:
            replica.perform()
        elif replica.stream:
            replica.step()

    def submit(self, name: str) -> None:
        replica = self.replicas[name]
        assert replica.engine is not None
        if name in replica.engine.order.members:
            replica.submit()

    def reconfigure(self, name: str) -> None:
        """A member of the primary component asks for a change of the members."""
        replica = self.replicas[name]
        engine = replica.engine
        assert engine is not None
        if not engine.is_primary:
            return
        members = engine.order.members
        outside = [
            each
            for each in self.replicas.values()
            if each.name not in members and not (each.is_out or each.is_gone)
        ]
        if outside and self.dice.random() < 0.7:
            replica.submit(UpdateKind.ADD, self.dice.choice(outside).name.encode())
        elif len(members) > 3:
            other = self.dice.choice([each for each in members if each != name])
            needed = electors(engine.choice.state, members)
            if has_majority([each for each in needed if each != other], needed):
                replica.submit(UpdateKind.REMOVE, other.encode())

    def lose(self, name: str) -> None:
        """It is gone for ever."""
        replica = self.replicas[name]
        if replica.engine is not None:
            self.crash(name)
        replica.is_gone = True
        # Another begins under its name, with nothing; nobody could know where none knows the first.
        if self.dice.random() < 0.5 and all(
            name in each.known_logs() for each in self.replicas.values() if each is not replica
        ):
            replica.disk = SimDisk()
            replica.instance += 100
            replica.applied = replica.told = 0
            replica.begin()

    def operate(self) -> None:
        """An operator takes out those that are gone, where that keeps the others waiting."""
        for gone in [each for each in self.replicas.values() if each.is_gone]:
            for name in self.alive():
                engine = self.replicas[name].engine
                assert engine is not None
                if gone.name in engine.order.members and name in engine.order.members:
                    self.replicas[name].submit(UpdateKind.REMOVE, gone.name.encode())
                    self.replicas[name].do(engine.forget(gone.name))
                    self.settle()
                    break

    def strike(self) -> None:
        dice = self.dice
        kind = dice.choice(STRIKES)
        alive = self.alive()
        down = [n for n, each in self.replicas.items() if each.engine is None and each.may_start]
        if kind == "part" and alive:
            self.shuffle_views()
        elif kind == "crash" and alive:
            for name in dice.sample(alive, dice.randint(1, len(alive))):
                self.crash(name)
            if dice.random() < 0.7:
                self.shuffle_views()
        elif kind in ("crash_all", "flurry"):
            if kind == "flurry":
                self.flurry()
            for name in self.alive():
                self.crash(name)
            self.return_some()
        elif kind == "start" and down:
            self.replicas[dice.choice(down)].start()
            if dice.random() < 0.7:
                self.shuffle_views()
        elif kind == "reconfigure" and alive:
            self.reconfigure(dice.choice(alive))
        elif kind == "fill":
            replica = self.replicas[dice.choice(list(self.replicas))]
            replica.is_full = not replica.is_full
        elif kind == "lose" and dice.random() < self.loss:
            self.loss = 0
            self.lose(dice.choice(list(self.replicas)))
            self.shuffle_views()
        elif kind == "interrupt" and alive:
            name = dice.choice(alive)
            if name in self.view_of:
                self.interrupt(name)
                self.shuffle_views()

    def heal(self) -> list[Violation]:
        """All that are not gone come back, in one view, until nothing is left to do. What the laws
        say: what only a lost replica knew is lost."""
        for each in self.replicas.values():
            each.is_full = False
            if each.engine is None and each.may_start:
                each.start()
        self.part([self.alive()])
        self.settle()
        self.operate()
        for each in self.replicas.values():
            if each.engine is not None and each.name in each.engine.order.members:
                self.note(each.name, "end", each.applied)
        gone = {each.name for each in self.replicas.values() if each.is_gone}
        rows = [row for row in self.rows if row.name not in gone and row.what != "stable"]
        stability = [row for row in self.rows if row.what != "red"]
        held = violations("stable_is_logged", "", stable_is_logged(stability))
        return [*judge_replication("", rows), *held]

    def settle(self) -> None:
        for _ in range(100_000):
            busy = False
            for name in self.alive():
                replica = self.replicas[name]
                if name in self.view_of:
                    self.receive(name, 1 << 30)
                    before = len(replica.stream)
                    self.deliver_safe(name)
                    busy |= len(replica.stream) > before
                while replica.stream or replica.is_busy or replica.tells:
                    assert replica.engine is not None
                    busy = True
                    if replica.is_busy:
                        replica.perform()
                    elif replica.stream:
                        replica.step()
                    else:
                        replica.tell()
            if not busy:
                return
        raise AssertionError("never settles")
