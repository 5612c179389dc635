"""A bank without a centre: each member holds an account, and money moves between them by actions,
all or nothing, while members are killed and come back. The total never changes.

python examples/bank.py                  five members here, one or two killed every other second
python examples/bank.py ann              one of them: run bob, cay, dan and eve in other terminals,
                                         three at least, for a majority of the five goes on
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import unisono
from unisono.services.actions import (
    Aborted,
    Action,
    Actions,
    Committed,
    Last,
    Participant,
    Uncertain,
)

NAMES = ("ann", "bob", "cay", "dan", "eve")
COINS = 100


class Accounts(Participant):
    """Every member keeps the whole table; only the holder of an account votes on it.

    The holder also keeps its own account on its disk (`keep`). When it comes back, what it kept is
    behind by one action at most, and the group tells it which."""

    def __init__(
        self, name: str, coins: dict[str, int], kept: bytes, keep: Callable[[bytes], None]
    ) -> None:
        self.name = name
        self.bank = ""
        self.coins = dict(coins)
        self.differed = ""
        self._kept = kept
        self._keep = keep

    @property
    def total(self) -> int:
        return sum(self.coins.values())

    def begin(self, origin: str) -> None:
        self.bank = origin
        self._put("")

    def prepare(self, action: Action) -> str:
        try:
            moved = {name: int(each) for name, each in action.operations.items()}
        except ValueError:
            return "that is no number of coins"
        if sum(moved.values()):
            return "coins would appear or vanish"
        if self.name not in self.coins:
            return "no account here"
        if self.coins[self.name] + moved[self.name] < 0:
            return f"only {self.coins[self.name]} coins"
        return ""

    def commit(self, action: Action) -> None:
        for name, moved in action.operations.items():
            self.coins[name] += int(moved)
        if self.name in action.operations:
            self._put(action.key)

    def snapshot(self) -> bytes:
        return json.dumps([self.bank, self.coins]).encode()

    def restore(self, state: bytes, last: Last | None) -> None:
        self.bank, self.coins = json.loads(state)
        bank, coins, key = json.loads(self._kept) if self._kept else ("", 0, "")
        if self._kept and bank == self.bank:  # and not of one that is gone with all its members
            if last is not None and last.key != key and isinstance(last.outcome, Committed):
                coins += int(last.operation)  # decided while we were down
            if coins != self.coins[self.name]:
                self.differed = f"{self.name} kept {coins} coins, not {self.coins[self.name]}"
        self._put(last.key if last is not None else "")

    def _put(self, key: str) -> None:
        self._kept = json.dumps([self.bank, self.coins.get(self.name, 0), key]).encode()
        self._keep(self._kept)


# -- one member ------------------------------------------------------------------------------------


def report(kind: str, **facts: Any) -> None:
    print(json.dumps({"kind": kind, **facts}), flush=True)


class ReportingAccounts(Accounts):
    """Accounts that report what happens."""

    def commit(self, action: Action) -> None:
        super().commit(action)
        report("done", key=action.key, total=self.total)

    def abort(self, action: Action, reason: str) -> None:
        report("undone", key=action.key, why=reason)

    def restore(self, state: bytes, last: Last | None) -> None:
        super().restore(state, last)
        report("restored", total=self.total, last=last and last.key, differed=self.differed)


async def move(actions: Actions, pace_s: float) -> None:
    """Move some coins from anybody to anybody, again and again."""
    while True:
        giver, taker = random.sample(NAMES, 2)
        coins = random.randint(1, COINS // 2)
        try:
            outcome = await actions.run({giver: b"%d" % -coins, taker: b"%d" % coins})
        except Uncertain as error:
            report("uncertain", why=str(error))
            continue
        except unisono.Stopped as stop:
            report("stopped", why=stop.reason)
            return
        how = outcome.reason if isinstance(outcome, Aborted) else "done"
        report("moved", giver=giver, taker=taker, coins=coins, how=how, longest_s=actions.longest_s)
        await asyncio.sleep(pace_s * random.random())


async def watch(actions: Actions) -> None:
    """Report each view, and when it came; the clock is the same for all processes here."""
    reported = None
    while True:
        with contextlib.suppress(unisono.Stopped):
            if (view := actions.group.view) is not reported:
                reported = view
                report("view", members=[str(each) for each in view.members], at_s=time.monotonic())
        await asyncio.sleep(0.005)


async def obey(actions: Actions, accounts: Accounts, moving: asyncio.Task[None]) -> None:
    """Words on standard input, to its end: `quiet`, `table`, `leave`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while (line := await reader.readline()) and (word := line.decode().strip()) != "leave":
        if word == "quiet":
            moving.cancel()
        elif word == "table":
            table = {"coins": accounts.coins, "open": len(actions.open())}
            report("table", **table, longest_s=actions.longest_s, counters=actions.counters())


async def member(name: str, port: int, disk: str, pace_s: float) -> None:
    path = Path(disk, f"{name}.json") if disk else None

    def keep(kept: bytes) -> None:
        if path is not None:
            path.with_suffix(".new").write_bytes(kept)
            path.with_suffix(".new").replace(path)

    kept = path.read_bytes() if path is not None and path.exists() else b""
    accounts = ReportingAccounts(name, dict.fromkeys(NAMES, COINS), kept, keep)
    stable = str(Path(disk, f"{name}.ring")) if disk else ""
    async with Actions(accounts).join(
        "bank", name=name, protocol="ring", sites=len(NAMES), port=port, stable=stable, join_s=30
    ) as actions:
        report("joined", me=str(actions.group.me))
        moving = asyncio.create_task(move(actions, pace_s))
        watching = asyncio.create_task(watch(actions))
        await obey(actions, accounts, moving)
        moving.cancel()
        watching.cancel()


# -- all of them, killed at random -----------------------------------------------------------------


class Child:
    """A member's process, and what it has reported."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self.process = name, process
        self.reports: list[dict[str, Any]] = []
        self.killed_s = 0.0
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # killed amid a line
                self.reports.append(json.loads(line))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.reports if each["kind"] == kind]

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())


async def until(done: Callable[[], Any], what: str, within_s: float = 60) -> None:
    for _ in range(int(within_s * 20)):
        if done():
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"not within {within_s:g} s: {what}")


class Bank:
    """The members' processes: those that run and those that were killed."""

    def __init__(self, arguments: list[str], disk: str, show: Callable[[str], None]) -> None:
        self._arguments, self._disk = arguments, disk
        self.show = show
        self.children: list[Child] = []
        self.now: dict[str, Child] = {}
        self.kills = 0

    async def start(self, name: str) -> None:
        command = [__file__, name, *self._arguments, "--disk", self._disk]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=pipe, stdout=pipe
        )
        self.now[name] = Child(name, process)
        self.children.append(self.now[name])

    async def wait_for(self, name: str, kind: str) -> None:
        child = self.now[name]
        done = lambda: child.of(kind) or child.process.returncode is not None  # noqa: E731
        await until(done, f"{name} {kind}")
        if child.process.returncode is not None:
            raise SystemExit(f"{name} ended before it was {kind}")

    async def kill(self, name: str) -> None:
        self.now[name].killed_s = time.monotonic()
        self.now[name].process.kill()
        await self.now[name].process.wait()
        await self.now[name].reading
        self.kills += 1
        self.show(f"killed {name}")

    async def settled(self) -> list[dict[str, Any]]:
        """Until nothing is open and all hold the same: the tables."""
        for _ in range(200):
            for child in self.now.values():
                child.order("table")
            await asyncio.sleep(0.2)
            tables = [child.of("table")[-1] for child in self.now.values() if child.of("table")]
            same = len({json.dumps(each["coins"], sort_keys=True) for each in tables}) == 1
            if same and len(tables) == len(NAMES) and not any(each["open"] for each in tables):
                return tables
        raise SystemExit(f"they do not come to the same: {tables}")

    async def end(self) -> None:
        for child in self.now.values():
            if child.process.returncode is None:
                child.process.kill()
                await child.process.wait()


async def kill_at_random(bank: Bank, seconds: float, every_s: float, count: int) -> None:
    """A member dies by SIGKILL, is away for a while, and comes back."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(every_s * random.uniform(0.5, 1.5))
        names = random.sample(NAMES, random.randint(1, count))
        for name in names:
            await bank.kill(name)
        await asyncio.sleep(random.uniform(0, every_s))
        for name in names:
            await bank.start(name)
        for name in names:
            await bank.wait_for(name, "restored")
            last = bank.now[name].of("restored")[0]["last"]
            bank.show(f"{name} is back; it last agreed to {last}")


def reformed_s(bank: Bank) -> float:
    """The longest that it took until a member had a view without one that was killed."""
    longest = 0.0
    for gone in (child for child in bank.children if child.killed_s and child.of("joined")):
        who = gone.of("joined")[0]["me"]
        for child in bank.children:
            views = child.of("view")
            knew = [each for each in views if who in each["members"]]
            after = [each["at_s"] for each in views if knew and each["at_s"] > knew[-1]["at_s"]]
            if after and child is not gone:
                longest = max(longest, after[0] - gone.killed_s)
    return longest


def judged(bank: Bank, tables: list[dict[str, Any]], disk: str) -> dict[str, Any]:
    """What happened, and what was wrong with it."""
    outcomes: dict[str, set[str]] = {}
    wrong = []
    for child in bank.children:
        for each in (*child.of("done"), *child.of("undone")):
            outcomes.setdefault(each["key"], set()).add(each["kind"])
        wrong += [each["differed"] for each in child.of("restored") if each["differed"]]
        wrong += [f"{child.name} stopped: {each['why']}" for each in child.of("stopped")]
    total = len(NAMES) * COINS
    totals = {
        each["total"]
        for child in bank.children
        for each in (*child.of("done"), *child.of("restored"))
    }
    purses = sum(json.loads(Path(disk, f"{name}.json").read_bytes())[1] for name in NAMES)
    if totals != {total} or sum(tables[0]["coins"].values()) != total:
        wrong.append(f"the totals were {totals}, not {total}")
    if purses != total:
        wrong.append(f"{purses} coins on the disks, not {total}")
    wrong += [f"{key} ended both ways" for key, ways in outcomes.items() if len(ways) > 1]
    ends = Counter(next(iter(ways)) for ways in outcomes.values())
    moved = [each for child in bank.children for each in child.of("moved")]
    return {
        "kills": bank.kills,
        "done": ends["done"],
        "undone": ends["undone"],
        "failed": sum("failed before" in each["how"] for each in moved),
        "longest_s": round(max(each["longest_s"] for each in moved), 3),
        "reformed_s": round(reformed_s(bank), 3),
        "total": sum(tables[0]["coins"].values()),
        "coins": tables[0]["coins"],
        "wrong": wrong,
    }


async def direct(options: argparse.Namespace) -> int:
    arguments = ["--port", str(options.port), "--pace-s", str(options.pace_s)]
    with tempfile.TemporaryDirectory() as disk:
        bank = Bank(arguments, disk, (lambda text: None) if options.json else print)
        try:
            for name in NAMES:
                await bank.start(name)
            for name in NAMES:
                await bank.wait_for(name, "joined")
            await kill_at_random(bank, options.seconds, options.every_s, options.at_once)
            for child in bank.now.values():
                child.order("quiet")
            found = judged(bank, await bank.settled(), disk)
        finally:
            await bank.end()
    if options.json:
        print(json.dumps(found))
    else:
        print(
            "{kills} kills; {done} transfers done, {undone} not, {failed} because somebody failed; "
            "the longest took {longest_s} s, the longest reformation {reformed_s} s; "
            "{total} coins: {coins}".format(**found)
        )
        print("\n".join(f"wrong: {each}" for each in found["wrong"]) or "nothing was wrong")
    return 1 if found["wrong"] else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--port", type=int, default=7411)
    parser.add_argument("--disk", default="", help="where a member keeps its own account")
    parser.add_argument("--pace-s", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--every-s", type=float, default=2)
    parser.add_argument("--at-once", type=int, default=2, help="so many are killed together")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.name:
        try:
            asyncio.run(member(options.name, options.port, options.disk, options.pace_s))
        except unisono.UnisonoError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    return asyncio.run(direct(options))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
