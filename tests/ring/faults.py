"""Every single fault at every state of every machine of the ring, in every role: what follows.

    python -m tests.ring.faults --rewrite

runs them all and writes `docs/RING-FAULTS.md`. A run is made twice: first to see when a process is
in a state and a role, then with the fault right after that instant. The same seed is the same run
up to there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from unisono.core import CoreConfig, Effect, Event
from unisono.protocols.ring import SPEC
from unisono.protocols.ring.core import Site
from unisono.protocols.ring.figures import COORDINATOR, RECEIVE, REFORMATION, SEND
from unisono.protocols.ring.packets import Version
from unisono.protocols.ring.ring import Ring
from unisono.protocols.ring.states import CoordinatorState, ReceiveState, ReformationState
from unisono.sim import FaultEvent, LinkPlan, Outcome, Plan, Weather, run
from unisono.sim.plan import CALM, node_name
from unisono.trace.history import History, message_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "RING-FAULTS.md"
FIGURES: Final = (SEND, RECEIVE, COORDINATOR, REFORMATION)
SIZES: Final = (5, 3)
SEED: Final = 7
MS: Final = 1000
WARM_US: Final = 350 * MS
"""By then a ring stands, and works."""
FAULT_US: Final = 2_600 * MS
"""By then the struck member has rejoined by itself, and the simulator has healed what it broke."""
MESSAGES: Final = 130
OPTIONS: Final = {
    "t_send_us": 2 * MS,
    "t_rt_us": 20 * MS,
    "tries": 12,
    "t_reform_us": 100 * MS,
    "t_ref_rt_us": 200 * MS,
    "t_ts_us": 30 * MS,
}
"""Set here, so that the page does not change with a default."""
SUSPECT_US: Final = OPTIONS["t_rt_us"] * OPTIONS["tries"]
"""A holder of the token that is silent for this long is suspected."""
SHORT_US: Final = SUSPECT_US // 3
LONG_US: Final = SUSPECT_US * 7
"""Long enough for the others to go on without it, whatever it was about to do."""

# -- the roles, the stories, the strikes ----------------------------------------------------------

MEMBER, HOLDER, P0 = "member", "holder", "coordinator"
CANDIDATE, FOLLOWER, WAITING, NEWCOMER = "candidate", "follower", "waiting", "newcomer"
ROLES: Final = {
    MEMBER: "on the ring; the token is elsewhere",
    HOLDER: "on the ring, and the token is here",
    P0: "first on the ring: it formed it, and lets others in; the token is elsewhere",
    CANDIDATE: "was on the ring; invites the others and forms the next",
    FOLLOWER: "was on the ring; has promised to follow a candidate",
    WAITING: "was on the ring; has stopped, and waits for an invitation",
    NEWCOMER: "has not been on a ring in this life yet, or has not got the state yet",
}


class Story(NamedTuple):
    """What goes on when the fault strikes."""

    words: str
    roles: tuple[str, ...]
    """Those that are looked for in it."""
    gaps: bool = False
    """What is looked for is Receive in RESEND; else it is everything but that."""
    from_us: int = WARM_US
    late: bool = False
    """The last node comes late."""
    paused: tuple[int, ...] = ()
    """These are paused first, and wake: the kernel does not report them dead."""
    link: LinkPlan = CALM

    @property
    def schedule(self) -> tuple[FaultEvent, ...]:
        return (FaultEvent("pause", WARM_US, LONG_US, self.paused),) if self.paused else ()


STORIES: Final = (
    Story("the group is founded", (NEWCOMER,), from_us=0),
    Story("the ring works", (MEMBER, HOLDER, P0)),
    Story("turns overtake", (MEMBER, P0), gaps=True, link=LinkPlan(spread_us=1500)),
    Story("one more joins", (NEWCOMER, CANDIDATE, FOLLOWER), late=True),
    Story("another was paused", (WAITING, CANDIDATE, FOLLOWER), paused=(2,)),
)


class Strike(NamedTuple):
    words: str
    kind: str
    for_us: int


STRIKES: Final = (
    Strike("killed", "crash", LONG_US),
    Strike("paused, short", "pause", SHORT_US),
    Strike("paused, long", "pause", LONG_US),
    Strike("cut off", "split", LONG_US),
)


# -- watching -------------------------------------------------------------------------------------


class Standing(NamedTuple):
    """The states of the four machines, and the role."""

    send: str
    receive: str
    coordinator: str
    reformation: str
    role: str

    def states(self) -> Iterator[tuple[str, str]]:
        """Each machine with its state."""
        names = (figure.name for figure in FIGURES)
        return zip(names, self[: len(FIGURES)], strict=True)


class Sight(NamedTuple):
    """A node in a standing, first at this time."""

    at_us: int
    node: int
    standing: Standing


class Watcher:
    """What the sites of one run were seen in."""

    def __init__(self, struck: Sight | None = None) -> None:
        self.sights: list[Sight] = []
        """Each standing that lasted beyond its instant."""
        self.met = False
        """The one that is struck was in its standing then."""
        self.rings: dict[Version, Ring] = {}
        """That were in force, in the order in which they were first seen."""
        self.before: tuple[Ring, int] | None = None
        """The highest ring before the fault, and the highest S on it."""
        self._struck = struck
        self._last: dict[str, Sight] = {}

    def see(self, now_us: int, site: Site) -> None:
        name = site.me.name
        last = self._last.get(name)
        if last is not None and last.at_us + 1 < now_us:
            self.sights.append(last)
        self._last[name] = sight = Sight(now_us, ord(name) - ord("a"), standing_of(site))
        self.met |= sight == self._struck
        if site.state.in_force:
            self.rings.setdefault(site.state.ring.version, site.state.ring)
            if self._struck is None or now_us <= self._struck.at_us:
                mine = (site.state.ring, site.ordering.S)
                known = self.before or mine
                self.before = max(known, mine, key=lambda each: (each[0].version, each[1]))

    def make(self, setting: CoreConfig) -> Site:
        site = Watched(setting)
        site.watcher = self
        return site


class Watched(Site):
    """A site whose states are recorded after each step."""

    watcher: Watcher

    def step(self, now_us: int, event: Event) -> list[Effect]:
        effects = super().step(now_us, event)
        self.watcher.see(now_us, self)
        return effects


def standing_of(site: Site) -> Standing:
    return Standing(
        site.send.state.name,
        site.receive.state.name,
        site.coordinator.state.name,
        site.reformation.state.name,
        _role_of(site),
    )


def _role_of(site: Site) -> str:
    if not site.delivery.has_view or not site.state.memory:
        return NEWCOMER
    if site.state.is_normal:
        if site.token.is_here():
            return HOLDER
        return P0 if site.state.ring.seats[0].member == site.me else MEMBER
    if site.coordinator.state is not CoordinatorState.INIT:
        return CANDIDATE
    return WAITING if site.reformation.state is ReformationState.INIT else FOLLOWER


# -- running --------------------------------------------------------------------------------------


def _run(
    nodes: int, story: Story, seed: int, faults: tuple[FaultEvent, ...], watcher: Watcher
) -> Outcome:
    weather = Weather(
        fault_us=FAULT_US,
        schedule=story.schedule + faults,
        starts_us=(0,) * (nodes - 1) + (WARM_US,) if story.late else (),
        link=story.link,
        burst_max=1,
        large_ppm=0,
    )
    spec = replace(SPEC, make=watcher.make)
    plan = Plan(protocol="ring", nodes=nodes, seed=seed, messages=MESSAGES, weather=weather)
    return run(replace(plan, spec=spec, options=OPTIONS))


class Case(NamedTuple):
    """Where a fault strikes; each kind of it does."""

    nodes: int
    story: Story
    seed: int
    sight: Sight

    @property
    def at_us(self) -> int:
        return self.sight.at_us + 1


@cache
def cases(nodes: int, story: Story, seed: int = SEED) -> tuple[Case, ...]:
    """The first time that each machine is seen in each state and role that the story looks for."""
    watcher = Watcher()
    calm = _run(nodes, story, seed, (), watcher)
    assert not calm.broken, f"{story.words}, seed {seed}: {calm.violations}"
    found: dict[tuple[str, str, str], Case] = {}
    for sight in sorted(watcher.sights):
        standing = sight.standing
        gap = standing.receive == ReceiveState.RESEND.name
        wanted = standing.role in story.roles and gap == story.gaps
        if wanted and sight.at_us >= story.from_us and sight.node not in story.paused:
            for machine, state in standing.states():
                found.setdefault((machine, state, standing.role), Case(nodes, story, seed, sight))
    return tuple(dict.fromkeys(found.values()))


class Happened(NamedTuple):
    """What followed."""

    broken: tuple[str, ...]
    """Laws, that all end in one ring among them."""
    again_us: int
    """From the fault until every survivor has delivered a message sent after it; -1 is never."""
    views: int
    """Different ones that were installed after the fault."""
    first: str
    """The member that formed the first of them."""
    same_life: bool


def strike(case: Case, how: Strike) -> Happened:
    node = case.sight.node
    others = tuple(each for each in range(case.nodes) if each != node)
    to = others if how.kind == "split" else ()
    event = FaultEvent(how.kind, case.at_us, how.for_us, (node,), to)
    watcher = Watcher(case.sight)
    outcome = _run(case.nodes, case.story, case.seed, (event,), watcher)
    assert watcher.met, "up to the fault it is the same run"
    history = outcome.history
    assert history is not None
    return Happened(
        outcome.broken,
        _again_us(case, history),
        _views(case, history),
        _first(case, watcher),
        _same_life(case, history),
    )


def _again_us(case: Case, history: History) -> int:
    away = {case.sight.node, *case.story.paused, *((case.nodes - 1,) if case.story.late else ())}
    waiting = {node_name(node) for node in range(case.nodes) if node not in away}
    late = [row for row in history.rows if row.t_us >= case.at_us]
    said = {message_of(row) for row in late if row.kind == "send"}
    for row in late:
        if row.kind == "deliver" and row.node in waiting and message_of(row) in said:
            waiting.discard(row.node)
            if not waiting:
                return row.t_us - case.at_us
    return -1


def _views(case: Case, history: History) -> int:
    rows = [row for row in history.rows if row.kind == "view"]
    return len({r.view for r in rows} - {r.view for r in rows if r.t_us < case.at_us})


def _first(case: Case, watcher: Watcher) -> str:
    """The member that formed the first ring after the fault, by its position on the one before."""
    before, s = watcher.before or (Ring(), 0)
    later = [ring for version, ring in watcher.rings.items() if version > before.version]
    if not later or later[0].leader is None:
        return ""
    name = later[0].leader.name
    if name == node_name(case.sight.node):
        return "itself"
    names = [member.name for member in before.members]
    if names and name == names[before.holder(s) - 1]:
        return "prior"
    return "P0" if names and name == names[0] else "another"


def _same_life(case: Case, history: History) -> bool:
    rows = [row for row in history.rows if row.node == node_name(case.sight.node)]
    then = max(row.incarnation for row in rows if row.t_us < case.at_us)
    return then == max(row.incarnation for row in rows)


# -- the page -------------------------------------------------------------------------------------

Results = Mapping[Case, tuple[Happened, ...]]
"""One for each kind of strike."""


def results(nodes: int, story: Story, seed: int = SEED) -> Results:
    found = cases(nodes, story, seed)
    return {case: tuple(strike(case, how) for how in STRIKES) for case in found}


class Row(NamedTuple):
    """A row of the table."""

    machine: str
    state: str
    role: str
    story: str
    cells: tuple[str, ...]

    def line(self) -> str:
        return f"| {' | '.join((*self[:4], *self.cells))} |"


def rows(told: Results) -> list[Row]:
    """By machine and state, as it was first seen. Machines that are in theirs at the same instant
    share a run."""
    found: dict[tuple[str, ...], Row] = {}
    for case, each in told.items():
        role, words, cells = case.sight.standing.role, case.story.words, tuple(map(cell, each))
        for machine, state in case.sight.standing.states():
            if not case.story.gaps or machine == RECEIVE.name:
                row = Row(machine, state, role, words, cells)
                found.setdefault(row[:4], row)
    return sorted(found.values(), key=_place)


def _place(row: Row) -> tuple[int, ...]:
    machines = {figure.name: figure for figure in FIGURES}
    states = [state.name for state in machines[row.machine].states()]
    stories = [story.words for story in STORIES]
    return (
        list(machines).index(row.machine),
        states.index(row.state),
        list(ROLES).index(row.role),
        stories.index(row.story),
    )


def cell(happened: Happened) -> str:
    if happened.broken:
        return f"**broken: {', '.join(happened.broken)}**"
    tens = -(-happened.again_us // (10 * MS)) * 10
    by = f" by {happened.first}" if happened.first else ""
    rings = {0: "no ring", 1: f"1 ring{by}"}.get(happened.views, f"{happened.views} rings, 1st{by}")
    return f"{tens} ms; {rings}; {'same' if happened.same_life else 'new'} life"


INTRODUCTION: Final = """# What a fault does to a ring

Generated by `python -m tests.ring.faults --rewrite`, by running each of them;
`tests/ring/test_faults.py` fails when a run ends otherwise than it says here. The protocol is in
[PROTOCOLS](PROTOCOLS.md#ring), what a simulated run is in [SIMULATION](SIMULATION.md).

A process of a ring is four machines, each in one of three states. Here one process is struck the
first time that it is seen in a state and a role, by one of four faults:

{strikes}

Messages are safe, and said by everyone all the time. A silent holder is asked {tries} times, every
{t_rt_ms} ms (`tries`, `t_rt_us`), so that it is suspected after {suspect_ms} ms: that is in most of
the times below. Those who have a new ring in hand ask as often, every {t_rsu_ms} ms (half of
`t_ref_rt_us`), whether it is in force, before they form another: that is in the times of `W_REF`.

| role | a process that |
|---|---|
{roles}

**Every run ends in one ring of all, with every law kept**, and no ring was in force that is not a
majority. A cell says three things:

- how long after the fault every survivor had delivered something that was said after it;
- how many rings were formed after the fault, those that take back who was struck or killed among
  them, and who formed the first: `itself`, the struck one; `prior`, the one before the holder of
  the token; `P0`, the first on the ring; or `another`;
- whether the struck process went on in the same life, or came back as a new incarnation.

Machines that are in their states at the same instant share a run, and so a cell. In `WAITACK` a
process has just spoken: its turn is under way, nobody has it yet, and the token is with the next,
so there is no `WAITACK` as holder. Who holds the token lacks no turn, so there is no `RESEND` as
holder. *Turns overtake* one another where delays differ more than turns take: that is what makes a
gap here.

Of a ring of three of which *another was paused*, one more fault leaves no majority: what is left
delivers nothing until one of the two is back. Nor where *one more joins* two of three: whom the
group does not know yet has no vote, so that one alone remembers.
"""


REAL: Final = """## Real processes

`make soak PROTOCOL=ring` does the like to processes of the operating system.

`tests/cli/test_ring_namespaces.py` puts seven members into seven network namespaces, and for two
minutes under load kills them, stops them (`SIGSTOP`) and cuts them off from each other (`nft`), ten
times, as a seed says (`UNISONO_SEED`). Then all heals, one view of seven comes about, and the
traces are verified: every law is kept, every view is a majority and all of them stand in one row,
and whatever any life has delivered as safe, every member that lives has delivered, from its first
view on. A ring of three is so treated in every run of the tests.

`tests/cli/test_ring_holder.py` kills the holder of the token in a ring of three under load. Seen
from outside the token is gone before the signal comes, so the process kills itself, by `SIGKILL`,
in the step that brought it the token, before anything of that step has left. What is measured is
the time without a delivery at the slower of the two that are left, twenty times. Two cores
that others used too gave a median of 854 ms (843 to 868) with the preset `lan`, of which 800 are
the suspicion, and of 81 ms (72 to 89) with `loopback`, of which 60 are.
"""


def page(told: Mapping[int, list[Row]]) -> str:
    strikes = [
        f"- *killed*: it comes back after {LONG_US // MS} ms, as a new incarnation;",
        f"- *paused, short*: for {SHORT_US // MS} ms, less than it takes to be suspected;",
        f"- *paused, long*: for {LONG_US // MS} ms; it goes on believing that nothing happened;",
        f"- *cut off*: nothing reaches it or leaves it for {LONG_US // MS} ms.",
    ]
    parts = [
        INTRODUCTION.format(
            strikes="\n".join(strikes),
            suspect_ms=SUSPECT_US // MS,
            tries=OPTIONS["tries"],
            t_rt_ms=OPTIONS["t_rt_us"] // MS,
            t_rsu_ms=OPTIONS["t_ref_rt_us"] // MS // 2,
            roles="\n".join(f"| {role} | {words} |" for role, words in ROLES.items()),
        )
    ]
    head = ["machine", "state", "as", "while", *(how.words for how in STRIKES)]
    for nodes, table in told.items():
        lines = (row.line() for row in table)
        parts.append(f"## A ring of {nodes}\n")
        parts.append("\n".join((f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines)))
        parts.append("")
    return "\n".join((*parts, REAL))


def read_page(text: str) -> dict[int, list[Row]]:
    """The tables of the page again."""
    found: dict[int, list[Row]] = {}
    for line in text.splitlines():
        if line.startswith("## A ring of "):
            found[int(line.split()[-1])] = []
        words = [word.strip() for word in line.strip("|").split("|")]
        if found and len(words) == 4 + len(STRIKES) and words[0] in {f.name for f in FIGURES}:
            machine, state, role, story, *cells = words
            found[list(found)[-1]].append(Row(machine, state, role, story, tuple(cells)))
    return found


def outcome(cell: str) -> str:
    """A cell without its time."""
    return cell.partition("; ")[2]


def _rows_of(work: tuple[int, Story]) -> list[Row]:
    return rows(results(*work))


def everything(jobs: int) -> dict[int, list[Row]]:
    todo = [(nodes, story) for nodes in SIZES for story in STORIES]
    found: dict[int, list[Row]] = {nodes: [] for nodes in SIZES}
    with ProcessPoolExecutor(jobs) as pool:
        for (nodes, _), each in zip(todo, pool.map(_rows_of, todo), strict=True):
            found[nodes].extend(each)
    return {nodes: sorted(each, key=_place) for nodes, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fault does to a ring, by running it.")
    parser.add_argument("--rewrite", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    text = page(everything(asked.jobs))
    if asked.rewrite:
        PAGE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
