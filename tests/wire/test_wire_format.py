"""The page of the wire format is generated from the declarations: `pytest --rewrite` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.harness import ROOT
from unisono import replay_history as history
from unisono.client import frames
from unisono.daemon import records
from unisono.daemon.registry import Snapshot
from unisono.layout import describe
from unisono.net.address_validation import Challenge
from unisono.parts import turn
from unisono.parts.admission import Note
from unisono.protocols.mtp import batch, decision, packets, reading, web
from unisono.protocols.ring import packets as ring
from unisono.protocols.ring import ring as rings
from unisono.protocols.rmcast import control
from unisono.protocols.rmcast import packets as rmcast
from unisono.protocols.rmp import data_packets, requests
from unisono.protocols.rmp import packets as rmp
from unisono.protocols.transis import packets as transis
from unisono.protocols.transis import primary
from unisono.sealing import records as sealed
from unisono.services.calls import messages as calls

PAGE = ROOT / "docs" / "WIRE.md"
HEAD = """# Wire format

Generated from the declarations in the code (`tests/wire/test_wire_format.py`). Numbers are unsigned
and in network byte order; adjacent bits share a byte, the first lowest; a *member* is its name
(text), its host (text), its port (u16) and its incarnation (u64, 63 bits). Bytes that do not fit a
declaration are dropped and counted.

Every datagram is an envelope: magic `UN` (u16), version 3 (u8), protocol (u8), kind (u8), flags 0
(u8), group (u64), incarnation of the group (u64); the packet; and a CRC-32 in little-endian order,
begun so that the CRC of sound packets side by side is constant.
"""

Named = tuple[str, Any]


DAEMON = (
    "On the local socket. Kinds below 16 are sent by the client, others by the daemon. BYE and"
    " BLOCKED carry a reason as text, CAPTURE a key, ADOPT a state; other kinds that are not listed"
    " are empty."
)


def kinds(table: dict[Any, Any], names: dict[int, str] | None = None) -> list[Named]:
    return [(names[kind] if names else kind.name.lower(), table[kind]) for kind in sorted(table)]


def section(title: str, text: str, parts: Iterable[Named]) -> str:
    rows = []
    for name, record in parts:
        fields = describe(record)
        rows += [(name if not at else "", *field) for at, field in enumerate(fields)]
        if not fields:
            rows.append((name, "", "nothing more"))
    table = "".join(f"| {name} | {field} | {form} |\n" for name, field, form in rows)
    return f"\n## {title}\n\n{text}\n\n| record | field | form |\n|---|---|---|\n{table}"


def page() -> str:
    ringed = {**ring.BY_CODE, **ring.WITH_CODE}
    return HEAD + "".join(
        (
            section(
                "rmcast",
                "Protocol 4. Members' packets begin with the header.",
                [
                    ("*header*", rmcast.HeaderFields),
                    *kinds({**rmcast.WITHOUT_HEADER, **rmcast.BEHIND_HEADER}, rmcast.KINDS),
                    ("data", rmcast.DataFields),
                    ("a whole welcome", rmcast.Welcome),
                    *((f"control {tag}", kind) for tag, kind in control.CONTROLS.items()),
                ],
            ),
            section(
                "mtp",
                "Protocol 1. All but join, refuse and seat begin with the header.",
                [
                    ("*header*", packets.Header),
                    ("data", packets.DataFront),
                    *kinds({**reading.BEHIND_HEADER, **reading.WITHOUT_HEADER}, packets.KINDS),
                    ("message: a batch", batch.BatchHead),
                    ("message: mixed", batch.MixedHead),
                    ("message: a change", batch.ChangeFields),
                    ("roster", web.WebRoster),
                    ("decision", decision.Decision),
                ],
            ),
            section(
                "ring",
                "Protocol 3. All begin with the header; codes that are not listed are all header.",
                [
                    ("*header*", ring.WireHeader),
                    ("token_bc, resend_data", ring.TurnFront),
                    *kinds(ringed),
                    ("a turn", turn.TurnHead),
                    ("a ring", rings.RingFields),
                    ("stable record", rings.RecordFields),
                ],
            ),
            section(
                "rmp",
                "Protocol 5. The life in the envelope is the TRID.",
                [
                    ("data", data_packets.BlockFront),
                    ("uniform", data_packets.UniformFront),
                    *kinds(rmp.FORMS, rmp.KINDS),
                    ("a block", data_packets.BlockHead),
                    ("its messages", turn.TurnHead),
                    ("a whole welcome", rmp.RingSnapshot),
                    ("request", requests.RequestFields),
                ],
            ),
            section(
                "transis",
                "Protocol 6. The life in the envelope is that of the configuration, in packets"
                " about one; ranks are those in it.",
                [
                    *kinds(dict(enumerate(transis.PACKETS.records, 1)), transis.KINDS),
                    ("a vertex", transis.VertexContent),
                    ("its messages", turn.TurnHead),
                    ("stable record", primary.PrimaryMemory),
                ],
            ),
            section("Notes", "Of no protocol: what members have in common.", [("note", Note)]),
            section(
                "Sealed packets",
                "With a key, these surround all packets. Kinds: 1 a packet, 2 a train of packets, 3"
                " a request to seal singly, 4 a challenge, 5 a hello, 6 and 7 the same of members"
                " with identities. The front is authenticated; what follows is encrypted with"
                " AES-128-GCM and ends with a tag of 16 bytes. A record of a train is cut into"
                " packets, of which only the first has the front. The"
                " nonce of kinds 1 to 3 is the counter, as 12 bytes.",
                [
                    ("*front* of 1, 2, 3", sealed.SealedFront),
                    ("then, of a train", sealed.TrainFront),
                    ("*front* of 4 to 7", sealed.GreetingFront),
                    ("challenge", sealed.SessionChallenge),
                    ("hello", sealed.SessionHello),
                    ("signed challenge", sealed.SignedChallenge),
                    ("signed hello", sealed.SignedHello),
                ],
            ),
            section(
                "Challenges",
                "Without multicast, to validate an address: kind 1 is the challenge, 2 the answer."
                " No envelope.",
                [("challenge", Challenge)],
            ),
            section(
                "Frames of the daemon",
                f"{DAEMON} Kinds: {', '.join(f'{k.name} {int(k)}' for k in frames.FrameKind)}.",
                [("*front*", frames.FrameFront), *kinds(frames.FRAMES)],
            ),
            section(
                "Records of daemons",
                "Multicast among daemons.",
                [
                    ("*front*", records.RecordFront),
                    *((records.RecordKind(k).name.lower(), r) for k, r in records.RECORDS.items()),
                    ("snapshot", Snapshot),
                ],
            ),
            section(
                "Replayable groups",
                "Payloads that begin with 0xF5 and the kind.",
                [
                    ("1 row", history.RowFields),
                    ("2 ask, 3 have", history.RecallRequest),
                    ("4 want", history.RecallChoice),
                    ("5 fill", history.RecallPart),
                    ("state", history.HistoryFields),
                ],
            ),
            section(
                "Calls",
                "Of `services.rpc`: payloads that begin with `00` `unisono.rpc/1` and `C`, or `P`"
                " for a probe; the others are datagrams, or messages to the caller's own group.",
                [
                    ("call", calls.CallFields),
                    ("its head", calls.CallHead),
                    ("probe", calls.ProbeFields),
                    ("answers", calls.AnswerPacket),
                    ("acknowledgment", calls.AckPacket),
                    ("2 failure", calls.FailureBody),
                    ("3 members", calls.ViewMembers),
                    ("4 gone", calls.Departure),
                ],
            ),
        )
    )


def test_the_page_is_as_declared(rewrite: bool) -> None:
    if rewrite:
        PAGE.write_text(page())
    assert PAGE.read_text() == page()
