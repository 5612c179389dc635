"""The members of the demo: `unisono cat` processes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from unisono.bench.hosts import LOCALHOST, free_ports, has_multicast
from unisono.cli.parting import cut
from unisono.processes import Process, Processes, RunFailed, wait_for
from unisono.spec import ProtocolSpec


class DemoMember:
    """One process: what it was given to send, and what it delivered."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.sent_count = 0
        self._view: tuple[str, ...] = ()
        self._delivered: list[tuple[str, int, str]] = []
        self._read_count = 0

    def send(self, lines: Sequence[str]) -> None:
        self.process.write(*lines)
        self.sent_count += len(lines)

    @property
    def view(self) -> tuple[str, ...]:
        self._read()
        return self._view

    @property
    def delivered(self) -> list[tuple[str, int, str]]:
        """Sender, number and text, in the order of delivery."""
        self._read()
        return self._delivered

    def _read(self) -> None:
        objects = self.process.objects
        for each in objects[self._read_count :]:
            self._read_count += 1
            if each["kind"] == "message":
                self._delivered.append((each["sender"], each["number"], each["text"]))
            elif each["kind"] == "view":
                self._view = tuple(each["members"])


class DemoCluster:
    """All members. Leaving the `with` kills every process."""

    def __init__(
        self,
        spec: ProtocolSpec,
        options: Mapping[str, int],
        names: Sequence[str],
        trace: Path,
        stable: bool = False,
    ) -> None:
        self._protocol = spec.name
        self._roles = {
            name: spec.assign_roles(at, len(names), options) for at, name in enumerate(names)
        }
        """The options of each, the same in every incarnation."""
        self._names = names
        self._trace = trace
        self._stable = trace.parent / "stable" if stable else None
        self.parts = "one_component" in spec.laws and not spec.quorum(options)
        """Every part of it goes on, so its network is cut, too."""
        self.members: dict[str, DemoMember] = {}
        self.multicast = has_multicast() and not self.parts
        """Without it the members are given a list of peers; so they are where the network is cut,
        by their ports."""
        self._ports = free_ports(1 if self.multicast else len(names))
        self._processes = Processes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()

    def start(self, name: str) -> None:
        """Start a member: a new one, or a new incarnation of one that was killed."""
        module = ("unisono.cli.parting", str(self._cuts(name))) if self.parts else ("unisono",)
        command = (sys.executable, "-m", *module, *self.arguments(name))
        self.members[name] = DemoMember(self._processes.start(f"member {name}", command))

    def arguments(self, name: str) -> list[str]:
        """The command line of a member, the same in every incarnation."""
        arguments = ["cat", "demo", "--name", name, "--json"]
        arguments += ["--protocol", self._protocol, "--trace", str(self._trace), "--linger", "0"]
        arguments += ["--settle", "0"]  # The demo waits for the views itself.
        if self._stable is not None:
            arguments += ["--stable", str(self._stable / name)]
        for option, value in self._roles[name].items():
            arguments += ["--option", f"{option}={value}"]
        return arguments + self._address(name)

    def _address(self, name: str) -> list[str]:
        if self.multicast:
            return ["--port", str(self._ports[0])]
        peers = [f"{LOCALHOST}:{port}" for port in self._ports]
        return ["--peers", ",".join(peers), "--bind", peers[self._names.index(name)]]

    def _cuts(self, name: str) -> Path:
        folder = self._trace.parent / "cuts"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def part(self, *parts: Sequence[str]) -> None:
        """Each hears only those of its own part: with one part the network is whole again."""
        ports = dict(zip(self._names, self._ports, strict=True))
        for part in parts:
            for name in part:
                cut(self._cuts(name), [ports[each] for each in self._names if each not in part])
                self.members[name].process.signal(signal.SIGUSR2)

    def until(self, done: Callable[[], bool], within_s: float, what: str) -> float:
        """Wait while all members live; how long it took."""
        began_s = time.monotonic()

        def alive_and_done() -> bool:
            self.check()
            return done()

        if not wait_for(alive_and_done, within_s):
            raise RunFailed(f"{what}: not within {within_s:g} s")
        return time.monotonic() - began_s

    def check(self) -> None:
        """`RunFailed` if a member has ended."""
        for member in self.members.values():
            if not member.process.is_alive:
                raise member.process.failure()

    def all_see(self, *parts: Sequence[str]) -> bool:
        return all(
            sorted(self.members[name].view) == sorted(part) for part in parts for name in part
        )
