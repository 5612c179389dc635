"""`unisono demo`: a group of real processes, one killed and back, with the trace verified."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from unisono.cli import BROKEN, OK, STOPPED, refuse, terminable
from unisono.cli.members import DemoCluster
from unisono.cli.pipeline import claimed_in, measured, measures
from unisono.cli.show import out, print_json, print_violations, verdicts
from unisono.cli.verify import as_object, claims
from unisono.errors import Misuse, check_option_names
from unisono.laws.columnar import judge_trace
from unisono.processes import RunFailed, wait_for
from unisono.protocols import spec
from unisono.sim.plan import node_name
from unisono.spec import ProtocolSpec

if TYPE_CHECKING:
    from unisono.spark.pipeline import PipelineResult

LINES_A_ROUND, ROUND_S = 10, 0.1
"""Each member sends 100 lines a second."""
QUIET_S, SETTLE_S, END_S = 0.7, 60.0, 60.0
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
    chosen = spec(protocol)
    check_option_names(chosen.name, options, chosen.options)
    trace = prepare(directory)
    names = [node_name(index) for index in range(members)]
    log = StepLog(Console(quiet=True) if as_json else out())
    log.console.print(
        f"[bold]unisono demo[/]  {members} members of a group, protocol [bold]{protocol}[/],"
        " on this machine"
    )
    try:
        with terminable():
            played = play(chosen, options, names, seconds, trace, stable, log)
    except RunFailed as failure:
        return refuse(f"the demo failed: {failure} (the trace so far is in {trace})", STOPPED)
    found, kept = verify(trace, log)
    on_spark = with_spark(trace, directory, log) if spark else None
    if as_json:
        measured_there = {"measures": on_spark.measures} if on_spark else {}
        print_json({"demo": played, **found} | measured_there)
    return OK if kept and (on_spark is None or on_spark.kept) else BROKEN


def prepare(directory: Path) -> Path:
    """An empty directory: new, or cleared of a former demo."""
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


# -- output --------------------------------------------------------------------------------------


@dataclass
class StepLog:
    """One line per step, with the time since the start."""

    console: Console
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner while it lasts, then one line, which the yielded function replaces."""
        result = text
        spinner = self.console.status(f"{text} …") if self.console.is_terminal else None

        def becomes(better: str) -> None:
            nonlocal result
            result = better
            if spinner is not None:
                spinner.update(f"{better} …")

        with spinner or nullcontext():
            yield becomes
        passed_s = time.perf_counter() - self.began
        self.console.print(f"[dim]{passed_s:5.1f} s[/]  {result}")


# -- the run -------------------------------------------------------------------------------------


def play(
    chosen: ProtocolSpec,
    options: Mapping[str, int],
    names: list[str],
    seconds: float,
    trace: Path,
    stable: bool,
    log: StepLog,
) -> dict[str, Any]:
    victim, others = names[-1], names[:-1]
    with DemoCluster(chosen, options, names, trace, stable) as cluster:
        way = "multicast on loopback" if cluster.multicast else "a list of peers on loopback"
        with log.step(f"{len(names)} processes start") as becomes:
            for name in names:
                cluster.start(name)
            cluster.until(lambda: cluster.all_see(names), SETTLE_S, "all in one view")
            becomes(f"{len(names)} processes see each other, by {way}: {' '.join(names)}")
        with log.step("all send") as becomes:
            count, _ = send(cluster, seconds / 3)
            becomes(f"all send: {count:,} messages")
        lost = cluster.members.pop(victim)
        lost.process.kill()
        with log.step(f"[red]{victim} is killed[/] (SIGKILL), the others continue") as becomes:
            more, took = send(cluster, seconds / 3, lambda: cluster.all_see(others))
            if took is None:
                left_s = SETTLE_S - seconds / 3
                excluded = f"a view without {victim}"
                took = seconds / 3 + cluster.until(
                    lambda: cluster.all_see(others), left_s, excluded
                )
            count += more
            becomes(
                f"[red]{victim} is killed[/] (SIGKILL): out of everyone's view after {took:.1f} s,"
                " the others continue"
            )
        with log.step(f"[green]{victim} comes back[/]") as becomes:
            cluster.start(victim)
            took = cluster.until(lambda: cluster.all_see(names), SETTLE_S, f"{victim} back in")
            count += send(cluster, seconds / 3)[0]
            becomes(f"[green]{victim} comes back[/] as a new incarnation within {took:.1f} s")
        if cluster.parts:
            border = len(names) // 2 + 1
            count += part_and_merge(cluster, names[:border], names[border:], seconds / 3, log)
            others = names[:border]
        with log.step("all finish and leave") as becomes:
            settle(cluster)
            same = compare(cluster, others)
            leave(cluster)
            deliveries = sum(len(each.delivered) for each in (lost, *cluster.members.values()))
            becomes(
                f"all finish and leave: {deliveries:,} deliveries;"
                f" {', '.join(others)} delivered the same {same:,} messages"
            )
    return {"members": names, "killed": victim, "said": count, "heard": deliveries, "same": same}


def part_and_merge(
    cluster: DemoCluster, here: list[str], there: list[str], seconds: float, log: StepLog
) -> int:
    """The network is cut, both sides go on and send, and it heals; how many messages."""
    with log.step("[red]the network is cut[/]") as becomes:
        cluster.part(here, there)
        count, took = send(cluster, seconds, lambda: cluster.all_see(here, there))
        if took is None:
            took = seconds + cluster.until(
                lambda: cluster.all_see(here, there), SETTLE_S, "a view of each side"
            )
            count += send(cluster, seconds)[0]
        becomes(
            f"[red]the network is cut[/] between {' '.join(here)} and {' '.join(there)}: a view of"
            f" each side after {took:.1f} s, and both go on"
        )
    with log.step("[green]the network is whole again[/]") as becomes:
        cluster.part((*here, *there))
        took = cluster.until(lambda: cluster.all_see((*here, *there)), SETTLE_S, "one view of all")
        count += send(cluster, seconds)[0]
        becomes(f"[green]the network is whole again[/]: the sides merge within {took:.1f} s")
    return count


def send(
    cluster: DemoCluster, seconds: float, seen: Callable[[], bool] | None = None
) -> tuple[int, float | None]:
    """All members send; how many messages, and after how many seconds `seen()` was true."""
    began_s, count, took_s = time.monotonic(), 0, None
    while (passed_s := time.monotonic() - began_s) < seconds:
        for name, member in cluster.members.items():
            start = member.sent_count
            member.send([f"{name} says {start + n + 1}" for n in range(LINES_A_ROUND)])
            count += LINES_A_ROUND
        cluster.check()
        if seen is None or took_s is not None:
            time.sleep(ROUND_S)
        elif wait_for(seen, ROUND_S):
            took_s = time.monotonic() - began_s
            time.sleep(max(0.0, passed_s + ROUND_S - took_s))
    return count, took_s


def settle(cluster: DemoCluster) -> None:
    """Wait until no member has delivered anything for a while."""
    end_s = time.monotonic() + SETTLE_S

    def delivered() -> int:
        cluster.check()
        return sum(len(member.delivered) for member in cluster.members.values())

    def more() -> bool:
        return delivered() > count

    count = delivered()
    while wait_for(more, QUIET_S):
        count = delivered()
        if time.monotonic() > end_s:
            raise RunFailed(f"the members still deliver {SETTLE_S:g} s after the last line")


def compare(cluster: DemoCluster, names: list[str]) -> int:
    """How many messages each of these delivered; they were members throughout."""
    delivered = [Counter(cluster.members[name].delivered) for name in names]
    if any(each != delivered[0] for each in delivered):
        counts = ", ".join(
            f"{name} {each.total()}" for name, each in zip(names, delivered, strict=True)
        )
        raise RunFailed(f"the members that stayed delivered different messages: {counts}")
    return delivered[0].total()


def leave(cluster: DemoCluster) -> None:
    """One after another, in reverse order: the others may depend on the roles of the first."""
    for _, member in sorted(cluster.members.items(), reverse=True):
        member.process.close_input()
        if member.process.wait(END_S):
            raise member.process.failure()


# -- the result ----------------------------------------------------------------------------------


def verify(trace_dir: Path, log: StepLog) -> tuple[dict[str, Any], bool]:
    with log.step("the laws are checked") as becomes:
        runs = judge_trace(trace_dir, claims)
        found = as_object(runs)
        becomes(f"the laws are checked on {found['events']:,} events of the trace")
    for run in runs.values():
        log.console.print(verdicts(run.verdict.laws))
        print_violations(log.console, run.verdict.violations)
    return found, all(run.verdict.kept for run in runs.values())


def with_spark(trace_dir: Path, directory: Path, log: StepLog) -> PipelineResult | None:
    try:
        with log.step("Spark starts") as becomes:
            laws = claimed_in(trace_dir)
            result = measured(trace_dir, directory, laws, "local[*]", becomes)
            becomes(f"the same laws and the measures on Spark: {_counted(result)}")
    except Misuse as why:
        log.console.print(f"[yellow]without Spark: {escape(str(why))}[/]")
        return None
    log.console.print(measures(result.measures))
    log.console.print(f"open [bold]{escape(str(result.report))}[/] in a browser")
    return result


def _counted(result: PipelineResult) -> str:
    count = Counter(how for verdict in result.verdicts.values() for how in verdict.laws.values())
    return f"{count['kept']} kept, {count['broken']} broken"
