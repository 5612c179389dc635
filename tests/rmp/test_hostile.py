"""Hostile packets at RMP sites: forged ones, and real ones mangled behind a good checksum.

A forged packet may make a member stop with a reason. It never raises, and never fills the memory.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pytest

from tests.rmp.stage import Stage
from unisono.core import Arm, Disarm, Expired, Fail, Leave, Multicast, Received, Stabilize
from unisono.errors import Misuse
from unisono.layout import encode
from unisono.model import Address, ChangeKind, Member, Resilient, Service
from unisono.parts.turn import DIFFER, MessageGroup, OriginRun, write_runs
from unisono.protocols.rmp.agreement import Attempt, NewList, ReformBallot, SyncPoint
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.data_packets import BLOCK_HEAD, DATA, BlockFront
from unisono.protocols.rmp.group_state import (
    AddMember,
    Entry,
    GroupState,
    MemberRequest,
    MinimumSize,
)
from unisono.protocols.rmp.packets import PROTOCOL, AckFields, ExpelLeaver, PacketKind
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.reform_packets import BallotFields, Fault, NewListFields, Proposal
from unisono.protocols.rmp.requests import write_request
from unisono.requests import AcquireLock, ReleaseLock, VoteSize
from unisono.wire import FRONT_BYTES, SUM_BYTES, seal

ROUNDS = 60
PACKETS = 25
LARGEST = (b"\xff", b"\x7f\xff", b"\x3f\xff", b"\x80", b"\x00", b"\x20")


def send(stage: Stage, to: str, kind: PacketKind, body: bytes) -> None:
    """A packet of the site's own ring."""
    core = stage.cores[to]
    group = int.from_bytes(stage.sealed[0][6:14], "big")
    packet = seal(PROTOCOL, kind, group, core._state.trid, body)
    stage.step(to, Received(Address("10.0.0.1", 7099), [packet]))


def key(stage: Stage, name: str) -> int:
    return stage.cores[name]._state.key


def block(stage: Stage, sender: str, number: int, content: bytes) -> bytes:
    head = DATA.pack(*BlockFront(key(stage, sender), number, 1, 0, 0))
    return head + BLOCK_HEAD.pack(0) + content


def next_block(stage: Stage, at: str, sender: str) -> int:
    return stage.cores[at]._sources.by_key[key(stage, sender)].blocks.received + 1


def test_a_request_with_a_table_of_lengths_is_dropped() -> None:
    stage = Stage("a", "b")
    run = OriginRun(key(stage, "b"), 1, (MessageGroup(2, 9, DIFFER),), (bytes(17),))
    number = next_block(stage, "a", "b")
    send(stage, "a", PacketKind.DATA, block(stage, "b", number, write_runs([run])))
    assert stage.cores["a"].counts["drop.malformed"] == 1


def test_a_list_with_strangers_is_never_installed() -> None:
    stage = Stage("a", "b", "c")
    state = stage.cores["a"]._state
    members = (*state.token_list, 99)
    held = stage.cores["a"]._queue.held
    listed = NewListFields(members, held, (), state.epoch + 1, 7, True)
    record = Proposal(key(stage, "b"), BallotFields(1, 1), listed)
    send(stage, "a", PacketKind.COMMIT, encode(record))
    stage.run(3_000_000)
    assert stage.cores["a"]._state.trid != 7 and not stage.only("a", Fail)
    assert sorted(stage.members("a")) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [PacketKind.NEW_LIST, PacketKind.COMMIT])
def test_a_list_cannot_name_more_blocks_than_a_site_could_remember(kind: PacketKind) -> None:
    stage = Stage("a", "b", "c")
    state = stage.cores["a"]._state
    leftovers = ((key(stage, "b"), ((1, 1 << 61),)),)
    listed = NewListFields(state.token_list, 0, leftovers, state.epoch + 1, 7, True)
    record = Proposal(key(stage, "b"), BallotFields(1, 1), listed)
    send(stage, "a", kind, encode(record))
    assert stage.cores["a"].counts["drop.malformed"] == 1


def test_an_ack_cannot_name_more_blocks_than_a_site_could_list() -> None:
    stage = Stage("a", "b")
    sender, held = key(stage, "b"), stage.cores["a"]._queue.held
    named = tuple((sender, 1, 60_000) for _ in range(40))
    ack = AckFields(sender, sender, held + 1, sender, 0, named)
    send(stage, "a", PacketKind.ACK, encode(ack))
    assert stage.cores["a"].counts["drop.malformed"] == 1


def test_only_a_site_that_leaves_can_be_expelled_for_it() -> None:
    stage = Stage("a", "b")
    send(stage, "a", PacketKind.EXPEL, encode(ExpelLeaver(key(stage, "b"))))
    stage.run(1_000_000)
    assert not stage.only("a", Fail) and sorted(stage.members("a")) == ["a", "b"]


def test_a_site_cannot_release_the_lock_of_another() -> None:
    stage = Stage("a", "b", "c")
    stage.request("a", AcquireLock(7), key=1)
    stage.run(300_000)
    forged = write_request(MemberRequest(key(stage, "a"), ReleaseLock(7)))
    stage.cores["b"]._send_queue.request(forged)
    stage.multicast("b", b"x")
    stage.run(300_000)
    assert stage.changes("c", ChangeKind.LOCK_RELEASED) == []
    assert stage.payloads("c") == [b"x"]


def test_a_vote_that_no_packet_can_carry_is_refused() -> None:
    with pytest.raises(Misuse, match="minimum=40000"):
        Stage("a", minimum=40_000)


def test_two_members_of_one_name_are_never_in_the_order() -> None:
    old, new = (Member("a", Address("10.0.0.1", 1), n) for n in (1, 2))
    state = GroupState({}).applied(AddMember(1, Entry(old, 1))).state
    applied = state.applied(AddMember(2, Entry(new, 1)))
    assert not applied.changes and applied.state == state


# -- parts that go on by their votes --------------------------------------------------------------


def test_a_part_that_goes_on_by_its_votes_excludes_nobody() -> None:
    """Two are faster than the majority that they lost, and hear its faults when the cut heals."""
    stage = Stage("a", "b", "c", "d", "e", minimum=2, detect_us=200_000, tries=3)
    cut = True

    def is_lost(sender: str, receiver: str, what: str) -> bool:
        apart = (sender in "ab") != (receiver in "ab")
        return (cut and apart) or (what.startswith(("sync", "announce")) and receiver in "cde")

    stage.multicast("c", b"kept", service=Resilient(Resilient.MAJORITY))
    stage.run(300_000)
    assert stage.only("c", Stabilize)
    stage.is_lost = is_lost
    stage.multicast("c", b"later")
    while sorted(stage.members("a")) != ["a", "b"]:
        stage.run(10_000)
    cut = False
    stage.run(1_000_000)
    assert [stage.only(name, Fail) for name in "cde"] == [[]] * 3


def test_a_site_confirms_no_list_of_another_part() -> None:
    stage = Stage("a", "b", "c", minimum=1)
    state = stage.cores["a"]._state
    listed = NewListFields((key(stage, "b"),), 0, (), state.epoch + 1, 7, False)
    fault = Fault(key(stage, "b"), 5, stage.cores["b"].me)
    send(stage, "a", PacketKind.FAULT, encode(fault))
    record = Proposal(key(stage, "b"), BallotFields(5, key(stage, "b")), listed)
    send(stage, "a", PacketKind.NEW_LIST, encode(record))
    assert stage.cores["a"]._reformation.accepted_list() is None


def test_a_list_of_a_part_that_goes_on_by_its_votes_is_not_taken_over() -> None:
    quorums = ViewQuorums.of(0, {1, 2, 3, 4, 5})
    part = NewList((1, 2), 0, (), 2, 9, False)
    minimum = MinimumSize(1, False)
    answers = {site: SyncPoint(0, quorums, minimum=minimum) for site in (2, 3, 4, 5)}
    answers[2] = answers[2]._replace(accepted=(ReformBallot(1, 1), part))
    found = Attempt(ReformBallot(2, 3), answers).propose(2, 8, (1, 2, 3, 4, 5))
    assert isinstance(found, NewList)
    assert found.members == (2, 3, 4, 5) and found.primary


# -- in volume ------------------------------------------------------------------------------------


@cache
def phases() -> tuple[list[tuple[dict[str, Rmp], int]], list[bytes]]:
    """The sites of a group at moments of its life, and all that they sent."""
    stage = Stage(*"abcd", detect_us=200_000)
    found: list[tuple[dict[str, Rmp], int]] = []

    def keep() -> None:
        found.append((copy.deepcopy(stage.cores), stage.now_us))

    for name in "abcd":
        stage.multicast(name, b"x" * 50, b"y", b"z" * 3000)
        stage.request(name, AcquireLock(1, True), key=1)
        stage.multicast(name, b"q", service=Resilient(2))
        stage.multicast(name, b"w", service=Service.RELIABLE)
        stage.multicast(name, b"u", service=Service.UNRELIABLE)
    stage.request("b", VoteSize(2), key=2)
    stage.run(300_000)
    keep()
    stage.kill("a")
    for _ in range(8):
        stage.run(60_000)
        keep()
    stage.run(2_000_000)
    stage.start("a", 2)
    stage.run(40_000)
    keep()
    stage.run(1_000_000)
    stage.step("d", Leave())
    stage.run(2_000)
    keep()
    stage.run(1_000_000)
    return found, stage.sealed


def mangled(dice: Random, core: Rmp, packet: bytes) -> bytes:
    kind, group = packet[4], int.from_bytes(packet[6:14], "big")
    body = bytearray(packet[FRONT_BYTES:-SUM_BYTES])
    keys = [*core._sources.by_key]
    if keys and dice.random() < 0.8 and kind not in (PacketKind.JOIN, PacketKind.WELCOME):
        body[:8] = dice.choice(keys).to_bytes(8, "big")
    for _ in range(dice.randint(1, 3)):
        at, width = dice.randrange(len(body) or 1), dice.choice((1, 2, 4, 8))
        match dice.randrange(4):
            case 0:
                body[at : at + 1] = dice.randbytes(1)
            case 1:
                body[at : at + width] = (dice.choice(LARGEST) * 8)[:width]
            case 2:
                del body[at:]
            case _:
                number = int.from_bytes(body[at : at + width], "big") + dice.choice((1, -1, 300))
                body[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "big")
    return seal(PROTOCOL, kind, group, core._state.trid, bytes(body))


def events(dice: Random, core: Rmp, packets: list[bytes], timers: set[Any]) -> Iterator[Any]:
    yield Received(Address("10.0.0.1", 7099), [mangled(dice, core, dice.choice(packets))])
    if timers and dice.random() < 0.4:
        timer = dice.choice(sorted(timers, key=str))
        timers.discard(timer)
        yield Expired(timer)
    if dice.random() < 0.1:
        yield Multicast([bytes(dice.choice((1, 4000)))], Service.AGREED)


@pytest.mark.parametrize("seed", range(4))
def test_mangled_packets_never_raise(seed: int) -> None:
    dice = Random(seed)
    moments, packets = phases()
    by_kind = {packet[4]: [p for p in packets if p[4] == packet[4]] for packet in packets}
    for _ in range(ROUNDS):
        cores, now_us = dice.choice(moments)
        core = copy.deepcopy(cores[dice.choice([*cores])])
        timers: set[Any] = set()
        for _ in range(PACKETS):
            now_us += dice.choice((10, 1_000, 50_000))
            for event in events(dice, core, dice.choice([*by_kind.values()]), timers):
                for effect in core.step(now_us, event):
                    if isinstance(effect, Arm):
                        timers.add(effect.timer)
                    elif isinstance(effect, Disarm):
                        timers.discard(effect.timer)
