"""Live members on real sockets under hostile packets: those of who can hear and reach the group.

The enemy joins the group's multicast address and sends to it and to every member, between the
packets that it hears. Of a sealed group (the enemy is an *outsider*) every law holds; of an open
one (an *impersonator*), no member raises or grows, and the group ends when it is told to.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import unisono
from tests.fuzz.live import WEIGHT_MAX, Enemy, Found
from tests.net.recorder import free_port
from tests.ring.test_hostile import weight
from unisono import config as configs
from unisono.core import EVERYONE
from unisono.laws.columnar import judge_trace
from unisono.model import Address
from unisono.net.udp import Endpoint
from unisono.protocols import spec

NAMES: Final = ("a", "b", "c")
KEY: Final = "00112233445566778899aabbccddeeff"
IN_A_ROW_MAX: Final = 40
PAUSE_S: Final = 0.001
"""After so many forged ones, for the members: they share the event loop with the enemy."""


class _Errors(logging.Handler):
    """What was logged as an error of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


class _Wiretap:
    """The enemy's socket: hears the group's multicasts, and sends what it forged."""

    def __init__(self, enemy: Enemy, port: int) -> None:
        at = configs.resolve_addresses(configs.read("fuzz", None, {"port": port}))
        self._enemy = enemy
        self._endpoint = Endpoint(at, buffer_bytes=1 << 20)
        self._endpoint.attach(asyncio.get_running_loop(), self._heard)

    def _heard(self, found: list[tuple[Address, Any]]) -> None:
        for source, packets in found:
            self._enemy.keep(source, [bytes(packet) for packet in packets])

    async def attack(self, members: list[Address], inputs: int) -> None:
        enemy = self._enemy
        while enemy.counts["inputs"] < inputs:
            for _ in range(IN_A_ROW_MAX):
                for _, made in enemy.hostile(members[0]):
                    to = enemy.dice.choice((EVERYONE, *((each,) for each in members)))
                    self._endpoint.send(to, made)
            await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        self._endpoint.close()


async def attack_sockets(protocol: str, kind: str, seed: int, inputs: int) -> Found:
    """Three members, all of which send, and so many hostile packets."""
    sealed = kind == "outsider"
    enemy = Enemy(protocol, kind, seed)
    enemy.rate = 1.0
    errors = _Errors()
    logging.getLogger("unisono").addHandler(errors)
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz") as trace:
            found = await _attacked(protocol, enemy, inputs, sealed, Path(trace))
            if sealed:
                judged = judge_trace(Path(trace), lambda name: spec(name).laws)
                for run in judged.values():
                    found += [f"{v.law}: {v.detail}" for v in run.verdict.violations]
    finally:
        logging.getLogger("unisono").removeHandler(errors)
    found += [f"error: {text}" for text in errors.found]
    return Found(protocol, kind, seed, enemy.counts, tuple(found), on_sockets=True)


async def _attacked(
    protocol: str, enemy: Enemy, inputs: int, sealed: bool, trace: Path
) -> list[str]:
    port = free_port()
    more: dict[str, Any] = {"key": KEY, "trace": str(trace)} if sealed else {}
    first = {"master": 1} if protocol == "mtp" else {}
    heard: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        groups = [
            await stack.enter_async_context(
                unisono.join("fuzz", name=name, protocol=protocol, port=port, **more, **own)
            )
            for name, own in zip(NAMES, (first, {}, {}), strict=True)
        ]
        tap = _Wiretap(enemy, port)
        stack.callback(tap.close)
        working = [
            asyncio.create_task(work)
            for group in groups
            for work in (_send(group), _read(group, heard))
        ]
        members = [group.me.address for group in groups]
        await tap.attack(members, inputs)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        found = [
            f"growth: {group.me.name} holds {held} things"
            for group in groups
            if (held := weight(group)) > WEIGHT_MAX
        ]
        arrived = sum(group.counters()["net.in.packets"] for group in groups)
    enemy.counts.update(delivered=sum(heard.values()), arrived=arrived)
    return found


async def _send(group: unisono.Group) -> None:
    count = 0
    while True:
        count += 1
        try:
            await group.multicast(b"%s %d" % (group.me.name.encode(), count))
        except unisono.Stopped:
            return
        await asyncio.sleep(0.002)


async def _read(group: unisono.Group, heard: Counter[str]) -> None:
    try:
        async for item in group:
            heard[group.me.name] += isinstance(item, unisono.Message)
    except unisono.Stopped:
        return
