"""[FTO §3] One replica in one component after another: what the figure's arrows do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from unisono.core import Fail, Persist, Warn
from unisono.services.replication.effects import (
    AdoptCheckpoint,
    Ordered,
    Post,
    PrimaryChanged,
    RegularView,
    SendCheckpoint,
    SendGreens,
)
from unisono.services.replication.exchange import KnowledgeExchange
from unisono.services.replication.order import Submissions, UpdateOrder, lines_of
from unisono.services.replication.records import (
    AttemptMessage,
    CheckpointRecord,
    ForgetMessage,
    GreenRecord,
    GreenRunsRecord,
    GreensMessage,
    LogCheckpoint,
    RedRecord,
    RedsMessage,
    SentAgainMessage,
    StateMessage,
    Update,
    UpdatesMessage,
    VotingRecord,
    message_bytes,
    record_bytes,
    runs_of,
)
from unisono.services.replication.stability import Lines
from unisono.services.replication.voting import PrimaryChoice, electors, has_majority

TAKEN_OUT: Final = (
    "this replica was taken out of the replication group: add it again, with a new path"
)
PIECE_BYTES_MAX: Final = 256 << 10
"""Updates are sent together up to about this much."""


class Component:
    """One replica's part in the component that it is in."""

    def __init__(
        self,
        name: str,
        instance: int,
        order: UpdateOrder,
        submissions: Submissions,
        choice: PrimaryChoice,
        lines: Lines,
    ) -> None:
        self._name = name
        self._instance = instance
        self._order = order
        self._submissions = submissions
        self._choice = choice
        self._lines = lines
        self._exchange = KnowledgeExchange()
        self._attempted: set[str] = set()
        self._members: tuple[str, ...] = ()
        """Of the replication group, when the attempt was made."""
        self._voters: tuple[str, ...] = ()
        """Those that make it."""
        self._is_left_out = False
        """Those that are connected know that this replica was taken out."""
        self.sender = ""
        """Of the message at hand."""
        self.failure = ""
        """Why this replica takes no part any more."""

    # -- what the component is --------------------------------------------------------------------

    @property
    def here(self) -> str:
        return self._exchange.component

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are connected."""
        return self._exchange.names

    def is_here(self, message: Any) -> bool:
        """Whether the message was sent in this component. Others are late: what they tell is part
        of the exchange that followed them."""
        return bool(message.component == self._exchange.component)

    def is_later(self, message: StateMessage) -> bool:
        """Whether others exchange their states once more in the same view."""
        return self._exchange.follows(message.component)

    # -- exchange of states -----------------------------------------------------------------------

    def exchange(self, event: Any, out: list[Any]) -> None:
        """A view begins, or this one once more."""
        if isinstance(event, RegularView):
            self._exchange.begin(event.id, event.names)
        else:
            followed = event.component if isinstance(event, StateMessage) else ""
            self._exchange.begin_again(followed)
        self._attempted.clear()
        self._voters = ()
        for update in self._submissions.exchange():
            self._order.mark_red(update)
        order, state = self._order, self._choice.state
        self._remember(out)
        told = StateMessage(
            self._exchange.component,
            order.green,
            order.base,
            self._lines.mine,
            lines_of(order.cuts),
            lines_of(order.greens),
            order.members,
            self._instance,
            state,
        )
        out.append(Post(message_bytes(told)))

    def leave_primary(self, event: Any, out: list[Any]) -> None:
        self._choice.leave_primary()
        out.append(PrimaryChanged(()))
        self.exchange(event, out)

    def leave_attempt(self, event: Any, out: list[Any]) -> None:
        self._choice.leave_attempt()
        self.exchange(event, out)

    def follow(self, event: StateMessage, out: list[Any]) -> None:
        """Take part in the exchange that others have begun."""
        self.exchange(event, out)
        self.note_state(event, out)

    def interrupt(self, event: Any, out: list[Any]) -> None:
        """Out of the group, without having seen how the component ended: as after a crash."""
        self._choice.interrupt()
        self._exchange.end()

    def note_state(self, event: StateMessage, out: list[Any]) -> None:
        self._exchange.states[self.sender] = event
        self._lines.note(self.sender, event.line)

    def all_told(self, event: Any) -> bool:
        return self._exchange.is_known and not self.failure

    def send_again(self, event: Any, out: list[Any]) -> None:
        """What some of the component lack."""
        exchange = self._exchange
        exchange.plan()
        self._is_left_out = exchange.leaves_out(self._name, self._order.gone)
        if reason := exchange.refusal(self._name):
            self.failure = reason
            out.append(Fail(reason))
            return
        mine = exchange.duty_of(self._name)
        if mine is None:
            return
        component = exchange.component
        # The log may have been cut since this member told where it begins.
        first, base, green = mine.first, self._order.base, self._order.green
        if mine.checkpoint or 0 < first <= base:
            out.append(SendCheckpoint(component))
        if first and max(first, base + 1) <= green:
            out.append(SendGreens(component, max(first, base + 1), green))
        reds = [
            update
            for submitter, after in mine.reds
            for update in self._order.reds_after(submitter, after)
        ]
        out += [Post(message_bytes(RedsMessage(component, each))) for each in pieces_of(reds)]
        out.append(Post(message_bytes(SentAgainMessage(component))))

    def take_greens(self, event: GreensMessage, out: list[Any]) -> None:
        self.mark_green(event.updates[max(0, self._order.green + 1 - event.first) :], out)

    def take_checkpoint(self, event: LogCheckpoint, out: list[Any]) -> None:
        if event.position > self._order.green:
            self._order.adopt(event)
            out.append(Persist(record_bytes(CheckpointRecord(event))))
            out.append(AdoptCheckpoint(event))

    def take_reds(self, event: RedsMessage, out: list[Any]) -> None:
        """Kept until the exchange is over: green ones that precede them may still come."""
        self._exchange.reds += event.updates

    def note_sent(self, event: SentAgainMessage, out: list[Any]) -> None:
        self._exchange.sent.add(self.sender)

    # -- the end of the exchange ------------------------------------------------------------------

    def is_whole(self, event: Any) -> bool:
        return self._exchange.is_complete and not self.failure

    def is_quorum(self, event: Any) -> bool:
        """[FTO §3 IsQuorum]"""
        if not self.is_whole(event):
            return False
        known, members = self._choice.learned(self._exchange.sound), self._order.members
        voters = self._exchange.voters(members, known.primary.names)
        if self._name not in voters or self._exchange.has_open_attempt(known.primary):
            return False
        has_quorum = has_majority(voters, electors(known, members))
        return has_quorum and bool(self._members_among(voters))

    def _members_among(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in self._order.members)

    def _learn(self, out: list[Any]) -> None:
        self._mark_red(self._exchange.reds, out)
        self._choice.recall(self._choice.learned(self._exchange.sound))
        self._choice.forget_logs(self._order.gone)
        self._submissions.know(self._order.cuts.get(self._name, 0))

    def attempt(self, event: Any, out: list[Any]) -> None:
        """[FTO §3] The attempt is recorded before it is told."""
        self._learn(out)
        self._members = self._order.members
        self._voters = self._exchange.voters(self._members, self._choice.state.primary.names)
        # One that is taken out goes on with none of the order, so nobody waits for it; it waits.
        names = self._members_among(self._voters) if self.is_member(event) else self._voters
        self._choice.attempt(self.here, names)
        self._remember(out)
        out.append(Post(message_bytes(AttemptMessage(self._exchange.component))))

    def go_on_apart(self, event: Any, out: list[Any]) -> None:
        """Updates are deposited until a component can order them."""
        self._learn(out)
        self._remember(out)
        out.append(Warn(self._why_apart()))
        self.submit(event, out)

    def _why_apart(self) -> str:
        missing = sorted(set(self._awaited()).difference(self._exchange.names))
        return "not in the primary component: updates are deposited, and wait for " + (
            ", ".join(missing) if missing else "more members"
        )

    def _awaited(self) -> Sequence[str]:
        vulnerable = self._choice.state.vulnerable
        if vulnerable is not None:
            return [name for name in vulnerable.names if name not in vulnerable.heard]
        return electors(self._choice.state, self._order.members)

    # -- the primary component --------------------------------------------------------------------

    def note_attempt(self, event: AttemptMessage, out: list[Any]) -> None:
        self._attempted.add(self.sender)

    def all_attempted(self, event: Any) -> bool:
        return bool(self._voters) and self._attempted.issuperset(self._voters)

    def is_member(self, event: Any) -> bool:
        return self._name in self._order.members

    def goes_on(self, event: Any) -> bool:
        return self.all_attempted(event) and self.is_member(event)

    def is_dismissed(self, event: UpdatesMessage) -> bool:
        """Another has installed a component without this one, which was taken out: until then it is
        needed, as that one may not come to know that the attempt is complete."""
        return self.sender in self._voters and not self.is_member(event)

    def is_left_out(self, event: AttemptMessage) -> bool:
        """Those that attempt know the last primary component, and none can have added this one
        again. What others know may be past, and then it is needed."""
        return self._is_left_out

    def depart(self, event: Any, out: list[Any]) -> None:
        self.failure = TAKEN_OUT
        out.append(Fail(TAKEN_OUT))

    def install(self, event: Any, out: list[Any]) -> None:
        """[FTO §3 Install] Yellow updates first, in their order; then the red ones, sorted."""
        yellow = self._choice.install()
        reds = self._order.reds()
        by_id = {(each.submitter, each.number): each for each in reds}
        self.mark_green(
            [
                by_id[run.submitter, number]
                for run in yellow
                for number in range(run.first, run.last + 1)
                if (run.submitter, number) in by_id
            ],
            out,
        )
        self.mark_green(self._order.reds(), out)
        self._remember(out)
        out += [Warn(""), PrimaryChanged(self._choice.state.primary.names)]

    def begin_primary(self, event: Any, out: list[Any]) -> None:
        self.install(event, out)
        if len(self._members_among(self._voters)) < len(self._voters):
            self._send((), out)  # Those that were taken out wait for it.
        self.submit(event, out)

    def install_late(self, event: UpdatesMessage, out: list[Any]) -> None:
        """[FTO §3 Un] Another has gone on, so the attempt is complete."""
        self.install(event, out)
        self.take_yellow(event, out)

    def is_regrouped(self, event: Any) -> bool:
        return self._order.members != self._members

    # -- updates ----------------------------------------------------------------------------------

    def submit(self, event: Any, out: list[Any]) -> None:
        """Send what waits."""
        for each in pieces_of(self._submissions.take()):
            self._send(each, out)

    def _send(self, updates: tuple[Update, ...], out: list[Any]) -> None:
        message = UpdatesMessage(self._exchange.component, self._lines.tell(), updates)
        out.append(Post(message_bytes(message)))

    def take_green(self, event: UpdatesMessage, out: list[Any]) -> None:
        self._came(event)
        self.mark_green([each for each in event.updates if self._is_due(each)], out)

    def take_yellow(self, event: UpdatesMessage, out: list[Any]) -> None:
        self._came(event)
        self._choice.mark_yellow(self._mark_red(event.updates, out))

    def take_red(self, event: UpdatesMessage, out: list[Any]) -> None:
        self._came(event)
        self._mark_red(event.updates, out)

    def _is_due(self, update: Update) -> bool:
        return update.number > self._order.greens.get(update.submitter, 0)

    def _came(self, event: UpdatesMessage) -> None:
        self._lines.note(self.sender, event.line)
        if self.sender == self._name and event.updates:
            self._submissions.came(event.updates[-1].number)

    def _mark_red(self, updates: Sequence[Update], out: list[Any]) -> list[Update]:
        """Returns those that were unknown."""
        new = [each for each in updates if self._order.mark_red(each)]
        if unlogged := [each for each in new if not self._submissions.has_logged(each)]:
            out.append(Persist(record_bytes(RedRecord(tuple(unlogged)))))
        return new

    def mark_green(self, updates: Sequence[Update], out: list[Any]) -> None:
        """Log them in their order: the content only of those that are not logged yet."""
        first = self._order.green + 1
        marked: list[Update] = []
        logged: list[Update] = []
        unlogged: list[Update] = []
        for update in updates:
            is_logged = self._submissions.has_logged(update) or not self._order.is_next(update)
            if not self._order.mark_green(update):
                continue
            marked.append(update)
            if is_logged:
                _log_greens(unlogged, out)
                logged.append(update)
            else:
                _log_runs(logged, out)
                unlogged.append(update)
        _log_greens(unlogged, out)
        _log_runs(logged, out)
        if marked:
            out.append(Ordered(first, tuple(marked)))

    # -- an operator ------------------------------------------------------------------------------

    def is_apart_from(self, event: ForgetMessage) -> bool:
        return event.name not in self._exchange.names

    def forget(self, event: ForgetMessage, out: list[Any]) -> None:
        """All of the component stop waiting for it, and look again whether they may go on."""
        self._choice.forget(event.name)
        self.exchange(event, out)

    def _remember(self, out: list[Any]) -> None:
        out.append(Persist(record_bytes(VotingRecord(self._choice.state))))


def _log_greens(updates: list[Update], out: list[Any]) -> None:
    if updates:
        out.append(Persist(record_bytes(GreenRecord(tuple(updates)))))
        updates.clear()


def _log_runs(updates: list[Update], out: list[Any]) -> None:
    if updates:
        out.append(Persist(record_bytes(GreenRunsRecord(runs_of(updates)))))
        updates.clear()


def pieces_of(updates: Sequence[Update]) -> list[tuple[Update, ...]]:
    """Updates in parts that are sent together."""
    pieces: list[tuple[Update, ...]] = []
    piece: list[Update] = []
    nbytes = 0
    for update in updates:
        if piece and nbytes + len(update.content) > PIECE_BYTES_MAX:
            pieces.append(tuple(piece))
            piece, nbytes = [], 0
        piece.append(update)
        nbytes += len(update.content) + 32
    if piece:
        pieces.append(tuple(piece))
    return pieces
