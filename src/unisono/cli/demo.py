"""`unisono demo`: a group of real processes, one killed and back, and proof of what they heard."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from unisono.cli import BROKEN, OK, STOPPED, TERMINATED, refuse
from unisono.cli.pipeline import claimed_in, measured, measures
from unisono.cli.show import out, print_json, print_violations, verdicts
from unisono.cli.troupe import Trouble, Troupe
from unisono.cli.verify import as_object, claims
from unisono.core import Offer
from unisono.errors import Misuse
from unisono.laws import LAWS, judge_all
from unisono.protocols import offer
from unisono.sim.plan import node_name
from unisono.trace.files import read_trace

if TYPE_CHECKING:
    from unisono.spark.pipeline import Result

LINES_A_ROUND, ROUND_S = 10, 0.1
"""Each member says so many lines, so often: 100 a second."""
QUIET_S, SETTLE_S = 0.7, 60.0
MARKER = ".unisono-demo"


def show(
    protocol: str,
    options: Mapping[str, int],
    directory: Path,
    members: int,
    seconds: float,
    spark: bool,
    stable: bool,
    as_json: bool,
) -> int:
    chosen = offer(protocol)  # an unknown one is told before anything is touched
    if unknown := sorted(options.keys() - chosen.options.keys()):
        known = ", ".join(sorted(chosen.options)) or "none"
        raise Misuse(f"{protocol} has no option {unknown[0]!r}; it has: {known}")
    trace = prepare(directory)
    names = [node_name(index) for index in range(members)]
    told = Told(Console(quiet=True) if as_json else out())
    told.say(
        f"[bold]unisono demo[/]  {members} members of a group, protocol [bold]{protocol}[/],"
        " on this machine"
    )
    try:
        played = asyncio.run(play(chosen, options, names, seconds, trace, stable, told))
    except asyncio.CancelledError:
        return TERMINATED
    except Trouble as trouble:
        return refuse(f"the demo failed: {trouble} (what was traced is in {trace})", STOPPED)
    found, kept = verify(trace, told)
    on_spark = with_spark(trace, directory, told) if spark else None
    if as_json:
        measured_there = {"measures": on_spark.measures} if on_spark else {}
        print_json({"demo": played, **found} | measured_there)
    return OK if kept and (on_spark is None or on_spark.kept) else BROKEN


def prepare(directory: Path) -> Path:
    """An empty directory: new, or one that a former demo filled."""
    marker = directory / MARKER
    try:
        if marker.exists():
            shutil.rmtree(directory)
        elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Misuse(f"{directory} is not from a demo: give another place with --out")
        directory.mkdir(parents=True, exist_ok=True)
        marker.write_text("Made by `unisono demo`, which may replace it.\n")
    except OSError as error:
        raise Misuse(f"cannot write {directory}: {error.strerror}; give --out another") from None
    return directory / "trace"


# -- telling -------------------------------------------------------------------------------------


@dataclass
class Told:
    """The story so far: one line a step, with the time it took."""

    console: Console
    began: float = field(default_factory=time.perf_counter)

    def say(self, words: str) -> None:
        self.console.print(words)

    @contextmanager
    def step(self, words: str) -> Iterator[Callable[[str], None]]:
        """A sign that moves while it lasts, then one line with what came of it."""
        result = words

        moving = self.console.status(f"{words} …") if self.console.is_terminal else None

        def becomes(better: str) -> None:
            nonlocal result
            result = better
            if moving is not None:
                moving.update(f"{better} …")

        with moving or nullcontext():
            yield becomes
        passed_s = time.perf_counter() - self.began
        self.console.print(f"[dim]{passed_s:5.1f} s[/]  {result}")


# -- the play ------------------------------------------------------------------------------------


async def play(
    chosen: Offer,
    options: Mapping[str, int],
    names: list[str],
    seconds: float,
    trace: Path,
    stable: bool,
    told: Told,
) -> dict[str, Any]:
    victim, others = names[-1], names[:-1]
    if (me := asyncio.current_task()) is not None:
        # So that the members are ended too.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    async with Troupe(chosen, options, names, trace, stable) as troupe:
        way = "multicast on loopback" if troupe.multicast else "a list of peers on loopback"
        with told.step(f"{len(names)} processes start") as becomes:
            for name in names:
                await troupe.enter(name)
            await troupe.until(lambda: _together(troupe, names), SETTLE_S, "all in one view")
            becomes(f"{len(names)} processes see each other, by {way}: {' '.join(names)}")
        with told.step("all talk") as becomes:
            count = await talk(troupe, seconds / 3)
            becomes(f"all talk: {count:,} messages said")
        await troupe.players[victim].kill()
        lost = troupe.players.pop(victim)
        with told.step(f"[red]{victim} is killed[/] (SIGKILL), the others talk on") as becomes:
            talking = asyncio.create_task(talk(troupe, seconds / 3))
            took = await troupe.until(
                lambda: troupe.all_see(others), SETTLE_S, f"a view without {victim}"
            )
            count += await talking
            becomes(
                f"[red]{victim} is killed[/] (SIGKILL): out of everyone's view after {took:.1f} s,"
                " the others talk on"
            )
        with told.step(f"[green]{victim} comes back[/]") as becomes:
            await troupe.enter(victim)
            took = await troupe.until(
                lambda: _together(troupe, names), SETTLE_S, f"{victim} back in"
            )
            count += await talk(troupe, seconds / 3)
            becomes(f"[green]{victim} comes back[/] as a new incarnation within {took:.1f} s")
        with told.step("all fall quiet and leave") as becomes:
            await settle(troupe)
            same = compare(troupe, others)
            await leave(troupe)
            heard = sum(len(each.heard) for each in (lost, *troupe.players.values()))
            becomes(
                f"all fall quiet and leave: {heard:,} deliveries;"
                f" {', '.join(others)} heard the same {same:,} messages"
            )
    return {"members": names, "killed": victim, "said": count, "heard": heard, "same": same}


def _together(troupe: Troupe, names: list[str]) -> bool:
    troupe.check()
    return troupe.all_see(names)


async def talk(troupe: Troupe, seconds: float) -> int:
    """Everyone present says something, again and again."""
    loop = asyncio.get_running_loop()
    end, count = loop.time() + seconds, 0
    while loop.time() < end:
        for player in troupe.present():
            start = player.said_count
            await player.say([f"{player.name} says {start + n + 1}" for n in range(LINES_A_ROUND)])
            count += LINES_A_ROUND
        troupe.check()
        await asyncio.sleep(ROUND_S)
    return count


async def settle(troupe: Troupe) -> None:
    """Until nobody has heard anything new for a while."""
    loop = asyncio.get_running_loop()
    end, before, since = loop.time() + SETTLE_S, -1, loop.time()
    while loop.time() - since < QUIET_S:
        troupe.check()
        heard = sum(len(player.heard) for player in troupe.players.values())
        if heard != before:
            before, since = heard, loop.time()
        if loop.time() > end:
            raise Trouble(f"the members are not quiet {SETTLE_S:g} s after the last line")
        await asyncio.sleep(0.05)


def compare(troupe: Troupe, names: list[str]) -> int:
    """How many messages each of these heard: all were there from the first to the last."""
    heard = [Counter(troupe.players[name].heard) for name in names]
    if any(each != heard[0] for each in heard):
        counts = ", ".join(
            f"{name} {each.total()}" for name, each in zip(names, heard, strict=True)
        )
        raise Trouble(f"those that stayed did not hear the same: {counts} messages")
    return heard[0].total()


async def leave(troupe: Troupe) -> None:
    """One after another, so that each hands over what it has to those that stay. Those that came
    first go last: where a process has a role beforehand, the others may depend on it."""
    for player in sorted(troupe.players.values(), key=lambda each: each.name, reverse=True):
        player.finish()
        try:
            code = await player.ended()
        except TimeoutError:
            raise Trouble(f"member {player.name} does not end") from None
        if code:
            raise Trouble(f"member {player.name} left with {player.why}")


# -- what is left of it --------------------------------------------------------------------------


def verify(trace_dir: Path, told: Told) -> tuple[dict[str, Any], bool]:
    with told.step("the laws are checked") as becomes:
        trace = read_trace(trace_dir)
        verdict_of = judge_all(trace.histories(), claims)
        found = as_object(trace, verdict_of)
        becomes(f"the laws are checked on {trace.events:,} events of the trace")
    sentences = {name: law.sentence for name, law in LAWS.items()}
    for verdict in verdict_of.values():
        told.console.print(verdicts(verdict.laws, sentences))
        print_violations(told.console, verdict.violations)
    return found, all(verdict.kept for verdict in verdict_of.values())


def with_spark(trace_dir: Path, directory: Path, told: Told) -> Result | None:
    try:
        with told.step("Spark starts") as becomes:
            asked = claimed_in(trace_dir)
            result = measured(trace_dir, directory, asked, "local[*]", becomes)
            becomes(f"the same laws and the measures on Spark: {_counted(result)}")
    except Misuse as why:
        told.say(f"[yellow]without Spark: {escape(str(why))}[/]")
        return None
    told.console.print(measures(result.measures))
    told.say(f"open [bold]{escape(str(result.report))}[/] in a browser")
    return result


def _counted(result: Result) -> str:
    count = Counter(how for verdict in result.verdicts.values() for how in verdict.laws.values())
    return f"{count['kept']} kept, {count['broken']} broken"
