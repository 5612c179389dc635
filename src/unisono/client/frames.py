"""The frames of the local socket, between a client and its daemon, declared field by field.

A frame is its length, its kind and a body. Messages travel in *bundles*: what one client sent to
the same groups at the same level, side by side. A bundle passes both daemons unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.client.lock_frames import AnswerFrame, LockFrame
from unisono.errors import BadPacket
from unisono.fields import (
    U8,
    U16_COUNT,
    U32,
    U64,
    Bit,
    Blob,
    Incarnation,
    Rest,
    bounded,
    fixed,
    table,
    text,
)
from unisono.layout import decode, decode_front, encode, encode_parts, field_of, layout_of
from unisono.model import (
    Address,
    Buffer,
    Change,
    ChangeKind,
    ChangeScope,
    Member,
    PayloadBatch,
    Resilient,
    Service,
    ServiceLevel,
    View,
)
from unisono.parts.message_runs import MessageRun

MAGIC: Final = b"USOC"
VERSION: Final = 5
NAME_BYTES_MAX: Final = 64
GROUPS_COUNT_MAX: Final = 64
"""Groups that one message may be addressed to."""
BUNDLE_BYTES: Final = 64 << 10
"""The size at which a bundle is closed; a larger message is a bundle by itself."""
BUNDLE_COUNT_MAX: Final = 4096
SLACK_BYTES: Final = 64 << 10
"""Bytes of a frame besides payload: the groups, the lengths of the messages."""
HELLO_BYTES_MAX: Final = 1024
VIEW_BYTES_MAX: Final = 4 << 20
REASON_COUNT_MAX: Final = 1000
SENDERS_COUNT_MAX: Final = 4096
_RESILIENT: Final = 6
"""The code of `Resilient(k)`, after those of the plain levels; k is written with 2 added."""


class FrameKind(IntEnum):
    """Below 16 from a client, above from the daemon."""

    HELLO = 1
    JOIN = 2
    SUBMIT = 3
    STATE = 4
    LEAVE = 5
    LOCK = 6
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
    ANSWER = 27
    PLACED = 28
    UNSTABLE = 29


class FrameFront(NamedTuple):
    """Before each frame's body."""

    length: U32
    """Of kind and body."""
    kind: U8


FRONT: Final = layout_of(FrameFront)
FRONT_BYTES: Final = FRONT.field.least


def frame(kind: FrameKind, *parts: Buffer) -> bytes:
    return b"".join((FRONT.pack(sum(map(len, parts)) + 1, kind), *parts))


# -- levels, bundles ----------------------------------------------------------------------------


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


Level: TypeAlias = Annotated[
    ServiceLevel,
    fixed("level (u8: 0 to 5, or 6 resilient; u32: k + 2)", "BI", level_of, level_code),
]
_NAME: Final = text(bounded("H", 1, NAME_BYTES_MAX, "name"))
Name: TypeAlias = Annotated[str, _NAME]


class BundleHead(NamedTuple):
    """Before the messages, their lengths."""

    lengths: Annotated[
        tuple[int, ...], table(fixed("u32", "I"), bounded("H", 1, BUNDLE_COUNT_MAX, "bundle"))
    ]


def bundle_of(messages: Sequence[Buffer]) -> bytes:
    return b"".join((encode(BundleHead(tuple(map(len, messages)))), *messages))


def lengths_of(bundle: Buffer) -> tuple[int, ...]:
    """The lengths of the messages, checked against the bundle's size."""
    (lengths,), messages = decode_front(BundleHead, bundle)
    if sum(lengths) != len(messages):
        raise BadPacket("bundle")
    return lengths


def bundles(messages: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The messages, a bundle at a time."""
    if isinstance(messages, PayloadBatch) and messages.length > 0:
        step = min(BUNDLE_COUNT_MAX, max(1, BUNDLE_BYTES // messages.length))
        yield from (messages[at : at + step] for at in range(0, len(messages), step))
        return
    start = nbytes = 0
    for at, message in enumerate(messages):
        full = nbytes and nbytes + len(message) > BUNDLE_BYTES
        if full or at - start >= BUNDLE_COUNT_MAX:
            yield messages[start:at]
            start, nbytes = at, 0
        nbytes += max(1, len(message))
    if start < len(messages):
        yield messages[start:]


# -- from a client ------------------------------------------------------------------------------

_MAGIC: Final = int.from_bytes(MAGIC, "big")


class HelloFrame(NamedTuple):
    magic: Annotated[int, bounded("I", _MAGIC, _MAGIC, "foreign", "USOC")]
    version: Annotated[int, bounded("H", VERSION, VERSION, "version")]
    name: Name
    incarnation: Incarnation


def hello(name: str, incarnation: int) -> bytes:
    return framed(HelloFrame(_MAGIC, VERSION, name, incarnation))


class JoinFrame(NamedTuple):
    group: Name
    with_state: Bit
    sheds: Bit
    replayable: Bit = False
    format: str = ""
    closed: Bit = False


class SubmitFrame(NamedTuple):
    level: Level
    groups: Annotated[tuple[str, ...], table(_NAME, bounded("B", 1, GROUPS_COUNT_MAX, "groups"))]
    bundle: Rest
    """Checked by `lengths_of`."""

    def is_valid(self) -> bool:
        return len(self.groups) == 1 or len(set(self.groups)) == len(self.groups)


def submit_head(level: ServiceLevel, groups: Sequence[str]) -> bytes:
    """The fields that all messages to these groups at this level share."""
    return encode(SubmitFrame(level, tuple(groups), b""))


def submit(head: bytes, messages: Sequence[Buffer]) -> bytes:
    return frame(FrameKind.SUBMIT, head, bundle_of(messages))


class StateFrame(NamedTuple):
    failed: bool
    """There is no state: `state` is the reason."""
    key: bytes
    state: Rest


# -- from the daemon ----------------------------------------------------------------------------


class WelcomeFrame(NamedTuple):
    daemon: str
    """The daemon's name in the ring."""
    address: Address
    """Of the daemon in the ring: its clients' addresses."""
    protocol: str
    default: Level
    resilient: bool
    services: tuple[Service, ...]
    message_bytes_max: U64


class ShedFrame(NamedTuple):
    """Messages dropped here because the client reads slowly."""

    messages: U64


class PlacedFrame(NamedTuple):
    """What became of messages that the client sent to other groups."""

    number: U64
    """Of the first."""
    messages: U32
    seq: U64
    """Of the first; 0 where there is no total order."""
    refused: tuple[str, ...]
    """Groups that are closed to the client."""


def bye(reason: str) -> bytes:
    return frame(FrameKind.BYE, reason[:REASON_COUNT_MAX].encode())


def read_bye(body: memoryview) -> str:
    return bytes(body).decode("utf-8", "replace")


def blocked(why: str) -> bytes:
    """Why the daemon makes no progress though it is in the ring; empty when it does again."""
    return frame(FrameKind.BLOCKED, why[:REASON_COUNT_MAX].encode())


class ChangeText(NamedTuple):
    what: str
    where: str
    number: Annotated[int, fixed("i64", "q")] | None


class ViewFrame(NamedTuple):
    """A view. The members of each change follow, in the order of the changes."""

    id: str
    seq: U64
    detail: str
    whole: Bit
    """All members are listed; otherwise the client has the view before."""
    transitional: Bit
    changes: Annotated[tuple[ChangeText, ...], table(field_of(ChangeText), U16_COUNT)]
    members: tuple[Member, ...]
    joined: tuple[Member, ...]
    left: tuple[Member, ...]
    stayed: tuple[Member, ...]


class MemberList(NamedTuple):
    members: tuple[Member, ...]


def view(shown: View, whole: bool) -> bytes:
    head = ViewFrame(
        shown.id,
        shown.seq or 0,
        shown.detail[:REASON_COUNT_MAX],
        whole,
        shown.transitional,
        tuple(ChangeText(each.what.value, each.where.value, each.number) for each in shown.changes),
        shown.members if whole else (),
        shown.joined,
        shown.left,
        shown.stayed,
    )
    concerned = (encode(MemberList(change.who)) for change in shown.changes)
    return frame(FrameKind.VIEW, encode(head), *concerned)


def read_view(body: memoryview, before: View | None) -> View:
    head, rest = decode_front(ViewFrame, body)
    changes = []
    for what, where, number in head.changes:
        (concerned,), rest = decode_front(MemberList, rest)
        try:
            changes.append(Change(ChangeKind(what), concerned, ChangeScope(where), number))
        except ValueError:
            raise BadPacket("view") from None
    if rest:
        raise BadPacket("long")
    members = head.members
    if not head.whole:
        if before is None:
            raise BadPacket("view")
        members = tuple(each for each in before.members if each not in head.left) + head.joined
    return View(
        members,
        head.id,
        head.joined,
        head.left,
        head.seq or None,
        (),
        head.detail,
        head.transitional,
        head.stayed,
        tuple(changes),
    )


class DeliverFrame(NamedTuple):
    """A bundle that is delivered, or a notice that it is stable."""

    seq: U64
    """Of the first message; 0 where there is no total order."""
    number: U64
    level: Level
    sender: Blob
    """A member."""
    bundle: Rest


class SenderFields(NamedTuple):
    member: Member


class DeliverFront(NamedTuple):
    seq: U64
    number: U64
    code: U8
    k: U32


_DELIVER: Final = layout_of(DeliverFront)


def member_bytes(member: Member) -> bytes:
    return encode(SenderFields(member))


def deliver(
    kind: FrameKind, sender: bytes, number: int, seq: int, code: int, k: int, bundle: Buffer
) -> bytes:
    """A fast path: the frame of a `DeliverFrame` from parts that are encoded already."""
    head = _DELIVER.pack(seq, number, code, k)
    return frame(kind, head, len(sender).to_bytes(2, "big"), sender, bundle)


class BundleReader:
    """Bundles to messages that are not cut apart yet; each sender is decoded once."""

    def __init__(self) -> None:
        self._senders: dict[bytes, Member] = {}

    def run(self, body: memoryview, view_id: str) -> MessageRun:
        seq, number, level, encoded, bundle = decode(DeliverFrame, body)
        sender, lengths = self._sender(bytes(encoded)), lengths_of(bundle)
        nbytes, count = sum(lengths), len(lengths)
        data = bytes(bundle[len(bundle) - nbytes :])
        place = seq or None
        if lengths.count(lengths[0]) == count:
            return MessageRun(sender, data, 0, lengths[0], count, number, view_id, place, level)
        return MessageRun(sender, data, 0, nbytes, count, number, view_id, place, level, lengths)

    def _sender(self, encoded: bytes) -> Member:
        known = self._senders.get(encoded)
        if known is None:
            known = decode(SenderFields, encoded).member
            if len(self._senders) >= SENDERS_COUNT_MAX:
                self._senders.clear()
            self._senders[encoded] = known
        return known


Framed: TypeAlias = (
    HelloFrame
    | JoinFrame
    | StateFrame
    | LockFrame
    | WelcomeFrame
    | ShedFrame
    | AnswerFrame
    | PlacedFrame
)
FRAMES: Final[dict[FrameKind, type[NamedTuple]]] = {
    FrameKind.HELLO: HelloFrame,
    FrameKind.JOIN: JoinFrame,
    FrameKind.SUBMIT: SubmitFrame,
    FrameKind.STATE: StateFrame,
    FrameKind.LOCK: LockFrame,
    FrameKind.WELCOME: WelcomeFrame,
    FrameKind.VIEW: ViewFrame,
    FrameKind.DELIVER: DeliverFrame,
    FrameKind.SHED: ShedFrame,
    FrameKind.STABLE: DeliverFrame,
    FrameKind.UNSTABLE: DeliverFrame,
    FrameKind.ANSWER: AnswerFrame,
    FrameKind.PLACED: PlacedFrame,
}
"""The bodies of frames; those of the others are text, bytes or empty."""
_KINDS: Final = {record: kind for kind, record in FRAMES.items()}


def framed(record: Framed) -> bytes:
    return frame(_KINDS[type(record)], *encode_parts(record))
