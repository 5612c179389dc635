"""Frames, records, snapshots and states are written byte for byte as when they were recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unisono import replay_history as history
from unisono.client import frames
from unisono.client.frames import (
    FrameKind,
    JoinFrame,
    PlacedFrame,
    ShedFrame,
    StateFrame,
    WelcomeFrame,
    framed,
)
from unisono.client.lock_frames import AnswerFrame, LockFrame
from unisono.core import Answer, Cause
from unisono.daemon.records import (
    ClientDied,
    ClientJoined,
    ClientKey,
    ClientLeft,
    ClientLock,
    DaemonLost,
    MulticastFields,
    StateFields,
    StateKey,
    Stranger,
    encoded,
)
from unisono.daemon.registry import Registry, RegistryLimits
from unisono.layout import encode
from unisono.model import (
    Address,
    Change,
    ChangeKind,
    ChangeScope,
    Member,
    Message,
    Resilient,
    Service,
    View,
)
from unisono.net.address_validation import CHALLENGE, MAGIC, Challenge
from unisono.parts.admission import Note
from unisono.protocols.mtp.agreement import Master
from unisono.protocols.mtp.batch import (
    BatchRow,
    MembershipChange,
    MessageBatch,
    MixedBatch,
    RemovedMember,
)
from unisono.protocols.mtp.decision import machine_of, value_of
from unisono.protocols.mtp.web import Web
from unisono.protocols.ring.packets import Version, key_of
from unisono.protocols.ring.ring import Record, Ring, RingLink, Seat

RECORDED = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "golden_records.txt").read_text().splitlines()
)
A = Member("a", Address("10.0.0.1", 7000), 5)
B = Member("bé", Address("::1", 65535), (1 << 63) - 1)
SUBMIT = frames.submit_head(Service.AGREED, ("g",)) + frames.bundle_of([b"x", b"y"])
LEVELS = (Service.FIFO, Service.AGREED)
CHANGES = (
    Change(ChangeKind.JOINED, (B,)),
    Change(ChangeKind.LEFT, (A,), ChangeScope.LOCAL),
)
VIEW = View((A, B), "7.1", (B,), (A,), 9, (), "why", True, (A,), CHANGES)
VERSION = Version(3, key_of(A))


def snapshot() -> bytes:
    registry = Registry(A, RegistryLimits(10, 20, 30))
    for daemon, number, group, name, with_state in (
        (A, 1, "g", "x", True),
        (B, 1, "g", "y", True),
        (B, 2, "h", "z", False),
    ):
        joined = ClientJoined(number, group, name, number, with_state)
        registry.deliver(daemon, encoded(joined))
    registry.deliver(B, encoded(ClientLock(1, LockFrame(1, 7, False, False))))
    assert Registry.restored(A, registry.snapshot()).snapshot() == registry.snapshot()
    return registry.snapshot()


def rows() -> list[bytes]:
    return history.rows(history.SinkRows("q", 2, 3), 4, [b"r", b"s"])


def kept_history() -> bytes:
    kept = history.ReplayHistory()
    kept.see(View((A,), "1"))
    for payload in rows():
        kept.deliver(Message(A, payload, 1, "v", 1, Service.AGREED))
    return kept.state()


def roster() -> bytes:
    web = Web()
    web.found(9, A, "")
    web.members[key_of(B)] = B
    web.upto[key_of(B)] = 12
    return web.roster()


def decision() -> bytes:
    master: Master[int] = Master(4, memory=32)
    for holder in (5, 6, 7):
        master.grant(holder)
    master.seen(1)
    assert value_of(machine_of(value_of(master), 4)) == value_of(master)
    return value_of(master)


def joined_slices(content: MembershipChange | MessageBatch | MixedBatch) -> bytes:
    return b"".join(content.slices(1000))


def ring() -> bytes:
    chain = (RingLink(Version(1, 2), 1), RingLink(VERSION, 5))
    seats = (Seat(A, 4, True, True), Seat(B, 5, False))
    absent = (Seat(A._replace(name="c")),)
    trunk = Version(2, 9)
    return Ring(VERSION, seats, absent, 3, 5, 1, chain, A, trunk, True, 4).packed()


WRITTEN: dict[str, Callable[[], bytes]] = {
    "hello": lambda: frames.hello("a", 7),
    "join": lambda: framed(JoinFrame("g", True, False, True)),
    "submit": lambda: frames.submit(
        frames.submit_head(Resilient(3), ("g", "h")), [b"one", b"", b"three"]
    ),
    "state": lambda: framed(StateFrame(True, b"key", b"state")),
    "welcome": lambda: framed(
        WelcomeFrame("d", Address("::1", 1), "mtp", Service.AGREED, True, LEVELS, 99)
    ),
    "lock": lambda: framed(LockFrame(9, 255, False, True)),
    "answer": lambda: framed(AnswerFrame.of(Answer("lock", Cause.REFUSED, "why", 9))),
    "bye": lambda: frames.bye("why"),
    "view": lambda: frames.view(VIEW, whole=True),
    "deliver": lambda: frames.deliver(
        FrameKind.DELIVER,
        frames.member_bytes(B),
        4,
        9,
        *frames.level_code(Resilient(-1)),
        frames.bundle_of([b"x", b"yz"]),
    ),
    "shed": lambda: framed(ShedFrame(5)),
    "placed": lambda: framed(PlacedFrame(5, 2, 9, ("g",))),
    "record.join": lambda: encoded(ClientJoined(3, "g", "a", 7, True, True)),
    "record.leave": lambda: encoded(ClientLeft(3)),
    "record.gone": lambda: encoded(ClientDied(3, "why")),
    "record.said": lambda: encoded(MulticastFields(3, 4, None, SUBMIT)),
    "record.stranger": lambda: encoded(MulticastFields(3, 4, Stranger("s", 8), SUBMIT)),
    "record.state": lambda: encoded(
        StateFields(True, encode(StateKey(ClientKey(B, 3), 44)), b"state")
    ),
    "record.lock": lambda: encoded(ClientLock(3, LockFrame(9, 7, True, False))),
    "record.lost": lambda: encoded(DaemonLost(17, A)),
    "snapshot": snapshot,
    "recall.ask": lambda: history.control(history.RecallRequest(1, A, 2, 3)),
    "recall.have": lambda: history.control(history.RecallOffer(1, A, 2, 3)),
    "recall.want": lambda: history.control(history.RecallChoice(1, A, "b", 2, 3)),
    "recall.fill": lambda: history.control(
        history.RecallPart(
            1,
            A,
            (
                history.PastMessage(A, 3, "v", 4, Resilient(-2), b"p"),
                history.PastMessage(B, 3, "v", 0, Service.SAFE, b""),
            ),
        )
    ),
    "rows": lambda: b"".join(rows()),
    "history": kept_history,
    "challenge": lambda: encode(Challenge(MAGIC, CHALLENGE, b"groupgrp", b"cookie of 16 ...")),
    "note": lambda: Note(77, 3, 1000, (("protocol", "ring"), ("replayable", "false"))).sealed(),
    "roster": roster,
    "decision": decision,
    "change": lambda: joined_slices(
        MembershipChange(
            ((A, True), (B, False)), (RemovedMember(9, True), RemovedMember(8, False)), True
        )
    ),
    "batch": lambda: joined_slices(
        MessageBatch(7, (*BatchRow.of([b"abc", b"def"], 3, 4), *BatchRow.of([b"x"], 1, 0)))
    ),
    "mixed": lambda: joined_slices(MixedBatch(7, (b"abc", b"x"), bytes((4, 2)))),
    "ring": ring,
    "ring.record": lambda: Record(VERSION, ("a", "b"), Version(4, 5), True, Version(1, 1)).packed(),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_record_is_written_as_it_was(name: str) -> None:
    assert WRITTEN[name]().hex() == RECORDED[name]
