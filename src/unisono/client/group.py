"""A group that is reached through the daemon of this machine: the same `Group`, with a socket where
a member has a protocol."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, cast

from unisono.client import frames
from unisono.client.frames import GROUPS_COUNT_MAX, Welcome
from unisono.client.link import Link, To
from unisono.client.where import door
from unisono.config import NAME, Config
from unisono.core import Core, Offer, Setting
from unisono.errors import Misuse, UnisonoError
from unisono.group import Group, Joining
from unisono.group.fed import check_ordered
from unisono.model import Buffer, Message, Resilient, Service, ServiceLevel, View
from unisono.net.identity import new_incarnation
from unisono.net.life import Life
from unisono.net.stream import Entry

OWN: Final = frozenset(
    """group name service daemon slow queue_count_max queue_octets_max message_octets_max
    window_octets_max join_s leave_s rejoin fed retain_octets""".split()
)
"""What a client may set. All else is the daemon's business."""


def _no_core(setting: Setting) -> Core:
    raise AssertionError("a client has no core of its own")


UNKNOWN: Final = Offer(
    name="daemon",
    make=_no_core,
    title="whatever the daemon's protocol is",
    services=tuple(Service),
    laws=(),
    options={},
    on_split="as the daemon's protocol says",
    resilient=True,
)
"""The offer until the daemon has told its own."""


class LocalGroup(Group):
    """A client's hold on its group. As `Group`; and a message may be for several groups at once."""

    _local = True

    def __init__(
        self,
        config: Config,
        snapshot: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
    ) -> None:
        check_own(config)
        self._door = door(config.daemon)
        self._arrived = False
        """This life has had a view."""
        self._held: list[Entry] = []
        super().__init__(config, UNKNOWN, snapshot, restore)

    # -- speaking -------------------------------------------------------------------------------

    async def multicast(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> int:
        """Say it to the group, or to these groups at one place in one order; waits while the
        daemon takes no more. Returns the message's number."""
        message = self._checked(payload)
        return await self._speaker.say((message,), len(message), self._addressed(service, to))

    async def multicast_many(
        self,
        payloads: Iterable[Buffer],
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> int:
        messages = [self._checked(payload) for payload in payloads]
        how = self._addressed(service, to)
        if not messages:
            return 0
        return await self._speaker.say(messages, sum(map(len, messages)), how)

    def multicast_nowait(
        self,
        payload: Buffer,
        service: ServiceLevel | str | None = None,
        to: str | Sequence[str] | None = None,
    ) -> int:
        message = self._checked(payload)
        return self._speaker.say_nowait((message,), len(message), self._addressed(service, to))

    async def _speak(
        self, payloads: Sequence[bytes], service: ServiceLevel | str | None = None
    ) -> int:
        how = self._addressed(service, None)
        return await self._speaker.say(payloads, sum(map(len, payloads)), how)

    def _addressed(
        self, service: ServiceLevel | str | None, to: str | Sequence[str] | None
    ) -> ServiceLevel:
        groups = (self.config.group,) if to is None else group_names(to)
        # The speaker gathers what is said in the same way, and does not ask what that is.
        return cast(ServiceLevel, To(self._ready(service), groups))

    def request(self, what: str, /, **arguments: int | str | bytes) -> None:
        raise Misuse(f"request {what!r}: through a daemon there are none; be a member oneself")

    def _level(self, service: ServiceLevel | str | None) -> ServiceLevel:
        level = checked_level(service, self._offer)
        if self.config.fed:
            check_ordered(level, self.protocol)
        if len(self._levels) < 64 and service is not None:
            self._levels[service] = level
        return level

    # -- what the link tells --------------------------------------------------------------------

    def welcomed(self, welcome: Welcome) -> None:
        self._returning.begin(self.me)
        self._offer = offer_of(welcome)
        self.protocol = welcome.protocol
        limit = min(self.config.message_octets_max, welcome.message_octets_max)
        self.config = replace(self.config, message_octets_max=limit)
        self._levels.clear()
        try:
            asked = self.config.service
            self._levels[None] = self._level(asked) if asked else welcome.default
            if self.config.fed:
                check_ordered(self._levels[None], welcome.protocol)
        except UnisonoError as error:
            if self._first_view is not None and not self._first_view.done():
                self._first_view.set_exception(error)
            self._abandon(str(error))
            return

    def heard(self, entries: Sequence[Entry]) -> None:
        """What comes before the first view waits for it, for with it we know where we are."""
        if not self._arrived:
            self._held.extend(entries)
            view = next((each for each in entries if isinstance(each, View)), None)
            if view is None:
                return
            self._arriving(view)
            self._arrived, entries, self._held = True, self._held, []
        self._returning.unheard.heard([each for each in entries if isinstance(each, Message)])
        self._stream.extend(entries)

    def installed(self, view: View) -> None:
        self._installed(view)

    def stepped(self) -> None:
        self._speaker.stepped()

    def ended(self, reason: str | None) -> None:
        self._life_ended(reason)

    # -- lives ----------------------------------------------------------------------------------

    async def _begin(self, reason: str | None) -> None:
        config = self.config
        asks = frames.join(config.group, self._with_state, config.slow == "shed", config.fed)
        window = config.window_octets_max
        link = Link(self._door, self, self._name, new_incarnation(), window, asks)
        self._life = cast(Life, link)
        self._arrived, self._held = False, []
        link.start()
        self._stream.renew()
        self._speaker.begin(cast(Any, link))

    def _why_no_view(self) -> str:
        text = f"no view within join_s={self.config.join_s:g} s"
        return f"{text}: {self._life.tried()}" if self._life else text


class LocalJoining(Joining):
    """A group about to be joined through a daemon: await it, or enter it."""

    _group: LocalGroup

    def __init__(self, group: LocalGroup) -> None:
        super().__init__(group)

    def __await__(self) -> Generator[Any, None, LocalGroup]:
        return cast(Generator[Any, None, LocalGroup], super().__await__())

    async def __aenter__(self) -> LocalGroup:
        return cast(LocalGroup, await super().__aenter__())


def check_own(config: Config) -> None:
    usual = Config()
    for field in fields(Config):
        name = field.name
        if name not in OWN and getattr(config, name) != getattr(usual, name):
            raise Misuse(
                f"{name}= is the daemon's business: with daemon= leave it out, and give it to"
                " unisono daemon instead"
            )


def group_names(to: str | Sequence[str]) -> tuple[str, ...]:
    """The groups a message is for, each once."""
    names = (to,) if isinstance(to, str) else tuple(to)
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Misuse(f"group {name!r}: a name has 1 to 64 letters, digits or ._@+-")
    if not 1 <= len(names) <= GROUPS_COUNT_MAX:
        raise Misuse(f"a message is for 1 to {GROUPS_COUNT_MAX} groups, not {len(names)}")
    return names if len(names) == 1 else tuple(dict.fromkeys(names))


def offer_of(welcome: Welcome) -> Offer:
    return replace(
        UNKNOWN,
        name=welcome.protocol,
        services=welcome.services,
        resilient=welcome.resilient,
    )


def checked_level(service: ServiceLevel | str | None, offer: Offer) -> ServiceLevel:
    """The level, if the daemon's protocol has it."""
    from unisono.config import service_level

    level = service_level("" if service is None else service)
    if isinstance(level, Resilient):
        if offer.resilient and level.k >= Resilient.ALL:
            return level
    elif level in offer.services:
        return level
    levels = ", ".join(each.name.lower() for each in offer.services)
    name = level.name.lower() if isinstance(level, Service) else f"resilient({level.k})"
    raise Misuse(f"the daemon's protocol {offer.name} does not offer {name}: it has {levels}")
