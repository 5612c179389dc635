"""The tap: a core around another, which writes the trace. The protocol does not know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from unisono.core import (
    Cause,
    Core,
    Deliver,
    Depart,
    Effect,
    Event,
    Everyone,
    Expired,
    Fail,
    Install,
    Join,
    Multicast,
    Received,
    Restart,
    Send,
    Stabilize,
    Timer,
)
from unisono.model import Buffer, Member, Message, Packets, View, level_text
from unisono.spec import no_text
from unisono.trace.record import LEFT, Row, Sink, digest_of

RECORDED_EVENTS: Final = frozenset((Multicast, Join, Restart))
RECORDED_EFFECTS: Final = frozenset((Deliver, Stabilize, Install, Depart, Fail))
"""What the application notices; all else is protocol work."""
NO_MARKS: Final[Mapping[Member, int]] = {}


class Tap:
    """Wraps a core and writes a row for each thing its application would notice.

    A step's rows come in this order: the event, then (with `detail`) the work that was counted,
    then the effects in order. A step that raises leaves no row. `step` writes them all; a world in
    which a process may crash between two effects calls `take`, and `record` for each effect that it
    performs.
    """

    def __init__(
        self,
        core: Core,
        protocol: str,
        group: str,
        sink: Sink,
        detail: bool = False,
        label: Callable[[Buffer], str] = no_text,
        quorum: int = 0,
    ) -> None:
        self.core = core
        self.me: Member = core.me
        self.counts: dict[str, int] = core.counts
        self.send_detail: str | None = None
        """The detail of the `send` rows to come; the world sets it to `record.PROBE` at times."""
        self._protocol = protocol
        self._group = group
        self._sink = sink
        self._detail = detail
        self._label = label
        """The protocol's label of a packet."""
        self._quorum = quorum
        """The least size of a view, as the protocol promises; 0 where any part may go on."""
        self._rows = 0
        self._sent = 0
        self._view = ""
        self._over = False
        self._effects: Sequence[Effect] = ()
        """Of the last step."""

    def send_credit(self) -> int:
        return self.core.send_credit()

    def held(self) -> Mapping[Member, int]:
        return self.core.held()

    def transition_counts(self) -> Mapping[str, int]:
        return self.core.transition_counts()

    def step(self, now_us: int, event: Event) -> list[Effect]:
        effects = self.take(now_us, event)
        for effect in effects:
            self.record(now_us, effect)
        return effects

    def take(self, now_us: int, event: Event) -> list[Effect]:
        """Step the core and write the rows of the event, but none of the effects."""
        if self._detail:
            return self._take_in_detail(now_us, event)
        effects = self._effects = self.core.step(now_us, event)
        if type(event) in RECORDED_EVENTS:
            self._record_event(now_us, event)
        return effects

    def record(self, now_us: int, effect: Effect) -> None:
        """Write that this effect is performed now."""
        if type(effect) in RECORDED_EFFECTS:
            self._record_effect(now_us, effect)
        elif self._detail and isinstance(effect, Send):
            targets = ("*",) if isinstance(effect.to, Everyone) else map(str, effect.to)
            self._write_packets(now_us, "packet_out", targets, effect.packets)

    def note(
        self,
        now_us: int,
        kind: str,
        detail: str | None = None,
        number: int | None = None,
        members: tuple[str, ...] | None = None,
    ) -> None:
        """A fact that only the world knows: a `crash`, a `fault`."""
        if kind in ("crash", "leave"):
            self._write_receipts(now_us, self._undelivered())
            self._over = True
        self._write(now_us, kind, detail=detail, number=number, members=members)

    # -- what the application notices --------------------------------------------------------

    def _record_event(self, now_us: int, event: Event) -> None:
        if isinstance(event, Multicast):
            service = level_text(event.service)
            for payload in event.messages:
                self._sent += 1
                self._write(
                    now_us,
                    "send",
                    sender=self.me.name,
                    sender_incarnation=self.me.incarnation,
                    number=self._sent,
                    service=service,
                    size=len(payload),
                    digest=digest_of(payload),
                    detail=self.send_detail,
                )
        elif isinstance(event, Join):
            self._write(now_us, "join", number=self._quorum or None, peer=str(self.me.address))
        elif isinstance(event, Restart):
            self._write(now_us, "restart")

    def _record_effect(self, now_us: int, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            for message in effect.messages:
                self._write_message(now_us, "deliver", message)
        elif isinstance(effect, Stabilize):
            holders = tuple(map(str, effect.holders))
            for message in effect.messages:
                self._write_message(now_us, "stable", message, holders or None)
        elif isinstance(effect, Install):
            if not effect.view.transitional:
                self._write_receipts(now_us)
            self._write_view(now_us, effect.view)
        elif isinstance(effect, Depart | Fail):
            self._write_receipts(now_us)
            self._over = True
            if isinstance(effect, Depart):
                told = (f"view {effect.view}",) if effect.view else None
                self._write(now_us, "leave", detail=LEFT, changes=told)
            else:
                changes = [effect.cause.value]
                if effect.cause is Cause.EXCLUDED and effect.view:
                    changes.append(f"view {effect.view}")
                    if effect.founding:
                        changes.append(f"founding {effect.founding}")
                self._write(now_us, "leave", detail=effect.reason, changes=tuple(changes))

    def _undelivered(self) -> dict[Member, int]:
        """What the last step delivers, for a crash amid its effects: the core has let go of it."""
        found: dict[Member, int] = {}
        for effect in self._effects:
            if isinstance(effect, Deliver):
                found.update((message.sender, message.number) for message in effect.messages)
        return found

    def _write_receipts(self, now_us: int, undelivered: Mapping[Member, int] = NO_MARKS) -> None:
        """What was here when the view ended, of each sender. The core has taken its step already:
        what came with that step counts."""
        if not self._view or self._over:
            return
        held = dict(self.core.held())
        for sender, number in undelivered.items():
            held[sender] = max(number, held.get(sender, 0))
        for sender, number in sorted(held.items()):
            if number > 0:
                self._write(
                    now_us,
                    "receipt",
                    sender=sender.name,
                    sender_incarnation=sender.incarnation,
                    number=number,
                )

    def _write_message(
        self, now_us: int, kind: str, message: Message, holders: tuple[str, ...] | None = None
    ) -> None:
        self._write(
            now_us,
            kind,
            sender=message.sender.name,
            sender_incarnation=message.sender.incarnation,
            number=message.number,
            seq=message.seq,
            service=level_text(message.service),
            size=len(message.payload),
            digest=digest_of(message.payload),
            members=holders,
        )

    def _write_view(self, now_us: int, view: View) -> None:
        self._view = view.id
        told = (f"of {view.founding}",) if view.founding not in ("", view.id) else ()
        self._write(
            now_us,
            "transitional" if view.transitional else "view",
            seq=view.seq,
            members=_named(view.members),
            detail=cut_text(view.cut) or view.detail or None,
            joined=_named(view.joined),
            left=_named(view.left),
            stayed=_named(view.stayed) or None,
            changes=(*map(str, view.changes), *told) or None,
        )

    # -- protocol work -----------------------------------------------------------------------

    def _take_in_detail(self, now_us: int, event: Event) -> list[Effect]:
        work = dict(self.counts)
        arrows = dict(self.core.transition_counts())
        effects = self._effects = self.core.step(now_us, event)
        self._record_event(now_us, event)
        if isinstance(event, Received):
            self._write_packets(now_us, "packet_in", (str(event.source),), event.packets)
        elif isinstance(event, Expired):
            self._write(now_us, "timer", detail=timer_name(event.timer))
        self._record_work(now_us, work, arrows)
        return effects

    def _record_work(self, now_us: int, work: dict[str, int], arrows: dict[str, int]) -> None:
        """One row a name, with how often it happened in this step as its number."""
        for name in sorted(self.counts):
            kind, _, reason = name.partition(".")
            risen = self.counts[name] - work.get(name, 0)
            if risen and kind in ("drop", "nak", "repair"):
                self._write(now_us, kind, number=risen, detail=reason or None)
        for arrow, count in sorted(self.core.transition_counts().items()):
            risen = count - arrows.get(arrow, 0)
            if risen:
                self._write(now_us, "arrow", number=risen, detail=arrow)

    def _write_packets(
        self, now_us: int, kind: str, peers: Iterable[str], packets: Packets
    ) -> None:
        """One row per packet and peer. Its digest matches an arrival to its sending."""
        labelled = [(len(each), digest_of(each), self._label(each) or None) for each in packets]
        for peer in peers:
            for size, digest, label in labelled:
                self._write(now_us, kind, size=size, digest=digest, peer=peer, detail=label)

    # -- the row -----------------------------------------------------------------------------

    def _write(
        self,
        now_us: int,
        kind: str,
        sender: str | None = None,
        sender_incarnation: int | None = None,
        number: int | None = None,
        seq: int | None = None,
        service: str | None = None,
        size: int | None = None,
        digest: int | None = None,
        members: tuple[str, ...] | None = None,
        peer: str | None = None,
        detail: str | None = None,
        joined: tuple[str, ...] | None = None,
        left: tuple[str, ...] | None = None,
        stayed: tuple[str, ...] | None = None,
        changes: tuple[str, ...] | None = None,
    ) -> None:
        me = self.me
        step = self._rows
        self._rows = step + 1
        # fmt: off
        self._sink.write(Row(
            self._protocol, self._group, me.name, me.incarnation, step, now_us, kind, self._view,
            sender, sender_incarnation, number, seq, service, size, digest, members, joined,
            left, stayed, changes, peer, detail,
        ))
        # fmt: on


def _named(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(map(str, members))


def cut_text(cut: tuple[tuple[Member, int], ...]) -> str:
    """`a#1:17 b#2:4`, sorted. Spaces and percent signs in names are percent-encoded."""
    return " ".join(sorted(f"{escaped(str(member))}:{number}" for member, number in cut))


def escaped(incarnation: str) -> str:
    return incarnation.replace("%", "%25").replace(" ", "%20")


def timer_name(timer: Timer) -> str:
    """A timer as people read it: its enumeration's name, and after it what it is about."""
    if isinstance(timer, Enum):
        return timer.name
    if isinstance(timer, tuple):
        return " ".join(timer_name(part) for part in timer)
    return str(timer)
