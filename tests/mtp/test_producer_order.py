"""The messages of one producer keep their order when one of them is rejected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from unisono.core import CoreConfig
from unisono.model import Address, Member, Service
from unisono.parts.pending import enqueue
from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Consumer,
    Master,
    Producer,
    SendToken,
)
from unisono.protocols.mtp.batch import make_batch
from unisono.protocols.mtp.send_queue import SendQueue
from unisono.protocols.mtp.token_master import TokenMaster

T = 4


def test_what_the_grant_reports_as_rejected_is_sent_first() -> None:
    consumer, producer = Consumer(T, 10), Producer()
    sent: list[tuple[int, int, int]] = []
    ordering = SimpleNamespace(status=lambda n: consumer.status.get(n, PENDING))
    outbound = SimpleNamespace(
        held={}, send=lambda h: sent.append((h.number, h.content.first, h.content.count))
    )
    config = CoreConfig(Member("a", Address("10.0.0.1", 1), 1), "g", 0)
    aside: Any = SimpleNamespace(now_us=0)
    queue = SendQueue(config, 1, producer, consumer, aside, aside, aside, ordering, aside, outbound)  # type: ignore[arg-type]

    def grant(number: int, *messages: bytes) -> None:
        queue._queue_bytes += enqueue(queue._queue, messages, Service.AGREED)
        producer.ask()
        queue.granted(SendToken(number, (REJECTED,) * T), ())

    grant(10, b"1", b"2", b"3")
    consumer.learn(11, (REJECTED,) * T)  # In the header of the next grant.
    grant(11, b"4", b"5")
    grant(12)
    assert sent == [(10, 1, 3), (11, 1, 3), (12, 4, 2)]


def test_a_message_waits_for_an_earlier_one_of_its_producer() -> None:
    slices: dict[int, Any] = {}
    master = TokenMaster.__new__(TokenMaster)
    master._key, master._upto, master._sizes = 99, {1: 0}, {}
    master.machine = Master(T, 11, 32)
    master._codec = SimpleNamespace(drop=lambda reason: None)  # type: ignore[assignment]
    master._outbound = SimpleNamespace(is_leaving=lambda n: False)  # type: ignore[assignment]
    master._ordering = SimpleNamespace(slices_of=slices.get)  # type: ignore[assignment]
    for _ in range(2):
        master.machine.grant(1)

    def arrives(number: int, first: int, *messages: bytes) -> None:
        batch = make_batch(first, [(list(messages), 1, int(Service.AGREED))])  # type: ignore[list-item]
        slices[number] = batch.slices(1300)
        master.accept()

    arrives(12, 1, b"1", b"2", b"3")
    assert master.machine.status[12] is PENDING
    arrives(11, 4, b"4", b"5")
    assert master.machine.status[11] is REJECTED and master.machine.status[12] is ACCEPTED
