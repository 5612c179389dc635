"""From QSUB into the ring: a client's frames become records, in order, in batches."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from unisono import config as configs
from unisono.client.frames import (
    FRONT_BYTES,
    FrameKind,
    JoinFrame,
    StateFrame,
    SubmitFrame,
    lengths_of,
)
from unisono.client.lock_frames import LockFrame
from unisono.daemon.records import (
    ClientDied,
    ClientJoined,
    ClientLeft,
    ClientLock,
    MulticastFields,
    StateFields,
    Stranger,
    encoded,
)
from unisono.daemon.session import ClientSession
from unisono.errors import BadPacket, UnisonoError
from unisono.group import Group
from unisono.layout import decode
from unisono.model import ServiceLevel

REASON_LENGTH_MAX: Final = 200

log = logging.getLogger("unisono.daemon")


@dataclass(eq=False)
class Intake:
    """Checks the frames of clients and multicasts them in the ring."""

    _ring: Group
    _control: ServiceLevel
    """Of joins, leaves and states."""
    _message_bytes_max: int
    _counts: Counter[str]

    async def pump(self, session: ClientSession) -> None:
        """Multicast what the client sends, in its order, and at last that it is gone."""
        left = False
        try:
            while not left and (found := await session.submitted()):
                left = await self._take(session, found)
        except BadPacket as error:
            session.bad(error.reason)
        except UnisonoError as error:
            session.cut(str(error))
        except Exception as error:  # Our bug ends this client, not the daemon.
            log.exception("client %s: internal error", session)
            session.cut(f"internal error of the daemon: {type(error).__name__}: {error}")
        if left and session.group:
            return  # Its own `ClientLeft` ends it, in order.
        if left:
            session.part()
        elif session.group:
            with contextlib.suppress(UnisonoError):
                reason = session.ending or "its connection ended"
                record = ClientDied(session.number, reason[:REASON_LENGTH_MAX])
                await self._ring.multicast(encoded(record), self._control)

    async def _take(self, session: ClientSession, found: Sequence[tuple[int, memoryview]]) -> bool:
        """Multicast these frames. Returns whether the client leaves with them."""
        batch: list[bytes] = []
        level: ServiceLevel = self._control
        nbytes = 0
        for kind, body in found:
            if kind == FrameKind.SUBMIT:
                own_level, record = self._encode_submit(session, body)
                if batch and own_level != level:
                    await self._multicast(session, batch, level, nbytes)
                    batch, nbytes = [], 0
                level = own_level
            else:
                if batch:
                    await self._multicast(session, batch, level, nbytes)
                    batch, nbytes = [], 0
                level, record = self._control, self._encode_request(session, kind, body)
            batch.append(record)
            nbytes += len(body) + FRONT_BYTES
            if kind == FrameKind.LEAVE:
                if session.group:
                    await self._multicast(session, batch, level, nbytes)
                return True
        await self._multicast(session, batch, level, nbytes)
        return False

    async def _multicast(
        self, session: ClientSession, batch: list[bytes], level: ServiceLevel, nbytes: int
    ) -> None:
        await self._ring.multicast_many(batch, level)
        session.taken(nbytes)

    def _encode_submit(
        self, session: ClientSession, body: memoryview
    ) -> tuple[ServiceLevel, bytes]:
        submit = decode(SubmitFrame, body)
        lengths = lengths_of(submit.bundle)
        if max(lengths) > self._message_bytes_max:
            raise BadPacket("too_large")
        hello = session.hello
        assert hello is not None
        stranger = None if session.group else Stranger(hello.name, hello.incarnation)
        record = MulticastFields(session.number, session.sent_count, stranger, body)
        session.sent_count += len(lengths)
        self._counts["submitted"] += len(lengths)
        return submit.level, encoded(record)

    def _encode_request(self, session: ClientSession, kind: int, body: memoryview) -> bytes:
        if kind == FrameKind.JOIN:
            request = decode(JoinFrame, body)
            if session.group or not configs.NAME.fullmatch(request.group):
                raise BadPacket("join")
            if len(request.format) > configs.FORMAT_LENGTH_MAX:
                raise BadPacket("format")
            hello = session.hello
            assert hello is not None
            session.group, session.sheds = request.group, request.sheds
            return encoded(
                ClientJoined(
                    session.number,
                    request.group,
                    hello.name,
                    hello.incarnation,
                    request.with_state,
                    request.replayable,
                    request.format,
                    request.closed,
                )
            )
        if kind == FrameKind.LEAVE:
            return encoded(ClientLeft(session.number))
        if kind == FrameKind.STATE:
            reply = decode(StateFrame, body)
            if reply.key not in session.requested_states:
                raise BadPacket("state")
            session.requested_states.discard(reply.key)
            return encoded(StateFields(reply.failed, reply.key, reply.state))
        if kind == FrameKind.LOCK:
            if not session.group:
                raise BadPacket("lock")
            return encoded(ClientLock(session.number, decode(LockFrame, body)))
        raise BadPacket("kind")
