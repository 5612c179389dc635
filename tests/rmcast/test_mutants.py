"""Bugs planted in rmcast, each caught by the law it breaks: the checker can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rmcast.harness import together
from unisono.core import Effect
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.leaving import Leaving
from unisono.protocols.rmcast.merging import Merging
from unisono.protocols.rmcast.ordering import Ordering
from unisono.protocols.rmcast.packets import FIRST, StreamStatus
from unisono.protocols.rmcast.send_queue import SendQueue
from unisono.protocols.rmcast.views import Views
from unisono.sim.plan import Plan
from unisono.sim.run import run

SEEDS_MAX = 30


def laws_broken(faults: str, until: str, first: int = 0) -> set[str]:
    """What a few seeds break; stops as soon as `until` is among it."""
    broken: set[str] = set()
    for seed in range(first, first + SEEDS_MAX):
        nodes = 3 + seed % 5
        outcome = run(Plan(protocol="rmcast", nodes=nodes, seed=seed, faults=faults, messages=120))
        broken |= set(outcome.broken)
        if until in broken:
            break
    return broken


@pytest.mark.catches("causal")
def test_delivering_before_a_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    def due(self: Any, peer: Any, last: int) -> bool:
        return peer.status is StreamStatus.MEMBER or last <= self.needed(peer)

    monkeypatch.setattr(Ordering, "_due", due)
    assert "causal" in laws_broken("mild", "causal")


@pytest.mark.catches("fifo")
def test_skipping_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Ordering._whole

    def skipping(self: Any, peer: Any) -> int:
        window, gap = peer.window, peer.delivered + 1
        beyond = window.get(gap + 1)
        if window.get(gap) is None and beyond is not None and beyond.flags & FIRST:
            peer.delivered = window.received = gap
            while window.get(window.received + 1) is not None:
                window.received += 1
        return whole(self, peer)

    monkeypatch.setattr(Ordering, "_whole", skipping)
    assert "fifo" in laws_broken("loss", "fifo", first=25)


@pytest.mark.catches("no_duplication")
def test_delivering_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Ordering._deliver

    def twice(self: Any, peer: Any, last: int, out: list[Any]) -> Any:
        chunk = deliver(self, peer, last, out)
        if out and out[-1].number == 7:
            out.append(out[-1])
        return chunk

    monkeypatch.setattr(Ordering, "_deliver", twice)
    assert "no_duplication" in laws_broken("none", "no_duplication")


@pytest.mark.catches("no_creation")
def test_delivering_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Ordering._deliver

    def garbled(self: Any, peer: Any, last: int, out: list[Any]) -> Any:
        chunk = deliver(self, peer, last, out)
        if out and out[-1].number == 5:
            out[-1] = out[-1]._replace(payload=out[-1].payload + b"!")
        return chunk

    monkeypatch.setattr(Ordering, "_deliver", garbled)
    assert "no_creation" in laws_broken("none", "no_creation")


@pytest.mark.catches("validity")
def test_not_delivering_to_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    def multicast(self: Any, event: Any, out: list[Effect]) -> None:
        self.append(event.messages, event.service)

    monkeypatch.setattr(SendQueue, "multicast", multicast)
    assert "validity" in laws_broken("none", "validity")


@pytest.mark.catches("agreement")
def test_leaving_without_handing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaving, "is_handed_over", lambda self, event: True)
    assert "agreement" in laws_broken("mild", "agreement")


@pytest.mark.catches("agreement")
def test_ending_a_stream_without_asking_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both guards must go: while one stands, whoever delivered more stops."""
    monkeypatch.setattr(Failures, "_agreed", lambda self, failed: True)
    monkeypatch.setattr(Failures, "_heed_closing", lambda self, peer, failed, final: None)
    monkeypatch.setattr(Failures, "_recall", lambda self, peer, key, entry: None)
    stage = together("a", "b", "c")
    stage.obey("cut c > a\nadvance 900ms\ncut b > a\nsay c farewell\nadvance 3ms\ncrash c")
    stage.obey("advance 300ms\nheal\nadvance 2000ms")
    assert "agreement: broken" in stage.obey("check agreement")


@pytest.mark.catches("progress")
def test_forgetting_what_others_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Any, others: list[Any]) -> None:
        for peer in self._roster.peers.values():
            peer.window.forget(peer.delivered)

    monkeypatch.setattr(Ordering, "clean_up", forget)
    assert "progress" in laws_broken("loss", "progress")


@pytest.mark.catches("progress")
def test_parts_that_never_meet_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Merging, "weigh", lambda self, packet, out: None)
    assert "progress" in laws_broken("partition", "progress")


@pytest.mark.catches("self_inclusion")
def test_a_view_without_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    install = Views.install

    def without_me(self: Any, out: list[Effect], cut: bool = False) -> None:
        install(self, out, cut)
        last: Any = out[-1] if out else None
        if hasattr(last, "view") and len(last.view.members) > 2:
            members = tuple(m for m in last.view.members if m != self._roster.me)
            out[-1] = replace(last, view=replace(last.view, members=members))

    monkeypatch.setattr(Views, "install", without_me)
    assert "self_inclusion" in laws_broken("none", "self_inclusion")
