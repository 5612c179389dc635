"""One member's side of state on merge: which members share its state, what is held back, and what
becomes of each reconciliation. Runs in any world.

At a regular view, those that came along together and had one state are a component. If others are
in the view too, the least member of each component says who is in it; when all are known, each of
these multicasts the component's state; when all states are delivered, every member computes the
result and says so; and when all have the same one, all adopt it, at this place of the order.
Messages of the application that are delivered meanwhile are held back until then. The next view
ends what is under way: each component goes on with its own state, and it begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

from unisono.errors import Misuse
from unisono.model import Member, Message, View
from unisono.services.merge.exchange import (
    Agreed,
    Complete,
    ComponentState,
    Exchange,
    Failed,
    Gathered,
    Progress,
    label_of,
)
from unisono.services.merge.messages import (
    APPLICATION,
    PIECE_BYTES_MAX,
    REASON_LENGTH_MAX,
    SERVICE,
    Abandon,
    Again,
    BadMergeMessage,
    ComponentPiece,
    Computed,
    MergeMessage,
    Present,
    encoded,
    read,
)

LATE: Final = "late"
MESSAGE_BYTES: Final = 64
"""What a message that is held back costs beside its payload."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Bounds, the same at all members."""

    state_bytes_max: int = 4 << 20
    """The state of a component: beyond it `Unreconciled`."""
    held_bytes_max: int = 16 << 20
    """What is delivered meanwhile and held back: beyond it `Unreconciled`."""
    attempts_count_max: int = 3
    """Attempts in one view, if they are late."""

    def __post_init__(self) -> None:
        for name in ("state_bytes_max", "held_bytes_max", "attempts_count_max"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value < 1 << 32:
                raise Misuse(f"{name}={value!r}: give a number from 1 to 2^32-1")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """From here on all members of the view have one state, made of these."""

    view: str
    states: tuple[ComponentState, ...]


@dataclass(frozen=True, slots=True)
class Unreconciled:
    """All that go on together are told so at this place: each component keeps its own state and
    goes on. The next view tries again, and `again` before that."""

    view: str
    cause: str
    """`late`, `raised`, `differed`, `too large`, `bad state` or `overrun`."""
    reason: str


@dataclass(frozen=True, slots=True)
class SendMergeMessage:
    """Multicast this in the total order."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Compute:
    """Reconcile these states, and pass the result to `computed`."""

    key: tuple[str, int]
    states: tuple[ComponentState, ...]


Duty: TypeAlias = Message | View | Reconciled | Unreconciled | SendMergeMessage | Compute
"""For the application, in this order; or for whoever runs the reconciler."""


class StateHooks(Protocol):
    """The application's state. A reconciled state is computed first, and adopted if all members
    computed the same one."""

    def snapshot(self) -> bytes: ...

    def restore(self, state: bytes) -> None: ...

    def reconcile(self, states: tuple[ComponentState, ...]) -> bytes:
        """One state of these. A function of its argument alone. The states may share a past, and
        one may contain parts of another: unite them by the identity of what happened."""


class Reconciler:
    """Takes messages and views in order, and returns what is for the application and what is to be
    done."""

    def __init__(self, hooks: StateHooks, limits: MergeLimits | None = None) -> None:
        self._hooks = hooks
        self._limits = limits or MergeLimits()
        self.ignored_count = 0
        """Malformed messages."""

    def start(self, me: Member) -> None:
        """An incarnation begins; nothing was delivered in it."""
        self._me = me
        self._view: View | None = None
        self._same: frozenset[Member] = frozenset()
        """Members of the view with the state of this one."""
        self._is_new, self._source = True, ""
        self._exchange: Exchange | None = None
        self._attempt = 0
        self._held: list[Message | View] = []
        self._held_bytes = 0
        self._result: bytes | None = None
        self._given_up: tuple[str, int] | None = None

    # -- the state of the group, for newcomers ----------------------------------------------------

    def state(self) -> bytes:
        """The component's label, a line feed, and the application's snapshot."""
        return label_of(self._same).encode() + b"\n" + bytes(self._hooks.snapshot())

    def adopt(self, state: bytes) -> None:
        label, _, own = state.partition(b"\n")
        self._hooks.restore(own)
        self._source = label.decode("ascii", "replace")

    # -- the order --------------------------------------------------------------------------------

    @property
    def under_way(self) -> tuple[str, int] | None:
        """The view and attempt of the reconciliation that is going on."""
        each = self._exchange
        return (each.view, each.attempt) if each else None

    @property
    def apart(self) -> bool:
        """Whether the view has members with another state."""
        return self._view is not None and self._same != frozenset(self._view.members)

    def install(self, view: View) -> list[Duty]:
        if view.transitional:
            if self._exchange is None:
                return [view]
            self._held.append(view)
            return []
        duties = self._release()
        before, self._view, self._attempt = self._view, view, 0
        if before is None:
            self._same = frozenset((self._me,))
        elif self._me not in view.stayed:
            raise Misuse(
                "the protocol does not report who came along from the view before (View.stayed):"
                " choose one whose components merge"
            )
        else:
            self._same = self._narrowed(view)
            self._is_new = False
        return [*duties, view, *self._begin(0)]

    def _narrowed(self, view: View) -> frozenset[Member]:
        return self._same & frozenset(view.stayed)

    def _begin(self, attempt: int) -> list[Duty]:
        view = self._view
        if view is None or not self.apart:
            return []
        self._attempt = attempt
        self._result = None
        exchange = self._exchange = Exchange(
            self._me, view.id, attempt, view.members, self._limits.state_bytes_max
        )
        if self._me != min(self._same):
            return []
        places = tuple(at for at, each in enumerate(exchange.members) if each in self._same)
        return [_send(Present(view.id, attempt, places, self._is_new, self._source))]

    def deliver(self, message: Message) -> list[Duty]:
        payload = message.payload
        if payload[:1] == SERVICE:
            try:
                return self._take(message.sender, read(payload))
            except BadMergeMessage:
                self.ignored_count += 1
                return []
        if payload[:1] != APPLICATION:
            self.ignored_count += 1
            return []
        plain = message._replace(payload=payload[1:])
        if self._exchange is None:
            return [plain]
        self._held.append(plain)
        self._held_bytes += len(payload) + MESSAGE_BYTES
        if self._held_bytes > self._limits.held_bytes_max:
            return self._fail(Failed("overrun", "too much was delivered meanwhile"))
        return []

    def _take(self, sender: Member, message: MergeMessage) -> list[Duty]:
        exchange, view = self._exchange, self._view
        if view is None or message.view != view.id or sender not in view.members:
            return []
        if isinstance(message, Again):
            if exchange is None and message.attempt == self._attempt + 1:
                return self._begin(message.attempt)
            return []
        if exchange is None or message.attempt != exchange.attempt:
            return []
        match message:
            case Present():
                return self._follow(exchange.present(sender, message))
            case ComponentPiece():
                return self._follow(exchange.piece(sender, message))
            case Computed():
                return self._follow(exchange.computed(sender, message))
        return self._fail(Failed(message.cause, message.reason))

    def _follow(self, progress: Progress) -> list[Duty]:
        match progress:
            case Gathered(mine, speakers, needed):
                self._same = mine
                self._is_new = False
                if not needed:
                    return self._end()
                return self._speak() if self._me in speakers else []
            case Complete(states):
                assert self.under_way is not None
                self._states = states
                return [Compute(self.under_way, states)]
            case Agreed():
                return self._adopt_result()
            case Failed():
                return self._fail(progress)
        return []

    def _speak(self) -> list[Duty]:
        """Multicast the state of this component."""
        assert self._exchange is not None
        view, attempt = self._exchange.view, self._exchange.attempt
        try:
            state = bytes(self._hooks.snapshot())
        except Exception as error:
            return self._give_up("raised", f"snapshot at {self._me}: {_text(error)}")
        total = len(state)
        if total > self._limits.state_bytes_max:
            return [_send(ComponentPiece(view, attempt, total, 0))]
        return [
            _send(ComponentPiece(view, attempt, total, at, state[at : at + PIECE_BYTES_MAX]))
            for at in range(0, total or 1, PIECE_BYTES_MAX)
        ]

    # -- its end ----------------------------------------------------------------------------------

    def _adopt_result(self) -> list[Duty]:
        """Every member said that it has the result, this one too."""
        assert self._view is not None and self._result is not None
        self._hooks.restore(self._result)
        return [Reconciled(self._view.id, self._states), *self._end()]

    def _end(self) -> list[Duty]:
        assert self._view is not None
        self._same = frozenset(self._view.members)
        self._is_new = False
        return self._release()

    def _release(self) -> list[Duty]:
        """What was held back, now that nothing is under way."""
        held: list[Duty] = [*self._held]
        self._held, self._held_bytes = [], 0
        self._exchange, self._result = None, None
        return held

    def _fail(self, failed: Failed) -> list[Duty]:
        assert self._view is not None
        told = Unreconciled(self._view.id, failed.cause, failed.reason[:REASON_LENGTH_MAX])
        duties: list[Duty] = [told, *self._release()]
        again = failed.cause == LATE and self._attempt + 1 < self._limits.attempts_count_max
        if again and self._me == min(self._view.members):
            duties += self.again()
        return duties

    # -- what is this member's own ----------------------------------------------------------------

    def computed(self, key: tuple[str, int], result: bytes | Exception) -> list[Duty]:
        """What the application made of the states."""
        if key != self.under_way:
            return []
        if isinstance(result, Exception):
            return self._give_up("raised", f"reconcile at {self._me}: {_text(result)}")
        if len(result) > self._limits.state_bytes_max:
            text = f"the reconciled state has {len(result)} bytes"
            return self._give_up("too large", f"{text}, over {self._limits.state_bytes_max}")
        self._result = result
        return [_send(Computed(*key, sha256(result).hexdigest()))]

    def expire(self, key: tuple[str, int]) -> list[Duty]:
        """This reconciliation takes too long."""
        if key != self.under_way:
            return []
        return self._give_up(LATE, f"{self._me} has waited too long")

    def again(self) -> list[Duty]:
        """Try once more in this view."""
        if self._view is None or not self.apart or self._exchange is not None:
            return []
        return [_send(Again(self._view.id, self._attempt + 1))]

    def _give_up(self, cause: str, reason: str) -> list[Duty]:
        """In the order, so that all do at the same place."""
        key = self.under_way
        if key is None or key == self._given_up:
            return []
        self._given_up = key
        return [_send(Abandon(*key, cause, reason[:REASON_LENGTH_MAX]))]


def _send(message: MergeMessage) -> SendMergeMessage:
    return SendMergeMessage(encoded(message))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
