"""Where there is no multicast: nobody is sent anything before it proved that it is where it says.

A datagram's source is what somebody wrote on it. So one from a stranger brings it no more than a
*challenge* of 28 octets, never longer than what came, that holds a cookie: a keyed hash of the
address and the time. Who sends the cookie back receives at that address, and is let through; what
it said first was kept meanwhile, so nobody has to ask twice. The key is random and of this process
alone.

A challenge names the group, and only members of that group answer it: nobody can have a stream sent
to a process of another group by writing its address on a packet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from struct import Struct
from typing import Final

from unisono.model import Address, Buffer, Burst, Packets
from unisono.net.destinations import Destinations

_FORM: Final = Struct("!3sB8s16s")
OCTETS: Final = _FORM.size
MAGIC: Final = b"UNC"
CHALLENGE, ANSWER = 1, 2
SLOT_US: Final = 4_000_000
"""A cookie is good in the slot of time in which it was made, and in the next."""
HELD_COUNT_MAX: Final = 64
HELD_PACKETS_MAX: Final = 8
HELD_BYTES_MAX: Final = 2048
"""Strangers whose first packets wait for their answer, how many of each, and how long ones."""
ASKED_MAX: Final = 256
ASK_AGAIN_US: Final = 50_000
"""Who is to be spoken to and has not proved its address is asked so often, so many at once."""

Found = list[tuple[Address, Packets]]


class AddressValidation:
    """Between the sockets of one member and its core."""

    def __init__(
        self,
        audience: Destinations,
        group: str,
        send: Callable[[Address, bytes], None],
        counts: dict[str, int],
        key: bytes | None = None,
    ) -> None:
        self._audience = audience
        self._group = blake2b(group.encode(), digest_size=8).digest()
        self._send = send
        self._counts = counts
        self._key = os.urandom(32) if key is None else key
        self._held: dict[Address, list[Buffer]] = {}
        self._asked_us: dict[Address, int] = {}
        self._expected: dict[bytes, Address] = {}

    # -- in ---------------------------------------------------------------------------------------

    def sift(self, found: Found, now_us: int) -> Found:
        """What the core is to hear of what was read."""
        heard: Found = []
        for source, packets in found:
            if may_hold(packets):
                packets = self._without_ours(source, packets, now_us, heard)
                if not packets:
                    continue
            if self._audience.reaches(source, now_us):
                heard.append((source, packets))
                if self._audience.should_prove_again(source, now_us):
                    self.ask(source, now_us)
            else:
                self._stop(source, packets, now_us)
        return heard

    def _without_ours(
        self, source: Address, packets: Packets, now_us: int, heard: Found
    ) -> list[Buffer]:
        rest: list[Buffer] = []
        for packet in packets:
            if len(packet) != OCTETS or bytes(packet[:3]) != MAGIC:
                rest.append(packet)
                continue
            _, what, group, cookie = _FORM.unpack(packet)
            if group != self._group:
                self._count("drop.challenge")
            elif what == CHALLENGE:
                self._count("net.answered")
                self._send(source, _FORM.pack(MAGIC, ANSWER, group, cookie))
            elif what == ANSWER and (who := self._proved(source, cookie, now_us)) is not None:
                self._count("net.proved")
                self._audience.proved(who, now_us)
                self._asked_us.pop(who, None)
                if held := self._held.pop(who, None):
                    heard.append((who, held))
            else:
                self._count("drop.challenge")
        return rest

    def _proved(self, source: Address, cookie: bytes, now_us: int) -> Address | None:
        """Whose cookie it is: the sender's; or, where addresses are translated, that of one whom we
        asked and who answers from elsewhere."""
        asked = self._expected.pop(cookie, source)
        return next((who for who in (source, asked) if cookie in self._cookies(who, now_us)), None)

    def _stop(self, source: Address, packets: Packets, now_us: int) -> None:
        """A stranger's: kept, if it is short, and challenged, if that is not longer."""
        if sum(map(len, packets)) < OCTETS:
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

    def ask(self, who: Address, now_us: int) -> None:
        """It is to be spoken to: ask it for a proof of its address, but not too often."""
        since_us = now_us - ASK_AGAIN_US
        if self._asked_us.get(who, since_us) > since_us:
            return
        if len(self._asked_us) >= ASKED_MAX:
            self._asked_us = {each: at for each, at in self._asked_us.items() if at > since_us}
            if len(self._asked_us) >= ASKED_MAX:
                return
        self._asked_us[who] = now_us
        while len(self._expected) >= ASKED_MAX:
            del self._expected[next(iter(self._expected))]
        self._expected[self._challenge(who, now_us)] = who

    def _challenge(self, who: Address, now_us: int) -> bytes:
        self._count("net.challenged")
        cookie = self._cookies(who, now_us)[0]
        self._send(who, _FORM.pack(MAGIC, CHALLENGE, self._group, cookie))
        return cookie

    def _cookies(self, who: Address, now_us: int) -> tuple[bytes, bytes]:
        """Of this slot of time, and of the one before."""
        slot = now_us // SLOT_US
        now, before = (
            blake2b(f"{who} {each}".encode(), digest_size=16, key=self._key).digest()
            for each in (slot, slot - 1)
        )
        return now, before

    def _count(self, name: str, by: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + by


def may_hold(packets: Packets) -> bool:
    """Whether a challenge or an answer may be among them, by their lengths."""
    if isinstance(packets, Burst):
        last = len(packets.buffer) % packets.size if packets.size else 0
        return OCTETS in (packets.size, last)
    return any(len(packet) == OCTETS for packet in packets)
