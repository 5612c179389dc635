"""The protocol and limits of the local daemon, and the options its clients may set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from unisono import config as configs
from unisono.client.frames import GROUPS_COUNT_MAX, WelcomeFrame
from unisono.config import NAME, Config
from unisono.core import Core, CoreConfig
from unisono.errors import Misuse
from unisono.model import Resilient, Service, ServiceLevel, level_text
from unisono.spec import ProtocolSpec

OWN: Final = frozenset(
    """group name service daemon slow queue_count_max queue_bytes_max message_bytes_max
    window_bytes_max join_s leave_s rejoin replayable retain_bytes format closed""".split()
)
"""The options that a client may set; the others are the daemon's."""


def _no_core(setting: CoreConfig) -> Core:
    raise AssertionError("a client has no core")


UNKNOWN: Final = ProtocolSpec(
    name="daemon",
    make=_no_core,
    title="the daemon's protocol",
    services=tuple(Service),
    laws=("one_primary",),  # A daemon takes no protocol without one order for all.
    options={},
    wire_number=0,
    resilient=True,
)


class ServedProtocol:
    """The daemon's protocol and limits, known from its welcome on."""

    def __init__(self) -> None:
        self.spec = UNKNOWN
        self.default_level = configs.default_service(UNKNOWN)
        self.message_bytes_max = 0
        """0 before the welcome: nothing can be sent yet."""

    def welcomed(self, welcome: WelcomeFrame) -> None:
        self.spec = replace(
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
            if self.spec.resilient:
                return level
        elif level in self.spec.services:
            return level
        levels = ", ".join(each.name.lower() for each in self.spec.services)
        raise Misuse(
            f"the daemon's protocol {self.spec.name} does not offer {level_text(level)}:"
            f" it has {levels}"
        )


def check_own(config: Config) -> None:
    usual = Config()
    for field in fields(Config):
        name = field.name
        if name not in OWN and getattr(config, name) != getattr(usual, name):
            own = next(iter(config.options)) if name == "options" else name
            raise Misuse(
                f"{own}= cannot be used with daemon=: leave it out, and give it to"
                " unisono daemon instead"
            )


def group_names(to: str | Sequence[str]) -> tuple[str, ...]:
    """The groups a message is addressed to, each once."""
    names = (to,) if isinstance(to, str) else tuple(to)
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Misuse(f"group {name!r}: use 1 to 64 letters, digits or ._@+-")
    if not 1 <= len(names) <= GROUPS_COUNT_MAX:
        raise Misuse(f"to= has {len(names)} groups: give 1 to {GROUPS_COUNT_MAX}")
    return names if len(names) == 1 else tuple(dict.fromkeys(names))
