"""The terms that all members of a group share, and the note that informs a process with others.

The terms are part of every packet: the lower half of the envelope's group field is their digest. So
packets of a process with other options are dropped before any protocol looks at it, and cannot
hold up the members. Members answer it with a *note*, their terms in words. A process that is not
a member yet compares them with its own and gives up, with the options that differ.

A note belongs to no protocol and to no version of the packets: a member of one protocol is
understood by a process of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from unisono.core import CoreConfig, Effect, Send, Warn
from unisono.errors import BadPacket
from unisono.fields import U16, U32, bounded, table
from unisono.layout import decode, encode, field_of
from unisono.model import Address
from unisono.wire import seal_note, tag_of

if TYPE_CHECKING:
    from unisono.parts.codec import PacketCodec

FORMAT: Final = 1
FIELDS_MAX: Final = 64
NOTES_PAUSE_US: Final = 250_000
"""Between two notes to one address."""
NOTED_MAX: Final = 16
"""Addresses that get a note within that time: an answer is longer than its request, whose
source address may be forged."""
AGE_MAX_MS: Final = (1 << 32) - 1

STATE: Final = {
    "true": "give snapshot= and restore=",
    "false": "leave out snapshot= and restore=",
}


class Terms(NamedTuple):
    """The group's name, and the settings that its members must share."""

    group: str
    fields: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(setting: CoreConfig, protocol: str, options: Mapping[str, int]) -> Terms:
        """`options` are the protocol's, without those in which members may differ."""
        fields = {
            "protocol": protocol,
            "replayable": "false",
            "state": "true" if setting.with_state else "false",
            "message_bytes_max": str(setting.message_bytes_max),
        }
        fields |= {name: str(value) for name, value in sorted(options.items())}
        fields |= {name: str(value) for name, value in setting.terms.items()}
        return Terms(setting.group, tuple(fields.items()))

    @property
    def tag(self) -> int:
        """The envelope's group field: in its upper half the name, in its lower half all of it."""
        whole = "|".join((self.group, *(f"{name}={value}" for name, value in self.fields)))
        return tag_of(self.group) >> 32 << 32 | tag_of(whole) & 0xFFFFFFFF

    def why_not(self, theirs: Mapping[str, str]) -> str:
        """What differs from the group's terms, with both values, and what to write instead. Of
        another protocol no option is compared; a replayable group always transfers a state."""
        mine = dict(self.fields)
        unlike = [
            name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)
        ]
        for first in ("protocol", "replayable"):
            if first in unlike:
                unlike = [first]
        its = ", ".join(f"{name}={theirs.get(name, 'unknown')}" for name in unlike)
        ours = ", ".join(f"{name}={mine.get(name, 'unknown')}" for name in unlike)
        instead = " and ".join(_instead(name, theirs.get(name, "")) for name in unlike)
        return (
            f"the group {self.group!r} has {its} and this member has {ours}:"
            f" {instead or 'use the same release'}, or join a group of another name"
        )


def _instead(name: str, value: str) -> str:
    if name == "state":
        return STATE.get(value, "use the same release")
    return f"give {name}={value}" if value else f"leave out {name}="


class Note(NamedTuple):
    """The terms of a process, for one with other terms."""

    group: U32
    """The upper half of the name's tag."""
    size: U16
    """Of its view; 0 is one that is not inside either."""
    age_ms: U32
    """How long it has been inside."""
    fields: Annotated[
        tuple[tuple[str, str], ...],
        table(field_of(tuple[str, str]), bounded("B", 0, FIELDS_MAX)),
    ]

    def is_valid(self) -> bool:
        return all(name.isprintable() and value.isprintable() for name, value in self.fields)

    def sealed(self) -> bytes:
        return seal_note(bytes((FORMAT,)) + encode(self))

    @staticmethod
    def read(body: memoryview) -> Note:
        if body[:1] != bytes((FORMAT,)):
            raise BadPacket("malformed")
        return decode(Note, body[1:])


class Admission:
    """One member's side: informs processes with other terms, and learns if its own differ."""

    def __init__(self, codec: PacketCodec, terms: Terms) -> None:
        self._codec = codec
        self._terms = terms
        self._noted: dict[Address, int] = {}
        self._since_us: int | None = None
        self._warned = ""

    def entered(self, now_us: int) -> None:
        """A view was installed: from the first one on, this member is inside."""
        if self._since_us is None:
            self._since_us = now_us

    def look(self, source: Address, now_us: int, size: int, out: list[Effect]) -> str:
        """Called after a burst with a note or foreign terms; `size` is that of our view, 0 outside.
        Returns why we must stop, if we must."""
        notes, unlike = self._codec.take_odd()
        if unlike:
            self._inform(source, now_us, size, out)
        for body in notes:
            reason = self._consider(body, now_us, size, out)
            if reason:
                return reason
        return ""

    def _inform(self, source: Address, now_us: int, size: int, out: list[Effect]) -> None:
        since_us = now_us - NOTES_PAUSE_US
        self._noted = {address: at for address, at in self._noted.items() if at > since_us}
        if source in self._noted or len(self._noted) >= NOTED_MAX:
            return
        self._noted[source] = now_us
        self._codec.count("out.note")
        note = Note(self._terms.tag >> 32, size, self._age_ms(now_us), self._terms.fields)
        out.append(Send((source,), [note.sealed()]))

    def _age_ms(self, now_us: int) -> int:
        since_us = now_us if self._since_us is None else self._since_us
        return min(max(0, now_us - since_us) // 1000, AGE_MAX_MS)

    def _consider(self, body: memoryview, now_us: int, size: int, out: list[Effect]) -> str:
        """A process outside yields to members. One that is alone, and came at the same time as
        the others without hearing them, yields to more, or to one that was there before."""
        try:
            note = Note.read(body)
        except BadPacket as bad:
            self._codec.drop(bad.reason)
            return ""
        mine = self._terms
        if note.group != mine.tag >> 32 or note.fields == mine.fields:
            return ""
        self._codec.count("in.note")
        reason = mine.why_not(dict(note.fields))
        if size == 0 and note.size == 0:
            if reason != self._warned:
                self._warned = reason
                out.append(Warn(f"nobody is inside yet, and another waits: {reason}"))
            return ""
        theirs = (note.size, note.age_ms, note.fields)
        ours = (size, self._age_ms(now_us), mine.fields)
        return reason if size < 2 and ours < theirs else ""
