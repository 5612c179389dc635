"""Opens a group's sessions through the daemon of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unisono.client.frames import JoinFrame, framed
from unisono.client.listen_address import door
from unisono.client.offered import Offered, check_own, group_names
from unisono.client.session import DaemonSession
from unisono.config import Config
from unisono.core import ProtocolSpec
from unisono.errors import Misuse
from unisono.group.session import SessionEvents
from unisono.model import ServiceLevel
from unisono.net.identity import default_name, new_incarnation


class DaemonFactory:
    """Knows of the protocol what the daemon last said of it."""

    founds: Final = False

    def __init__(self, config: Config, with_state: bool) -> None:
        check_own(config)
        self.name = config.name or default_name()
        self._door = door(config.daemon)
        self._config = config
        self._with_state = with_state
        self._offered = Offered()

    @property
    def offer(self) -> ProtocolSpec:
        return self._offered.offer

    @property
    def default_level(self) -> ServiceLevel:
        return self._offered.default_level

    @property
    def message_bytes_max(self) -> int:
        return self._offered.message_bytes_max

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        return self._offered.level(asked)

    def groups(self, to: str | Sequence[str]) -> tuple[str, ...]:
        return group_names(to)

    def check_request(self, what: str) -> None:
        raise Misuse(f"request {what!r}: through a daemon there are none; be a member oneself")

    def advice(self) -> str:
        return ""

    async def open(self, events: SessionEvents) -> DaemonSession:
        config = self._config
        return DaemonSession(
            self._door,
            events,
            self._offered.welcomed,
            self.name,
            new_incarnation(),
            config.window_bytes_max,
            config.group,
            framed(JoinFrame(config.group, self._with_state, config.slow == "shed", config.fed)),
        )
