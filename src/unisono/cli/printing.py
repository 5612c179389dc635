"""The output of `unisono cat`: text, JSON, or messages in a format of one's own."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from unisono.core import Answer
from unisono.errors import Misuse
from unisono.model import Message, View, shortened
from unisono.net.stream import Blocked, Item, Rejoined, Shed, Unblocked, Unstable

COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
# Control characters could move the cursor: a terminal gets their pictures.
PICTURES = {code: 0x2400 + code for code in range(32) if code != 9} | {127: 0x2421}


class Printer(Protocol):
    """Each item as one line."""

    def item(self, item: Item) -> bytes: ...

    def stopped(self, reason: str) -> bytes: ...


def printer(as_json: bool, form: str | None = None) -> Printer:
    if form is not None:
        if as_json:
            raise Misuse("--json and --format exclude each other: give one")
        return Formatted(form)
    return Json() if as_json else Text(sys.stdout.isatty())


class Json:
    """One object per line."""

    def item(self, item: Item) -> bytes:
        return _line(_object(item))

    def stopped(self, reason: str) -> bytes:
        return _line({"kind": "stopped", "reason": reason})


def _line(value: dict[str, Any]) -> bytes:
    return (json.dumps(value) + "\n").encode()


def _object(item: Item) -> dict[str, Any]:
    if isinstance(item, Message):
        return {
            "kind": "message",
            "sender": item.sender.name,
            "number": item.number,
            "seq": item.seq,
            "view": item.view,
            **_payload(item.payload),
        }
    if isinstance(item, View):
        return {
            "kind": "view",
            "view": item.id,
            "members": [member.name for member in item.members],
        }
    if isinstance(item, Shed):
        return {"kind": "shed", "count": item.count}
    if isinstance(item, Rejoined):
        me = item.me
        return {
            "kind": "rejoined",
            "reason": item.reason,
            "name": me.name,
            "incarnation": me.incarnation,
            "missed": None if item.missed is None else len(item.missed),
            "lost": len(item.lost),
        }
    if isinstance(item, Answer):
        cause = item.cause.value if item.cause is not None else ""
        return {"kind": "answer", "what": item.what, "denied": cause, "detail": item.detail}
    if isinstance(item, Blocked):
        return {"kind": "blocked", "reason": item.reason}
    if isinstance(item, Unblocked):
        return {"kind": "unblocked"}
    if isinstance(item, Unstable):
        numbers = [message.number for message in item.messages]
        return {"kind": "unstable", "numbers": numbers, "cause": item.cause.value}
    return {"kind": "stable", "numbers": [message.number for message in item.messages]}


def _payload(payload: bytes) -> dict[str, str]:
    """Nothing is lost of what is no text."""
    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


FIELDS: Final[Mapping[str, Callable[[Message], bytes]]] = {
    "s": lambda message: message.payload,
    "S": lambda message: b"%d" % len(message.payload),
    "m": lambda message: message.sender.name.encode(),
    "n": lambda message: b"%d" % message.number,
    "o": lambda message: b"" if message.seq is None else b"%d" % message.seq,
    "v": lambda message: message.view.encode(),
    "T": lambda _: b"%d" % (time.time_ns() // 1_000_000),
    "%": lambda _: b"%",
}
"""What `%s` and the others stand for in a format."""
ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_parts = re.compile(r"%(.?)|\\(?:x([0-9a-fA-F]{2})|(.?))|([^%\\]+)", re.DOTALL).finditer


class Formatted:
    """Messages alone, each as `--format` says; no line is ended but by the format."""

    def __init__(self, form: str) -> None:
        self._pieces: list[bytes | Callable[[Message], bytes]] = []
        for found in _parts(form):
            field, code, escape, text = found.groups()
            if text is not None:
                self._pieces.append(text.encode())
            elif code is not None:
                self._pieces.append(bytes.fromhex(code))
            elif escape is not None and escape in ESCAPES:
                self._pieces.append(ESCAPES[escape])
            elif field is not None and field in FIELDS:
                self._pieces.append(FIELDS[field])
            else:
                known = " ".join((*(f"%{each}" for each in FIELDS), r"\n \r \t \0 \\ \xHH"))
                raise Misuse(f"--format: {found[0]!r} stands for nothing; there are {known}")

    def item(self, item: Item) -> bytes:
        if not isinstance(item, Message):
            return b""
        return b"".join(piece(item) if callable(piece) else piece for piece in self._pieces)

    def stopped(self, reason: str) -> bytes:
        return b""


class Text:
    """`a: hello`, and a line that begins with `--` for all that is not a message."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._colours = terminal and "NO_COLOR" not in os.environ

    def item(self, item: Item) -> bytes:
        if isinstance(item, Message):
            text = item.payload.decode("utf-8", "replace") if self._terminal else ""
            shown = text.translate(PICTURES).encode() if self._terminal else item.payload
            return self._name(item.sender.name).encode() + b": " + shown + b"\n"
        if isinstance(item, View):
            return self._notice(_view(item))
        if isinstance(item, Shed):
            return self._notice(f"{item.count} messages dropped: the reader is too slow")
        if isinstance(item, Rejoined):
            missed = "" if item.missed is None else f", {len(item.missed)} messages missed"
            lost = f", {len(item.lost)} lines lost" if item.lost else ""
            return self._notice(f"stopped: {item.reason}; back as {item.me}{missed}{lost}")
        if isinstance(item, Answer):
            answer = "granted" if item.cause is None else f"denied ({item.cause.value})"
            return self._notice(": ".join(filter(None, (item.what, answer, item.detail))))
        if isinstance(item, Blocked):
            return self._notice(f"blocked: {item.reason}")
        if isinstance(item, Unblocked):
            return self._notice("makes progress again")
        if isinstance(item, Unstable):
            numbers = " ".join(str(each.number) for each in item.messages)
            return self._notice(f"not resilient ({item.cause.value}): {numbers}")
        return self._notice("stable: " + " ".join(str(each.number) for each in item.messages))

    def stopped(self, reason: str) -> bytes:
        return self._notice(f"stopped: {reason}")

    def _name(self, name: str) -> str:
        colour = COLOURS[zlib.crc32(name.encode()) % len(COLOURS)]
        return f"\x1b[1;{colour}m{name}\x1b[0m" if self._colours else name

    def _notice(self, text: str) -> bytes:
        line = f"-- {shortened(text)}".translate(PICTURES)
        return (f"\x1b[2m{line}\x1b[0m\n" if self._colours else f"{line}\n").encode()


def _view(view: View) -> str:
    changes = [f"+{member.name}" for member in view.joined] + [
        f"-{member.name}" for member in view.left
    ]
    names = " ".join(member.name for member in view.members)
    return f"{names}" + (f"  ({' '.join(changes)})" if changes else "")
