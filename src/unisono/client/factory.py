"""Opens a group's sessions through the daemon of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unisono.client.frames import JoinFrame, framed
from unisono.client.listen_address import listen_address
from unisono.client.served import ServedProtocol, check_own, group_names
from unisono.client.session import DaemonSession
from unisono.config import Config
from unisono.group.session import SessionEvents
from unisono.model import ServiceLevel
from unisono.net.identity import default_name, new_incarnation
from unisono.requests import AcquireLock, GroupCommand, ReleaseLock
from unisono.spec import ProtocolSpec


class DaemonFactory:
    """Knows the protocol as the daemon's last welcome describes it."""

    founds: Final = False
    holds: Final = False
    requests: Final[tuple[type[GroupCommand], ...]] = (AcquireLock, ReleaseLock)
    """The daemons have them for every protocol. The minimum size and the scope are those of the
    daemons' own group."""

    def __init__(self, config: Config, with_state: bool) -> None:
        check_own(config)
        self.name = config.name or default_name()
        self._address = listen_address(config.daemon)
        self._config = config
        self._with_state = with_state
        self._served = ServedProtocol()

    @property
    def spec(self) -> ProtocolSpec:
        return self._served.spec

    @property
    def default_level(self) -> ServiceLevel:
        return self._served.default_level

    @property
    def message_bytes_max(self) -> int:
        return self._served.message_bytes_max

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        return self._served.level(asked)

    def groups(self, to: str | Sequence[str]) -> tuple[str, ...]:
        return group_names(to)

    def advice(self) -> str:
        return ""

    async def open(self, events: SessionEvents) -> DaemonSession:
        config = self._config
        return DaemonSession(
            self._address,
            events,
            self._served.welcomed,
            self.name,
            new_incarnation(),
            config.window_bytes_max,
            config.group,
            framed(
                JoinFrame(
                    config.group,
                    self._with_state,
                    config.slow == "shed",
                    config.replayable,
                    config.format,
                    config.closed,
                )
            ),
        )
