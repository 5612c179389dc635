"""The frames of the local socket: what a client and its daemon say, to bytes and back.

A frame is its length, its kind and a body. Messages travel in *bundles*: what one client said to
the same groups at the same level, side by side. A bundle goes through both daemons uncut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from unisono.errors import BadPacket
from unisono.model import (
    Address,
    Buffer,
    Change,
    ChangeKind,
    ChangeScope,
    Member,
    Message,
    Resilient,
    Service,
    ServiceLevel,
    View,
)
from unisono.wire import FieldLayout, Reader, Writer

MAGIC: Final = b"USOC"
VERSION: Final = 2
NAME_BYTES_MAX: Final = 64
GROUPS_COUNT_MAX: Final = 64
"""Groups that one message may be for."""
BUNDLE_BYTES: Final = 64 << 10
"""A bundle is closed when it has so much; a larger message is a bundle of its own."""
BUNDLE_COUNT_MAX: Final = 4096
SLACK_BYTES: Final = 64 << 10
"""What a frame may have besides payload: the groups, the lengths of the messages."""
HELLO_BYTES_MAX: Final = 1024
VIEW_BYTES_MAX: Final = 4 << 20
REASON_COUNT_MAX: Final = 1000
SENDERS_COUNT_MAX: Final = 4096

_FRONT: Final = FieldLayout("IB")
FRONT_BYTES: Final = _FRONT.octets
_HEARD: Final = FieldLayout("QQBI")
_RESILIENT: Final = 6
"""The code of `Resilient(k)`, after those of the plain levels; k is written with 2 added."""


class FrameKind(IntEnum):
    """What a frame is. Below 16 a client says it, above the daemon."""

    HELLO = 1
    JOIN = 2
    SUBMIT = 3
    STATE = 4
    LEAVE = 5
    WELCOME = 17
    BYE = 18
    VIEW = 19
    DELIVER = 20
    CAPTURE = 21
    ADOPT = 22
    SHED = 23
    STABLE = 24
    LEFT = 25
    BLOCKED = 26


def frame(kind: FrameKind, *parts: Buffer) -> bytes:
    return b"".join((_FRONT.pack(sum(map(len, parts)) + 1, kind), *parts))


class FrameSplitter:
    """A stream of bytes into frames. What is longer than the bound is no frame of ours."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._rest = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """The frames that are complete now, kind and body. The bound may change between two."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            # Those who were given a part of it hold it: it is never resized again.
            whole = memoryview(self._rest)
            self._rest = bytearray()
        else:
            whole = memoryview(data)
        at, end = 0, len(whole)
        while end - at >= _FRONT.octets:
            length, kind = _FRONT.read(whole[at : at + _FRONT.octets])
            if not 1 <= length <= self.bytes_max:
                raise BadPacket("frame_length")
            after = at + 4 + length
            if after > end:
                self._needed = 4 + length
                break
            yield kind, whole[at + _FRONT.octets : after]
            at = after
        else:
            self._needed = _FRONT.octets
        self._rest = bytearray(whole[at:])


# -- levels, groups, bundles --------------------------------------------------------------------


def level_code(level: ServiceLevel) -> tuple[int, int]:
    if isinstance(level, Resilient):
        return _RESILIENT, level.k + 2
    return int(level), 0


def level_of(code: int, k: int) -> ServiceLevel:
    if code == _RESILIENT:
        return Resilient(k - 2)
    try:
        return Service(code)
    except ValueError:
        raise BadPacket("level") from None


def bundle_of(messages: Sequence[Buffer]) -> bytes:
    """Their lengths, then the messages."""
    writer = Writer().rows("I", 1, [len(message) for message in messages])
    for message in messages:
        writer.raw(message)
    return writer.done()


def lengths_of(bundle: memoryview) -> tuple[int, ...]:
    """Checked: at least one message, and as many bytes as they say."""
    reader = Reader(bundle)
    lengths = reader.rows("I")
    if not 1 <= len(lengths) <= BUNDLE_COUNT_MAX or sum(lengths) != reader.left():
        raise BadPacket("bundle")
    return lengths


def _groups(reader: Reader) -> tuple[str, ...]:
    count = reader.u8()
    if not 1 <= count <= GROUPS_COUNT_MAX:
        raise BadPacket("groups")
    found = tuple(_name(reader) for _ in range(count))
    if len(set(found)) != count:
        raise BadPacket("groups")
    return found


def _name(reader: Reader) -> str:
    text = reader.text()
    if not 1 <= len(text) <= NAME_BYTES_MAX:
        raise BadPacket("name")
    return text


# -- a client says ------------------------------------------------------------------------------


class HelloFrame(NamedTuple):
    name: str
    incarnation: int


def hello(name: str, incarnation: int) -> bytes:
    body = Writer().raw(MAGIC).u16(VERSION).text(name).incarnation(incarnation).done()
    return frame(FrameKind.HELLO, body)


def read_hello(body: memoryview) -> HelloFrame:
    reader = Reader(body)
    if bytes(reader.raw(len(MAGIC))) != MAGIC:
        raise BadPacket("foreign")
    if reader.u16() != VERSION:
        raise BadPacket("version")
    found = HelloFrame(_name(reader), reader.incarnation())
    reader.done()
    return found


class JoinFrame(NamedTuple):
    group: str
    with_state: bool
    sheds: bool
    fed: bool = False


def join(group: str, with_state: bool, sheds: bool, fed: bool = False) -> bytes:
    flags = with_state | sheds << 1 | fed << 2
    return frame(FrameKind.JOIN, Writer().text(group).u8(flags).done())


def read_join(body: memoryview) -> JoinFrame:
    reader = Reader(body)
    group, flags = _name(reader), reader.u8()
    if flags > 7:
        raise BadPacket("malformed")
    reader.done()
    return JoinFrame(group, bool(flags & 1), bool(flags & 2), bool(flags & 4))


class SubmitFrame(NamedTuple):
    level: ServiceLevel
    groups: tuple[str, ...]
    bundle: memoryview


def submit_head(level: ServiceLevel, groups: Sequence[str]) -> bytes:
    """What is the same for all that is said to these groups at this level."""
    code, k = level_code(level)
    writer = Writer().u8(code).u32(k).u8(len(groups))
    for group in groups:
        writer.text(group)
    return writer.done()


def submit(head: bytes, messages: Sequence[Buffer]) -> bytes:
    return frame(FrameKind.SUBMIT, head, bundle_of(messages))


def read_submit(body: memoryview) -> SubmitFrame:
    """Head and bundle; whether the bundle is sound is asked with `lengths_of`."""
    reader = Reader(body)
    level = level_of(reader.u8(), reader.u32())
    groups = _groups(reader)
    return SubmitFrame(level, groups, reader.raw(reader.left()))


class StateFrame(NamedTuple):
    key: bytes
    state: memoryview
    failed: bool
    """There is none: the bytes say why."""


def state(key: Buffer, octets: Buffer, failed: bool = False) -> bytes:
    return frame(FrameKind.STATE, Writer().u8(failed).blob(key).done(), octets)


def read_state(body: memoryview) -> StateFrame:
    reader = Reader(body)
    failed, key = reader.u8(), bytes(reader.blob())
    return StateFrame(key, reader.raw(reader.left()), bool(failed))


# -- the daemon says ----------------------------------------------------------------------------


class WelcomeFrame(NamedTuple):
    daemon: str
    """The daemon's name in the ring."""
    address: Address
    """Of the daemon in the ring: its clients' addresses."""
    protocol: str
    default: ServiceLevel
    services: tuple[Service, ...]
    resilient: bool
    message_bytes_max: int


def welcome(told: WelcomeFrame) -> bytes:
    writer = Writer().text(told.daemon).text(told.address.host).u16(told.address.port)
    code, k = level_code(told.default)
    writer.text(told.protocol).u8(code).u32(k).u8(told.resilient)
    writer.rows("B", 1, [int(level) for level in told.services]).u64(told.message_bytes_max)
    return frame(FrameKind.WELCOME, writer.done())


def read_welcome(body: memoryview) -> WelcomeFrame:
    reader = Reader(body)
    daemon, address = reader.text(), Address(reader.text(), reader.u16())
    protocol, default = reader.text(), level_of(reader.u8(), reader.u32())
    resilient, codes = bool(reader.u8()), reader.rows("B")
    levels = (level_of(code, 0) for code in codes)
    services = tuple(level for level in levels if isinstance(level, Service))
    bytes_max = reader.u64()
    reader.done()
    return WelcomeFrame(daemon, address, protocol, default, services, resilient, bytes_max)


def bye(reason: str) -> bytes:
    return frame(FrameKind.BYE, reason[:REASON_COUNT_MAX].encode())


def read_bye(body: memoryview) -> str:
    return bytes(body).decode("utf-8", "replace")


def blocked(why: str) -> bytes:
    """Why the daemon waits though it is in the ring; empty when it does no longer."""
    return frame(FrameKind.BLOCKED, why[:REASON_COUNT_MAX].encode())


def view(told: View, whole: bool) -> bytes:
    """All members, or only who came and who went: for those who have the view before it."""
    writer = Writer().text(told.id).u64(told.seq or 0).text(told.detail[:REASON_COUNT_MAX])
    lists = (told.members if whole else (), told.joined, told.left, told.stayed)
    writer.u8(whole | told.transitional << 1).u8(len(told.changes))
    for change in told.changes:
        writer.text(change.what.value).text(change.where.value)
    for members in (*lists, *(change.who for change in told.changes)):
        writer.u16(len(members))
        for member in members:
            writer.member(member)
    return frame(FrameKind.VIEW, writer.done())


def read_view(body: memoryview, before: View | None) -> View:
    reader = Reader(body)
    id_, seq, detail, bits = reader.text(), reader.u64(), reader.text(), reader.u8()
    words = [(reader.text(), reader.text()) for _ in range(reader.u8())]

    def listed() -> tuple[Member, ...]:
        return tuple(reader.member() for _ in range(reader.u16()))

    members, joined, left, stayed = (listed() for _ in range(4))
    try:
        changes = tuple(
            Change(ChangeKind(what), listed(), ChangeScope(where)) for what, where in words
        )
    except ValueError:
        raise BadPacket("view") from None
    reader.done()
    if not bits & 1:
        if before is None:
            raise BadPacket("view")
        members = tuple(each for each in before.members if each not in left) + joined
    passing = bool(bits & 2)
    return View(members, id_, joined, left, seq or None, (), detail, passing, stayed, changes)


def member_bytes(member: Member) -> bytes:
    return Writer().member(member).done()


def deliver(
    kind: FrameKind, sender: bytes, number: int, seq: int, code: int, k: int, bundle: Buffer
) -> bytes:
    """A bundle at its place: as heard, or as a notice that it is stable. `sender` is a member's
    bytes; `seq` of the first message, or 0 where there is no order."""
    head = _HEARD.pack(seq, number, code, k)
    return frame(kind, head, len(sender).to_bytes(2, "big"), sender, bundle)


class BundleReader:
    """Bundles back into messages. Remembers senders, so that each is read once."""

    def __init__(self) -> None:
        self._senders: dict[bytes, Member] = {}

    def messages(self, body: memoryview, view_id: str) -> list[Message]:
        seq, number, code, k = _HEARD.read(body)
        reader = Reader(body[_HEARD.octets :])
        sender = self._sender(bytes(reader.blob()))
        bundle = reader.raw(reader.left())
        lengths, level = lengths_of(bundle), level_of(code, k)
        at = len(bundle) - sum(lengths)
        found = []
        for offset, octets in enumerate(lengths):
            payload = bytes(bundle[at : at + octets])
            place = seq + offset if seq else None
            found.append(Message(sender, payload, number + offset, view_id, place, level))
            at += octets
        return found

    def _sender(self, octets: bytes) -> Member:
        known = self._senders.get(octets)
        if known is None:
            reader = Reader(octets)
            known = reader.member()
            reader.done()
            if len(self._senders) >= SENDERS_COUNT_MAX:
                self._senders.clear()
            self._senders[octets] = known
        return known


def capture(key: bytes) -> bytes:
    return frame(FrameKind.CAPTURE, key)


def adopt(octets: Buffer) -> bytes:
    return frame(FrameKind.ADOPT, octets)


def shed(count: int) -> bytes:
    return frame(FrameKind.SHED, Writer().u64(count).done())


def read_shed(body: memoryview) -> int:
    reader = Reader(body)
    count = reader.u64()
    reader.done()
    return count


def cut_into_bundles(messages: Sequence[bytes], close: Callable[[Sequence[bytes]], None]) -> None:
    """Hand the messages to `close`, a bundle at a time."""
    start = octets = 0
    for at, message in enumerate(messages):
        full = octets and octets + len(message) > BUNDLE_BYTES
        if full or at - start >= BUNDLE_COUNT_MAX:
            close(messages[start:at])
            start, octets = at, 0
        octets += max(1, len(message))
    if start < len(messages):
        close(messages[start:])
