"""[RMP-16] The ring's identifier is renewed while traffic flows, and groups share an address."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plants import Patch, Plant, without
from tests.rmp.stage import Stage
from unisono.core import Received
from unisono.model import Service
from unisono.protocols.rmp.core import Rmp
from unisono.protocols.rmp.parameters import Parameters
from unisono.protocols.rmp.renewal import TridRenewal
from unisono.protocols.rmp.resilience import Resilience
from unisono.protocols.rmp.state import TRIDS_MAX, TokenRing

pytestmark = pytest.mark.rule("RMP-16")
RENEW_US = 600_000


def talk(stage: Stage, for_us: int, names: str = "abc") -> None:
    """Every member multicasts every twenty milliseconds."""
    for _ in range(for_us // 20_000):
        for name in names:
            stage.multicast(name, b"%d" % stage.now_us, service=Service.AGREED)
        stage.run(20_000)


def trids(stage: Stage) -> set[int]:
    """On the wire, of packets that belong to a ring."""
    return {int.from_bytes(packet[14:22], "big") for packet in stage.sealed} - {0}


def dropped(stage: Stage, name: str, reason: str) -> int:
    return stage.cores[name].counts.get(f"drop.{reason}", 0)


def foreign(stage: Stage) -> int:
    """Packets that any member dropped as another ring's; before it joined, all were."""
    return sum(dropped(stage, name, "ring") for name in stage.cores)


def test_it_is_renewed_every_45_minutes() -> None:
    assert Parameters.of({}).renew_us == 45 * 60 * 1_000_000


def test_nothing_is_lost_when_the_identifier_is_renewed() -> None:
    stage = Stage("a", "b", "c", renew_us=RENEW_US)
    views = {name: len(stage.views(name)) for name in "abc"}
    before, strange = trids(stage), foreign(stage)
    naks = stage.cores["a"].counts.get("nak", 0)
    talk(stage, 4_000_000)
    stage.run(100_000)
    assert len(trids(stage) - before) >= 3
    assert len({stage.cores[name]._state.trid for name in "abc"}) == 1
    assert stage.payloads("a") and stage.payloads("a") == stage.payloads("b") == stage.payloads("c")
    for name in "abc":
        assert len(stage.views(name)) == views[name], "it is no view"
        assert len(stage.cores[name]._state.trids) <= TRIDS_MAX
    assert foreign(stage) == strange
    assert stage.cores["a"].counts.get("nak", 0) == naks


def test_the_old_identifier_is_kept_until_all_hold_the_announcement() -> None:
    stage = Stage("a", "b", "c", renew_us=RENEW_US, detect_us=4_000_000)
    old, strange = {core._state.trid for core in stage.cores.values()}, foreign(stage)
    stage.is_lost = lambda sender, receiver, what: receiver == "c"
    talk(stage, 1_500_000)
    assert {core._state.trid for core in stage.cores.values()} == old
    stage.is_lost = lambda sender, receiver, what: False
    stage.run(3_000_000)
    talk(stage, 1_500_000)
    assert {core._state.trid for core in stage.cores.values()}.isdisjoint(old)
    assert foreign(stage) == strange


def test_a_member_that_joins_knows_the_identifiers() -> None:
    """One joins while another has not heard of the renewal, and both stay."""
    stage = Stage("a", "b", "c", renew_us=RENEW_US)
    stage.start("d")
    talk(stage, 3_000_000)
    assert "".join(stage.members("d")) == "abcd"
    before = len(stage.views("d"))
    talk(stage, 2_000_000, "abcd")
    stage.run(100_000)
    assert len(stage.views("d")) == before
    assert len({core._state.trid for core in stage.cores.values()}) == 1
    assert len({core._state.name for core in stage.cores.values()}) == 1
    count = len(stage.payloads("d"))
    assert count and stage.payloads("d") == stage.payloads("a")[-count:]


def test_packets_of_an_identifier_long_gone_are_dropped() -> None:
    stage = Stage("a", "b", renew_us=RENEW_US)
    stage.multicast("b", b"once")
    stage.run(1_000)
    old = [packet for packet in stage.sealed if packet[4] == 1][-1]
    talk(stage, TRIDS_MAX * 3 * RENEW_US, "ab")
    before = dropped(stage, "a", "ring")
    stage.step("a", Received(stage.cores["b"].me.address, [old]))
    assert dropped(stage, "a", "ring") == before + 1


def test_two_groups_on_one_address_do_not_disturb_each_other() -> None:
    one, other = Stage("a", "b", group="one"), Stage("a", "b", group="other")
    seen = {one: len(one.sealed), other: len(other.sealed)}
    for turn in range(200):
        one.multicast("a", b"one %d" % turn)
        other.multicast("b", b"other %d" % turn)
        for here, there in ((one, other), (other, one)):
            here.run(1_000)
            for packet in here.sealed[seen[here] :]:
                for name in "ab":
                    there.step(name, Received(here.cores["a"].me.address, [packet]))
            seen[here] = len(here.sealed)
    for stage, word in ((one, b"one"), (other, b"other")):
        for name in "ab":
            assert stage.payloads(name) == [b"%s %d" % (word, turn) for turn in range(200)]
            assert len(stage.views(name)) <= 2
            drops = {k: v for k, v in stage.cores[name].counts.items() if k.startswith("drop.")}
            assert sum(drops.values()) >= 200, drops


def switch_at_once(patch: Patch) -> None:
    """A site uses the identifier as soon as it has heard of it."""
    announce = TokenRing.announce_trid

    def hasty(self: TokenRing, trid: int, timestamp: int) -> bool:
        found = announce(self, trid, timestamp)
        self.renew(timestamp)
        return found

    patch.setattr(TokenRing, "announce_trid", hasty)


def only_the_current(patch: Patch) -> None:
    take = Rmp._take

    def strict(self: Any, kind: int, trid: int, *rest: Any) -> None:
        self._state.trids = (self._state.trid,) if self._state.trid else ()
        take(self, kind, trid, *rest)

    patch.setattr(Rmp, "_take", strict)


def joiner_counts_all(patch: Patch) -> None:
    patch.setattr(Resilience, "known", lambda self: 1 << 60)


@pytest.mark.parametrize(
    ("shown", "plant"),
    [
        (test_nothing_is_lost_when_the_identifier_is_renewed, without(TridRenewal, "ask_if_due")),
        (test_nothing_is_lost_when_the_identifier_is_renewed, only_the_current),
        (test_the_old_identifier_is_kept_until_all_hold_the_announcement, switch_at_once),
        (test_the_old_identifier_is_kept_until_all_hold_the_announcement, joiner_counts_all),
        (
            test_packets_of_an_identifier_long_gone_are_dropped,
            without(TridRenewal, "ask_if_due"),
        ),
    ],
)
def test_without_the_rule_it_is_missed(shown: Any, plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        shown()
