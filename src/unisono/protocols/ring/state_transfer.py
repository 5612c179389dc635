"""[RNG-16] The state of the application, handed from the first old member to the newcomers."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.core import Adopt, Captured, Effect
from unisono.layout import encode
from unisono.parts.state_transfer import PIECES_MAX, StateReceiver, StateServer
from unisono.protocols.ring.agenda import Agenda
from unisono.protocols.ring.codes import Code, Timer
from unisono.protocols.ring.packet_builder import PacketBuilder
from unisono.protocols.ring.packets import (
    HEADER_BYTES,
    NO_HEADER,
    STATE_BYTES,
    StatePiece,
    StateRequest,
    Version,
    key_of,
)
from unisono.protocols.ring.parameters import Parameters
from unisono.protocols.ring.state import RingState


@dataclass(eq=False)
class StateTransfer:
    """Both sides of the transfer at one member."""

    _parameters: Parameters
    _state: RingState
    _agenda: Agenda
    _builder: PacketBuilder

    def __post_init__(self) -> None:
        self._t_rt_us = self._parameters.t_rt_us
        piece_bytes = self._builder.body_bytes_max - HEADER_BYTES - STATE_BYTES
        self._server: StateServer[Version] = StateServer(piece_bytes)
        self._receiver: StateReceiver | None = None

    # -- rings -----------------------------------------------------------------------------------

    def is_sender(self) -> bool:
        """The first on the ring that was in the group before."""
        ring = self._state.ring
        return ring.awaits_state and ring.oldest == self._state.me

    def forget(self) -> None:
        """A new ring is accepted: what was on its way belongs to an earlier ring."""
        self._receiver = None

    def new_ring(self, out: list[Effect]) -> None:
        """The ring is in force: request the state if this member waits for it."""
        if not self.is_sender():
            self._server.clear()
        seat = self._state.seat
        if seat is not None and seat.waits:
            self._receiver = StateReceiver()
            self.request(out)

    # -- to send ---------------------------------------------------------------------------------

    def keep(self, event: Captured) -> None:
        if isinstance(event.key, Version):
            self._server.clear()
            self._server.keep(event.key, event.state)

    def answer(self, packet: StateRequest, out: list[Effect]) -> None:
        header, member = packet.header, self._state.ring.member(packet.header.sender)
        if member is not None:
            pieces = self._server.pieces(header.version, packet.offset, packet.pieces)
            bodies = [encode(StatePiece(NO_HEADER, *piece)) for piece in pieces]
            self._builder.to_many(member, Code.STATE, bodies, out)

    # -- to receive ------------------------------------------------------------------------------

    def is_waiting(self) -> bool:
        return self._receiver is not None

    def request(self, out: list[Effect]) -> None:
        """Request what has not arrived, and again when nothing does."""
        if self._receiver is None:
            return
        for offset, count in self._receiver.ask_again():
            self._request(offset, count, out)
        self._agenda.arm(Timer.REPAIR, self._t_rt_us, out)

    def _request(self, offset: int, count: int, out: list[Effect]) -> None:
        oldest = self._state.ring.oldest
        if oldest is not None:
            body = encode(StateRequest(NO_HEADER, offset, min(count, PIECES_MAX)))
            self._builder.to(oldest, Code.STATE_ASK, body, out)

    def take(self, packet: StatePiece, out: list[Effect]) -> None:
        receiver, state, header = self._receiver, self._state, packet.header
        if receiver is None or header.version != state.ring.version:
            return
        oldest = state.ring.oldest
        if oldest is None or header.sender != key_of(oldest):
            self._builder.drop("stranger")  # It was not asked.
            return
        receiver.take(packet.total, packet.offset, packet.piece)
        if receiver.is_done():
            self._receiver = None
            state.remember()
            state.checkpoint(out, votes=True)
            out.append(Adopt(receiver.state()))
            return
        ahead = receiver.ask_ahead()
        if ahead is not None:
            self._request(*ahead, out)
        elif receiver.has_run_dry:
            self.request(out)
