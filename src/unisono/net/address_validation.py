"""Without multicast, an address is validated before anything is sent to it.

The source of a datagram can be forged. So a packet from an unknown address is answered only by a
*challenge* of 28 bytes, never longer than the packet, with a cookie: a keyed hash of the address
and the time. A sender that returns the cookie receives at that address, and is admitted; its first
packets were held meanwhile, so it need not repeat them. The key is random and local to the process.

A challenge names the group, and only members of that group answer it: forging the address of a
process of another group cannot direct a stream at it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

from unisono.fields import U8, raw
from unisono.layout import decode, encode, size_of
from unisono.model import Address, Buffer, Burst, Packets
from unisono.net.destinations import Destinations

MAGIC: Final = b"UNC"
CHALLENGE, ANSWER = 1, 2


class Challenge(NamedTuple):
    """A request to prove an address, or the proof: the cookie of the request."""

    magic: Annotated[bytes, raw(3)]
    kind: U8
    group: Annotated[bytes, raw(8)]
    cookie: Annotated[bytes, raw(16)]


PACKET_BYTES: Final = size_of(Challenge)
SLOT_US: Final = 4_000_000
"""A cookie is valid in the time slot in which it was made, and in the next."""
HELD_COUNT_MAX: Final = 64
HELD_PACKETS_MAX: Final = 8
HELD_BYTES_MAX: Final = 2048
"""Bounds of held packets: unknown addresses, packets of each, bytes of a packet."""
ASKED_MAX: Final = 256
ASK_AGAIN_US: Final = 50_000
"""Bounds of challenges to destinations: how many at once, and the interval to repeat one."""

Found = list[tuple[Address, Packets]]


class AddressValidation:
    """Between the sockets of one member and its core."""

    def __init__(
        self,
        destinations: Destinations,
        group: str,
        send: Callable[[Address, bytes], None],
        counts: dict[str, int],
        key: bytes | None = None,
    ) -> None:
        self._destinations = destinations
        self._group = blake2b(group.encode(), digest_size=8).digest()
        self._send = send
        self._counts = counts
        self._key = os.urandom(32) if key is None else key
        self._held: dict[Address, list[Buffer]] = {}
        self._asked_us: dict[Address, int] = {}
        self._expected: dict[bytes, Address] = {}

    # -- in ---------------------------------------------------------------------------------------

    def admit(self, found: Found, now_us: int) -> Found:
        """The packets that are passed on to the core."""
        accepted: Found = []
        for source, packets in found:
            if may_hold(packets):
                packets = self._without_ours(source, packets, now_us, accepted)
                if not packets:
                    continue
            if self._destinations.reaches(source, now_us):
                accepted.append((source, packets))
                if self._destinations.should_prove_again(source, now_us):
                    self.ask(source, now_us)
            else:
                self._stop(source, packets, now_us)
        return accepted

    def _without_ours(
        self, source: Address, packets: Packets, now_us: int, accepted: Found
    ) -> list[Buffer]:
        rest: list[Buffer] = []
        for packet in packets:
            if len(packet) != PACKET_BYTES or bytes(packet[:3]) != MAGIC:
                rest.append(packet)
                continue
            _, what, group, cookie = decode(Challenge, packet)
            if group != self._group:
                self._count("drop.challenge")
            elif what == CHALLENGE:
                self._count("net.answered")
                self._send(source, encode(Challenge(MAGIC, ANSWER, group, cookie)))
            elif what == ANSWER and (address := self._proved(source, cookie, now_us)) is not None:
                self._count("net.proved")
                self._destinations.proved(address, now_us)
                self._asked_us.pop(address, None)
                if held := self._held.pop(address, None):
                    accepted.append((address, held))
            else:
                self._count("drop.challenge")
        return rest

    def _proved(self, source: Address, cookie: bytes, now_us: int) -> Address | None:
        """The address that the cookie proves: the sender's; or, where addresses are translated, the
        challenged one, which answers from another."""
        asked = self._expected.pop(cookie, source)
        return next(
            (address for address in (source, asked) if cookie in self._cookies(address, now_us)),
            None,
        )

    def _stop(self, source: Address, packets: Packets, now_us: int) -> None:
        """Hold the packets of an unknown address, within bounds, and challenge it, unless that
        would be longer."""
        if sum(map(len, packets)) < PACKET_BYTES:
            self._count("drop.stranger", len(packets))
            return
        held = self._held.pop(source, [])
        for packet in packets:
            if len(held) < HELD_PACKETS_MAX and len(packet) <= HELD_BYTES_MAX:
                held.append(bytes(packet))
            else:
                self._count("drop.stranger")
        while len(self._held) >= HELD_COUNT_MAX:
            self._count("drop.stranger", len(self._held.pop(next(iter(self._held)))))
        self._held[source] = held
        self._challenge(source, now_us)

    # -- out --------------------------------------------------------------------------------------

    def ask(self, address: Address, now_us: int) -> None:
        """Challenge a destination that is not validated, at most every ASK_AGAIN_US."""
        since_us = now_us - ASK_AGAIN_US
        if self._asked_us.get(address, since_us) > since_us:
            return
        if len(self._asked_us) >= ASKED_MAX:
            self._asked_us = {each: at for each, at in self._asked_us.items() if at > since_us}
            if len(self._asked_us) >= ASKED_MAX:
                return
        self._asked_us[address] = now_us
        while len(self._expected) >= ASKED_MAX:
            del self._expected[next(iter(self._expected))]
        self._expected[self._challenge(address, now_us)] = address

    def _challenge(self, address: Address, now_us: int) -> bytes:
        self._count("net.challenged")
        cookie = self._cookies(address, now_us)[0]
        self._send(address, encode(Challenge(MAGIC, CHALLENGE, self._group, cookie)))
        return cookie

    def _cookies(self, address: Address, now_us: int) -> tuple[bytes, bytes]:
        """Of this time slot, and of the one before."""
        slot = now_us // SLOT_US
        now, before = (
            blake2b(f"{address} {each}".encode(), digest_size=16, key=self._key).digest()
            for each in (slot, slot - 1)
        )
        return now, before

    def _count(self, name: str, by: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + by


def may_hold(packets: Packets) -> bool:
    """Whether a challenge or an answer may be among them, by their lengths."""
    if type(packets) is Burst:  # Of a sequence, `isinstance` is slow.
        last = len(packets.buffer) % packets.size if packets.size else 0
        return PACKET_BYTES in (packets.size, last)
    return PACKET_BYTES in map(len, packets)
