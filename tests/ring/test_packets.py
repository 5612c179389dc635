"""The ring's packets: they round-trip, and no bytes can hurt a member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.test_wire import members
from unisono.errors import BadPacket
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.parts.turn import (
    GOES_ON,
    MORE,
    OriginRun,
    read_all,
    read_runs,
    write_all,
    write_runs,
)
from unisono.protocols.ring.codes import KINDS, NEVER_SENT, Code
from unisono.protocols.ring.packets import (
    HEADER_BYTES,
    NO_VERSION,
    PERSONS,
    ROUND_MAX,
    TURN,
    TURN_PACKETS_MAX,
    Abort,
    Control,
    CoordRequest,
    Delegate,
    Header,
    MemberRecord,
    Packet,
    Rejection,
    ResendRequest,
    RingPart,
    StatePiece,
    StateRequest,
    TurnPacket,
    Version,
    code_of,
    key_of,
    read,
)
from unisono.protocols.ring.ring import (
    CHAIN_MAX,
    Record,
    Ring,
    RingLink,
    Seat,
    read_record,
    read_ring,
)

keys = st.integers(0, 2**64 - 1)
numbers = st.integers(0, 2**62)
rounds = st.integers(0, ROUND_MAX)
versions = st.builds(Version, rounds, keys)
headers = st.builds(Header, versions, keys, keys, numbers, numbers, numbers)
packed = st.binary(max_size=60)
REASONS = ("malformed", "long", "length")


def again(code: Code, header: Header, tail: bytes) -> Packet:
    body = header.packed(HEADER_BYTES + len(tail)) + tail
    return read(code, header.version.leader, memoryview(body))


def controls() -> list[Code]:
    told = {Code.STALE, Code.REFUSE}
    others = {Code.ABORT_BC_RQU, Code.COORD_RQU, Code.NEWTR_BC, Code.DATA_BC_RQU, Code.TOKEN_BC}
    others |= {Code.RESEND_DATA, Code.RESEND_RQU, Code.STATE_ASK, Code.STATE}
    return [code for code in Code if code not in PERSONS | told | others | NEVER_SENT]


@given(headers)
def test_a_packet_that_is_all_header_round_trips(header: Header) -> None:
    for code in controls():
        found = again(code, header, b"")
        assert found == Control(code, header)
        assert code_of(found) is code


@given(headers, st.integers(0, TURN_PACKETS_MAX - 1), st.integers(0, 255), packed, st.booleans())
def test_a_turn_round_trips(
    header: Header, at: int, flags: int, piece: bytes, repeated: bool
) -> None:
    code = Code.RESEND_DATA if repeated else Code.TOKEN_BC
    found = again(code, header, TURN.pack(at + 1, flags, at) + piece)
    assert found == TurnPacket(header, at, at + 1, flags, [piece], repeated)
    assert code_of(found) is code


@given(headers, members, rounds, st.integers(0, 255), rounds, members | st.none(), st.booleans())
def test_a_member_record_round_trips(
    header: Header,
    member: Member,
    attempt: int,
    bits: int,
    seen: int,
    other: Member | None,
    parted: bool,
) -> None:
    header = header._replace(sender=key_of(member))
    trunk = header.version if parted else NO_VERSION
    for code in sorted(PERSONS):
        person = MemberRecord(code, header, attempt, bits, seen, trunk, member, other)
        assert again(code, header, encode(person)) == person
        assert code_of(person) is code


@given(
    headers,
    members,
    rounds,
    st.lists(st.tuples(numbers, st.integers(0, 65535), st.integers(0, 65535)), max_size=64),
    packed,
    st.text(max_size=30),
    keys,
    st.integers(0, 65535),
)
def test_the_other_packets_round_trip(
    header: Header,
    member: Member,
    attempt: int,
    ranges: list[tuple[int, int, int]],
    piece: bytes,
    words: str,
    key: int,
    few: int,
) -> None:
    others: list[Packet] = [
        Abort(header, attempt),
        CoordRequest(header, key),
        RingPart(header, 3, 9, piece),
        Delegate(header, piece),
        ResendRequest(header, tuple(ranges)),
        StateRequest(header, key, few),
        StatePiece(header, key, key, piece),
        *(
            Rejection(code, header, words, member, 7, header.version)
            for code in (Code.STALE, Code.REFUSE)
        ),
    ]
    for packet in others:
        assert again(code_of(packet), header, encode(packet)) == packet


# -- what a turn carries ------------------------------------------------------------------------

bits_of = st.sampled_from((0, MORE, GOES_ON, MORE | GOES_ON))
marks = st.builds(lambda service, bits: service | bits, st.integers(0, 5), bits_of)
pieces_of = st.lists(st.tuples(marks, st.binary(max_size=80)), min_size=1, max_size=8)
runs_of = st.lists(
    st.builds(
        lambda origin, first, rows: OriginRun.of(
            origin, first, [mark for mark, _ in rows], [piece for _, piece in rows]
        ),
        keys,
        st.integers(0, 2**63),
        pieces_of,
    ),
    max_size=6,
)
alike = st.builds(
    lambda origin, mark, piece, times: [OriginRun.of(origin, 7, [mark] * times, [piece] * times)],
    keys,
    marks,
    st.binary(max_size=80),
    st.integers(1, 4),
)
"""Most turns are of one run with one group."""


@given(runs_of | alike)
def test_the_content_of_a_turn_round_trips(runs: list[OriginRun]) -> None:
    content = write_runs(runs)
    found = [run._replace(chunks=bytes(run.chunks[0])) for run in read_runs(content)]
    assert found == [run._replace(chunks=b"".join(run.chunks)) for run in runs]
    assert len(content) == (2 + sum(run.nbytes for run in runs) if runs else 0)
    assert content == (write_all(runs) if runs else b""), "the slow twin"


def outcome(read: Callable[[bytes], list[OriginRun]], content: bytes) -> object:
    try:
        return [run._replace(chunks=bytes(run.chunks[0])) for run in read(content)]
    except BadPacket as bad:
        return bad.reason


@given(runs_of | alike, st.data())
@settings(max_examples=300)
def test_mangled_content_is_content_or_a_bad_packet(
    runs: list[OriginRun], data: st.DataObject
) -> None:
    whole = bytearray(write_runs(runs) or b"\0\0")
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    found = outcome(read_runs, bytes(whole))
    assert isinstance(found, list) or found in REASONS
    assert not whole or found == outcome(read_all, bytes(whole)), "the slow twin"


# -- the ring, the record -----------------------------------------------------------------------


@st.composite
def rings(draw: st.DrawFn) -> Ring:
    people = draw(st.lists(members, min_size=1, max_size=8, unique_by=lambda m: m.name))
    seats = [
        Seat(member, draw(numbers), draw(st.booleans()), draw(st.booleans())) for member in people
    ]
    here = draw(st.integers(1, len(seats)))
    leader = seats[0].member
    version = Version(draw(rounds), key_of(leader))
    base = draw(numbers)
    former = draw(st.lists(st.builds(RingLink, versions, numbers), max_size=5))
    chain = (*former, RingLink(version, base))
    size = draw(st.integers(0, 65535))
    absent = tuple(Seat(seat.member, seat.local) for seat in seats[here:])
    return Ring(version, tuple(seats[:here]), absent, size, base, draw(numbers), chain, leader)


def test_a_long_history_has_the_founding_and_the_newest_rings() -> None:
    ring = Ring()
    for number in range(1, 101):
        version = Version(number, 7)
        ring = Ring(version, chain=ring.history(version, 10 * number))
    assert ring.founding == Version(1, 7)
    assert len(ring.chain) == CHAIN_MAX
    assert ring.ends(Version(1, 7)) is None
    assert ring.ends(Version(50, 7)) is None
    assert ring.ends(Version(99, 7)) == 1000
    assert ring.began_after(Version(0, 9)) and not ring.began_after(Version(2, 7))


@given(rings())
def test_a_ring_round_trips(ring: Ring) -> None:
    found = read_ring(ring.version, ring.packed())
    assert found == ring
    assert found.index == ring.index


@given(rings(), st.data())
@settings(max_examples=150)
def test_a_mangled_ring_is_a_ring_or_a_bad_packet(ring: Ring, data: st.DataObject) -> None:
    whole = bytearray(ring.packed())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        found = read_ring(ring.version, bytes(whole))
    except BadPacket as bad:
        assert bad.reason in REASONS
    else:
        assert found.seats
        assert key_of(found.leader or found.seats[0].member) == ring.version.leader


def test_a_ring_that_cannot_be_is_malformed() -> None:
    one, two = (Member(name, Address("10.0.0.1", 7), 1) for name in "ab")
    version = Version(3, key_of(one))
    good = Ring(version, (Seat(one), Seat(two)), (), 2, 5, 1, (RingLink(version, 5),), one)
    assert read_ring(version, good.packed()) == good
    for wrong in (
        Ring(version, (), (), 2, 5, 1, (RingLink(version, 5),), one),
        Ring(version, (Seat(one), Seat(one)), (), 2, 5, 1, (RingLink(version, 5),), one),
        Ring(version, (Seat(one),), (), 2, 5, 1, (), one),
        Ring(version, (Seat(one),), (), 2, 5, 1, (RingLink(version, 6),), one),
        Ring(version, (Seat(one),), (), 2, 5, 1, (RingLink(version, 5),), two),
        Ring(version, (Seat(one),), (), 2, 1 << 63, 1, (RingLink(version, 1 << 63),), one),
        Ring(version, (Seat(one, 1 << 63),), (), 2, 5, 1, (RingLink(version, 5),), one),
        Ring(version, (Seat(one),), (), 2, 5, 1, (RingLink(version, 5),) * 40, one),
    ):
        with pytest.raises(BadPacket, match="malformed"):
            read_ring(version, wrong.packed())


@given(versions, st.lists(st.text(max_size=20), max_size=9))
def test_a_record_round_trips(version: Version, names: list[str]) -> None:
    record = Record(version, tuple(names))
    assert read_record(record.packed()) == record


@given(st.binary(max_size=80))
@settings(max_examples=200)
def test_any_bytes_are_a_record_or_a_bad_packet(stuff: bytes) -> None:
    try:
        read_record(stuff)
    except BadPacket as bad:
        assert bad.reason in REASONS


# -- bytes --------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
@settings(max_examples=400)
def test_any_bytes_are_a_packet_or_a_bad_packet(kind: int, body: bytes) -> None:
    try:
        read(kind, 1, memoryview(body))
    except BadPacket as bad:
        assert bad.reason in REASONS


@given(st.sampled_from(sorted(KINDS)), headers, st.binary(max_size=200))
@settings(max_examples=400)
def test_any_bytes_behind_a_header_are_a_packet_or_a_bad_packet(
    kind: int, header: Header, tail: bytes
) -> None:
    try:
        found = again(Code(kind), header, tail)
    except BadPacket as bad:
        assert bad.reason in REASONS
    else:
        assert found.header == header


@pytest.mark.rule("RNG-18")
def test_numbers_that_no_member_counts_to_are_nobodys() -> None:
    good = Header(Version(1, 2), 3, 3, 4, 5, 6)
    assert isinstance(again(Code.FAST_ACK, good, b""), Control)
    changes: tuple[dict[str, Any], ...] = (
        {"s": (1 << 62) + 1},
        {"k": 1 << 63},
        {"local": 1 << 63},
        {"version": Version((1 << 62) + 1, 2)},
    )
    for change in changes:
        with pytest.raises(BadPacket, match="malformed"):
            again(Code.FAST_ACK, good._replace(**change), b"")


def test_a_process_reports_of_itself_only() -> None:
    member = Member("a", Address("10.0.0.1", 7), 1)
    header = Header(Version(1, 2), key_of(member) ^ 1, 3)
    person = MemberRecord(Code.QUIT, header, 1, 0, 0, NO_VERSION, member)
    with pytest.raises(BadPacket, match="malformed"):
        again(Code.QUIT, header, encode(person))
