"""[FTO §3] The exchange of states when a component begins: who sends what again, and when all have
the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from unisono.services.replication.records import Primary, StateMessage, Update
from unisono.services.replication.voting import merged_instances, vulnerable_in


class Duty(NamedTuple):
    """What one member sends again."""

    checkpoint: bool
    first: int
    """Its green updates from this position on; 0: none."""
    reds: tuple[tuple[str, int], ...]
    """By submitter, its red updates after this number."""


class KnowledgeExchange:
    """The exchange in one component. All of it decide the same from the same messages."""

    def __init__(self) -> None:
        self.view = ""
        self.epoch = 0
        """How often states are exchanged in this view."""
        self.names: tuple[str, ...] = ()
        self.states: dict[str, StateMessage] = {}
        self.sent: set[str] = set()
        """Those that have sent all that they had to send again."""
        self.reds: list[Update] = []
        """Sent again."""
        self.sound: dict[str, StateMessage] = {}
        """The states that count."""
        self._duties: dict[str, Duty] = {}
        self._is_planned = False

    @property
    def component(self) -> str:
        return f"{self.view}/{self.epoch}"

    def begin(self, view: str, names: Sequence[str]) -> None:
        self.view, self.epoch, self.names = view, 0, tuple(names)
        self._clear()

    def begin_again(self, component: str) -> None:
        self.epoch = int(component.rpartition("/")[2]) if component else self.epoch + 1
        self._clear()

    def end(self) -> None:
        self.begin("", ())

    def _clear(self) -> None:
        self.states, self.sent, self.reds = {}, set(), []
        self.sound, self._duties, self._is_planned = {}, {}, False

    def follows(self, component: str) -> bool:
        view, _, epoch = component.rpartition("/")
        return view == self.view and epoch.isdigit() and int(epoch) > self.epoch

    @property
    def is_known(self) -> bool:
        return bool(self.names) and not self._is_planned and len(self.states) == len(self.names)

    @property
    def is_complete(self) -> bool:
        return self._is_planned and self.sent.issuperset(self._duties)

    # -- what all decide --------------------------------------------------------------------------

    def plan(self) -> None:
        self._is_planned = True
        best = self._best()
        others = [each.vote.instances for each in self.states.values() if each is not best]
        known = dict(merged_instances([best.vote.instances, *others]))
        self.sound = {
            name: each
            for name, each in sorted(self.states.items())
            if known.get(name, each.instance) == each.instance
        }
        # One that is not a member yet may be the last to know what a lost member had ordered; one
        # that was taken out takes itself for a member, until it knows of that.
        sources = {
            name: each
            for name, each in self.sound.items()
            if name in best.members or name not in each.members
        }
        sources = sources or self.sound
        greens = max(each.green for each in sources.values())
        base, top = min((each.base, name) for name, each in sources.items() if each.green == greens)
        behind = [each.green for each in self.states.values() if each.green < greens]
        with_log = [green for green in behind if green >= base]
        first = min(with_log) + 1 if with_log else 0
        reds = self._reds(dict(sources[top].greens))
        if behind or top in reds:
            checkpoint = len(with_log) < len(behind)
            self._duties[top] = Duty(checkpoint, first, tuple(reds.pop(top, ())))
        for name, runs in reds.items():
            self._duties[name] = Duty(False, 0, tuple(runs))

    def _best(self) -> StateMessage:
        return max(self.states.values(), key=lambda each: (each.vote.primary[:2], each.green))

    def _reds(self, greens: dict[str, int]) -> dict[str, list[tuple[str, int]]]:
        """By member, by submitter, the number after which it sends its red updates again."""
        found: dict[str, list[tuple[str, int]]] = {}
        cuts = {name: dict(each.cuts) for name, each in self.sound.items()}
        for submitter in sorted({each for cut in cuts.values() for each in cut}):
            most, holder = min((-cut.get(submitter, 0), name) for name, cut in cuts.items())
            least = min(dict(each.cuts).get(submitter, 0) for each in self.states.values())
            after = max(least, greens.get(submitter, 0))
            if after < -most:
                found.setdefault(holder, []).append((submitter, after))
        return found

    def duty_of(self, name: str) -> Duty | None:
        return self._duties.get(name)

    def refusal(self, name: str) -> str:
        """Why this member must not take part; empty if it may."""
        if name in self.sound:
            return ""
        return (
            f"the group knows another log of {name!r}: what that had logged is lost; remove"
            f" {name!r} from the group, then add it again, with a new path"
        )

    def leaves_out(self, name: str, gone: Collection[str]) -> bool:
        """Whether this member was taken out, as far as these know."""
        mine, best = self.states[name], self._best()
        if name in best.members or name in best.vote.primary.names:
            return False
        took_part = name in mine.members and (mine.green or mine.vote.primary.place)
        return bool(took_part) or name in gone

    def has_open_attempt(self, primary: Primary) -> bool:
        """Whether one of them may be part of a component of which they do not know all."""
        votes = {name: each.vote for name, each in self.sound.items()}
        return bool(vulnerable_in(votes, primary))

    def voters(self, members: Collection[str], previous: Collection[str]) -> tuple[str, ...]:
        """One that is taken out votes until there is a primary component without it."""
        return tuple(name for name in self.sound if name in members or name in previous)
