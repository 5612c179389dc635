"""The application's state: a newcomer pulls it, as of its first view, from a member that has one.

Components that merge keep the states that they have.
"""

from __future__ import annotations

from unisono.core import Adopt, Captured, CoreConfig, Effect
from unisono.layout import size_of
from unisono.model import Member
from unisono.parts.state_transfer import StateReceiver, StateServer, TransferPiece, TransferRequest
from unisono.protocols.transis.delivery import ApplicationQueue
from unisono.protocols.transis.state import LocalMember, PacketSender
from unisono.wire import ENVELOPE_BYTES


class StateTransfer:
    """Both ends. A transfer is named by the identifier of its configuration."""

    def __init__(
        self,
        config: CoreConfig,
        local: LocalMember,
        outgoing: PacketSender,
        delivery: ApplicationQueue,
    ) -> None:
        self._with_state = config.with_state
        self._local = local
        self._outgoing = outgoing
        self._delivery = delivery
        piece_bytes = config.packet_bytes_max - ENVELOPE_BYTES - size_of(TransferPiece)
        self._server: StateServer[int] = StateServer(piece_bytes)
        self._receiver: StateReceiver | None = None
        self._source: Member | None = None

    def enter(self, source: Member | None, is_new: bool, out: list[Effect]) -> None:
        """A configuration with newcomers that get the state of this member; None: there is nothing
        to get."""
        life = self._local.configuration.life
        self._server.clear()
        self._receiver = None
        if source is None or not self._with_state:
            return
        if source == self._local.me:
            self._server.expect(life)
            self._delivery.capture(life)
        elif is_new:
            self._receiver, self._source = StateReceiver(), source
            self._delivery.await_state(True)
            self._ask(self._receiver.ask(), out)

    def cancel(self) -> None:
        """Another configuration is coming, and the state of that will do."""
        self._receiver = None

    def _ask(self, what: tuple[int, int] | None, out: list[Effect]) -> None:
        if what is not None and self._source is not None:
            life = self._local.configuration.life
            request = TransferRequest(life, *what)
            self._outgoing.send([request], out, (self._source.address,), life)

    def is_from_source(self) -> bool:
        """Whether the packet at hand is of the member that has the state to give."""
        return self._source is not None and self._local.source == self._source.address

    def take(self, packet: TransferPiece, out: list[Effect]) -> None:
        receiver = self._receiver
        if receiver is None or packet.joiner != self._local.configuration.life:
            return
        receiver.take(packet.total, packet.offset, packet.piece)
        self._ask(receiver.ask_ahead(), out)
        if receiver.is_done():
            self._receiver = None
            self._delivery.await_state(False)
            out.append(Adopt(receiver.state()))

    def keep(self, event: Captured, out: list[Effect]) -> None:
        if isinstance(event.key, int):
            self._server.keep_expected(event.key, event.state)

    def serve(self, packet: TransferRequest, out: list[Effect]) -> None:
        life = self._local.configuration.life
        if packet.joiner == life:
            pieces = self._server.pieces(life, packet.offset, packet.pieces)
            packets = [TransferPiece(life, *piece) for piece in pieces]
            self._outgoing.send(packets, out, (self._local.source,), life)

    def tick(self, out: list[Effect]) -> None:
        """Request again what did not come."""
        if self._receiver is not None:
            self._ask(self._receiver.ask_if_stalled(), out)
