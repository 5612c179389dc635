"""The output of `unisono cat`: text or JSON."""

from __future__ import annotations

import json
import os
import sys
import zlib
from typing import Any, Protocol

from unisono.core import Answer
from unisono.model import Message, View, shortened
from unisono.net.stream import Blocked, Item, Rejoined, Shed, Unblocked, Unstable

COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
# Control characters could move the cursor: a terminal gets their pictures.
PICTURES = {code: 0x2400 + code for code in range(32) if code != 9} | {127: 0x2421}


class Printer(Protocol):
    """Each item as one line."""

    def item(self, item: Item) -> bytes: ...

    def stopped(self, reason: str) -> bytes: ...


def printer(as_json: bool) -> Printer:
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
            "text": item.payload.decode("utf-8", "replace"),
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
