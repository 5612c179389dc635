"""How a small history is told, so that people can read it.

    a: view 1 a b | send | a:1 | b:1
    b: view 1 a b | a:1 | send | b:1

A line is (more of) one life, in its order; what happens is set apart by bars:

    view ID MEMBER… [cut MEMBER:N…] [at SEQ] [stayed MEMBER…] [founded | parted]  it installs a view
        [of ID]                         of the group that was founded with that view
        [also WHAT[:N]:MEMBER…]         with these changes: `lock_granted:7:a failed:b primary:3:`
    transitional ID MEMBER…             it installs a transitional view
    holds MEMBER:N…                     what it has received when the view ends
    stable MEMBER:N [MEMBER…]           that message is stable, and these hold it
    fault WORD… [of NODE… until US]     what the world did to it, or to these
    wait US                             so many microseconds pass
    send [SERVICE] [N] [probe]          it multicasts its next message (or its N-th)
    MEMBER:N[@SEQ][!] [SERVICE]         it delivers that message, at that place; `!` changed
    join [N]                            views have N members at least
    crash [now]                         later, or in the step of what was before
    left [view ID] | stop REASON… | restart | stuck      a stop is an exclusion

`a` is the life `a#1`; the next one is written `a#2`. A message is delivered with the service that
it was sent with, and with the story's when nobody sent it.
"""

from __future__ import annotations

import os

from unisono.trace.files import TraceFile
from unisono.trace.history import History, life_of
from unisono.trace.record import LEFT, PROBE, Row, digest_of


def key(name: str) -> str:
    return name if "#" in name else f"{name}#1"


class Teller:
    """Turns the words of one story into rows."""

    def __init__(self, text: str, service: str) -> None:
        self.rows: list[Row] = []
        self.service = service
        self.views: dict[str, str] = {}
        self.steps: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.waited: dict[str, int] = {}
        deeds = []
        for line in filter(None, map(str.strip, text.splitlines())):
            who, _, what = line.partition(": ")
            deeds += [(key(who), deed.split()) for deed in what.split("|")]
        self.services = self._services(deeds)
        for life, words in deeds:
            self._tell(life, words)

    def _services(self, deeds: list[tuple[str, list[str]]]) -> dict[str, str]:
        services: dict[str, str] = {}
        sent: dict[str, int] = {}
        for life, words in deeds:
            if words[0] == "send":
                service, number, _ = self._send_words(words[1:], sent.get(life, 0) + 1)
                sent[life] = number
                services[f"{life}:{number}"] = service
        return services

    def _send_words(self, words: list[str], number: int) -> tuple[str, int, str | None]:
        service, detail = self.service, None
        for word in words:
            if word == PROBE:
                detail = PROBE
            elif word.isdigit():
                number = int(word)
            else:
                service = word
        return service, number, detail

    def _row(self, life: str, kind: str, **fields: object) -> None:
        node, _, incarnation = life.rpartition("#")
        step = self.steps.get(life, 0)
        self.steps[life] = step + 1
        t_us = 1000 * step + self.waited.get(life, 0)
        row = Row("story", "g", node, int(incarnation), step, t_us, kind)
        fields.setdefault("view", self.views.get(life, ""))
        self.rows.append(row._replace(**fields))  # type: ignore[arg-type]

    def _message(self, life: str, kind: str, message: str, **fields: object) -> None:
        sender, _, number = message.rpartition(":")
        name, _, incarnation = sender.rpartition("#")
        payload = message.encode() + (b"!" if fields.pop("altered", False) else b"")
        fields.setdefault("service", self.services.get(message, self.service))
        self._row(
            life,
            kind,
            sender=name,
            sender_incarnation=int(incarnation),
            number=int(number),
            size=len(payload),
            digest=digest_of(payload),
            **fields,
        )

    def _tell(self, life: str, words: list[str]) -> None:
        verb, *rest = words
        if verb == "send":
            service, number, detail = self._send_words(rest, self.sent.get(life, 0) + 1)
            self.sent[life] = number
            self._message(life, "send", f"{life}:{number}", service=service, detail=detail)
        elif verb in ("view", "transitional"):
            self._view(life, verb, rest)
        elif verb == "holds":
            for entry in rest:
                sender, _, number = entry.rpartition(":")
                name, _, incarnation = key(sender).rpartition("#")
                known = {"sender_incarnation": int(incarnation), "number": int(number)}
                self._row(life, "receipt", sender=name, **known)
        elif verb == "stable":
            sender, _, number = rest[0].rpartition(":")
            holders = tuple(map(key, rest[1:])) or None
            self._message(life, "stable", f"{key(sender)}:{number}", members=holders)
        elif verb == "fault":
            what, _, more = " ".join(rest).partition(" of ")
            who, _, until = more.partition(" until ")
            named = tuple(who.split()) or None
            self._row(life, verb, detail=what, members=named, number=int(until) if until else None)
        elif verb == "wait":
            self.waited[life] = self.waited.get(life, 0) + int(rest[0])
        elif verb == "left":
            self._row(life, "leave", detail=LEFT, changes=(" ".join(rest),) if rest else None)
        elif verb == "stop":
            reason, _, by = " ".join(rest).partition("by view ")
            view, _, founding = by.partition(" founded ")
            told = {"view": view, "founding": founding}
            changes = ("excluded", *(f"{kind} {value}" for kind, value in told.items() if value))
            self._row(life, "leave", detail=reason or "expelled", changes=changes)
        elif verb == "join":
            self._row(life, verb, number=int(rest[0]) if rest else None)
        elif verb == "crash" and rest:
            self._row(life, verb, t_us=self.rows[-1].t_us)
        elif verb in ("crash", "restart", "stuck"):
            self._row(life, verb)
        else:
            altered = verb.endswith("!")
            message, _, seq = verb.rstrip("!").partition("@")
            sender, _, number = message.rpartition(":")
            place = int(seq) if seq else None
            more = {"service": rest[0]} if rest else {}
            about = f"{key(sender)}:{number}"
            self._message(life, "deliver", about, seq=place, altered=altered, **more)

    def _view(self, life: str, kind: str, words: list[str]) -> None:
        name, *rest = words
        parts: dict[str, list[str]] = {"members": []}
        part = parts["members"]
        for word in rest:
            if word in (
                *("cut", "at", "stayed", "joined", "left", "founded"),
                "parted",
                "also",
                "of",
            ):
                part = parts.setdefault(word, [])
            else:
                part.append(word)
        pairs = (entry.rpartition(":") for entry in parts.get("cut", ()))
        detail = " ".join(f"{key(sender)}:{number}" for sender, _, number in pairs)
        self.views[life] = name
        self._row(
            life,
            kind,
            members=tuple(map(key, parts["members"])),
            detail=detail or None,
            seq=int(parts["at"][0]) if "at" in parts else None,
            **{
                each: tuple(map(key, parts[each])) if each in parts else None
                for each in ("stayed", "joined", "left")
            },
            changes=(
                *(word for word in ("founded", "parted") if word in parts),
                *(f"of {founding}" for founding in parts.get("of", ())),
                *(_change(each) for each in parts.get("also", ())),
            )
            or None,
        )


def _change(text: str) -> str:
    *words, member = text.split(":")
    return " ".join((*words, key(member)) if member else words)


def story(text: str, service: str = "causal", torn: str = "", run: str = "story") -> History:
    """The history that the text tells; the lives in `torn` have a file without an end."""
    rows = Teller(text, service).rows
    return History(run, "story", "g", tuple(rows), frozenset(map(key, torn.split())))


def write_trace(history: History, directory: str | os.PathLike[str]) -> None:
    """The history as the trace files that would have told it."""
    files: dict[str, TraceFile] = {}
    for row in history.rows:
        if life_of(row) not in files:
            files[life_of(row)] = TraceFile(directory, history.run, row.node, row.incarnation)
        files[life_of(row)].write(row)
    for life, file in files.items():
        if life in history.torn:
            file.flush()
            file.abandon()
        else:
            file.close()
