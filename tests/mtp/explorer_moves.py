"""What becomes of a web when something happens in it."""

from __future__ import annotations

from collections.abc import Callable

from tests.mtp.explorer_parts import (
    ANY,
    ASKED,
    CUT,
    DEAD,
    GRANTED,
    HOLDING,
    IDLE,
    OUT,
    UNGRANTED,
    UP,
    Case,
    Member,
    bits,
)
from tests.mtp.explorer_rows import CRASHES, EMPTIES, HEAD, LOSSES, SLOW, Rows, State, sum_of
from unisono.protocols.mtp.agreement import ACCEPTED, REJECTED, DataStatus

Action = tuple[str, int, int]
"""What happens, to which member (-1: the master), with which packet."""

Step = Callable[[Member], Member | None]

MASTER = -1

KINDS = """ask again grant grant_dead take send receive lose lose_request lose_grant crash judge cut
    tell rejoin hear gossip be_told repair empty consume do_without""".split()
FAULTS = frozenset(("crash", "lose", "lose_request", "lose_grant", "cut"))
NO_PROGRESS = FAULTS | {"empty", "grant_dead"}
"""What need not happen: the request of one that died may have come or not. All else does."""


class Moves(Rows):
    """One method for each kind of action, with the member and the packet it is about."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._moves: dict[str, Callable[[State, int, int], State]] = {
            kind: getattr(self, f"_{kind}") for kind in KINDS
        }

    def apply(self, state: State, action: Action) -> State:
        """The state that follows, members in their old places."""
        kind, i, at = action
        return self._moves[kind](state, i, at)

    def _ask(self, state: State, i: int, at: int) -> State:
        return self._put(state, i, "ask", at, self.parts.ask)

    def _again(self, state: State, i: int, at: int) -> State:
        """Asked again; the master answers with the same grant if it had granted."""
        return self._put(state, i, "again", at, lambda me: me._replace(stage=me.stage + 1))

    def _lose_request(self, state: State, i: int, at: int) -> State:
        state = self._spend(state, LOSSES)
        return self._put(state, i, "unask", at, lambda me: me._replace(stage=me.stage - 1))

    _lose_grant = _lose_request

    def _take(self, state: State, i: int, at: int) -> State:
        return self._put(state, i, "take", at, lambda me: me._replace(stage=HOLDING))

    def _grant(self, state: State, i: int, at: int) -> State:
        desk_row, at = self._desk_step("grant", state[0], 0, self.parts.grant)
        state = self._put(state, i, "grant", at, lambda me: me._replace(stage=GRANTED, token=at))
        return (desk_row, *state[1:])

    _grant_dead = _grant

    def _send(self, state: State, i: int, at: int) -> State:
        at = self.members[state[HEAD + i]].token
        state = self._put(state, i, "send", at, self.parts.send)
        desk = self.desks[state[0]]
        desk = desk._replace(inbox=desk.inbox | 1 << at)
        return self._post((self._desk(desk), *state[1:]), at, but=i)

    def _empty(self, state: State, i: int, at: int) -> State:
        return self._post(self._spend(state, EMPTIES), self.news(state[0]))

    def _post(self, state: State, at: int, but: int = MASTER) -> State:
        """A copy is on its way to each member that still listens."""
        for i, row in enumerate(state[HEAD:]):
            if i != but and self.members[row].life <= CUT:
                state = self._put(state, i, "post", at, lambda me: self.parts.post(me, at))
        return state

    def _receive(self, state: State, i: int, at: int) -> State:
        if i == MASTER:
            see = self._desk_step("see", state[0], at, lambda desk: (self.parts.see(desk, at), 0))
            return self._decide(state, see[0])
        return self._put(state, i, "receive", at, lambda me: self.parts.receive(me, at))

    _repair = _receive

    def _lose(self, state: State, i: int, at: int) -> State:
        state = self._spend(state, LOSSES)
        if i == MASTER:
            desk = self.desks[state[0]]
            return (self._desk(desk._replace(inbox=desk.inbox & ~(1 << at))), *state[1:])
        return self._put(state, i, "lose", at, lambda me: me._replace(inbox=me.inbox & ~(1 << at)))

    def _hear(self, state: State, i: int, at: int) -> State:
        return self._told(state, i, self.news(state[0]))

    def _told(self, state: State, i: int, at: int) -> State:
        _, number, last = self.parts.packets[at]
        return self._put(state, i, "hear", at, lambda me: self.parts.learn(me, number, last))

    def _gossip(self, state: State, i: int, at: int) -> State:
        """A member receives another's header; `at` is the other's place."""
        other = self.members[state[HEAD + at]]
        next_in = self.parts.consumers.thaw(other.consumer).next_in
        return self._told(state, i, self.known(next_in, other.accepted, other.rejected))

    def _be_told(self, state: State, i: int, at: int) -> State:
        """The master is asked for the status that a member lacks, and answers."""
        desk, number = self.desks[state[0]], self.view(state[HEAD + i]).next_out
        return self._told(state, i, self.known(number + self.case.t, desk.accepted, desk.rejected))

    def _consume(self, state: State, i: int, at: int) -> State:
        return self._put(state, i, "consume", at, self.parts.consume)

    def _do_without(self, state: State, i: int, at: int) -> State:
        """Only a planted bug goes on without."""
        return self._put(
            state, i, "do_without", at, lambda me: self.parts.consume(me, DataStatus.LOST) or me
        )

    def _crash(self, state: State, i: int, at: int) -> State:
        state = self._put(self._spend(state, CRASHES), i, "crash", at, self._dead)
        return self._bury(state)

    def _judge(self, state: State, i: int, at: int) -> State:
        """The master gives a holder up, with all that it holds."""
        row = state[HEAD + i]
        mine = self._tokens(row)
        desk_row, _ = self._desk_step(
            "give_up", state[0], mine, lambda desk: (self.parts.give_up(desk, bits(mine)), 0)
        )
        if self.members[row].life == DEAD:
            state = self._put(state, i, "forget", at, lambda me: me._replace(stage=IDLE))
        return self._decide(state, desk_row)

    def _cut(self, state: State, i: int, at: int) -> State:
        """The same, of one that lives: it is cut off and does not know yet."""
        before = self._spend(state, SLOW)
        state = self._put(before, i, "cut", at, lambda me: me._replace(life=CUT))
        return self._judge(state, i, at)

    def _tell(self, state: State, i: int, at: int) -> State:
        """A life ends. The next begins at the master's next number."""
        state = self._judge(state, i, at)
        first = self.parts.packets[self.news(state[0])].number
        return self._put(state, i, "tell", first, lambda me: self._next_life(me, first))

    _rejoin = _tell

    def _next_life(self, me: Member, first: int) -> Member:
        past = me.past
        if me.told and not self.case.reduce:
            past = (*past, (me.first, me.told))
        if me.lives == self.case.lives:
            return Member((), (), 0, IDLE, OUT, me.lives, past=past)
        return self.parts.member(me.left, first, lives=me.lives + 1, past=past)

    def _dead(self, me: Member) -> Member:
        """A dead member's tokens and requests still count; what it delivered when all is kept."""
        keep = not self.case.reduce
        return Member(
            *((), (), 0),
            stage=me.stage if me.life == UP else IDLE,
            life=DEAD,
            first=me.first if keep else 1,
            token=me.token,
            sent=me.sent,
            told=me.told if keep else (),
            past=me.past,
        )

    def _decide(self, state: State, desk_row: int) -> State:
        """The master has decided: the members that learn it at once do."""
        before, desk = self.desks[state[0]], self.desks[desk_row]
        state = self._bury((desk_row, *state[1:]))
        if self.case.reduce and self.case.by_master and self.case.in_order:
            kept = desk.kept  # no longer needed of the producer
            for i, row in enumerate(state[HEAD:]):
                if self.members[row].sent & kept:
                    state = self._put(
                        state, i, "kept", kept, lambda me: me._replace(sent=me.sent & ~kept)
                    )
        heard = self.case.heard
        if (ACCEPTED in heard and desk.accepted != before.accepted) or (
            REJECTED in heard and desk.rejected != before.rejected
        ):
            for i, row in enumerate(state[HEAD:]):
                if self.members[row].life == UP:
                    state = self._hear(state, i, 0)
        return state

    def _bury(self, state: State) -> State:
        """Of the dead only what is pending matters."""
        for i, row in enumerate(state[HEAD:]):
            me = self.members[row]
            if me.life == DEAD and self.case.reduce:
                open_ = self.pending(state[0], row)
                holds = me.stage >= UNGRANTED and me.token in open_
                stage = GRANTED if holds else ASKED if me.stage == ASKED else IDLE
                sent = sum_of(1 << at for at in open_ if not holds or at != me.token)
                dead = me._replace(stage=stage, token=me.token if holds else 0, sent=sent)
                state = (*state[: HEAD + i], self._member(dead), *state[HEAD + i + 1 :])
        return state

    def _put(self, state: State, i: int, kind: str, at: int, step: Step) -> State:
        row = self._step(kind, state[HEAD + i], at, step)
        return (*state[: HEAD + i], row, *state[HEAD + i + 1 :])

    @staticmethod
    def _spend(state: State, budget: int) -> State:
        if state[budget] == ANY:
            return state
        return (*state[:budget], state[budget] - 1, *state[budget + 1 :])
