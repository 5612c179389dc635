"""Three replicas as processes, killed one by one and all at once: the green orders agree byte for
byte, and nothing acknowledged is lost."""

from __future__ import annotations

import json
import signal
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.net.recorder import free_port
from tests.waiting import until
from unisono.processes import Process, Processes
from unisono.services.replica_file import ReplicaFile

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("replication")]
MEMBER = str(Path(__file__).with_name("orders_member.py"))


class Replicas:
    """The processes by name, and what they told in all their lives."""

    def __init__(self, processes: Processes, path: Path, protocol: str) -> None:
        self.processes, self.path, self.protocol = processes, path, protocol
        self.port = free_port()
        self.running: dict[str, Process] = {}
        self.past: list[bytes] = []
        self.numbers = count(1)

    def start(self, names: str) -> None:
        for name in names:
            command = [sys.executable, MEMBER, name, "a,b,c", str(self.path / name)]
            self.running[name] = self.processes.start(
                name, [*command, str(self.port), self.protocol]
            )

    def kill(self, names: str) -> None:
        for name in names:
            process = self.running.pop(name)
            process.signal(signal.SIGKILL)
            until(lambda process=process: process.code is not None, f"the end of {name}")
            self.past += process.lines

    def told(self, event: str) -> list[dict[str, str]]:
        lines = [*self.past, *(line for each in self.running.values() for line in each.lines)]
        return [each for each in map(json.loads, lines) if each["event"] == event]

    def append(self, name: str, times: int) -> list[str]:
        texts = [f"{name} {next(self.numbers)}" for _ in range(times)]
        self.running[name].write(*texts)
        return texts

    def await_all(self, event: str, texts: list[str]) -> None:
        until(
            lambda: {each["text"] for each in self.told(event)}.issuperset(texts),
            f"{event} {texts}",
            lambda: "; ".join(each.errors for each in self.running.values()),
        )


def order_of(path: Path, name: str) -> list[tuple[str, int, bytes]]:
    file = ReplicaFile(path / name, "orders", name, "abc")
    try:
        updates = file.greens(1, file.end)
        return [(each.submitter, each.number, each.content) for each in updates]
    finally:
        file.close()


@pytest.mark.parametrize("protocol", ["transis", "ring"])
def test_kill_one_and_all(tmp_path: Path, protocol: str) -> None:
    with Processes() as processes:
        group = Replicas(processes, tmp_path, protocol)
        group.start("abc")
        group.await_all("stable", [*group.append("a", 5), *group.append("b", 5)])
        group.kill("c")
        group.await_all("acknowledged", group.append("a", 20))
        deposited = group.append("b", 20)
        group.await_all("red", deposited)
        group.kill("ab")
        group.start("abc")
        group.await_all("stable", [*group.append("c", 5), *group.append("a", 5)])
        texts = [each["text"] for each in group.told("red")]
        until(lambda: {each["text"] for each in group.told("green")}.issuperset(texts))
        final = group.append("b", 1)
        group.await_all("stable", final)
        group.kill("abc")
    orders = {name: order_of(tmp_path, name) for name in "abc"}
    assert orders["a"] == orders["b"] == orders["c"]
    placed = {content.decode(): at for at, (_, _, content) in enumerate(orders["a"], 1)}
    assert len(placed) == len(orders["a"]), "an update is there twice"
    assert set(deposited) <= placed.keys()
    assert {each["text"]: each["position"] for each in group.told("acknowledged")}.items() <= (
        placed.items()
    )
