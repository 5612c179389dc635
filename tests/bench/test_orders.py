"""The lines that members are ordered by, and the messages they say."""

from __future__ import annotations

import pytest

from unisono.bench.orders import (
    DATA,
    END,
    SAMPLES_MAX,
    Order,
    head,
    parsed,
    payload,
    stamp_ns,
    stride,
)

POUR = Order("pour", 7, 123_456_789_012, 0.3, 64, True, 2)
PROBE = Order("probe", 8, 5, 2.0, 1 << 20, False, 1, 50_000.0)


@pytest.mark.parametrize("order", [POUR, PROBE], ids=lambda order: order.what)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    assert parsed(order.line()) == order
    assert parsed(order.line(speaks=not order.speaks)).speaks is not order.speaks


def test_the_words_of_an_order() -> None:
    assert POUR.line() == "pour 7 123456789012 0.3 64 1 2"
    assert PROBE.line() == "probe 8 5 2 1048576 50000 0 1"
    assert POUR.end_ns == 123_456_789_012 + 300_000_000


@pytest.mark.parametrize(
    "line", ["", "pour", "pour 1 2 3", "probe 1 2 3 4 5 6", "pour a b c d e f"]
)
def test_what_is_no_order_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parsed(line)


def test_a_message_tells_its_kind_its_round_and_when_it_was_said() -> None:
    said = payload(DATA, 0x01020304, 64, stamp_ns=99)
    assert said[:5] == head(DATA, 0x01020304) == b"\x00\x01\x02\x03\x04"
    assert len(said) == 64 and stamp_ns(said) == 99
    assert len(payload(END, 1)) == 16 and payload(END, 1) != payload(DATA, 1)


def test_samples_are_few_and_spread_evenly() -> None:
    assert stride(10) == stride(0) == stride(SAMPLES_MAX) == 1
    assert stride(SAMPLES_MAX + 1) == 2
    assert 1_000_000 / stride(1_000_000) <= SAMPLES_MAX
