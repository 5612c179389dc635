"""A broken member has the group's key and says anything: what cannot be true is not believed."""

from __future__ import annotations

import pytest

from tests.rmcast.harness import GROUP, beat, core, step, together
from tests.scenarios.stage import Stage
from unisono.core import Fail, Received
from unisono.layout import encode
from unisono.model import Address, Member
from unisono.protocols.rmcast.failure import HOLE_TIMES
from unisono.protocols.rmcast.packets import (
    FAILED,
    MEMBER,
    PROTOCOL,
    AckEntry,
    Announce,
    Header,
    PacketKind,
)
from unisono.wire import seal

STRANGER = Member("x", Address("10.9.9.9", 7), 1)


def announced(stage: Stage, to: str, sponsor: Member, size: int) -> Received:
    """An announcement of another component that answers ours, as a member that is there does."""
    stamp = stage.now_us
    packet = Announce(sponsor, size, 99, stamp=stamp, echo=stamp)
    return Received(
        sponsor.address, [seal(PROTOCOL, PacketKind.ANNOUNCE, GROUP, 99, encode(packet))]
    )


def together_still(stage: Stage, *names: str) -> None:
    stage.obey("\n".join(f"say {name} still" for name in names) + "\nadvance 1000ms")
    for name in names:
        assert [p.member.name for p in core(stage, name).roster.group()] == list(names)


@pytest.mark.parametrize("size", [65_535, 33])
def test_a_component_larger_than_a_group_may_be_stops_nobody(size: int) -> None:
    stage = together("a", "b", "c")
    for name in "abc":
        found = step(stage, name, announced(stage, name, STRANGER, size))
        assert not any(isinstance(effect, Fail) for effect in found)
        assert core(stage, name).counts["drop.announce"] == 1
    together_still(stage, *"abc")


def test_a_member_whose_headers_count_us_in_leads_no_other_component() -> None:
    stage = together("a", "b", "c")
    for name in "ac":
        step(stage, name, announced(stage, name, core(stage, "b").me, 9))
        assert core(stage, name).counts["drop.announce"] == 1
    together_still(stage, *"abc")


def test_a_component_that_may_be_larger_still_stops_the_smaller_one() -> None:
    stage = together("a", "b", "c")
    found = step(stage, "a", announced(stage, "a", STRANGER, 9))
    assert any(isinstance(effect, Fail) for effect in found)


@pytest.mark.parametrize("what", ["beat", "failed"])
def test_a_stranger_holds_nobody_for_failed(what: str) -> None:
    stage = together("a", "b", "c")
    mine = core(stage, "a").roster.key
    status = FAILED if what == "failed" else MEMBER
    lies = beat(
        stage, "b", "a", Header(77, {mine: AckEntry(0, 0, status), 77: AckEntry(0, 0, MEMBER)})
    )
    assert not any(isinstance(effect, Fail) for effect in step(stage, "a", lies))
    assert core(stage, "a").counts["drop.stranger"] == 1
    together_still(stage, *"abc")


def test_who_claims_chunks_that_never_come_is_removed_itself() -> None:
    """Everybody asks it for them, in vain; without it the others go on as before."""
    stage = together("a", "b", "c")
    header = core(stage, "b").roster.header
    key, far = core(stage, "c").roster.key, 1 << 20

    def lying() -> Header:
        made = header()
        made.entries[key] = AckEntry(made.entries[key].delivered, far, MEMBER)
        return made

    core(stage, "b").roster.header = lying  # type: ignore[method-assign]
    stage.obey("say b x\nadvance 300ms")
    detect_us = core(stage, "a").sponsor._parameters.detect_us
    stage.obey(f"advance {(HOLE_TIMES + 3) * detect_us // 1000}ms\nsay a one\nadvance 500ms")
    for name in "ac":
        assert [p.member.name for p in core(stage, name).roster.group()] == ["a", "c"]
