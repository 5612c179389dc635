"""Two or three processes with seals, and the network between them as plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from unisono.model import Address, Buffer, Burst, Packets

pytest.importorskip("cryptography", reason="sealing needs it: pip install 'unisono[seal]'")

from unisono.sealing.identity import Identity, Signer
from unisono.sealing.keys import Keyring
from unisono.sealing.seal import Replies, Seal

KEY, OTHER_KEY = b"k" * 16, b"o" * 16
ONE_KEY = Keyring((KEY,))


class Sealed:
    """A process: its seal, its address, and what it believed."""

    def __init__(
        self,
        name: str,
        keyring: Keyring = ONE_KEY,
        group: str = "g",
        life: int = 1,
        signer: Signer | None = None,
    ) -> None:
        self.address = Address(f"10.0.0.{ord(name[0]) - 96}", 7000)
        self.counts: dict[str, int] = {}
        roll = Random(f"{name}{life}")
        self.seal = Seal(keyring, group, name, life, roll.randbytes, self.counts, signer)
        self.heard: list[bytes] = []
        self.now_us = 0

    def packets(self, *packets: bytes, as_train: bool = True) -> list[bytes]:
        """Packets of one length as they travel, but for a shorter last one."""
        size = len(packets[0])
        buffer, length, _ = self.seal.seal((b"".join(packets), size, len(packets)), as_train)
        return [bytes(buffer[at : at + length]) for at in range(0, len(buffer), length)]

    def take(self, source: Sealed, packets: Sequence[Buffer], together: bool = True) -> Replies:
        """Packets come, together or one by one."""
        found: list[tuple[Address, Packets]]
        if together and len(packets) > 1:
            burst = Burst(memoryview(bytearray(b"".join(packets))), len(packets[0]))
            found = [(source.address, burst)]
        else:
            found = [(source.address, [packet]) for packet in packets]
        opened, replies = self.seal.open(found, self.now_us)
        self.heard += [bytes(packet) for _, some in opened for packet in some]
        return replies

    def dropped(self, reason: str) -> int:
        return self.counts.get(f"drop.{reason}", 0)


def carry(
    sender: Sealed, receiver: Sealed, packets: Sequence[Buffer], together: bool = True
) -> None:
    """Packets, and all that follows from them."""
    under_way = [(sender, receiver, packets)]
    while under_way:
        source, target, some = under_way.pop(0)
        under_way += [
            (target, source, [reply])
            for to, reply in target.take(source, some, together)
            if to == source.address
        ]


def acquainted() -> tuple[Sealed, Sealed]:
    """Two that have met."""
    a, b = Sealed("a"), Sealed("b")
    for one, other in ((a, b), (b, a)):
        carry(one, other, one.packets(bytes(100)))
        assert other.heard == [bytes(100)]
        other.heard.clear()
    return a, b


def identified(names: str, private: bytes = b"") -> list[Sealed]:
    """Processes with identities, that are allowed to each other."""
    keys = {name: Identity(name, private or name.encode() * 32) for name in names}
    allowed = {name: key.public() for name, key in keys.items()}
    return [
        Sealed(name, signer=Signer(key, allowed, "g", Random(f"exchange {name}").randbytes))
        for name, key in keys.items()
    ]
