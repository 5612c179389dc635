"""What is made of members' answers: rates, delays, medians, ratios."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.made_up import ABOUT, row
from unisono.bench.measure import Measurements
from unisono.bench.results import delays, figure, percentile, rounded, rows_as_json, throughput
from unisono.bench.system import Workload
from unisono.processes import RunFailed

SECOND_NS = 1_000_000_000
KEYS = (
    *("system", "service", "via", "size", "members", "senders", "messages_per_s"),
    *("megabytes_per_s", "latency_us", "loaded_latency_us", "latency_by_load_us"),
    *("cpu_us_per_message", "rss_mb_max"),
    *("delivered_share", "rounds", "spread", "against"),
)


def answer(delivered: int, last_ns: int, sent: int = 0) -> dict[str, Any]:
    return {
        "sent": sent,
        "delivered": delivered,
        "first_ns": 1,
        "last_ns": last_ns,
        "cpu_ns": 2_000_000,
        "rss_kb": 1000,
    }


def test_the_slowest_member_decides_the_rate() -> None:
    begin_ns = 5 * SECOND_NS
    answers = [answer(1000, 6 * SECOND_NS, sent=1000), answer(1000, 7 * SECOND_NS)]
    found = throughput(begin_ns, answers, servers_cpu_ns=6_000_000, servers_rss_kb=0)
    assert found.messages_per_s == 500
    assert found.delivered_share == 1
    assert found.rss_mb_max == pytest.approx(1.024)


def test_cpu_is_that_of_all_processes_servers_included() -> None:
    answers = [answer(1000, SECOND_NS, sent=1000), answer(1000, SECOND_NS)]
    found = throughput(0, answers, servers_cpu_ns=6_000_000, servers_rss_kb=5000)
    assert found.cpu_us_per_message == 10
    assert found.rss_mb_max == pytest.approx(5.12)


def test_what_was_lost_is_reported() -> None:
    answers = [answer(1000, SECOND_NS, sent=1000), answer(800, SECOND_NS)]
    assert throughput(0, answers, 0, 0).delivered_share == 0.8


@pytest.mark.parametrize("empty", [answer(0, SECOND_NS), answer(5, 0)])
def test_a_member_that_got_nothing_is_trouble(empty: dict[str, Any]) -> None:
    with pytest.raises(RunFailed, match="member 1: nothing"):
        throughput(0, [answer(10, SECOND_NS, sent=10), empty], 0, 0)


def test_delays_are_those_of_all_members() -> None:
    answers = [{"samples_us": []}, {"samples_us": list(range(1, 51))}, {"samples_us": [9000.0]}]
    assert delays(answers) == {"p50": 26, "p99": 9000}
    with pytest.raises(RunFailed):
        delays([{"samples_us": []}])


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([1, 2, 3, 4], 0.5) == 2
    assert percentile([7], 0.99) == 7
    assert percentile(list(range(1, 101)), 0.99) == 99


def test_figures_have_no_more_digits_than_they_mean() -> None:
    assert [rounded(value) for value in (0, 123456.7, 12.3456, 0.00123456)] == [
        *(0, 123500, 12.35),
        0.001235,
    ]
    assert [figure(value) for value in (123456, 99.96, 0.0123)] == ["123,456", "100", "0.0123"]


def test_a_row_has_medians_and_their_spread() -> None:
    made = row("unisono-ring", Workload(3, 1000, 1), [100.0, 300.0, 200.0])
    (told,) = rows_as_json([made])
    assert tuple(told) == KEYS
    assert told["messages_per_s"] == 200 and told["megabytes_per_s"] == 0.2
    assert told["spread"]["messages_per_s"] == [100, 300]
    assert told["latency_us"] == {"p50": 201, "p99": 900}
    assert told["spread"]["latency_us"]["p50"] == [200, 202]
    assert told["rounds"] == 3


def test_a_ratio_is_taken_round_by_round() -> None:
    """The machine was ten times slower in the second round, for both."""
    load = Workload(3, 64, 1)
    ours = row("unisono-ring", load, [1000.0, 120.0, 1000.0])
    peer = row("corosync", load, [100.0, 10.0, 100.0])
    elsewhere = row("corosync", Workload(3, 64, 3), [1.0])
    told = rows_as_json([ours, peer, elsewhere])
    assert told[0]["against"] == {"corosync": 10}
    assert told[1]["against"] == {"unisono-ring": 0.1}
    assert told[2]["against"] == {}
    del peer.throughput[0]
    assert rows_as_json([ours, peer])[0]["against"] == {"corosync": 11}


def test_labels_name_what_is_not_the_default() -> None:
    load = Workload(3, 64, 1, service="safe", via="daemon")
    assert row("unisono-ring", load, [1.0]).key.label == "unisono-ring safe via daemon"
    assert row("corosync", Workload(3, 64, 1), [1.0]).key.label == "corosync"


def test_a_row_without_any_round_is_left_out() -> None:
    assert rows_as_json([row("unisono-ring", Workload(3, 64, 1), [])]) == []
    assert Measurements().as_json(ABOUT)["results"] == []
