"""A connection to the daemon without a group: to send to groups that one is not a member of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from unisono.client.listen_address import ListenAddress, listen_address
from unisono.client.served import ServedProtocol, group_names
from unisono.client.session import DaemonSession
from unisono.config import NAME
from unisono.errors import Misuse, Stopped, TooLarge
from unisono.group.joining import Opening
from unisono.model import Buffer, Member, Message, PayloadBatch, ServiceLevel, View
from unisono.net.handle import Handle, Handles, Placement
from unisono.net.identity import default_name, new_incarnation
from unisono.net.send_buffer import SendBuffer
from unisono.net.stream import Entry

WINDOW_BYTES_MAX: Final = 1 << 20


def connect(
    daemon: str | os.PathLike[str], *, name: str = "", connect_s: float = 10.0, close_s: float = 5.0
) -> Connecting:
    """Connect: `async with connect("unix:/path") as connection`, or await it."""
    if name and not NAME.fullmatch(name):
        raise Misuse(f"name {name!r}: use 1 to 64 letters, digits or ._@+-")
    for what, seconds in (("connect_s", connect_s), ("close_s", close_s)):
        if not 0 < seconds <= 86_400:
            raise Misuse(f"{what}={seconds}: give a number above 0, at most a day")
    return Connecting(
        Connection(listen_address(daemon), name or default_name(), connect_s, close_s)
    )


class Connecting(Opening["Connection"]):
    """A connection about to be made: await it, or enter it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection._open, connection.close)


class Connection:
    """Sends messages to groups and receives none. A message to several groups has one sequence
    number in one order; its sender is in no view."""

    def __init__(self, at: ListenAddress, name: str, connect_s: float, close_s: float) -> None:
        self._address, self._connect_s, self._close_s = at, connect_s, close_s
        self._served = ServedProtocol()
        self._me: Member | None = None
        self._ended: str | None = None
        self._closing = False
        self._done: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._handles = Handles()
        self._send_buffer = SendBuffer(handles=self._handles)
        self._session = DaemonSession(
            at,
            _SendOnly(
                self._opened, self._send_buffer.stepped, self._handles.place, self._session_ended
            ),
            self._served.welcomed,
            name,
            new_incarnation(),
            WINDOW_BYTES_MAX,
        )

    @property
    def me(self) -> Member:
        """The sender that receivers see."""
        if self._me is None:
            raise Stopped(self._ended or "not connected yet: await connect() first")
        return self._me

    @property
    def stopped(self) -> str | None:
        """Why nothing can be sent any more; None while it can."""
        return self._ended

    @property
    def blocked(self) -> str:
        """Why the daemon makes no progress though it is in the ring; empty while it does."""
        return self._session.warning

    def counters(self) -> dict[str, int]:
        found = self._session.counts()
        found["send.waiting"] = self._send_buffer.waiting_count
        return dict(sorted(found.items()))

    def send(
        self,
        groups: str | Sequence[str],
        payload: Buffer,
        service: ServiceLevel | str | None = None,
    ) -> Handle:
        """Send to these groups. `await` the handle to wait while the window is full; it returns the
        message's number. `await handle.ordered` waits until the groups deliver it, and raises
        `ClosedGroup` if one of them accepts messages of members only."""
        return self.send_many(groups, (payload,), service)

    def send_many(
        self,
        groups: str | Sequence[str],
        payloads: Iterable[Buffer],
        service: ServiceLevel | str | None = None,
    ) -> Handle:
        """Send them in this order; the handle is the last one's."""
        messages = PayloadBatch(map(self._checked, payloads))
        level, names = self._level(service), group_names(groups)
        if not messages:
            return Handle(level, own=False)
        return self._send_buffer.submit(messages, level, names, own=False)

    def _checked(self, payload: Buffer) -> bytes:
        if self._ended is not None or self._closing:
            raise Stopped(self._ended or "the connection is being closed")
        if not isinstance(payload, bytes | bytearray | memoryview):
            kind = type(payload).__name__
            raise Misuse(f"a message is bytes, not {kind}: encode it first, as text.encode()")
        limit = self._served.message_bytes_max
        if len(payload) > limit:
            raise TooLarge(
                f"the message has {len(payload)} bytes, over the daemon's limit"
                f" message_bytes_max={limit}: split it or raise the limit"
            )
        return bytes(payload)

    def _level(self, service: ServiceLevel | str | None) -> ServiceLevel:
        return self._served.default_level if service is None else self._served.level(service)

    # -- opening and closing --------------------------------------------------------------------

    async def _open(self) -> Connection:
        if self._ready is not None:
            raise Misuse("already connected: call connect() again for another connection")
        loop = asyncio.get_running_loop()
        self._ready, self._done = loop.create_future(), loop.create_future()
        self._session.start()
        try:
            async with asyncio.timeout(self._connect_s):
                await self._ready
        except TimeoutError:
            self._session.close()
            self._ended = (
                f"no answer within connect_s={self._connect_s:g} s {self._session.describe()}"
            )
            raise Stopped(self._ended) from None
        except BaseException:
            self._session.close()
            raise
        self._send_buffer.begin(self._session)
        return self

    async def close(self) -> None:
        """Close once the ring has accepted all that was sent, or after `close_s`. Idempotent."""
        if self._ended is None and not self._closing and self._done is not None:
            self._closing = True
            self._send_buffer.flush()
            self._send_buffer.end(Stopped("the connection is being closed"))
            self._session.leave()
            await asyncio.wait([self._done], timeout=self._close_s)
        self._session.close()
        self._ended = self._ended or "the connection was closed"

    # -- what the session reports ---------------------------------------------------------------

    def _opened(self, me: Member) -> None:
        self._me = me
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _session_ended(self, reason: str | None) -> None:
        self._ended = reason or "the connection was closed"
        self._send_buffer.end(Stopped(self._ended))
        self._handles.fail(self._ended)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(Stopped(self._ended))
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class _SendOnly:
    """The events of a session in no group. Notices of stability are dropped."""

    def __init__(
        self,
        opened: Callable[[Member], None],
        stepped: Callable[[], None],
        place: Callable[[Placement], None],
        ended: Callable[[str | None], None],
    ) -> None:
        self.opened, self.stepped, self.ended = opened, stepped, ended
        self.place = place

    def deliver(self, messages: Sequence[Message]) -> None: ...

    def has_woken(self) -> bool:
        return False

    def put(self, entry: Entry) -> None: ...

    def adopt(self, state: bytes) -> None: ...

    def install(self, view: View) -> None: ...
