"""The parts that protocols share; each clever one equals its slow twin."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.model import Burst
from unisono.parts.packing import fragments, joined, packed, pour, sliced
from unisono.parts.state_transfer import StateReceiver, StateServer
from unisono.parts.window import Window


class SlowWindow:
    """The window as one would explain it."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.floor = 0

    def received(self) -> int:
        number = 0
        while number + 1 in self.seen or number + 1 <= self.floor:
            number += 1
        return number

    def missing(self, upto: int) -> list[int]:
        return [n for n in range(1, upto + 1) if n not in self.seen and n > self.received()]


@given(st.lists(st.tuples(st.sampled_from("ppppprfc"), st.integers(1, 30)), max_size=60))
def test_the_window_equals_its_slow_twin(script: list[tuple[str, int]]) -> None:
    window: Window[int] = Window()
    slow = SlowWindow()
    for what, number in script:
        if what == "p":
            new = number not in slow.seen and number > slow.floor
            assert window.put(number, number) == new
            slow.seen.add(number)
        elif what == "r" and number > window.highest:
            window.put_row(number, [number, number + 1, number + 2])
            slow.seen |= {number, number + 1, number + 2}
        elif what == "f":
            window.forget(number)
            slow.floor = max(slow.floor, min(number, slow.received()))
        elif number >= window.floor:
            window.cut(number)
            slow.seen = {n for n in slow.seen if n <= number}
        assert window.received == slow.received()
        assert window.row(1, 35) == [n for n in range(1, 36) if n in slow.seen and n > slow.floor]
        ranges = window.missing(35, 100)
        assert [n for a, b in ranges for n in range(a, b + 1)] == slow.missing(35)
        assert len(window) == len([n for n in slow.seen if n > slow.floor])


@given(st.integers(1, 5))
def test_missing_ranges_are_bounded(count_max: int) -> None:
    window: Window[int] = Window()
    for number in range(2, 60, 2):
        window.put(number, number)
    assert len(window.missing(60, count_max)) == count_max


@given(st.binary(max_size=500), st.integers(1, 60), st.integers(1, 60))
def test_fragments_join_to_the_message(payload: bytes, first_max: int, piece_max: int) -> None:
    pieces = fragments(payload, first_max, piece_max)
    assert joined(pieces) == payload
    assert len(pieces[0]) <= first_max
    assert all(0 < len(piece) <= piece_max for piece in pieces[1:])


@given(st.lists(st.integers(1, 120), max_size=40), st.integers(1, 100))
def test_loads_keep_order_and_size(sizes: list[int], bytes_max: int) -> None:
    loads = list(packed(((i, size) for i, size in enumerate(sizes)), bytes_max))
    assert [i for load in loads for i in load] == list(range(len(sizes)))
    for load in loads:
        assert load
        assert len(load) == 1 or sum(sizes[i] for i in load) <= bytes_max


@given(st.lists(st.binary(max_size=80), max_size=12), st.integers(1, 60))
def test_slices_are_the_chunks_cut_at_every_so_many_bytes(chunks: list[bytes], size: int) -> None:
    whole = b"".join(chunks)
    slow = [whole[at : at + size] for at in range(0, len(whole), size)] or [b""]
    assert [bytes(piece) for piece in sliced(chunks, size)] == slow


def test_only_a_slice_that_spans_chunks_is_copied() -> None:
    large = bytes(range(250)) * 4
    head, *inner, tail = sliced([b"head", large, b"tail"], 100)
    assert isinstance(head, bytes)
    assert isinstance(tail, bytes)
    assert len(inner) == 9
    assert all(isinstance(piece, memoryview) and piece.obj is large for piece in inner)


@given(
    st.lists(st.binary(max_size=50), max_size=12),
    st.binary(max_size=40),
    st.integers(1, 60),
)
def test_payloads_are_cut_out_of_slices_again(
    payloads: list[bytes], front: bytes, size: int
) -> None:
    slices = sliced([front, *payloads], size)
    assert pour(slices, len(front), map(len, payloads)) == payloads


class Giver:
    """One state, as a member serves it."""

    def __init__(self, state: bytes, piece_bytes: int) -> None:
        self._server: StateServer[str] = StateServer(piece_bytes)
        self._server.keep("joiner", state)

    def pieces(self, offset: int, count: int) -> list[tuple[int, int, memoryview]]:
        return self._server.pieces("joiner", offset, count)


@given(st.binary(max_size=2_000), st.integers(1, 300), st.integers(0, 1 << 32))
def test_a_state_is_complete_though_pieces_are_lost_doubled_and_late(
    state: bytes, piece: int, seed: int
) -> None:
    giver, taker = Giver(state, piece), StateReceiver(flight=4)
    dice = Random(seed)
    late: list[tuple[int, int, memoryview]] = []
    for _ in range(3_000):
        if taker.is_done():
            break
        for piece in giver.pieces(*(taker.ask_ahead() or taker.ask())) + late:
            roll = dice.random()
            if roll < 0.3:
                late = [piece]
            elif roll < 0.9:
                taker.take(*piece)
    assert taker.state() == state


def test_a_state_keeps_coming_without_being_waited_for() -> None:
    """Asking ahead, the taker never has to wait for the one that asks again."""
    giver, taker = Giver(bytes(1_000), 10), StateReceiver(flight=8)
    queue, asked = giver.pieces(*taker.ask()), 1
    while queue:
        assert taker.take(*queue.pop(0)), "nothing is asked for twice"
        ahead = taker.ask_ahead()
        if ahead is not None:
            queue += giver.pieces(*ahead)
            asked += 1
    assert taker.is_done()
    assert asked > 10, "in small helpings"


@pytest.mark.parametrize("lost", [(3,), (0, 1, 2), (5, 7, 30), tuple(range(0, 100, 3))])
def test_what_is_lost_is_requested_alone_when_the_rest_has_arrived(lost: tuple[int, ...]) -> None:
    """Without waiting for the time to ask again, unless the last piece was lost."""
    giver, taker = Giver(bytes(range(100)) * 10, 10), StateReceiver(flight=8)
    missing = {10 * n for n in lost}
    queue, given = giver.pieces(*taker.ask()), 0
    while not taker.is_done():
        if not queue:
            queue = [piece for ask in taker.ask_again() for piece in giver.pieces(*ask)]
        piece = queue.pop(0)
        given += 1
        if piece[1] in missing:
            missing.remove(piece[1])
            continue
        assert taker.take(*piece), "nothing comes twice"
        if (ahead := taker.ask_ahead()) is not None:
            queue += giver.pieces(*ahead)
        elif taker.has_run_dry:
            queue += [piece for ask in taker.ask_again() for piece in giver.pieces(*ask)]
    assert taker.state() == bytes(range(100)) * 10
    assert given == 100 + len(lost)


def test_a_state_is_served_once_it_is_here_and_an_empty_one_in_one_piece() -> None:
    server: StateServer[str] = StateServer(10, pieces_max=2)
    server.expect("a")
    assert (len(server), "a" in server, server.pieces("a", 0, 1)) == (1, False, [])
    server.keep_expected("a", bytes(100))
    server.keep_expected("gone", b"x")
    assert server.known() == ["a"], "one that was not expected is ignored"
    assert [(total, at) for total, at, _ in server.pieces("a", 30, 9)] == [(100, 30), (100, 40)]
    assert server.pieces("a", 1000, 1) == []
    server.keep("empty", b"")
    assert server.pieces("empty", 0, 1) == [(0, 0, b"")]
    server.clear()
    assert not len(server)


def test_a_piece_out_of_place_is_refused() -> None:
    taker = StateReceiver()
    assert not taker.take(10, 8, b"xyz")
    assert taker.take(10, 0, b"hello")
    assert not taker.take(11, 5, b"other!"), "the total cannot change"
    assert not taker.take(10, 0, b"hello"), "not twice"
    assert not taker.is_done()


@given(st.binary(max_size=400), st.integers(1, 70))
def test_a_burst_is_cut_where_the_kernel_joined_it(data: bytes, size: int) -> None:
    burst = Burst(memoryview(data), size)
    packets = [bytes(packet) for packet in burst]
    assert b"".join(packets) == data
    assert len(packets) == len(burst)
    assert all(len(packet) == size for packet in packets[:-1])
