"""Figure 1 at work: grants tokens in the order of requests, accepts and rejects messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unisono.errors import BadPacket
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.agreement import PENDING, Consumer, Master, SendToken
from unisono.protocols.mtp.batch import head_of
from unisono.protocols.mtp.decision import TAIL, machine_of
from unisono.protocols.mtp.member_watch import MemberWatch
from unisono.protocols.mtp.message_sender import MessageSender
from unisono.protocols.mtp.ordering import Ordering
from unisono.protocols.mtp.packets import TokenRequest
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.web import Web


@dataclass(eq=False)
class TokenMaster:
    """Decides which messages count; what it decides is not seen before the replicas hold it."""

    _key: int
    _parameters: Parameters
    _codec: PacketCodec
    _web: Web
    _consumer: Consumer
    _ordering: Ordering
    _outbound: MessageSender
    _watch: MemberWatch

    def __post_init__(self) -> None:
        self.machine: Master[int] = Master(self._parameters.tokens, memory=TAIL)
        self.ready = False
        """We have delivered all that was accepted before we took over."""
        self.requests: dict[int, tuple[int, int]] = {}
        """By member in the order of coming: the request, and the packets to send."""
        self._request = 0
        """The last of our own requests that was granted."""
        self._sizes: dict[int, int] = {}
        """By message that not every member has, its packets."""
        self._upto: dict[int, int] = {}
        """By member, the last message accepted."""
        self.granted: list[tuple[int, SendToken]] = []
        """Tokens not proposed to the replicas yet."""

    # -- taking over -------------------------------------------------------------------------------

    def found(self) -> None:
        """A new web: no member but us, and no message."""
        self._begin(Master(self._parameters.tokens, memory=TAIL))

    def take_over(self, value: bytes) -> None:
        """[MTP 5.2] Reject all that is pending. Raises `BadPacket`."""
        machine = machine_of(value, self._parameters.tokens)
        for number in list(machine.holder):
            machine.failed(number)
        self._begin(machine)

    def _begin(self, machine: Master[int]) -> None:
        self.machine = machine
        machine.allow(3)
        self.ready = False
        self._watch.reset()
        self.requests, self._sizes, self._upto = {}, {}, {}
        self._request = 0
        self.granted = []

    def get_ready(self) -> None:
        """Once all before our time is delivered, the members and their numbers are known."""
        if not self.ready and self._consumer.next_out == self.machine.next:
            self.ready = True
            self._upto = dict(self._web.upto)
            self._watch.align()

    # -- requests ----------------------------------------------------------------------------------

    def request(self, key: int, packet: TokenRequest) -> int:
        """[MTP 3.2] Queue a request. Returns the token if it was granted already."""
        watched = self._watch.members.get(key)
        if watched is None:
            return 0
        if packet.request <= watched.request:
            pending = self.machine.status.get(watched.token) is PENDING
            return watched.token if pending else 0
        self.requests[key] = (packet.request, max(1, packet.packets))
        return 0

    def want(self, request: int, packets: int) -> None:
        """We need a token ourselves; it takes the replicas a while to commit it."""
        if request > self._request:
            self.requests[self._key] = (request, max(1, packets))

    def grant(self, is_leaving: Callable[[int], bool]) -> None:
        """Grant tokens while there is one free and the slowest consumer has buffers."""
        machine = self.machine
        while self.requests and machine.may_grant():
            key, (request, packets) = next(iter(self.requests.items()))
            if not self._has_room(packets):
                return
            del self.requests[key]
            if key == self._key or (key in self._watch.members and not is_leaving(key)):
                self.give(key, request, packets)

    def give(self, key: int, request: int, packets: int) -> int:
        """Grant a token; returns its number."""
        token = self.machine.grant(key)
        self._sizes[token.number] = packets
        self.granted.append((key, token))
        if not self._watch.note_grant(key, request, token.number) and request:
            self._request = request
        return token.number

    def take_granted(self) -> list[tuple[int, SendToken]]:
        """The tokens to propose, once."""
        granted, self.granted = self.granted, []
        return granted

    def _has_room(self, packets: int) -> bool:
        """[MTP 4] No consumer must hold more than t times window times retention: the slowest
        reader sets the pace."""
        stable = self._watch.advance_stable()
        for number in [n for n in self._sizes if n < stable]:
            del self._sizes[number]
        owed = sum(self._sizes.values())
        return not owed or owed + packets <= self._parameters.buffers

    # -- decisions ---------------------------------------------------------------------------------

    def accept(self) -> None:
        """[MTP 3.2] Accept complete messages, those of a producer in its order."""
        # Deviates [MTP 3.2]: the paper accepts on the packet that ends a message; if one before it
        # were lost for good the master itself would have to rejoin. It waits for all of it.
        machine, upto = self.machine, self._upto
        for number in sorted(machine.holder):
            holder = machine.holder[number]
            slices = self._ordering.slices_of(number)
            if slices is None or self._outbound.is_leaving(number):
                continue
            try:
                head = head_of(slices)
            except BadPacket as bad:
                self._codec.drop(bad.reason)
                machine.failed(number)
                continue
            if head is not None and head[1]:
                if any(n < number for n, other in machine.holder.items() if other == holder):
                    continue  # An earlier one is not settled: it would be delivered first.
                first, count = head
                if first != upto.get(holder, 0) + 1:
                    machine.failed(number)
                    continue
                upto[holder] = first + count - 1
            elif head is None and holder != self._key:
                machine.failed(number)
                continue
            machine.seen(number)
            self._sizes[number] = len(slices)

    def reject(self, key: int) -> None:
        """Reject the pending messages of a member that failed or left."""
        for number in [n for n, holder in self.machine.holder.items() if holder == key]:
            self.machine.failed(number)
        self.requests.pop(key, None)

    def forget(self, key: int) -> None:
        """The member was removed."""
        self.reject(key)
        self._watch.forget(key)
        self._upto.pop(key, None)

    def progress(self) -> tuple[int, int]:
        """A grant raises the first, a decision lowers the second: all else follows from these."""
        return self.machine.next, len(self.machine.holder)

    def all_have_all(self) -> bool:
        return self._watch.all_have(self.machine.next)
