"""Declared records round-trip, equal a slow twin, and hostile bytes raise only `BadPacket`."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.test_wire import members
from unisono.errors import BadPacket
from unisono.fields import (
    U8,
    U8_COUNT,
    U16,
    U16_COUNT,
    U32,
    U64,
    Bit,
    Blob,
    Bounds,
    Given,
    Incarnation,
    Rest,
    When,
    bounded,
    fixed,
    table,
    text,
)
from unisono.layout import decode, decode_front, describe, encode, size_of
from unisono.model import Address, Member

LIMIT = 1 << 40


class Color(IntEnum):
    RED = 1
    BLUE = 2


class Version(NamedTuple):
    number: Annotated[int, bounded("I", 0, 1 << 31)]
    leader: U64


class Everything(NamedTuple):
    header: Given[str]
    a: U8
    at: U16
    b: Annotated[int, bounded("Q", 1, LIMIT, "limit")]
    version: Version
    color: Color
    flag: bool
    x: Bit
    y: Bit
    z: Bit
    member: Member
    other: Member | None
    address: Address
    name: Annotated[str, text(bounded("H", 1, 64, "name"))]
    blob: Blob
    copied: bytes
    incarnation: Incarnation
    ranges: tuple[tuple[U64, U32, U16], ...]
    versions: tuple[Version, ...]
    colors: tuple[Color, ...]
    numbers: Annotated[tuple[int, ...], table(fixed("u64", "Q"), U8_COUNT)]
    flat: Annotated[tuple[int, ...], table(fixed("(u32, u64)", "IQ"), U16_COUNT, flat=True)]
    people: tuple[tuple[Member, bool], ...]
    master: Annotated[Member | None, When("a")] = None
    stable: Annotated[int, When("a"), bounded("Q", 0, LIMIT)] = 7
    rest: Rest = b""

    def is_valid(self) -> bool:
        return self.at != 13


def be(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


def blob(value: bytes) -> bytes:
    return be(len(value), 2) + value


def member_bytes(member: Member) -> bytes:
    host, port = member.address
    return blob(member.name.encode()) + blob(host.encode()) + be(port, 2) + be(member[2], 8)


def twin(e: Everything) -> bytes:
    """The same record, written by hand."""
    parts = [be(e.a, 1), be(e.at, 2), be(e.b, 8), be(e.version.number, 4), be(e.version.leader, 8)]
    parts += [be(e.color, 1), be(e.flag, 1), be(e.x | e.y << 1 | e.z << 2, 1)]
    parts += [member_bytes(e.member), b"\1" + member_bytes(e.other) if e.other else b"\0"]
    parts += [blob(e.address.host.encode()), be(e.address.port, 2), blob(e.name.encode())]
    parts += [blob(bytes(e.blob)), blob(e.copied), be(e.incarnation, 8), be(len(e.ranges), 2)]
    parts += [be(s, 8) + be(first, 4) + be(last, 2) for s, first, last in e.ranges]
    parts += [be(len(e.versions), 2), *(be(n, 4) + be(key, 8) for n, key in e.versions)]
    parts += [be(len(e.colors), 2), bytes(e.colors)]
    parts += [be(len(e.numbers), 1), *(be(n, 8) for n in e.numbers), be(len(e.flat) // 2, 2)]
    parts += [be(value, 8 if n % 2 else 4) for n, value in enumerate(e.flat)]
    parts += [be(len(e.people), 2), *(member_bytes(m) + be(flag, 1) for m, flag in e.people)]
    if e.a:
        assert e.master is not None
        parts += [member_bytes(e.master), be(e.stable, 8)]
    return b"".join((*parts, bytes(e.rest)))


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


names = st.text(st.characters(codec="ascii"), min_size=1, max_size=64)
versions = st.builds(Version, st.integers(0, 1 << 31), unsigned(64))
flags = st.booleans()
records = st.builds(
    Everything,
    st.just("given"),
    unsigned(8),
    unsigned(16).filter(lambda at: at != 13),
    st.integers(1, LIMIT),
    versions,
    st.sampled_from(Color),
    flags,
    flags,
    flags,
    flags,
    members,
    members | st.none(),
    st.builds(Address, st.ip_addresses().map(str), unsigned(16)),
    names,
    st.binary(max_size=20),
    st.binary(max_size=20),
    unsigned(63),
    st.lists(st.tuples(unsigned(64), unsigned(32), unsigned(16)), max_size=4).map(tuple),
    st.lists(versions, max_size=3).map(tuple),
    st.lists(st.sampled_from(Color), max_size=3).map(tuple),
    st.lists(unsigned(64), max_size=5).map(tuple),
    st.lists(st.tuples(unsigned(32), unsigned(64)), max_size=3).map(lambda rows: sum(rows, ())),
    st.lists(st.tuples(members, flags), max_size=3).map(tuple),
    members,
    st.integers(0, LIMIT),
    st.binary(max_size=20),
).map(lambda e: e if e.a else e._replace(master=None, stable=7))


@given(records)
@settings(max_examples=200)
def test_a_record_round_trips_and_equals_its_slow_twin(record: Everything) -> None:
    data = encode(record)
    assert data == twin(record)
    assert decode(Everything, data, "given") == record
    assert len(data) >= size_of(Everything)


@given(records, st.data())
@settings(max_examples=300)
def test_a_mangled_record_is_a_record_or_a_bad_packet(
    record: Everything, data: st.DataObject
) -> None:
    whole = bytearray(encode(record))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        decode(Everything, whole, "given")
    except BadPacket as bad:
        assert bad.reason in ("malformed", "limit", "name")


class Pair(NamedTuple):
    version: Version
    few: U8

    def is_valid(self) -> bool:
        return self.few < 9


def test_bounds_are_checked() -> None:
    good = Pair(Version(1, 2), 3)
    assert decode(Pair, encode(good)) == good
    assert decode_front(Pair, encode(good) + b"more") == (good, b"more")
    for wrong in (good._replace(few=9), good._replace(version=Version((1 << 31) + 1, 2))):
        with pytest.raises(BadPacket, match="malformed"):
            decode(Pair, encode(wrong))
    for data, reason in ((encode(good) + b"x", "long"), (encode(good)[:-1], "malformed")):
        with pytest.raises(BadPacket, match=reason):
            decode(Pair, data)


def test_a_record_describes_itself() -> None:
    assert describe(Pair) == [
        ("version", "(number u32, 0 to 2^31, leader u64)"),
        ("few", "u8"),
    ]
    assert size_of(Pair) == 13 and size_of(tuple[U64, U32, U16]) == 14
    forms = dict(describe(Everything))
    assert "header" not in forms and forms["x"] == "bit"
    assert forms["other"] == "flag, then member if set"
    assert forms["master"] == "member, unless a is 0"
    assert forms["ranges"] == "u16 count, then each (u64, u32, u16)"


def test_bounds_of_several_numbers_are_refused_when_they_are_declared() -> None:
    with pytest.raises(TypeError, match="give each its own"):
        fixed("pair", "HH", bounds=Bounds(0, 9))
