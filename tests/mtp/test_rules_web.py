"""What the paper asks of the web, rule by rule: its master, joining, members, and both laws."""

from __future__ import annotations

import pytest

from tests.mtp.harness import (
    Room,
    core,
    delivered,
    forged,
    gather,
    handed,
    packets_in,
    seen,
    step,
    together,
)
from tests.scenarios.stage import Actor
from unisono.core import Adopt, Capture, Captured, Deliver, Effect, Install
from unisono.model import Address, Message
from unisono.protocols.mtp.packet_writer import NO_HEADER
from unisono.protocols.mtp.packets import (
    Confirm,
    Data,
    Grant,
    JoinRequest,
    PacketKind,
    Report,
    key_of,
)
from unisono.sim.plan import Plan
from unisono.sim.run import run
from unisono.wire import NO_LIFE

AB_1 = ("prefix", "total_order", "virtual_synchrony")
AB_2 = ("agreement", "validity", "progress")


# -- MTP-1 web ----------------------------------------------------------------------------------


@pytest.mark.rule("MTP-1")
def test_no_member_makes_itself_a_master() -> None:
    room = Room()
    room.obey("start mtp a b c\njoin b c")
    assert "MEMBER" not in room.obey("advance 20000ms\nstate b c")
    assert not room.actors["b"].views
    room.obey("join a")
    gather(room, *"abc")
    founded = room.actors["a"].views[0]
    assert [str(member) for member in founded.members] == ["a#1"], "the master began it"
    assert founded.detail == "founded the web"


@pytest.mark.rule("MTP-1")
def test_members_join_and_leave_and_it_stays_the_same_web() -> None:
    room = together("a", "b", "c")
    life = core(room, "a").codec.life
    said = room.obey("leave c\nadvance 300ms\ncrash b\nadvance 2000ms\njoin c b\nadvance 500ms")
    assert "a stops" not in said
    assert seen(room, "a") == set("abc")
    assert {core(room, name).codec.life for name in "abc"} == {life}


@pytest.mark.rule("MTP-1")
def test_a_leaving_member_repeats_its_request_until_it_is_removed() -> None:
    room = together("a", "b", "c")
    assert "c has left" in room.obey("lose 6 c > a leave\nleave c\nadvance 1500ms")


@pytest.mark.rule("MTP-1")
def test_the_master_ends_the_web() -> None:
    room = together("a", "b", "c")
    said = room.obey("say b last\nadvance 2ms\nleave a\nadvance 2000ms")
    assert delivered(said) == {name: ["last"] for name in "abc"}, "after all that was sent"
    assert "b stops: the master ended the web" in said
    assert "c stops: the master ended the web" in said
    assert "a has left" in said
    assert "MEMBER" not in room.obey("join b c\nadvance 5000ms\nstate b c")


@pytest.mark.rule("MTP-1")
def test_a_second_master_of_the_same_rank_stops_with_a_reason() -> None:
    room = together("a", "b")
    other = room.actors["x"] = Actor("x", 0)
    other.address = Address("10.0.0.9", 7000)
    said = room.obey("join x\nadvance 2000ms\nstate a")
    assert "x stops: master=1 is a#1 at 10.0.0.1:7000 already" in said
    assert "a is MEMBER" in said


# -- MTP-14 join --------------------------------------------------------------------------------


@pytest.mark.rule("MTP-14")
def test_a_confirm_has_the_master_the_incarnation_and_the_first_message() -> None:
    room = together("a", "b", "c")
    room.obey("say b before\nadvance 30ms\nstart mtp d\njoin d\nadvance 300ms")
    asked, confirmed = room.sends(JoinRequest, "d")[0], room.sends(Confirm, "a")[0]
    assert asked.life == NO_LIFE
    packet = confirmed.packet
    assert isinstance(packet, Confirm)
    assert packet.key == key_of(core(room, "d").me)
    assert confirmed.to == (room.actors["d"].address,)
    assert packet.master == core(room, "a").me
    assert confirmed.life == core(room, "a").codec.life == core(room, "d").codec.life
    assert room.actors["d"].views[0].id.endswith(f".{packet.first}")
    heard = delivered(room.obey("say b after\nadvance 30ms"))
    assert heard["d"] == ["after"], "and nothing from before"
    assert [who.name for who, _ in room.actors["d"].views[0].cut] == ["b"]


@pytest.mark.rule("MTP-14")
def test_messages_sent_while_the_roster_is_awaited_are_not_missed() -> None:
    room = together("a", "b", "c")
    room.obey("start mtp d\njoin d\nlose 9 a > d roster")
    said = room.obey("advance 10ms\nsay b early\nadvance 20ms\nheal\nadvance 300ms")
    assert delivered(said)["d"] == ["early"]


@pytest.mark.rule("MTP-14")
def test_a_returning_member_learns_whether_it_is_the_same_web() -> None:
    room = together("a", "b", "c")
    assert room.obey("told c").startswith("c was told: joined the web at message")
    room.obey("crash c\njoin c\nadvance 400ms")
    assert room.obey("told c") == "c was told: the same web as before"
    assert "stops: the master ended the web" in room.obey("leave a\nadvance 2000ms")
    for name in "abc":
        room.actors[name].views.clear()
    room.obey("join a b c\nadvance 2000ms")
    firsts = {room.actors[name].views[0].detail for name in "abc"}
    assert firsts == {"another web than before"}


@pytest.mark.rule("MTP-14")
def test_a_member_without_memory_learns_where_it_joined() -> None:
    room = together("a", "b", "c")
    room.obey("amnesia c\njoin c\nadvance 400ms")
    assert room.obey("told c").startswith("c was told: joined the web at message")


# -- MTP-15 join with state ---------------------------------------------------------------------


@pytest.mark.rule("MTP-15")
def test_for_a_joiner_with_state_nothing_is_granted_until_all_before_is_settled() -> None:
    room = together("a", "b", "c", tokens=4, state=1)
    a = core(room, "a")
    a.tokens.machine.t_cur = 4
    room.obey("lose 9 c > a data\nsay c pending\nadvance 4ms")
    number = max(a.tokens.machine.holder)
    room.obey("start mtp d\njoin d\nadvance 3ms\nsay b waits\nadvance 30ms")
    assert [grant.number for grant in room.of(Grant)] == [number], "b is not granted"
    assert not room.of(Confirm)
    assert a.admission.holding
    data = room.sends(Data, "c")[0]
    effects = step(room, "a", handed(room, data))
    told = [e for e in effects if isinstance(e, Deliver | Install | Capture)]
    assert [type(e) for e in told] == [Deliver, Install, Capture], "the state at that place"
    sent = packets_in(effects)
    assert [p.first for _, p in sent if isinstance(p, Confirm)] == [number + 1]
    for effect in effects:
        room._perform(room.actors["a"], effect)
    assert not a.admission.holding
    said = room.obey("heal\nadvance 300ms")
    assert "d adopts [c#1:1]" in said, "with the one that was waited for, and no more"
    assert delivered(said)["d"] == ["waits"], "and the web has gone on"
    assert {seen(room, name) == set("abcd") for name in "abcd"} == {True}


@pytest.mark.rule("MTP-15")
def test_a_joiner_that_wants_no_state_does_not_hold_up_the_web() -> None:
    room = together("a", "b", "c", tokens=4)
    core(room, "a").tokens.machine.t_cur = 4
    room.obey("lose 9 c > a data\nsay c pending\nadvance 4ms\nstart mtp d\njoin d\nadvance 3ms")
    room.obey("say b goes\nadvance 5ms")
    assert len({grant.number for grant in room.of(Grant)}) == 2


@pytest.mark.rule("MTP-15")
def test_a_large_state_is_transferred_while_the_web_continues() -> None:
    room = together("a", "b", state=1)
    room.actors["a"].log = ["x" * 300_000]
    said = room.obey("start mtp c\njoin c\nadvance 8ms\nsay b meanwhile\nadvance 600ms")
    assert room.actors["c"].log == ["x" * 300_000, "b#1:1"]
    assert delivered(said)["c"] == ["meanwhile"]


def test_a_state_without_a_taker_is_not_kept_for_ever() -> None:
    room = together("a", "b", state=1)
    room.obey("start mtp c\njoin c\nadvance 400ms")
    assert not len(core(room, "a").source._server)
    step(room, "a", Captured("no key of ours", b"x"))
    assert not len(core(room, "a").source._server)


# -- MTP-20 membership --------------------------------------------------------------------------


@pytest.mark.rule("MTP-20")
def test_all_see_the_same_members_at_the_same_message() -> None:
    room = together("a", "b", "c", "d", "e")
    streams: dict[str, list[str]] = {name: [] for name in "abc"}
    perform = room._perform

    def note(actor: Actor, effect: Effect) -> None:
        for what in effect.messages if isinstance(effect, Deliver) else ():
            assert isinstance(what, Message)
            streams.get(actor.name, []).append(f"{what.sender}:{what.number} {what.seq}")
        if isinstance(effect, Install):
            members = " ".join(map(str, effect.view.members))
            streams.get(actor.name, []).append(f"{effect.view.id} {effect.view.seq} {members}")
        perform(actor, effect)

    room._perform = note  # type: ignore[method-assign]
    room.obey("lose 3 a > c data\nlose 2 a > b empty\nsay b one\nsay c two\nleave d\nadvance 5ms")
    room.obey("say b three\ncrash e\nadvance 3ms\nsay a four\njoin d\nadvance 2000ms\nsay c five")
    room.obey("advance 100ms")
    assert streams["a"] == streams["b"] == streams["c"]
    assert len([line for line in streams["a"] if "." in line]) >= 3, "views among the messages"
    assert seen(room, "a") == set("abcd")


@pytest.mark.rule("MTP-20")
def test_every_view_names_the_members_that_joined_left_or_failed() -> None:
    room = together("a", "b", "c", "d")
    room.obey("leave d\nadvance 300ms\ncrash c\nadvance 1500ms\njoin d\nadvance 400ms")
    gone, failed, back = room.actors["b"].views[-3:]
    assert (gone.detail, failed.detail) == ("d#1 left", "c#1 failed")
    assert ([str(m) for m in gone.left], [str(m) for m in failed.left]) == (["d#1"], ["c#1"])
    assert (back.detail, [str(m) for m in back.joined]) == ("d#2 came", ["d#2"])


@pytest.mark.rule("MTP-20")
def test_a_silent_member_is_removed_and_its_tokens_are_lost() -> None:
    room = together("a", "b", "c")
    room.obey("lose 99 c > a data\nsay c never\nadvance 4ms\ncrash c")
    assert "view" not in room.obey("advance 900ms")
    said = room.obey("say b after\nadvance 400ms")
    assert "a view" in said
    assert "b view" in said
    assert delivered(said) == {"a": ["after"], "b": ["after"]}


def removed_after(room: Room, suspects: tuple[int, ...], reporters: str) -> int:
    """How long the master takes to give up d, in ms."""
    room.obey("crash d")
    for waited_ms in range(50, 2_000, 50):
        for name in reporters:
            room._step(
                room.actors["a"],
                forged(room, name, PacketKind.REPORT, Report(NO_HEADER, suspects=suspects)),
            )
        room.obey("advance 50ms")
        if "d" not in seen(room, "a"):
            return waited_ms
    raise AssertionError("never")


@pytest.mark.rule("MTP-20")
def test_what_members_report_is_added_to_what_the_master_noticed() -> None:
    alone = removed_after(together("a", "b", "c", "d"), (), "bc")
    room = together("a", "b", "c", "d")
    told = removed_after(room, (key_of(core(room, "d").me),), "bc")
    assert told < 0.75 * alone, (told, alone)
    room = together("a", "b", "c", "d")
    one = removed_after(room, (key_of(core(room, "d").me),), "b")
    assert one > 0.9 * alone, "one of two is not most of them"


@pytest.mark.rule("MTP-20")
def test_a_member_reports_those_that_do_not_answer() -> None:
    room = together("a", "b", "c", "d", packet=600)
    number = core(room, "a").tokens.machine.next
    for name in "abc":
        room.obey(f"lose 9 d > {name} data {number}.1")
    room.obey("shout d 1500\nadvance 10ms\ncrash d\nadvance 520ms")
    d = key_of(core(room, "d").me)
    suspects = {name: set[int]() for name in "bc"}
    for sent in room.sends(Report):
        assert isinstance(sent.packet, Report)
        suspects[sent.by] |= set(sent.packet.suspects)
    assert suspects == {"b": {d}, "c": {d}}
    assert "d#1" not in room.obey("advance 200ms").splitlines()[-1], "so it goes soon"
    assert seen(room, "b") == set("abc")


# -- MTP-22 AB-1, MTP-23 AB-2 -------------------------------------------------------------------


@pytest.mark.rule("MTP-22", "MTP-23")
@pytest.mark.parametrize("faults", ["none", "loss", "crash", "partition", "chaos"])
def test_both_laws_of_atomic_broadcast_hold(faults: str) -> None:
    """That they can fail, `test_mutants` shows."""
    for seed in range(900, 903):
        outcome = run(Plan(protocol="mtp", nodes=3 + seed % 5, seed=seed, faults=faults))
        assert {outcome.laws[law] for law in AB_1 + AB_2} == {"kept"}, outcome.replay
        assert outcome.violations == (), outcome.replay


@pytest.mark.rule("MTP-22")
def test_what_some_have_and_the_master_has_not_is_delivered_by_none() -> None:
    room = together("a", "b", "c", "d")
    assert delivered(room.obey("lose 99 c > a data\nsay c half\nadvance 10ms\ncrash c")) == {}
    heard = delivered(room.obey("say b after\nadvance 1500ms"))
    assert heard == {name: ["after"] for name in "abd"}
    assert "broken" not in room.obey("check prefix total_order virtual_synchrony")


@pytest.mark.rule("MTP-22", "MTP-23")
def test_the_part_with_the_master_continues_and_the_other_delivers_no_more() -> None:
    room = together("a", "b", "c", "d")
    said = room.obey("split a b | c d\nsay b ours\nsay c theirs\nadvance 1500ms")
    assert delivered(said) == {"a": ["ours"], "b": ["ours"]}
    assert seen(room, "a") == set("ab")
    said = room.obey("heal\nadvance 1500ms\njoin c d\nadvance 800ms\nsay c back\nadvance 50ms")
    assert delivered(said) == {name: ["back"] for name in "abcd"}
    assert "broken" not in room.obey("check prefix total_order agreement virtual_synchrony")
    assert not [e for name in "abcd" for e in room.actors[name].log if e == "c#1:1"]


def test_a_state_is_adopted_before_the_first_view() -> None:
    room = together("a", "b", state=1)
    room.obey("say b one\nadvance 30ms\nstart mtp c\nmake c")
    told: list[type] = []
    perform = room._perform

    def note(actor: Actor, effect: Effect) -> None:
        if actor.name == "c" and isinstance(effect, Adopt | Install | Deliver):
            told.append(type(effect))
        perform(actor, effect)

    room._perform = note  # type: ignore[method-assign]
    room.obey("join c\nadvance 300ms\nsay b two\nadvance 30ms")
    assert told == [Adopt, Install, Deliver]
