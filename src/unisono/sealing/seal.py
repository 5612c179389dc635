"""The seal of one incarnation: seals what it sends, and opens what others of its group sent.

Each incarnation has a session: a random salt, a key derived with it, and a counter from which the
nonces come. Whoever meets a session challenges it first (`unisono.sealing.greeting`), and then
opens each of its records once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import array
from unisono.model import Address, Buffer, Burst, Packets
from unisono.sealing.greeting import (
    CHALLENGE_BYTES,
    Entropy,
    Greetings,
    GroupKey,
    group_key,
    open_greeting,
    session_key,
)
from unisono.sealing.keys import Aead, Keyring, bad_tag
from unisono.sealing.records import (
    CHALLENGE,
    FRONT_BYTES,
    HELLO,
    LOSS,
    SALT_BYTES,
    SESSION_BYTES,
    SINGLE,
    TAG_BYTES,
    TRAIN,
    TRAIN_BYTES_MAX,
    TRAIN_FRONT_BYTES,
    SessionHello,
    may_be_train,
    nonce_of,
    open_train,
    seal_train,
)
from unisono.sealing.replay import ReplayWindow
from unisono.wire import SEALED, is_open, tag_of

SESSIONS_COUNT_MAX: Final = 1024
RENEW_BYTES: Final = 1 << 37
"""A key of AES-GCM is used for no more."""
HELD_SESSIONS_MAX: Final = 64
HELD_BYTES_MAX: Final = 1 << 17
"""Of packets that wait for the answer to a challenge: sessions, and bytes of each."""
ASK_AGAIN_US: Final = 50_000
MOVE_US: Final = 1_000_000
"""A session is believed from another address once nothing came from the former for so long: else
who relays challenges and answers could take members away from each other."""
SINGLY_COUNT: Final = 256
SINGLY_COUNT_MAX: Final = 1 << 16
"""After a train was lost at a receiver, so many are sealed packet by packet; next time, twice as
many."""
FORMER_KEYS_MAX: Final = 64

Found: TypeAlias = list[tuple[Address, Packets]]
Replies: TypeAlias = list[tuple[Address, bytes]]
Run: TypeAlias = tuple[Buffer, int, int]
"""Packets in one buffer, the size of each except a shorter last one, and their count."""

_FRONT: Final = array("!2sB4s4s8sQ", 1)
_OWN_FRONT: Final = array("!2sB16sQ", 1)
_TRAIN: Final = array(f"!{FRONT_BYTES}xHI", 1)


class PeerSession:
    """A session whose process has proved to be there."""

    __slots__ = ("asked_us", "cipher", "heard_us", "key", "source", "window")

    def __init__(
        self, key: bytes, source: Address, cipher: Aead, counter: int, now_us: int
    ) -> None:
        self.key = key
        """The id of the group's key."""
        self.source = source
        self.heard_us = now_us
        """When the last of its packets was opened."""
        self.cipher = cipher
        self.window = ReplayWindow(counter)
        self.asked_us = -ASK_AGAIN_US


class HeldPackets:
    """Packets of a session that waits for the answer to its challenge."""

    __slots__ = ("bursts", "nbytes")

    def __init__(self) -> None:
        self.bursts: list[tuple[Address, Burst]] = []
        self.nbytes = 0

    def has_room(self, packets: Burst) -> bool:
        return self.nbytes + len(packets.buffer) <= HELD_BYTES_MAX

    def add(self, source: Address, packets: Burst) -> None:
        self.bursts.append((source, Burst(memoryview(bytes(packets.buffer)), packets.size)))
        self.nbytes += len(packets.buffer)

    @property
    def count(self) -> int:
        return sum(len(packets) for _, packets in self.bursts)


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
    ) -> None:
        self._group = group
        self._group_tag = tag_of(group).to_bytes(8, "big")[:4]
        self._name = name.encode()
        self._incarnation = incarnation
        self._entropy = entropy
        self._counts = counts
        self._bad_tag = bad_tag()
        self._greetings = Greetings(self._group_tag, entropy)
        self._keys: dict[bytes, GroupKey] = {}
        self._former_keys: dict[bytes, None] = {}
        self._peers: dict[bytes, PeerSession] = {}
        self._held: dict[bytes, HeldPackets] = {}
        self._asked_us: dict[bytes, int] = {}
        self._arriving: dict[Address, bytearray] = {}
        """By source, a train of which the rest is to come."""
        self._singly_left, self._singly_count = 0, SINGLY_COUNT
        self._now_us = 0
        self._replies: Replies = []
        self.is_answered = False
        """Another process of the group has proved to be there."""
        self.unread = ""
        """Which packets of our group we cannot read, and what to do; empty if there were none."""
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """The keys that are accepted from now on; the first is in use."""
        found = [group_key(key, self._group) for key in keyring.keys]
        for former in self._keys:
            self._former_keys[former] = None
        self._former_keys = dict.fromkeys(list(self._former_keys)[-FORMER_KEYS_MAX:])
        before = next(iter(self._keys), b"")
        self._keys = {key.id: key for key in found}
        self._peers = {id: peer for id, peer in self._peers.items() if peer.key in self._keys}
        self._use = found[0]
        if self._use.id != before:
            self._renew()

    def _renew(self) -> None:
        """Begin a session of our own."""
        self._salt = self._entropy(SALT_BYTES)
        self._session = self._salt[:SESSION_BYTES]
        self._counter = self._nbytes = 0
        self._front = b"".join((self._group_tag, self._use.id, self._session))
        self._cipher = session_key(
            self._use.key, self._group, self._name, self._incarnation, self._salt
        )

    def _know(self, session: bytes, peer: PeerSession) -> None:
        self._peers.pop(session, None)
        if len(self._peers) >= SESSIONS_COUNT_MAX:
            del self._peers[next(iter(self._peers))]
        self._peers[session] = peer

    # -- out --------------------------------------------------------------------------------------

    def seal(self, run: Run, as_train: bool = True) -> Run:
        """A run as one record, if its packets travel together and none was lost of late; else
        packet by packet."""
        data, size, count = run
        self._nbytes += len(data)
        if self._nbytes >= RENEW_BYTES:
            self._renew()
        if as_train and may_be_train(len(data), size, count):
            if not self._singly_left:
                front, counter = self._next(TRAIN)
                return *seal_train(self._cipher, front, counter, data, size, count), count
            self._singly_left -= 1
        if count == 1:
            return self._sealed(SINGLE, data), len(data) + FRONT_BYTES + TAG_BYTES, 1
        whole = memoryview(data)
        sealed = (
            self._sealed(SINGLE, whole[at : at + size]) for at in range(0, count * size, size)
        )
        return b"".join(sealed), size + FRONT_BYTES + TAG_BYTES, count

    def _next(self, kind: int) -> tuple[bytes, int]:
        counter = self._counter
        self._counter = counter + 1
        return _OWN_FRONT.pack(SEALED, kind, self._front, counter), counter

    def _sealed(self, kind: int, packet: Buffer) -> bytes:
        front, counter = self._next(kind)
        return front + bytes(self._cipher.encrypt(nonce_of(counter), packet, front))

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
                self._refuse_foreign(packet)
            elif key not in self._keys:
                self._refuse_key(key)
            elif kind in (CHALLENGE, HELLO):
                self._greeted(source, packet, self._keys[key], opened)
            elif (peer := self._peers.get(session)) is None or peer.source != source:
                self._hold(source, Burst(buffer[at:], size), session, self._keys[key])
                return
            elif not peer.window.is_new(counter):
                self._drop("replay")
            elif kind == TRAIN:
                at += self._open_train(peer, buffer[at:], counter, opened) or size
                continue
            else:
                self._open_single(peer, kind, packet, counter, opened)
            at += size

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
        if kind == SINGLE:
            last = opened[-1] if opened else None
            if last is not None and last[0] is peer.source and type(last[1]) is list:
                last[1].append(data)
            else:
                opened.append((peer.source, [data]))
        elif kind == LOSS and data == self._session:
            self._singly_left = self._singly_count
            self._singly_count = min(2 * self._singly_count, SINGLY_COUNT_MAX)
        else:
            self._drop("malformed")

    # -- trains -----------------------------------------------------------------------------------

    def _open_train(
        self, peer: PeerSession, packets: memoryview, counter: int, opened: Found
    ) -> int:
        """How many bytes are done with; 0 if the first packet is none of a train."""
        if len(packets) < TRAIN_FRONT_BYTES:
            self._drop("malformed")
            return 0
        size, nbytes = _train_front(packets)
        if not size or not TRAIN_FRONT_BYTES + TAG_BYTES <= nbytes <= TRAIN_BYTES_MAX:
            self._drop("malformed")
            return 0
        if nbytes > len(packets):
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
        peer = self._peers.get(session)
        if peer is not None and self._now_us - peer.asked_us >= ASK_AGAIN_US:
            peer.asked_us = self._now_us
            self._replies.append((peer.source, self._sealed(LOSS, session)))

    # -- sessions ---------------------------------------------------------------------------------

    def _hold(self, source: Address, packets: Burst, session: bytes, key: GroupKey) -> None:
        """Keep packets of an unknown session, within bounds, and challenge it, unless that would be
        longer."""
        if session == self._session:
            self._count("net.in.echo", len(packets))
            return
        held = self._held.setdefault(session, HeldPackets())
        if held.has_room(packets):
            held.add(source, packets)
        else:
            self._drop("stranger", len(packets))
        if len(self._held) > HELD_SESSIONS_MAX:
            self._drop("stranger", self._held.pop(next(iter(self._held))).count)
        since_us = self._now_us - ASK_AGAIN_US
        is_short = len(packets.buffer) < CHALLENGE_BYTES
        if is_short or self._asked_us.get(session, since_us) > since_us:
            return
        if len(self._asked_us) >= SESSIONS_COUNT_MAX:
            del self._asked_us[next(iter(self._asked_us))]
        self._asked_us[session] = self._now_us
        self._count("seal.challenged")
        challenge = self._greetings.challenge(key, session, source, self._now_us)
        self._replies.append((source, challenge))

    def _greeted(self, source: Address, packet: Buffer, key: GroupKey, opened: Found) -> None:
        try:
            greeting = open_greeting(key, packet)
        except self._bad_tag:
            self._drop("bad_tag")
        except BadPacket:
            self._drop("malformed")
        else:
            if isinstance(greeting, SessionHello):
                self._met(source, greeting, key, opened)
            elif greeting.session == self._session:
                self._answer(source, greeting.challenge)

    def _answer(self, source: Address, challenge: bytes) -> None:
        self._count("seal.answered")
        hello = SessionHello(challenge, self._salt, self._counter, self._incarnation, self._name)
        self._replies.append((source, self._greetings.hello(self._use, hello)))

    def _met(self, source: Address, hello: SessionHello, key: GroupKey, opened: Found) -> None:
        session, now_us = hello.salt[:SESSION_BYTES], self._now_us
        if session == self._session or not self._greetings.is_answered(hello, source, now_us):
            self._drop("replay")
            return
        peer = self._peers.get(session)
        if peer is None:
            name = bytes(hello.name)
            cipher = session_key(key.key, self._group, name, hello.incarnation, hello.salt)
            peer = PeerSession(key.id, source, cipher, hello.counter, now_us)
            self._know(session, peer)
        elif peer.source != source and now_us - peer.heard_us < MOVE_US:
            self._drop("moved")
            return
        self._count("seal.met")
        peer.source = source
        self.is_answered = True
        self._asked_us.pop(session, None)
        held = self._held.pop(session, None)
        for its_source, packets in held.bursts if held is not None else ():
            if its_source == source:
                self._open_burst(source, packets, opened)
            else:
                self._drop("stranger", len(packets))

    # -- what is refused --------------------------------------------------------------------------

    def _refuse_foreign(self, packet: Buffer) -> None:
        if not is_open(packet, self._group_tag):
            self._drop("foreign")
            return
        self._drop("open")
        self._complain(
            f"packets of group {self._group} come that are not sealed: give key= at every member,"
            " or at none"
        )

    def _refuse_key(self, key: bytes) -> None:
        self._drop("old_key" if key in self._former_keys else "no_key")
        self._complain(
            f"packets of group {self._group} come that are sealed with key {key.hex()}, which is"
            " not in this keyring: install it, or use a key here that the others have"
        )

    def _complain(self, text: str) -> None:
        self.unread = self.unread or text

    def _drop(self, reason: str, by: int = 1) -> None:
        self._count(f"drop.{reason}", by)

    def _count(self, name: str, by: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + by


def _alone(packet: Buffer) -> Burst:
    return Burst(memoryview(packet), len(packet) or 1)


def _train_front(packets: Buffer) -> tuple[int, int]:
    """The size of the packets in a train, and the length of the whole."""
    size, nbytes = _TRAIN.unpack_from(packets)
    return size, nbytes
