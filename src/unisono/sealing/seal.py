"""The seal of one incarnation: seals what it sends, and opens what others of its group sent.

Each incarnation has a session: a random salt, a key derived with it, and a counter from which the
nonces come. Whoever meets a session challenges it first (`unisono.sealing.greeting`), and then
opens each of its records once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from unisono.fields import array
from unisono.model import Address, Buffer, Burst, Packets
from unisono.sealing.greeting import KINDS, Entropy, GroupKey, group_key
from unisono.sealing.identity import Allowed, Signer
from unisono.sealing.keys import Keyring, bad_tag
from unisono.sealing.records import (
    FRONT_BYTES,
    LOSS,
    OVERHEAD_BYTES,
    SESSION_BYTES,
    SINGLE,
    TAG_BYTES,
    TRAIN,
    TRAIN_BYTES_MAX,
    TRAIN_FRONT_BYTES,
    SessionHello,
    SignedHello,
    may_be_train,
    nonce_of,
    open_train,
    seal_train,
)
from unisono.sealing.sessions import (
    ASK_AGAIN_US,
    HELD_SESSIONS_MAX,
    OwnSession,
    PeerSession,
    PeerSessions,
    Refusals,
)
from unisono.wire import SEALED, is_open, tag_of

RENEW_BYTES: Final = 1 << 37
"""A key of AES-GCM is used for no more."""
SINGLY_COUNT: Final = 256
SINGLY_COUNT_MAX: Final = 1 << 16
"""After a train was lost at a receiver, so many are sealed packet by packet; twice as many as the
last time, if fewer trains than that went well since."""
FORMER_KEYS_MAX: Final = 64

Found: TypeAlias = list[tuple[Address, Packets]]
Replies: TypeAlias = list[tuple[Address, bytes]]
Run: TypeAlias = tuple[Buffer, int, int]
"""Packets in one buffer, the size of each except a shorter last one, and their count."""

_FRONT: Final = array("!2sB4s4s8sQ", 1)
_OWN_FRONT: Final = array("!2sB16sQ", 1)
_TRAIN: Final = array(f"!{FRONT_BYTES}xHI", 1)


class Seal:
    """Between a core and its network. What is dropped is counted by reason."""

    def __init__(
        self,
        keyring: Keyring,
        group: str,
        name: str,
        incarnation: int,
        entropy: Entropy,
        counts: dict[str, int],
        signer: Signer | None = None,
    ) -> None:
        self._group = group
        self._group_tag = tag_of(group).to_bytes(8, "big")[:4]
        self._name = name.encode()
        self._incarnation = incarnation
        self._entropy = entropy
        self._has_identity = signer is not None
        self._bad_tag = bad_tag()
        self._refusals = Refusals(counts)
        self._peers = PeerSessions(group, self._group_tag, entropy, signer, self._refusals)
        self._keys: dict[bytes, GroupKey] = {}
        self._former_keys: dict[bytes, None] = {}
        self._arriving: dict[Address, bytearray] = {}
        """By source, a train of which the rest is to come."""
        self._singly_left, self._singly_count = 0, SINGLY_COUNT // 2
        self._trains_count = 0
        """Of our own, since the last was lost."""
        self._now_us = 0
        self._replies: Replies = []
        self._told_us = -ASK_AGAIN_US
        self.rekey(keyring)

    @property
    def is_answered(self) -> bool:
        """Another process of the group has proved to be there."""
        return self._peers.is_answered

    @property
    def unread(self) -> str:
        """Which packets of our group we cannot read, and what to do; empty if there were none."""
        return self._refusals.unread

    def rekey(self, keyring: Keyring) -> None:
        """The keys that are accepted from now on; the first is in use."""
        found = [group_key(key, self._group) for key in keyring.keys]
        for former in self._keys:
            self._former_keys[former] = None
        self._former_keys = dict.fromkeys(list(self._former_keys)[-FORMER_KEYS_MAX:])
        before = next(iter(self._keys), b"")
        self._keys = {key.id: key for key in found}
        self._peers.keep(self._keys)
        self._use = found[0]
        if self._use.id != before:
            self._renew()

    def allow(self, allowed: Allowed) -> None:
        """The members that are accepted from now on. Others cannot read what we send from now."""
        self._peers.allow(allowed)
        self._renew()

    def _renew(self) -> None:
        """Begin a session of our own."""
        self._own = OwnSession(
            self._use,
            self._group,
            self._name,
            self._incarnation,
            self._entropy,
            self._has_identity,
        )
        self._front = b"".join((self._group_tag, self._use.id, self._own.id))

    # -- out --------------------------------------------------------------------------------------

    def seal(self, run: Run, as_train: bool = True) -> Run:
        """A run as one record, if its packets travel together and none was lost of late; else
        packet by packet."""
        data, size, count = run
        self._own.nbytes += len(data)
        if self._own.nbytes >= RENEW_BYTES:
            self._renew()
        if as_train and may_be_train(len(data), size, count):
            if not self._singly_left:
                self._trains_count += 1
                front, counter = self._next(TRAIN)
                return *seal_train(self._own.cipher, front, counter, data, size, count), count
            self._singly_left -= 1
        if count == 1:
            return self._sealed(SINGLE, data), len(data) + FRONT_BYTES + TAG_BYTES, 1
        whole = memoryview(data)
        sealed = (
            self._sealed(SINGLE, whole[at : at + size]) for at in range(0, count * size, size)
        )
        return b"".join(sealed), size + FRONT_BYTES + TAG_BYTES, count

    def _next(self, kind: int) -> tuple[bytes, int]:
        counter = self._own.counter
        self._own.counter = counter + 1
        return _OWN_FRONT.pack(SEALED, kind, self._front, counter), counter

    def _sealed(self, kind: int, packet: Buffer) -> bytes:
        front, counter = self._next(kind)
        return front + bytes(self._own.cipher.encrypt(nonce_of(counter), packet, front))

    # -- in ---------------------------------------------------------------------------------------

    def open(self, found: Found, now_us: int) -> tuple[Found, Replies]:
        """What can be believed of the packets found; and packets to send, sealed already."""
        self._now_us = now_us
        opened: Found = []
        for source, packets in found:
            for burst in (packets,) if type(packets) is Burst else map(_alone, packets):
                self._open_burst(source, burst, opened)
        replies, self._replies = self._replies, []
        return opened, replies

    def _open_burst(self, source: Address, packets: Burst, opened: Found) -> None:
        """Packets side by side: those that begin with a front, and the rest of trains."""
        buffer, size, at = packets.buffer, packets.size, 0
        if source in self._arriving:
            at = self._arrive(source, packets, opened)
        while at < len(buffer):
            if len(buffer) - at < FRONT_BYTES:
                self._drop("foreign")
                return
            magic, kind, tag, key, session, counter = _FRONT.unpack_from(buffer, at)
            packet = buffer[at : at + size]
            if magic != SEALED or tag != self._group_tag:
                self._refuse_foreign(source, packet)
            elif key not in self._keys:
                self._refuse_key(source, key, packet)
            elif kind in KINDS:
                self._greeted(source, packet, self._keys[key], opened)
            elif (peer := self._peers.known.get(session)) is None or peer.source != source:
                held = buffer[at : self._next_front(buffer, at, size)]
                self._hold(source, Burst(held, size), session, self._keys[key])
                at += len(held)
                continue
            elif not peer.window.is_new(counter):
                self._drop("replay")
            elif kind == TRAIN:
                at += self._open_train(peer, Burst(buffer[at:], size), counter, opened) or size
                continue
            else:
                self._open_single(peer, kind, packet, counter, opened)
            at += size

    def _next_front(self, buffer: memoryview, at: int, size: int) -> int:
        """Where the next packet with a front is: what follows a forged one may be sound."""
        for after in range(at + size, len(buffer) - FRONT_BYTES, size):
            magic, _, tag, key, _, _ = _FRONT.unpack_from(buffer, after)
            if magic == SEALED and tag == self._group_tag and key in self._keys:
                return after
        return len(buffer)

    def _open_single(
        self, peer: PeerSession, kind: int, packet: memoryview, counter: int, opened: Found
    ) -> None:
        try:
            data = peer.cipher.decrypt(
                nonce_of(counter), packet[FRONT_BYTES:], bytes(packet[:FRONT_BYTES])
            )
        except self._bad_tag:
            self._drop("bad_tag")
            return
        peer.window.add(counter)
        peer.heard_us = self._now_us
        if kind == SINGLE and not data:
            pass  # A notice for one that cannot read it, who seemed to be at our address.
        elif kind == SINGLE:
            last = opened[-1] if opened else None
            if last is not None and last[0] is peer.source and type(last[1]) is list:
                last[1].append(data)
            else:
                opened.append((peer.source, [data]))
        elif kind == LOSS and data == self._own.id:
            self._seal_singly()
        else:
            self._drop("malformed")

    def _seal_singly(self) -> None:
        """A receiver lost a train. Others lose the same one, or others that are under way."""
        if not self._trains_count:
            return
        is_rare = self._trains_count >= self._singly_count
        self._singly_count = SINGLY_COUNT if is_rare else 2 * self._singly_count
        self._singly_count = min(self._singly_count, SINGLY_COUNT_MAX)
        self._singly_left, self._trains_count = self._singly_count, 0

    # -- trains -----------------------------------------------------------------------------------

    def _open_train(self, peer: PeerSession, burst: Burst, counter: int, opened: Found) -> int:
        """How many bytes are done with; 0 if the first packet is none of a train."""
        packets = burst.buffer
        if len(packets) < TRAIN_FRONT_BYTES:
            self._drop("malformed")
            return 0
        size, nbytes = _train_front(packets)
        if not size or not TRAIN_FRONT_BYTES + TAG_BYTES <= nbytes <= TRAIN_BYTES_MAX:
            self._drop("malformed")
            return 0
        if nbytes > len(packets):
            cut = self._next_front(packets, 0, burst.size)
            if cut < len(packets):  # It claims what others sent, or the rest of it is lost.
                self._drop("incomplete")
                self._ask_for_singles(packets)
                return cut
            while len(self._arriving) >= HELD_SESSIONS_MAX:
                self._give_up(next(iter(self._arriving)))
            self._arriving[peer.source] = bytearray(packets)
            return len(packets)
        try:
            data = open_train(peer.cipher, counter, packets[:nbytes])
        except self._bad_tag:
            self._drop("bad_tag")
            self._ask_for_singles(packets)
            return 0
        peer.window.add(counter)
        peer.heard_us = self._now_us
        opened.append((peer.source, Burst(data, size)))
        return nbytes

    def _arrive(self, source: Address, packets: Burst, opened: Found) -> int:
        """More of a train, if it is no front. How many bytes were."""
        buffer = packets.buffer
        if bytes(buffer[:2]) == SEALED:
            self._give_up(source)
            return 0
        train = self._arriving[source]
        nbytes = _train_front(train)[1]
        taken = min(nbytes - len(train), len(buffer))
        train += buffer[:taken]
        if len(train) == nbytes:
            del self._arriving[source]
            self._open_burst(source, Burst(memoryview(bytes(train)), nbytes), opened)
        return taken

    def _give_up(self, source: Address) -> None:
        """The rest of a train does not come: a packet is lost, or forged."""
        self._drop("incomplete")
        self._ask_for_singles(self._arriving.pop(source))

    def _ask_for_singles(self, train: Buffer) -> None:
        session = _FRONT.unpack_from(train)[4]
        peer = self._peers.known.get(session)
        if peer is not None and self._now_us - peer.asked_us >= ASK_AGAIN_US:
            peer.asked_us = self._now_us
            self._replies.append((peer.source, self._sealed(LOSS, session)))

    # -- sessions ---------------------------------------------------------------------------------

    def _hold(self, source: Address, packets: Burst, session: bytes, key: GroupKey) -> None:
        if session == self._own.id:
            self._refusals.count("net.in.echo", len(packets))
            return
        challenge = self._peers.hold(source, packets, session, key, self._now_us)
        if challenge:
            self._replies.append((source, challenge))

    def _greeted(self, source: Address, packet: Buffer, key: GroupKey, opened: Found) -> None:
        greeting = self._peers.open(packet, key, self._now_us)
        if isinstance(greeting, SessionHello | SignedHello):
            if greeting.salt[:SESSION_BYTES] == self._own.id:
                self._drop("replay")
                return
            for held in self._peers.meet(source, greeting, key, self._now_us):
                self._open_burst(source, held, opened)
        elif greeting is not None and greeting.session == self._own.id:
            answer = self._peers.answer(self._own, greeting)
            if answer:
                self._replies.append((source, answer))

    # -- what is refused --------------------------------------------------------------------------

    def _refuse_foreign(self, source: Address, packet: Buffer) -> None:
        if not is_open(packet, self._group_tag):
            self._drop("foreign")
            return
        self._drop("open")
        self._tell(source, packet)
        self._refusals.complain(
            f"packets of group {self._group} come from {source} that are not sealed: give key= at"
            " every member, or at none"
        )

    def _refuse_key(self, source: Address, key: bytes, packet: Buffer) -> None:
        self._tell(source, packet)
        self._drop("old_key" if key in self._former_keys else "no_key")
        self._refusals.complain(
            f"packets of group {self._group} come from {source} that are sealed with key"
            f" {key.hex()}, which is not in this keyring: install it, or use a key here that the"
            " others have"
        )

    def _tell(self, source: Address, packet: Buffer) -> None:
        """Let the sender learn that keys differ, though all of us are quiet: by a packet that it
        cannot read, no longer than its own, and not for the like of it."""
        if len(packet) > OVERHEAD_BYTES and self._now_us - self._told_us >= ASK_AGAIN_US:
            self._told_us = self._now_us
            self._replies.append((source, self._sealed(SINGLE, b"")))

    def _drop(self, reason: str) -> None:
        self._refusals.drop(reason)


def _alone(packet: Buffer) -> Burst:
    return Burst(memoryview(packet), len(packet) or 1)


def _train_front(packets: Buffer) -> tuple[int, int]:
    """The size of the packets in a train, and the length of the whole."""
    size, nbytes = _TRAIN.unpack_from(packets)
    return size, nbytes
