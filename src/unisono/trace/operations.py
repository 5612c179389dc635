"""Operations on shared objects, as a history: who called what, when it was invoked and returned,
and at which place of the total order it was applied.

A log is a row of JSON arrays, one a line, beside the rows of its run. Each line is there before
what it is about is seen by anyone: a process that is killed loses none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

Call: TypeAlias = tuple[str, str, str, Sequence[Any]]
"""Kind and name of the object, method, arguments."""
Key: TypeAlias = tuple[str, int]
"""An operation: its member and its number there."""

LAST: Final = 1 << 63
SUFFIX: Final = ".operations.jsonl"
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""Names the machine's monotonic clock: processes that read the same one can be compared."""


@dataclass(slots=True)
class Operation:
    """One call on one shared object. Times of equal `clock` are of one clock."""

    member: str
    """Who called, as `name#incarnation`."""
    number: int
    """Of this member's operations."""
    kind: str
    """`dict`, `counter`, `queue`, `lock`, …"""
    object: str
    """Its name."""
    method: str
    arguments: list[Any]
    invoked_us: int
    clock: str = ""
    result: Any = None
    returned_us: int | None = None
    """None if it never returned, or failed so that its caller cannot know what it did."""
    lost_us: int | None = None
    """When its caller no longer believed to hold what it got; 0 if it never did."""

    @property
    def key(self) -> Key:
        return self.member, self.number


class SessionEnd(NamedTuple):
    """All that a member held or waited for became free."""

    member: str
    claims: tuple[int, ...]
    """The numbers of its operations by which it held it."""


Step: TypeAlias = Key | SessionEnd
Steps: TypeAlias = list[tuple[int, Step]]
"""In the order of their places."""


class Witness(NamedTuple):
    """What one member applied from when it was handed the objects on."""

    origin: str
    steps: Steps

    def last(self, wanted: Container[Step], below: int = LAST) -> int:
        """The place of its last step below that is one of these."""
        found = (at for at, each in reversed(self.steps) if at < below and each in wanted)
        return next(found, -1)


@dataclass(slots=True)
class OperationHistory:
    """What the logs of a run hold together."""

    operations: dict[Key, Operation] = field(default_factory=dict)
    witnesses: list[Witness] = field(default_factory=list)
    damaged_count: int = 0
    """Lines that could not be read."""

    def add(self, lines: Iterable[bytes]) -> None:
        """A log, of one process."""
        clock, mine = "", dict[str, Witness]()
        for entry in self._entries(lines):
            match entry:
                case ["clock", str(clock)]:
                    pass
                case ["invoke", int(t_us), str(member), int(number), *call]:
                    found = self._operation(member, number, call)
                    found.invoked_us, found.clock = t_us, clock
                case ["place", str(origin), int(place), str(member), int(number), *call]:
                    self._operation(member, number, call)
                    self._witness(mine, origin).steps.append((place, (member, number)))
                case ["end", str(origin), int(place), str(member), list(claims)]:
                    end = SessionEnd(member, tuple(claims))
                    self._witness(mine, origin).steps.append((place, end))
                case ["restored"]:
                    mine.clear()
                case ["return", int(t_us), str(member), int(number), result]:
                    found = self._operation(member, number)
                    found.returned_us, found.result = t_us, result
                case ["lose", int(t_us), str(member), int(number)]:
                    self._operation(member, number).lost_us = t_us
                case _:
                    self.damaged_count += 1

    def orders(self) -> dict[str, Steps]:
        """By group, the order of those that went on. Some protocols show a member what then is
        lost with it; no result is returned before that cannot be."""
        returned = {key for key, each in self.operations.items() if each.returned_us is not None}
        by_origin: dict[str, list[Witness]] = {}
        for each in self.witnesses:
            by_origin.setdefault(each.origin, []).append(each)
        return {origin: _order(mine, returned) for origin, mine in sorted(by_origin.items())}

    def _entries(self, lines: Iterable[bytes]) -> Iterator[list[Any]]:
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                self.damaged_count += 1  # Cut off amid a line, as on a full disk.
                continue
            yield found if isinstance(found, list) else [found]

    def _witness(self, mine: dict[str, Witness], origin: str) -> Witness:
        if origin not in mine:
            mine[origin] = Witness(origin, [])
            self.witnesses.append(mine[origin])
        return mine[origin]

    def _operation(self, member: str, number: int, call: Sequence[Any] = ()) -> Operation:
        """Of who called it there may be no line, as of one that was killed on another machine."""
        found = self.operations.get((member, number))
        if found is None:
            found = self.operations[member, number] = Operation(member, number, "", "", "", [], 0)
        if call:
            found.kind, found.object, found.method, found.arguments = call
        return found

    def __bool__(self) -> bool:
        return bool(self.operations)


def _order(witnesses: Sequence[Witness], returned: Container[Step]) -> Steps:
    """From who knows the last that was returned; back from there by who agrees with that."""
    first = max(witnesses, key=lambda each: (each.last(returned), each.steps[-1][0]))
    order = first.steps
    while True:
        begin = order[0][0]
        known = dict(order)
        earlier = [each for each in witnesses if each.steps[0][0] < begin]
        if not earlier:
            return order

        def rank(witness: Witness, begin: int = begin, known: dict[int, Step] = known) -> Any:
            both = (known[at] == each for at, each in witness.steps if at in known)
            return (next(both, 0.5), witness.last(returned, begin), witness.steps[-1][0])

        best = max(earlier, key=rank)
        order = [step for step in best.steps if step[0] < begin] + order


class OperationLog:
    """Writes down operations as they happen, a line each."""

    def __init__(
        self, write: Callable[[bytes], object], now_us: Callable[[], int], clock: str
    ) -> None:
        self._write, self._now_us = write, now_us
        self._put("clock", clock)

    def invoked(self, member: str, number: int, call: Call) -> None:
        self._put("invoke", self._now_us(), member, number, *call)

    def placed(self, origin: str, place: int, member: str, number: int, call: Call) -> None:
        """It was applied here."""
        self._put("place", origin, place, member, number, *call)

    def returned(self, member: str, number: int, result: Any) -> None:
        self._put("return", self._now_us(), member, number, result)

    def lost(self, member: str, number: int, since_us: int) -> None:
        """What it got is no longer believed to be held, since so long ago."""
        self._put("lose", self._now_us() - since_us, member, number)

    def never_held(self, member: str, number: int) -> None:
        """What it got was over when it came."""
        self._put("lose", 0, member, number)

    def ended(self, origin: str, place: int, member: str, claims: Iterable[int]) -> None:
        self._put("end", origin, place, member, sorted(claims))

    def restored(self) -> None:
        """What this member has from now on was handed to it."""
        self._put("restored")

    def _put(self, *entry: Any) -> None:
        self._write(json.dumps(entry, separators=(",", ":"), default=_plain).encode() + b"\n")


def _plain(value: Any) -> Any:
    return {"~b": value.hex()} if isinstance(value, bytes) else repr(value)


SimulatedLog: TypeAlias = Callable[[], OperationLog]
OPERATIONS: ContextVar[SimulatedLog | None] = ContextVar("OPERATIONS", default=None)
"""Where the operations of a simulated program are written down."""


def operation_log(trace: str, run: str, member: str) -> OperationLog | None:
    """The log of a process that joins as this member; None if there is no directory for it."""
    if (simulated := OPERATIONS.get()) is not None:
        return simulated()
    if not trace:
        return None
    from unisono.trace.files import run_folder, safe_name

    folder = run_folder(trace, run)
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / f"{safe_name(member)}{SUFFIX}").open("wb", buffering=0)
    clock = BOOT.read_text().strip() if BOOT.exists() else member
    return OperationLog(file.write, lambda: time.monotonic_ns() // 1000, clock)


def history_of(logs: Iterable[Iterable[bytes]]) -> OperationHistory:
    history = OperationHistory()
    for log in logs:
        history.add(log)
    return history


def operations_in(folder: Path) -> OperationHistory:
    """Of a run, by its folder."""
    return history_of(path.read_bytes().splitlines() for path in sorted(folder.glob(f"*{SUFFIX}")))
