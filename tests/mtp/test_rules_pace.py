"""What the paper asks of the pace, rule by rule: parameters, dally, tokens in use."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.mtp.harness import Room, core, delivered, forged, step, together
from unisono.core import Expired
from unisono.parts.admission import Terms
from unisono.parts.codec import PacketCodec
from unisono.protocols.mtp.message_receiver import MessageReceiver
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import KINDS, PROTOCOL, Grant, Nak, PacketKind, Pressure, Report
from unisono.protocols.mtp.states import Timer

# -- MTP-16 parameters --------------------------------------------------------------------------


def press(room: Room, pressure: Pressure) -> Pacing:
    """A member reports what it wants, and the master's next beat."""
    step(room, "a", forged(room, "c", PacketKind.REPORT, Report(NO_HEADER, pressure)))
    room.now_us += 125_000
    step(room, "a", Expired(Timer.BEAT))
    pace = core(room, "a").pace
    return Pacing(pace.heartbeat_us, pace.window, pace.retention)


@pytest.mark.rule("MTP-16")
def test_consumers_in_need_pull_towards_safety_and_calm_towards_speed() -> None:
    room = together("a", "b", "c")
    wished = press(room, Pressure.CALM)
    assert wished == Pacing(10_000, 512, 3)
    losing = press(room, Pressure.LOSING)
    assert losing.window < wished.window
    assert losing.retention > wished.retention
    full = press(room, Pressure.FULL)
    assert full.window < losing.window
    assert full.heartbeat_us > losing.heartbeat_us
    for _ in range(40):
        press(room, Pressure.FULL)
        worst = press(room, Pressure.LOSING)
    assert worst == Pacing(20_000, 8, 6), "not without end"
    better = press(room, Pressure.CALM)
    assert better.window > worst.window
    assert better.heartbeat_us < worst.heartbeat_us
    assert better.retention < worst.retention
    for _ in range(60):
        press(room, Pressure.CALM)
    assert press(room, Pressure.CALM) == wished


@pytest.mark.rule("MTP-16")
def test_a_consumer_under_pressure_reports_it_and_all_learn_the_new_pace() -> None:
    room = together("a", "b", "c")
    room.obey("congest c on\nsay b word\nadvance 130ms")
    assert Pressure.FULL in {report.pressure for report in room.of(Report, "c")}
    room.obey("advance 300ms")
    assert core(room, "a").pace.window < 512
    assert core(room, "b").pace == core(room, "c").pace == core(room, "a").pace
    room.obey("congest c off\nadvance 100ms")
    room.hush()
    room.obey("lose 2 b > c data\nshout b 5000\nadvance 300ms")
    assert Pressure.LOSING in {report.pressure for report in room.of(Report, "c")}


@pytest.mark.rule("MTP-16")
def test_what_members_hold_is_bounded_while_one_reads_nothing() -> None:
    room = together("a", "b", "c", tokens=2, window=8)
    bound = 8 * 3
    room.obey("congest c on")
    most = {"producer": 0, "consumer": 0}
    for number in range(300):
        room.obey(f"say b {number}\nadvance 5ms")
        c, b = core(room, "c"), core(room, "b")
        held = sum(len(message.window) for message in c.inbound.incoming.values())
        most["consumer"] = max(most["consumer"], held)
        most["producer"] = max(
            most["producer"], sum(len(h.slices) for h in b.outbound.held.values())
        )
    assert bound < most["consumer"] <= 2 * bound, "t times as much as a producer"
    assert most["producer"] <= bound
    assert core(room, "b").send_credit() < 4 << 20, "the rest waits"
    heard = delivered(room.obey("congest c off\nadvance 2000ms"))
    assert heard["c"] == [str(number) for number in range(300)]


# -- MTP-17 dally -------------------------------------------------------------------------------


@pytest.mark.rule("MTP-17")
@pytest.mark.parametrize("dally", [0, 1, 4])
def test_a_consumer_waits_a_random_time_before_it_asks(dally: int) -> None:
    inlet = MessageReceiver(
        PacketCodec(PROTOCOL, KINDS, Terms("g")), Pacing(10_000, 8, 3), dally, Random(3)
    )
    waits = Counter[int]()
    for number in range(1, 400):
        message = inlet.at(number)
        inlet.notice(message, 5_000, 0)
        waits[message.due_us - 5_000] += 1
    assert sorted(waits) == [beats * 10_000 for beats in range(dally + 1)], "0 to f heartbeats"


def naks_when_all_miss_the_same(dally: int) -> int:
    names = "abcdefghijkl"
    room = together(*names, dally=dally)
    assert core(room, "b").pace.retention == dally + 3
    number = core(room, "a").tokens.machine.next
    for name in names[2:]:
        room.obey(f"lose 1 b > {name} data {number}.1")
    heard = delivered(room.obey("shout b 4000\nadvance 500ms"))
    assert heard == {name: ["4000"] for name in names}
    return len(room.of(Nak))


@pytest.mark.rule("MTP-17")
def test_most_need_not_ask_when_they_dally() -> None:
    assert naks_when_all_miss_the_same(0) == 10, "each one asks"
    assert naks_when_all_miss_the_same(8) <= 3, "one asks, and the repair is for all"


# -- MTP-18 t_cur -------------------------------------------------------------------------------


@pytest.mark.rule("MTP-18")
def test_the_tokens_in_use_go_down_to_one_and_up_to_t_max() -> None:
    room = together("a", "b", "c", tokens=5)
    machine = core(room, "a").tokens.machine
    for _ in range(9):
        press(room, Pressure.LOSING)
        assert 1 <= machine.t_cur <= 5
    assert machine.t_cur == 1
    press(room, Pressure.CALM)
    assert machine.t_cur == 1, "no request is queued"
    for _ in range(9):
        core(room, "a").tokens.requests[1] = (1, 10**6)  # One that never has room.
        press(room, Pressure.CALM)
        assert 1 <= machine.t_cur <= 5
    assert machine.t_cur == 5, "a request was queued"


@pytest.mark.rule("MTP-18")
def test_only_t_cur_tokens_are_out_though_every_header_has_t_max_statuses() -> None:
    room = together("a", "b", "c", "d", "e", tokens=4)
    core(room, "a").tokens.machine.t_cur = 1
    for name in "bcd":
        room.obey(f"lose 999 {name} > a data")
    room.obey("say b one\nsay c two\nsay d three\nadvance 90ms")
    assert len(core(room, "a").tokens.machine.holder) == 1
    assert {len(grant.header.last) for grant in room.of(Grant)} == {4}
    heard = delivered(room.obey("heal\nadvance 600ms"))
    assert sorted(heard["e"]) == ["one", "three", "two"]
