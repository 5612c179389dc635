"""One attempt to reconcile the components of one view: who there is, their states, one result.

Pure. It is told what the order brings, the same at all members of the view, and so is always at the
same point at all of them; only what it sends is its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from unisono.model import Member
from unisono.services.merge.messages import ComponentPiece, Computed, Present


def label_of(members: Iterable[Member]) -> str:
    """A digest of the members."""
    text = " ".join(f"{each}@{each.address}" for each in sorted(members))
    return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ComponentState:
    """One component, as all members of the merged one see it."""

    members: tuple[Member, ...]
    """That had this state when the components met."""
    state: bytes

    @property
    def label(self) -> str:
        """A digest of the members."""
        return label_of(self.members)


@dataclass(frozen=True, slots=True)
class Gathered:
    """All components are known. Without `needed` all members have one state already."""

    mine: frozenset[Member]
    """Those with the state of this member."""
    speakers: tuple[Member, ...]
    needed: bool


@dataclass(frozen=True, slots=True)
class Complete:
    """All states are here."""

    states: tuple[ComponentState, ...]


@dataclass(frozen=True, slots=True)
class Agreed:
    """All members hold the result with this digest."""

    digest: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot go on, at all members alike."""

    cause: str
    reason: str


Progress: TypeAlias = Gathered | Complete | Agreed | Failed | None


class Exchange:
    """What the order has brought of one attempt."""

    def __init__(
        self, me: Member, view: str, attempt: int, members: Iterable[Member], bytes_max: int
    ) -> None:
        self.view, self.attempt = view, attempt
        self.members = tuple(sorted(members))
        self._me = me
        self._bytes_max = bytes_max
        self._present: dict[frozenset[Member], Present] = {}
        self._components: dict[Member, frozenset[Member]] = {}
        """By speaker, those with its state, once all are known."""
        self._states: dict[Member, bytearray] = {}
        self._complete: set[Member] = set()
        self._digests: dict[Member, str] = {}

    def present(self, sender: Member, message: Present) -> Progress:
        """A component is there."""
        if self._components or any(each >= len(self.members) for each in message.members):
            return None
        members = frozenset(self.members[each] for each in message.members)
        if sender not in members or any(members & each for each in self._present):
            return None
        self._present[members] = message
        if sum(map(len, self._present)) < len(self.members):
            return None
        return self._gathered()

    def _gathered(self) -> Gathered:
        """Newcomers are of the component whose state they were handed; those that were handed
        none have no state."""
        kept = {
            label_of(members): set(members)
            for members, each in self._present.items()
            if not each.is_new
        }
        blank: set[Member] = set()
        for members, each in self._present.items():
            if each.is_new and each.source in kept:
                kept[each.source] |= members
            elif each.is_new and not each.source:
                blank |= members
            elif each.is_new:
                kept[label_of(members)] = set(members)
        groups = [frozenset(each) for each in kept.values()]
        needed = len(groups) > 1 or bool(groups and blank)
        for members in groups or [frozenset(blank)]:
            self._components[min(members)] = members
        (mine,) = [each for each in (*groups, frozenset(blank)) if self._me in each]
        return Gathered(mine, tuple(sorted(self._components)), needed)

    def piece(self, sender: Member, message: ComponentPiece) -> Progress:
        """A piece of a component's state; they come in order."""
        if sender not in self._components or sender in self._complete:
            return None
        if message.total > self._bytes_max:
            text = f"the state of {sender} has {message.total} bytes, over {self._bytes_max}"
            return Failed("too large", text)
        state = self._states.setdefault(sender, bytearray())
        if message.offset != len(state) or message.offset + len(message.piece) > message.total:
            return Failed("bad state", f"the state of {sender} did not come whole")
        state += message.piece
        if len(state) == message.total:
            self._complete.add(sender)
        if len(self._complete) < len(self._components):
            return None
        return Complete(
            tuple(
                ComponentState(tuple(sorted(self._components[each])), bytes(self._states[each]))
                for each in sorted(self._components)
            )
        )

    def computed(self, sender: Member, message: Computed) -> Progress:
        """One member holds the result."""
        self._digests[sender] = message.digest
        if len(set(self._digests.values())) > 1:
            return Failed("differed", "members reconciled the same states in different ways")
        if self._digests.keys() >= set(self.members):
            return Agreed(message.digest)
        return None
