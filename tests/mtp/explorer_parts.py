"""One master and one member as the explorer keeps them: frozen, with what they have done so far.

Each step thaws a real `Master`, `Producer` or `Consumer`, lets it act, freezes it again, and checks
the laws that one process can break alone. Bits stand for numbers and for packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Consumer,
    DataStatus,
    Master,
    MessageStatus,
    Next,
    Producer,
    SendToken,
)

ANY = -1
"""As a bound: as often as it may, and not counted."""

UP, CUT, OUT, DEAD = range(4)
"""A member takes part; was given up and does not know; knows that it is out; has crashed."""

IDLE, UNHEARD, ASKED, UNGRANTED, GRANTED, HOLDING = range(6)
"""A producer: its request was lost or is under way, its grant was lost, is under way or is here."""


class Broken(Exception):
    """A law does not hold."""

    def __init__(self, law: str, why: str) -> None:
        super().__init__(f"{law}: {why}")
        self.law = law
        self.why = why


@dataclass(frozen=True)
class Case:
    """What is explored: messages of each member, faults and how often, and by which rules."""

    messages: tuple[int, ...] = (2, 1)
    """How many each member sends."""
    t: int = 2
    t_cur: int = 0
    """Tokens that may be out, if fewer than t."""
    losses: int = ANY
    """Copies that may be lost, each receiver's on its own."""
    crashes: int = 1
    slow: int = 0
    """How often the master may give up a holder that lives."""
    empties: int = 0
    """Empty packets of the master that may be on their way for any time, and be lost."""
    lives: int = 1
    """Lives that a member has: with two it joins again, with one it stays out."""
    hear: bool = True
    """Empty packets also reach a member at once, whenever they are news to it."""
    heard: tuple[MessageStatus, ...] = ()
    """Decisions that all connected members learn before anything else happens."""
    gossip: bool = False
    """Members' headers pass on what they know, whenever it is news."""
    tells: bool = False
    """The master, asked for a status that its packets no longer carry, answers."""
    by_master: bool = True
    """The master repairs what it accepted; the paper leaves that to the producer alone."""
    in_order: bool = True
    """The master takes a producer's messages in the producer's order."""
    hasty: bool = False
    """Rejoin as soon as Figure 3 requires it, though a packet with the status may still arrive."""
    reduce: bool = True
    """Fuse and forget what the laws cannot see; see docs/SIMULATION.md."""
    shift: int = 0
    """How far a token's number is ahead of its message's; one in the figures as printed."""
    unchecked: tuple[str, ...] = ()
    """Laws not looked at, to see what else a bug breaks."""
    master: type[Master[int]] = Master
    producer: type[Producer[int]] = Producer
    consumer: type[Consumer] = Consumer

    @property
    def tokens_max(self) -> int:
        return self.t_cur or self.t


class Packet(NamedTuple):
    """What is on the way: a message with its token's header, or the master's empty packet."""

    ordinal: int
    """Which grant it belongs to, so that two messages of one number are distinguished; 0: empty."""
    number: int
    last: tuple[MessageStatus, ...]


Frozen = tuple[Any, ...]


class Freezer:
    """Machines of one class to tuples and back, slot by slot."""

    def __init__(self, like: Any) -> None:
        self._cls = type(like)
        slots = [s for c in reversed(self._cls.__mro__) for s in getattr(c, "__slots__", ())]
        self._slots = [(slot, type(getattr(like, slot))) for slot in slots if hasattr(like, slot)]

    def freeze(self, machine: Any) -> Frozen:
        return tuple(
            tuple(sorted(getattr(machine, slot).items()))
            if kind is dict
            else tuple(getattr(machine, slot))
            if kind is deque
            else getattr(machine, slot)
            for slot, kind in self._slots
        )

    def thaw(self, frozen: Frozen) -> Any:
        machine = object.__new__(self._cls)
        for (slot, kind), value in zip(self._slots, frozen, strict=True):
            setattr(machine, slot, kind(value) if kind in (dict, deque) else value)
        return machine


class Desk(NamedTuple):
    """The master, what reached it and what it has decided since the beginning."""

    machine: Frozen
    grants: int = 0
    """Tokens granted."""
    granted: int = 0
    seen: int = 0
    accepted: int = 0
    rejected: int = 0
    kept: int = 0
    """Packets of the accepted messages."""
    inbox: int = 0

    @property
    def pending(self) -> int:
        return self.granted & ~(self.accepted | self.rejected)


class Member(NamedTuple):
    """A member, what is on its way to it, and what it has done in this life."""

    producer: Frozen
    consumer: Frozen
    left: int
    """Messages it has yet to send."""
    stage: int
    life: int = UP
    lives: int = 1
    first: int = 1
    token: int = 0
    """The packet that its token allows."""
    sent: int = 0
    data: int = 0
    """Packets here that may yet be delivered."""
    inbox: int = 0
    accepted: int = 0
    rejected: int = 0
    """What it has known to be so, in this life."""
    told: tuple[tuple[int, int], ...] = ()
    """What its client was given: number and ordinal."""
    past: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Earlier lives: first number and what was delivered."""


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def settled_of(status: dict[int, MessageStatus]) -> dict[int, MessageStatus]:
    return {number: its for number, its in status.items() if its is not PENDING}


def masks(status: dict[int, MessageStatus]) -> tuple[int, int]:
    """The accepted and the rejected numbers, as bits."""
    accepted = sum(1 << number for number, its in status.items() if its is ACCEPTED)
    return accepted, sum(1 << number for number, its in status.items() if its is REJECTED)


class Parts:
    """The steps of one process, and the laws that each alone must keep."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.packets: list[Packet] = []
        self.by_slot: dict[int, int] = {}
        """The packets of each message number."""
        self._ids: dict[Packet, int] = {}
        self.masters = Freezer(case.master(case.t))
        self.producers = Freezer(case.producer())
        self.consumers = Freezer(case.consumer(case.t))

    def packet(self, packet: Packet) -> int:
        """The packet's place in the table."""
        at = self._ids.setdefault(packet, len(self.packets))
        if at == len(self.packets):
            self.packets.append(packet)
            if packet.ordinal:
                slot = packet.number - self.case.shift
                self.by_slot[slot] = self.by_slot.get(slot, 0) | 1 << at
        return at

    def _broken(self, law: str, why: str) -> None:
        if law not in self.case.unchecked:
            raise Broken(law, why)

    # The master.

    def desk(self) -> Desk:
        master = self.case.master(self.case.t)
        master.t_cur = self.case.tokens_max
        return Desk(self.masters.freeze(master))

    def grant(self, desk: Desk) -> tuple[Desk, int]:
        """The master with one more token out, and the packet that it allows."""
        master: Master[int] = self.masters.thaw(desk.machine)
        token: SendToken = master.grant(desk.grants + 1)
        number, most = token.number - self.case.shift, self.case.tokens_max
        out = desk.pending
        late = " ".join(str(n) for n in bits(out) if n <= number - most)
        if late:
            self._broken("MTP-4", f"{number} is granted while {late} is pending")
        if out.bit_count() >= most:
            self._broken("MTP-4", f"{out.bit_count() + 1} tokens are out, {most} may be")
        if desk.granted >> number & 1:
            self._broken("MTP-3", f"{number} is granted twice")
        desk = desk._replace(grants=desk.grants + 1, granted=desk.granted | 1 << number)
        return self._decided(desk, master), self.packet(Packet(desk.grants, *token))

    def see(self, desk: Desk, at: int) -> Desk:
        """The master receives a message."""
        master: Master[int] = self.masters.thaw(desk.machine)
        number = self.packets[at].number
        master.seen(number)
        number -= self.case.shift
        seen = desk.seen | desk.pending & 1 << number
        desk = desk._replace(inbox=desk.inbox & ~(1 << at), seen=seen)
        after = self._decided(desk, master)
        if after.accepted & ~desk.accepted:
            after = after._replace(kept=after.kept | 1 << at)
        return after

    def give_up(self, desk: Desk, mine: Iterable[int]) -> Desk:
        """The master judges the holder of these failed."""
        master: Master[int] = self.masters.thaw(desk.machine)
        for at in mine:
            master.failed(self.packets[at].number)
        return self._decided(desk, master)

    def _decided(self, desk: Desk, master: Master[int]) -> Desk:
        accepted, rejected = masks(master.status)
        if (desk.accepted & rejected) | (desk.rejected & accepted):
            self._broken("L2", "the master changes a settled status")
        undone = {n for n, its in master.status.items() if its is PENDING}
        if any((desk.accepted | desk.rejected) >> n & 1 for n in undone):
            self._broken("L2", "what the master had settled is pending again")
        unseen = accepted & ~desk.seen & ~desk.accepted
        if unseen:
            numbers = " ".join(map(str, bits(unseen)))
            self._broken("MTP-5", f"{numbers} is accepted, and the master has not seen it")
        return desk._replace(
            machine=self.masters.freeze(master),
            accepted=desk.accepted | accepted,
            rejected=desk.rejected | rejected,
        )

    # A member.

    def member(self, left: int, first: int = 1, **more: Any) -> Member:
        """A new life."""
        producer = self.case.producer()
        eager = self.case.reduce and left > 0
        if eager:
            producer.ask()
        return Member(
            producer=self.producers.freeze(producer),
            consumer=self.consumers.freeze(self.case.consumer(self.case.t, first)),
            left=left,
            stage=ASKED if eager else IDLE,
            first=first,
            **more,
        )

    def ask(self, me: Member) -> Member:
        producer: Producer[int] = self.producers.thaw(me.producer)
        producer.ask()
        return me._replace(producer=self.producers.freeze(producer), stage=ASKED)

    def send(self, me: Member) -> Member:
        """The message leaves with its token, and its own consumer has it at once."""
        at, packet = me.token, self.packets[me.token]
        producer: Producer[int] = self.producers.thaw(me.producer)
        producer.granted(SendToken(packet.number, packet.last), packet.ordinal)
        left = me.left - 1
        me = me._replace(stage=IDLE, token=0, left=left, sent=me.sent | 1 << at)
        if self.case.reduce and left:
            producer.ask()
            me = me._replace(stage=ASKED)
        me = me._replace(producer=self.producers.freeze(producer))
        return self.receive(me, at)

    def receive(self, me: Member, at: int) -> Member:
        """A packet arrives, or arrives again."""
        packet = self.packets[at]
        me = me._replace(inbox=me.inbox & ~(1 << at))
        consumer: Consumer = self.consumers.thaw(me.consumer)
        if packet.ordinal and packet.number - self.case.shift >= consumer.next_out:
            me = me._replace(data=me.data | 1 << at)
        return self.learn(me, packet.number, packet.last)

    def learn(self, me: Member, number: int, last: tuple[MessageStatus, ...]) -> Member:
        """The header of a packet arrives."""
        consumer: Consumer = self.consumers.thaw(me.consumer)
        before, next_out = settled_of(consumer.status), consumer.next_out
        consumer.learn(number, last)
        if consumer.next_out != next_out:
            self._broken("L1", f"nextOut goes from {next_out} to {consumer.next_out}")
        for n, its in before.items():
            if consumer.status.get(n, PENDING) is not its:
                now = consumer.status.get(n, PENDING).name.lower()
                self._broken("L2", f"{n} was {its.name.lower()} at a member and is {now}")
        accepted, rejected = masks(consumer.status)
        me = me._replace(
            consumer=self.consumers.freeze(consumer),
            accepted=me.accepted | accepted,
            rejected=me.rejected | rejected,
        )
        me = self._settle(me)
        if self.case.reduce:
            while (after := self.consume(me)) is not None:
                me = after
            me = me._replace(inbox=me.inbox & ~self.stale(me))
        return me

    def post(self, me: Member, at: int) -> Member:
        """A copy is on its way to the member."""
        me = me._replace(inbox=me.inbox | 1 << at)
        return me._replace(inbox=me.inbox & ~self.stale(me)) if self.case.reduce else me

    def stale(self, me: Member) -> int:
        """Packets with no news for a member: they concern what it has passed."""
        passed = self.consumers.thaw(me.consumer).next_out - 1
        slots = ((at, self.packets[at].number - 1 + self.carries(at)) for at in bits(me.inbox))
        return sum(1 << at for at, slot in slots if slot <= passed)

    def carries(self, at: int) -> int:
        """One for a packet with data: it also concerns its own message."""
        return 1 - self.case.shift if self.packets[at].ordinal else 0

    def consume(self, me: Member, otherwise: DataStatus = DataStatus.COMING) -> Member | None:
        """The client takes the next message, or it is skipped; None when it has to wait."""
        consumer: Consumer = self.consumers.thaw(me.consumer)
        number = consumer.next_out
        what = consumer.due(self.data_at(me, otherwise))
        if what not in (Next.DELIVER, Next.SKIP):
            return None
        if what is Next.DELIVER:
            at = next(bits(me.data & self.by_slot.get(number, 0)), None)
            ordinal = 0 if at is None else self.packets[at].ordinal
            self._in_order(me, number)
            me = me._replace(told=(*me.told, (number, ordinal)), accepted=me.accepted | 1 << number)
        consumer.step_on()
        if consumer.next_out != number + 1:
            self._broken("L1", f"nextOut goes from {number} to {consumer.next_out}")
        data = me.data & ~self.by_slot.get(number, 0)
        return me._replace(consumer=self.consumers.freeze(consumer), data=data)

    def data_at(self, me: Member, otherwise: DataStatus) -> Callable[[int], DataStatus]:
        """How it stands with the data, when what is not here is `otherwise`."""
        here = me.data

        def data(number: int) -> DataStatus:
            return DataStatus.HERE if here & self.by_slot.get(number, 0) else otherwise

        return data

    def _in_order(self, me: Member, number: int) -> None:
        told = {n for n, _ in me.told}
        if told and number <= max(told):
            self._broken("L3", f"{number} is delivered after {max(told)}")
        gaps = [n for n in range(me.first, number) if n not in told and not me.rejected >> n & 1]
        if gaps:
            missing = " ".join(map(str, gaps))
            self._broken("L3", f"{number} is delivered, and {missing} was not, nor rejected")

    def _settle(self, me: Member) -> Member:
        """Our producer learns the statuses of its messages."""
        producer: Producer[int] = self.producers.thaw(me.producer)
        if not producer.flights:
            return me
        shift = self.case.shift

        def status(number: int) -> MessageStatus:
            bit = 1 << number - shift
            return ACCEPTED if me.accepted & bit else REJECTED if me.rejected & bit else PENDING

        before = {batch: status(number) for number, batch in producer.flights}
        accepted, rejected = producer.settled(status)
        told = [(batch, ACCEPTED) for batch in accepted] + [(b, REJECTED) for b in rejected]
        for batch, its in told:
            if before.pop(batch, None) is not its:
                self._broken("L2", f"a producer learns a wrong status of its message {batch}")
        if set(before) != {batch for _, batch in producer.flights}:
            self._broken("L1", "a producer forgets a message")
        return me._replace(producer=self.producers.freeze(producer))
