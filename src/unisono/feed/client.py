"""Reads a feed and writes rows to its group, with blocking calls that retry while it restarts."""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from unisono.errors import BadPacket, Misuse, UnisonoError
from unisono.feed import protocol, rows
from unisono.feed.access import client_tls, token_in
from unisono.feed.epochs import Counting, stretches_of
from unisono.feed.protocol import FeedFrameKind, Refusal
from unisono.log.record import Trimmed

PATIENCE_S: Final = 60.0
CONNECT_S: Final = 3.0
ANSWER_S: Final = 15.0
"""A feed that is silent for this long is considered gone; the request is repeated."""
TAKE_S: Final = 60.0
"""How long the group may take to order a writer's rows."""
PAUSE_S, PAUSE_MAX_S = 0.05, 1.0

T = TypeVar("T")


class FeedGone(UnisonoError):
    """No feed answered within `patience_s`."""


class FeedStatus(NamedTuple):
    """The bounds of a feed's log, and how it numbers messages."""

    first: int
    end: int
    last: int
    group: str
    incarnation: str
    counting: Counting
    opening: int
    """The offsets up to this one were lost before there was a feed."""


class _Refused(Exception):
    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(str(reply.get("text", "refused")))
        self.why = reply.get("why")
        self.reply = reply


class FeedClient:
    """Connects to one of the feeds named, and to the next if that one fails. Not thread-safe."""

    def __init__(
        self,
        where: str,
        patience_s: float = PATIENCE_S,
        counting: Counting | None = None,
        start: int = 0,
        *,
        token: Path | str | None = None,
        ca: Path | str | None = None,
    ) -> None:
        """`counting` is that of another feed of the group: one that numbers otherwise is
        refused. `start` tells which feed is asked first. `token` is the file of the feed's token,
        `ca` that of the certificates that a feed with TLS must be signed by."""
        self.where = where
        self.patience_s = patience_s
        self._addresses = protocol.addresses(where)
        self._at = start % len(self._addresses)
        self._socket: socket.socket | None = None
        self._token = token_in(token)
        self._tls = client_tls(ca)
        self._counting = counting or Counting()
        self._group: str | None = None

    def __enter__(self) -> FeedClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- requests ---------------------------------------------------------------------------------

    def bounds(self) -> FeedStatus:
        return self._patiently(self._bounds_once)

    def status(self) -> dict[str, Any]:
        return self._patiently(lambda: self._requested({"do": "status"}))

    def offset_at(self, t_us: int) -> int:
        """The first offset that the feed logged at this Unix time or later; or the one after the
        last."""
        return self._patiently(
            lambda: _number(self._requested({"do": "offset", "t_us": t_us}), "place")
        )

    def read(
        self, after: int, upto: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows with `after` < offset <= `upto`, in order, batched as in the log; with
        `columns`, nulls in all others. Waits for a feed that is behind; if one fails, resumes there
        or at the next."""
        wanted = {} if columns is None else {"columns": list(columns)}
        at = after
        deadline = self._deadline()
        pause_s = PAUSE_S
        while at < upto:
            try:
                if upto > self._counting.end:
                    self._bounds_once()  # To compare it with the next feed if this one fails.
                self._send(
                    protocol.json_frame(
                        FeedFrameKind.REQUEST, do="read", after=at, upto=upto, **wanted
                    )
                )
                while (batch := self._next_rows()) is not None:
                    if batch.num_rows:
                        at = batch.column(0)[-1].as_py()
                        yield batch
                    deadline, pause_s = self._deadline(), PAUSE_S
                return
            except (OSError, EOFError, BadPacket, _Refused) as error:
                pause_s = self._again(error, deadline, pause_s)

    def _next_rows(self) -> pa.RecordBatch | None:
        kind, body = self._receive()
        if kind is FeedFrameKind.ROWS:
            return rows.decoded(body)
        self._check(kind, body, FeedFrameKind.END)
        return None

    def write(
        self, query: str, partition: int, epoch: int, first_row: int, payloads: Sequence[bytes]
    ) -> int:
        """Multicast rows to the group, each once even if repeated. Returns, once the feed has
        logged all of them, an offset at or after the last of them."""
        offset = 0
        for start, part in _parts(payloads):
            batch = pa.record_batch([pa.array(part, pa.binary())], schema=protocol.INTAKE)
            request = {
                "do": "rows",
                "query": query,
                "partition": partition,
                "epoch": epoch,
                "first_row": first_row + start,
            }
            body = batch.serialize().to_pybytes()
            offset = self._patiently(lambda a=request, b=body: self._write_once(a, b))  # type: ignore[misc]
        return offset

    def _write_once(self, request: dict[str, Any], body: bytes) -> int:
        self._send(
            protocol.json_frame(FeedFrameKind.REQUEST, **request)
            + protocol.frame(FeedFrameKind.ROWS, body)
        )
        assert self._socket is not None
        self._socket.settimeout(TAKE_S)
        return _number(self._answer(), "place")

    def _bounds_once(self) -> FeedStatus:
        known = _bounds_reply(self._requested({"do": "bounds"}))
        self._compare(known)
        return known

    def _requested(self, request: dict[str, Any]) -> dict[str, Any]:
        self._send(protocol.json_frame(FeedFrameKind.REQUEST, **request))
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        kind, body = self._receive()
        return self._check(kind, body, FeedFrameKind.ANSWER)

    def _check(self, kind: FeedFrameKind, body: bytes, wanted: FeedFrameKind) -> dict[str, Any]:
        reply = protocol.parse_json(body)
        if kind is FeedFrameKind.REFUSED:
            raise _Refused(reply)
        if kind is not wanted:
            raise BadPacket("kind")
        return reply

    # -- retries ----------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return time.monotonic() + self.patience_s

    def _patiently(self, once: Callable[[], T]) -> T:
        deadline, pause_s = self._deadline(), PAUSE_S
        while True:
            try:
                return once()
            except (OSError, EOFError, BadPacket, _Refused) as error:
                pause_s = self._again(error, deadline, pause_s)

    def _again(self, error: Exception, deadline: float, pause_s: float) -> float:
        """Wait before the next try, at the next feed; or raise the error."""
        if isinstance(error, _Refused):
            if error.why == Refusal.TRIMMED:
                first, begins = (_number(error.reply, key) for key in ("first", "begins"))
                raise Trimmed(first, begins) from None
            if error.why == Refusal.MISUSE:
                raise Misuse(str(error)) from None
            if error.why not in protocol.PASSING:
                raise UnisonoError(f"the feed at {self._here()}: {error}") from None
        here = self._here()
        self.close()
        if time.monotonic() + pause_s >= deadline:
            reason = getattr(error, "strerror", None) or str(error) or "connection closed"
            raise FeedGone(
                f"no feed answered at {self.where} within {self.patience_s:g} s; last tried"
                f" {here}: {reason}"
            ) from None
        self._at = (self._at + 1) % len(self._addresses)
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        return min(PAUSE_MAX_S, pause_s * 2)

    def _here(self) -> str:
        host, port = self._addresses[self._at]
        return f"{host}:{port}"

    # -- the socket -------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            made = socket.create_connection(self._addresses[self._at], CONNECT_S)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = made
            if self._tls is not None:
                self._socket = made = self._secured(made, self._tls)
            made.settimeout(ANSWER_S)
            made.sendall(protocol.HELLO)
            if self._token:
                stated = {"do": "token", "token": self._token}
                made.sendall(protocol.json_frame(FeedFrameKind.REQUEST, **stated))
                self._answer()
            self._bounds_once()
        self._socket.settimeout(ANSWER_S)
        self._socket.sendall(data)

    def _secured(self, made: socket.socket, tls: ssl.SSLContext) -> socket.socket:
        try:
            return tls.wrap_socket(made, server_hostname=self._addresses[self._at][0])
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise Misuse(
                f"the feed at {self._here()} has a certificate that is not accepted:"
                f" {error.verify_message}: check ca="
            ) from None

    def _compare(self, known: FeedStatus) -> None:
        """Feeds of one group replace each other only if they number messages the same."""
        if self._group not in (None, known.group):
            self.close()
            raise UnisonoError(
                f"the feed at {self._here()} is of the group {known.group!r}, the one before of"
                f" {self._group!r}: name feeds of one group"
            )
        self._group = known.group
        if (offset := self._counting.diverges_at(known.counting)) is not None:
            self.close()
            raise UnisonoError(
                f"the feed at {self._here()} has other messages than the one before from offset"
                f" {offset} on: it cannot replace it"
            )
        if known.end >= self._counting.end:
            self._counting = known.counting

    def _receive(self) -> tuple[FeedFrameKind, bytes]:
        kind, length = protocol.front_read(self._bytes(protocol.FRONT_BYTES))
        return kind, self._bytes(length)

    def _bytes(self, count: int) -> bytes:
        assert self._socket is not None
        whole = bytearray(count)
        view = memoryview(whole)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise EOFError("connection closed")
            view = view[got:]
        return bytes(whole)


def _number(reply: dict[str, Any], key: str) -> int:
    """Checked: a feed is not trusted."""
    try:
        return protocol.number(reply, key)
    except Misuse:
        raise BadPacket("answer") from None


def _bounds_reply(reply: dict[str, Any]) -> FeedStatus:
    first, end, last, opening = (_number(reply, key) for key in ("first", "end", "last", "opening"))
    try:
        stretches = stretches_of(reply["stretches"])
        group, incarnation = str(reply["group"]), str(reply["life"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadPacket("answer") from None
    return FeedStatus(first, end, last, group, incarnation, Counting(stretches, end), opening)


def _parts(payloads: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Rows in parts of bounded size, each with the index of its first."""
    part: list[bytes] = []
    start = nbytes = 0
    for at, payload in enumerate(payloads):
        full = nbytes + len(payload) > protocol.ROWS_BYTES or len(part) >= protocol.ROWS_COUNT_MAX
        if part and full:
            yield start, part
            part, start, nbytes = [], at, 0
        part.append(payload)
        nbytes += len(payload)
    if part:
        yield start, part
