"""The lines that command members, and the messages they send."""

from __future__ import annotations

import pytest

from unisono.bench.line_protocol import (
    DATA,
    END,
    SAMPLES_MAX,
    Command,
    head,
    parse,
    payload,
    stamp_ns,
    stride,
)

LOADING = Command("load", 7, 123_456_789_012, 0.3, 64, True, 2)
PROBING = Command("probe", 8, 5, 2.0, 1 << 20, False, 1, 50_000.0)


@pytest.mark.parametrize("command", [LOADING, PROBING], ids=lambda command: command.what)
def test_a_command_is_read_as_it_was_written(command: Command) -> None:
    assert parse(command.line()) == command
    assert parse(command.line(sends=not command.sends)).sends is not command.sends


def test_a_command_line_parses_to_its_fields() -> None:
    assert LOADING.line() == "load 7 123456789012 0.3 64 1 2"
    assert PROBING.line() == "probe 8 5 2 1048576 50000 0 1"
    assert LOADING.end_ns == 123_456_789_012 + 300_000_000


@pytest.mark.parametrize(
    "line", ["", "load", "load 1 2 3", "probe 1 2 3 4 5 6", "load a b c d e f"]
)
def test_what_is_no_order_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse(line)


def test_a_message_has_its_kind_its_round_and_its_time() -> None:
    said = payload(DATA, 0x01020304, 64, stamp_ns=99)
    assert said[:5] == head(DATA, 0x01020304) == b"\x00\x01\x02\x03\x04"
    assert len(said) == 64 and stamp_ns(said) == 99
    assert len(payload(END, 1)) == 16 and payload(END, 1) != payload(DATA, 1)


def test_samples_are_few_and_spread_evenly() -> None:
    assert stride(10) == stride(0) == stride(SAMPLES_MAX) == 1
    assert stride(SAMPLES_MAX + 1) == 2
    assert 1_000_000 / stride(1_000_000) <= SAMPLES_MAX
