"""[FTO §3] Which component is primary: dynamic linear voting over what all of it remember."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from unisono.services.replication.records import (
    IdRun,
    Line,
    Primary,
    StateMessage,
    Update,
    VotingState,
    Vulnerable,
    runs_of,
)


def has_majority(names: Collection[str], previous: Sequence[str]) -> bool:
    """Whether these are more than half of the previous ones, or half of them with the first."""
    common = len(set(previous).intersection(names))
    return 2 * common > len(previous) or (2 * common == len(previous) and min(previous) in names)


def electors(state: VotingState, members: Collection[str]) -> list[str]:
    """Those of whom the next primary component has a majority: the last one without those that are
    lost, and where all of it are, the members."""
    rest = [name for name in state.primary.names if name not in state.lost]
    return rest or [name for name in members if name not in state.lost]


class PrimaryChoice:
    """What one replica remembers of primary components, and what it learns from the others."""

    def __init__(self, name: str, instance: int, founders: Sequence[str]) -> None:
        self._name = name
        self.state = VotingState(
            Primary(0, 0, "", tuple(sorted(founders))), (), 0, None, None, (Line(name, instance),)
        )

    def recall(self, state: VotingState) -> None:
        self.state = state

    # -- the life of a primary component --------------------------------------------------------

    def leave_primary(self) -> None:
        """This member saw how the component ended: it knows all that any of it may have done."""
        yellow = self.state.yellow if self.state.yellow is not None else ()
        self.state = self.state._replace(vulnerable=None, yellow=yellow)

    def leave_attempt(self) -> None:
        """Nobody can have completed the attempt."""
        self.state = self.state._replace(vulnerable=None)

    def interrupt(self) -> None:
        """This member did not see how the component ended."""
        if self.state.vulnerable is not None:
            self.state = self.state._replace(yellow=None)

    def mark_yellow(self, updates: Sequence[Update]) -> None:
        yellow = self.state.yellow if self.state.yellow is not None else ()
        self.state = self.state._replace(yellow=(*yellow, *runs_of(list(updates))))

    def attempt(self, component: str, names: Sequence[str]) -> None:
        state = self.state
        number = state.attempt + 1
        vulnerable = Vulnerable(
            state.primary.place, number, component, tuple(sorted(names)), (self._name,)
        )
        self.state = state._replace(attempt=number, vulnerable=vulnerable)

    def install(self) -> tuple[IdRun, ...]:
        """The attempt is complete. Returns the yellow updates, which are the first to be green."""
        state = self.state
        vulnerable, yellow = state.vulnerable, state.yellow
        assert vulnerable is not None
        primary = Primary(
            state.primary.place + 1, vulnerable.attempt, vulnerable.component, vulnerable.names
        )
        self.state = state._replace(primary=primary, lost=(), attempt=0, yellow=None)
        return yellow or ()

    # -- the exchange -----------------------------------------------------------------------------

    def learned(self, states: Mapping[str, StateMessage]) -> VotingState:
        """[FTO §3 ComputeKnowledge] What these messages show, the same at all that have them, but
        for what is open for this member."""
        votes = {name: each.vote for name, each in states.items()}
        primary = max(vote.primary for vote in votes.values())
        updated = [vote for vote in votes.values() if vote.primary == primary]
        yellows = [vote.yellow for vote in updated if vote.yellow is not None]
        others = [vote for vote in votes.values() if vote.primary != primary]
        return VotingState(
            primary,
            tuple(sorted({name for vote in updated for name in vote.lost})),
            max(vote.attempt for vote in updated),
            vulnerable_in(votes, primary).get(self._name),
            common_runs(yellows) if yellows else None,
            merged_instances([vote.instances for vote in (*updated, *others)]),
        )

    def forget(self, name: str) -> None:
        """This member is gone for ever: nobody waits for what it knows."""
        state, vulnerable = self.state, self.state.vulnerable
        if vulnerable is not None:
            names = tuple(each for each in vulnerable.names if each != name)
            vulnerable = vulnerable._replace(names=names)
        lost = tuple(sorted({*state.lost, name}))
        self.state = state._replace(lost=lost, vulnerable=vulnerable)
        self.forget_logs((name,))

    def forget_logs(self, names: Collection[str]) -> None:
        """These may come back with another log."""
        instances = tuple(each for each in self.state.instances if each.name not in names)
        self.state = self.state._replace(instances=instances)


def vulnerable_in(votes: Mapping[str, VotingState], primary: Primary) -> dict[str, Vulnerable]:
    """The members for which it is still open how their last attempt ended, and the attempt."""
    found: dict[str, Vulnerable] = {}
    for name, vote in votes.items():
        mine = vote.vulnerable
        if mine is None or is_superseded(mine, primary):
            continue
        those = [each.vulnerable for other, each in votes.items() if other in (name, *mine.names)]
        alike = [each for each in those if each is not None and each[:3] == mine[:3]]
        if len(alike) < len(those):
            continue  # One of them knows how it ended, or never took part.
        names = set.intersection(*(set(each.names) for each in alike))
        heard = set(votes).union(*(each.heard for each in alike))
        if not names.issubset(heard):
            mine = Vulnerable(*mine[:3], tuple(sorted(names)), tuple(sorted(heard & names)))
            found[name] = mine
    return found


def is_superseded(vulnerable: Vulnerable, primary: Primary) -> bool:
    """Whether a later primary component is known, which could form only once the outcome was."""
    # Deviates [FTO §3]: the paper also drops the record of a member outside the last primary
    # component; that member may then clear the same record of another, which is still open.
    later = vulnerable.place + 1
    return primary.place > later or (
        primary.place == later and primary.component != vulnerable.component
    )


def common_runs(yellows: Sequence[tuple[IdRun, ...]]) -> tuple[IdRun, ...]:
    """The updates that are in all, in order."""
    others = [
        {(run.submitter, number) for run in each for number in range(run.first, run.last + 1)}
        for each in yellows[1:]
    ]
    first = [
        Update(run.submitter, number, 0, b"")  # type: ignore[arg-type]
        for run in yellows[0]
        for number in range(run.first, run.last + 1)
        if all((run.submitter, number) in each for each in others)
    ]
    return runs_of(first)


def merged_instances(all_of: Sequence[tuple[Line, ...]]) -> tuple[Line, ...]:
    merged: dict[str, int] = {}
    for each in all_of:
        for name, instance in each:
            merged.setdefault(name, instance)
    return tuple(Line(name, number) for name, number in sorted(merged.items()))
