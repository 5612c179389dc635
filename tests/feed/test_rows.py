"""Rows to bytes and back, those of a former version too."""

from __future__ import annotations

import pyarrow as pa

from unisono.feed import rows
from unisono.model import Address, Member, Message, Service


def test_identities_have_63_bits_in_a_log() -> None:
    sender = Member("a", Address("10.0.0.1", 7), (1 << 63) - 1)
    said = [Message(sender, b"hello", 1, "v", 1, Service.AGREED)]
    again = rows.decoded(rows.encoded(rows.messages_rows(said, 0, "g", "life", 9)))
    assert rows.messages_of(again, 0)[0].sender.incarnation == (1 << 63) - 1


def test_rows_of_a_former_log_still_read() -> None:
    told = {"place": 1, "kind": "message", "sender": "a", "sender_incarnation": 7, "number": 1}
    for count in (1, 3, 500):
        former = pa.RecordBatch.from_pylist([told] * count, schema=rows.FORMER)
        out = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4" if count == 500 else None)
        with pa.ipc.new_stream(out, rows.FORMER, options=options) as stream:
            stream.write_batch(former)
            end = out.tell()
        blob = bytes(memoryview(out.getvalue())[rows.FORMER.serialize().size : end])
        found = rows.decoded(blob)
        assert found.schema == rows.SCHEMA
        assert found.column("sender_incarnation").to_pylist() == [7] * count
        assert found.column("number").to_pylist() == [1] * count
