"""What befalls nodes, and what their cores get to see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.sim.flood import FLOOD
from unisono.core import (
    EVERYONE,
    Adopt,
    Arm,
    Capture,
    Captured,
    Congested,
    CoreConfig,
    Deliver,
    Effect,
    Event,
    Expired,
    Install,
    Join,
    Leave,
    Persist,
    Received,
    Restart,
    Send,
)
from unisono.model import Address, Change, ChangeKind, Member, Message, Service, View
from unisono.sim.clocks import NodeClock
from unisono.sim.plan import Clock, FaultEvent, LinkPlan, Plan, Weather
from unisono.sim.run import verdict_on
from unisono.sim.workload import Memory
from unisono.sim.world import World
from unisono.spec import ProtocolSpec
from unisono.trace.history import History

SECOND = 1_000_000
STEADY = LinkPlan("constant", 100, 0)


class Diary:
    """A core that notes each event with its own clock, beats every 100 ms and does little else."""

    lives: list[Diary] = []

    def __init__(self, setting: CoreConfig) -> None:
        self.me = setting.me
        self.counts: dict[str, int] = {}
        self.seen: list[tuple[int, Event]] = []
        Diary.lives.append(self)

    def send_credit(self) -> int:
        return 0

    def held(self) -> Mapping[Member, int]:
        return {}

    def transition_counts(self) -> Mapping[str, int]:
        return {}

    def step(self, now_us: int, event: Event) -> list[Effect]:
        self.seen.append((now_us, event))
        match event:
            case Join():
                record = Persist(f"{self.me} was here".encode())
                return [record, Install(View((self.me,), id="alone")), Arm("beat", 100_000)]
            case Expired("beat"):
                two = [b"one %d" % now_us, b"two %d" % now_us]
                return [Arm("beat", 100_000), Send(EVERYONE, two)]
        return []

    def times(self, kind: type) -> list[int]:
        return [now_us for now_us, event in self.seen if isinstance(event, kind)]

    def only(self, kind: type) -> list[Event]:
        return [event for _, event in self.seen if isinstance(event, kind)]


@pytest.fixture
def lives() -> list[Diary]:
    Diary.lives = []
    return Diary.lives


def lived(*faults: FaultEvent, nodes: int = 2, **more: object) -> World:
    weather = Weather(fault_us=3 * SECOND, link=STEADY, schedule=faults, with_state=False)
    weather = replace(weather, **more)  # type: ignore[arg-type]
    spec = replace(FLOOD, make=Diary, laws=())
    plan = Plan(
        protocol="diary", spec=spec, nodes=nodes, messages=0, weather=weather, progress_us=SECOND
    )
    world = World(plan, weather, spec, (Service.FIFO,))
    world.run()
    assert not world.found
    return world


def born(
    make: type[Diary],
    nodes: int = 1,
    laws: tuple[str, ...] = (),
    quorum: int = 0,
    base: ProtocolSpec = FLOOD,
) -> World:
    """A short world of such cores."""
    weather = Weather(fault_us=1000)
    spec = replace(base, make=make, laws=laws, quorum=lambda options: quorum)
    plan = Plan(protocol="x", spec=spec, nodes=nodes, messages=0, weather=weather)
    Diary.lives = []
    world = World(replace(plan, progress_us=1000), weather, spec, (Service.FIFO,))
    world.run()
    return world


def test_packets_of_one_send_arrive_as_one_burst(lives: list[Diary]) -> None:
    lived()
    bursts = [event for event in lives[1].only(Received) if isinstance(event, Received)]
    assert bursts and all(len(list(burst.packets)) == 2 for burst in bursts)
    assert {burst.source for burst in bursts} == {lives[0].me.address}


def test_loopback_is_a_choice(lives: list[Diary]) -> None:
    lived(nodes=1)
    assert not lives[0].only(Received)
    lived(nodes=1, loopback=True)
    assert lives[1].only(Received)


def test_a_crashed_node_returns_as_the_next_incarnation_with_its_records(
    lives: list[Diary],
) -> None:
    world = lived(FaultEvent("crash", SECOND, SECOND // 2, (0,)))
    first, _, second = lives
    assert (first.me.incarnation, second.me.incarnation) == (1, 2)
    assert first.me[:2] == second.me[:2]
    assert second.seen[0] == (1_500_000, Restart((b"a#1 was here",)))
    assert second.seen[1] == (1_500_000, Join())
    assert max(now for now, _ in first.seen) <= SECOND
    assert world.counts["arrived_nowhere"] > 0
    kinds = [(row.incarnation, row.kind) for row in world.rows if row.node == "a"]
    assert (1, "crash") in kinds and (2, "restart") in kinds


def test_amnesia_loses_the_records(lives: list[Diary]) -> None:
    world = lived(FaultEvent("amnesia", SECOND, SECOND // 2, (0,)))
    assert lives[2].seen[0][1] == Restart(())
    assert world.counts["amnesia"] == 1


def test_a_paused_process_believes_nothing_happened(lives: list[Diary]) -> None:
    world = lived(FaultEvent("pause", SECOND + 1, SECOND, (0,)))
    paused, other = lives
    asleep = range(SECOND + 2, 2 * SECOND + 1)
    assert not [now for now, _ in paused.seen if now in asleep]
    woken = [event for now, event in paused.seen if now == 2 * SECOND + 1]
    assert sum(isinstance(event, Expired) for event in woken) == 1
    assert sum(isinstance(event, Received) for event in woken) >= 9
    assert paused.me.incarnation == 1 and len(lives) == 2
    assert (world.counts["paused"], world.counts["late_timers"]) == (1, 1)
    assert len(other.times(Expired)) > 25


def test_the_inbox_of_a_paused_process_is_bounded(
    lives: list[Diary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unisono.sim.nodes.INBOX_MAX", 3)
    world = lived(FaultEvent("pause", SECOND + 1, SECOND, (0,)))
    assert world.counts["inboxed"] == 6
    assert world.counts["inbox_overflowed"] >= 10


def test_clocks_drift_in_what_a_core_sees_and_in_its_timers(lives: list[Diary]) -> None:
    world = lived(clocks=(Clock(), Clock(ppm=250_000, offset_us=7_000_000)), starts_us=(0, 0))
    true, fast = (life.times(Expired) for life in lives)
    assert true[:2] == [100_000, 200_000]
    # A clock that is a quarter fast shows 100 ms after 80 ms have passed.
    assert fast[:2] == [7_100_000, 7_200_000]
    assert len(fast) == len(true) * 5 // 4
    assert all(row.t_us <= 4 * SECOND for row in world.rows)


def test_a_clock_has_reached_what_it_was_asked_for() -> None:
    for ppm in (-20_000, -1, 0, 3, 999, 20_000):
        watch = NodeClock(Clock(ppm, 12_345))
        for local in range(20_000, 3_000_000, 77_777):
            at = watch.world(local)
            assert watch.local(at) >= local > watch.local(at - 1)


def test_a_slow_application_is_reported_to_the_core(lives: list[Diary]) -> None:
    lived(FaultEvent("slow", SECOND, SECOND // 2, (1,)))
    assert [(now, event.on) for now, event in lives[1].seen if isinstance(event, Congested)] == [
        (SECOND, True),
        (1_500_000, False),
    ]


def test_a_leaver_is_asked_once(lives: list[Diary]) -> None:
    lived(FaultEvent("leave", SECOND, 1, (0,)), FaultEvent("leave", SECOND + 5, 1, (0,)))
    assert len(lives[0].only(Leave)) == 1


def test_healing_ends_what_would_have_lasted(lives: list[Diary]) -> None:
    hour = 3600 * SECOND
    world = lived(
        FaultEvent("pause", SECOND, hour, (0,)),
        FaultEvent("crash", SECOND, hour, (1,)),
        FaultEvent("split", SECOND, hour, (2,), (0, 1)),
        FaultEvent("slow", SECOND, hour, (2,)),
        nodes=3,
    )
    assert all(node.process is not None and not node.paused for node in world.nodes)
    back = world.nodes[1].process
    assert back is not None and back.me.incarnation == 2
    assert lives[2].only(Congested) == [Congested(True), Congested(False)]
    late = [now for now in lives[2].times(Received) if now > 3 * SECOND]
    assert late and not [now for now in lives[2].times(Received) if SECOND + 200 < now < 3 * SECOND]


def test_what_ailed_a_life_does_not_ail_the_next(lives: list[Diary]) -> None:
    crash = [FaultEvent("crash", SECOND + 100_000, 100_000, (node,)) for node in (0, 1)]
    lived(
        FaultEvent("pause", SECOND, 1_800_000, (0,)),
        FaultEvent("slow", SECOND, 1_800_000, (1,)),
        *crash,
        FaultEvent("pause", 1_500_000, 200_000, (0,)),
        FaultEvent("slow", 1_500_000, 200_000, (1,)),
    )
    paused, slow = (next(life for life in lives[2:] if life.me.name == name) for name in "ab")
    assert 1_700_000 in [now for now, _ in paused.seen], "it wakes from its own pause"
    assert slow.times(Congested) == [1_500_000, 1_700_000]


def test_each_node_gets_its_role_and_keeps_it(lives: list[Diary]) -> None:
    told: list[tuple[str, Mapping[str, int]]] = []

    class Told(Diary):
        def __init__(self, setting: CoreConfig) -> None:
            super().__init__(setting)
            told.append((str(setting.me), setting.options))

    def first_is_master(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
        return {**options, "master": int(index == 0)}

    weather = Weather(fault_us=SECOND, schedule=(FaultEvent("crash", 500_000, 100_000, (0,)),))
    spec = replace(FLOOD, make=Told, laws=(), assign_roles=first_is_master)
    plan = Plan(protocol="x", spec=spec, nodes=2, messages=0, options={"tokens": 3})
    World(replace(plan, progress_us=1000), weather, spec, (Service.FIFO,)).run()
    assert told == [
        ("a#1", {"tokens": 3, "master": 1}),
        ("b#1", {"tokens": 3, "master": 0}),
        ("a#2", {"tokens": 3, "master": 1}),
    ]


# -- the state that joiners are handed -------------------------------------------------------------

ANNA, BEN = (Member(name, Address("10.0.0.1", 7), 1) for name in ("anna", "ben"))


def test_a_state_that_ends_elsewhere_than_the_cut_is_seen() -> None:
    giver = Memory()
    giver.deliver([Message(ANNA, b"x", 1), Message(ANNA, b"y", 2)])
    good, bad = View((ANNA, BEN), cut=((ANNA, 2),)), View((ANNA, BEN), cut=((ANNA, 1),))
    for view, wrong in ((good, ""), (bad, "the adopted state has anna#1 up to 2, the cut says 1")):
        before, after = Memory(), Memory()
        assert before.adopt(giver.state(), BEN) == ""
        assert before.install(view, BEN) == wrong
        assert after.install(view, BEN) == ""
        assert after.adopt(giver.state(), BEN) == wrong
    assert before.sequence == giver.sequence
    assert "not one that was captured" in Memory().adopt(b"junk", BEN)


def test_capture_is_answered_at_its_place_and_a_bad_state_is_a_violation() -> None:
    class Taker(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            self.seen.append((now_us, event))
            if isinstance(event, Join):
                return [Install(View((self.me,), id="v")), Capture("k"), Adopt(b"junk")]
            return []

    world = born(Taker)
    assert Diary.lives[0].only(Captured) == [Captured("k", Memory().state())]
    assert [each.law for each in world.found] == ["state"]


PARTED = (Change(ChangeKind.PARTED),)
ORDERED = replace(FLOOD, services=(*FLOOD.services, Service.AGREED))


@pytest.mark.parametrize(
    "base, found",
    [(ORDERED, ["state"]), (replace(ORDERED, levels_overtake=True), []), (FLOOD, [])],
)
def test_the_same_messages_in_another_order_are_another_state(
    base: ProtocolSpec, found: list[str]
) -> None:
    class Disordered(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            if not isinstance(event, Join):
                return []
            said = [Message(ANNA, b"x", 1), Message(BEN, b"y", 1)]
            order = said if self.me.name == "a" else said[::-1]
            return [Install(View((self.me,), id="v")), Deliver(order), Capture("k")]

    assert [each.law for each in born(Disordered, nodes=2, base=base).found] == found


@pytest.mark.parametrize(
    "alone, early, found",
    [
        ("a", "", []),  # a part that went on by itself has an order of its own
        ("ab", "", ["state"]),  # within it there is one order
        ("a", "a", ["state"]),  # what it had shown before is in the order of all
        ("", "", ["state"]),
    ],
)
def test_a_part_that_went_on_by_itself_is_compared_with_itself_alone(
    alone: str, early: str, found: list[str]
) -> None:
    class Apart(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            if not isinstance(event, Join):
                return []
            name = self.me.name
            said = [Message(ANNA, b"x", 1), Message(BEN, b"y", 1)]
            order = said if name == "a" else said[::-1]
            changes = PARTED if name in alone else ()
            next_view = Install(View((self.me,), id="w", changes=changes))
            shown = [Capture("k")] if name in early else []
            return [Install(View((self.me,), id="v")), Deliver(order), *shown, next_view]

    assert [each.law for each in born(Apart, nodes=2, base=ORDERED).found] == found


def test_who_joins_a_part_that_went_on_by_itself_is_of_that_part() -> None:
    giver, joiner = Memory(), Memory()
    for view in (View((ANNA,), id="v"), parting := View((ANNA,), id="w", changes=PARTED)):
        giver.install(view, ANNA)
    assert giver.part == parting.id
    assert joiner.adopt(giver.state(), BEN) == ""
    joiner.install(View((ANNA, BEN), id="x", changes=PARTED), BEN)
    assert joiner.part == parting.id
    joiner.install(View((BEN,), id="y", changes=PARTED), BEN)
    assert joiner.part == "y"


def test_a_packet_that_no_path_carries_is_a_violation() -> None:
    class Huge(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            return [Send(EVERYONE, [bytes(1401)])] if isinstance(event, Join) else []

    assert [each.law for each in born(Huge).found] == ["packet_size"]


def test_packets_to_an_unknown_address_are_counted() -> None:
    class Lost(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            lost = Send((Address("10.9.9.9", 1),), [b"x"])
            return [lost] if isinstance(event, Join) else []

    assert born(Lost).counts["sent_nowhere"] == 1


# -- views that may not be, and messages in the wrong one ------------------------------------------

CLAIM = ("virtual_synchrony",)
"""Only who claims it says by the view of a message where it belongs."""


@pytest.mark.parametrize("least, found", [(0, []), (1, []), (2, ["quorum", "quorum"])])
def test_a_view_of_fewer_than_the_protocol_promises_is_a_violation(
    least: int, found: list[str]
) -> None:
    """Each of two goes on alone."""
    world = born(Diary, nodes=2, laws=("quorum",), quorum=least)
    history = History("r", "x", world.group, tuple(world.rows))
    _, violations = verdict_on(world, history)
    assert [each.law for each in violations] == found
    if found:
        assert violations[0].detail == "view alone has 1 members, fewer than 2"


@pytest.mark.parametrize("said, found", [("v", []), ("", []), ("w", ["place"])])
def test_a_message_in_another_view_than_its_own_is_a_violation(said: str, found: list[str]) -> None:
    class Misplaces(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            if not isinstance(event, Join):
                return []
            message = Message(self.me, b"x", 1, view=said)
            return [Install(View((self.me,), id="v")), Deliver([message])]

    assert [each.law for each in born(Misplaces, laws=CLAIM).found] == found


def test_a_message_of_a_view_before_any_view_is_a_violation() -> None:
    class Hasty(Diary):
        def step(self, now_us: int, event: Event) -> list[Effect]:
            hasty = isinstance(event, Join)
            return [Deliver([Message(self.me, b"x", 1, view="v")])] if hasty else []

    world = born(Hasty, laws=CLAIM)
    assert [(each.law, each.text) for each in world.found] == [("place", "a#1:1 of view v in none")]
