"""The tables behind the explorer's states.

A state is a flat tuple: the master, four budgets of faults, the members. Masters and members are
numbers of rows in tables, so a state is small, and a step of one process is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.mtp.explorer_parts import UNGRANTED, Case, Desk, Member, Packet, Parts, bits
from unisono.protocols.mtp.agreement import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Consumer,
    DataStatus,
    Master,
    Next,
)

State = tuple[int, ...]
LOSSES, CRASHES, SLOW, EMPTIES, HEAD = range(1, 6)
"""Places in a state: what may still go wrong; the members begin at HEAD."""


class View(NamedTuple):
    """What a member waits for."""

    next_out: int
    wanted: tuple[int, ...]
    """Numbers that it knows of, not rejected, without data."""
    stuck: str
    """What it lacks when no other can supply it: a `status`, `data`, or nothing."""
    gives_up: Next
    """What it does then: by Figure 3 it rejoins."""
    takes: bool
    """Whether its client can take, or skip, the next message now."""


class Rows:
    """Masters and members by number, and what is known of each."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.parts = Parts(case)
        self.desks: list[Desk] = []
        self.members: list[Member] = []
        self._desk_ids: dict[Desk, int] = {}
        self._member_ids: dict[Member, int] = {}
        self._steps: dict[tuple[str, int, int], int] = {}
        self._desk_steps: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._open: dict[tuple[int, int], tuple[int, ...]] = {}
        self._views: dict[int, View] = {}
        self._grantable: dict[int, bool] = {}
        self._news: dict[int, int] = {}

    def start(self) -> State:
        case, parts = self.case, self.parts
        head = (self._desk(parts.desk()), case.losses, case.crashes, case.slow, case.empties)
        members = sorted(self._member(parts.member(left)) for left in case.messages)
        return (*head, *members)

    def _desk(self, desk: Desk) -> int:
        row = self._desk_ids.setdefault(desk, len(self.desks))
        if row == len(self.desks):
            self.desks.append(desk)
        return row

    def _member(self, member: Member) -> int:
        row = self._member_ids.setdefault(member, len(self.members))
        if row == len(self.members):
            self.members.append(member)
        return row

    def _step(self, kind: str, row: int, at: int, step: Callable[[Member], Member | None]) -> int:
        """The row of a member after a step, computed the first time only."""
        key = (kind, row, at)
        after = self._steps.get(key)
        if after is None:
            member = step(self.members[row])
            after = self._steps[key] = row if member is None else self._member(member)
        return after

    def _desk_step(
        self, kind: str, row: int, at: int, step: Callable[[Desk], tuple[Desk, int]]
    ) -> tuple[int, int]:
        """The same of the master; and the packet that it made, if any."""
        key = (kind, row, at)
        if key not in self._desk_steps:
            desk, made = step(self.desks[row])
            self._desk_steps[key] = self._desk(desk), made
        return self._desk_steps[key]

    def view(self, row: int) -> View:
        """What the member waits for."""
        if row not in self._views:
            me = self.members[row]
            consumer: Consumer = self.parts.consumers.thaw(me.consumer)
            out = consumer.next_out
            now = consumer.due(self.parts.data_at(me, DataStatus.COMING))
            then = consumer.due(self.parts.data_at(me, DataStatus.LOST))
            stuck = "status" if now is Next.REJOIN else "data" if then is not now else ""
            by_slot = self.parts.by_slot
            wanted = tuple(
                n
                for n in range(out, consumer.next_in)
                if not me.rejected >> n & 1 and not me.data & by_slot.get(n, 0)
            )
            self._views[row] = View(out, wanted, stuck, then, now in (Next.DELIVER, Next.SKIP))
        return self._views[row]

    def may_grant(self, desk: int) -> bool:
        if desk not in self._grantable:
            master: Master[int] = self.parts.masters.thaw(self.desks[desk].machine)
            self._grantable[desk] = master.may_grant()
        return self._grantable[desk]

    def news(self, desk: int) -> int:
        """The empty packet that the master would send now."""
        if desk not in self._news:
            master: Master[int] = self.parts.masters.thaw(self.desks[desk].machine)
            self._news[desk] = self.parts.packet(Packet(0, master.next, master.last()))
        return self._news[desk]

    def known(self, at: int, accepted: int, rejected: int) -> int:
        """An empty packet with what is known of the t messages before number `at`."""
        last = tuple(
            ACCEPTED if accepted >> n & 1 else REJECTED if rejected >> n & 1 else PENDING
            for n in (max(at - k, 0) for k in range(1, self.case.t + 1))
        )
        return self.parts.packet(Packet(0, at, last))

    def pending(self, desk_row: int, row: int) -> tuple[int, ...]:
        """The packets of a member's tokens that the master has not decided on, in order."""
        key = desk_row, row
        if key not in self._open:
            mine = self._tokens(row)
            out = self.desks[desk_row].pending
            packets, shift = self.parts.packets, self.case.shift
            self._open[key] = tuple(a for a in bits(mine) if out >> packets[a].number - shift & 1)
        return self._open[key]

    def _tokens(self, row: int) -> int:
        """The packets of the tokens that a member was granted, as far as we remember them."""
        me = self.members[row]
        return me.sent | (1 << me.token if me.stage >= UNGRANTED else 0)


def sum_of(masks: Iterable[int]) -> int:
    """All the bits of some masks."""
    total = 0
    for mask in masks:
        total |= mask
    return total
