"""Walks every interleaving of the agreement protocol, in webs small enough to do so.

`explore(Case(...))` drives the real `Master`, `Producer` and `Consumer` breadth first through all
that can happen, and looks at the laws in every state. What it finds first is found shortest.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.mtp.explorer_laws import Laws
from tests.mtp.explorer_moves import NO_PROGRESS, Action
from tests.mtp.explorer_parts import DEAD, UP, Broken, Case, Member, bits
from tests.mtp.explorer_rows import HEAD, State
from tests.mtp.explorer_story import Story
from tests.mtp.explorer_web import Web

STATES_MAX = 20_000_000


class Rejoin(NamedTuple):
    """For want of what, and which failures there had been."""

    why: str
    run: int
    """The most messages in a row of which the holders failed."""
    failed: int
    """How many in all."""


@dataclass
class Verdict:
    """What an exploration found."""

    case: Case
    states: int = 0
    edges: int = 0
    ends: int = 0
    """States in which nothing more happens without a fault."""
    tokens_out: int = 0
    """The most tokens out in any state."""
    seconds: float = 0.0
    broken: Broken | None = None
    story: str = ""
    """The shortest way to the broken law, action by action."""
    rejoins: dict[Rejoin, str] = field(default_factory=dict)
    """Why connected members had to rejoin, and the shortest way there."""
    outcomes: set[tuple[object, ...]] = field(default_factory=set)
    """The outcome: what the master decided, and what the live members have delivered."""

    @property
    def law(self) -> str:
        return self.broken.law if self.broken else ""

    def least_run(self, why: str = "status") -> int | None:
        """The fewest holders failed in a row when a member had to rejoin; None: none had to."""
        return min((r.run for r in self.rejoins if r.why == why), default=None)

    def least_failed(self, why: str = "status") -> int | None:
        """The same, of failed holders in all."""
        return min((r.failed for r in self.rejoins if r.why == why), default=None)


def explore(case: Case, states_max: int = STATES_MAX) -> Verdict:
    """Walks the whole case, or up to the first broken law."""
    return Explorer(case, states_max).run()


class Explorer:
    """The walk: a queue of states, and of each how it was first reached."""

    def __init__(self, case: Case, states_max: int) -> None:
        self.web = Web(case)
        self.laws = Laws(self.web)
        self.verdict = Verdict(case)
        self._states_max = states_max
        self._states: list[State] = []
        self._seen: set[State] = set()
        self._parents = array("q")
        self._ways: list[Action] = []
        self._now: tuple[int, Action | None] = (0, None)

    def run(self) -> Verdict:
        began, verdict = time.perf_counter(), self.verdict
        rejoins: dict[Rejoin, tuple[int, Action]] = {}
        try:
            self._walk(rejoins)
        except Broken as broken:
            verdict.broken = broken
            verdict.story = self._story(*self._now, broken)
        verdict.rejoins = {key: self._story(*way) for key, way in sorted(rejoins.items())}
        verdict.states = len(self._states)
        verdict.tokens_out = max(desk.pending.bit_count() for desk in self.web.desks)
        verdict.seconds = time.perf_counter() - began
        return verdict

    def _walk(self, rejoins: dict[Rejoin, tuple[int, Action]]) -> None:
        web, laws, verdict, seen, states = (
            self.web,
            self.laws,
            self.verdict,
            self._seen,
            self._states,
        )
        alike = verdict.case.reduce
        counted = "AB-2" not in verdict.case.unchecked
        self._reach(web.start(), -1, ("start", 0, 0))
        for at, state in enumerate(states):
            self._now = at, None
            laws.check(state)
            weight, goes_on = laws.weight(state), False
            for action in web.actions(state):
                self._now = at, action
                after = web.apply(state, action)
                verdict.edges += 1
                if action[0] not in NO_PROGRESS:
                    goes_on = True
                    if laws.weight(after) <= weight and counted:
                        raise Broken("AB-2", "a step that may be repeated for ever")
                if action[0] == "rejoin":
                    self._note_rejoin(rejoins, state, at, action)
                if alike:
                    after = (*after[:HEAD], *sorted(after[HEAD:]))
                if after not in seen:
                    self._reach(after, at, action)
            if not goes_on:
                self._now = at, None
                self._note_end(state)

    def _reach(self, state: State, parent: int, action: Action) -> None:
        if len(self._states) == self._states_max:
            raise OverflowError(f"more than {self._states_max:,} states: {self.verdict.case}")
        self._seen.add(state)
        self._states.append(state)
        self._parents.append(parent)
        self._ways.append(action)

    def _note_rejoin(
        self,
        rejoins: dict[Rejoin, tuple[int, Action]],
        state: State,
        at: int,
        action: Action,
    ) -> None:
        row = state[HEAD + action[1]]
        if self.web.members[row].life == UP:
            desk = self.web.desks[state[0]]
            dead = [r for r in state[HEAD:] if self.web.members[r].life == DEAD]
            held = [at for r in dead for at in self.web.pending(state[0], r)]
            numbers = {self.web.parts.packets[at].number for at in held}
            failed = desk.rejected | sum(1 << number for number in numbers)
            why = self.web.view(row).stuck
            if why == "status" and not failed and self._is_law("MTP-7"):
                raise Broken("MTP-7", "a member has to rejoin, and no holder of a token failed")
            key = Rejoin(why, longest_run(failed), failed.bit_count())
            rejoins.setdefault(key, (at, action))

    def _is_law(self, law: str) -> bool:
        """Whether it is looked at; a hasty member, or one without the master's help, may rejoin."""
        case = self.web.case
        return law not in case.unchecked and case.by_master and not case.hasty

    def _note_end(self, state: State) -> None:
        self.verdict.ends += 1
        if self.web.case.hear:
            self.laws.at_rest(state)
        desk = self.web.desks[state[0]]
        members = (self.web.members[row] for row in state[HEAD:])
        self.verdict.outcomes.add((desk.accepted, desk.rejected, *sorted(map(ending, members))))

    def _story(self, at: int, last: Action | None, broken: Broken | None = None) -> str:
        actions = [] if last is None else [last]
        while self._parents[at] >= 0:
            actions.append(self._ways[at])
            at = self._parents[at]
        return Story(self.web).tell(reversed(actions), broken)


def ending(me: Member) -> tuple[object, ...]:
    return (me.life, me.lives, me.first, me.told) if me.life == UP else (me.life,)


def longest_run(mask: int) -> int:
    """The most numbers in a row of which the bits are set."""
    longest = run = 0
    before = -1
    for number in bits(mask):
        run = run + 1 if number == before + 1 else 1
        longest, before = max(longest, run), number
    return longest
