"""[MTP 3.4] State transfer: a joiner pulls the roster and the state from the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Arm, Captured, Effect, Send
from unisono.parts.state_transfer import StateReceiver, StateServer
from unisono.protocols.mtp.clock import StepClock
from unisono.protocols.mtp.fail_stop import FailStop
from unisono.protocols.mtp.pacing import Pacing
from unisono.protocols.mtp.packet_writer import NO_HEADER, PacketWriter
from unisono.protocols.mtp.packets import (
    ROSTER,
    STATE,
    STATE_BYTES,
    Expel,
    PacketKind,
    StatePiece,
    StateRequest,
)
from unisono.protocols.mtp.parameters import Parameters
from unisono.protocols.mtp.replicas import Replicas
from unisono.protocols.mtp.states import Timer
from unisono.protocols.mtp.token_master import TokenMaster
from unisono.protocols.mtp.web import Web

GIVERS_MAX: Final = 16
"""Joiners that are given roster and state at once; the others wait to be admitted."""
STATE_BYTES_MAX: Final = 4 << 30
FLIGHT: Final = 384
"""Pieces of state in flight to one joiner."""
RETRY_BEATS: Final = 4
"""What did not come is requested again after this many heartbeats."""


@dataclass(eq=False)
class StateSource:
    """A master replica: keeps what joiners pull."""

    _parameters: Parameters
    _clock: StepClock
    _web: Web
    _packets: PacketWriter
    _replicas: Replicas
    _tokens: TokenMaster

    def __post_init__(self) -> None:
        piece_bytes = self._packets.body_bytes_max - STATE_BYTES
        self._server: StateServer[tuple[int, int]] = StateServer(piece_bytes, FLIGHT)
        self._asked_us: dict[int, int] = {}
        """By joiner that is given something, when it last requested it, in listening time."""
        self._expecting: dict[int, int] = {}
        """By joiner, the message at which its state is captured."""
        self._captures: set[int] = set()
        """Joiners whose state we asked the application for."""

    def takers(self) -> int:
        """Joiners that are pulling; one that is silent is done, or has failed."""
        since_us = self._clock.listened_us - self._parameters.detect_us
        return sum(asked_us >= since_us for asked_us in self._asked_us.values())

    def tidy(self) -> None:
        """Forget what is not requested any more."""
        since_us = self._clock.listened_us - self._parameters.lost_us
        for key in [k for k, asked_us in self._asked_us.items() if asked_us < since_us]:
            self.forget(key)

    def keep(self, key: int, what: int, data: bytes) -> None:
        """Keep it until a joiner has it. Of too many, the oldest is forgotten, and joins again."""
        self._server.keep((key, what), data)
        self._asked_us[key] = self._clock.listened_us
        while len(self._asked_us) > 2 * GIVERS_MAX:
            self.forget(next(iter(self._asked_us)))

    def forget(self, key: int) -> None:
        self._asked_us.pop(key, None)
        for what in (ROSTER, STATE):
            self._server.forget((key, what))

    # -- captures ----------------------------------------------------------------------------------

    def expect(self, key: int, number: int) -> None:
        """The joiner is given the state as it is at this message."""
        self._expecting[key] = number

    def capturing(self, key: int) -> None:
        self._captures.add(key)

    def forget_capture(self, key: int) -> None:
        self._expecting.pop(key, None)
        self._captures.discard(key)

    def keep_state(self, event: Captured, out: list[Effect]) -> None:
        for key in [key for key, number in self._expecting.items() if number == event.key]:
            self.keep(key, STATE, event.state)

    # -- requests ----------------------------------------------------------------------------------

    def give_piece(self, packet: StateRequest, out: list[Effect]) -> None:
        key = packet.header.sender
        member = self._web.members.get(key)
        if packet.pieces == 0 or member is None:
            self.forget(key)
            return
        if (key, packet.what) not in self._server:
            hopeless = packet.what == ROSTER or key not in self._captures
            if hopeless and self._replicas.leads and self._tokens.ready:
                # Unless it is a late packet of a joiner that has it: `Expel.stateless`.
                self._packets.drop("stranger")
                expel = Expel(NO_HEADER, key, stateless=True)
                self._packets.send(PacketKind.EXPEL, expel, (member.address,), out)
            return
        self._asked_us[key] = self._clock.listened_us
        pieces = self._server.pieces((key, packet.what), packet.offset, packet.pieces)
        packets = [
            self._packets.seal(PacketKind.STATE, StatePiece(NO_HEADER, packet.what, *piece))
            for piece in pieces
        ]
        if packets:
            out.append(Send((member.address,), packets))


@dataclass(eq=False)
class StateTaker:
    """A joiner: pulls first the roster, then the state."""

    _parameters: Parameters
    _clock: StepClock
    _pace: Pacing
    _packets: PacketWriter
    _fail_stop: FailStop

    def __post_init__(self) -> None:
        self._receiver: StateReceiver | None = None
        self._what = ROSTER
        self._wants_state = False
        self._progress_us = 0
        self._roster = b""
        self._state: bytes | None = None

    def start(self, wants_state: bool, out: list[Effect]) -> None:
        self._wants_state = wants_state
        self._what, self._receiver = ROSTER, StateReceiver(FLIGHT)
        self._progress_us = self._clock.listened_us
        self._pull(out)

    def is_complete(self) -> bool:
        return bool(self._roster) and (self._state is not None or not self._wants_state)

    def take(self) -> tuple[bytes, bytes | None]:
        """The roster and the state, once."""
        found = self._roster, self._state
        self._roster, self._state = b"", None
        return found

    def pull_again(self, event: object, out: list[Effect]) -> None:
        """The timer ran out: request what is missing; no progress for too long is the end."""
        self._pull(out)

    def _pull(self, out: list[Effect]) -> None:
        if self._receiver is None:
            return
        if self._clock.listened_us - self._progress_us > self._parameters.lost_us:
            self._fail_stop.request("the master that should give the state is gone")
            return
        for offset, pieces in self._receiver.ask_again():
            self._request(offset, pieces, out)
        self._arm(out)

    def _arm(self, out: list[Effect]) -> None:
        out.append(Arm(Timer.STATE, RETRY_BEATS * self._pace.heartbeat_us))

    def _request(self, offset: int, pieces: int, out: list[Effect]) -> None:
        packet = StateRequest(NO_HEADER, self._what, offset, pieces)
        self._packets.send_to_master(PacketKind.STATE_ASK, packet, out)

    def take_piece(self, packet: StatePiece, out: list[Effect]) -> None:
        receiver = self._receiver
        if receiver is None or packet.what != self._what or packet.total > STATE_BYTES_MAX:
            return
        if not receiver.take(packet.total, packet.offset, packet.piece):
            self._packets.drop("duplicate")
            return
        self._progress_us = self._clock.listened_us
        if not receiver.is_done():
            ahead = receiver.ask_ahead()
            if ahead is not None:
                self._request(*ahead, out)
                self._arm(out)
            elif receiver.has_run_dry:
                self._pull(out)
        elif self._what == ROSTER:
            self._roster = receiver.state()
            self._receiver = None
            if self._wants_state:
                self._what, self._receiver = STATE, StateReceiver(FLIGHT)
                self._pull(out)
        else:
            self._state = receiver.state()
            self._receiver = None
            self._request(len(self._state), 0, out)
