"""An attacker that knows Arrow's format writes to a feed, or is one: all that a message claims is
checked."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.feed.stage import Served, message
from tests.harness import output_of
from tests.waiting import LIMIT_S, until
from unisono.errors import BadPacket, UnisonoError
from unisono.feed import protocol, rows, server
from unisono.feed.client import FeedClient, FeedGone
from unisono.feed.protocol import FeedFrameKind
from unisono.feed.untrusted_arrow import BadRows, read_batch

ASK = protocol.json_frame(
    FeedFrameKind.REQUEST, do="rows", query="q", partition=0, epoch=0, first_row=0
)
PAYLOADS = [b"abcdefgh", b"ijklmnop"]
OFFSETS = struct.pack("<iii", 0, 8, 16)


def good(payloads: list[bytes | None] = PAYLOADS, codec: str | None = None) -> bytes:  # type: ignore[assignment]
    batch = pa.record_batch([pa.array(payloads, pa.binary())], schema=protocol.INTAKE)
    options = pa.ipc.IpcWriteOptions(compression=codec)
    return bytes(batch.serialize().to_pybytes()) if codec is None else framed(batch, options)


def framed(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema, options=options) as stream:
        stream.write_batch(batch)
        end = out.tell()
    return bytes(out.getvalue())[batch.schema.serialize().size : end]


def changed(old: bytes, new: bytes, whole: bytes = b"", nth: int = 0) -> bytes:
    """A good message with some of its bytes replaced: of several, those there or the last."""
    made = whole or good()
    at = made.rindex(old) if nth < 0 else -1
    for _ in range(nth + 1):
        at = made.index(old, at + 1)
    return made[:at] + new + made[at + len(old) :]


def q(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def listed() -> bytes:
    """Rows of another schema: nested, and deep."""
    kind: pa.DataType = pa.binary()
    for _ in range(60):
        kind = pa.list_(kind)
    nested = pa.record_batch([pa.nulls(2, kind)], schema=pa.schema([("payload", kind)]))
    return bytes(nested.serialize().to_pybytes())


def dictionary() -> bytes:
    words = pa.array(["x", "y"]).dictionary_encode()
    table = pa.record_batch([words], names=["payload"])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_batch(table)
    return bytes(out.getvalue())[table.schema.serialize().size :]


# fmt: off
ATTACKS: dict[str, bytes] = {
    "an offset far outside": changed(OFFSETS, struct.pack("<iii", 0, 60_000, 60_000)),
    "the farthest offset": changed(OFFSETS, struct.pack("<iii", 0, 2**31 - 1, 2**31 - 1)),
    "a negative offset": changed(OFFSETS, struct.pack("<iii", -60_000, 8, 16)),
    "offsets that fall": changed(OFFSETS, struct.pack("<iii", 0, 16, 8)),
    "offsets that fall below nothing": changed(OFFSETS, struct.pack("<iii", 0, 2**31 - 1, -5)),
    "more rows than offsets": changed(q(2, 0), q(60_000, 0)),
    "rows without end": changed(q(2, 0), q(2**62, 0)),
    "rows below nothing": changed(q(2, 0), q(-2, 0)),
    "rows that are all null": changed(q(2, 0), q(2, 2)),
    "more nulls than rows": changed(q(2, 0), q(2, 2**40)),
    "a batch longer than its column": changed(q(2), q(3), nth=1),
    "a buffer outside": changed(q(0, 12), q(1 << 20, 12)),
    "a buffer that wraps around": changed(q(0, 12), q(2**63 - 8, 12)),
    "a buffer before the body": changed(q(0, 12), q(-8, 12)),
    "a buffer of negative length": changed(q(0, 12), q(0, -12)),
    "a buffer of any length": changed(q(0, 12), q(0, 2**62)),
    "buffers over each other": changed(q(16, 16), q(0, 16)),
    "a short buffer of offsets": changed(q(0, 12), q(0, 4)),
    "lz4": good([b"x" * 9_000], "lz4"),
    "zstd": good([b"x" * 9_000], "zstd"),
    "lz4 that claims a terabyte": changed(q(9_000), q(1 << 40), good([b"x" * 9_000], "lz4")),
    "lz4 that claims less than nothing": changed(q(9_000), q(-9_000), good([b"x" * 9_000], "lz4")),
    "a schema": bytes(protocol.INTAKE.serialize().to_pybytes()),
    "a dictionary": dictionary(),
    "another schema": bytes(pa.record_batch([pa.array([1])], names=["x"]).serialize().to_pybytes()),
    "sixty lists deep": listed(),
    "no metadata": b"\xff\xff\xff\xff" + struct.pack("<i", 0),
    "negative metadata": b"\xff\xff\xff\xff" + struct.pack("<i", -8) + bytes(64),
    "metadata without end": b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 8) + bytes(64),
    "large metadata": b"\xff\xff\xff\xff" + struct.pack("<i", 1 << 20) + bytes(1 << 20),
    "metadata of nothing": b"\xff\xff\xff\xff" + struct.pack("<i", 1 << 12) + bytes(1 << 12),
    "metadata of ones": b"\xff\xff\xff\xff" + struct.pack("<i", 1 << 12) + b"\xff" * (1 << 12),
    "more body than was said": good() + bytes(64),
    "nothing": b"",
    "too many rows": good([b""] * (protocol.ROWS_COUNT_MAX + 1)),
    "a null": good([b"x", None]),
}
# fmt: on


def written(at: str, body: bytes) -> bytes:
    """What a feed answers to this."""
    host, port = at.split(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as made:
        made.settimeout(LIMIT_S)
        made.sendall(protocol.HELLO + ASK + protocol.frame(FeedFrameKind.ROWS, body))
        made.shutdown(socket.SHUT_WR)
        found = b""
        while part := made.recv(65_536):
            found += part
        return found


@pytest.mark.parametrize("what", ATTACKS)
def test_a_writer_that_lies_is_refused_and_counted_and_the_feed_goes_on(
    tmp_path: Path, what: str
) -> None:
    with Served(tmp_path) as served:
        answer = written(served.at, ATTACKS[what])
        kind, length = protocol.front_read(answer[: protocol.FRONT_BYTES])
        assert kind is FeedFrameKind.REFUSED
        assert (
            protocol.parse_json(answer[protocol.FRONT_BYTES :][:length])["why"]
            == protocol.Refusal.MISUSE
        )
        assert not served.taken, "nothing of it reaches the group"
        assert served.counts["drop.rows"] == 1
        with FeedClient(served.at, 5) as client:
            client.write("q", 0, 0, 0, [b"", *PAYLOADS])
        assert served.taken == [("q", 0, 0, 0, [b"", *PAYLOADS])]


def test_what_honest_writers_send_is_taken() -> None:
    for payloads in ([], [b""], [b""] * 9, PAYLOADS, [bytes(2_000_000)], [b"x"] * 65_536):
        batch = read_batch(good(payloads), protocol.INTAKE, protocol.ROWS_BYTES_MAX)  # type: ignore[arg-type]
        assert batch.column(0).to_pylist() == payloads
    sliced = pa.record_batch([pa.array([b"a", b"bc", b"d"], pa.binary())], schema=protocol.INTAKE)
    found = read_batch(sliced.slice(1).serialize().to_pybytes(), protocol.INTAKE, 1 << 20)
    assert found.column(0).to_pylist() == [b"bc", b"d"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"partition": 1 << 32}, b"partition="),
        ({"epoch": 1 << 62}, b"epoch="),
        ({"query": "q" * 5_000}, b"bad query name"),
        ({"query": "\ud800"}, b"bad query name"),
        ({"query": 7}, b"bad query name"),
    ],
)
def test_names_and_numbers_that_do_not_fit_are_refused(
    tmp_path: Path, fields: dict[str, object], words: bytes
) -> None:
    found = {"do": "rows", "query": "q", "partition": 0, "epoch": 0, "first_row": 0, **fields}
    with Served(tmp_path) as served:
        host, port = served.at.split(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as made:
            made.sendall(
                protocol.HELLO
                + protocol.json_frame(FeedFrameKind.REQUEST, **found)
                + protocol.frame(FeedFrameKind.ROWS, good())
            )
            assert words in made.recv(65_536)
        assert not served.taken


MANGLE = """
import random, sys
from tests.feed.test_hostile import *
dice = random.Random(int(sys.argv[1]))
plain = good([bytes([n]) * n for n in range(40)])
some = [message(n, b"m" * 20 * n) for n in range(1, 60)]
coded = rows.encoded(rows.messages_rows(some, 0, "g", "life", 1))
view = rows.encoded(rows.row(place=1, kind="view", group="g", members=["a#1", "b#2"]))
for _ in range(4000):
    whole = dice.choice((plain, coded, view))
    octets = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 8))):
        width, at = dice.choice((1, 2, 4, 8)), dice.randrange(len(octets))
        value = dice.choice((0, 1, 255, 127, 128, dice.randrange(256)))
        octets[at : at + width] = bytes([value]) * min(width, len(octets) - at)
    if dice.random() < 0.1:
        del octets[dice.randrange(len(octets)) :]
    try:
        if whole is plain:
            read_batch(bytes(octets), protocol.INTAKE, 1 << 20).column(0).to_pylist()
        else:
            found = rows.decoded(bytes(octets))
            found.to_pylist()
    except BadRows:
        pass
"""


@pytest.mark.parametrize("seed", range(3))
def test_mangled_messages_never_end_the_process(seed: int) -> None:
    """In a process of its own: a wrong offset would end this one."""
    output_of("-c", MANGLE, str(seed))


# -- a feed that lies to its readers --------------------------------------------------------------


class Liar:
    """Answers each request as the test requires."""

    def __init__(self, answer: Callable[[dict[str, object]], bytes]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self._server.accept()
            except OSError:
                return
            with made:
                stream = made.makefile("rb")
                with contextlib.suppress(OSError):
                    stream.read(len(protocol.HELLO))
                    while start := stream.read(protocol.FRONT_BYTES):
                        _, length = protocol.front_read(start)
                        made.sendall(self._answer(protocol.parse_json(stream.read(length))))

    def close(self) -> None:
        self._server.close()


KNOWN = {"first": 1, "end": 9, "last": 9, "group": "g", "life": "x", "stretches": [["x", 0, 1]]}


@pytest.mark.parametrize(
    "known",
    [
        {},
        {**KNOWN, "first": "1"},
        {**KNOWN, "end": None},
        {**KNOWN, "last": -1},
        {**KNOWN, "stretches": [["x", 0]]},
        {**KNOWN, "stretches": 7},
        {**KNOWN, "stretches": [["x", "many", 1]]},
        {**KNOWN, "stretches": [["x", float("inf"), 1]]},
    ],
)
def test_a_feed_with_malformed_answers_is_no_feed(known: dict[str, object]) -> None:
    liar = Liar(lambda fields: protocol.json_frame(FeedFrameKind.ANSWER, **known))
    with FeedClient(liar.at, 0.2) as client, pytest.raises((FeedGone, BadPacket)):
        client.bounds()
    liar.close()


@pytest.mark.parametrize(
    "blob",
    [
        rows.encoded(rows.row(kind="message")),
        rows.encoded(rows.row(offset=1)),
        rows.MARK + ATTACKS["an offset far outside"],
        rows.MARK + ATTACKS["lz4 that claims a terabyte"],
        b"nonsense",
        changed(q(8193), q(1 << 40), rows.encoded(rows.row(offset=1, kind="x" * 8193)), -1),
    ],
)
def test_a_reader_does_not_believe_its_feed(blob: bytes) -> None:
    def answer(fields: dict[str, object]) -> bytes:
        if fields["do"] == "bounds":
            return protocol.json_frame(FeedFrameKind.ANSWER, **KNOWN)
        return protocol.frame(FeedFrameKind.ROWS, blob) + protocol.json_frame(
            FeedFrameKind.END, upto=9
        )

    liar = Liar(answer)
    with FeedClient(liar.at, 0.5) as client, pytest.raises(UnisonoError):
        list(client.read(0, 9))
    liar.close()


def test_false_text_is_refused() -> None:
    data = rows.encoded(rows.row(offset=1, kind="gap"))
    with pytest.raises(BadRows, match="UTF"):
        rows.decoded(changed(b"gap", b"\xff\xfe\xfd", data))


def test_a_damaged_log_is_reported_and_not_trusted() -> None:
    data = bytearray(rows.encoded(rows.messages_rows([message(1)], 0, "g", "x", 1)))
    dice = random.Random(7)
    for _ in range(300):
        del data[dice.randrange(8, len(data)) :]
        with pytest.raises(BadRows):
            rows.decoded(bytes(data))
        data += dice.randbytes(200)


# -- who connects and says nothing, or begins too much ---------------------------------------------


def connected(served: Served) -> socket.socket:
    host, port = served.at.split(":")
    return socket.create_connection((host, int(port)), 5)


def test_who_connects_and_asks_nothing_is_disconnected_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.1)
    with Served(tmp_path) as served, connected(served) as made:
        made.settimeout(LIMIT_S)
        made.sendall(protocol.HELLO)
        assert made.recv(1) == b"", "closed, long before an idle client that has asked"


def test_frames_that_have_begun_are_bounded_for_all_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ARRIVING_BYTES_MAX", 1000)
    begun = protocol.HELLO + ASK + protocol.front(FeedFrameKind.ROWS, 900)
    with Served(tmp_path) as served, connected(served) as one, connected(served) as other:
        one.sendall(begun)
        until(lambda: served._server.arriving_bytes)
        other.settimeout(LIMIT_S)
        other.sendall(begun)
        answer = other.recv(65_536)
        kind, length = protocol.front_read(answer[: protocol.FRONT_BYTES])
        found = protocol.parse_json(answer[protocol.FRONT_BYTES :][:length])
        assert kind is FeedFrameKind.REFUSED and found["why"] == protocol.Refusal.BUSY
        until(lambda: served.counts.get("drop.busy") == 1)
