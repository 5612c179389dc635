"""Every interleaving of a small group's reformations, over the real classes of `agreement`.

Sites order timestamps in turn, receive them one by one or never, and any of them may begin
reformations at any time. A packet may arrive at any later time, or never, so crashes, losses and
cuts need no actions of their own: a site that does nothing more is dead, or cut off. In every state
the laws hold, and any quorum that is left alone together can end it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

from unisono.core import Cause
from unisono.protocols.rmp.agreement import (
    NO_BALLOT,
    Attempt,
    NewList,
    ReformBallot,
    Slave,
    SyncPoint,
)
from unisono.protocols.rmp.quorums import ViewQuorums
from unisono.protocols.rmp.resilience import Resilience


@dataclass(frozen=True)
class Case:
    """A group, how far its order goes, and its reform sites."""

    changes: tuple[tuple[int, frozenset[int]], ...]
    """By timestamp, the view that it makes; the first is the stable one, at 0."""
    timestamps: int
    reformers: tuple[ReformBallot, ...]
    """The attempts that may be made, each at most once."""

    def sites(self) -> frozenset[int]:
        return frozenset().union(*(members for _, members in self.changes))

    def enough(self, state: State) -> Iterator[frozenset[int]]:
        """Those that may be alive when the others have crashed or are cut off: a quorum by all
        that anybody knows."""
        most = self.quorums(max(known.held for _, known in state.sites))
        sites = sorted(self.sites())
        for count in range(1, len(sites) + 1):
            for alive in map(frozenset, combinations(sites, count)):
                if most.has_majority(alive):
                    yield alive

    def quorums(self, held: int) -> ViewQuorums:
        first, *rest = self.changes
        known = ViewQuorums.of(*first)
        for timestamp, members in rest:
            if timestamp <= held:
                known = known.changed(timestamp, members)
        return known


class SiteState(NamedTuple):
    held: int = 0
    passed: int = 0
    """It sent an ACK with this timestamp, or took part in one: it holds everything up to it."""
    promised: ReformBallot = ReformBallot(0, 0)
    accepted: tuple[ReformBallot, NewList] | None = None


class AttemptState(NamedTuple):
    answered: tuple[tuple[int, SyncPoint], ...] = ()
    """Once there is a proposal, those on which it stands."""
    proposal: NewList | None = None
    accepted: frozenset[int] = frozenset()
    """Decided as soon as they are a quorum, though nobody knows it yet."""


class State(NamedTuple):
    ordered: int
    sites: tuple[tuple[int, SiteState], ...]
    attempts: tuple[tuple[ReformBallot, AttemptState], ...]
    resilient: int = 0
    """Up to here the order was reported as resilient to a majority, or shown, by somebody."""


class Broken(AssertionError):
    """A law does not hold in a state that can be reached."""


def start(case: Case) -> State:
    sites = tuple((site, SiteState()) for site in sorted(case.sites()))
    return State(0, sites, tuple((ballot, AttemptState()) for ballot in case.reformers))


def successors(case: Case, state: State) -> Iterator[tuple[str, State]]:
    for site, known in state.sites:
        yield from _ordering(case, state, site, known)
    for ballot, attempt in state.attempts:
        yield from _reforming(case, state, ballot, attempt)


def _ordering(case: Case, state: State, site: int, known: SiteState) -> Iterator[tuple[str, State]]:
    free = known.promised == NO_BALLOT
    members = case.quorums(known.held).members
    turn = sorted(members)[state.ordered % len(members)] if members else None
    if free and known.held == state.ordered < case.timestamps and site == turn:
        there = known._replace(held=state.ordered + 1, passed=state.ordered + 1)
        after = _with_site(state, site, there)._replace(ordered=state.ordered + 1)
        yield f"{site} orders {after.ordered}", _report(case, after)
    if known.held < state.ordered and site in case.quorums(known.held + 1).members:
        # A site may receive what was ordered at any time; once it has promised, only what it needs.
        sync = max((a.proposal.sync for _, a in state.attempts if a.proposal), default=0)
        if free or known.held < sync:
            there = known._replace(held=known.held + 1)
            yield f"{site} receives {there.held}", _report(case, _with_site(state, site, there))
    if free and known.passed < known.held and site in members:
        # It sends an ACK of its own; what that orders does not matter here.
        there = known._replace(passed=known.held)
        yield f"{site} passes after {there.passed}", _report(case, _with_site(state, site, there))


def _report(case: Case, state: State) -> State:
    """What somebody may now report as resilient to a majority, or as decided: by what any site
    knows."""
    best = state.resilient
    for timestamp in range(best + 1, state.ordered + 1):
        resilience: Resilience[None] = Resilience()
        for site, known in state.sites:
            resilience.hold(site, known.passed)
        for site, known in state.sites:
            if known.held < timestamp:
                continue
            quorums = case.quorums(known.held)
            itself = (site,) if known.promised == NO_BALLOT else ()
            if quorums.has_majority(resilience.holders(timestamp)) or resilience.is_decided(
                timestamp, quorums, *itself
            ):
                best = timestamp
    return state._replace(resilient=best)


def _reforming(
    case: Case, state: State, ballot: ReformBallot, attempt: AttemptState
) -> Iterator[tuple[str, State]]:
    if attempt.proposal is None:
        yield from _answering(case, state, ballot, attempt)
        yield from _proposing(case, state, ballot, attempt)
        return
    for site, known in state.sites:
        slave = Slave(known.promised, known.accepted)
        if site in attempt.accepted or not slave.accept(ballot, attempt.proposal, known.held):
            continue
        there = known._replace(promised=slave.promised, accepted=slave.accepted)
        more = attempt._replace(accepted=attempt.accepted | {site})
        after = _with_attempt(_with_site(state, site, there), ballot, more)
        yield f"{site} accepts {ballot}", after


def _answering(
    case: Case, state: State, ballot: ReformBallot, attempt: AttemptState
) -> Iterator[tuple[str, State]]:
    answered = dict(attempt.answered)
    for site, known in state.sites:
        slave = Slave(known.promised, known.accepted)
        if site in answered or site not in case.quorums(known.held).members:
            continue
        if slave.promise(ballot):
            point = SyncPoint(known.held, case.quorums(known.held), (), known.accepted)
            more = tuple(sorted((*attempt.answered, (site, point))))
            after = _with_site(state, site, known._replace(promised=slave.promised))
            yield (
                f"{site} answers {ballot}",
                _with_attempt(after, ballot, attempt._replace(answered=more)),
            )


def _proposing(
    case: Case, state: State, ballot: ReformBallot, attempt: AttemptState
) -> Iterator[tuple[str, State]]:
    """On any of the answers: those that have arrived by then."""
    for count in range(1, len(attempt.answered) + 1):
        for arrived in combinations(attempt.answered, count):
            reform = Attempt(ballot, dict(arrived))
            found = reform.propose(1, 1, sorted(case.sites()))
            if not isinstance(found, Cause):
                more = attempt._replace(answered=arrived, proposal=found)
                names = ", ".join(str(site) for site, _ in arrived)
                after = _with_attempt(state, ballot, more)
                yield f"{ballot} hears {names}, proposes {found.members} at {found.sync}", after


def _with_site(state: State, site: int, known: SiteState) -> State:
    return state._replace(sites=tuple((s, known if s == site else k) for s, k in state.sites))


def _with_attempt(state: State, ballot: ReformBallot, attempt: AttemptState) -> State:
    return state._replace(
        attempts=tuple((b, attempt if b == ballot else a) for b, a in state.attempts)
    )


def check(case: Case, state: State) -> NewList | None:
    """The laws, in one state. What is decided."""
    decided = {
        attempt.proposal
        for ballot, attempt in state.attempts
        if Attempt(
            ballot, dict(attempt.answered), attempt.proposal, set(attempt.accepted)
        ).quorum_confirmed()
    }
    if len(decided) > 1:
        raise Broken("two new lists are decided in one epoch")
    for new_list in decided:
        assert new_list is not None
        if new_list.sync < state.resilient:
            raise Broken(f"{state.resilient} was resilient; the new list ends at {new_list.sync}")
        holders = {site for site, known in state.sites if known.held >= new_list.sync}
        if not case.quorums(new_list.sync).has_majority(holders):
            raise Broken(f"the new list ends at {new_list.sync}, which {sorted(holders)} hold")
    return next(iter(decided), None)


LAST: Final = ReformBallot(1 << 30, 0)
"""An attempt after all others."""


def check_end(case: Case, state: State, alive: Set[int], decided: NewList | None) -> None:
    """From here it ends under fairness: when these are alive, hear each other, and one of them
    makes an attempt that nobody disturbs, a new list is decided: the one that was, if any."""
    known = {site: known for site, known in state.sites if site in alive}
    attempt = Attempt(LAST)
    for site, (held, _, promised, accepted) in known.items():
        if site in case.quorums(held).members and Slave(promised, accepted).promise(LAST):
            attempt.gather(site, SyncPoint(held, case.quorums(held), (), accepted))
    found = attempt.propose(1, 1, sorted(case.sites()))
    if isinstance(found, Cause):
        raise Broken(f"{sorted(alive)} cannot decide")
    if decided not in (None, found):
        raise Broken(f"two new lists are decided: {sorted(alive)} propose another")
    held = max(known[site].held for site in attempt.answers)
    for site in attempt.answers:
        slave = Slave(LAST, known[site].accepted)
        if slave.accept(LAST, found, held):  # What one of them holds, all of them get.
            attempt.confirm(site)
    if not attempt.quorum_confirmed():
        raise Broken(f"{sorted(alive)} do not confirm {found.members} at {found.sync}")


@dataclass(frozen=True)
class Found:
    states: int
    story: tuple[str, ...] = ()
    law: str = ""


def explore(case: Case, limit: int = 2_000_000) -> Found:
    """Every state that can be reached, or the shortest way to a broken law."""
    first = start(case)
    before: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        try:
            decided = check(case, state)
            for alive in case.enough(state):
                check_end(case, state, alive, decided)
        except Broken as broken:
            return Found(len(before), _story(before, state), str(broken))
        for name, after in successors(case, state):
            if after not in before:
                before[after] = (state, name)
                queue.append(after)
        if len(before) > limit:
            raise AssertionError(f"more than {limit} states")
    return Found(len(before))


def _story(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    while (step := before[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(reversed(names))
