"""Several replicas over one order that a test makes up: a network without a network.

Each member reads the order at its own pace; a test decides which of them reads, initiates, fails
or returns. Votes go to the end of the order when their voter has read the request.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from unisono.model import Address, Member, Message, View
from unisono.services.commit.messages import CommitRequest, encoded
from unisono.services.commit.participant import Participant
from unisono.services.commit.replica import Duty, Prepare, Replica, SendMessage
from unisono.services.commit.table import Action, ActionLimits, Committed, Decided, Last, Outcome

Item = Message | View


def someone(name: str, incarnation: int = 1) -> Member:
    return Member(name, Address("127.0.0.1", 7000), incarnation)


def view_of(*members: Member) -> View:
    return View(members=tuple(members))


class Noting(Participant):
    """Records votes and outcomes; refuses operations that contain `no`.

    All keep the history. What was done by its own name, each also keeps on a disk of its own."""

    def __init__(self, name: str, disk: list[str]) -> None:
        self.name, self.disk = name, disk
        self.prepared: list[str] = []
        self.history: list[tuple[str, bool]] = []
        self.last: Last | None = None
        self.learned = False
        """It had missed an outcome, and learned it on its return."""

    def prepare(self, action: Action) -> str:
        self.prepared.append(action.key)
        return "I will not" if b"no" in action.operations.values() else ""

    def commit(self, action: Action) -> None:
        self.history.append((action.key, True))
        if self.name in action.operations:
            self.disk.append(action.key)

    def abort(self, action: Action, reason: str) -> None:
        self.history.append((action.key, False))

    def snapshot(self) -> bytes:
        return repr(self.history).encode()

    def restore(self, state: bytes, last: Last | None) -> None:
        self.history = list(eval(state))
        self.last = last
        missed = last is not None and isinstance(last.outcome, Committed)
        if missed and last is not None and self.disk[-1:] != [last.key]:
            self.disk.append(last.key)
            self.learned = True


@dataclass
class Life:
    me: Member
    replica: Replica
    inbox: deque[Item] = field(default_factory=deque)
    pending: deque[Action] = field(default_factory=deque)
    """What it has to prepare and has not yet."""
    words: deque[bytes] = field(default_factory=deque)
    """Votes that it has not sent yet."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    said: int = 0

    @property
    def noted(self) -> Noting:
        assert isinstance(self.replica.participant, Noting)
        return self.replica.participant

    def do(self, duties: list[Duty]) -> None:
        for duty in duties:
            if isinstance(duty, Prepare):
                self.pending.append(duty.action)
            elif isinstance(duty, SendMessage):
                self.words.append(duty.payload)
            elif isinstance(duty, Decided):
                assert duty.action.key not in self.outcomes
                self.outcomes[duty.action.key] = duty.outcome


class Order:
    """One total order, its members, and all that ever lived."""

    def __init__(
        self, names: str, replica_of: type[Replica] = Replica, limits: ActionLimits | None = None
    ) -> None:
        self.items: list[Item] = []
        self._replica_of, self._limits = replica_of, limits
        self.alive: dict[str, Life] = {}
        self.apart: dict[str, tuple[Life, int]] = {}
        """Partitioned members that keep their memory, and since which place of the order."""
        self.all: list[Life] = []
        self.incarnations: dict[str, int] = {}
        self.disks: dict[str, list[str]] = {}
        self.asked: dict[str, tuple[str, ...]] = {}
        for name in names:
            self._born(name)
        self._put(view_of(*self.members))

    @property
    def members(self) -> list[Member]:
        return [life.me for life in self.alive.values()]

    def _born(self, name: str) -> Life:
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        me = someone(name, self.incarnations[name])
        noting = Noting(name, self.disks.setdefault(name, []))
        life = Life(me, self._replica_of(noting, self._limits))
        life.replica.start(me)
        self.alive[name] = life
        self.all.append(life)
        return life

    def _put(self, item: Item) -> None:
        self.items.append(item)
        for life in self.alive.values():
            life.inbox.append(item)

    # -- what a test may do ---------------------------------------------------------------------

    def say(self, name: str, payload: bytes) -> None:
        life = self.alive[name]
        life.said += 1
        self._put(Message(life.me, payload, life.said, seq=len(self.items)))

    def ask(self, name: str, key: str, *names: str, no: bool = False) -> None:
        operation = b"no" if no else b"do"
        self.asked[key] = names
        self.say(name, encoded(CommitRequest(key, dict.fromkeys(names, operation))))

    def read(self, name: str, count: int = 1) -> None:
        life = self.alive[name]
        for _ in range(min(count, len(life.inbox))):
            item = life.inbox.popleft()
            take = life.replica.install if isinstance(item, View) else life.replica.deliver
            life.do(take(item))  # type: ignore[operator]

    def vote(self, name: str) -> bool:
        """The oldest word or vote that is due, if one is."""
        life = self.alive[name]
        if life.words:
            self.say(name, life.words.popleft())
            return True
        if not life.pending:
            return False
        action = life.pending.popleft()
        self.say(name, life.replica.vote(action.key, life.noted.prepare(action)))
        return True

    def fail(self, name: str) -> Life:
        """It fails, and the others learn it at one place of the order."""
        gone = self.alive.pop(name)
        gone.inbox.clear()
        self._put(view_of(*self.members))
        return gone

    def cut_off(self, name: str) -> None:
        """It is excluded, and receives nothing any more."""
        life = self.alive.pop(name)
        self.apart[name] = (life, len(self.items))
        self._put(view_of(*self.members))

    def merge(self, name: str) -> None:
        """It returns with its memory: it gets the messages it missed, but not the views."""
        life, since = self.apart.pop(name)
        life.inbox.extend(item for item in self.items[since:] if isinstance(item, Message))
        self.alive[name] = life
        self._put(view_of(*self.members))

    def come_back(self, name: str) -> Life:
        """A new life, given the state of one that has read all that stands before its view."""
        giver = next(iter(self.alive))
        self.read(giver, len(self.alive[giver].inbox))
        state = self.alive[giver].replica.state()
        life = self._born(name)
        life.do(life.replica.adopt(state))
        self._put(view_of(*self.members))
        return life

    def replace(self, name: str) -> Life:
        """It died and came back before anybody noticed: one view shows both."""
        gone = self.alive.pop(name)
        gone.inbox.clear()
        return self.come_back(name)

    def finish(self) -> None:
        """All come together, and read and vote until nothing is left to do."""
        for name in list(self.apart):
            self.merge(name)
        for _ in range(10_000):
            busy = False
            for name, life in self.alive.items():
                busy |= bool(life.inbox)
                self.read(name, len(life.inbox))
                while self.vote(name):
                    busy = True
            if not busy:
                return
        raise AssertionError("they never come to an end")

    # -- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """All live members hold the same, nothing is open, none ever saw another outcome."""
        states = {life.replica.state() for life in self.alive.values()}
        assert len(states) == 1, "one table"
        seen: dict[str, bool] = {}
        for life in self.all:
            for key, outcome in life.outcomes.items():
                done = isinstance(outcome, Committed)
                assert seen.setdefault(key, done) == done, f"{key} ended both ways"
        for name, life in self.alive.items():
            assert not life.replica.table.open, "nothing blocks"
            done = [key for key, committed in life.noted.history if committed]
            mine = [key for key in done if name in self.asked[key]]
            assert self.disks[name] == mine, "a disk that outlived its process has it all, once"
