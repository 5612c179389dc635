"""The paper's rules of membership, loss and flow, on a stage on which nothing is random."""

from __future__ import annotations

import pytest

from tests.scenarios.stage import Stage
from unisono.core import Cause, Effect, Join, Received
from unisono.model import View
from unisono.parts.identity import key_of
from unisono.protocols.transis import flush
from unisono.protocols.transis.core import Transis
from unisono.protocols.transis.flow import VERTICES_MAX, Flow
from unisono.protocols.transis.flush import Flush
from unisono.protocols.transis.packets import (
    INDEX_MAX,
    PACKETS,
    STAMP_MAX,
    Agree,
    Refuse,
    Suggest,
)

LAWS = """agreement causal cut fifo no_duplication safe same_view total_order transitional_set
virtual_synchrony view_order"""


class Room(Stage):
    """Members of one group, and what became of them."""

    def core(self, name: str) -> Transis:
        core = self.actors[name].inner
        assert isinstance(core, Transis)
        return core

    def count(self, name: str, what: str) -> int:
        return self.core(name).counts.get(what, 0)

    def view(self, name: str) -> View:
        return self.actors[name].views[-1]

    def members(self, name: str) -> str:
        return "".join(member.name for member in self.view(name).members)

    def delivered(self, name: str) -> list[str]:
        return self.actors[name].log

    def keeps_the_laws(self) -> None:
        told = self.obey(f"check {' '.join(LAWS.split())}")
        assert "broken" not in told, told


def together(names: str, service: str = "agreed", **options: int) -> Room:
    room = Room()
    settings = " ".join(f"{name}={value}" for name, value in options.items())
    spaced = " ".join(names)
    room.obey(f"start transis {spaced} {settings}\nservice {service}\njoin {spaced}")
    room.obey("advance 3000ms")
    assert {room.members(name) for name in names} == {names}
    return room


@pytest.mark.rule("TRA-3")
def test_what_is_lost_is_sent_again_only_when_asked_for() -> None:
    room = together("abc")
    room.obey("say a one\nadvance 300ms")
    assert [room.count(name, "repair") for name in "abc"] == [0, 0, 0]
    room.obey("lose 1 a > b vertex\nsay a two\nadvance 300ms")
    assert room.count("b", "nak") and room.delivered("b")[-1] == "a#1:2"
    assert sum(room.count(name, "repair") for name in "ac") == 1


@pytest.mark.rule("TRA-3")
def test_whoever_has_it_answers_for_its_sender() -> None:
    room = together("abc")
    room.obey("lose 1 a > b vertex\nsay a last\nadvance 1ms\ncut a b\ncrash a\nadvance 3000ms")
    assert "a#1:1" in room.delivered("b")
    assert room.count("c", "repair")


@pytest.mark.rule("TRA-4")
def test_a_member_with_nothing_to_say_says_that_it_is_alive() -> None:
    room = together("abc")
    before = room.count("a", "out.vertex")
    room.obey("advance 1000ms")
    idle = room.count("a", "out.vertex") - before
    assert 4 <= idle <= 20
    room.obey("say b word\nadvance 5ms")
    assert room.count("a", "out.vertex") > before + idle, "sooner, while others wait for it"


def test_without_i_am_alive_members_lose_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flow, "speak", lambda *_: None)
    room = Room()
    room.obey("start transis a b\njoin a b\nadvance 10000ms")
    assert len(room.actors["a"].views) > 2


@pytest.mark.parametrize("service", ["agreed", "safe"])
def test_what_a_broken_member_sends_without_the_token_stops_nobody(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = together("abc", service, token=1)
    broken = room.core("c").flush.ordering
    assert broken is not None
    monkeypatch.setattr(broken.order, "may_emit", lambda: True)
    for at in range(6):
        room.obey(f"say c stray{at}\nadvance 1ms")
    room.obey("say a one\nsay b two\nadvance 100ms\nsay a three\nadvance 2000ms")
    for name in "ab":
        assert room.count(name, "drop.stray") > 0
        said = [each for each in room.delivered(name) if not each.startswith("c")]
        assert said == ["a#1:1", "b#1:1", "a#1:2"]
        assert room.members(name) == "abc"


@pytest.mark.rule("TRA-5")
def test_what_one_delivers_all_that_stay_deliver() -> None:
    room = together("abcd", "reliable")
    room.obey("lose 2 a > b vertex\nlose 2 a > c vertex\nsay a one\nadvance 1ms\ncrash a")
    room.obey("advance 3000ms")
    assert [room.delivered(name) for name in "bcd"] == [["a#1:1"]] * 3
    room.keeps_the_laws()


@pytest.mark.rule("TRA-8")
def test_a_safe_message_waits_until_all_are_known_to_have_it() -> None:
    room = together("abc", "safe")
    room.obey("lose 99 a > c vertex\nlose 99 b > c vertex\nsay a one\nadvance 100ms")
    assert [room.delivered(name) for name in "abc"] == [[]] * 3
    room.obey("heal\nadvance 300ms")
    assert [room.delivered(name) for name in "abc"] == [["a#1:1"]] * 3


@pytest.mark.rule("TRA-12")
def test_a_change_is_suggested_then_agreed_and_has_its_place_in_the_stream() -> None:
    room = together("abc")
    room.obey("crash c")
    told = room.obey("say a before\nadvance 4000ms\nsay b after\nadvance 300ms")
    steps = [line.removeprefix("a: ") for line in told.splitlines() if line.startswith("a: ")]
    assert steps == ["REGULAR > SUGGEST", "SUGGEST > AGREE", "AGREE > REGULAR"]
    for name in "ab":
        lines = [line for line in told.splitlines() if line.startswith(f"{name} ")]
        order = [line for line in lines if "delivers" in line or " view " in line]
        assert ["before" in line for line in order] == [False, True, False, False]
        assert "transitional" in order[0] and " view " in order[2] and "after" in order[3]
    room.keeps_the_laws()


@pytest.mark.rule("TRA-13")
@pytest.mark.parametrize("lost", ["c", "bc"])
def test_a_last_message_is_delivered_by_all_survivors_or_by_none(lost: str) -> None:
    room = together("abc")
    for name in lost:
        room.obey(f"lose 1 a > {name} vertex")
    room.obey("say a last\ncrash a\nadvance 4000ms")
    assert room.members("b") == room.members("c") == "bc"
    wanted = ["a#1:1"] if lost == "c" else []
    assert room.delivered("b") == room.delivered("c") == wanted
    room.keeps_the_laws()


def test_survivors_that_do_not_ask_for_the_rest_break_virtual_synchrony(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug: each ends the configuration with what it holds itself."""

    def alone(self: Flush, out: list[Effect]) -> None:
        self._is_gathered = True
        assert self.ordering is not None
        self.ordering.limit(self._reports[self._local.key].received)

    room = together("abc")
    monkeypatch.setattr(Flush, "gather", alone)
    room.obey("lose 1 a > c vertex\nlose 999 c > b nak\nsay a last\ncrash a\nadvance 4000ms")
    assert "broken" in room.obey("check virtual_synchrony")


@pytest.mark.rule("TRA-14")
def test_messages_flow_while_the_membership_changes() -> None:
    room = together("abc", "causal")
    before = room.view("b").id
    room.obey("crash c\nlose 99 a > b suggest\nlose 99 b > a suggest\nadvance 1300ms")
    assert [room.core(name).machine.state.name for name in "ab"] == ["SUGGEST"] * 2
    told = room.obey("say a meanwhile\nadvance 2ms")
    assert "b delivers a#1:1 meanwhile" in told and room.view("b").id == before
    room.obey("heal\nadvance 4000ms")
    assert room.members("b") == "ab" and room.delivered("b") == ["a#1:1"]


@pytest.mark.rule("TRA-15")
def test_each_component_goes_on_with_a_view_of_its_own() -> None:
    room = together("abcd", "safe")
    room.obey("split a b | c d\nadvance 4000ms")
    assert [room.members(name) for name in "abcd"] == ["ab", "ab", "cd", "cd"]
    room.obey("say a here\nsay d there\nadvance 300ms")
    assert [room.delivered(name) for name in "abcd"] == [["a#1:1"]] * 2 + [["d#1:1"]] * 2
    room.keeps_the_laws()


@pytest.mark.rule("TRA-16")
def test_components_merge_many_at_once_and_the_view_says_what_was_sent_elsewhere() -> None:
    room = Room()
    room.obey("start transis a b c d\nservice agreed\ncut a b c d\njoin a b c d\nadvance 2000ms")
    assert [room.members(name) for name in "abcd"] == ["a", "b", "c", "d"]
    room.obey("say a alone\nsay b lonely\nadvance 300ms\nheal\nadvance 3000ms")
    assert {room.members(name) for name in "abcd"} == {"abcd"}
    assert [len(room.actors[name].views) for name in "abcd"] == [2] * 4, "one merge of all"
    cut = {member.name: number for member, number in room.view("c").cut}
    assert cut == {"a": 1, "b": 1}
    room.obey("say c hello\nadvance 300ms")
    assert all(room.delivered(name)[-1] == "c#1:1" for name in "abcd")
    room.keeps_the_laws()


@pytest.mark.rule("TRA-16")
def test_links_that_work_one_way_do_not_merge_components() -> None:
    room = Room()
    room.obey("start transis a b\ncut a > b\njoin a\nadvance 2000ms\njoin b\nadvance 20000ms")
    assert [room.members(name) for name in "ab"] == ["a", "b"]
    assert all(len(room.actors[name].views) == 1 for name in "ab"), "no change for nothing"


@pytest.mark.rule("TRA-17")
def test_those_that_go_together_delivered_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    room = together("abcd")
    room.obey("lose 3 a > b vertex\nlose 2 c > d vertex\nsay a one\nsay c two\nsay a three")
    room.obey("split a | b c d\nadvance 4000ms")
    assert room.members("b") == "bcd"
    assert room.delivered("b") == room.delivered("c") == room.delivered("d")
    room.keeps_the_laws()


def test_a_member_leaves_with_all_that_it_sent() -> None:
    room = together("abc", "safe")
    told = room.obey("say c farewell\nleave c\nadvance 1000ms")
    assert "c has left" in told
    assert room.members("a") == "ab" and room.delivered("a") == ["c#1:1"]
    assert [str(change) for change in room.view("a").changes] == ["left c#1"]
    room.keeps_the_laws()


def test_a_newcomer_gets_the_state() -> None:
    room = together("ab", state=1)
    room.obey("say a one\nadvance 300ms")
    room.actors["c"] = type(room.actors["a"])("c", 2)
    told = room.obey("join c\nadvance 3000ms")
    assert room.members("c") == "abc"
    assert "c adopts" in told
    room.keeps_the_laws()


@pytest.mark.parametrize("token", [0, 1])
def test_a_reader_that_rests_for_long_costs_little_and_catches_up(token: int) -> None:
    """While it takes nothing the others repeat that they are alive."""
    room = together("abc", token=token)
    room.obey("congest c on")
    for _ in range(80):
        room.obey("shout a 60000\nadvance 20ms")
    for _ in range(140):
        room.obey("advance 1000ms")
    assert len(room.delivered("c")) == 0
    assert room.core("a").flush.ordering.graph.window() < 2 * VERTICES_MAX
    room.obey("congest c off\nadvance 5000ms\nsay b word\nadvance 1000ms")
    assert room.delivered("c") == room.delivered("a") == room.delivered("b")
    assert room.delivered("c")[-1] == "b#1:1"
    assert room.core("a").flush.ordering.graph.window() < 9


def test_a_report_of_more_than_can_be_costs_nothing() -> None:
    room = together("abc")
    room.obey("lose 999 b > a agree\ncrash c")
    a, b = room.core("a"), room.core("b")
    while not a.flush.life:
        room.obey("advance 1ms")
    claim = (INDEX_MAX,) * 3
    life = a.local.configuration.life
    agree = Agree(a.flush.life, b.me, life, claim, 0, False, False, False)
    packets = PACKETS.sealed(a.codec, [agree], agree.life)
    room._step(room.actors["a"], Received(b.me.address, packets))
    room.obey("heal\nadvance 15000ms\nsay a word\nadvance 300ms")
    assert room.members("a") == room.members("b") == "ab"
    assert room.delivered("b") == ["a#1:1"]


@pytest.mark.rule("TRA-16")
def test_components_that_greet_each_other_at_the_same_moment_merge() -> None:
    room = Room()
    room.obey("start transis a b\ncut a b\njoin a b\nadvance 2000ms")
    room.obey("say a here\nsay b there\nadvance 50ms\nheal\nadvance 10000ms")
    assert [room.members(name) for name in "ab"] == ["ab", "ab"]


def test_a_stamp_that_nobody_can_have_reached_does_not_use_up_all_stamps() -> None:
    room = together("abc")
    proposed = tuple(sorted((key_of(room.core(name).me), STAMP_MAX) for name in "abc"))
    for name in "ac":
        core = room.core(name)
        forged = Suggest(room.core("b").me, STAMP_MAX, 1, proposed, ())
        packets = PACKETS.sealed(core.codec, [forged], 0)
        room._step(room.actors[name], Received(core.me.address, packets))
        assert room.count(name, "drop.exceeded") == 1
    room.obey("crash c\nadvance 15000ms\nsay a word\nadvance 300ms")
    assert room.members("a") == room.members("b") == "ab"
    assert room.delivered("b") == ["a#1:1"]


def test_one_that_is_not_wanted_hears_why_before_it_goes_on_alone() -> None:
    """A later incarnation of its name is in the group, and it has not heard of that one."""
    room = together("abc")
    b = room.core("b").me
    stamp = room.core("b").suggestion.stamp + 1
    told: list[Suggest | Refuse] = [
        Suggest(each, stamp, 1, ((key_of(each), stamp),), (key_of(b),))
        for each in (room.core("a").me, room.core("c").me)
    ]
    told.append(Refuse(key_of(b), "a later incarnation of b is known", b.incarnation + 1))
    views = list(room.actors["b"].views)
    for packet in told:
        packets = PACKETS.sealed(room.core("b").codec, [packet], 0)
        room._step(room.actors["b"], Received(room.core("a").me.address, packets))
        assert room.actors["b"].views == views
    verdict = room.core("b").local.verdict
    assert verdict is not None and verdict.cause is Cause.SUPERSEDED


def test_a_group_goes_on_when_vertices_run_out_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "INDEX_RENEWED", 20)
    room = together("abc")
    before = len(room.actors["a"].views)
    for at in range(40):
        room.obey(f"say {'abc'[at % 3]} {at}\nadvance 20ms")
    room.obey("advance 1000ms")
    assert len(room.actors["a"].views) > before
    assert all(len(room.delivered(name)) == 40 and room.members(name) == "abc" for name in "abc")
    room.keeps_the_laws()


def test_a_newcomer_finds_a_group_that_has_changed_very_often() -> None:
    room = Room()
    room.obey("start transis a b\nmake a")
    room.core("a").suggestion._highest = 10 << 20
    room._step(room.actors["a"], Join())
    room.obey("advance 2000ms\njoin b\nadvance 15000ms")
    assert room.members("a") == room.members("b") == "ab"
