"""The registry: the same order brings the same groups everywhere, and each client its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemon.world import daemon, play
from tests.rooms import tidy
from unisono.client.frames import PlacedFrame, bundle_of, submit_head
from unisono.daemon import records, registry
from unisono.daemon.effects import (
    AdoptState,
    DeliverBundle,
    Disconnect,
    Effect,
    InstallView,
    ReportPlace,
)
from unisono.daemon.locks import GroupLocks
from unisono.daemon.records import (
    ClientDied,
    ClientJoined,
    ClientKey,
    ClientLeft,
    ClientLock,
    ClientMulticast,
    DaemonLost,
    MulticastFields,
    StateFields,
    StateKey,
    Stranger,
    encoded,
)
from unisono.daemon.registry import SNAPSHOT_VERSION, Client, Registry, RegistryLimits, Snapshot
from unisono.errors import BadPacket
from unisono.layout import encode
from unisono.model import ChangeKind, Service, View

D, E = daemon(0), daemon(1)


def founded(limits: RegistryLimits | None = None) -> Registry:
    return Registry(D, limits)


def joined(number: int, name: str, group: str = "g", with_state: bool = False) -> bytes:
    return encoded(ClientJoined(number, group, name, number, with_state))


def said(number: int, *payloads: bytes, groups: Iterable[str] = ("g",), before: int = 0) -> bytes:
    head = submit_head(Service.AGREED, tuple(groups))
    return encoded(MulticastFields(number, before, None, head + bundle_of(payloads)))


def sent(level: Service, *groups: str, number: int = 9, stranger: bool = True) -> bytes:
    """A message of an outsider, or of a client that may be in a group."""
    body = submit_head(level, groups) + bundle_of([b"x"])
    who = Stranger("out", 1) if stranger else None
    return encoded(MulticastFields(number, 4, who, body))


# -- what it does -------------------------------------------------------------------------------


@pytest.mark.rule("TRA-19")
def test_a_closed_group_takes_messages_of_its_members_only() -> None:
    me = founded()
    me.deliver(D, joined(1, "a", "open"))
    me.deliver(D, encoded(ClientJoined(2, "b", "b", 2, False, closed=True)))
    me.deliver(D, encoded(ClientJoined(3, "shut", "c", 3, False, closed=True)))
    (placed,) = me.deliver(D, sent(Service.AGREED, "shut"))
    assert placed == ReportPlace(9, PlacedFrame(5, 1, me.seq, ("shut",)))
    (bundle,) = me.deliver(D, sent(Service.AGREED, "shut", number=3, stranger=False))
    assert isinstance(bundle, DeliverBundle) and bundle.to == (3,), "a member's own group"
    (placed,) = me.deliver(D, sent(Service.AGREED, "b", "shut", number=2, stranger=False))
    assert placed.placed.refused == ("shut",), "all of its groups, or none"
    assert me.deliver(E, sent(Service.AGREED, "shut")) == [], "its own daemon reports it"


@pytest.mark.rule("TRA-19")
def test_only_a_total_order_makes_a_refusal_one_of_all_groups() -> None:
    me = founded()
    me.deliver(D, joined(1, "a", "open"))
    me.deliver(D, encoded(ClientJoined(3, "shut", "c", 3, False, closed=True)))
    assert me.deliver(E, sent(Service.AGREED, "open", "shut")) == []
    (bundle,) = me.deliver(E, sent(Service.FIFO, "open", "shut"))
    assert isinstance(bundle, DeliverBundle) and bundle.to == (1,)


def test_a_newcomer_knows_which_groups_are_closed_until_they_end() -> None:
    me = founded()
    me.deliver(D, encoded(ClientJoined(3, "shut", "c", 3, False, closed=True)))
    me = Registry.restored(D, me.snapshot())
    assert me.deliver(D, sent(Service.AGREED, "shut"))[0].placed.refused == ("shut",)
    (refusal,) = me.deliver(D, joined(4, "d", "shut"))
    assert isinstance(refusal, Disconnect) and "closed=true and this member has" in refusal.reason
    me.deliver(D, encoded(ClientLeft(3)))
    me.deliver(D, joined(5, "e", "shut"))
    placed, bundle = me.deliver(D, sent(Service.AGREED, "shut"))
    assert placed.placed.refused == () and bundle.to == (5,)


def test_a_joining_client_gives_a_view_at_its_sequence_number() -> None:
    me = founded()
    (view,) = [e for e in me.deliver(D, joined(1, "a")) if isinstance(e, InstallView)]
    assert view.to == view.new == (1,)
    assert view.view.id == f"{me.incarnation}.1" and view.view.seq == 1
    (view,) = [e for e in me.deliver(E, joined(1, "b")) if isinstance(e, InstallView)]
    assert view.to == (1,) and not view.new
    assert [member.name for member in view.view.members] == ["a", "b"]
    assert view.view.members[1].address == E.address


def test_a_message_for_several_groups_has_one_place() -> None:
    me = founded()
    for number, group in enumerate("ghi", 1):
        me.deliver(D, joined(number, "a", group))
    (found,) = me.deliver(D, said(1, b"x", b"y", groups=("g", "h")))
    assert isinstance(found, DeliverBundle)
    assert (found.to, found.seq, found.number, found.messages) == ((1, 2), 4, 1, 2)
    (found,) = me.deliver(D, said(3, b"z", groups=("i",)))
    assert isinstance(found, DeliverBundle) and found.seq == 6


def test_all_clients_of_a_lost_daemon_go_at_one_place() -> None:
    me = founded()
    for number in (1, 2, 3):
        me.deliver(E, joined(number, f"e{number}", "gh"[number % 2]))
        me.deliver(D, joined(number, f"d{number}", "gh"[number % 2]))
    (record,) = me.ring(View((D,), "without E"))
    me.deliver(E, joined(4, "later"))
    views = [e.view for e in me.deliver(D, record) if isinstance(e, InstallView)]
    assert not me.deliver(D, record), "once"
    assert me.clients_of(E) == (4,), "a later client, of a daemon that came back, stays"
    assert [[who.name for who in view.left] for view in views] == [["e1", "e3"], ["e2"]]
    assert all("daemon d1 is gone" in view.detail for view in views)


def test_a_view_distinguishes_a_leave_from_a_failure() -> None:
    me = founded()
    for number in (1, 2, 3):
        me.deliver(D, joined(number, f"d{number}"))
    me.deliver(E, joined(1, "e"))
    (lost,) = me.ring(View((D,), "without E"))
    told = [
        [str(change) for change in effect.view.changes]
        for record in (encoded(ClientLeft(2)), encoded(ClientDied(3, "killed")), lost)
        for effect in me.deliver(D, record)
        if isinstance(effect, InstallView)
    ]
    assert told == [["left d2#2"], ["failed d3#3"], ["failed e#1"]]


@pytest.mark.parametrize(
    ("limits", "second", "words"),
    [
        (RegistryLimits(), joined(2, "a"), "name a is taken in group g"),
        (
            RegistryLimits(),
            encoded(ClientJoined(2, "g", "b", 2, True, True)),
            "the group 'g' has replayable=false and this member has replayable=true:"
            " give replayable=false, or join a group of another name",
        ),
        (RegistryLimits(groups_count_max=1), joined(2, "b", "h"), "1 groups, its limit"),
        (RegistryLimits(members_count_max=1), joined(2, "b"), "group g has 1 members, its limit"),
        (RegistryLimits(clients_count_max=1), joined(2, "b", "h"), "1 clients, its limit"),
        (RegistryLimits(), joined(1, "b"), "is in group g already"),
    ],
)
def test_at_each_bound_a_join_is_refused_with_a_reason(
    limits: RegistryLimits, second: bytes, words: str
) -> None:
    me = founded(limits)
    me.deliver(D, joined(1, "a"))
    before = me.snapshot()
    (refusal,) = me.deliver(D, second)
    assert isinstance(refusal, Disconnect) and words in refusal.reason
    assert me.snapshot() == before


def test_a_message_below_agreed_takes_no_place() -> None:
    me = founded()
    me.deliver(D, joined(1, "a"))
    head = submit_head(Service.FIFO, ("g",))
    (found,) = me.deliver(D, encoded(MulticastFields(1, 0, None, head + bundle_of([b"x"]))))
    assert isinstance(found, DeliverBundle) and found.seq == 0 and me.seq == 1


@given(st.binary(max_size=200))
def test_hostile_bytes_are_counted_or_are_records(data: bytes) -> None:
    me = founded()
    me.deliver(D, joined(1, "a"))
    for each in (data, b"\x01\x04" + data, b"\x01\x05" + data, joined(3, "c") + b"?"):
        before, dropped = me.snapshot(), sum(me.counts.values())
        effects = me.deliver(E, each)
        assert effects or me.snapshot() == before or sum(me.counts.values()) > dropped
    assert me.counts["drop.record_long"] >= 1


def test_the_registry_knows_no_clock_dice_socket_file_or_log() -> None:
    for module in (registry, records):
        source = Path(str(module.__file__)).read_text()
        names = {origin.split(".")[0] for _, origin, _ in tidy.imports(source, "x.y", False)}
        assert not names & tidy.IMPURE_MODULES


# -- any order ----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_any_history_is_the_same_everywhere(seed: int) -> None:
    play(seed)


def test_histories_have_in_them_what_they_should() -> None:
    """State was given, also by a second giver; groups ended; daemons came and went."""
    worlds = [play(seed) for seed in range(40)]
    readers = [reader for world in worlds for reader in world.readers.values()]
    assert sum(reader.restored for reader in readers) > 50
    assert sum(bool(reader.refused) for reader in readers) > 20
    assert sum(reader.parted for reader in readers) > 20
    late = [world.registries[world.alive[0]].counts["drop.late_state"] for world in worlds]
    assert sum(late) > 5
    assert any(len(world.applied) > 5 for world in worlds)
    answers = [answer for reader in readers for answer in reader.answers.values()]
    granted = [answer for answer in answers if answer.cause is None]
    assert len(granted) > 20 and len(answers) - len(granted) > 20


# -- the check can fail -------------------------------------------------------------------------


class ForgetsTheSecondGroup(Registry):
    def _sent(self, daemon: Any, said: ClientMulticast) -> list[Effect]:
        submit = said.submit._replace(groups=said.submit.groups[:1])
        return super()._sent(daemon, said._replace(submit=submit))


class TrustsViews(Registry):
    """Removes clients where a view is seen, and not at its place in the order."""

    def ring(self, view: View) -> list[bytes]:
        gone = [c for c in self._clients.values() if c.key.daemon not in view.members]
        self._remove(gone, "gone")
        return super().ring(view)


class SaysNothingOfTheLost(Registry):
    def ring(self, view: View) -> list[bytes]:
        return []


class TakesOutWhoCameLater(Registry):
    def _lost(self, daemon: Any, lost: DaemonLost) -> list[Effect]:
        return super()._lost(daemon, lost._replace(last=lost.last + 2 * (daemon == self.me)))


class KeepsItsOwnWhenItWasLost(Registry):
    def _lost(self, daemon: Any, lost: DaemonLost) -> list[Effect]:
        return [] if lost.daemon == self.me else super()._lost(daemon, lost)


class AsksNobodyElse(Registry):
    """When the giver dies, the client that waits keeps waiting."""

    def _pair(self, group: str) -> list[Effect]:
        waiting = [c for c in self._groups[group].values() if c.giver is not None]
        for client in waiting:
            client.ready = True
        effects = super()._pair(group)
        for client in waiting:
            client.ready = False
        return effects


class BelievesStrangers(Registry):
    """Lets a client that is in no group send as a member."""

    def _sent(self, daemon: Any, said: ClientMulticast) -> list[Effect]:
        if ClientKey(daemon, said.number) not in self._clients:
            said = said._replace(stranger=("ghost", 1))
        return super()._sent(daemon, said)


class CountsOnlyItsOwn(Registry):
    def _sent(self, daemon: Any, said: ClientMulticast) -> list[Effect]:
        before = self.seq
        effects = super()._sent(daemon, said)
        if not effects:
            self.seq = before
        return effects


class ForgetsThePlace(Registry):
    @classmethod
    def restored(cls, me: Any, data: bytes) -> Registry:
        found = super().restored(me, data)
        found.seq = 0
        return found


class ForgetsWhoWaits(Registry):
    @classmethod
    def restored(cls, me: Any, data: bytes) -> Registry:
        found = super().restored(me, data)
        for client in found._clients.values():
            client.ready = True
        return found


class LetsNamesBeTakenTwice(Registry):
    def _refusal(self, key: ClientKey, joined: ClientJoined) -> str:
        why = super()._refusal(key, joined)
        return "" if "taken" in why else why


class AsksThoseWhoWait(Registry):
    """Takes a state from a client that has none yet."""

    def _pair(self, group: str) -> list[Effect]:
        inside: dict[ClientKey, Client] = self._groups[group]
        waiting = [c for c in inside.values() if not c.ready and c.giver is not None]
        for client in waiting:
            client.ready = True
        effects = super()._pair(group)
        for client in waiting:
            client.ready = client.giver not in inside
        return effects


class AdoptsLate(Registry):
    """Holds nothing back for a client that waits for its state."""

    def _pair(self, group: str) -> list[Effect]:
        return [e for e in super()._pair(group) if type(e).__name__ != "HoldBack"]


class KeepsTheLocksOfTheDead(Registry):
    def _remove(self, gone: Any, why: str, how: ChangeKind = ChangeKind.FAILED) -> list[Effect]:
        self._locks.remove = lambda group, members: ((), [])  # type: ignore[method-assign]
        return super()._remove(gone, why, how)


class ForgetsTheLocks(Registry):
    @classmethod
    def restored(cls, me: Any, octets: bytes) -> Registry:
        found = super().restored(me, octets)
        found._locks = GroupLocks()
        return found


class LocksForItsOwnOnly(Registry):
    def _locked(self, daemon: Any, asked: ClientLock) -> list[Effect]:
        return super()._locked(daemon, asked) if daemon == self.me else []


MUTANTS = [
    KeepsTheLocksOfTheDead,
    ForgetsTheLocks,
    LocksForItsOwnOnly,
    ForgetsTheSecondGroup,
    TrustsViews,
    SaysNothingOfTheLost,
    TakesOutWhoCameLater,
    KeepsItsOwnWhenItWasLost,
    AsksNobodyElse,
    BelievesStrangers,
    CountsOnlyItsOwn,
    ForgetsThePlace,
    ForgetsWhoWaits,
    LetsNamesBeTakenTwice,
    AsksThoseWhoWait,
    AdoptsLate,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
def test_a_planted_bug_is_found(mutant: type[Registry]) -> None:
    for seed in range(60):
        try:
            play(seed, mutant)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{mutant.__name__} was not found in 60 histories")


def test_a_state_of_another_place_or_from_another_daemon_is_dropped() -> None:
    me = founded()
    me.deliver(E, joined(1, "a", with_state=True))
    me.deliver(D, joined(1, "b", with_state=True))
    for key, daemon_ in (
        (encode(StateKey(ClientKey(D, 1), 1)), E),
        (encode(StateKey(ClientKey(D, 1), 2)), D),
        (encode(StateKey(ClientKey(E, 1), 2)), E),
        (encode(StateKey(ClientKey(E, 7), 2)), E),
    ):
        assert not me.deliver(daemon_, encoded(StateFields(False, key, b"x")))
    assert me.counts["drop.late_state"] == 4
    key = encode(StateKey(ClientKey(D, 1), 2))
    (found,) = me.deliver(E, encoded(StateFields(False, key, b"x")))
    assert isinstance(found, AdoptState) and bytes(found.state) == b"x"
    assert not me.deliver(E, encoded(StateFields(False, key, b"y"))), "once"


def test_a_client_that_gets_no_state_does_not_join() -> None:
    me = founded()
    me.deliver(D, joined(1, "a", with_state=True))
    me.deliver(D, joined(2, "b", with_state=True))
    key = encode(StateKey(ClientKey(D, 2), 2))
    refusal, view = me.deliver(D, encoded(StateFields(True, key, b"too large")))
    assert isinstance(refusal, Disconnect) and refusal.reason == "too large"
    assert isinstance(view, InstallView) and view.to == (1,)


def test_whether_a_group_is_fed_is_in_the_snapshot() -> None:
    me = founded()
    me.deliver(D, encoded(ClientJoined(1, "g", "a", 1, True, True)))
    later = Registry.restored(E, me.snapshot())
    (cut,) = later.deliver(E, encoded(ClientJoined(1, "g", "b", 1, True, False)))
    assert (
        isinstance(cut, Disconnect)
        and "has replayable=true and this member has replayable=false" in cut.reason
    )
    assert not [
        e for e in later.deliver(E, encoded(ClientJoined(2, "g", "c", 2, True, True))) if e == cut
    ]
    assert [member.name for member in later.members("g")] == ["a", "c"]


def test_a_snapshot_does_not_depend_on_the_order_in_which_locks_were_taken() -> None:
    play(35093)  # A daemon that came later had forgotten a group without locks.


@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1 << 20, 1)])
def test_a_snapshot_with_a_limit_that_no_registry_has_is_malformed(
    limits: tuple[int, int, int],
) -> None:
    snapshot = encode(Snapshot(SNAPSHOT_VERSION, "ring", 7, *limits, (), ()))
    with pytest.raises(BadPacket):
        Registry.restored(E, snapshot)
