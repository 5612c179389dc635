"""Small histories written by hand, and drawings parsed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from unisono.draw.layout import width_of
from unisono.trace.history import History, histories_of
from unisono.trace.record import LEFT, Row, digest_of

SVG = "{http://www.w3.org/2000/svg}"


class Tale:
    """Rows of several lives, each with its own count of steps. Life `b` is `b#1`."""

    def __init__(self, names: str = "abc", joined_us: int = 0) -> None:
        self.rows: list[Row] = []
        self._steps: dict[str, int] = {}
        for name in names:
            self.join(name, joined_us)

    def row(self, who: str, t_us: int, kind: str, **fields: object) -> Tale:
        name, _, incarnation = who.partition("#")
        step = self._steps[who] = self._steps.get(who, -1) + 1
        values: dict[str, object] = {
            "protocol": "p",
            "group": "g",
            "node": name,
            "incarnation": int(incarnation or 1),
            "step": step,
            "t_us": t_us,
            "kind": kind,
        }
        self.rows.append(Row(**(values | fields)))  # type: ignore[arg-type]
        return self

    def join(self, who: str, t_us: int) -> Tale:
        return self.row(who, t_us, "join", peer=address(who))

    def out(self, who: str, t_us: int, label: str, to: str = "*", more: str = "") -> Tale:
        peer = to if to == "*" else address(to)
        return self.row(who, t_us, "packet_out", **packet(label + more), peer=peer, detail=label)

    def heard(self, who: str, t_us: int, label: str, by: str, more: str = "") -> Tale:
        fields = packet(label + more)
        return self.row(who, t_us, "packet_in", **fields, peer=address(by), detail=label)

    def said(self, who: str, t_us: int, number: int) -> Tale:
        return self._message(who, t_us, "send", who, number)

    def delivered(self, who: str, t_us: int, by: str, number: int, seq: int | None = None) -> Tale:
        return self._message(who, t_us, "deliver", by, number, seq)

    def _message(
        self, who: str, t_us: int, kind: str, by: str, number: int, seq: int | None = None
    ) -> Tale:
        name, _, incarnation = by.partition("#")
        return self.row(
            who,
            t_us,
            kind,
            sender=name,
            sender_incarnation=int(incarnation or 1),
            number=number,
            seq=seq,
            service="causal",
            size=3,
            digest=7,
        )

    def view(self, who: str, t_us: int, members: str, view: str = "v1") -> Tale:
        keys = tuple(each if "#" in each else f"{each}#1" for each in members.split())
        return self.row(who, t_us, "view", view=view, members=keys)

    def left(self, who: str, t_us: int, reason: str = LEFT) -> Tale:
        return self.row(who, t_us, "leave", detail=reason)

    @property
    def history(self) -> History:
        (found,) = histories_of("r", self.rows)
        return found


def address(who: str) -> str:
    return f"10.0.0.{ord(who[0]) - 96}:7000"


def packet(words: str) -> dict[str, object]:
    return {"size": 100, "digest": digest_of(words.encode())}


def normal() -> Tale:
    """a multicasts one message; b and c receive and deliver it."""
    tale = Tale().view("a", 10, "a b c").view("b", 10, "a b c").view("c", 10, "a b c")
    tale.said("a", 1000, 1).delivered("a", 1000, "a", 1).out("a", 1000, "data 1.0")
    tale.heard("b", 1400, "data 1.0", "a").delivered("b", 1400, "a", 1)
    return tale.heard("c", 1600, "data 1.0", "a").delivered("c", 1600, "a", 1)


def repaired() -> Tale:
    """c misses the second packet of two, asks for it, and gets it."""
    tale = Tale().out("a", 1000, "data 1.0").out("a", 1000, "data 1.1")
    tale.heard("b", 1400, "data 1.0", "a").heard("b", 1400, "data 1.1", "a")
    tale.heard("c", 1500, "data 1.0", "a")
    tale.out("c", 9000, "nak 1.1-1.1", "a").heard("a", 9400, "nak 1.1-1.1", "c")
    tale.out("a", 9400, "data 1.1", "c").heard("c", 9900, "data 1.1", "a")
    return tale.delivered("c", 9900, "a", 1)


# -- reading a drawing -----------------------------------------------------------------------------


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def groups(svg: str, *kinds: str) -> list[ET.Element]:
    """Groups of all these classes, but those of the legend."""
    root = parsed(svg)
    for parent in root.iter():
        for child in [*parent]:
            if "legend" in child.get("class", "").split():
                parent.remove(child)
    return [
        each for each in root.iter(f"{SVG}g") if set(kinds) <= set(each.get("class", "").split())
    ]


def flights(svg: str, *kinds: str) -> list[ET.Element]:
    """The packets of these classes, without their labels."""
    found = groups(svg, "packet", *kinds)
    return [each for each in found if "label" not in each.get("class", "").split()]


def shapes(group: ET.Element, kind: str) -> list[ET.Element]:
    return [each for each in group.iter() if kind in each.get("class", "").split()]


def texts(where: ET.Element | Iterable[ET.Element]) -> list[str]:
    elements = [where] if isinstance(where, ET.Element) else where
    return [text.text or "" for each in elements for text in each.iter(f"{SVG}text")]


def told(group: ET.Element) -> str:
    return group.findtext(f"{SVG}title") or ""


def overlaps(svg: str) -> list[tuple[str, str]]:
    """Texts of the body that stand on one another."""
    body = next(each for each in parsed(svg) if each.get("transform", "").startswith("translate"))
    boxes = []
    for text in body.iter(f"{SVG}text"):
        wide = width_of(text.text or "") * 0.85  # it is estimated with room to spare
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[
            text.get("text-anchor", "start")
        ]
        boxes.append((y - 9, y + 1, left, left + wide, text.text or ""))
    boxes.sort()
    found = []
    for at, (_, bottom, left, right, words) in enumerate(boxes):
        for top, _, other_left, other_right, others in boxes[at + 1 :]:
            if top >= bottom:
                break
            if left < other_right and other_left < right:
                found.append((words, others))
    return found
