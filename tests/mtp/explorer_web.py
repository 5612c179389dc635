"""All that can happen next in a web of one master and a few members."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mtp.explorer_moves import FAULTS, MASTER, Action, Moves
from tests.mtp.explorer_parts import (
    ASKED,
    CUT,
    DEAD,
    GRANTED,
    HOLDING,
    IDLE,
    UNGRANTED,
    UNHEARD,
    UP,
    Broken,
    Case,
    Desk,
    Member,
    Packet,
    bits,
)
from tests.mtp.explorer_rows import CRASHES, EMPTIES, HEAD, LOSSES, SLOW, State, sum_of
from unisono.protocols.mtp.agreement import PENDING, Next


class Web(Moves):
    """The actions that may follow each state."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._local: dict[int, tuple[tuple[str, int], ...]] = {}

    def actions(self, state: State) -> list[Action]:
        found: list[Action] = []
        members, desk_row = self.members, state[0]
        desk = self.desks[desk_row]
        rows = state[HEAD:]
        lose, crash, slow = state[LOSSES] != 0, state[CRASHES] != 0, state[SLOW] != 0
        grantable = self.may_grant(desk_row)
        held = sum_of(members[row].sent for row in rows if members[row].life <= CUT)
        repairs = held | desk.kept if self.case.by_master else held
        for i, row in enumerate(rows):
            me = members[row]
            for kind, at in self._alone(row):
                if kind not in FAULTS or (crash if kind == "crash" else lose):
                    found.append((kind, i, at))
            if me.stage == ASKED and grantable and me.life in (UP, DEAD):
                found.append(("grant" if me.life == UP else "grant_dead", i, 0))
            if me.life in (UP, DEAD) and (slow or me.life == DEAD) and self.pending(desk_row, row):
                found.append(("judge" if me.life == DEAD else "cut", i, 0))
            if me.life > CUT:
                continue
            heard = self._heard(rows, i) if self.case.hear else ()
            found += (action for action in heard if self._is_news(state, action))
            found += (("repair", i, at) for at in self._repairs(row, repairs))
            if self.view(row).stuck and not self.hope(state, i, repairs):
                found.append((self._last_resort(desk, row), i, 0))
        later = self._later(desk_row, rows) if self.case.in_order else 0
        found += (("receive", MASTER, at) for at in bits(desk.inbox & ~later))
        if lose:
            found += (("lose", MASTER, at) for at in bits(desk.inbox))
        asked = held & ~desk.inbox & ~later & self._packets_pending(desk)
        found += (("repair", MASTER, at) for at in bits(asked))
        if state[EMPTIES]:
            found.append(("empty", MASTER, 0))
        return found

    def _alone(self, row: int) -> tuple[tuple[str, int], ...]:
        """What a member can do, or suffer, whatever the others do."""
        if row not in self._local:
            self._local[row] = tuple(self._of_one(self.members[row]))
        return self._local[row]

    def _of_one(self, me: Member) -> Iterator[tuple[str, int]]:
        if me.life > CUT:
            return
        yield "crash", 0
        if me.life == CUT:
            yield "tell", 0
        for at in bits(me.inbox):
            yield "receive", at
            yield "lose", at
        if me.stage == HOLDING or (me.stage == GRANTED and self.case.reduce):
            yield "send", 0
        if not self.case.reduce:
            if me.stage == IDLE and me.left:
                yield "ask", 0
            if me.stage in (UNHEARD, UNGRANTED):
                yield "again", 0
            if me.stage in (ASKED, GRANTED):
                yield "lose_request" if me.stage == ASKED else "lose_grant", 0
            if me.stage == GRANTED:
                yield "take", 0
            if self.view(self._member_ids[me]).takes:
                yield "consume", 0

    def _heard(self, rows: tuple[int, ...], i: int) -> Iterator[Action]:
        """Whose headers may reach a member."""
        yield "hear", i, 0
        if self.case.gossip:
            for j, row in enumerate(rows):
                if j != i and self.members[row].life <= CUT:
                    yield "gossip", i, j

    def _is_news(self, state: State, action: Action) -> bool:
        try:
            return self.apply(state, action) != state
        except Broken:
            return True  # to be told when it happens

    def _repairs(self, row: int, sources: int) -> Iterator[int]:
        """Packets that a member lacks, knows of, and can have again."""
        sources &= ~self.members[row].inbox
        for number in self.view(row).wanted:
            yield from bits(self.parts.by_slot.get(number, 0) & sources)

    def _later(self, desk_row: int, rows: tuple[int, ...]) -> int:
        """Packets of producers that have an earlier one pending."""
        return sum_of(1 << at for row in rows for at in self.pending(desk_row, row)[1:])

    def _packets_pending(self, desk: Desk) -> int:
        return sum_of(self.parts.by_slot[number] for number in bits(desk.pending))

    def hope(self, state: State, i: int, repairs: int) -> bool:
        """Whether what a stuck member lacks may still come: then it waits, unless it is hasty."""
        row = state[HEAD + i]
        me, view = self.members[row], self.view(row)
        if view.stuck == "status" and self.case.hasty:
            return False
        coming = me.inbox | sum_of(1 << at for at in self._repairs(row, repairs))
        for other in state[HEAD:]:
            holder = self.members[other]
            if holder.life <= CUT and holder.stage >= UNGRANTED:
                coming |= 1 << holder.token
        if view.stuck == "data":
            return bool(coming & self.parts.by_slot.get(view.next_out, 0))
        return any(self._tells(self.parts.packets[at], view.next_out) for at in bits(coming))

    @staticmethod
    def _tells(packet: Packet, number: int) -> bool:
        k = packet.number - number
        return 1 <= k <= len(packet.last) and packet.last[k - 1] is not PENDING

    def _last_resort(self, desk: Desk, row: int) -> str:
        view = self.view(row)
        if self.case.tells and view.stuck == "status" and not desk.pending >> view.next_out & 1:
            return "be_told"
        return "rejoin" if self.view(row).gives_up is Next.REJOIN else "do_without"
