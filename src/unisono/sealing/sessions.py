"""The sessions of other processes: met by challenge and answer, and believed from then on."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, TypeAlias

from unisono.errors import BadPacket
from unisono.model import Address, Buffer, Burst
from unisono.sealing.greeting import (
    CHALLENGE_BYTES,
    Entropy,
    Greetings,
    GroupKey,
    open_greeting,
    session_key,
)
from unisono.sealing.identity import Allowed, Signer
from unisono.sealing.keys import Aead, bad_tag
from unisono.sealing.records import (
    SALT_BYTES,
    SECRET_BYTES,
    SESSION_BYTES,
    Greeting,
    SessionChallenge,
    SessionHello,
    SignedChallenge,
    SignedHello,
)
from unisono.sealing.replay import ReplayWindow

SESSIONS_COUNT_MAX: Final = 1024
HELD_SESSIONS_MAX: Final = 64
HELD_BYTES_MAX: Final = 1 << 17
"""Of packets that wait for the answer to a challenge: sessions, and bytes of each."""
ASK_AGAIN_US: Final = 50_000
SIGNED_US: Final = 100_000
SIGNED_COUNT_MAX: Final = 128
"""In so long a time, so many greetings are signed or checked, and the others dropped: a signature
costs as much as a hundred packets, and recorded greetings are there for everybody to replay."""
MOVE_US: Final = 1_000_000
"""A session is believed from another address once nothing came from the former for so long: else
who relays challenges and answers could take members away from each other."""


Claim: TypeAlias = tuple[bytes, Address]
"""A session, and where packets come from that say they are of it. Of each claim by itself, so that
none who repeats a session's name keeps its process from being asked."""


class Refusals:
    """What is dropped, counted by reason, and what to do about it."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self.unread = ""
        """Which packets of our group we cannot read, and what to do; empty if there were none."""

    def drop(self, reason: str, by: int = 1) -> None:
        self.count(f"drop.{reason}", by)

    def count(self, name: str, by: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + by

    def complain(self, text: str) -> None:
        self.unread = self.unread or text


class OwnSession:
    """Our own, from a new salt. Records are counted from 0."""

    def __init__(
        self,
        key: GroupKey,
        group: str,
        name: bytes,
        incarnation: int,
        entropy: Entropy,
        signs: bool,
    ) -> None:
        self.key = key
        self._name = name
        self._incarnation = incarnation
        self._salt = entropy(SALT_BYTES)
        self.secret = entropy(SECRET_BYTES) if signs else b""
        self.id = self._salt[:SESSION_BYTES]
        self.cipher = session_key(key.key, group, name, incarnation, self._salt, self.secret)
        self.counter = self.nbytes = 0

    def hello(self, challenge: bytes) -> SessionHello:
        return SessionHello(challenge, self._salt, self.counter, self._incarnation, self._name)


class PeerSession:
    """A session whose process has proved to be there."""

    __slots__ = ("asked_us", "cipher", "heard_us", "key", "name", "signed", "source", "window")

    def __init__(
        self,
        key: bytes,
        name: bytes,
        signed: bytes | None,
        source: Address,
        cipher: Aead,
        counter: int,
        now_us: int,
    ) -> None:
        self.key = key
        """The id of the group's key."""
        self.name = name
        self.signed = signed
        """The key that the list of allowed members had for the name."""
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
        self.bursts: list[Burst] = []
        self.nbytes = 0

    def has_room(self, packets: Burst) -> bool:
        return self.nbytes + len(packets.buffer) <= HELD_BYTES_MAX

    def add(self, packets: Burst) -> None:
        self.bursts.append(Burst(memoryview(bytes(packets.buffer)), packets.size))
        self.nbytes += len(packets.buffer)

    @property
    def count(self) -> int:
        return sum(map(len, self.bursts))


class PeerSessions:
    """Keeps packets of unknown sessions, within bounds, until their process has answered."""

    def __init__(
        self,
        group: str,
        group_tag: bytes,
        entropy: Entropy,
        signer: Signer | None,
        refusals: Refusals,
    ) -> None:
        self._group = group
        self._signer = signer
        """With identities."""
        self._greetings = Greetings(group_tag, entropy, signer)
        self._refusals = refusals
        self._bad_tag = bad_tag()
        self._held: dict[Claim, HeldPackets] = {}
        self._asked_us: dict[Claim, int] = {}
        self._signed_us = self._signed_count = 0
        self.known: dict[bytes, PeerSession] = {}
        self.is_answered = False
        """Another process of the group has proved to be there."""

    def keep(self, keys: Container[bytes]) -> None:
        """Only sessions with these keys."""
        self.known = {id: peer for id, peer in self.known.items() if peer.key in keys}

    def allow(self, allowed: Allowed) -> None:
        """Only sessions of these members."""
        assert self._signer is not None
        self._signer.allowed = allowed
        self.known = {
            id: peer
            for id, peer in self.known.items()
            if allowed.get(peer.name.decode(errors="replace")) == peer.signed
        }

    def _know(self, session: bytes, peer: PeerSession) -> None:
        if len(self.known) >= SESSIONS_COUNT_MAX:
            del self.known[next(iter(self.known))]
        self.known[session] = peer

    def hold(
        self, source: Address, packets: Burst, session: bytes, key: GroupKey, now_us: int
    ) -> bytes:
        """Keep packets of an unknown session. Returns the challenge to send; empty if it was
        challenged just now, or if the challenge would be longer than what came."""
        claim = session, source
        held = self._held.setdefault(claim, HeldPackets())
        if held.has_room(packets):
            held.add(packets)
        else:
            self._refusals.drop("stranger", len(packets))
        if len(self._held) > HELD_SESSIONS_MAX:
            self._refusals.drop("stranger", self._held.pop(next(iter(self._held))).count)
        since_us = now_us - ASK_AGAIN_US
        is_short = len(packets.buffer) < CHALLENGE_BYTES
        is_asked = self._asked_us.get(claim, since_us) > since_us
        if is_short or is_asked or not self._may_sign(now_us):
            return b""
        if len(self._asked_us) >= SESSIONS_COUNT_MAX:
            del self._asked_us[next(iter(self._asked_us))]
        self._asked_us[claim] = now_us
        self._refusals.count("seal.challenged")
        return self._greetings.challenge(key, session, source, now_us)

    def _may_sign(self, now_us: int) -> bool:
        if self._signer is None:
            return True
        if now_us - self._signed_us >= SIGNED_US:
            self._signed_us, self._signed_count = now_us, 0
        self._signed_count += 1
        if self._signed_count > SIGNED_COUNT_MAX:
            self._refusals.drop("busy")
        return self._signed_count <= SIGNED_COUNT_MAX

    def open(self, packet: Buffer, key: GroupKey, now_us: int) -> Greeting | None:
        """A greeting that is signed as it must be."""
        try:
            greeting = open_greeting(key, packet)
        except self._bad_tag:
            self._refusals.drop("bad_tag")
        except BadPacket:
            self._refusals.drop("malformed")
        else:
            if self._is_allowed(greeting, now_us):
                return greeting
        return None

    def _is_allowed(self, greeting: Greeting, now_us: int) -> bool:
        if isinstance(greeting, SessionChallenge | SessionHello):
            if self._signer is None:
                return True
            self._refuse_mixed("unsigned")
        elif self._signer is None:
            self._refuse_mixed("signed")
        elif not self._may_sign(now_us):
            return False
        elif self._signer.is_signed(greeting):
            return True
        else:
            self._refusals.drop("not_allowed")
            name = bytes(greeting.name).decode(errors="replace")
            self._refusals.complain(
                f"a process greets as {name!r} in group {self._group}, and is not in the list of"
                " allowed= with the key that it signs with"
            )
        return False

    def _refuse_mixed(self, reason: str) -> None:
        self._refusals.drop(reason)
        self._refusals.complain(
            f"some members of group {self._group} have identities and some have none: give"
            " identity= and allowed= at every member, or at none"
        )

    def answer(self, own: OwnSession, asked: SessionChallenge | SignedChallenge) -> bytes:
        """Empty if there is none."""
        hello = own.hello(asked.challenge)
        try:
            packet = self._greetings.hello(own.key, hello, own.secret, asked)
        except ValueError:
            self._refusals.drop("malformed")
            return b""
        self._refusals.count("seal.answered")
        return packet

    def meet(
        self, source: Address, hello: SessionHello | SignedHello, key: GroupKey, now_us: int
    ) -> list[Burst]:
        """What was kept of a session that has answered."""
        if not self._greetings.is_answered(hello, source, now_us):
            self._refusals.drop("replay")
            return []
        session = hello.salt[:SESSION_BYTES]
        peer = self.known.get(session)
        if peer is None:
            peer = self._peer(source, hello, key, now_us)
            if peer is None:
                self._refusals.drop("malformed")
                return []
            self._know(session, peer)
        elif peer.source != source and now_us - peer.heard_us < MOVE_US:
            self._refusals.drop("moved")
            return []
        self._refusals.count("seal.met")
        peer.source = source
        self.is_answered = True
        self._asked_us.pop((session, source), None)
        held = self._held.pop((session, source), None)
        return held.bursts if held is not None else []

    def _peer(
        self, source: Address, hello: SessionHello | SignedHello, key: GroupKey, now_us: int
    ) -> PeerSession | None:
        name, secret, signed = bytes(hello.name), b"", None
        if isinstance(hello, SignedHello):
            assert self._signer is not None
            found = self._signer.secret_of(hello)
            if found is None:
                return None
            secret, signed = found, self._signer.allowed[name.decode(errors="replace")]
        cipher = session_key(key.key, self._group, name, hello.incarnation, hello.salt, secret)
        return PeerSession(key.id, name, signed, source, cipher, hello.counter, now_us)
