"""Reads packet labels.

A label is a kind, and often a sequence number: `data 5.0`, `nak 5.1-5.3`, `state 0-99 of 400`. The
first word decides the category: a word that protocols share, or one that the packet's protocol
lists in its `ProtocolSpec`. `@key` names a stream by key; the first member to send data of it is
its owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

DATA: Final = "data"
REPAIR: Final = "repair"
NAK: Final = "nak"
REFUSAL: Final = "refusal"
TOKEN: Final = "token"
JOIN: Final = "join"
STATE: Final = "state"
QUIET: Final = "quiet"
OTHER: Final = "other"

SHARED_WORDS: Final = {
    DATA: "data message msg fragment",
    REPAIR: "repair repaired retransmit retransmission retransmitted resend resent again",
    NAK: "nak nack naks missing",
    REFUSAL: "deny denied denial refuse refused refusal reject rejected expel expelled",
    TOKEN: "token request grant granted ack acks acknowledge release pass order",
    JOIN: "join seek find welcome confirm confirmed admit leave bye quit reform suggest agree"
    " commit install view merge",
    STATE: "state snapshot transfer",
    QUIET: "beat heartbeat empty announce alive idle report status probe ping pong hello",
}
"""By category, first words of labels that any protocol may use."""


@cache
def _vocabulary(protocol: str) -> Mapping[str, str]:
    from unisono.protocols import specs

    found = specs().get(protocol)
    return {
        word: category
        for words in (SHARED_WORDS, found.packet_categories if found else {})
        for category, listed in words.items()
        for word in listed.split()
    }


IDLE: Final = " null"

CATEGORIES: Final = {
    DATA: "data",
    REPAIR: "data sent again",
    NAK: "retransmission request",
    REFUSAL: "refusal",
    TOKEN: "token or acknowledgment",
    JOIN: "membership",
    STATE: "state transfer",
    QUIET: "heartbeat and the like",
    OTHER: "other packet",
}
"""The legend's text of each category, in order."""


class PacketLabel(NamedTuple):
    """A label, parsed. Without a number it is all kind."""

    kind: str
    stream: str = ""
    first: int | None = None
    last: int | None = None
    rest: str = ""
    ends: bool = False
    """Its stream ends here."""


_LABEL: Final = re.compile(
    r"(?P<kind>\S+) (?:(?P<stream>\S+?)\.)?(?P<first>\d{1,18})"
    r"(?:[-–](?:(?P=stream)\.)?(?P<last>\d{1,18}))?(?P<end> end\b)?(?P<rest>(?: .*)?)",
    re.DOTALL,
)
_CONTENT: Final = re.compile(r" in \S+ after [\d ]+( with [\d-]+)*$")
_WORD: Final = re.compile(r"[a-z]+")
_KEY: Final = re.compile(r"@[0-9a-f]+")


def parsed(label: str) -> PacketLabel:
    match = _LABEL.fullmatch(label)
    if match is None:
        return PacketLabel(label)
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if last < first:
        return PacketLabel(label)
    return PacketLabel(
        match["kind"], match["stream"] or "", first, last, match["rest"], bool(match["end"])
    )


def category(label: str, protocol: str = "") -> str:
    """By the first word alone: `refuse grant` is a refusal. A token that says with its last word
    that it carries nothing is quiet: an idle round."""
    known = _vocabulary(protocol)
    first = label.split(" ", 1)[0].lower()
    for word in _WORD.findall(first):
        if word in known:
            is_idle = known[word] == TOKEN and label.endswith(IDLE)
            return QUIET if is_idle else known[word]
    return OTHER


def owners(sent: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Owners by `@key`. `sent` are senders and labels by time."""
    found: dict[str, str] = {}
    for life, label in sent:
        if "@" in label and category(label) == DATA:
            for key in _KEY.findall(label):
                found.setdefault(key, life)
    return found


def named(label: str, names: Mapping[str, str]) -> str:
    """The label with known `@key`s replaced by their owners' names."""
    return _KEY.sub(lambda match: names.get(match[0], match[0]), label) if "@" in label else label


def brief(label: str) -> str:
    """Without what a packet acknowledges, which a causal graph shows."""
    return _CONTENT.sub("", label) if " after " in label else label


def together(labels: Iterable[str]) -> str:
    """Several labels as one: `data 5.0`, `data 5.1` and `data 5.3 end` are `data 5.0–1, 3 end`."""
    parts: dict[tuple[str, str, str], list[PacketLabel]] = {}
    for label in labels:
        each = parsed(label)
        parts.setdefault((each.kind, each.stream, each.rest), []).append(each)
    return ", ".join(_one(kind, stream, rest, part) for (kind, stream, rest), part in parts.items())


def _one(kind: str, stream: str, rest: str, part: list[PacketLabel]) -> str:
    numbers = [(e.first, e.last) for e in part if e.first is not None and e.last is not None]
    if numbers:
        end = " end" if any(each.ends for each in part) else ""
        return f"{kind} {stream + '.' if stream else ''}{runs(numbers)}{end}{rest}"
    return kind if len(part) == 1 else f"{kind} ×{len(part)}"


def runs(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges in short: `1–3, 5`."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return ", ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in found)


def counted(count: int, noun: str) -> str:
    """`1 packet`, `1,200 packets`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
