"""A live group of three and a feed as processes that are killed and come back, and the check that
every delivered message is in the output exactly once, in order."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.feed.member import ALIKE, payload
from tests.harness import UNISONO, Child
from tests.net.recorder import free_port
from tests.waiting import LIMIT_S, until
from unisono.feed import FeedClient
from unisono.trace.parquet import ParquetPart
from unisono.trace.record import digest_of

SAID_MAX = 20_000
"""More than a member sends in one incarnation."""


@dataclass
class Play:
    """The processes, by name."""

    place: Path
    port: int
    listen: int
    running: dict[str, Child] = field(default_factory=dict)
    latest: dict[str, Child] = field(default_factory=dict)
    """Of each name, also when it was killed."""
    lives: dict[str, int] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.place / "out"

    @property
    def feed(self) -> str:
        return f"127.0.0.1:{self.listen}"

    def start(self, name: str) -> None:
        life = self.lives[name] = self.lives.get(name, -1) + 1
        python = [sys.executable, "-m"]
        if name == "feed":
            words = ["feed", "g", "--log", str(self.place / "log"), "--listen", self.feed, "--json"]
            toml = self.place / "feed.toml"
            alike = "".join(f"{option} = {value}\n" for option, value in ALIKE.items())
            toml.write_text(f'[group]\ngroup = "g"\n{alike}')
            command = [*UNISONO, *words, "--config", str(toml), "--port", str(self.port)]
        elif name == "query":
            told = {"feed": self.feed, "out": str(self.out)}
            command = [*python, "tests.feed.query", json.dumps(told)]
        else:
            told = {"name": name, "word": f"{name}{life}", "trace": str(self.place / "trace")}
            command = [*python, "tests.feed.member", json.dumps({**told, "port": self.port})]
        self.running[name] = self.latest[name] = Child(name, *command)

    def kill(self, name: str) -> None:
        """The process and all it started, at once and without a word."""
        self.running.pop(name).kill()

    def told(self, name: str) -> list[dict[str, Any]]:
        """The lines of its latest process; Spark may print others."""
        lines = self.latest[name].lines
        return [json.loads(line) for line in lines if line.endswith(b"}\n")]

    def has_told(self, name: str, kind: str) -> bool:
        code = self.running[name].code
        assert code is None or kind == "finished", (name, code, self.errors(name))
        return any(each["kind"] == kind for each in self.told(name))

    def errors(self, name: str) -> str:
        return self.latest[name].errors[-3000:]

    def order(self, name: str) -> None:
        self.running[name].write("")

    def written(self) -> int:
        """How far the query has come, by its checkpoint."""
        names = (self.place / "out.checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) for path in names), default=-1)


@contextmanager
def playing(place: Path) -> Iterator[Play]:
    place.mkdir(exist_ok=True)
    play = Play(place, free_port(), free_port())
    try:
        yield play
    finally:
        for name in list(play.running):
            play.kill(name)


def settle(play: Play) -> None:
    """Until the feed has all that was sent."""
    seen = -1
    with FeedClient(play.feed, 60) as client:
        for _ in range(120):
            status = client.status()
            now = status["end"]
            if _is_whole(status) and now == status["last"] == seen:
                return
            seen = now
            time.sleep(1)
    raise AssertionError(f"the feed does not come to rest: {status}")


def delivered(play: Play) -> dict[str, list[bytes]]:
    """By incarnation, what was delivered to it by its trace, in order."""
    words = {
        digest_of(payload(f"{name}{life}", n)): payload(f"{name}{life}", n)
        for name in "abc"
        for life in range(play.lives[name] + 1)
        for n in range(SAID_MAX)
    }
    found = {}
    for path in sorted((play.place / "trace" / "run=kills").glob("*.parquet")):
        digests = [
            digest
            for table in ParquetPart(path).tables()
            for kind, digest in zip(
                *table.select(["kind", "digest"]).to_pydict().values(), strict=True
            )
            if kind == "deliver"
        ]
        # What members recall of each other are messages as well, but none of the application's.
        found[path.name] = [words[digest] for digest in digests if digest in words]
    return found


def check(told: dict[str, list[bytes]], rows: list[tuple[int, bytes]]) -> None:
    """Whether the rows are what the members were delivered, by their traces."""
    places = [place for place, _ in rows]
    assert places == list(range(1, len(places) + 1)), "each place once, and none left out"
    where = {said: at for at, (_, said) in enumerate(rows)}
    assert len(where) == len(rows), "nothing twice"
    heard: set[bytes] = set()
    for name, lives in told.items():
        at = [where.get(said) for said in lives]
        assert None not in at, (
            f"{name} was delivered what the output lacks: {lives[at.index(None)]!r}"
        )
        first = at[0] if at else 0
        assert at == list(range(first, first + len(at))), f"{name} in another order"
        heard |= set(lives)
    assert heard == set(where), "nothing but what was delivered"


def rehearse(play: Play, *more: str) -> None:
    """All are started, and the members have found each other."""
    for name in ("a", "b", "c", "feed", *more):
        play.start(name)
        if name == "a":
            until(lambda: play.has_told("a", "joined"), "a joined")
    for name in ("b", "c"):
        until(lambda n=name: play.has_told(n, "joined"), f"{name} joined")
    # Earlier messages are with those that were members.
    with FeedClient(play.feed, 60) as client:
        until(lambda: _is_whole(client.status()), "the feed has the beginning")


def _is_whole(status: dict[str, Any]) -> bool:
    return bool(status["end"]) and status["away"] is None and not status["missing"]


def traffic(play: Play, seconds: float, kills: list[tuple[float, str, float]]) -> None:
    """Talk for so long; at these times these are killed, and come back after so long."""
    began = time.monotonic()
    for at_s, name, away_s in kills:
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        play.kill(name)
        time.sleep(away_s)
        play.start(name)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    for name in "abc":
        until(lambda n=name: play.has_told(n, "joined"), f"{name} is back")
        play.order(name)
    for name in "abc":
        until(lambda n=name: play.has_told(n, "quiet"), f"{name} quiet")


def hush(play: Play) -> None:
    """The members leave, so that their traces are whole."""
    for name in "abc":
        play.running[name].close_input()
    for name in "abc":
        assert play.running[name].wait(LIMIT_S) == 0, play.errors(name)
