"""Rows to bytes and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from unisono.feed import rows
from unisono.log import Log, LogBatch, LogReader
from unisono.model import Address, Member, Message, Service


def test_identities_have_63_bits_in_a_log() -> None:
    sender = Member("a", Address("10.0.0.1", 7), (1 << 63) - 1)
    said = [Message(sender, b"hello", 1, "v", 1, Service.AGREED)]
    again = rows.decoded(rows.encoded(rows.messages_rows(said, 0, "g", "life", 9)))
    assert rows.messages_of(again, 0)[0].sender.incarnation == (1 << 63) - 1


def test_merged_batches_hold_the_same_rows_in_a_tenth_of_the_space(tmp_path: Path) -> None:
    sender = Member("a", Address("10.0.0.1", 7), 1)
    with Log(tmp_path, durable=False) as log:
        for seq in range(1, 2001):
            row = [Message(sender, b"%9d" % seq, seq, "v", seq, Service.AGREED)]
            blob = rows.encoded(rows.messages_rows(row, 0, "g", "life", 9))
            log.append([LogBatch(seq, seq, blob, 1)])
        log.append([LogBatch(2002, 2002, blob, 1)])
        reader = LogReader(tmp_path)
        before = [b for each in rows.in_range(reader.read(1, 2000), 5, 1995) for b in each[9]]
        nbytes = log.nbytes
        assert log.merge(rows.merged) == 2000
        assert log.nbytes < nbytes / 10
        # A page that was read before goes on within the merged batch: each row once.
        early = LogBatch(6, 7, rows.encoded(rows.together(rows_of(reader, 6, 7))), 2)
        pages = [early, *reader.read(8, 2000)]
        after = [b for each in rows.in_range(pages, 5, 1995) for b in each[9]]
        assert after == before
        reader.close()


def rows_of(reader: LogReader, first: int, last: int) -> list[pa.RecordBatch]:
    return list(rows.in_range(reader.read(first, last), first - 1, last))
