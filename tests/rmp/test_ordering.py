"""The ordering queue and resilience, by the paper's own example."""

from __future__ import annotations

import pytest

from unisono.model import Resilient
from unisono.protocols.rmp.ordering import (
    BlockRange,
    MissingSlots,
    OrderingQueue,
    TokenAck,
    next_ack,
)
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.resilience import Resilience

A, B, C = 1, 2, 3
RING = (B, A, C)
"""The token goes from B to A to C, and to B again."""


class Here:
    """The blocks that one site has."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int], None] = {}

    def has(self, source: int, number: int) -> bool:
        return (source, number) in self.blocks

    def received(self) -> dict[int, int]:
        return dict(self.blocks.keys())


def site() -> tuple[Here, OrderingQueue, list[tuple[int, int, int]]]:
    here = Here()
    return here, OrderingQueue(here), []


@pytest.mark.rule("RMP-5")
@pytest.mark.rule("RMP-1")
@pytest.mark.rule("RMP-3")
def test_figure_1() -> None:
    sites = {name: site() for name in (A, B, C)}

    def data(source: int, number: int, *to: int) -> None:
        for name in to:
            here, queue, order = sites[name]
            here.blocks[source, number] = None
            order.extend(each for each in queue.filled() if not isinstance(each, TokenAck))

    def acknowledge(by: int) -> TokenAck:
        here, queue, _ = sites[by]
        assert not queue.has_gap()
        ack = next_ack(by, queue, here.received(), RING, 64)
        for _, its, order in sites.values():
            its.put(ack)
            order.extend(each for each in its.filled() if not isinstance(each, TokenAck))
        return ack

    data(A, 1, A, B, C)
    data(B, 1, A, B)
    assert acknowledge(B) == TokenAck(1, B, A, (BlockRange(A, 1, 1), BlockRange(B, 1, 1)))
    # C misses Data(B,1): the slot is empty, and it asks for it.
    assert sites[C][1].missing(8) == MissingSlots((), ((B, 1),))
    assert acknowledge(A) == TokenAck(4, A, C)
    assert sites[C][1].has_gap()  # [RMP-2] so it does not accept the token yet.
    data(B, 1, C)
    assert not sites[C][1].has_gap()
    data(A, 2, A, B, C)
    assert acknowledge(C) == TokenAck(5, C, B, (BlockRange(A, 2, 2),))
    for _, queue, order in sites.values():
        assert list(order) == [(2, A, 1), (3, B, 1), (6, A, 2)]
        assert queue.held == 6


@pytest.mark.rule("RMP-3")
def test_a_missing_ack_is_an_empty_slot() -> None:
    here, queue, order = site()
    here.blocks |= {(A, 1): None, (A, 2): None}
    queue.put(TokenAck(3, A, B, (BlockRange(A, 2, 2),)))
    assert not list(queue.filled())
    assert queue.missing(8) == MissingSlots(((1, 2),), ())
    queue.put(TokenAck(1, B, A, (BlockRange(A, 1, 1),)))
    order.extend(each for each in queue.filled() if not isinstance(each, TokenAck))
    assert order == [(2, A, 1), (4, A, 2)]
    assert queue.missing(8) == MissingSlots((), ())


@pytest.mark.rule("RMP-6")
@pytest.mark.rule("RMP-7")
def test_resilience_grows_with_the_passes_of_the_token() -> None:
    quorums = ViewQuorums.of(0, {A, B, C})
    resilience: Resilience[str] = Resilience((A, B, C))
    ack = TokenAck(1, B, A, (BlockRange(A, 1, 1),))
    resilience.passed(ack)
    for k, name in ((1, "one"), (2, "two"), (Resilient.MAJORITY, "most"), (Resilient.ALL, "all")):
        resilience.expect(2, k, name)
    assert resilience.reached(quorums, True) == [("one", frozenset((B,)))]
    resilience.passed(TokenAck(3, A, C))
    found = dict(resilience.reached(quorums, True))
    assert found == {"two": {A, B}, "most": {A, B}}
    assert resilience.stable() == 0
    resilience.passed(TokenAck(4, C, B))
    assert dict(resilience.reached(quorums, True)) == {"all": {A, B, C}}
    assert resilience.stable() == 2  # B held up to its own ACK's end.


def test_a_part_that_is_not_primary_never_reports_a_majority() -> None:
    resilience: Resilience[str] = Resilience((A,))
    resilience.expect(2, Resilient.MAJORITY, "most")
    resilience.passed(TokenAck(1, A, A, (BlockRange(A, 1, 1),)))
    assert not resilience.reached(ViewQuorums.of(0, {A}), primary=False)
    assert resilience.out_of_reach(ViewQuorums.of(0, {A}), primary=False) == ["most"]
    assert not resilience.waits()


@pytest.mark.rule("RMP-6")
def test_resilience_fails_when_too_few_are_left_of_those_that_can_hold_it() -> None:
    quorums = ViewQuorums.of(0, {A, B, C})
    resilience: Resilience[str] = Resilience((A, B, C))
    wanted = {4: "four", 3: "three", Resilient.MAJORITY: "most", Resilient.ALL: "all"}
    for k, name in wanted.items():
        resilience.expect(2, k, name)
    assert resilience.out_of_reach(quorums, True) == ["four"]
    resilience.remove(B, 0)
    resilience.add(B + 10, 5)  # It joins later, and so never holds what was before.
    quorums = quorums.changed(4, {A, C}).changed(5, {A, C, B + 10})
    assert resilience.out_of_reach(quorums, True) == ["three"]
    resilience.begin((A, B + 10), 0)
    quorums = quorums.changed(6, {A, B + 10})
    assert resilience.out_of_reach(quorums, True) == ["most"]
    resilience.passed(TokenAck(7, A, A))
    assert dict(resilience.reached(quorums, True)) == {"all": {A}}
    assert not resilience.waits()


@pytest.mark.rule("RMP-2")
def test_an_ack_far_ahead_of_the_order_is_not_believed() -> None:
    queue = OrderingQueue(Here())
    assert queue.put(TokenAck(1, A, B))
    assert not queue.put(TokenAck(1 << 40, B, C)), "a site that believed it would wait for ever"
    assert [ack for ack in queue.filled() if isinstance(ack, TokenAck)] == [TokenAck(1, A, B)]
    assert not queue.has_gap()
    assert queue.latest == TokenAck(1, A, B), "and so would the token"


def test_an_ack_in_a_slot_that_a_block_fills_was_none() -> None:
    """Or those that had it would wait for a site that does not have the token."""
    here, queue, _ = site()
    here.blocks[A, 1] = None
    queue.put(TokenAck(2, C, C))
    queue.put(TokenAck(1, B, A, (BlockRange(A, 1, 1),)))
    assert len(list(queue.filled())) == 2
    assert queue.latest is not None and queue.latest.next_site == A
    assert not queue.has_gap()
