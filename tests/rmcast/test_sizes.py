"""Every packet fits the path, for any group that the path can have."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.rmcast.harness import core, step, together
from unisono.core import CoreConfig, Deliver, Effect, Multicast, Received, Send
from unisono.model import Address, Member, Service
from unisono.parts.admission import Admission, Terms
from unisono.parts.codec import PacketCodec
from unisono.parts.core_clock import CoreClock
from unisono.protocols.rmcast.packet_builder import PacketBuilder
from unisono.protocols.rmcast.packets import (
    KINDS,
    PROTOCOL,
    Data,
    StreamStatus,
    read,
    write_header,
)
from unisono.protocols.rmcast.roster import Roster, entries_max
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.views import Views
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.wire import unseal

TERMS = Terms("g")


def member(n: int, incarnation: int = 1) -> Member:
    return Member(f"n{n}", Address("10.0.0.1", 7000 + n), incarnation)


def room_of(count: int, packet_bytes: int) -> tuple[Roster, SendQueue, PacketBuilder]:
    """A member with so many others, of each of which it has delivered something."""
    config = CoreConfig(member(0), "g", 1, packet_bytes_max=packet_bytes)
    roster, clock = Roster(member(0), packet_bytes), CoreClock(1)
    codec = PacketCodec(PROTOCOL, KINDS, TERMS)
    builder = PacketBuilder(roster, codec, packet_bytes)
    views = Views(roster, Admission(codec, TERMS), clock)
    for n in range(count):
        roster.add(member(n), n, 0, delivered=n * 1000)
    return roster, SendQueue(config, roster, builder, views, clock), builder


def decoded(packets: Iterable[bytes]) -> list[object]:
    envelopes = (unseal(packet, PROTOCOL, TERMS.tag) for packet in packets)
    return [read(envelope.kind, envelope.body) for envelope in envelopes]


@pytest.mark.parametrize("packet_bytes", [512, 600, 1400])
def test_data_fits_a_packet_whatever_the_size_of_the_group(packet_bytes: int) -> None:
    for count in range(1, entries_max(packet_bytes) + 1):
        roster, queue, builder = room_of(count, packet_bytes)
        queue.append([b"x" * 3000, b"", b"y" * 70], Service.CAUSAL)
        for n in range(count, entries_max(packet_bytes)):
            roster.add(member(n), n, 0, delivered=1)
        mine = roster.mine()
        packets = builder.data(mine, 1, mine.delivered)
        assert max(map(len, packets)) <= packet_bytes, count
        found = decoded(packets)
        data = [each for each in found if isinstance(each, Data)]
        payload = b"".join(bytes(c.payload) for each in data for c in each.chunks if c.message)
        assert payload == b"x" * 3000 + b"y" * 70
        told = [each for each in found if getattr(each, "header").entries]  # noqa: B009
        assert told and all(len(each.header.entries) == len(roster.peers) for each in told)  # type: ignore[attr-defined]


def test_what_has_no_room_beside_a_message_goes_before_it() -> None:
    """Streams that ended, and are not settled by all, are told of too."""
    roster, queue, builder = room_of(28, 512)
    for n in range(28, 90):
        roster.mark(roster.add(member(n), n, 0, delivered=5), StreamStatus.CLOSED)
    queue.append([b"z" * 600], Service.CAUSAL)
    mine = roster.mine()
    packets = builder.data(mine, 1, mine.delivered)
    assert max(map(len, packets)) <= 512
    data = [each for each in decoded(packets) if isinstance(each, Data)]
    told = {key for each in data for key in each.chunks[0].deps[::2]}
    assert told == roster.peers.keys() - {roster.key}


def test_a_header_leaves_out_ended_streams_in_turns() -> None:
    roster, _, _ = room_of(20, 512)
    for n in range(20, 60):
        roster.mark(roster.add(member(n), n, 0), StreamStatus.CLOSED)
    seen: set[int] = set()
    for _ in range(60):
        entries = roster.header().entries
        assert len(entries) == entries_max(512)
        assert all(peer.key in entries for peer in roster.group())
        seen |= entries.keys()
    assert seen == roster.peers.keys()


def test_a_full_group_names_the_limit_that_was_reached() -> None:
    stage = together("a", "b")
    core(stage, "a").roster.entries_max = 2
    stage.obey("start rmcast c")
    said = stage.obey("join c\nadvance 3000ms")
    assert "c stops: the group is full (packet_bytes_max=1400 is enough for 2 members)" in said


def test_a_member_with_too_small_packets_stops_with_the_reason() -> None:
    stage = together("a", "b")
    core(stage, "b").roster.entries_max = 2
    stage.obey("start rmcast c")
    said = stage.obey("join c\nadvance 2000ms")
    assert "b stops: the group has 3 members, and packets of 1400 bytes are enough for 2" in said


def test_a_header_without_lines_is_no_report() -> None:
    stage = together("a", "b")
    a, b = core(stage, "a"), core(stage, "b")
    before = b.roster.peers[a.roster.key].row
    a.builder._packet_bytes = 130
    effects: list[Effect] = step(stage, "a", Multicast([b"p" * 60]))
    packets = next(effect.packets for effect in effects if isinstance(effect, Send))
    *data, report = packets
    heard = step(stage, "b", Received(a.me.address, data))
    assert any(isinstance(effect, Deliver) for effect in heard)
    assert before and b.roster.peers[a.roster.key].row is before
    step(stage, "b", Received(a.me.address, [report]))
    assert b.roster.peers[a.roster.key].row[a.roster.key].delivered == a.roster.mine().delivered


@pytest.mark.parametrize(("nodes", "seed"), [(22, 2), (17, 3)])
def test_a_large_group_that_once_sent_too_large_packets_holds(nodes: int, seed: int) -> None:
    plan = Plan(protocol="rmcast", nodes=nodes, seed=seed, faults="chaos", messages=30)
    assert run(plan).violations == ()


def test_a_header_that_is_kept_is_the_one_that_would_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast = PacketBuilder._header
    kept = 0

    def compared(self: PacketBuilder) -> bytes:
        nonlocal kept
        before, made = self._header_at, fast(self)
        if self._header_at == self._roster.news and self._roster.is_at_rest():
            kept += before == self._header_at
            assert made == write_header(self._roster.header())
        return made

    monkeypatch.setattr(PacketBuilder, "_header", compared)
    for seed in range(6):
        assert run(Plan(protocol="rmcast", nodes=4, seed=seed, messages=40)).violations == ()
    assert kept > 100


def test_a_loss_is_repaired_in_the_largest_group_that_the_path_can_have() -> None:
    """The entries of the header leave no space for a request."""
    names = [f"m{n:02}" for n in range(entries_max(300))]
    stage = together(*names, packet=300)
    last = names[-1]
    stage.obey(f"lose 1 {names[1]} > {last} data\nsay {names[1]} word\nadvance 500ms")
    assert stage.actors[last].log == [f"{names[1]}#1:1"]
