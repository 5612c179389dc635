"""The master at work: grants tokens, accepts and rejects, lets in and out, sets the pace.

Only the coordinator of the master replicas has this role, and nothing of what it decides is seen
outside before the council has committed it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from unisono.core import EVERYONE, Effect, Probe, Send
from unisono.errors import BadPacket
from unisono.model import Address
from unisono.protocols.mtp.admission import MasterAdmission
from unisono.protocols.mtp.agreement import PENDING, Master, MessageStatus, SendToken
from unisono.protocols.mtp.batch import head_of
from unisono.protocols.mtp.decision import TAIL, machine_of, value_of
from unisono.protocols.mtp.master import QUIET_BEATS
from unisono.protocols.mtp.packets import (
    Empty,
    Grant,
    PacketKind,
    Pressure,
    Report,
    TokenRequest,
)
from unisono.protocols.mtp.parameters import WINDOW_MIN
from unisono.protocols.mtp.replicas import NO_HEADER

if TYPE_CHECKING:
    from unisono.protocols.mtp.core import Mtp

RETENTION_MAX: Final = 200


@dataclass(slots=True)
class Watched:
    """What the master knows of a member."""

    heard_us: int
    taken: int
    """It has all messages below this number."""
    pressure: Pressure = Pressure.CALM
    suspects: tuple[int, ...] = ()
    request: int = 0
    token: int = 0
    """The last token that it was granted, for that request."""


@dataclass(slots=True)
class Visible:
    """What may be seen once a version is committed."""

    version: int
    next: int
    last: tuple[MessageStatus, ...]
    grants: list[tuple[int, SendToken]] = field(default_factory=list)


class Coordinator:
    """The coordinator's duties."""

    def __init__(self, core: Mtp) -> None:
        self._core = core
        self.admission = MasterAdmission(core)
        self.machine: Master[int] = Master(core.parameters.tokens, memory=TAIL)
        self.ready = False
        """We have delivered all that was accepted before we took the chair."""
        self.watched: dict[int, Watched] = {}
        self.closed = False
        """We have left, or ended the web: nothing more is decided."""
        self.stable = 1
        """Every member has all messages below this number."""
        self._requests: dict[int, tuple[int, int]] = {}
        self._request = 0
        """The last of our own that was granted."""
        self._sizes: dict[int, int] = {}
        """Packets of the messages that not everybody has."""
        self.upto: dict[int, int] = {}
        """Of each member, the last message accepted."""
        self._visible: deque[Visible] = deque()
        self._shown = 0
        """Numbers below this are committed."""
        self._proposed: tuple[int, int] | None = None
        """How far the machine was when the council was last told: see `_how_far`."""
        self._granted: list[tuple[int, SendToken]] = []
        self._began_us = 0
        """When we took the chair, in listening time."""

    # -- taking the chair --------------------------------------------------------------------------

    def found(self, out: list[Effect]) -> None:
        """The first web: nobody but us, and nothing said."""
        self._begin(Master(self._core.parameters.tokens, memory=TAIL))
        self._proposed = self._how_far()

    def take_over(self, value: bytes) -> None:
        """[MTP 5.2] Reject all that is pending, and go on."""
        machine = machine_of(value, self._core.parameters.tokens)
        for number in list(machine.holder):
            machine.failed(number)
        self._begin(machine)
        self._core.codec.count("take_over")

    def _begin(self, machine: Master[int]) -> None:
        now_us = self._core.now_us
        self.machine = machine
        machine.t_cur = min(machine.t_max, 3)
        self.ready = False
        self.watched = {
            key: Watched(now_us, 1) for key in self._core.web.members if key != self._core.key
        }
        self.admission.begin()
        self._requests, self._sizes, self.upto = {}, {}, {}
        self._request = 0
        self._visible.clear()
        self._shown = 0
        self._granted = []
        self._proposed = None
        self._began_us = self._core.listened_us
        self.closed = False

    def get_ready(self) -> None:
        """Once we have delivered all before our time, we know the members and their numbers."""
        core = self._core
        if not self.ready and core.consumer.next_out == self.machine.next and not self._visible:
            self.ready = True
            self.upto = dict(core.web.upto)
            for key in core.web.members:
                if key != core.key:
                    self.watched.setdefault(key, Watched(core.now_us, 1))
            for key in [key for key in self.watched if key not in core.web.members]:
                del self.watched[key]

    def watch(self, key: int, taken: int) -> None:
        """A new member, which has all messages below this number."""
        self.watched[key] = Watched(self._core.now_us, taken)

    # -- what members say --------------------------------------------------------------------------

    def hear(self, key: int, taken: int) -> None:
        watched = self.watched.get(key)
        if watched is not None:
            if watched.heard_us != self._core.now_us:
                watched.heard_us = self._core.now_us
                self._core.silence.hear(key, self._core.now_us)
            watched.taken = max(watched.taken, taken)

    def request(self, key: int, packet: TokenRequest, out: list[Effect]) -> None:
        """[MTP 3.2] One wants a token. Asked twice for the same, it gets the same."""
        watched = self.watched.get(key)
        if watched is None:
            return
        if packet.request <= watched.request:
            if self.machine.status.get(watched.token) is PENDING:
                self._tell(key, watched.token, out)
            return
        self._requests[key] = (packet.request, max(1, packet.packets))

    def want(self, request: int, packets: int) -> None:
        """We want a token ourselves; it may take the council a while to let us have it."""
        if request > self._request:
            self._requests[self._core.key] = (request, max(1, packets))

    def report(self, key: int, packet: Report) -> None:
        watched = self.watched.get(key)
        if watched is not None:
            watched.pressure = max(watched.pressure, packet.pressure)
            watched.suspects = packet.suspects

    # -- Figure 1 ----------------------------------------------------------------------------------

    def conclude(self, out: list[Effect]) -> None:
        """Once a burst: accept, change, grant, propose, and show what is committed."""
        self.get_ready()
        if self.ready and not self.closed:
            self._accept()
            self.admission.begin_change()
            self._grant()
        self._propose(out)
        self._reveal(out)

    def _accept(self) -> None:
        """[MTP 3.2] Accepted is what the master has whole, a producer's messages in its order."""
        # Deviates [MTP 3.2]: the paper accepts on the packet that ends a message; if one before it
        # were lost for good the master itself would have to rejoin. It waits for the whole.
        machine, core = self.machine, self._core
        for number in sorted(machine.holder):
            holder = machine.holder[number]
            slices = core.receiver.slices_of(number)
            if slices is None or core.outbound.is_leaving(number):
                continue
            try:
                head = head_of(slices)
            except BadPacket as bad:
                core.codec.drop(bad.reason)
                machine.failed(number)
                continue
            if head is not None and head[1]:
                first, count = head
                if first != self.upto.get(holder, 0) + 1:
                    earlier = (n for n, h in machine.holder.items() if h == holder and n < number)
                    if not any(earlier):
                        machine.failed(number)
                    continue
                self.upto[holder] = first + count - 1
            elif head is None and holder != core.key:
                machine.failed(number)
                continue
            machine.seen(number)
            self._sizes[number] = len(slices)

    def _grant(self) -> None:
        machine = self.machine
        while self._requests and machine.may_grant() and not self.admission.holding:
            key, (request, packets) = next(iter(self._requests.items()))
            if not self._has_room(packets):
                return
            del self._requests[key]
            if key != self._core.key and (key not in self.watched or self.admission.is_going(key)):
                continue
            self.give(key, request, packets)

    def give(self, key: int, request: int, packets: int) -> None:
        token = self.machine.grant(key)
        self._sizes[token.number] = packets
        self._granted.append((key, token))
        if key in self.watched:
            self.watched[key].request, self.watched[key].token = request, token.number
        elif request:
            self._request = request

    def _has_room(self, packets: int) -> bool:
        """[MTP 4] No consumer must hold more than t times window times retention: the slowest
        reader sets the pace."""
        core = self._core
        floor = min((w.taken for w in self.watched.values()), default=core.consumer.next_out)
        self.stable = max(self.stable, min(floor, core.consumer.next_out))
        for number in [n for n in self._sizes if n < self.stable]:
            del self._sizes[number]
        owed = sum(self._sizes.values())
        return not owed or owed + packets <= core.parameters.buffers

    # -- membership --------------------------------------------------------------------------------

    def reject(self, key: int) -> None:
        """What it held tokens for is rejected."""
        for number in [n for n, holder in self.machine.holder.items() if holder == key]:
            self.machine.failed(number)
        self._requests.pop(key, None)

    # -- what the council has committed ------------------------------------------------------------

    def _propose(self, out: list[Effect]) -> None:
        if self._proposed == (far := self._how_far()):
            return
        self._proposed = far
        core, machine = self._core, self.machine
        core.replicas.propose(value_of(machine), out)
        visible = Visible(core.replicas.version, machine.next, machine.last(TAIL), self._granted)
        self._granted = []
        self._visible.append(visible)

    def _how_far(self) -> tuple[int, int]:
        """A grant raises the first, and what is settled lowers the second: while both stay, so does
        all else."""
        return self.machine.next, len(self.machine.holder)

    def _reveal(self, out: list[Effect]) -> None:
        core = self._core
        while self._visible and self._visible[0].version <= core.replicas.committed:
            seen = self._visible.popleft()
            if core.consumer.learn(seen.next, seen.last):
                core.news = True
            self._shown = seen.next
            core.know(seen.next)
            for key, token in seen.grants:
                if key != core.key:
                    self._tell(key, token.number, out)
                elif token.number == self.admission.number:
                    assert self.admission.change is not None
                    core.send_queue.send_content(token.number, self.admission.change, ())
                else:
                    core.send_queue.granted(token, self._audience(), out)

    def _tell(self, key: int, number: int, out: list[Effect]) -> None:
        """[MTP 3.2] The grant: the number, where to send, and the last t statuses."""
        core = self._core
        member = core.web.members.get(key)
        watched = self.watched.get(key)
        if member is None or watched is None or number >= self._shown:
            return
        packet = Grant(NO_HEADER, watched.request, number, self._audience())
        body = packet.body(core.header_bytes(number))
        out.append(Send((member.address,), [core.codec.seal(PacketKind.GRANT, body)]))

    def _audience(self) -> tuple[Address, ...]:
        """The members' addresses, where that was asked for and they fit into a packet."""
        core = self._core
        if not core.parameters.unicast or len(core.web.members) > 16:
            return ()
        return tuple(member.address for member in core.web.members.values())

    def alone(self) -> bool:
        return not self.watched

    def everywhere(self) -> bool:
        """Every other member has everything."""
        return all(watched.taken >= self.machine.next for watched in self.watched.values())

    # -- time --------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Nobody wants anything of us, and all that was decided is shown."""
        open_ = self.machine.holder or self._requests or self._visible or self.admission.is_due()
        return self.ready and not open_ and self._proposed == self._how_far()

    def busy(self) -> bool:
        """Something is not settled, not committed, or not everywhere."""
        unsettled = self.machine.holder or self._visible or self._requests or self.admission.change
        return bool(unsettled) or not self.everywhere()

    def remind(self, out: list[Effect]) -> None:
        """Each heartbeat: grants that brought nothing are sent again."""
        for number, key in sorted(self.machine.holder.items()):
            watched = self.watched.get(key)
            heard_of = number in self._core.inbound.incoming
            if watched is not None and watched.token == number and not heard_of:
                self._tell(key, number, out)

    def advertise(self, out: list[Effect]) -> None:
        """[MTP 3.3] An empty packet: the statuses, the next number, and who the master is."""
        core = self._core
        floor = min((w.taken for w in self.watched.values()), default=core.consumer.next_out)
        self.stable = max(self.stable, min(floor, core.consumer.next_out))
        packet = Empty(NO_HEADER, 0, 0, False, core.replicas.ballot, self.stable, core.me)
        body = packet.body(core.header_bytes())
        out.append(Send(EVERYONE, [core.codec.seal(PacketKind.EMPTY, body)]))

    def beat(self, out: list[Effect]) -> None:
        """Look who is silent, and set the pace."""
        core = self._core
        if self.ready:
            core.silence.keep((core.key, *self.watched), core.now_us)
            for key in self.watched:
                share = 2 if self._suspected(key) else 1
                if core.silence.is_silent(key, share) and key not in self.admission.failing:
                    self.admission.fail(key)
            self._probe(out)
        elif self._visible or core.congested:
            self._began_us = core.listened_us  # It is not data that we wait for.
        elif core.listened_us - self._began_us > core.parameters.lost_us:
            core.doom("what the last master accepted cannot be had")
        self._set_pace()

    def _probe(self, out: list[Effect]) -> None:
        """Ask the network for those that are quiet."""
        core = self._core
        quiet_us = QUIET_BEATS * core.parameters.beat_us
        quiet = tuple(
            core.web.members[key].address
            for key in self.watched
            if core.silence.silence_us(key) >= quiet_us and key in core.web.members
            if key not in self.admission.failing
        )
        if quiet:
            out.append(Probe(quiet))

    def refuse(self, address: Address) -> None:
        """The network says that nobody listens there."""
        core = self._core
        for key in self.watched if self.ready else ():
            member = core.web.members.get(key)
            if member is not None and member.address == address:
                if core.silence.refuse(key, core.now_us) and key not in self.admission.failing:
                    self.admission.fail(key)

    def _suspected(self, key: int) -> bool:
        """[MTP 5.3] Most other members think so too."""
        others = [w for k, w in self.watched.items() if k != key]
        return 2 * sum(key in w.suspects for w in others) > len(others)

    def _set_pace(self) -> None:
        """[MTP 4] Consumers in need push towards safety, at once; else it drifts towards speed.
        [MTP 5.1] So does the number of tokens."""
        core, machine = self._core, self.machine
        pace, wished = core.pace, core.parameters
        worst = max((w.pressure for w in self.watched.values()), default=Pressure.CALM)
        worst = max(worst, core.inbound.pressure(core.congested))
        for watched in self.watched.values():
            watched.pressure = Pressure.CALM
        if worst is Pressure.LOSING:
            pace.window = max(WINDOW_MIN, pace.window * 3 // 4)
            pace.retention = min(RETENTION_MAX, pace.retention + 1, wished.retention * 2)
            machine.t_cur = max(1, machine.t_cur - 1)
        elif worst is Pressure.FULL:
            # The slow reader is waited for by `_has_room`; the window only spares its buffers.
            least = max(WINDOW_MIN, wished.window // 8)
            pace.window = min(pace.window, max(least, pace.window // 2))
            pace.heartbeat_us = min(pace.heartbeat_us * 5 // 4, wished.heartbeat_us * 2)
            machine.t_cur = max(1, machine.t_cur - 1)
        else:
            pace.window = min(wished.window, pace.window + max(1, pace.window // 4))
            pace.retention = max(wished.retention, pace.retention - 1)
            pace.heartbeat_us = max(wished.heartbeat_us, pace.heartbeat_us * 4 // 5)
            if self._requests:
                machine.t_cur = min(machine.t_max, machine.t_cur + 1)
