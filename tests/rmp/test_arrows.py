"""Every arrow that does something is walked: in a story, when it is fired, or in chaos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.rmp.levels import all_levels
from tests.rmp.theatre import DETECT_US, Room, together
from unisono.core import Core, CoreConfig, Fail
from unisono.protocols.rmp import SPEC
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.data_packets import Data
from unisono.protocols.rmp.figure import REFORMATION
from unisono.protocols.rmp.packets import AckFields, PacketKind
from unisono.protocols.rmp.reform_packets import (
    Accept,
    BallotFields,
    Fault,
    NewListFields,
    Proposal,
    Resume,
    Sync,
)
from unisono.protocols.rmp.reformation import AttemptLost, ListDecided
from unisono.sim.run import run

TRID = 12345
CHAOS = (1300099, 1300036, 5)
"""Seeds whose runs walk what is not fired here."""


def walked(room: Room) -> set[str]:
    sites = [site for actor in room.actors.values() for site in actor.lives]
    return {arrow for site in sites for arrow, n in site.transition_counts().items() if n}


# -- fired in each state --------------------------------------------------------------------------


def in_state(state: str) -> tuple[Room, str]:
    """A ring with a site that is in this state of a reformation."""
    room = together("a", "b", "c", "d")
    if state == "NORMAL":
        return room, "a"
    if state == "CONFIRMING":  # c lacks what the list asks it to hold.
        room.loses = lambda by, to, packet: to == "c" and isinstance(packet, Data)
        room.multicast("a", "not for c")
        room.pass_ms(3)
    else:
        lost = {"SENT_NEW_LIST": Accept, "CONFIRMED": Accept, "ABORT_RECOVERY": Sync}.get(state)
        room.loses = lambda by, to, packet: lost is not None and isinstance(packet, lost)
    room.obey("crash d")
    room.until(lambda: any(room.reform_state(name) == state for name in "abc"))
    return room, next(name for name in "abc" if room.reform_state(name) == state)


def list_for(room: Room, name: str, action: str = "install") -> NewList:
    ring, held = room.site(name)._state, room.site(name)._queue.held
    members = tuple(key for key in ring.token_list if action != "stop_excluded" or key != ring.key)
    sync = held + 3 if action == "catch_up" else held
    return NewList(members, sync, (), ring.epoch + 1, TRID, True)


def promised(room: Room, name: str) -> BallotFields:
    return BallotFields(*room.site(name)._reformation._slave.promised)


def other(room: Room, name: str) -> str:
    return next(each for each in "abc" if each != name)


def fault(room: Room, name: str) -> Fault:
    member = room.actors[other(room, name)].inner.me  # type: ignore[union-attr]
    return Fault(room.key(member.name), promised(room, name).round + 1, member)


def proposal(room: Room, name: str) -> Proposal:
    fields = NewListFields.of(list_for(room, name))
    return Proposal(room.key(other(room, name)), promised(room, name), fields)


def given_up(room: Room, name: str) -> AttemptLost:
    return AttemptLost(room.site(name)._reformation._slave.promised, False)


def verdict(room: Room, name: str) -> AttemptLost:
    """Of a reform site that too few have answered, as long as this one has hoped."""
    site = room.site(name)
    site._reformation._since_us = site._state.now_us - site._parameters.verdict_us
    return given_up(room, name)._replace(is_verdict=True)


def resume(room: Room, name: str) -> Resume:
    return Resume(room.key(other(room, name)), promised(room, name))


FOLLOWING = ("SLAVE", "CONFIRMING", "CONFIRMED")
ANY = ("NORMAL", "START_RECOVERY", "SENT_NEW_LIST", *FOLLOWING, "ABORT_RECOVERY")
ACTIONS = ("install", "stop_excluded", "catch_up")
FIRED: list[tuple[str, Callable[[Room, str], Any], str]] = [
    *((state, fault, "answer") for state in ANY),
    *((state, resume, "resume") for state in (*FOLLOWING, "ABORT_RECOVERY")),
    *((state, given_up, "wait_randomly") for state in (*FOLLOWING, "ABORT_RECOVERY")),
    *((state, verdict, "give_verdict") for state in (*FOLLOWING, "ABORT_RECOVERY")),
    *((state, proposal, "take_list") for state in (*FOLLOWING, "ABORT_RECOVERY")),
]
"""A state, what is fired in it, and what is done."""


@cache
def fire(state: str, event: Callable[[Room, str], Any], action: str) -> frozenset[str]:
    """The arrows that were walked."""
    room, name = in_state(state)
    machine = room.site(name)._reform_machine
    before = dict(machine.walked)
    machine.fire(event(room, name), [])
    return frozenset(arrow for arrow, n in machine.walked.items() if n > before.get(arrow, 0))


@pytest.mark.parametrize(("state", "event", "action"), FIRED)
def test_what_a_site_hears_is_answered_in_every_state(
    state: str, event: Callable[[Room, str], Any], action: str
) -> None:
    found = fire(state, event, action)
    assert any(
        arrow.startswith(f"reformation: {state} --") and f"/{action}--" in arrow for arrow in found
    )


@cache
def decide(state: str, action: str) -> frozenset[str]:
    """[RMP-11] A list is decided that this site hears of in this state."""
    room, name = in_state(state)
    site = room.site(name)
    ring, machine = site._state, site._reform_machine
    machine.fire(ListDecided(list_for(room, name, action)), [])
    assert (ring.trid == TRID) == (action == "install")
    assert (ring.verdict is not None) == (action == "stop_excluded")
    assert machine.state.name == ("CONFIRMING" if action == "catch_up" else "NORMAL")
    return frozenset(arrow for arrow in machine.walked if f"/{action}--" in arrow)


@pytest.mark.parametrize("state", ANY)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_decided_list_is_followed_in_every_state(state: str, action: str) -> None:
    assert any(
        arrow.startswith(f"reformation: {state} --ListDecided") for arrow in decide(state, action)
    )


# -- stories --------------------------------------------------------------------------------------


def lagging(name: str) -> Room:
    """A block of the site that dies does not reach this one until the list is decided: it fetches
    the block from those who have gone on."""
    room = together("a", "b", "c", "d", "e")
    room.loses = lambda by, to, packet: (
        to == name and isinstance(packet, Data) and not room.of(PacketKind.COMMIT)
    )
    room.multicast("e", "late")
    room.pass_ms(3)
    room.obey("crash e")
    room.until(lambda: all(room.views(n) and room.members(n) == "abcd" for n in "abcd"))
    assert all(room.payloads(n) == ["late"] for n in "abcd")
    return room


def lagging_slave() -> Room:
    return lagging("c")


def lagging_reform_site() -> Room:
    room = lagging("d")
    assert room.of(PacketKind.COMMIT)[0].by == "d"
    return room


def orphan() -> Room:
    """c lacks what the list asks it to hold when the reform site dies, and gives up."""
    room = together("a", "b", "c", "d", "e")
    room.loses = lambda by, to, packet: to == "c" and isinstance(packet, Data)
    room.multicast("e", "late")
    room.pass_ms(3)
    room.obey("crash e")
    room.until(lambda: room.reform_state("c") == "CONFIRMING")
    reformer = room.of(PacketKind.NEW_LIST)[-1].by
    room.obey(f"crash {reformer}")
    room.loses = lambda by, to, packet: to == "c" and isinstance(packet, (Data, Fault))
    room.until(lambda: any("CONFIRMING --REFORM/abort" in arrow for arrow in walked(room)))
    room.loses = None
    left = "".join(sorted(set("abcd") - {reformer}))
    room.until(lambda: all(room.views(n) and room.members(n) == left for n in left))
    return room


def false_alarm() -> Room:
    room = together("a", "b", "c")
    room.loses = lambda by, to, packet: isinstance(packet, AckFields)
    room.until(lambda: room.of(PacketKind.FAULT))
    room.loses = None
    room.until(lambda: room.of(PacketKind.RESUME))
    return room


def resting() -> Room:
    """The token rests at one site for longer than another waits for it."""
    room = together("a", "b", idle_us=2 * DETECT_US)
    room.until(lambda: room.of(PacketKind.RESUME))
    return room


def silent() -> Room:
    """One that is on the list never confirms it; a quorum does."""
    room = together("a", "b", "c", "d", "e")
    room.obey("crash e")
    room.loses = lambda by, to, packet: (
        isinstance(packet, Accept) and packet.sender == min(map(room.key, "abcd"))
    )
    room.until(lambda: all(room.views(n) and room.members(n) == "abcd" for n in "abcd"))
    return room


def widowed() -> Room:
    """The reform site dies when it has sent its list: those that confirmed it wait in vain."""
    room = together("a", "b", "c", "d", "e")
    room.obey("crash e")
    room.loses = lambda by, to, packet: isinstance(packet, Accept)
    room.until(lambda: any(room.reform_state(name) == "CONFIRMED" for name in "abcd"))
    room.obey(f"crash {room.of(PacketKind.NEW_LIST)[-1].by}")
    room.until(lambda: any("CONFIRMED --REFORM/abort" in arrow for arrow in walked(room)))
    return room


def left_alone() -> Room:
    room = together("a", "b")
    room.obey("crash b")
    room.until(lambda: room.found("a", Fail))
    return room


STORIES = {
    widowed: "CONFIRMED --REFORM/abort--> ABORT_RECOVERY",
    resting: "TOKEN_SITE --soon[is_frozen]/stop--> NOT_TOKEN_SITE",
    left_alone: "START_RECOVERY --REFORM/give_verdict--> NORMAL",
    silent: "SENT_NEW_LIST --REFORM[may_commit]/commit--> NORMAL",
    false_alarm: "START_RECOVERY --soon[is_false_alarm]/resume_all--> NORMAL",
    lagging_slave: "CONFIRMING --soon[holds_decided]/install_decided--> NORMAL",
    orphan: "CONFIRMING --REFORM/abort--> ABORT_RECOVERY",
    lagging_reform_site: "SENT_NEW_LIST --REFORM[quorum_confirmed]/commit_first--> CONFIRMING",
}


@pytest.mark.rule("RMP-11", "RMP-13")
@pytest.mark.parametrize("story", STORIES)
def test_a_story_walks_the_arrow_that_it_is_told_for(story: Callable[[], Room]) -> None:
    assert {f"{figure}: {STORIES[story]}" for figure in ("reformation", "token")} & told(story)


@cache
def told(story: Callable[[], Room]) -> frozenset[str]:
    return frozenset(walked(story()))


# -- all ------------------------------------------------------------------------------------------


def walked_in_chaos() -> list[Mapping[str, int]]:
    sites: list[Core] = []

    def make(config: CoreConfig) -> Core:
        sites.append(SPEC.make(config))
        return sites[-1]

    for seed in CHAOS:
        run(replace(all_levels(seed), spec=replace(SPEC, make=make)))
    return [site.transition_counts() for site in sites]


@pytest.mark.slow
def test_every_arrow_that_does_something_is_walked() -> None:
    seen = set[str]().union(*map(told, STORIES))
    for found in (*(fire(*row) for row in FIRED), *(decide(s, a) for s in ANY for a in ACTIONS)):
        seen |= found
    seen |= {name for walk in walked_in_chaos() for name, count in walk.items() if count}
    assert {name for name in SPEC.arrows if "/stay" not in name} <= seen


def test_an_arrow_that_nobody_walks_would_be_seen() -> None:
    assert {f"reformation: {name}" for name in REFORMATION.names()} < set(SPEC.arrows)
