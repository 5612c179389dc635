"""The group's state: a joiner pulls it from its sponsor before it delivers anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unisono.core import Adopt, Capture, Captured, Cause, Effect, Send
from unisono.parts.state_transfer import StateReceiver, StateServer
from unisono.protocols.rmcast.failure import Failures
from unisono.protocols.rmcast.packet_builder import PacketBuilder
from unisono.protocols.rmcast.packets import LEFT, MEMBER, StatePiece, StateRequest
from unisono.protocols.rmcast.roster import UNKNOWN, Roster
from unisono.protocols.rmcast.views import Views

STATE_BYTES_MAX: Final = 1 << 30


@dataclass(eq=False)
class StateTransfer:
    """Both ends: what we receive as a joiner, and what we captured as a sponsor."""

    _roster: Roster
    _builder: PacketBuilder
    _failures: Failures
    _views: Views

    def __post_init__(self) -> None:
        self._receiver: StateReceiver | None = None
        self._sponsor_key = 0
        self._server: StateServer[int] = StateServer(self._builder.state_piece_bytes)
        self._captured_at: dict[int, int] = {}
        """By joiner, our last chunk when its state was captured."""

    # -- the joiner ------------------------------------------------------------------------------

    def start(self, sponsor_key: int, out: list[Effect]) -> None:
        self._receiver, self._sponsor_key = StateReceiver(), sponsor_key
        self._request(self._receiver.ask(), out)

    def is_running(self) -> bool:
        return self._receiver is not None

    def _request(self, what: tuple[int, int], out: list[Effect]) -> None:
        sponsor = self._roster.peers.get(self._sponsor_key)
        if sponsor is None or sponsor.status not in (MEMBER, LEFT):
            self._failures.stop("lost the sponsor before its state had come", Cause.STOPPED)
            return
        out.append(Send((sponsor.member.address,), [self._builder.state_request(*what)]))

    def take(self, packet: StatePiece, out: list[Effect]) -> None:
        receiver = self._receiver
        if receiver is None or packet.header.sender != self._sponsor_key:
            return
        if packet.joiner != self._roster.key:
            self._builder.drop("former")
            return
        if packet.total > STATE_BYTES_MAX:
            self._failures.stop(
                f"the group's state has {packet.total} bytes, over the limit of {STATE_BYTES_MAX}"
            )
            return
        receiver.take(packet.total, packet.offset, packet.piece)
        ahead = receiver.ask_ahead()
        if ahead is not None:
            self._request(ahead, out)

    def is_done(self, event: object) -> bool:
        return self._receiver is not None and self._receiver.is_done()

    def adopt(self, event: object, out: list[Effect]) -> None:
        assert self._receiver is not None
        state = self._receiver.state()
        self._request((len(state), 0), out)  # The sponsor may forget it.
        self._receiver = None
        out.append(Adopt(state))
        self._views.install(out, cut=True)

    # -- the sponsor -----------------------------------------------------------------------------

    def capture(self, joiner: int, out: list[Effect]) -> None:
        self._server.expect(joiner)
        self._captured_at[joiner] = self._roster.mine().delivered
        out.append(Capture(joiner))

    def count(self) -> int:
        """Joiners that are receiving the state."""
        return len(self._server)

    def keep(self, event: Captured, out: list[Effect]) -> None:
        if isinstance(event.key, int):
            self._server.keep_expected(event.key, event.state)

    def give(self, packet: StateRequest, out: list[Effect]) -> None:
        peer = self._roster.peers.get(packet.header.sender)
        if peer is None:
            return
        if packet.pieces == 0:
            self._server.forget(peer.key)
        pieces = self._server.pieces(peer.key, packet.offset, packet.pieces)
        if pieces:
            packets = [self._builder.state_piece(peer.key, *piece) for piece in pieces]
            out.append(Send((peer.member.address,), packets))

    # -- both ------------------------------------------------------------------------------------

    def tick(self, out: list[Effect]) -> None:
        """Once a heartbeat: request again what did not come, and forget what joiners have."""
        if self._receiver is not None and (request := self._receiver.ask_if_stalled()):
            self._request(request, out)
        for joiner in self._server.known():
            peer = self._roster.peers.get(joiner)
            delivered = self._captured_at.get(joiner, 0) + 1
            if peer is not None and peer.status is MEMBER:
                delivered = peer.row.get(self._roster.key, UNKNOWN).delivered
            if delivered > self._captured_at.get(joiner, 0):
                self._server.forget(joiner)
