"""The transfer of the application's state over links: a joiner pulls it, its peer serves it."""

from __future__ import annotations

from unisono.core import Adopt, Capture, Captured, CoreConfig, Effect
from unisono.layout import size_of
from unisono.parts.identity import key_of
from unisono.parts.links import Links
from unisono.parts.state_transfer import StateReceiver, StateServer, TransferPiece, TransferRequest
from unisono.wire import ENVELOPE_BYTES


class StateExchange:
    """Both ends: the state received as a joiner, and those captured for joiners."""

    def __init__(self, config: CoreConfig, links: Links) -> None:
        self._key = key_of(config.me)
        self._links = links
        piece_bytes = config.packet_bytes_max - ENVELOPE_BYTES - size_of(TransferPiece)
        self._server: StateServer[int] = StateServer(piece_bytes)
        self._receiver: StateReceiver | None = None

    # -- the joiner -------------------------------------------------------------------------------

    def start(self, out: list[Effect]) -> None:
        self._receiver = StateReceiver()
        self._request(self._receiver.ask(), out)

    def is_running(self) -> bool:
        return self._receiver is not None

    def take(self, packet: TransferPiece, out: list[Effect]) -> None:
        assert self._receiver is not None
        self._receiver.take(packet.total, packet.offset, packet.piece)
        self._request(self._receiver.ask_ahead(), out)

    def is_complete(self, event: object) -> bool:
        return self._receiver is not None and self._receiver.is_done()

    def adopt(self, event: object, out: list[Effect]) -> None:
        assert self._receiver is not None
        out.append(Adopt(self._receiver.state()))
        self._receiver = None
        self._request((0, 0), out)  # The server may forget it.

    def tick(self, out: list[Effect]) -> None:
        """Once a heartbeat: request again what did not arrive."""
        if self._receiver is not None:
            self._request(self._receiver.ask_if_stalled(), out)

    def _request(self, what: tuple[int, int] | None, out: list[Effect]) -> None:
        if what is not None:
            self._links.send(self._links.addresses(), [TransferRequest(self._key, *what)], out)

    # -- the server -------------------------------------------------------------------------------

    def capture(self, joiner: int, out: list[Effect]) -> None:
        """The application's state as of here is for this joiner."""
        self._server.expect(joiner)
        out.append(Capture(joiner))

    def keep(self, event: Captured, out: list[Effect]) -> None:
        assert isinstance(event.key, int)
        self._server.keep_expected(event.key, event.state)

    def serve(self, packet: TransferRequest, out: list[Effect]) -> None:
        if packet.pieces == 0:
            self._server.forget(packet.joiner)
        pieces = self._server.pieces(packet.joiner, packet.offset, packet.pieces)
        to = (self._links.peers[packet.joiner].member.address,)
        self._links.send(to, [TransferPiece(packet.joiner, *piece) for piece in pieces], out)

    def forget(self, joiner: int) -> None:
        self._server.forget(joiner)
