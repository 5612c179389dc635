"""A member of a group that spans clusters joined by wide links [TRA §1 Figure 1].

Each cluster is a Transis group of its own, in which all members run a replica of one member of the
wide group: a Transis group whose members are the clusters. The first member of a cluster speaks for
it: it sends what the replica asks to send, and tells the cluster the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from unisono.core import (
    Adopt,
    Arm,
    Capture,
    Captured,
    Cause,
    Congested,
    CoreConfig,
    Deliver,
    Depart,
    Disarm,
    Effect,
    Event,
    Expired,
    Fail,
    Install,
    Leave,
    Multicast,
    Received,
    Send,
)
from unisono.errors import BadPacket
from unisono.model import Member, Message, Service, View
from unisono.parts.options import checked
from unisono.protocols.transis.cluster_backlog import BACKLOG_BYTES, ApplicationBacklog
from unisono.protocols.transis.cluster_links import WideLinks
from unisono.protocols.transis.cluster_member import ClusterMember, Output, StateArrived
from unisono.protocols.transis.cluster_messages import (
    CLUSTERS_MAX,
    Backlog,
    ClusterMessage,
    Farewell,
    HandOver,
    Quit,
    Relay,
    Submit,
    read,
    written,
)
from unisono.protocols.transis.cluster_parameters import BOUNDS, DEFAULTS, check_clusters
from unisono.protocols.transis.cluster_views import GroupView
from unisono.protocols.transis.core import Transis

CUT_OFF: Final = "left without a majority of its cluster: what others deliver is not known"


class Wake(Enum):
    """The timer of the member that speaks for its cluster."""

    WIDE = 1
    """A timer of the wide group runs out."""


class ClusteredTransis:
    """One process of a cluster: a member of the cluster's group, with its replica."""

    def __init__(self, config: CoreConfig) -> None:
        options = checked("transis", DEFAULTS, config.options, BOUNDS)
        self.me = config.me
        self._config = config
        check_clusters(config.me, config.clusters)
        self._links = WideLinks(config.me.address, config.clusters)
        wide = {
            "detect_us": options.pop("wide_detect_us"),
            "answer_us": options.pop("wide_answer_us"),
            "members_count_max": CLUSTERS_MAX,
        }
        state = {"state": "true" if config.with_state else "false"}
        self._wide_config = replace(
            config,
            group=f"{config.group}/",
            options=wide,
            terms={**config.terms, **state},
            clusters={},
        )
        sites = self._links.sites
        local = {"sites": sites, "one_history": 1, "members_count_max": sites}
        terms = {f"wide_{name}": str(value) for name, value in wide.items()}
        self._local = Transis(
            replace(
                config,
                group=f"{config.group}/{self._links.name}",
                options={**options, **local},
                terms={**config.terms, **state, **terms},
                with_state=True,
                clusters={},
            )
        )
        self._replica: ClusterMember | None = None
        self._ahead_us = 0
        """Of the cluster's time, as far as this member knows, before its own clock."""
        self._now_us = 0
        self._wakes_us: int | None = None
        self._first: View | None = None
        """The replica came from another member, which saw the next view so."""
        self._is_relaying = False
        """Packets or the time are on their way to the cluster."""
        self._sent = 0
        self._backlog = ApplicationBacklog()
        self._told_backlog = False
        self._view: View | None = None
        """The last one for the application."""
        self._awaited = 0
        """The tag of the view whose state is awaited."""
        self._captured: dict[int, bytes] = {}
        self._handed: set[int] = set()
        self._leaving = self._is_expected_out = self._left = self._over = False
        self._is_cut_off = False
        """It leaves, and nobody can be told."""

    # -- the contract -----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        return self._local.counts

    def transition_counts(self) -> Mapping[str, int]:
        return self._local.transition_counts()

    def held(self) -> Mapping[Member, int]:
        return dict(self._replica.numbers) if self._replica is not None else {}

    def send_credit(self) -> int:
        if self._view is None or self._awaited or self._leaving or self._backlog.congested:
            return 0
        assert self._replica is not None
        return min(self._local.send_credit(), self._replica.send_credit())

    def step(self, now_us: int, event: Event) -> list[Effect]:
        out: list[Effect] = []
        if self._over:
            if isinstance(event, Congested):
                self._backlog.hold_back(event.on)
                self._backlog.show(out)
            return out
        self._now_us = now_us
        self._take(event, out)
        self._conclude(out)
        return out

    def _take(self, event: Event, out: list[Effect]) -> None:
        if isinstance(event, Multicast):
            self._submit(event, out)
        elif isinstance(event, Received):
            self._receive(event, out)
        elif isinstance(event, Expired) and isinstance(event.timer, Wake):
            self._wakes_us = None
        elif isinstance(event, Congested):
            self._backlog.hold_back(event.on)
        elif isinstance(event, Leave):
            self._leaving = True
            if self._replica is None:
                self._feed(event, out)
        elif isinstance(event, Captured):
            assert isinstance(event.key, int)
            self._captured[event.key] = event.state
        else:
            self._feed(event, out)

    # -- towards the cluster ----------------------------------------------------------------------

    def _submit(self, event: Multicast, out: list[Effect]) -> None:
        level = event.service if isinstance(event.service, Service) else Service.AGREED
        first, self._sent = self._sent + 1, self._sent + len(event.messages)
        payloads = [
            written(Submit(self._cluster_us(), number, level, payload))
            for number, payload in enumerate(event.messages, first)
        ]
        self._feed(Multicast(payloads, Service.SAFE), out)

    def _cluster_us(self) -> int:
        """The cluster's time, as far as this member knows."""
        return max(0, self._now_us + self._ahead_us)

    def _keep_time(self, replica: ClusterMember) -> None:
        """The cluster's time does not go back, whatever this member's clock does."""
        self._ahead_us = max(self._ahead_us, replica.now_us - self._now_us)

    def _say(self, message: ClusterMessage, out: list[Effect]) -> None:
        """Safe: what a replica has done once, all others will do."""
        self._feed(Multicast([written(message)], Service.SAFE), out)

    def _feed(self, event: Event, out: list[Effect]) -> None:
        effects = self._local.step(self._now_us, event)
        is_asked = any(isinstance(effect, Capture) for effect in effects)
        image, images = b"", list[Captured]()
        for effect in effects:
            match effect:
                case Deliver(messages):
                    for message in messages:
                        self._replay(message, out)
                case Install(view):
                    if is_asked and self._replica is not None and not view.transitional:
                        image = self._replica.image(view)
                    self._enter(view, out)
                case Capture(key):
                    images.append(Captured(key, image))
                case Adopt(state):
                    self._begin_from(state, out)
                case Fail() | Depart():
                    self._end(effect, out)
                case _:
                    out.append(effect)
        for each in images:
            self._feed(each, out)

    def _begin_from(self, image: bytes, out: list[Effect]) -> None:
        try:
            self._replica, self._first = ClusterMember.of(image)
        except BadPacket:
            self._end(Fail("the state of the cluster is unreadable: use the same release"), out)
            return
        self._ahead_us = self._replica.now_us - self._now_us

    def _enter(self, view: View, out: list[Effect]) -> None:
        """A view of the cluster."""
        if view.transitional or self._over:
            return
        if self._replica is None:
            links = self._links
            self._replica = ClusterMember(
                links.name, links.rank, links.sites, self._wide_config, view
            )
            self._ahead_us = -self._now_us
        self._is_relaying = False
        self._perform(self._replica.install(self._first or view), out)
        self._first = None

    def _replay(self, message: Message, out: list[Effect]) -> None:
        replica = self._replica
        if replica is None or self._over:
            return
        try:
            said = read(message.payload)
            done = replica.take(message.sender, said)
        except BadPacket as bad:
            self._count(f"drop.{bad.reason}")
            return
        if isinstance(said, Relay) and message.sender == self.me:
            self._is_relaying = False
        self._perform(done, out)

    def _count(self, name: str, by: int = 1) -> None:
        self._local.codec.count(name, by)

    # -- the wide links ---------------------------------------------------------------------------

    @property
    def _speaks(self) -> bool:
        """This member speaks for its cluster."""
        return self._replica is not None and self._replica.members[:1] == [self.me]

    def _receive(self, event: Received, out: list[Effect]) -> None:
        if not self._links.is_foreign(event.source):
            self._feed(event, out)
        elif self._replica is None:
            self._count("drop.early", len(event.packets))
        else:
            self._links.take(event, self._replica.group_tag, self._count)

    def _send_wide(self, effect: Send, out: list[Effect]) -> None:
        if to := self._links.targets(effect.to):
            self._count("out.wide", len(effect.packets) * len(to))
            out.append(Send(to, effect.packets))

    # -- what the replica did ---------------------------------------------------------------------

    def _perform(self, done: list[Output], out: list[Effect]) -> None:
        is_out = self._left
        for each in done:
            match each:
                case Send():
                    if self._speaks:
                        self._send_wide(each, out)
                case Deliver():
                    if self._view is not None and not is_out:
                        self._backlog.put(each)
                case GroupView():
                    if self._is_expected_out and self.me not in each.members:
                        is_out = True
                    elif not is_out:
                        self._show(each)
                case StateArrived(tag, state):
                    self._adopt(tag, state)
                case Fail():
                    self._end(each, out)
                case Depart():
                    self._left = True
                    self._feed(Leave(), out)
        if is_out and not self._left and self._replica is not None:
            self._go(self._replica, out)

    def _show(self, group_view: GroupView) -> None:
        """A view of the whole group."""
        assert self._replica is not None
        rows = [row for each in group_view.reports.values() for row in each.members]
        mine = next((row for row in rows if row.member == self.me), None)
        if mine is None:
            return
        if not mine.settled:  # Whatever was meant for it, it begins here.
            self._backlog.clear()
            self._backlog.await_state(False)
            self._view = None
            self._awaited = 0
        view = group_view.seen_by(self.me, self._view)
        self._captured = {}
        is_fed = self._config.with_state and group_view.source(self._replica.me) is not None
        if not mine.settled and is_fed:
            self._awaited = group_view.tag
            self._backlog.await_state(True)
        self._view = view
        self._backlog.put(Install(view))
        if mine.settled and group_view.tag in self._replica.handing_over:
            self._backlog.put(Capture(group_view.tag))

    def _adopt(self, tag: int, state: bytes) -> None:
        if tag == self._awaited:
            self._awaited = 0
            self._backlog.adopt(state)

    # -- the end of a step ------------------------------------------------------------------------

    def _conclude(self, out: list[Effect]) -> None:
        replica = self._replica
        if replica is not None and not self._over:
            self._keep_time(replica)
            self._hand_over(replica, out)
            self._relay(replica, out)
            self._tell_backlog(out)
            self._leave(replica, out)
            self._plan(replica, out)
        if not self._over:
            self._backlog.show(out)

    def _hand_over(self, replica: ClusterMember, out: list[Effect]) -> None:
        if not self._speaks:
            return
        for tag in list(replica.handing_over):
            if tag in self._captured and tag not in self._handed:
                self._handed = {tag}
                self._say(HandOver(tag, self._captured[tag]), out)

    def _relay(self, replica: ClusterMember, out: list[Effect]) -> None:
        """What came over the wide link, and the time: one message at a time, so that what comes
        meanwhile shares the next."""
        if self._is_relaying or not (self._links.packets or self._is_due(replica)):
            return
        self._is_relaying = True
        self._say(Relay(self._cluster_us(), self._links.drain()), out)

    def _is_due(self, replica: ClusterMember) -> bool:
        next_us = replica.next_us()
        return self._speaks and next_us is not None and next_us <= self._cluster_us()

    def _plan(self, replica: ClusterMember, out: list[Effect]) -> None:
        """Wake up when the next timer of the wide group runs out."""
        next_us = replica.next_us() if self._speaks and not self._is_relaying else None
        at_us = None if next_us is None else max(next_us - self._ahead_us, self._now_us)
        if at_us == self._wakes_us:
            return
        self._wakes_us = at_us
        out.append(Disarm(Wake.WIDE) if at_us is None else Arm(Wake.WIDE, at_us - self._now_us))

    def _tell_backlog(self, out: list[Effect]) -> None:
        is_long = self._backlog.nbytes > (0 if self._told_backlog else BACKLOG_BYTES)
        if is_long != self._told_backlog:
            self._told_backlog = is_long
            self._say(Backlog(is_long), out)

    def _leave(self, replica: ClusterMember, out: list[Effect]) -> None:
        """Once the other clusters have what this member said, the next view is without it; then it
        is owed nothing more."""
        if not self._leaving or self._left:
            return
        if self._view is None or not self._local.may_operate:  # Nobody can be told.
            self._left, self._is_cut_off = True, self._view is not None
            self._feed(Leave(), out)
        elif not self._is_expected_out:
            if replica.numbers.get(self.me, 0) == self._sent and replica.is_flushed():
                self._is_expected_out = True
                self._say(Farewell(), out)

    def _go(self, replica: ClusterMember, out: list[Effect]) -> None:
        """The group has a view without this member."""
        self._left = True
        if replica.members == [self.me] and self._links.sites == 1:
            self._say(Quit(), out)
        else:
            self._feed(Leave(), out)

    def _end(self, effect: Fail | Depart, out: list[Effect]) -> None:
        if not self._over:
            self._over = True
            out.append(Disarm(Wake.WIDE))
            self._backlog.end(Fail(CUT_OFF, Cause.EXCLUDED) if self._is_cut_off else effect)
            self._backlog.show(out)
