"""Reformations of real sites: every crash and every cut, at every packet that they exchange.

    python -m tests.rmp.reform_explorer

A small ring loses its token site, and two sites begin to reform at once. In each run, just before
one of the packets would arrive, a third site dies, or one is cut off for a while; or both, at two
packets. Packets arrive in their order otherwise, so a run is named by its two numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.rmp.theatre import Room, opened, together
from unisono.core import Fail
from unisono.model import Resilient
from unisono.protocols.rmp.agreement import NewList
from unisono.protocols.rmp.data_packets import Data
from unisono.protocols.rmp.packets import AckFields, PacketKind
from unisono.protocols.rmp.reform_packets import Fault
from unisono.protocols.rmp.reformation import RingReformation

CUT_MS = 600
END_MS = 12_000
KEPT = "kept"


class Point(NamedTuple):
    """Before the packet of this number arrives, counted from the first FAULT, or never."""

    at: int | None
    name: str


@dataclass(frozen=True)
class Case:
    names: str
    crash: Point
    cut: Point

    def __str__(self) -> str:
        return f"{self.names}: crash {self.crash}, cut {self.cut}"


class Explored(Room):
    """A ring in which packets of the reformation are counted, and strikes follow."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.counting = False
        self.case: Case | None = None

    def _arrival(self, source: Any, to: Any, packets: list[bytes]) -> Any:
        arrive = super()._arrival(source, to, packets)
        if not self.counting or opened(packets[0])[0] not in REFORM:
            return arrive

        def counted() -> None:
            self.count += 1
            self._strike(self.count)
            if (source.name, to.name) not in self._cut:
                arrive()

        return counted

    def _strike(self, number: int) -> None:
        assert self.case is not None
        if number == self.case.crash.at and self.actors[self.case.crash.name].core is not None:
            self.do_crash(self.case.crash.name)
        if number == self.case.cut.at:
            name = self.case.cut.name
            for other in self.actors:
                if other != name:
                    self._cut |= {(name, other), (other, name)}
            self._later(CUT_MS * 1000, self._cut.clear)


REFORM = (
    PacketKind.FAULT,
    PacketKind.SYNC,
    PacketKind.NEW_LIST,
    PacketKind.ACCEPT,
    PacketKind.COMMIT,
    PacketKind.ABORT,
)


class Result(NamedTuple):
    packets: int
    broken: tuple[str, ...]


def play(case: Case) -> Result:
    """One run, and the laws that it breaks."""
    room = Explored()
    together(*case.names, room=room)
    first, *others = case.names
    room.rest_at(first)
    # A message that a majority holds, and one that the first site's last ACK orders for one other.
    room.multicast(first, KEPT, Resilient(Resilient.MAJORITY))
    room.until(lambda: room.stable(first))
    room.rest_at(first)
    room.loses = lambda by, to, packet: by == first and to != others[0]
    room.multicast(first, "last")
    room.pass_ms(2)
    decided: dict[int, set[NewList]] = {}
    watch_decided(room, decided)
    room.obey(f"crash {first}")
    room.case, room.counting = case, True
    # Two sites begin before either hears of the other, and until there is a list to confirm nobody
    # gets what the last ACK ordered.
    room.loses = lambda by, to, packet: isinstance(packet, (Fault, AckFields, Data))
    room.until(lambda: len({sent.by for sent in room.of(PacketKind.FAULT)}) > 1)
    room.loses = lambda by, to, packet: (
        isinstance(packet, (AckFields, Data)) and not room.of(PacketKind.NEW_LIST)
    )
    living = lambda: [n for n in others if room.actors[n].core is not None]  # noqa: E731
    for _ in range(END_MS // 50):
        room.pass_ms(50)
        # A site that was cut off may be on a ring that the others have left, until it notices.
        rings = {room.site(n)._state.trid for n in living() if not room.found(n, Fail)}
        if len(rings) < 2 and all(settled(room, n) for n in living()) and not room._cut:
            break
    return Result(room.count, tuple(broken(room, case, decided, living())))


def watch_decided(room: Room, decided: dict[int, set[NewList]]) -> None:
    """Each list that a site installs, by its epoch."""
    for name, actor in room.actors.items():
        reformation: RingReformation = actor.inner._reformation
        install = reformation._begin_epoch

        def noted(new_list: NewList, out: Any, install: Any = install, name: str = name) -> None:
            decided.setdefault(new_list.epoch, set()).add(new_list)
            install(new_list, out)

        reformation._begin_epoch = noted


def settled(room: Room, name: str) -> bool:
    """Stopped, or in a ring of those that live with it."""
    if room.found(name, Fail):
        return True
    site = room.site(name)
    living = {room.key(n) for n, a in room.actors.items() if a.core and not room.found(n, Fail)}
    return (
        room.reform_state(name) == "NORMAL"
        and not site._state.frozen
        and set(site._state.token_list) <= living
    )


def broken(
    room: Room, case: Case, decided: dict[int, set[NewList]], living: list[str]
) -> Iterator[str]:
    for epoch, lists in decided.items():
        if len(lists) > 1:
            yield f"two lists are decided in epoch {epoch}: {lists}"
    going = [name for name in living if not room.found(name, Fail)]
    for name in living:
        if not settled(room, name):
            yield f"{name} does not end: {room.reform_state(name)}"
    for name in going:
        if KEPT not in room.payloads(name):
            yield f"{name} lost what a majority held"
    rings = {room.site(name)._state.trid for name in going if room.site(name)._state.primary}
    if len(rings) > 1:
        yield f"two rings go on: {rings}"
    histories = {name: room.payloads(name) for name in going}
    if len(set(map(tuple, histories.values()))) > 1:
        yield f"members of one ring delivered different messages: {histories}"


def cases(names: str, stride: int) -> Iterator[Case]:
    """No strike; then each alone, then both, at every `stride`th packet of the run without any."""
    crashed, cut = names[2], names[1]
    yield Case(names, Point(None, crashed), Point(None, cut))
    total = play(Case(names, Point(None, crashed), Point(None, cut))).packets
    points = [None, *range(1, total + 1, stride)]
    for crash_at in points:
        for cut_at in points:
            if crash_at is not None or cut_at is not None:
                for who in (crashed, cut):
                    yield Case(names, Point(crash_at, who), Point(cut_at, names[3]))


def explore(names: str = "abcde", stride: int = 1) -> tuple[int, list[str]]:
    """How many runs, and what they broke."""
    runs, found = 0, list[str]()
    for case in cases(names, stride):
        runs += 1
        found += [f"{case}: {each}" for each in play(case).broken]
    return runs, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="abcde")
    parser.add_argument("--stride", type=int, default=1)
    asked = parser.parse_args()
    runs, found = explore(asked.names, asked.stride)
    print(f"{runs} runs, {len(found)} laws broken", *found, sep="\n")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
