"""Seven machines, nearly: members of a ring are killed, stopped and cut off under load, and what
their traces tell keeps every law."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.namespaces import address, do, inside, machines
from tests.cli.running import Cat, unisono
from tests.ring.soaking import soak
from tests.waiting import LIMIT_S, until
from unisono.laws import judge
from unisono.protocols.ring import OFFER
from unisono.trace.files import read_trace
from unisono.trace.history import ALIVE, History, histories_of, message_of
from unisono.trace.record import Row

pytestmark = [pytest.mark.root, pytest.mark.real, pytest.mark.slow]

NAMES = ("a", "b", "c", "d", "e", "f", "g")
SEED = int(os.environ.get("UNISONO_SEED", "1"))
KINDS = ("kill", "pause", "cut")
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


class Fault(NamedTuple):
    """What happens to whom, from when to when."""

    at_s: float
    until_s: float
    kind: str
    names: tuple[str, ...]


def drawn(seed: int, names: Sequence[str], count: int, seconds: float) -> list[Fault]:
    """Each kind at least once; who is struck twice at a time is struck in another way."""
    dice = random.Random(f"ring/{seed}/{len(names)}/{count}")
    kinds = [KINDS[each % len(KINDS)] for each in range(count)]
    dice.shuffle(kinds)
    slot_s = seconds / count
    found: list[Fault] = []
    for at, kind in enumerate(kinds):
        at_s = (at + dice.random() * 0.5) * slot_s
        for_s = dice.uniform(0.1, 1.2) * slot_s
        busy = {name for each in found if each.until_s > at_s for name in each.names}
        free = [name for name in names if name not in busy] or list(names)
        most = len(free) - 1 if kind == "cut" else 1
        struck = tuple(sorted(dice.sample(free, dice.randint(1, max(most, 1)))))
        found.append(Fault(at_s, min(at_s + for_s, seconds), kind, struck))
    return found


class Troop:
    """The members, and what befalls them."""

    def __init__(
        self, names: Sequence[str], spaces: Mapping[str, str], folder: Path, undo: Any
    ) -> None:
        self.names, self._spaces, self._folder, self._undo = names, spaces, folder, undo
        self.cats: dict[str, Cat] = {}
        self.stopped: set[str] = set()
        self._cuts: list[frozenset[str]] = []
        self._said = 0
        self.happened: list[str] = []

    def options(self, name: str) -> dict[str, object]:
        return {
            "group": "far",
            "name": name,
            "protocol": "ring",
            "sites": len(self.names),
            "service": "safe",
            "interface": address(self.names.index(name) + 1),
            "join_s": 60,
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

    def begin(self, fault: Fault) -> None:
        self.happened.append(f"{fault.at_s:.1f}-{fault.until_s:.1f} {fault.kind} {fault.names}")
        if fault.kind == "cut":
            self._cuts.append(frozenset(fault.names))
            self._block()
        for name in fault.names:
            if fault.kind == "kill" and name in self.cats:
                cat = self.cats.pop(name)
                cat.process.kill()
                cat.process.wait(10)
                self.stopped.discard(name)
            elif fault.kind == "pause" and name in self.cats:
                self.cats[name].process.send_signal(signal.SIGSTOP)
                self.stopped.add(name)

    def end(self, fault: Fault) -> None:
        if fault.kind == "cut":
            self._cuts.remove(frozenset(fault.names))
            self._block()
        for name in fault.names:
            if fault.kind == "kill" and name not in self.cats:
                self.start(name)
            elif fault.kind == "pause" and name in self.stopped:
                self.stopped.discard(name)
                self.cats[name].process.send_signal(signal.SIGCONT)

    def _block(self) -> None:
        """Nobody hears those on the other side of a cut."""
        for name, space in self._spaces.items():
            others = {
                address(self.names.index(other) + 1)
                for cut in self._cuts
                for other in self.names
                if (other in cut) != (name in cut)
            }
            rules = CUT.format(others=", ".join(sorted(others)))
            if not others:
                rules = "table inet cut\ndelete table inet cut\n"
            do(*inside(space), "nft", "-f", "-", rules=rules)

    # -- load --------------------------------------------------------------------------------------

    def say(self) -> None:
        """A word of each that lives and runs; who cannot speak now says it later."""
        for name, cat in self.cats.items():
            assert cat.process.poll() is None, f"{name} ended: {cat.errors()}"
            if name not in self.stopped:
                self._said += 1
                cat.say(f"{name} {self._said}")

    def words(self) -> str:
        views = {name: (cat.process.poll(), cat.view) for name, cat in self.cats.items()}
        return f"{views} after {self.happened}"

    def all_heard(self, texts: set[str]) -> bool:
        return all(texts <= {text for _, _, text in cat.messages} for cat in self.cats.values())

    def rest(self) -> None:
        """Until nothing has happened for a while; then all are stopped at once, so that nobody sees
        another die."""
        end = time.monotonic() + LIMIT_S
        before: list[int] = []
        while (now := [self._told(cat) for cat in self.cats.values()]) != before:
            assert time.monotonic() < end, self.words()
            before = now
            time.sleep(QUIET_S)
        for cat in self.cats.values():
            cat.process.send_signal(signal.SIGSTOP)
        assert self.together(), self.words()

    @staticmethod
    def _told(cat: Cat) -> int:
        cat.poll()
        return len(cat.objects)

    def together(self) -> bool:
        return all(cat.view == sorted(self.names) for cat in self.cats.values())


@contextlib.contextmanager
def troop(names: Sequence[str], folder: Path) -> Iterator[Troop]:
    with contextlib.ExitStack() as undo:
        spaces = undo.enter_context(machines(names, loss_percent=0))
        found = Troop(names, spaces, folder, undo)
        for name in names:
            found.start(name)
        yield found


def play(names: Sequence[str], faults: Sequence[Fault], seconds: float, folder: Path) -> History:
    """What the traces of such a time tell, when all has healed."""
    with troop(names, folder) as ring:
        until(ring.together, "one view", ring.words)
        began = time.monotonic()
        begins = [(fault.at_s, True, fault) for fault in faults]
        ends = [(fault.until_s, False, fault) for fault in faults]
        todo = sorted(begins + ends, reverse=True)
        while todo or time.monotonic() < began + seconds:
            while todo and time.monotonic() >= began + todo[-1][0]:
                _, first, fault = todo.pop()
                (ring.begin if first else ring.end)(fault)
            ring.say()
            time.sleep(TICK_S)
        until(ring.together, "one view of all, after all has healed", ring.words)
        last = {f"{name} is here" for name in names}
        for text in last:
            ring.cats[text[0]].say(text)
        until(lambda: ring.all_heard(last), "the last words of all, by all", ring.words)
        ring.rest()
        print(*ring.happened, sep="\n")
    return read(folder / "trace", names)


def read(folder: Path, names: Sequence[str]) -> History:
    """The one history that the traces tell.

    All are killed in the end, for the last half of a ring cannot leave it cleanly. By then all was
    quiet for so long that nothing was left to write: those lives are known to their end.
    """
    trace = read_trace(folder)
    ((run, rows),) = trace.runs.items()
    alive = {name: max(row.incarnation for row in rows if row.node == name) for name in names}
    torn = trace.torn.get(run, frozenset()) - {f"{name}#{last}" for name, last in alive.items()}
    (history,) = histories_of(run, rows, torn)
    return history


# -- what the traces must tell --------------------------------------------------------------------


def assert_all_laws(folder: Path, history: History) -> None:
    verified = unisono("verify", str(folder / "trace"), "--json")
    told = json.loads(verified.stdout)
    assert verified.returncode == 0, told
    verdict = judge(history, OFFER.laws)
    assert not verdict.violations, verdict.violations[:10]
    assert {verdict.laws[law] for law in OFFER.laws} == {"kept"}


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
    """Every view is a majority, the same for all who had it, and all of them stand in one row, so
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


def check(names: Sequence[str], count: int, seconds: float, folder: Path) -> None:
    history = play(names, drawn(SEED, names, count, seconds), seconds, folder)
    assert_all_laws(folder, history)
    messages = assert_nothing_is_missing(history, names)
    views = assert_one_majority(history, len(names))
    lives = history.lives.values()
    rows = sum(len(life.deliveries) for life in lives)
    print(f"{len(lives)} lives, {views} views, {messages} messages, {rows} deliveries")
    assert messages > seconds, "there was a load"
    assert len(lives) > len(names), "somebody came back"


def test_a_ring_of_three_outlives_faults(tmp_path: Path) -> None:
    check(NAMES[:3], 4, 16, tmp_path)


@soak
@pytest.mark.timeout(0)
def test_a_ring_of_seven_outlives_two_minutes_of_faults(tmp_path: Path) -> None:
    check(NAMES, 10, 120, tmp_path)
