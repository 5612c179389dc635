"""Every decoder, given real bytes that were changed: it reads them, or raises what it declares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from tests.fuzz.forging import WIRES, Forger
from unisono.client import frames
from unisono.daemon import records
from unisono.delivered_counts import DeliveredCounts
from unisono.errors import BadPacket, Misuse
from unisono.feed import protocol as feed
from unisono.layout import decode
from unisono.model import Address, Member, View
from unisono.net.address_validation import Challenge
from unisono.parts.turn import read_runs
from unisono.protocols.mtp.batch import read_content
from unisono.protocols.mtp.decision import machine_of
from unisono.protocols.ring.packets import Version
from unisono.protocols.ring.ring import read_record, read_ring
from unisono.sealing.keys import read_keyring
from unisono.services.calls.messages import read_datagram, read_failure
from unisono.services.commit.messages import read as read_commit
from unisono.wire import note_in

WIRE: Final = Path(__file__).parent.parent / "wire"
RECORDS: Final = {
    name: bytes.fromhex(data)
    for name, data in (
        line.split(" ", 1) for line in (WIRE / "golden_records.txt").read_text().splitlines()
    )
}
PACKETS: Final = [
    (protocol, bytes.fromhex(data))
    for protocol, data, _ in (
        line.split(" ", 2) for line in (WIRE / "golden_packets.txt").read_text().splitlines()
    )
]
LARGEST: Final = (b"\xff", b"\x7f\xff", b"\x3f\xff", b"\x80", b"\x00", b"\xfe")


class Decoder(NamedTuple):
    name: str
    read: Callable[[bytes], Any]
    samples: list[bytes]


def _packets(protocol: str) -> Decoder:
    return Decoder(
        protocol, WIRES[protocol].read, [packet for name, packet in PACKETS if name == protocol]
    )


def _of(prefix: str) -> list[bytes]:
    return [data for name, data in RECORDS.items() if name.startswith(prefix)]


TURN: Final = (
    bytes.fromhex("0001000000000000000700000000000000010001000200000003043131313131") + b"x"
)
COUNTED: Final = DeliveredCounts()
COUNTED.install(View(tuple(Member(name, Address("10.0.0.1", 7), 1) for name in "abc")))
DECODERS: Final = (
    *(_packets(protocol) for protocol in WIRES),
    Decoder("daemon record", records.read, _of("record.")),
    Decoder("view frame", lambda data: frames.read_view(memoryview(data)[5:], None), _of("view")),
    Decoder("bye frame", lambda data: frames.read_bye(memoryview(data)[5:]), _of("bye")),
    Decoder("challenge", lambda data: decode(Challenge, data), _of("challenge")),
    Decoder("note", note_in, _of("note")),
    Decoder("turn", read_runs, [TURN, TURN * 3]),
    Decoder(
        "batch", lambda data: read_content([data]), [*_of("batch"), *_of("mixed"), *_of("change")]
    ),
    Decoder("decision", lambda data: machine_of(data, 3), _of("decision") or [bytes(18)]),
    Decoder("ring's record", read_record, _of("ring.record")),
    Decoder("ring", lambda data: read_ring(Version(3, 5), data), [RECORDS["ring"]]),
    Decoder(
        "counted state",
        lambda data: DeliveredCounts().adopt(data),
        [DeliveredCounts().with_state(b"state"), COUNTED.with_state(b"")],
    ),
    Decoder("feed's request", feed.parse_json, [b'{"do": "rows", "query": "q", "epoch": 7}']),
    Decoder(
        "keyring", lambda data: read_keyring(data.decode("latin-1"), "it"), [b"ab" * 16 + b"\n"]
    ),
    Decoder("answer", read_datagram, [bytes(40), b"\1" * 60]),
    Decoder("failure", read_failure, [bytes(12), b"\0\3why\0\4kind"]),
    Decoder("commit", read_commit, [bytes(30), b"\1" * 60]),
)


def mangle(decoder: Decoder, seed: int, count: int) -> int:
    """So many inputs; how many there were."""
    dice = Random(f"{decoder.name} {seed}")
    forger = Forger(decoder.name, dice) if decoder.name in WIRES else None
    for _ in range(count):
        sample = dice.choice(decoder.samples)
        data = forger.mangled(sample) if forger and dice.random() < 0.5 else changed(dice, sample)
        try:
            decoder.read(data)
        except (BadPacket, Misuse):
            pass
        except Exception as error:
            raise AssertionError(f"{decoder.name} raised {error!r} on {data.hex()}") from error
    return count


def changed(dice: Random, sample: bytes) -> bytes:
    data = bytearray(sample)
    for _ in range(dice.randint(1, 4)):
        at, width = dice.randrange(len(data) or 1), dice.choice((1, 1, 2, 4, 8))
        match dice.randrange(4):
            case 0:
                data[at : at + 1] = dice.randbytes(1)
            case 1:
                data[at : at + width] = (dice.choice(LARGEST) * 8)[:width]
            case 2:
                del data[at:]
            case _:
                data[at:at] = dice.randbytes(width)
    return bytes(data)
