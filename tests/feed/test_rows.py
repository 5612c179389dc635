"""Rows to bytes and back."""

from __future__ import annotations

from unisono.feed import rows
from unisono.model import Address, Member, Message, Service


def test_identities_have_63_bits_in_a_log() -> None:
    sender = Member("a", Address("10.0.0.1", 7), (1 << 63) - 1)
    said = [Message(sender, b"hello", 1, "v", 1, Service.AGREED)]
    again = rows.decoded(rows.encoded(rows.messages_rows(said, 0, "g", "life", 9)))
    assert rows.messages_of(again, 0)[0].sender.incarnation == (1 << 63) - 1
