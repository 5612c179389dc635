"""The laws of the paper, looked at in every state that the explorer reaches.

The laws of one process (L1, L2, L3, MTP-4, MTP-5) are checked where it takes its step.
"""

from __future__ import annotations

from tests.mtp.explorer_parts import ASKED, CUT, IDLE, UP, Broken, Desk, Member, bits
from tests.mtp.explorer_rows import EMPTIES, HEAD, Rows, State

Told = tuple[tuple[int, int], ...]


class Laws:
    """AB-1, AB-2, I1, I2, and that a member only accepts what the master accepted (A0)."""

    def __init__(self, web: Rows) -> None:
        self.web = web
        self._under: set[tuple[int, int]] = set()
        self._beside: set[tuple[int, int]] = set()
        self._weights: dict[int, int] = {}
        self._desk_weights: dict[int, int] = {}
        self._unchecked = web.case.unchecked

    def check(self, state: State) -> None:
        """Raises `Broken` when a law does not hold in this state."""
        desk, rows = state[0], state[HEAD:]
        for row in rows:
            if (desk, row) not in self._under:
                self._with_master(self.web.desks[desk], self.web.members[row])
                self._under.add((desk, row))
        for i, row in enumerate(rows):
            for other in rows[i:]:
                if (row, other) not in self._beside:
                    self._with_each_other(self.web.members[row], self.web.members[other])
                    self._beside.add((row, other))

    def _with_master(self, desk: Desk, me: Member) -> None:
        if me.accepted & me.rejected:
            self._broken("L2", "is accepted and rejected at one member", me.accepted & me.rejected)
        self._broken(
            "I1", "is rejected at a member, not at the master", me.rejected & ~desk.rejected
        )
        self._broken(
            "A0", "is accepted at a member, not at the master", me.accepted & ~desk.accepted
        )
        packets = self.web.parts.packets
        said = sum(1 << packets[at].number - self.web.case.shift for at in bits(me.sent))
        lost = said & desk.rejected
        if me.life == UP:
            self._broken("AB-2", "of a connected producer was rejected", lost)
        if lost:
            after = said & desk.accepted & -(lost & -lost)
            self._broken("FIFO", "is accepted, and an earlier message rejected", after)
        theirs = {packets[at].ordinal for at in bits(desk.kept)}
        given = sum(1 << number for number, _ in me.told)
        changed = sum(1 << number for number, ordinal in me.told if ordinal not in theirs)
        self._broken("A0", "is delivered with data that the master did not accept", changed)
        before = (1 << given.bit_length()) - (1 << me.first)
        missing = desk.accepted & ~given & before if given else 0
        self._broken("I2", "is accepted, and a member delivered later ones without it", missing)

    def _with_each_other(self, one: Member, other: Member) -> None:
        if "AB-1" in self._unchecked:
            return
        for first, told in lives(one):
            for other_first, other_told in lives(other):
                start = max(first, other_first)
                mine = [m for m in told if m[0] >= start]
                theirs = [m for m in other_told if m[0] >= start]
                if any(a != b for a, b in zip(mine, theirs, strict=False)):
                    raise Broken("AB-1", f"delivered {spell(mine)} and {spell(theirs)}")

    def _broken(self, law: str, why: str, numbers: int) -> None:
        if numbers and law not in self._unchecked:
            raise Broken(law, f"{' '.join(map(str, bits(numbers)))} {why}")

    def at_rest(self, state: State) -> None:
        """Raises when nothing more happens without a fault, and a member still waits (AB-2)."""
        if "AB-2" in self._unchecked:
            return
        desk = self.web.desks[state[0]]
        self._broken("AB-2", "stays pending for ever", desk.pending)
        for row in state[HEAD:]:
            me = self.web.members[row]
            if me.life == CUT:
                raise Broken("AB-2", "a member never learns that it was cut off")
            if me.life != UP:
                continue
            if me.left or me.stage not in (IDLE, ASKED):
                raise Broken("AB-2", "a connected producer cannot send its messages")
            given = sum(1 << number for number, _ in me.told)
            lacking = desk.accepted & ~given & -(1 << me.first)
            self._broken("AB-2", "is never delivered at a connected member", lacking)

    def weight(self, state: State) -> int:
        """Grows with every step that is no fault: so all that happens without faults ends."""
        weights, weight = self._weights, self._desk_weights.get(state[0])
        if weight is None:
            desk = self.web.desks[state[0]]
            weight = 1000 * desk.grants + 100 * (desk.accepted | desk.rejected).bit_count()
            weight = self._desk_weights[state[0]] = weight - desk.inbox.bit_count()
        for row in state[HEAD:]:
            weight += weights[row] if row in weights else self._weigh(row)
        return weight - 10 * state[EMPTIES]

    def _weigh(self, row: int) -> int:
        if row not in self._weights:
            me = self.web.members[row]
            weight = 100_000 * me.lives + 50_000 * (me.life > CUT) - 200 * me.left + 5 * me.stage
            if me.life <= CUT:
                consumer = self.web.parts.consumers.thaw(me.consumer)
                known = (me.accepted | me.rejected).bit_count()
                weight += known + me.data.bit_count() - me.inbox.bit_count()
                weight += consumer.next_in + 2 * consumer.next_out
            self._weights[row] = weight
        return self._weights[row]


def lives(me: Member) -> tuple[tuple[int, Told], ...]:
    return (*me.past, (me.first, me.told))


def spell(told: list[tuple[int, int]]) -> str:
    return " ".join(str(n) if n == o else f"{n} (the data of {o})" for n, o in told) or "nothing"
