"""A stage on which cores act out a written history: virtual time, a network that obeys the script.

Each command prints what it led to. Packets take one millisecond; nothing is random.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from unisono.core import (
    Adopt,
    Answer,
    Arm,
    Capture,
    Captured,
    Checkpoint,
    Congested,
    Core,
    CoreConfig,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    Install,
    Join,
    Leave,
    Multicast,
    Persist,
    Probe,
    Received,
    Request,
    Restart,
    Send,
    Stabilize,
    Unreachable,
    Warn,
)
from unisono.fsa import Machine
from unisono.laws import LAWS
from unisono.model import Address, Member, ServiceLevel, View
from unisono.protocols import spec
from unisono.requests import command_of
from unisono.sim.plan import service_of
from unisono.trace.history import History
from unisono.trace.record import Row
from unisono.trace.tap import Tap

LATENCY_US = 1_000
CAPTURE_US = 2_000
"""An application takes a moment to hand out its state."""
STEPS_MAX = 100_000


class Rows:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def write(self, row: Row) -> None:
        self.rows.append(row)

    def close(self) -> None: ...


class Actor:
    """One process on the stage."""

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        """Its place in `start`: what a protocol with roles appoints by."""
        self.address = Address(f"10.0.0.{index + 1}", 7000)
        self.incarnation = 0
        self.protocol = ""
        self.own: dict[str, int] = {}
        """Where it is set otherwise than the others."""
        self.core: Tap | None = None
        self.inner: Any = None
        self.lives: list[Any] = []
        self.deadlines: dict[object, int] = {}
        self.log: list[str] = []
        self.views: list[View] = []
        self.records: list[bytes] = []
        """What its cores made safe; the next life is told."""
        self.durable = True


def states(actor: Actor) -> dict[str, str]:
    """The state of the core's machine; of several machines, each one's by its figure's name."""
    inside = vars(actor.inner)
    if "machine" in inside:
        return {"": inside["machine"].state.name}
    machines = [each for each in inside.values() if isinstance(each, Machine)]
    return {machine.figure.name: machine.state.name for machine in machines}


class Stage:
    """Reads commands, one a line, and tells what happened."""

    def __init__(self) -> None:
        self.now_us = 0
        self.actors: dict[str, Actor] = {}
        self.sink = Rows()
        self.lines: list[str] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._cut: set[tuple[str, str]] = set()
        self._lose: dict[tuple[str, str], int] = {}
        self._delayed: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._lose_named: dict[tuple[str, str, str], int] = {}
        self._show: tuple[str, ...] = ()
        self._paused: set[str] = set()
        self._refuses = False
        self._options: dict[str, int] = {}
        self._spec = spec("rmcast")
        self._service: ServiceLevel | None = None
        self._watched: tuple[str, ...] = ()

    # -- the script ---------------------------------------------------------------------------

    def obey(self, script: str) -> str:
        self.lines = []
        for line in script.splitlines():
            words = line.split()
            if words and not line.startswith("#"):
                getattr(self, f"do_{words[0]}")(*words[1:])
        return "\n".join(self.lines) or "quiet"

    def do_start(self, protocol: str, *names: str) -> None:
        self._spec = spec(protocol)
        for name in names:
            if "=" in name:
                key, _, value = name.partition("=")
                self._options[key] = int(value)
            else:
                self.actors[name] = Actor(name, len(self.actors))
        self.say(f"{protocol}: {' '.join(self.actors)}")

    def do_join(self, *names: str) -> None:
        for name in names:
            self.do_make(name)
            actor = self.actors[name]
            if actor.records:
                self._step(actor, Restart(tuple(actor.records)))
            self._step(actor, Join())

    def do_make(self, *names: str) -> None:
        """A member that has not been asked to join yet."""
        for name in names:
            actor = self.actors[name]
            actor.incarnation += 1
            given = {**self._options, **actor.own}
            state = given.pop("state", 0)
            octets, message = given.pop("packet", 1400), given.pop("message", 64 << 20)
            member = Member(name, actor.address, actor.incarnation)
            terms = {"replayable": "true"} if given.pop("replayable", 0) else {}
            its = spec(actor.protocol) if actor.protocol else self._spec
            options = {k: v for k, v in given.items() if its is self._spec or k in its.options}
            actor.inner = its.make(
                CoreConfig(
                    member,
                    "stage",
                    seed=len(self.actors) * 100 + actor.incarnation + ord(name[0]),
                    packet_bytes_max=octets,
                    message_bytes_max=message,
                    with_state=bool(state),
                    options=its.assign_roles(actor.index, len(self.actors), options),
                    durable=actor.durable,
                    terms=terms,
                )
            )
            self.born(actor)
            actor.lives.append(actor.inner)
            actor.core = Tap(actor.inner, self._spec.name, "stage", self.sink, detail=False)

    def born(self, actor: Actor) -> None:
        """A core was made: for those who look inside."""

    def do_unlike(self, name: str, *words: str) -> None:
        """Somebody set this one otherwise than the others: `unlike c mtp state=1`."""
        actor = self.actors[name]
        for word in words:
            key, given, value = word.partition("=")
            if given:
                actor.own[key] = int(value)
            else:
                actor.protocol = word

    def do_double(self, name: str, other: str) -> None:
        """Another process with the same role, elsewhere: somebody made a mistake."""
        actor = self.actors[other] = Actor(other, self.actors[name].index)
        actor.address = Address(f"10.0.1.{len(self.actors)}", 7000)

    def do_say(self, name: str, *words: str) -> None:
        self._multicast(name, [word.encode() for word in words])

    def do_shout(self, name: str, octets: str) -> None:
        self._multicast(name, [b"x" * int(octets)])

    def _multicast(self, name: str, payloads: list[bytes]) -> None:
        """With the strongest service on offer, unless another was chosen: the laws of order look
        at nothing weaker."""
        service = max(self._spec.services) if self._service is None else self._service
        self._step(self.actors[name], Multicast(payloads, service))

    def do_service(self, name: str) -> None:
        """What is said from now on asks for this."""
        self._service = service_of(name)

    def do_request(self, name: str, *what: str) -> None:
        command = command_of(" ".join(what), self._spec.requests)
        self._step(self.actors[name], Request(command))

    def do_leave(self, name: str) -> None:
        self._step(self.actors[name], Leave())

    def do_congest(self, name: str, how: str) -> None:
        self._step(self.actors[name], Congested(how == "on"))

    def do_crash(self, name: str) -> None:
        actor = self.actors[name]
        assert actor.core is not None
        actor.core.note(self.now_us, "crash")
        actor.core, actor.deadlines = None, {}
        self.say(f"{name} crashed")

    def do_amnesia(self, name: str) -> None:
        """A crash of one that has no stable storage."""
        self.do_crash(name)
        self.actors[name].records.clear()
        self.actors[name].durable = False

    def do_number(self, name: str, incarnation: str) -> None:
        """Its next life has this one: a clock may have been set."""
        self.actors[name].incarnation = int(incarnation) - 1

    def do_cut(self, *names: str) -> None:
        """`cut a b` both ways; `cut a > b` from a to b only."""
        if ">" in names:
            self._cut.add((names[0], names[2]))
            return
        for one in names:
            self._cut |= {(one, other) for other in names if other != one}

    def do_split(self, *names: str) -> None:
        """`split a b | c d`: two sides that do not hear each other."""
        at = names.index("|")
        for one in names[:at]:
            for other in names[at + 1 :]:
                self._cut |= {(one, other), (other, one)}

    def do_heal(self) -> None:
        self._cut.clear()
        self._lose.clear()
        self._lose_named.clear()

    def do_delay(self, source: str, _: str, to: str) -> None:
        """`delay a > b`: packets from here on are on their way until `release`."""
        self._delayed[source, to] = []

    def do_release(self) -> None:
        """What was delayed arrives now, in its order."""
        for arrivals in self._delayed.values():
            for arrive in arrivals:
                self._later(LATENCY_US, arrive)
        self._delayed.clear()

    def do_lose(self, count: str, source: str, _: str, to: str, *words: str) -> None:
        """`lose 2 a > b`: the next two packets; `lose 2 a > b nak`: the next two whose label begins
        so."""
        if words:
            self._lose_named[source, to, " ".join(words)] = int(count)
        else:
            self._lose[source, to] = int(count)

    def do_show(self, *words: str) -> None:
        """Tell of the packets whose label begins with one of these words, as they are sent."""
        self._show = words

    def do_watch(self, *machines: str) -> None:
        """Of a core with several machines, tell of these as they change."""
        self._watched = machines

    def do_refuse(self) -> None:
        """From now on the network tells who probes a port that its owner is dead."""
        self._refuses = True

    def do_pause(self, name: str) -> None:
        self._paused.add(name)

    def do_resume(self, name: str) -> None:
        self._paused.discard(name)

    def do_advance(self, amount: str) -> None:
        end = self.now_us + int(amount.removesuffix("ms")) * 1_000
        for _ in range(STEPS_MAX):
            if not self.advance_one(end):
                return
        raise AssertionError("the stage never comes to rest")

    def advance_one(self, end: int) -> bool:
        """The next timer or packet until then; False if there is none."""
        nearest = min(
            (
                (at, actor.name, str(timer), timer)
                for actor in self.actors.values()
                if actor.name not in self._paused
                for timer, at in actor.deadlines.items()
            ),
            default=None,
        )
        packet_at = self._queue[0][0] if self._queue else end + 1
        if nearest is not None and nearest[0] <= min(packet_at, end):
            self.now_us = max(self.now_us, nearest[0])
            actor = self.actors[nearest[1]]
            del actor.deadlines[nearest[3]]
            self._step(actor, Expired(nearest[3]))
        elif packet_at <= end:
            self.now_us = max(self.now_us, packet_at)
            heapq.heappop(self._queue)[2]()
        else:
            self.now_us = end
            return False
        return True

    def do_walked(self, *parts: str) -> None:
        """The arrows taken so far whose name has these words in it; the scenario exists for one."""
        words = " ".join(parts)
        found: dict[str, int] = {}
        for actor in self.actors.values():
            for life in actor.lives:
                for arrow, count in life.transition_counts().items():
                    if words in arrow:
                        found[arrow] = found.get(arrow, 0) + count
        for arrow in sorted(found):
            self.say(arrow)

    def do_check(self, *laws: str) -> None:
        history = History("stage", self._spec.name, "stage", tuple(self.sink.rows))
        for law in laws:
            broken = LAWS[law].check(history)
            self.say(f"{law}: {'broken ' + str(broken) if broken else 'kept'}")

    def do_state(self, *names: str) -> None:
        for name in names or tuple(self.actors):
            actor = self.actors[name]
            inside = " ".join(f"{which} {state}".strip() for which, state in states(actor).items())
            self.say(f"{name} is {inside if actor.core is not None else 'crashed'}")

    def do_counts(self, name: str, *prefixes: str) -> None:
        counts = self.actors[name].inner.counts
        for key in sorted(counts):
            if key.startswith(prefixes):
                self.say(f"{name} {key} {counts[key]}")

    def do_held(self, name: str) -> None:
        """How many chunks, messages, or turns, the member still holds for others."""
        inner = self.actors[name].inner
        if self._spec.name == "mtp":
            held = len(inner.outbound.held)
        elif self._spec.name == "ring":
            held = len(inner.ordering.window)
        else:
            held = sum(len(peer.window) for peer in inner.roster.peers.values())
        self.say(f"{name} holds {held}")

    def do_told(self, name: str) -> None:
        """What the member's last view said of itself."""
        self.say(f"{name} was told: {self.actors[name].views[-1].detail}")

    # -- the world ----------------------------------------------------------------------------

    def say(self, words: str) -> None:
        self.lines.append(words)

    def _step(self, actor: Actor, event: Event) -> None:
        core: Core | None = actor.core
        if core is None:
            return
        before = states(actor)
        effects = core.step(self.now_us, event)
        for which, after in states(actor).items():
            if before[which] != after and (not which or which in self._watched):
                self.say(f"{actor.name}: {which} {before[which]} > {after}".replace(":  ", ": "))
        for effect in effects:
            self._perform(actor, effect)

    def _perform(self, actor: Actor, effect: Effect) -> None:
        match effect:
            case Send(to, packets):
                self._carry(actor, to, [bytes(packet) for packet in packets])
            case Probe(to):
                self._probe(actor, to)
            case Arm(timer, after_us):
                actor.deadlines[timer] = self.now_us + after_us
            case Disarm(timer):
                actor.deadlines.pop(timer, None)
            case Deliver(messages):
                for m in messages:
                    words = (
                        m.payload.decode() if len(m.payload) < 40 else f"{len(m.payload)} octets"
                    )
                    actor.log.append(f"{m.sender}:{m.number}")
                    self.say(f"{actor.name} delivers {m.sender}:{m.number} {words}")
            case Install(view):
                actor.views.append(view)
                cut = " ".join(f"{who}:{n}" for who, n in view.cut if n)
                members = " ".join(map(str, view.members))
                self.say(f"{actor.name} view {view.id} {members}{' from ' + cut if cut else ''}")
                for change in view.changes:
                    if change.number is not None:
                        self.say(f"{actor.name} sees {change}")
            case Stabilize(messages, holders):
                for m in messages:
                    names = " ".join(holder.name for holder in holders)
                    self.say(f"{actor.name} stable {m.sender}:{m.number} at {names}")
            case Answer(what, cause, _, _):
                self.say(f"{actor.name} is answered: {what} {cause.name if cause else 'granted'}")
            case Capture(key):
                event = Captured(key, " ".join(actor.log).encode())
                self._later(CAPTURE_US, lambda: self._step(actor, event))
            case Persist(record):
                actor.records.append(record)
            case Checkpoint(record):
                actor.records[:] = [record]
            case Adopt(state):
                actor.log = state.decode().split()
                self.say(f"{actor.name} adopts [{state.decode()}]")
            case Warn(text):
                self.say(f"{actor.name} warns: {text}" if text else f"{actor.name} warns no more")
            case Fail(reason, _, known):
                higher = f"; known is {actor.name}#{known}" if known else ""
                self.say(f"{actor.name} stops: {reason}{higher}")
            case Depart():
                self.say(f"{actor.name} has left")

    def _probe(self, actor: Actor, to: tuple[Address, ...]) -> None:
        for other in self.actors.values() if self._refuses else ():
            pair = {(actor.name, other.name), (other.name, actor.name)}
            if other.address in to and other.core is None and not pair & self._cut:
                event = Unreachable(other.address)
                self._later(2 * LATENCY_US, lambda event=event: self._step(actor, event))

    def _carry(self, actor: Actor, to: object, packets: list[bytes]) -> None:
        if self._show:
            self._tell_packets(actor, to, packets)
        for other in self.actors.values():
            if isinstance(to, tuple) and other.address not in to:
                continue
            if other is actor or (actor.name, other.name) in self._cut:
                continue
            sent = packets
            lose = self._lose.get((actor.name, other.name), 0)
            if lose:
                self._lose[actor.name, other.name] = max(0, lose - len(sent))
                sent = sent[lose:]
            sent = self._without_lost(actor, other, sent)
            if sent and (actor.name, other.name) in self._delayed:
                self._delayed[actor.name, other.name].append(self._arrival(actor, other, sent))
            elif sent:
                self._later(LATENCY_US, self._arrival(actor, other, sent))

    def _without_lost(self, actor: Actor, other: Actor, packets: list[bytes]) -> list[bytes]:
        """The packets without those of a label that is to be lost."""
        kept = []
        for packet in packets if self._lose_named else ():
            label = self._spec.label(packet)
            for (source, to, words), count in self._lose_named.items():
                if count and (source, to) == (actor.name, other.name) and label.startswith(words):
                    self._lose_named[source, to, words] -= 1
                    break
            else:
                kept.append(packet)
        return kept if self._lose_named else packets

    def _tell_packets(self, actor: Actor, to: object, packets: list[bytes]) -> None:
        names = [o.name for o in self.actors.values() if isinstance(to, tuple) and o.address in to]
        for packet in packets:
            label = self._spec.label(packet)
            if label.startswith(self._show):
                self.say(f"{actor.name} > {' '.join(names) or '*'}: {label}")

    def _later(self, after_us: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_us + after_us, self._count, what))

    def _arrival(self, source: Actor, to: Actor, packets: list[bytes]) -> Callable[[], None]:
        def arrive() -> None:
            if to.name in self._paused:
                self._later(10_000, arrive)
            else:
                self._step(to, Received(source.address, packets))

        return arrive
