"""MTP's packets: they round-trip, and no bytes can hurt a member."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mtp.harness import batch_of, payloads_of, services_of
from tests.wire.test_wire import hosts, members
from unisono.errors import BadPacket
from unisono.layout import encode
from unisono.model import VARIED, Address, Member, Service
from unisono.protocols.mtp.agreement import Master, MessageStatus
from unisono.protocols.mtp.batch import (
    BATCH_COUNT_MAX,
    Batch,
    BatchHead,
    Content,
    Form,
    MembershipChange,
    MixedBatch,
    RemovedMember,
    head_of,
    make_batch,
    read_content,
)
from unisono.protocols.mtp.decision import TAIL, machine_of, value_of
from unisono.protocols.mtp.packets import (
    HEADER_BYTES,
    KINDS,
    Ack,
    Confirm,
    Data,
    Deny,
    Empty,
    Expel,
    Grant,
    Header,
    JoinRequest,
    LeaveRequest,
    Nak,
    PacketKind,
    Pressure,
    Propose,
    Refuse,
    ReplicaSeat,
    Report,
    Stand,
    StatePiece,
    StateRequest,
    Support,
    TokenRequest,
    bits_of,
    key_of,
    statuses_of,
    write_header,
)
from unisono.protocols.mtp.reading import read
from unisono.protocols.mtp.web import Web

keys = st.integers(0, 2**64 - 1)
numbers = st.integers(1, 2**62 - 1)
counts = st.integers(0, 2**31 - 2)
octets = st.binary(max_size=60)
addresses = st.builds(Address, hosts, st.integers(0, 65535))
statuses = st.lists(st.sampled_from(MessageStatus), min_size=1, max_size=32).map(tuple)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    last = draw(statuses)
    return Header(
        draw(keys),
        draw(numbers),
        bits_of(last),
        draw(numbers),
        draw(numbers),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 65535)),
        draw(st.integers(0, 255)),
        len(last),
    )


def again(kind: PacketKind, body: bytes) -> Any:
    return read(kind, memoryview(body))


@given(statuses)
def test_statuses_round_trip(last: tuple[MessageStatus, ...]) -> None:
    assert statuses_of(bits_of(last), len(last)) == last


@given(headers(), keys, numbers, counts, st.booleans(), octets)
def test_data_round_trips(
    header: Header, origin: int, number: int, packet: int, end: bool, piece: bytes
) -> None:
    found = again(
        PacketKind.DATA,
        Data.body(write_header(header), origin, number, packet, end, memoryview(piece)),
    )
    assert found == Data(header, origin, number, packet, end, [memoryview(piece)])
    assert found.header.last == header.last


@given(headers(), members, numbers, counts, st.booleans(), octets, st.text(max_size=30), keys)
def test_the_other_packets_round_trip(
    header: Header,
    member: Member,
    number: int,
    count: int,
    flag: bool,
    piece: bytes,
    words: str,
    key: int,
) -> None:
    front, view, few = write_header(header), memoryview(piece), count % 65536
    for kind, packet in (
        (PacketKind.EMPTY, Empty(header, number, count, flag)),
        (PacketKind.EMPTY, Empty(header, 0, 0, False, count + 1, number, member)),
        (PacketKind.REQUEST, TokenRequest(header, count, count)),
        (PacketKind.EXPEL, Expel(header, key, flag)),
        (PacketKind.LEAVE, LeaveRequest(header)),
        (PacketKind.CONFIRM, Confirm(header, key, number, flag, count, member)),
        (PacketKind.STATE_ASK, StateRequest(header, flag, number, few)),
        (PacketKind.STATE, StatePiece(header, flag, number, number, view)),
        (PacketKind.PROPOSE, Propose(header, count, number, view)),
        (PacketKind.ACK, Ack(header, few % 256, count, number)),
        (PacketKind.STAND, Stand(header, few % 256, count)),
        (PacketKind.SUPPORT, Support(header, few % 256, count, count, number, view)),
    ):
        assert again(kind, front + encode(packet)) == packet
    for kind, alone in (
        (PacketKind.JOIN, JoinRequest(member, flag)),
        (PacketKind.REFUSE, Refuse(key, flag, words, 1 << 40)),
        (PacketKind.SEAT, ReplicaSeat(2, 3, member, key, count, number, flag, count, count)),
    ):
        assert again(kind, encode(alone)) == alone


@given(
    headers(),
    numbers,
    st.lists(addresses, max_size=16),
    st.lists(st.tuples(numbers, counts, counts), max_size=24),
    st.lists(keys, max_size=16),
    st.sampled_from(Pressure),
)
def test_lists_in_packets_round_trip(
    header: Header,
    number: int,
    audience: list[Address],
    ranges: list[tuple[int, int, int]],
    names: list[int],
    pressure: Pressure,
) -> None:
    front = write_header(header)
    grant = Grant(header, 3, number, tuple(audience))
    assert again(PacketKind.GRANT, front + encode(grant)) == grant
    nak = Nak(header, tuple(ranges))
    assert again(PacketKind.NAK, front + encode(nak)) == nak
    deny = Deny(header, tuple(names))
    assert again(PacketKind.DENY, front + encode(deny)) == deny
    report = Report(header, pressure, tuple(names))
    assert again(PacketKind.REPORT, front + encode(report)) == report


# -- what a message carries ---------------------------------------------------------------------

sizes = st.sampled_from((0, 0, 3, 3, 3, 80))
payloads = st.binary(max_size=300) | sizes.map(bytes)
mixed = st.lists(st.tuples(payloads, st.integers(0, 4)), max_size=12).map(
    lambda rows: MixedBatch(7, tuple(p for p, _ in rows), bytes(s for _, s in rows))
)
batches = mixed | st.lists(st.tuples(payloads, st.sampled_from((4, 4, 4, 0))), max_size=12).map(
    lambda rows: batch_of(7, [p for p, _ in rows], bytes(s for _, s in rows))
)
changes = st.builds(
    MembershipChange,
    st.lists(st.tuples(members, st.booleans()), max_size=4).map(tuple),
    st.lists(st.builds(RemovedMember, keys, st.booleans()), max_size=4).map(tuple),
    st.booleans(),
)


def same(content: Content, batch: Batch) -> bool:
    """Whether both hold the same messages, in whatever form."""
    assert type(content) is type(batch)
    told = [(b.first, payloads_of(b), services_of(b)) for b in (content, batch)]
    return told[0] == told[1]


@given(batches, st.integers(12, 400))
def test_a_batch_round_trips_in_slices(batch: Batch, size: int) -> None:
    slices = batch.slices(size)
    assert all(len(piece) == size for piece in slices[:-1])
    assert head_of(slices) == (7, batch.count)
    assert same(read_content(slices), batch)


@given(changes, st.integers(12, 400))
def test_a_change_round_trips_in_slices(change: MembershipChange, size: int) -> None:
    slices = change.slices(size)
    assert read_content(slices) == change
    assert head_of(slices) is None


def test_large_payloads_are_taken_from_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    from unisono.protocols.mtp import batch as room

    monkeypatch.setattr(room, "JOIN_BYTES_MAX", 100)
    said = (b"small", b"x" * 50_000, b"", b"y" * 20_000, b"z" * 20_000, b"1234", b"abcd")
    services = bytes((4, 4, 0, 2, 2, 1, 1))
    for batch in (batch_of(1, said, services), MixedBatch(1, said, services)):
        slices = batch.slices(1_300)
        assert same(read_content(slices), batch)
        assert not any(slices), "each was let go of when it was read"


parts = st.lists(
    st.tuples(st.lists(payloads, min_size=1, max_size=4), st.booleans(), st.integers(0, 4)),
    max_size=8,
)


@given(parts)
def test_a_batch_has_the_smaller_of_its_two_forms(
    drawn: list[tuple[list[bytes], bool, int]],
) -> None:
    parts, said = [], []
    for messages, varied, service in drawn:
        mine = messages if varied else messages[:1] * len(messages)
        parts.append((mine, VARIED if varied else len(mine[0]), service))
        said += [(message, service) for message in mine]
    found = make_batch(3, parts)
    assert payloads_of(found) == [message for message, _ in said]
    assert services_of(found) == bytes(service for _, service in said)
    assert (found.first, found.count) == (3, len(said))
    other: Batch = MixedBatch(3, tuple(payloads_of(found)), services_of(found))
    assert sum(map(len, found.slices(99))) <= sum(map(len, other.slices(99)))


@pytest.mark.parametrize(
    "rows",
    [
        [(65_535, 0, 4)] * 100,
        [(BATCH_COUNT_MAX, 0, 4), (1, 0, 4)],
        [(0, 5, 4)],
        [(1, 0, Service.SAFE)],
        [(2, 2**31, 4)],
    ],
)
def test_a_table_that_no_member_writes_is_malformed(rows: list[tuple[int, int, int]]) -> None:
    """Empty messages take no bytes: a small packet could otherwise hold billions."""
    front = encode(BatchHead(Form.BATCH, 1, tuple(v for row in rows for v in row)))
    for reading in (read_content, head_of):
        with pytest.raises(BadPacket, match="malformed"):
            reading([front])


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
@settings(max_examples=600)
def test_any_slices_are_a_message_or_a_bad_packet(slices: list[bytes]) -> None:
    for reading in (read_content, head_of):
        try:
            reading(slices)
        except BadPacket as bad:
            assert bad.reason in ("malformed", "long")


@given(batches | changes, st.data())
@settings(max_examples=300)
def test_a_mangled_message_is_a_message_or_a_bad_packet(
    content: Content, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(content.slices(1_000)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        read_content([bytes(whole)])
    except BadPacket as bad:
        assert bad.reason in ("malformed", "long")


# -- the council's value, the roster ------------------------------------------------------------


@given(
    st.integers(1, 32),
    st.lists(st.tuples(st.sampled_from("gggsf"), st.integers(1, 60)), max_size=80),
)
def test_what_the_master_decided_round_trips(t: int, script: list[tuple[str, int]]) -> None:
    machine: Master[int] = Master(t, memory=TAIL)
    for what, number in script:
        if what == "g" and machine.may_grant():
            machine.grant(number)
        elif what != "g":
            (machine.seen if what == "s" else machine.failed)(number)
    found = machine_of(value_of(machine), t)
    assert (found.next, found.holder, found.last()) == (
        (machine.next, machine.holder, machine.last())
    )
    assert value_of(found) == value_of(machine)
    assert found.may_grant() == machine.may_grant()


@given(st.binary(max_size=80))
@settings(max_examples=600)
def test_any_bytes_are_a_decision_or_a_bad_packet(value: bytes) -> None:
    try:
        machine_of(value, 8)
    except BadPacket as bad:
        assert bad.reason in ("malformed", "long")


@given(st.lists(st.tuples(members, st.integers(0, 2**40)), max_size=6), members)
def test_a_roster_round_trips(rows: list[tuple[Member, int]], me: Member) -> None:
    web = Web()
    web.found(9, me, "")
    for member, upto in rows:
        web.members[key_of(member)] = member
        web.upto[key_of(member)] = upto
    other = Web()
    view = other.take_over(web.roster(), me)
    assert (view.members, view.seq, view.id) == (tuple(web.members.values()), 1, web.view)
    assert dict(view.cut) == {web.members[key]: upto for key, upto in web.upto.items() if upto}
    assert other.roster() == web.roster()


@given(st.binary(max_size=120), members)
@settings(max_examples=600)
def test_any_bytes_are_a_roster_or_a_bad_packet(roster: bytes, me: Member) -> None:
    with pytest.raises(BadPacket):
        Web().take_over(roster, me)


# -- bytes --------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
@settings(max_examples=1_000)
def test_any_bytes_are_a_packet_or_a_bad_packet(kind: int, body: bytes) -> None:
    try:
        read(kind, memoryview(body))
    except BadPacket as bad:
        assert bad.reason in ("malformed", "long")


@given(st.sampled_from(sorted(KINDS)), headers(), st.binary(max_size=200))
@settings(max_examples=1_000)
def test_any_bytes_behind_a_header_are_a_packet_or_a_bad_packet(
    kind: int, header: Header, body: bytes
) -> None:
    try:
        read(kind, memoryview(write_header(header) + body))
    except BadPacket as bad:
        assert bad.reason in ("malformed", "long")


def test_a_header_of_statuses_that_are_none_is_malformed() -> None:
    header = Header(1, 5, 3, 5, 5, 10, 8, 3, 2)
    assert len(write_header(header)) == HEADER_BYTES
    for wrong in (header, header._replace(bits=1 << 4), header._replace(t=0, bits=0)):
        with pytest.raises(BadPacket, match="malformed"):
            again(PacketKind.LEAVE, write_header(wrong))
    with pytest.raises(BadPacket, match="malformed"):
        again(PacketKind.LEAVE, write_header(header._replace(t=33, bits=0)))
