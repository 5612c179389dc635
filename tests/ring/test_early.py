"""A NULL that is sent while the turn before it is still arriving."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.ring.harness import (
    Room,
    S,
    at_rest,
    handed,
    holder_of,
    packets_in,
    quiet,
    sealed,
    site,
    step,
    together,
    turn,
)
from tests.ring.heavy import heavy
from unisono.core import Effect, Multicast
from unisono.model import Service
from unisono.parts.turn import OriginRun, write_runs
from unisono.protocols.ring.codes import Code
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.ordering import Ordering
from unisono.protocols.ring.packets import TURN, Flag, Header, TurnPacket
from unisono.protocols.ring.parameters import PRESETS
from unisono.protocols.ring.receiver import Receiver
from unisono.protocols.ring.token_passing import TokenPassing
from unisono.sim import run

PIECE = 40
WORDS = [f"word {n}" for n in range(20)]


def parts(room: Room, s: int, flags: int = Flag.WANTED) -> list[bytes]:
    """The packets of a turn of many, of the one whose turn it is."""
    who = site(room, holder_of(room, s - 1))
    run = OriginRun.of(
        who.state.key, 1, [int(Service.AGREED)] * len(WORDS), [w.encode() for w in WORDS]
    )
    content = write_runs([run])
    pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    header = Header(who.state.ring.version, who.state.key, who.state.key, 0, s, 0)
    return [
        sealed(Code.TOKEN_BC, header, TURN.pack(len(pieces), flags, n) + piece)
        for n, piece in enumerate(pieces)
    ]


def early(room: Room, s: int, has: int) -> bytes:
    """The NULL of the next holder, which has only so much."""
    who = site(room, holder_of(room, s - 1))
    header = Header(who.state.ring.version, who.state.key, who.state.key, has, s, 0)
    return sealed(Code.TOKEN_BC, header, TURN.pack(1, Flag.EARLY, 0))


def said_in(effects: Any) -> list[TurnPacket]:
    return [packet for _, packet in packets_in(effects) if isinstance(packet, TurnPacket)]


def hears(room: Room, name: str, by: str, *packets: bytes) -> list[TurnPacket]:
    return said_in(step(room, name, handed(room, by, *packets)))


@pytest.mark.rule("RNG-3")
def test_an_idle_member_passes_while_the_turn_is_still_arriving() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second, third = (holder_of(room, s + n) for n in range(3))
    packets = parts(room, s + 1)
    (null,) = hears(room, second, first, packets[0])
    assert (null.header.s, null.flags, bytes(null.pieces[0])) == (s + 2, Flag.EARLY, b"")
    assert null.header.local == s, "it does not have an incomplete turn"
    assert not hears(room, second, first, *packets[1:]), "and it passes once"
    assert S(room, second) == s + 2

    assert not hears(room, third, first, packets[0]), "before it comes the other"
    (null,) = hears(room, third, second, early(room, s + 2, s))
    assert (null.header.s, null.header.local) == (s + 3, s)
    hears(room, third, first, *packets[1:])
    assert S(room, third) == s + 3


@pytest.mark.parametrize("flags", [0, Flag.SAFE, Flag.SAFE | Flag.ACK])
def test_a_token_without_takers_is_passed_when_the_turn_is_complete(flags: int) -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    assert not hears(room, holder_of(room, s + 1), holder_of(room, s), parts(room, s + 1, flags)[0])


def test_a_member_with_messages_waits_for_all_turns_before_its_own() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second = holder_of(room, s), holder_of(room, s + 1)
    packets = parts(room, s + 1)
    # Its wish for the token is lost.
    step(room, second, Multicast([b"mine"], Service.AGREED))
    assert not hears(room, second, first, *packets[:-1])
    (mine,) = hears(room, second, first, packets[-1])
    assert mine.header.s == s + 2 and mine.pieces[0] and not mine.flags & Flag.EARLY


def test_a_leaving_member_waits_for_all_turns_before_its_own() -> None:
    room = quiet("a", "b", "c", "d")
    s = at_rest(room)
    second = holder_of(room, s + 1)
    site(room, second).requests.are_due = lambda: True  # type: ignore[method-assign]
    assert not hears(room, second, holder_of(room, s), parts(room, s + 1)[0])


@pytest.mark.rule("RNG-5")
def test_no_early_pass_over_two_incomplete_turns() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, third = holder_of(room, s), holder_of(room, s + 2)
    hears(room, third, first, parts(room, s + 1)[0])
    assert not hears(room, third, holder_of(room, s + 1), parts(room, s + 2)[0])


@pytest.mark.rule("RNG-8")
def test_an_early_null_counts_for_no_more_than_its_sender_has() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    me, second = holder_of(room, s + 2), holder_of(room, s + 1)
    ordering = site(room, me).ordering
    at = ordering.ring.index[site(room, second).state.key]
    before = ordering.K[at]
    hears(room, me, second, early(room, s + 2, s))
    assert ordering.K[at] == max(before, s)
    room = quiet("a", "b", "c")
    s = at_rest(room)
    hears(room, me, second, turn(room, s + 2, by=second))
    assert site(room, me).ordering.K[at] == s + 2


@pytest.mark.rule("RNG-6")
def test_an_early_null_does_not_make_believe_that_something_was_lost() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second, third = (holder_of(room, s + n) for n in range(3))
    hears(room, third, first, parts(room, s + 1)[0])
    hears(room, third, second, early(room, s + 2, s))
    assert not site(room, third).ordering.is_lost(), "the rest is on its way"
    hears(room, first, third, turn(room, s + 3, by=third))
    hears(room, third, first, turn(room, s + 4, by=first))
    assert site(room, third).ordering.is_lost(), "that one has it all"


def test_what_was_passed_early_stays_null_though_it_was_forgotten() -> None:
    """The ring stood still for an invitation that came to nothing, and goes on."""
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second = holder_of(room, s), holder_of(room, s + 1)
    packets = parts(room, s + 1)
    (null,) = hears(room, second, first, packets[0])
    site(room, second).ordering.stop()
    step(room, second, Multicast([b"mine"], Service.AGREED))
    (again,) = hears(room, second, first, *packets)
    assert again.header.s == null.header.s == s + 2
    assert not again.pieces[0], "some may have the first, and both must be the same"


def test_what_was_passed_early_last_stays_null_though_an_earlier_one_is_passed_again() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second, third = (holder_of(room, s + n) for n in range(3))
    packets = parts(room, s + 1)
    more = turn(room, s + 4, "more", by=first, first=21, flags=Flag.WANTED)
    hears(room, second, first, packets[0])
    hears(room, second, third, turn(room, s + 3, by=third))
    (null,) = hears(room, second, first, more)
    assert null.header.s == s + 5, "though what it lacks is of an earlier turn"
    site(room, second).ordering.stop()
    (null,) = hears(room, second, first, packets[0])
    assert null.header.s == s + 2
    step(room, second, Multicast([b"mine"], Service.AGREED))
    hears(room, second, first, *packets[1:])
    hears(room, second, third, turn(room, s + 3, by=third))
    (again,) = hears(room, second, first, more)
    assert again.header.s == s + 5 and not again.pieces[0]


def test_a_turn_of_one_packet_is_never_passed_early() -> None:
    """As in the paper, where a turn is one message."""
    room = together("a", "b", "c", **PRESETS["paper"])
    room.obey(f"say a {' '.join(word.replace(' ', '-') for word in WORDS)}")
    room.pass_ms(9_000)
    assert not [p for p in room.of(Code.TOKEN_BC) if p.packet.flags & Flag.EARLY]


# -- in volume ------------------------------------------------------------------------------------


SEEDS = [range(16), pytest.param(range(16, 64), marks=pytest.mark.soak)]


@pytest.mark.parametrize("seeds", SEEDS)
def test_no_law_is_broken_where_tokens_are_passed_early(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    pass_early = TokenPassing.pass_early

    def counted(self: TokenPassing, event: Any, out: Any) -> None:
        passed.append(1)
        pass_early(self, event, out)

    monkeypatch.setattr(TokenPassing, "pass_early", counted)
    for seed in seeds:
        assert not run(heavy(seed)).violations, seed
    assert len(passed) > 3 * len(seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_no_law_is_broken_where_rings_stand_still_after_tokens_were_passed(
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invitation without consequence, whenever a member is a round ahead of what it has."""
    still: list[int] = []
    plain, roll = Site.step, Random(1)

    def stumbling(self: Site, now_us: int, event: Any) -> list[Effect]:
        out = plain(self, now_us, event)
        ahead = self.policy._passed > self.ordering.S + len(self.state.ring.seats)
        free = (
            not self._over
            and self.state.is_normal
            and self.election.promised <= self.state.ring.version
        )
        if ahead and free and not self._over and roll.random() < 0.7:
            still.append(1)
            self.agenda.push(Code.E_REFSTART)
            self._settle(out)
            self.ordering.stop()
            self.reform.return_to_ring(None, out)
            self._settle(out)
            self._conclude(out)
        return out

    monkeypatch.setattr(Site, "step", stumbling)
    for seed in (*seeds, 90_100, 90_177):
        assert not run(heavy(seed)).violations, seed
    assert len(still) > 3


@pytest.mark.rule("RNG-14")
def test_a_coordinator_resends_what_it_passed_before_it_admits() -> None:
    room = quiet("a", "b", "c")
    s = at_rest(room)
    first, second = holder_of(room, s), holder_of(room, s + 1)
    packets = parts(room, s + 1)
    hears(room, second, first, packets[0])
    me = site(room, second)
    me.ordering.stop()
    me.requests.are_due = lambda: True  # type: ignore[method-assign]
    (again,) = hears(room, second, first, *packets)
    assert (again.header.s, again.flags) == (s + 2, Flag.EARLY)
    assert me.state.is_normal, "the ring changes at its next turn"


def test_a_new_ring_begins_without_what_was_passed_or_safe() -> None:
    me = site(quiet("a", "b", "c"), "a")
    policy, s = me.policy, me.ordering.S
    policy._passed = policy._safe_turn = policy._ack_turn = 1 << 40
    policy.new_ring()
    assert not policy.was_passed(s) and policy.wait_us(me.state.ring, s) > 0


# -- and these tests can fail ---------------------------------------------------------------------


def all_taken_for_there(self: Receiver, packet: Any, out: Any) -> None:
    """All turns before an early NULL are taken for received by its sender."""
    self._ordering.note(packet.header.sender, packet.header.s, packet.header.k)


def taken_for_a_sign_of_loss(self: Ordering) -> bool:
    return self.highest > self.S + 1


def not_remembered(self: TokenPassing, event: Any, out: Any) -> None:
    ordering = self._ordering
    self._multicast(Flag.EARLY, b"", ordering.highest + 1, ordering.S, out)


def whoever_waits(self: TokenPassing, event: Any) -> bool:
    """Though it has messages to send itself."""
    return self._token.arrives_next()


def whatever_is_missing(self: Ordering) -> bool:
    return self.has_gap()


@pytest.mark.parametrize(
    ("owner", "name", "bug", "test"),
    [
        (Receiver, "note_sender", all_taken_for_there,
         test_an_early_null_counts_for_no_more_than_its_sender_has),
        (Ordering, "is_lost", taken_for_a_sign_of_loss,
         test_an_early_null_does_not_make_believe_that_something_was_lost),
        (TokenPassing, "pass_early", not_remembered,
         test_what_was_passed_early_stays_null_though_it_was_forgotten),
        (TokenPassing, "can_pass_early", whoever_waits,
         test_a_member_with_messages_waits_for_all_turns_before_its_own),
        (TokenPassing, "can_pass_early", whoever_waits,
         test_a_leaving_member_waits_for_all_turns_before_its_own),
        (Ordering, "is_arriving", whatever_is_missing,
         test_no_early_pass_over_two_incomplete_turns),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_a_planted_bug_is_seen(
    owner: type, name: str, bug: Any, test: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        test()
