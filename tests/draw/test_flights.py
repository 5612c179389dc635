"""Sendings and arrivals are matched, and what is left over is explained."""

from __future__ import annotations

from tests.draw.histories import Tale, normal, repaired
from unisono.draw.clocks import aligned
from unisono.draw.flights import Traffic, traffic_of


def fates(traffic: Traffic) -> list[tuple[str, list[tuple[str, int, str]]]]:
    return [
        (packet.label, [(fate.life, fate.t_us, fate.how) for fate in packet.fates])
        for packet in traffic.packets
    ]


def test_a_multicast_is_one_sending_with_many_arrivals() -> None:
    traffic = traffic_of(normal().history)
    assert traffic.traced
    assert fates(traffic) == [("data 1.0", [("b#1", 1400, "arrived"), ("c#1", 1600, "arrived")])]
    assert traffic.packets[0].life == "a#1"


def test_a_packet_to_several_addresses_is_one_sending_too() -> None:
    tale = Tale().out("a", 1000, "data 1", "b").out("a", 1000, "data 1", "c")
    tale.heard("b", 1100, "data 1", "a").heard("c", 1200, "data 1", "a")
    assert fates(traffic_of(tale.history)) == [
        ("data 1", [("b#1", 1100, "arrived"), ("c#1", 1200, "arrived")])
    ]


def test_what_does_not_arrive_is_lost() -> None:
    traffic = traffic_of(repaired().history)
    assert fates(traffic)[1] == ("data 1.1", [("b#1", 1400, "arrived"), ("c#1", 1500, "lost")])


def test_only_the_addressees_of_a_packet_miss_it() -> None:
    tale = Tale().out("a", 1000, "nak 1", "b").said("a", 90_000, 1)
    assert fates(traffic_of(tale.history)) == [("nak 1", [("b#1", 1500, "lost")])]


def test_a_packet_to_a_process_that_is_gone_is_not_lost() -> None:
    tale = Tale("ab").out("a", 1000, "data 1").left("b", 1001).said("a", 90_000, 1)
    assert fates(traffic_of(tale.history)) == [("data 1", [("b#1", 1500, "absent")])]
    tale = Tale("ab").left("b", 900).out("a", 1000, "data 1").said("a", 90_000, 1)
    assert fates(traffic_of(tale.history)) == [("data 1", [])]


def test_a_packet_at_the_end_of_the_trace_is_under_way() -> None:
    tale = Tale("ab").out("a", 1000, "data 1").said("a", 1100, 1)
    assert fates(traffic_of(tale.history)) == [("data 1", [("b#1", 1500, "under way")])]


def test_a_second_arrival_is_shown() -> None:
    tale = Tale("ab").out("a", 1000, "data 1")
    tale.heard("b", 1300, "data 1", "a").heard("b", 1500, "data 1", "a")
    assert fates(traffic_of(tale.history)) == [
        ("data 1", [("b#1", 1300, "arrived"), ("b#1", 1500, "again")])
    ]


def test_something_else_in_its_place_is_damage() -> None:
    tale = Tale("ab").out("a", 1000, "data 1").heard("b", 1400, "data 1", "a", more="flipped")
    traffic = traffic_of(tale.said("a", 90_000, 1).history)
    assert fates(traffic) == [("data 1", [("b#1", 1400, "damaged")])]
    assert not traffic.strays


def test_an_arrival_from_nowhere_is_a_stray() -> None:
    traffic = traffic_of(Tale("ab").out("a", 9, "data 1").heard("b", 1400, "x", "z").history)
    assert [(stray.life, stray.t_us, stray.peer) for stray in traffic.strays] == [
        ("b#1", 1400, "10.0.0.26:7000")
    ]


def test_equal_packets_are_matched_by_time() -> None:
    tale = Tale("ab")
    for t_us in (1000, 50_000, 99_000):
        tale.out("a", t_us, "beat")
    tale.out("a", 99_500, "data 1").heard("b", 99_900, "data 1", "a")
    tale.heard("b", 50_400, "beat", "a").heard("b", 99_400, "beat", "a")
    how = [[(fate.t_us, fate.how) for fate in p.fates] for p in traffic_of(tale.history).packets]
    assert how[0][0][1] == "lost"
    assert how[1:3] == [[(50_400, "arrived")], [(99_400, "arrived")]]


def test_an_arrival_that_is_doubled_is_not_taken_for_an_older_one() -> None:
    tale = Tale("ab").out("a", 1000, "beat").out("a", 50_000, "beat")
    tale.heard("b", 50_400, "beat", "a").heard("b", 50_900, "beat", "a")
    first, second = traffic_of(tale.said("a", 90_000, 1).history).packets
    assert [fate.how for fate in first.fates] == ["lost"]
    assert [fate.how for fate in second.fates] == ["arrived", "again"]


def test_equal_packets_to_different_targets_are_matched() -> None:
    tale = Tale().out("a", 1000, "state 0", "b").out("a", 1200, "state 0", "c")
    tale.heard("b", 1500, "state 0", "a").heard("c", 1700, "state 0", "a")
    assert fates(traffic_of(tale.history)) == [
        ("state 0", [("b#1", 1500, "arrived")]),
        ("state 0", [("c#1", 1700, "arrived")]),
    ]


def test_an_address_is_learned_from_arrivals_where_no_join_has_it() -> None:
    tale = Tale("")
    tale.out("b", 500, "data 7").heard("a", 900, "data 7", "b")
    tale.out("a", 1000, "data 1", "b").said("b", 90_000, 1)
    assert fates(traffic_of(tale.history))[1] == ("data 1", [("b#1", 1400, "lost")])


def test_data_that_is_sent_once_more_is_a_repair() -> None:
    kinds = [(p.label, p.category) for p in traffic_of(repaired().history).packets]
    assert kinds == [
        ("data 1.0", "data"),
        ("data 1.1", "data"),
        ("nak 1.1-1.1", "nak"),
        ("data 1.1", "repair"),
    ]


def test_data_to_one_after_the_other_is_no_repair() -> None:
    tale = Tale().out("a", 1000, "data 1.0", "b").out("a", 1500, "data 1.0", "c")
    assert [p.category for p in traffic_of(tale.history).packets] == ["data", "data"]


def test_a_part_of_what_was_sent_is_a_repair_and_more_than_it_is_not() -> None:
    tale = Tale("ab").out("a", 1000, "data 1.0-3").out("a", 9000, "data 1.2", more="x")
    tale.out("a", 9500, "data 1.3-5")
    assert [p.category for p in traffic_of(tale.history).packets] == ["data", "repair", "data"]


def test_streams_have_the_names_of_their_owners() -> None:
    tale = Tale().out("b", 1000, "data @0b.1").out("c", 2000, "nak @0b.2")
    assert [p.label for p in traffic_of(tale.history).packets] == ["data b.1", "nak b.2"]


def test_a_later_life_has_a_prime() -> None:
    tale = Tale("ab").row("b", 500, "crash").join("b#2", 900)
    assert {life.key: life.name for life in traffic_of(tale.history).lives.values()} == {
        "a#1": "a",
        "b#1": "b",
        "b#2": "b′",
    }


def test_without_packets_messages_fly() -> None:
    tale = Tale().said("a", 1000, 1).delivered("a", 1000, "a", 1)
    tale.delivered("b", 1500, "a", 1).delivered("c", 1900, "a", 1)
    traffic = traffic_of(tale.history)
    assert not traffic.traced
    assert fates(traffic) == [("data a.1", [("b#1", 1500, "arrived"), ("c#1", 1900, "arrived")])]


# -- clocks ----------------------------------------------------------------------------------------


def apart(ahead_us: int) -> Tale:
    """b's clock is so far ahead of a's; each receives from the other after 400."""
    tale = Tale("").join("a", 0).join("b", ahead_us)
    tale.out("a", 1000, "data 1").heard("b", 1400 + ahead_us, "data 1", "a")
    return tale.out("b", 3000 + ahead_us, "data 2").heard("a", 3400, "data 2", "b")


def test_clocks_that_disagree_are_moved() -> None:
    history, moved = aligned(apart(5_000_000).history)
    assert moved == {"b": -5_000_000}
    assert fates(traffic_of(history)) == [
        ("data 1", [("b#1", 1400, "arrived")]),
        ("data 2", [("a#1", 3400, "arrived")]),
    ]


def test_clocks_that_agree_are_left_alone() -> None:
    history = apart(0).history
    assert aligned(history) == (history, {})
    assert aligned(history)[0] is history


def test_no_row_is_moved_before_the_beginning_of_time() -> None:
    tale = apart(5_000_000)
    tale.rows[1] = tale.rows[1]._replace(t_us=4_999_000)  # b joined before a's clock began
    history, moved = aligned(tale.history)
    assert moved == {"a": 1000, "b": -4_999_000}
    assert min(row.t_us for row in history.rows) == 0
