"""Unisono as a system of the bench: each protocol one, by the library or through daemons."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from unisono.bench.processes import Voice, answers, complaints, ended_with, spawned
from unisono.bench.stage import LOOPBACK
from unisono.bench.system import Load, Seat, Stage, Troupe
from unisono.config import PORT, default_service
from unisono.errors import Misuse
from unisono.model import Service, level_named
from unisono.protocols import offer

PREFIX: Final = "unisono-"
GROUP: Final = "bench"
JOIN_S, LEAVE_S = 30.0, 2.0
LIBRARY, DAEMON = "library", "daemon"
VIAS: Final = (LIBRARY, DAEMON)
HERE: Final = "127.0.0.1"
"""What carries multicast on loopback, whatever the seats' own addresses are."""


class Ours:
    """One protocol of ours."""

    def __init__(self, protocol: str, options: Mapping[str, int] | None = None) -> None:
        self._offer = offer(protocol)
        self._options = options or {}
        if unknown := sorted(self._options.keys() - self._offer.options.keys()):
            known = ", ".join(sorted(self._offer.options)) or "none"
            raise Misuse(f"{protocol} has no option {unknown[0]!r}; it has: {known}")
        self.name = PREFIX + protocol

    @property
    def usual(self) -> str:
        """The service of who asks for none."""
        level = default_service(self._offer)
        return level.name.lower() if isinstance(level, Service) else str(level)

    def missing(self) -> str:
        return ""

    def refuses(self, load: Load) -> str:
        level = level_named(load.service)
        if level not in self._offer.services:
            levels = ", ".join(each.name.lower() for each in self._offer.services)
            return f"{self.name} has no {load.service} service: it has {levels}"
        if isinstance(level, Service) and level < Service.FIFO:
            return (
                f"{self.name}: a {load.service} message may be lost or overtaken, so none is last"
            )
        if load.via == DAEMON and "total_order" not in self._offer.laws:
            return f"{self.name} has no total order, and daemons need one"
        most = {**self._offer.options, **self._options}.get("members_count_max", load.members)
        if load.members > most:
            return f"{self.name} has at most {most} members"
        return ""

    @contextlib.contextmanager
    def started(self, stage: Stage, load: Load) -> Iterator[Troupe]:
        with self.cast(stage, load) as cast:
            members = [cast.enter(seat, load.members) for seat in stage.seats]
            yield Troupe(members, cast.servers)

    @contextlib.contextmanager
    def cast(self, stage: Stage, load: Load) -> Iterator[Cast]:
        """A place where members can enter one by one."""
        with ended_with() as processes:
            cast = Cast(self, stage, load, processes)
            if load.via == DAEMON:
                cast.start_daemons()
            yield cast

    def role(self, seat: Seat, count: int) -> dict[str, int]:
        return dict(self._offer.appoint(seat.index, count, self._options))

    @property
    def protocol(self) -> str:
        return self._offer.name


class Cast:
    """Members and daemons on one stage, all of one group."""

    def __init__(
        self, ours: Ours, stage: Stage, load: Load, processes: list[subprocess.Popen[str]]
    ) -> None:
        self._ours = ours
        self._stage = stage
        self._load = load
        self._processes = processes
        self._port = free_port() if stage.net == LOOPBACK else PORT
        self.servers: tuple[int, ...] = ()

    def enter(
        self, seat: Seat, count: int, state_octets: int = 0, newcomer: bool = False
    ) -> subprocess.Popen[str]:
        """Start a member that is ready when it sees so many; a newcomer also needs the state."""
        how = {
            "count": count,
            "service": self._load.service,
            "state_octets": state_octets,
            "newcomer": newcomer,
            "join": self._how(seat),
        }
        command = (sys.executable, "-m", "unisono.bench.member", json.dumps(how))
        process = spawned(seat, command, self._stage.scratch)
        self._processes.append(process)
        return process

    def _how(self, seat: Seat) -> dict[str, Any]:
        how: dict[str, Any] = {
            "group": GROUP,
            "name": f"m{seat.index}",
            "join_s": JOIN_S,
            "leave_s": LEAVE_S,
            "rejoin": False,  # Who falls out spoils what is measured, and has to say so.
        }
        if self._load.via == DAEMON:
            return how | {"daemon": self._door(seat)}
        return how | {
            "protocol": self._ours.protocol,
            "interface": self._interface(seat),
            "port": self._port,
            "options": self._ours.role(seat, self._load.members),
        }

    def _interface(self, seat: Seat) -> str:
        return HERE if self._stage.net == LOOPBACK else seat.host

    def _door(self, seat: Seat) -> str:
        return f"unix:{self._stage.scratch}/door-{seat.index}"

    def start_daemons(self) -> None:
        """One a seat; members come once all daemons are in one ring."""
        end_s = time.monotonic() + JOIN_S
        voices = []
        for seat in self._stage.seats:
            command = [sys.executable, "-m", "unisono", "daemon", "--json", "--ring", GROUP]
            command += ["--listen", self._door(seat), "--name", f"d{seat.index}"]
            command += ["--interface", self._interface(seat), "--port", str(self._port)]
            command += ["--protocol", self._ours.protocol]
            for name, value in self._ours.role(seat, self._load.members).items():
                command += ["--option", f"{name}={value}"]
            process = spawned(seat, command, self._stage.scratch, "daemon")
            self._processes.append(process)
            errors = complaints(self._stage.scratch, "daemon", seat)
            voices.append(Voice(process, f"daemon {seat.index}", errors))
        apart = list(voices)
        while apart:
            told = answers(apart, end_s - time.monotonic())
            apart = [
                voice
                for voice, each in zip(apart, told, strict=True)
                if len(each.get("daemons", ())) < len(voices)
            ]
        self.servers = tuple(voice.process.pid for voice in voices)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])
