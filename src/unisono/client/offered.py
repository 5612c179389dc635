"""What the daemon of this machine offers its clients, and what they may ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from unisono import config as configs
from unisono.client.frames import GROUPS_COUNT_MAX, WelcomeFrame
from unisono.config import NAME, Config
from unisono.core import Core, CoreConfig, ProtocolSpec
from unisono.errors import Misuse
from unisono.model import Resilient, Service, ServiceLevel

OWN: Final = frozenset(
    """group name service daemon slow queue_count_max queue_bytes_max message_bytes_max
    window_bytes_max join_s leave_s rejoin fed retain_bytes""".split()
)
"""The options that a client may set. All else is for the daemon."""


def _no_core(setting: CoreConfig) -> Core:
    raise AssertionError("a client has no core of its own")


UNKNOWN: Final = ProtocolSpec(
    name="daemon",
    make=_no_core,
    title="whatever the daemon's protocol is",
    services=tuple(Service),
    laws=(),
    options={},
    on_split="as the daemon's protocol says",
    resilient=True,
)


class Offered:
    """The daemon's protocol and limits: anything, until its welcome has named them."""

    def __init__(self) -> None:
        self.offer = UNKNOWN
        self.default_level = configs.default_service(UNKNOWN)
        self.message_bytes_max = 0
        """0 before the welcome: nothing can be sent yet."""

    def welcomed(self, welcome: WelcomeFrame) -> None:
        self.offer = replace(
            UNKNOWN,
            name=welcome.protocol,
            services=welcome.services,
            resilient=welcome.resilient,
        )
        self.default_level = welcome.default
        self.message_bytes_max = welcome.message_bytes_max

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        level = configs.service_level(asked)
        if isinstance(level, Resilient):
            if self.offer.resilient and level.k >= Resilient.ALL:
                return level
        elif level in self.offer.services:
            return level
        levels = ", ".join(each.name.lower() for each in self.offer.services)
        name = level.name.lower() if isinstance(level, Service) else f"resilient({level.k})"
        raise Misuse(
            f"the daemon's protocol {self.offer.name} does not offer {name}: it has {levels}"
        )


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
    """The groups a message is addressed to, each once."""
    names = (to,) if isinstance(to, str) else tuple(to)
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Misuse(f"group {name!r}: a name has 1 to 64 letters, digits or ._@+-")
    if not 1 <= len(names) <= GROUPS_COUNT_MAX:
        raise Misuse(f"a message is for 1 to {GROUPS_COUNT_MAX} groups, not {len(names)}")
    return names if len(names) == 1 else tuple(dict.fromkeys(names))
