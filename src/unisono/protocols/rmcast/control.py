"""Control messages: what members send each other in their streams, in causal order."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

from unisono.errors import BadPacket
from unisono.fields import bounded
from unisono.layout import decode, encode
from unisono.model import Buffer, Member

Rank: TypeAlias = Annotated[int, bounded("I", 0, 1 << 31)]


class Add(NamedTuple):
    """In the stream of the sponsor: from here on this process is a member."""

    member: Member
    rank: Rank

    def label(self) -> str:
        return f"add {self.member.name}"


class Bye(NamedTuple):
    """The last message of its sender's stream: it leaves."""

    def label(self) -> str:
        return "bye"


class After(NamedTuple):
    """Only comes after others: carries dependencies of the next message that do not fit there."""

    def label(self) -> str:
        return "after"


Control: TypeAlias = Add | Bye | After
CONTROLS: Final[dict[int, type[Control]]] = {1: Add, 2: Bye, 3: After}
_CONTROL_TAGS: Final = {kind: bytes((tag,)) for tag, kind in CONTROLS.items()}


def write_control(control: Control) -> bytes:
    return _CONTROL_TAGS[type(control)] + encode(control)


def read_control(payload: Buffer) -> Control:
    kind = CONTROLS.get(payload[0]) if payload else None
    if kind is None:
        raise BadPacket("malformed")
    return decode(kind, memoryview(payload)[1:])
