"""What was safe survives, whatever dies, as long as not too many lose their memory at once."""

from __future__ import annotations

import pytest

from tests.ring.harness import Room, gather, lawful, seen, site
from tests.scenarios.stage import Stage
from unisono.core import Cause, Effect, Fail, Warn
from unisono.protocols.ring.ballot import Ballot
from unisono.protocols.ring.formation import Formation

FIVE = ("a", "b", "c", "d", "e")


class Ward(Room):
    """A room that remembers why its members ended, and what they warned of."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[str, Fail] = {}
        self.warned: dict[str, str] = {}

    def _perform(self, actor: object, effect: Effect) -> None:
        name = actor.name  # type: ignore[attr-defined]
        if isinstance(effect, Fail):
            self.ends[name] = effect
        elif isinstance(effect, Warn):
            self.warned[name] = effect.text
        super()._perform(actor, effect)  # type: ignore[arg-type]


def ward(*names: str, durable: bool = False, **options: int) -> Ward:
    """Processes that keep no records over a crash, unless they are given `stable`."""
    room = Ward()
    settings = " ".join(f"{key}={value}" for key, value in options.items())
    room.obey(f"start ring {' '.join(names)} tries=3 {settings}")
    for name in names:
        room.actors[name].durable = durable
    return room


def on_one_ring(*names: str, durable: bool = False, **options: int) -> Ward:
    room = ward(*names, durable=durable, **options)
    room.obey(f"join {' '.join(names)}")
    gather(room, *names)
    return room


def forget(room: Ward, *names: str) -> None:
    """Killed, and started again without what they knew."""
    for name in names:
        room.obey(f"amnesia {name}")
    room.obey(f"join {' '.join(names)}")


def test_two_that_forgot_do_not_outvote_the_one_that_remembers() -> None:
    """Of five, a, b and c deliver a safe message; b and c are killed and forget it; d and e, which
    were cut off, are there again, and a is not. Four of five by name: but two remember."""
    room = on_one_ring(*FIVE)
    room.obey("split a b c | d e")
    gather(room, "a", "b", "c")
    room.obey("say a kept")
    room.until(lambda: all(room.words(name) == ["kept"] for name in "abc"))
    forget(room, "b", "c")
    room.obey("heal\nsplit a | b c d e")
    room.pass_ms(4_000)
    assert not any(site(room, name).state.is_normal for name in "bcde")
    (warning,) = {text for text in room.warned.values() if "without" in text}
    assert "3 that remember are needed: b, c came without memory or records" in warning
    room.obey("heal")
    room.until(lambda: {"d", "e"} <= room.ends.keys())
    assert {room.ends[name].cause for name in "de"} == {Cause.EXCLUDED}
    room.obey("join d e")
    gather(room, *FIVE)
    assert site(room, "a").delivery.has_view, "the same life: nothing of it is lost"
    room.obey("say d after")
    room.until(lambda: all("after" in room.words(name) for name in FIVE))
    assert room.words("a") == ["kept", "after"]
    assert [message.seq for _, message in room.heard["a"]] == [1, 2]
    assert room.heard["d"][-1][1].seq == 2, "no other message gets a safe message's sequence number"
    lawful(room)


def test_the_warning_names_those_that_are_new_to_the_group() -> None:
    """Three of five begin; one of them is cut off with the two that never came in."""
    room = ward(*FIVE, durable=True, sites=5)
    room.obey("join a b c")
    gather(room, "a", "b", "c")
    room.obey("split a d e | b c\njoin d e")
    room.pass_ms(4_000)
    assert "3 that remember are needed: the group does not know d, e;" in room.warned["a"]


def test_the_warning_names_those_that_have_other_messages() -> None:
    """All are heard and remember, but two of five are on a ring that the others do not know."""
    room = on_one_ring(*FIVE)
    a = site(room, "a")
    formation = Formation(a.parameters, a.state, a.ordering, a.requests)
    ballot = Ballot(a.state, a.ordering, a.election, formation)
    ballot.begin(with_founding=False)
    for name in "bde":
        (ballot.add if name == "b" else ballot.add_stale)(site(room, name).election.standing())
    assert ballot.is_blocked()
    assert ballot.why_blocked() == (
        "blocked: 4 members are heard, but d, e and this member do not have the same messages; "
        "start the others again, or let this part go on with request('go_on')"
    )


def test_a_member_without_memory_is_admitted_by_those_that_remember_and_votes_again() -> None:
    room = on_one_ring("a", "b", "c")
    for name in ("a", "b", "c", "a"):
        room.obey(f"say {name} {name}")
        room.pass_ms(100)
        forget(room, name)
        assert not site(room, name).state.record.votes
        gather(room, "a", "b", "c")
        assert site(room, name).state.record.votes
    assert not room.ends
    lawful(room)


def test_a_majority_that_lost_its_memory_is_stopped_and_the_group_begins_anew() -> None:
    room = on_one_ring("a", "b", "c")
    room.obey("say a lost")
    room.pass_ms(100)
    forget(room, "b", "c")
    room.until(lambda: "a" in room.ends)
    assert room.ends["a"].cause is Cause.MEMORY_LOST
    assert "lost their memory" in room.ends["a"].reason
    assert not any(site(room, name).delivery.has_view for name in "bc")
    room.obey("join a")
    gather(room, "a", "b", "c")
    room.obey("say a anew")
    room.until(lambda: all(room.words(name)[-1:] == ["anew"] for name in "abc"))


def test_one_of_a_pair_rejoins_without_its_memory() -> None:
    """Where the number is even, half of them that remember and one more are enough."""
    room = on_one_ring("a", "b")
    room.obey("say a kept")
    room.pass_ms(100)
    forget(room, "b")
    gather(room, "a", "b")
    room.obey("say b more")
    room.until(lambda: room.words("a") == room.words("b") == ["kept", "more"])
    assert not room.ends
    lawful(room)


def test_without_records_all_must_be_present_before_a_group_begins() -> None:
    room = ward("a", "b", "c")
    room.obey("join a b")
    room.pass_ms(3_000)
    assert not seen(room, "a")
    (warning,) = room.warned.values()
    assert "2 of 3 members are heard, and 3 are needed to begin" in warning
    room.obey("join c")
    gather(room, "a", "b", "c")


@pytest.mark.parametrize("came", [("a", "b"), ("b", "c")])
def test_with_records_a_majority_begins(came: tuple[str, ...]) -> None:
    room = ward("a", "b", "c", durable=True)
    room.obey(f"join {' '.join(came)}")
    gather(room, *came)


def test_a_group_does_not_begin_anew_while_one_that_remembers_is_not_here() -> None:
    """Three of four return without memory, and the fourth is cut off with what it delivered."""
    room = on_one_ring("a", "b", "c", "d")
    room.obey("say a kept\nadvance 100ms\nsplit a | b c d")
    forget(room, "b", "c", "d")
    room.pass_ms(4_000)
    assert not any(seen(room, name) - {"a", "b", "c", "d"} for name in "bcd")
    assert not any(site(room, name).state.is_normal for name in "bcd")
    room.obey("heal")
    room.until(lambda: "a" in room.ends)
    assert room.ends["a"].cause is Cause.MEMORY_LOST


def test_all_of_a_ring_lost_their_memory_and_a_member_of_an_older_one_is_stopped() -> None:
    """a, b and c lose the messages, though not their records; d and e are on an older ring."""
    room = on_one_ring(*FIVE, durable=True)
    room.obey("split a b c | d e")
    gather(room, "a", "b", "c")
    room.obey("say a lost")
    room.until(lambda: all(room.words(name) == ["lost"] for name in "abc"))
    for name in "abc":
        room.obey(f"crash {name}")
    room.obey("heal\njoin a b c")
    room.until(lambda: {"d", "e"} <= room.ends.keys())
    assert {room.ends[name].cause for name in "de"} == {Cause.MEMORY_LOST}
    room.obey("join d e")
    gather(room, *FIVE)


def test_a_ring_that_cannot_have_been_in_force_does_not_stop_the_older_one() -> None:
    """Only c accepted the new ring, and c alone forgot: the others go on from the old one."""
    room = on_one_ring("a", "b", "c", durable=True)
    room.obey("say a old")
    room.pass_ms(200)
    record = site(room, "c").state.record
    later = record._replace(version=record.version._replace(number=record.version.number + 1))
    room.obey("crash c")
    room.actors["c"].records[:] = [later._replace(pledged=later.version).packed()]
    room.obey("cut a b c")
    room.pass_ms(1_000)
    room.obey("heal\njoin c")
    gather(room, "a", "b", "c")
    assert not room.ends
    lawful(room)


@pytest.mark.parametrize("record", [b"torn", b""], ids=["torn", "of a file that was removed"])
def test_records_that_cannot_be_read_are_no_records(record: bytes) -> None:
    room = on_one_ring("a", "b", "c", durable=True)
    room.obey("crash c")
    room.actors["c"].records[:] = [record]
    room.obey("join c")
    assert not site(room, "c").state.record.votes
    gather(room, "a", "b", "c")
    assert site(room, "c").state.record.votes


def test_the_records_do_not_grow() -> None:
    room = on_one_ring("a", "b", "c", durable=True)
    for _ in range(5):
        room.obey("crash c\njoin c")
        gather(room, "a", "b", "c")
    assert {len(actor.records) for actor in room.actors.values()} == {1}


def test_of_a_torn_last_record_the_one_before_it_counts() -> None:
    room = on_one_ring("a", "b", "c", durable=True)
    before = site(room, "c").state.record
    room.obey("crash c")
    room.actors["c"].records.append(b"torn")
    room.obey("join c")
    assert site(room, "c").state.record.votes
    assert site(room, "c").state.record.pledged >= before.pledged


def test_a_member_that_lost_its_records_has_no_vote() -> None:
    room = ward(*FIVE, durable=True)
    room.obey("join a b c d")
    gather(room, "a", "b", "c", "d")
    room.obey("join e")
    gather(room, *FIVE)
    room.obey("split a b c | d e")
    gather(room, "a", "b", "c")
    room.obey("say a kept")
    room.until(lambda: all(room.words(name) == ["kept"] for name in "abc"))
    for name in "bc":
        room.obey(f"crash {name}")
        room.actors[name].records.clear()
    room.obey("heal\nsplit a | b c d e\njoin b c")
    assert site(room, "b").state.record.votes
    room.pass_ms(4_000)
    assert not any(site(room, name).state.is_normal for name in "bcde")


@pytest.mark.parametrize("first_file", [False, True])
def test_a_seated_member_that_claims_no_past_has_no_vote(first_file: bool) -> None:
    """b lost its file, or was never given one before; a alone remembers what is safe."""
    room = on_one_ring("a", "b", "c", durable=not first_file)
    room.obey("split a b | c")
    gather(room, "a", "b")
    room.obey("say a kept")
    room.until(lambda: all(room.words(name) == ["kept"] for name in "ab"))
    room.obey("crash b")
    room.actors["b"].records.clear()
    room.actors["b"].durable = True
    room.obey("heal\nsplit a | b c\njoin b")
    room.pass_ms(4_000)
    assert not any(site(room, name).state.is_normal for name in "bc")


def test_a_free_place_is_not_taken_on_both_sides_of_a_split() -> None:
    """Two of three sites begin. On each side of the split comes one of a new name: neither makes a
    majority, for both cannot be the third."""
    room = ward("a", "b", "d", "e", durable=True, sites=3)
    room.obey("join a b")
    gather(room, "a", "b")
    room.obey("split a e | b d\njoin d e")
    room.pass_ms(4_000)
    assert not any(site(room, name).state.is_normal for name in "abde")
    room.obey("heal")
    room.until(lambda: {"a", "b"} <= seen(room, "a"))


def test_an_excluded_member_names_the_view_that_excluded_it_and_its_founding() -> None:
    stage = Stage()
    stage.obey("start ring a b c tries=3\njoin a b c\nadvance 300ms")
    stage.obey("split a b | c\nadvance 2500ms\nheal\nadvance 600ms")
    founding, excluder = (view.id for view in stage.actors["a"].views[:2])
    (leave,) = [row for row in stage.sink.rows if row.kind == "leave"]
    assert leave.node == "c"
    assert leave.changes == ("excluded", f"view {excluder}", f"founding {founding}")
