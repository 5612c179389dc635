"""From QSUB into the ring: a client's frames become records, in its order, many at a time."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Sequence

from unisono import config as configs
from unisono.client.frames import (
    FRONT_BYTES,
    FrameKind,
    JoinFrame,
    StateFrame,
    SubmitFrame,
    lengths_of,
)
from unisono.daemon import records
from unisono.daemon.records import ClientJoined, Stranger
from unisono.daemon.session import ClientSession
from unisono.errors import BadPacket, UnisonoError
from unisono.group import Group
from unisono.layout import decode
from unisono.model import ServiceLevel

log = logging.getLogger("unisono.daemon")


class Intake:
    """What clients say, checked and said in the ring."""

    def __init__(
        self, ring: Group, control: ServiceLevel, message_bytes_max: int, counts: Counter[str]
    ) -> None:
        """`control` is the level of all that is not a client's message."""
        self._ring = ring
        self._control = control
        self._message_bytes_max = message_bytes_max
        self._counts = counts

    async def pump(self, session: ClientSession) -> None:
        """What the client said goes into the ring, in its order; its end is said last."""
        left = False
        try:
            while not left and (found := await session.submitted()):
                left = await self._take(session, found)
        except BadPacket as error:
            session.bad(error.reason)
        except UnisonoError as error:
            session.cut(str(error))
        except Exception as error:  # our mistake, and this one client's misfortune
            log.exception("client %s: internal error", session)
            session.cut(f"internal error of the daemon: {type(error).__name__}: {error}")
        if left and session.group:
            return  # `Part` will end it, at its place
        if left:
            session.part()
        elif session.group:
            with contextlib.suppress(UnisonoError):
                record = records.gone(session.number, session.ending or "its connection ended")
                await self._ring.multicast(record, self._control)

    async def _take(self, session: ClientSession, found: Sequence[tuple[int, memoryview]]) -> bool:
        """Say all these; whether the client leaves with them."""
        gathered: list[bytes] = []
        level: ServiceLevel = self._control
        octets = 0
        for kind, body in found:
            if kind == FrameKind.SUBMIT:
                its_level, record = self._said(session, body)
                if gathered and its_level != level:
                    await self._say(session, gathered, level, octets)
                    gathered, octets = [], 0
                level = its_level
            else:
                if gathered:
                    await self._say(session, gathered, level, octets)
                    gathered, octets = [], 0
                level, record = self._control, self._asked(session, kind, body)
            gathered.append(record)
            octets += len(body) + FRONT_BYTES
            if kind == FrameKind.LEAVE:
                if session.group:
                    await self._say(session, gathered, level, octets)
                return True
        await self._say(session, gathered, level, octets)
        return False

    async def _say(
        self, session: ClientSession, gathered: list[bytes], level: ServiceLevel, octets: int
    ) -> None:
        await self._ring.multicast_many(gathered, level)
        session.taken(octets)

    def _said(self, session: ClientSession, body: memoryview) -> tuple[ServiceLevel, bytes]:
        submit = decode(SubmitFrame, body)
        lengths = lengths_of(submit.bundle)
        if max(lengths) > self._message_bytes_max:
            raise BadPacket("too_large")
        hello = session.hello
        assert hello is not None
        stranger = None if session.group else Stranger(hello.name, hello.incarnation)
        record = records.said(session.number, session.said_count, stranger, body)
        session.said_count += len(lengths)
        self._counts["submitted"] += len(lengths)
        return submit.level, record

    def _asked(self, session: ClientSession, kind: int, body: memoryview) -> bytes:
        if kind == FrameKind.JOIN:
            asked = decode(JoinFrame, body)
            if session.group or not configs.NAME.fullmatch(asked.group):
                raise BadPacket("join")
            hello = session.hello
            assert hello is not None
            session.group, session.sheds = asked.group, asked.sheds
            return records.joined(
                ClientJoined(
                    session.number,
                    asked.group,
                    hello.name,
                    hello.incarnation,
                    asked.with_state,
                    asked.fed,
                )
            )
        if kind == FrameKind.LEAVE:
            return records.left(session.number)
        if kind == FrameKind.STATE:
            told = decode(StateFrame, body)
            if told.key not in session.asked:
                raise BadPacket("state")
            session.asked.discard(told.key)
            return records.given(told.key, told.state, told.failed)
        raise BadPacket("kind")
