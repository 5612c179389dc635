"""The museum of bugs: each wound of the page is planted somewhere, and the page names who sees it.

Wounds of attackers and broken members are planted here: the guard is taken away, and the test that
shows it fails. The others are planted beside their protocols.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from tests.harness import ROOT
from tests.mtp import test_broken_members as mtp
from tests.plants import Patch, Plant, without
from tests.ring import test_broken_members as ring
from tests.rmcast import test_broken_members as rmcast
from tests.sealing import test_seal as sealing
from unisono.laws import LAWS
from unisono.parts import turn
from unisono.parts.turn import IncomingTurn
from unisono.protocols.mtp.master import MasterWatch
from unisono.protocols.mtp.ordering import Ordering as MtpOrdering
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.ring.fault_detection import FaultDetection
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.requests import MembershipRequests
from unisono.protocols.ring.state import RingState
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.merging import Merging
from unisono.sealing import sessions
from unisono.sealing.greeting import Greetings
from unisono.sealing.replay import ReplayWindow
from unisono.sim.run import WORLD_LAWS

PAGE: Final = ROOT / "docs" / "MUSEUM.md"
TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([\w-]+)\])?`")


def yes(*arguments: Any) -> bool:
    return True


def no(*arguments: Any) -> bool:
    return False


def versions_without_a_window(patch: Patch) -> None:
    def note_seen(self: RingState, number: int) -> bool:
        self.seen = max(self.seen, number)
        return True

    patch.setattr(RingState, "note_seen", note_seen)


def acknowledgments_at_their_word(patch: Patch) -> None:
    def note(self: Ordering, key: int, s: int, k: int) -> None:
        self.safe, self.highest = max(self.safe, k), max(self.highest, s)

    patch.setattr(Ordering, "note", note)


def leavers_are_not_forgotten(patch: Patch) -> None:
    new_ring = MembershipRequests.new_ring

    def keeping(self: MembershipRequests) -> None:
        leavers = dict(self._leavers)
        new_ring(self)
        self._leavers = leavers

    patch.setattr(MembershipRequests, "new_ring", keeping)


def turns_before_their_time(patch: Patch) -> None:
    patch.setattr(Ordering, "own_next", property(lambda self: 1 << 62, nothing), raising=False)


def nothing(*arguments: Any) -> None: ...


def anybody_decides(patch: Patch) -> None:
    learn = MtpOrdering.learn
    patch.setattr(MtpOrdering, "learn", lambda self, header, decides: learn(self, header, True))


def ballots_without_a_window(patch: Patch) -> None:
    patch.setattr(MasterWatch, "can_reach", yes)
    patch.setattr(Replicas, "believes", yes)


def empty_messages_without_end(patch: Patch) -> None:
    patch.setattr(turn, "TURN_COUNT_MAX", 1 << 40)


def members_move_at_once(patch: Patch) -> None:
    patch.setattr(sessions, "MOVE_US", 0)


BALLOT: Final = partial(
    mtp.test_a_ballot_that_nobody_can_have_reached_stops_no_master, "stand", (1 << 62) - 2
)
PLANTED: Final[dict[str, tuple[Plant, Callable[..., Any]]]] = {
    "a version that nobody reached": (
        versions_without_a_window,
        partial(ring.test_a_version_that_nobody_can_have_reached_stops_no_change, 1 << 62),
    ),
    "an acknowledgment of everything": (
        acknowledgments_at_their_word,
        partial(ring.test_safe_is_what_we_have_ourselves, "member", "k"),
    ),
    "a piece that wedges the ring": (
        without(IncomingTurn, "gives_way", no),
        ring.test_what_others_claim_of_a_turn_gives_way_to_its_holder,
    ),
    "a turn that never becomes whole": (
        without(FaultDetection, "holds_up", no),
        ring.test_a_turn_that_never_becomes_whole_makes_its_holder_suspect,
    ),
    "a turn before its time": (
        turns_before_their_time,
        ring.test_a_whole_turn_before_its_time_is_not_believed,
    ),
    "one goodbye, four hundred views": (
        leavers_are_not_forgotten,
        ring.test_one_quit_is_one_reformation,
    ),
    "four million messages of nothing": (
        empty_messages_without_end,
        # Fewer: without the guard they are made.
        partial(ring.test_empty_messages_are_counted_before_they_are_made, 4),
    ),
    "a verdict by anybody": (
        anybody_decides,
        mtp.test_a_member_that_is_no_master_decides_nothing,
    ),
    "a ballot beyond all others": (ballots_without_a_window, BALLOT),
    "a crowd that is not there": (
        without(Merging, "_is_contradicted", no),
        rmcast.test_a_member_whose_headers_count_us_in_leads_no_other_component,
    ),
    "a promise of what never comes": (
        without(Failures, "_liars", lambda self: set()),
        rmcast.test_who_claims_chunks_that_never_come_is_removed_itself,
    ),
    "a record played again": (
        without(ReplayWindow, "is_new", yes),
        sealing.test_a_packet_is_believed_once,
    ),
    "a former life": (
        without(Greetings, "is_answered", yes),
        sealing.test_packets_of_a_former_life_are_not_believed,
    ),
    "a member that is taken away": (
        members_move_at_once,
        sealing.test_who_relays_challenges_and_answers_takes_no_member_away,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_without_its_guard_the_wound_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, shows = PLANTED[name]
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        shows()


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_with_its_guard_it_is_not(name: str) -> None:
    PLANTED[name][1]()


def wounds() -> dict[str, str]:
    """The stories of the page, by title."""
    parts = re.split(r"^## \d+\. (.+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip((title.lower() for title in parts[::2]), parts[1::2], strict=True))


def test_the_museum_has_many_wounds_and_each_names_who_sees_it() -> None:
    found = wounds()
    assert len(found) >= 30 and found.keys() >= PLANTED.keys()
    known = {*LAWS, *WORLD_LAWS}
    for title, story in found.items():
        tests = TEST.findall(story)
        assert tests, title
        for path, function, case in tests:
            text = (ROOT / path).read_text()
            assert f"def {function}(" in text, (title, function)
            folder = (ROOT / path).parent
            assert not case or any(case in each.read_text() for each in folder.glob("*.py")), case
        for law in re.findall(r"law `(\w+)`", story):
            assert law in known, (title, law)
        told = story.partition("*Seen by*")[0]
        assert 3 <= len(re.findall(r"[.!?:](?:\s|$)", told)) <= 8, title
