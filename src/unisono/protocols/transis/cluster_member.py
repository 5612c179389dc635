"""A cluster as one member of the wide group: the part of it that every process of it replicates.

Its inputs are the messages and views of the cluster's own group, in their one order; its outputs
follow from them. So all replicas are always alike, whichever of them speaks for the cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from unisono.core import (
    Arm,
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
    Join,
    Leave,
    Multicast,
    Received,
    Send,
    Timer,
)
from unisono.errors import BadPacket
from unisono.model import Address, ChangeKind, Member, Message, Service, View
from unisono.parts.core_state import CoreReader, CoreWriter
from unisono.parts.identity import key_of
from unisono.protocols.transis.cluster_messages import (
    Backlog,
    ClusterMessage,
    ClusterReport,
    Farewell,
    ForwardedState,
    HandOver,
    Quit,
    Relay,
    ReportedMember,
    Said,
    Submit,
    read,
    written,
)
from unisono.protocols.transis.cluster_views import GroupView, ViewRounds
from unisono.protocols.transis.core import Transis
from unisono.protocols.transis.figure import FIGURE
from unisono.wire import tag_of

EXPIRIES_MAX: Final = 64
"""Timers that one input lets expire."""
KNOWN: Final = {"figure": FIGURE}
MODULES: Final = (
    "unisono.protocols.transis",
    *("unisono.parts", "unisono.model", "unisono.core", "unisono.fsa"),
)


class StateArrived(NamedTuple):
    """For those that are new in this view."""

    view: int
    state: bytes


Output: TypeAlias = Send | Deliver | GroupView | StateArrived | Fail | Depart
"""A `Send` is for the wide link: its targets are the addresses of clusters."""


def cluster_address(rank: int, port: int = 1) -> Address:
    """What stands for a cluster in the wide group, whoever speaks for it."""
    return Address(f"0.0.0.{rank}", port)


def rank_of(address: Address) -> int:
    return int(address.host.rpartition(".")[2])


class ClusterMember:
    """The replicated member."""

    def __init__(self, name: str, rank: int, sites: int, wide: CoreConfig, first: View) -> None:
        self._name = name
        self._rank = rank
        self._sites = sites
        """Processes of the cluster, there or not."""
        self._config = wide
        self._wide = self._begin(max(each.incarnation for each in first.members), first.id)
        self.now_us = 0
        """The cluster's time: that of the process that speaks for it, and of whoever follows it."""
        self._deadlines: dict[Timer, int] = {}
        self._rounds = ViewRounds()
        self.members: list[Member] = []
        """Those of the cluster, longest here first: the first speaks for it."""
        self._settled: set[Member] = set()
        self._reported: tuple[Member, ...] = ()
        self._leaving: set[Member] = set()
        self._left: set[int] = set()
        self._lagging: set[Member] = set()
        self._sent: dict[Member, int] = {}
        """By member of the cluster, the number of its last message passed on."""
        self.numbers: dict[Member, int] = {}
        """By member of the group, the last message delivered or spared."""
        self._by_key: dict[int, Member] = {}
        self._waiting: list[tuple[Member, Submit]] = []
        """Messages that wait for the next view."""
        self._unheard: dict[tuple[Member, int], Submit] = {}
        """Messages passed on and not delivered here."""
        self.handing_over: dict[int, bool] = {}
        """By tag of a view whose newcomers get the state of this cluster: whether some are
        elsewhere."""
        self.out: list[Output] = []
        self._events: deque[Event] = deque()
        """For the wide group; what one brings about is dealt with before the next."""
        self._step(Join())

    def _begin(self, incarnation: int, origin: str) -> Transis:
        """The member of the wide group: another one for each view of the cluster that it began
        with."""
        port = 1 + tag_of(origin) % 65535
        me = Member(self._name, cluster_address(self._rank, port), incarnation)
        seed = tag_of(f"{me} {origin}") >> 1
        config = self._config
        return Transis(
            CoreConfig(
                me,
                config.group,
                seed,
                config.packet_bytes_max,
                config.message_bytes_max,
                config.window_bytes_max,
                options=config.options,
                terms=config.terms,
            )
        )

    def _begin_again(self, incarnation: int, origin: str) -> None:
        """The cluster goes on alone, and comes back into the wide group as a newcomer."""
        before, self._wide = self.me, self._begin(incarnation, origin)
        self._deadlines = {}
        self._events = deque(self._events[0] for _ in range(len(self._events) > 0))
        self._rounds.restart(before, self.me)
        for (sender, _), message in list(self._unheard.items()):
            self._show(sender, message)
        self._sent = {each: self.numbers.get(each, 0) for each in self.members}
        self._step(Join())

    # -- as others see it -------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        return self._wide.me

    @property
    def group_tag(self) -> int:
        """Of the packets of the wide group."""
        return self._wide.codec.group

    @property
    def counts(self) -> Mapping[str, int]:
        return self._wide.counts

    def next_us(self) -> int | None:
        """When the next timer runs out."""
        return min(self._deadlines.values(), default=None)

    def send_credit(self) -> int:
        if self._rounds.is_pending:
            return 0
        return self._wide.send_credit()

    def is_flushed(self) -> bool:
        """All other clusters have all that this one sent."""
        return not self._waiting and self._wide.send_credit() == self._config.window_bytes_max

    def image(self, view: View) -> bytes:
        """All of it, for replicas that begin with this view."""
        assert not self.out
        return CoreWriter(KNOWN).write((self, view))

    @staticmethod
    def of(image: bytes) -> tuple[ClusterMember, View]:
        found = CoreReader(KNOWN, MODULES).read(image)
        match found:
            case (ClusterMember() as member, View() as view):
                return member, view
        raise BadPacket("state")

    # -- inputs -----------------------------------------------------------------------------------

    def install(self, view: View) -> list[Output]:
        """The cluster's own members changed. If no majority of all its processes has come along,
        others may have, elsewhere: then it is another member of the wide group from here on."""
        if view.primary is False:
            return []
        here = set(view.members)
        if self.members and 2 * len(view.stayed) <= self._sites:
            self._begin_again(self.me.incarnation + 1, view.id)
        left = {who for each in view.changes if each.what is ChangeKind.LEFT for who in each.who}
        self._left |= {key_of(each) for each in left.intersection(self.members)}
        self.members = [each for each in self.members if each in here]
        self.members += sorted(here.difference(self.members))
        self._settled &= frozenset(view.stayed)
        self._leaving &= here
        self._sent = {each: self._sent.get(each, 0) for each in self.members}
        self._lag(self._lagging & here)
        self._look_at_members()
        return self._taken()

    def take(self, sender: Member, message: ClusterMessage) -> list[Output]:
        """A message of the cluster's group. Raises `BadPacket`."""
        match message:
            case Submit(at_us):
                self._advance(at_us)
                self._pass_on(sender, message)
            case Relay(at_us, packets):
                self._advance(at_us)
                for cluster, packet in packets:
                    self._step(Received(cluster_address(cluster), [bytes(packet)]))
            case Backlog(is_long):
                self._lag(self._lagging | {sender} if is_long else self._lagging - {sender})
            case HandOver(view, state):
                self._hand_out(view, bytes(state))
            case Farewell():
                self._leaving.add(sender)
                self._left.add(key_of(sender))
                self._look_at_members()
            case Quit():
                self._step(Leave())
            case _:
                raise BadPacket("malformed")
        return self._taken()

    def _taken(self) -> list[Output]:
        out, self.out = self.out, []
        return out

    def _advance(self, at_us: int) -> None:
        self.now_us = max(self.now_us, at_us)
        for _ in range(EXPIRIES_MAX):
            due = [(at, str(timer), timer) for timer, at in self._deadlines.items()]
            at, _, timer = min(due, default=(self.now_us + 1, "", None))
            if at > self.now_us:
                return
            del self._deadlines[timer]
            self._step(Expired(timer))

    def _lag(self, lagging: set[Member]) -> None:
        """While an application of the cluster lags far behind, the cluster takes no more."""
        if bool(lagging) != bool(self._lagging):
            self._step(Congested(bool(lagging)))
        self._lagging = lagging

    # -- messages ---------------------------------------------------------------------------------

    def _pass_on(self, sender: Member, message: Submit) -> None:
        if self._rounds.is_pending:
            self._waiting.append((sender, message))
            return
        view = self._rounds.view
        if view is None or key_of(sender) not in self._by_key:
            return
        self._sent[sender] = message.number
        self._unheard[sender, message.number] = message
        said = Said(key_of(sender), view.tag, message.number, message.level, message.payload)
        level = Service.AGREED if message.level >= Service.AGREED else Service.CAUSAL
        self._say(said, level)

    def _say(self, message: ClusterMessage, level: Service = Service.CAUSAL) -> None:
        self._step(Multicast([written(message)], level))

    def _hear(self, message: Message) -> None:
        """A message of the wide group."""
        cluster = message.sender
        try:
            said = read(message.payload)
        except BadPacket as bad:
            self._wide.codec.drop(bad.reason)
            return
        match said:
            case Said():
                self._deliver(cluster, said)
            case ClusterReport():
                if self._rounds.is_first_of_next(said):
                    self._rounds.begin()
                    self._report()
                view = self._rounds.take(cluster, said)
                if view is not None:
                    self._enter(view)
            case ForwardedState(view_tag, state):
                self._arrive(view_tag, bytes(state))
            case _:
                self._wide.codec.drop("malformed")

    def _deliver(self, cluster: Member, said: Said) -> None:
        """Who was not in the view when it was said does not get it: the next view says so."""
        view, sender = self._rounds.view, self._by_key.get(said.sender)
        is_former = view is None or said.view not in (view.tag, *view.formers)
        if is_former or not self._rounds.is_along(cluster):
            self._wide.codec.drop("former")
            return
        if sender is None or said.number != self.numbers.get(sender, 0) + 1:
            self._wide.codec.drop("malformed")
            return
        self._show(sender, said)

    def _show(self, sender: Member, said: Said | Submit) -> None:
        view = self._rounds.view
        assert view is not None
        self.numbers[sender] = said.number
        self._unheard.pop((sender, said.number), None)
        level = Service(said.level)
        message = Message(sender, bytes(said.payload), said.number, view.id, None, level)
        self.out.append(Deliver([message]))

    # -- views ------------------------------------------------------------------------------------

    def _look_at_members(self) -> None:
        """All clusters are told if the members of this one are others than they know."""
        if self._rounds.clusters and not self._rounds.is_pending:
            if self._staying() != self._reported:
                self._rounds.begin()
                self._report()

    def _staying(self) -> tuple[Member, ...]:
        return tuple(each for each in self.members if each not in self._leaving)

    def _report(self) -> None:
        self._reported = self._staying()
        rows = tuple(
            ReportedMember(each, self._sent[each], each in self._settled) for each in self._reported
        )
        self._say(ClusterReport(*self._rounds.front(), rows, tuple(sorted(self._left))))

    def _enter(self, view: GroupView) -> None:
        along = [view.reports[each] for each in view.along if each in view.reports]
        known = {
            row.member: self.numbers.get(row.member, 0) for each in along for row in each.members
        }
        self.numbers = {
            row.member: max(known.get(row.member, 0), row.sent)
            for each in view.reports.values()
            for row in each.members
        }
        self._by_key = {key_of(each): each for each in self.numbers}
        self._left.clear()
        self.out.append(view)
        self._hand_over(view)
        waiting, self._waiting = self._waiting, []
        for sender, message in waiting:
            self._pass_on(sender, message)
        self._look_at_members()

    def _hand_over(self, view: GroupView) -> None:
        """Newcomers get the application's state as of the view."""
        with_state = self._config.with_state
        needy = [each for each in view.reports if view.newcomers(each)]
        mine = [each for each in needy if with_state and view.source(each) == self.me]
        self.handing_over = {}
        if mine:
            self.handing_over[view.tag] = mine != [self.me]
        if not with_state or view.source(self.me) is None:
            self._settled |= set(self.members) & set(self._reported)
        else:
            self._settled &= set(self.members)

    def _hand_out(self, view_tag: int, state: bytes) -> None:
        is_elsewhere = self.handing_over.pop(view_tag, None)
        if is_elsewhere:
            self._say(ForwardedState(view_tag, state))
        elif is_elsewhere is not None:
            self._arrive(view_tag, state)

    def _arrive(self, view_tag: int, state: bytes) -> None:
        view = self._rounds.view
        if view is None or view.tag != view_tag or self._rounds.is_pending:
            return  # They are reported to be without: the next view's will come.
        self._settled |= set(view.newcomers(self.me)) & set(self.members)
        self.out.append(StateArrived(view_tag, state))

    # -- the wide group ---------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) > 1:
            return  # Asked for by an effect of another, which is still the first.
        while self._events:
            for effect in self._wide.step(self.now_us, self._events[0]):
                self._perform(effect)
            self._events.popleft()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.out.append(effect)
            case Arm(timer, after_us):
                self._deadlines[timer] = self.now_us + after_us
            case Disarm(timer):
                self._deadlines.pop(timer, None)
            case Deliver(messages):
                for message in messages:
                    self._hear(message)
            case Install(view):
                if not view.transitional:
                    rest = self._rounds.install(view, self.me)
                    if rest is not None:
                        self._enter(rest)
                    self._report()
            case Fail(_, Cause.SUPERSEDED, known):
                self._begin_again(known + 1, f"{self.me}")
            case Fail() | Depart():
                self.out.append(effect)
