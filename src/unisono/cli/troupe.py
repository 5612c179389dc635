"""The members of the demo: real processes, each a `unisono cat` with its pipes in our hands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unisono.core import Offer
from unisono.errors import UnisonoError

GROUP, HOST = "239.192.77.2", "127.0.0.1"
END_S = 60.0
LINE_OCTETS_MAX = 1 << 20


class Trouble(UnisonoError):
    """The demo did not go as it should; the text says what happened and where to look."""


class Player:
    """One process: what it was told to say, and what it heard."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.view: tuple[str, ...] = ()
        self.heard: list[tuple[str, int, str]] = []
        """Sender, number and text, in the order of delivery."""
        self.said_count = 0
        self._errors: list[str] = []
        self._tasks = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._complain()),
        ]

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told["kind"] == "message":
                self.heard.append((told["sender"], told["number"], told["text"]))
            elif told["kind"] == "view":
                self.view = tuple(told["members"])

    async def _complain(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._errors = [*self._errors[-9:], line.decode(errors="replace").strip()]

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def why(self) -> str:
        """The last it said before it ended."""
        return self._errors[-1] if self._errors else f"exit code {self.process.returncode}"

    async def say(self, lines: Sequence[str]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            await self.process.stdin.drain()
            self.said_count += len(lines)

    def finish(self) -> None:
        """Nothing more to say: it leaves once all it said is delivered."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), END_S)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return code


class Troupe:
    """All of them. Leaving the `async with` ends every process, whatever happened."""

    def __init__(
        self,
        offer: Offer,
        options: Mapping[str, int],
        names: Sequence[str],
        trace: Path,
        stable: bool = False,
    ) -> None:
        self._protocol = offer.name
        self._roles = {
            name: offer.appoint(at, len(names), options) for at, name in enumerate(names)
        }
        """The options of each; every life of a name has the same."""
        self._names = names
        self._trace = trace
        self._stable = trace.parent / "stable" if stable else None
        self.players: dict[str, Player] = {}
        self.multicast = has_multicast()
        """Where this machine has none, the members are given a list of peers."""
        self._ports = free_ports(1 if self.multicast else len(names))

    async def __aenter__(self) -> Troupe:
        return self

    async def __aexit__(self, *_: object) -> None:
        for player in self.players.values():
            if player.alive:
                with contextlib.suppress(TimeoutError):
                    await player.kill()

    async def enter(self, name: str) -> None:
        """Start a member: a new one, or a new life of one that died."""
        self.players[name] = Player(
            name,
            await asyncio.create_subprocess_exec(
                sys.executable,
                *self.arguments(name),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_OCTETS_MAX,
                # Ctrl-C is for the demo, which then ends them itself.
                start_new_session=True,
            ),
        )

    def arguments(self, name: str) -> list[str]:
        """How a member of this name is started, in every life."""
        arguments = ["-m", "unisono", "cat", "demo", "--name", name, "--json"]
        arguments += ["--protocol", self._protocol, "--trace", str(self._trace), "--linger", "0"]
        arguments += ["--settle", "0"]  # the demo waits for the views itself
        if self._stable is not None:
            arguments += ["--stable", str(self._stable / name)]
        for option, value in self._roles[name].items():
            arguments += ["--option", f"{option}={value}"]
        return arguments + self._reached(name)

    def _reached(self, name: str) -> list[str]:
        if self.multicast:
            return ["--port", str(self._ports[0])]
        peers = [f"{HOST}:{port}" for port in self._ports]
        return ["--peers", ",".join(peers), "--bind", peers[self._names.index(name)]]

    def present(self) -> list[Player]:
        return [player for player in self.players.values() if player.alive]

    async def until(self, done: Callable[[], bool], within_s: float, what: str) -> float:
        """Wait for it; the answer is how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not done():
            if loop.time() - began > within_s:
                raise Trouble(f"{what}: not within {within_s:g} s")
            await asyncio.sleep(0.02)
        return loop.time() - began

    def check(self) -> None:
        for player in self.players.values():
            if not player.alive:
                raise Trouble(f"member {player.name} ended too early: {player.why}")

    def all_see(self, names: Sequence[str]) -> bool:
        wanted = sorted(names)
        return all(sorted(self.players[name].view) == wanted for name in wanted)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def has_multicast() -> bool:
    """Whether a packet to a multicast address on loopback comes back: tried, not guessed."""
    membership = socket.inet_aton(GROUP) + socket.inet_aton(HOST)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ears,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
    ):
        try:
            ears.bind((GROUP, 0))
            ears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            ears.settimeout(0.5)
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
            mouth.sendto(b"heard?", (GROUP, ears.getsockname()[1]))
            return ears.recv(16) == b"heard?"
        except OSError:
            return False
