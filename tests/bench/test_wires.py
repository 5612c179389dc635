"""Nothing is done message by message that can be done by the burst: counted, never timed."""

from __future__ import annotations

import pytest

from tests.bench.wires import Cost, cost, enough, lone_calls, mixed_cost
from tests.harness import ROOT


def listed(what: str = "") -> list[list[str]]:
    """The rows of a table in the documents."""
    text = (ROOT / "docs" / "BENCHMARKS.md").read_text()
    table = text.partition(f"tests.bench.wires{what}: begin -->")[2].partition("<!--")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip().replace(",", "") for cell in line.split("|")[1:-1]] for line in lines[1:]]


@pytest.mark.parametrize("row", listed(), ids=lambda row: "-".join(row[:4]))
def test_a_message_costs_what_the_page_states(row: list[str]) -> None:
    protocol, *numbers = row
    members, senders, size = map(int, numbers[:3])
    found = cost(protocol, members, size, senders, enough(members, size))
    told = Cost(float(row[4]), float(row[5]), float(row[7]))
    # Another Python may call a few more.
    assert found.calls <= told.calls * 1.15
    assert found.packets == pytest.approx(told.packets, abs=0.001)
    assert found.nbytes == pytest.approx(told.nbytes, abs=1)


@pytest.mark.parametrize("row", listed(", paths"), ids=lambda row: row[0])
def test_a_lone_message_and_mixed_lengths_cost_what_the_page_states(row: list[str]) -> None:
    protocol, lone, mixed = row
    assert lone_calls(protocol) <= int(lone) * 1.15
    assert mixed_cost(protocol).calls <= float(mixed) * 1.15


def test_a_small_message_of_the_ring_is_hardly_looked_at() -> None:
    few, many = (cost("ring", 3, size, 1, 4096) for size in (16, 64))
    assert few.calls < many.calls < 10, "what a message costs is its part of a packet"


def test_what_is_done_for_each_message_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from unisono.protocols.ring.send_queue import SendQueue

    def one_by_one(self: SendQueue, messages: list[bytes], service: int) -> None:
        for message in messages:
            say(self, [message], service)  # type: ignore[arg-type]

    say = SendQueue.add
    before = cost("ring", 3, 64, 1, 2048).calls
    monkeypatch.setattr(SendQueue, "add", one_by_one)
    assert cost("ring", 3, 64, 1, 2048).calls > before * 1.15
