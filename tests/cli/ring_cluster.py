"""A ring in network namespaces: faults, and checks of its traces."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.namespaces import address, do, inside, machines
from tests.cli.running import unisono
from tests.harness import Cat
from tests.waiting import LIMIT_S, until
from unisono.laws import judge
from unisono.protocols.ring import SPEC
from unisono.trace.history import ALIVE, History, histories_of, message_of
from unisono.trace.reading import read_trace
from unisono.trace.record import Row

NAMES = ("a", "b", "c", "d", "e", "f", "g")
CUT = """
table inet cut
delete table inet cut
table inet cut {{
    chain input {{
        type filter hook input priority -10;
        ip saddr {{ {others} }} drop
    }}
}}
"""
"""The first two lines take away an earlier one, also where there is none."""
TICK_S = 0.05
QUIET_S = 1.0
"""Traces are written four times a second."""
FLAP_S = 0.4


class Fault(NamedTuple):
    """A fault: its kind, its members, and its time."""

    at_s: float
    until_s: float
    kind: str
    names: tuple[str, ...]
    """The affected members; of a one-way cut, the deaf ones and those they do not receive from."""

    def blocks(self, hearer: str, speaker: str, at_s: float) -> bool:
        """Whether one does not receive from the other then."""
        if not self.at_s <= at_s < self.until_s:
            return False
        if self.kind == "one_way":
            return (hearer, speaker) == self.names
        apart = (hearer in self.names) != (speaker in self.names)
        flapped = self.kind == "flap" and int((at_s - self.at_s) / FLAP_S) % 2 == 0
        return apart and (flapped or self.kind == "cut")

    def parts(self, one: str, other: str) -> bool:
        """Whether it separates these two while it lasts; a link that flaps is separated."""
        if self.kind == "one_way":
            return {one, other} == set(self.names)
        return self.kind in ("cut", "flap") and (one in self.names) != (other in self.names)


class Cluster:
    """The members, and what befalls them."""

    def __init__(
        self, names: Sequence[str], spaces: Mapping[str, str], folder: Path, undo: Any
    ) -> None:
        self.names, self._spaces, self._folder, self._undo = names, spaces, folder, undo
        self.cats: dict[str, Cat] = {}
        self.stopped: set[str] = set()
        self.began_s = 0.0
        self.happened: list[Fault] = []
        """Each fault with the times at which it really began and ended."""
        self._deaf: dict[str, frozenset[str]] = {}
        self._said = 0
        self.given = defaultdict[Cat, list[str]](list)
        """What each process was given to send."""

    def options(self, name: str) -> dict[str, object]:
        return {
            "group": "far",
            "name": name,
            "protocol": "ring",
            "sites": len(self.names),
            "service": "safe",
            "interface": address(self.names.index(name) + 1),
            "join_s": LIMIT_S,
            "stable": str(self._folder / f"{name}.stable"),
        }

    def start(self, name: str) -> None:
        config = self._folder / f"{name}.toml"
        lines = [f"{key} = {json.dumps(value)}" for key, value in self.options(name).items()]
        config.write_text("\n".join(("[group]", *lines, "")))
        arguments = ("--config", str(config), "--settle", "0")
        trace = ("--trace", str(self._folder / "trace"))
        cat = Cat(*arguments, *trace, before=inside(self._spaces[name]))
        self.cats[name] = self._undo.enter_context(cat)

    # -- faults ------------------------------------------------------------------------------------

    def play(self, faults: Sequence[Fault], seconds: float) -> None:
        """Inject the faults while all members send; then heal everything."""
        until(self.together, "one view", self.words)
        self.began_s = time.monotonic()
        strikes = sorted(faults, reverse=True)
        running: dict[Fault, float] = {}
        while strikes or running or self._now_s() < seconds:
            now_s = self._now_s()
            while strikes and strikes[-1].at_s <= now_s:
                self._begin(strikes[-1])
                running[strikes.pop()] = now_s
            for fault in [each for each in running if each.until_s <= now_s]:
                self._end(fault)
                self.happened.append(fault._replace(at_s=running.pop(fault), until_s=now_s + 0.1))
            self._block(list(running), now_s)
            self.say()
            time.sleep(TICK_S)
        print(*self.happened, sep="\n")
        until(self.together, "one view of all, after all has healed", self.words)
        last = {f"{name} is here" for name in self.names}
        for text in last:
            self.cats[text[0]].write(text)
        until(lambda: self.all_heard(last), "the last words of all, by all", self.words)
        self.rest()

    def _now_s(self) -> float:
        return time.monotonic() - self.began_s

    def _begin(self, fault: Fault) -> None:
        for name in fault.names:
            if fault.kind == "kill" and name in self.cats:
                cat = self.cats.pop(name)
                cat.kill()
                self.stopped.discard(name)
            elif fault.kind == "pause" and name in self.cats:
                self.cats[name].signal(signal.SIGSTOP)
                self.stopped.add(name)

    def _end(self, fault: Fault) -> None:
        for name in fault.names:
            if fault.kind == "kill" and name not in self.cats:
                self.start(name)
            elif fault.kind == "pause" and name in self.stopped:
                self.stopped.discard(name)
                self.cats[name].signal(signal.SIGCONT)

    def _block(self, faults: Sequence[Fault], at_s: float) -> None:
        """Set each one's ears as the faults of this moment want them."""
        for name in self.names:
            deaf_to = frozenset(
                other
                for other in self.names
                if other != name and any(fault.blocks(name, other, at_s) for fault in faults)
            )
            if deaf_to != self._deaf.get(name, frozenset()):
                self._deaf[name] = deaf_to
                others = ", ".join(sorted(address(self.names.index(o) + 1) for o in deaf_to))
                rules = CUT.format(others=others)
                if not others:
                    rules = "table inet cut\ndelete table inet cut\n"
                do(*inside(self._spaces[name]), "nft", "-f", "-", rules=rules)

    # -- load --------------------------------------------------------------------------------------

    def say(self) -> None:
        """A message of each live member; a paused one sends it later."""
        for name, cat in self.cats.items():
            assert cat.is_alive, f"{name} ended: {cat.errors}"
            if name not in self.stopped:
                self._said += 1
                self.given[cat].append(f"{name} {self._said}")
                cat.write(self.given[cat][-1])

    def words(self) -> str:
        views = {name: (cat.code, cat.view) for name, cat in self.cats.items()}
        return f"{views} after {self.happened}"

    def all_heard(self, texts: set[str]) -> bool:
        return all(texts <= {text for _, _, text in cat.messages} for cat in self.cats.values())

    def rest(self) -> None:
        """Until nothing has happened for a while; then all are stopped at once, so that none sees
        another die."""
        end = time.monotonic() + LIMIT_S
        before: list[int] = []
        while (now := [self._told(cat) for cat in self.cats.values()]) != before:
            assert time.monotonic() < end, self.words()
            before = now
            time.sleep(QUIET_S)
        for cat in self.cats.values():
            cat.signal(signal.SIGSTOP)
        assert self.together(), self.words()

    @staticmethod
    def _told(cat: Cat) -> int:
        return len(cat.objects)

    def together(self) -> bool:
        return all(cat.view == sorted(self.names) for cat in self.cats.values())


@contextlib.contextmanager
def cluster(
    names: Sequence[str],
    folder: Path,
    burners: int = 0,
    kind: type[Cluster] = Cluster,
    loss_percent: int = 0,
) -> Iterator[Cluster]:
    with contextlib.ExitStack() as undo:
        spaces = undo.enter_context(machines(names, loss_percent))
        found = kind(names, spaces, folder, undo)
        for name in names:
            found.start(name)
        undo.enter_context(burning(burners))
        yield found


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait(LIMIT_S)


# -- checks of the traces -------------------------------------------------------------------------


def read(folder: Path, names: Sequence[str]) -> History:
    """The one history in the traces.

    All are killed in the end, for the last half of a ring cannot leave it cleanly. By then all was
    quiet for so long that nothing was left to write: those lives are known to their end.
    """
    trace = read_trace(folder)
    ((run, rows),) = trace.runs.items()
    alive = {name: max(row.incarnation for row in rows if row.node == name) for name in names}
    torn = trace.torn.get(run, frozenset()) - {f"{name}#{last}" for name, last in alive.items()}
    (history,) = histories_of(run, rows, torn)
    return history


def assert_all_laws(folder: Path, history: History) -> None:
    verified = unisono("verify", str(folder / "trace"), "--json")
    told = json.loads(verified.stdout)
    assert verified.returncode == 0, told
    assert_laws(history)


def assert_laws(history: History) -> None:
    verdict = judge(history, SPEC.laws)
    assert not verdict.violations, verdict.violations[:10]
    assert {verdict.laws[law] for law in SPEC.laws} == {"kept"}


def assert_nothing_is_missing(history: History, names: Sequence[str]) -> int:
    """Whatever any life has delivered has one place, and each that lives has delivered all that
    came after its own first view; how many places there are."""
    places: dict[int, str] = {}
    for life in history.lives.values():
        for row in life.deliveries:
            assert row.service == "safe"
            assert row.seq is not None
            assert places.setdefault(row.seq, message_of(row)) == message_of(row), row
    alive = [life for life in history.lives.values() if life.end == ALIVE]
    assert sorted(life.node for life in alive) == sorted(names)
    for life in alive:
        since = life.views[0].seq
        assert since is not None
        owed = {place for place in places if place > since}
        heard = {row.seq for row in life.deliveries}
        assert owed <= heard, f"{life.key} lacks {sorted(owed - heard)[:10]}"
    return len(places)


def assert_one_majority(history: History, count: int) -> int:
    """Every view is a majority, the same for all that had it, and all of them are in one row, so
    that no two went on at once; how many there were."""
    views: dict[str, Row] = {}
    for life in history.lives.values():
        for row in life.views:
            known = views.setdefault(row.view, row)
            assert (row.members, row.seq) == (known.members, known.seq), row
    in_row = sorted(views.values(), key=lambda row: (int(row.view.partition("-")[0]), row.seq))
    sets = [{life.partition("#")[0] for life in row.members or ()} for row in in_row]
    assert all(len(each) > count // 2 for each in sets), sets
    assert all(one & two for one, two in itertools.pairwise(sets))
    places = [row.seq or 0 for row in in_row]
    assert places == sorted(places), "a later ring never goes back"
    return len(views)
