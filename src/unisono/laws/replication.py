"""The laws of durable replication, over what the replicas of a group report [TRA §6].

Other than the laws of a group, they hold across all crashes and all time: a replica is a name and
its log, not an incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from unisono.laws.verdict import Finding, Violation, violations


class ReplicaEvent(NamedTuple):
    """A row of a history: what one replica reported, at its place in the order of all reports."""

    at: int
    name: str
    what: str
    """`red`: the submitter's log has it; `green`: at this position, and told to the application;
    `adopted`: a checkpoint of the order up to this position; `stable`: told that all `members` have
    logged the order up to this position; `started`: the log was read up to this position;
    `crashed`; `end`: alive when the run was over, with all faults healed."""
    position: int = 0
    submitter: str = ""
    number: int = 0
    members: tuple[str, ...] = ()

    @property
    def update(self) -> tuple[str, int]:
        return self.submitter, self.number

    def __str__(self) -> str:
        return f"{self.submitter}:{self.number} at {self.position}"


def green_prefix(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """The green orders of any two replicas are prefixes of one another, across crashes."""
    first: dict[int, ReplicaEvent] = {}
    for event in events:
        if event.what == "green":
            known = first.setdefault(event.position, event)
            if known.update != event.update:
                yield Finding(event.name, str(event), str(known), f"{known.name} has another there")


def green_without_gap(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """A replica's green order has no gap: each position follows the last, or a checkpoint."""
    last: dict[str, int] = {}
    for event in events:
        if event.what in ("adopted", "started"):
            last[event.name] = event.position
        elif event.what == "green":
            if event.position != last.get(event.name, 0) + 1:
                yield Finding(event.name, str(event), "", f"after {last.get(event.name, 0)}")
            last[event.name] = event.position


def durable(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """What a replica reported as green it has after any crash."""
    reached: dict[str, int] = {}
    for event in events:
        if event.what in ("green", "adopted"):
            reached[event.name] = max(event.position, reached.get(event.name, 0))
        elif event.what == "started" and event.position < reached.get(event.name, 0):
            detail = f"had {reached[event.name]} positions, has {event.position}"
            yield Finding(event.name, "", "", detail)


def kept_to_the_end(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """What was logged at its submitter, or green anywhere, is green everywhere in the end."""
    ends = [event for event in events if event.what == "end"]
    placed = {event.update: event for event in events if event.what == "green"}
    names = {event.name for event in ends}
    for event in events:
        if event.what == "red" and event.name in names and event.update not in placed:
            yield Finding(event.name, str(event), "", "it was logged, and is green nowhere")
    most = max((event.position for event in events if event.what == "green"), default=0)
    for end in ends:
        if end.position < most:
            yield Finding(end.name, "", "", f"ends at {end.position}; {most} positions are green")


def red_fifo(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """The updates of a submitter are green in the order in which it submitted them, without gap."""
    placed = {event.position: event for event in events if event.what == "green"}
    last: dict[str, tuple[int, int]] = {}
    untold = 0
    """Positions so far that nobody told, as all that are left have them in a checkpoint."""
    for count, position in enumerate(sorted(placed), 1):
        event, untold = placed[position], position - count
        number, before = last.get(event.submitter, (0, 0))
        if not 0 < event.number - number <= 1 + untold - before:
            yield Finding(event.name, str(event), "", f"after number {number} of {event.submitter}")
        last[event.submitter] = event.number, untold


def stable_is_logged(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """When an update is reported stable, all members have logged it."""
    reached: dict[str, int] = {}
    for event in events:
        if event.what in ("green", "adopted", "started"):
            reached[event.name] = event.position
        elif event.what == "stable":
            for name in event.members:
                if reached.get(name, 0) < event.position:
                    detail = f"{name} has {reached.get(name, 0)} positions of {event.position}"
                    yield Finding(event.name, "", name, detail)


def applied_once(events: Sequence[ReplicaEvent]) -> Iterator[Finding]:
    """An update has one position, and a replica applies it once between two starts."""
    placed: dict[tuple[str, int], ReplicaEvent] = {}
    applied: dict[str, set[tuple[str, int]]] = {}
    for event in events:
        if event.what == "started":
            applied[event.name] = set()
        elif event.what == "green":
            known = placed.setdefault(event.update, event)
            if known.position != event.position:
                yield Finding(event.name, str(event), str(known), "it has two positions")
            mine = applied.setdefault(event.name, set())
            if event.update in mine:
                yield Finding(event.name, str(event), "", "applied twice")
            mine.add(event.update)


REPLICATION_LAWS: Final[dict[str, Callable[[Sequence[ReplicaEvent]], Iterable[Finding]]]] = {
    law.__name__: law
    for law in (
        green_prefix,
        green_without_gap,
        durable,
        kept_to_the_end,
        red_fifo,
        stable_is_logged,
        applied_once,
    )
}


def judge_replication(run: str, events: Sequence[ReplicaEvent]) -> list[Violation]:
    """All laws, on one history."""
    return [
        violation
        for name, law in REPLICATION_LAWS.items()
        for violation in violations(name, run, law(events))
    ]
