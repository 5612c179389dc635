"""Describes the path to a state, action by action, with the members by name."""

from __future__ import annotations

from collections.abc import Iterable

from tests.mtp.explorer_laws import spell
from tests.mtp.explorer_moves import MASTER, Action
from tests.mtp.explorer_parts import CUT, GRANTED, OUT, UNGRANTED, UP, Broken, Desk, Member, bits
from tests.mtp.explorer_rows import HEAD, State
from tests.mtp.explorer_web import Web
from unisono.protocols.mtp.agreement import MessageStatus


class Story:
    """Walks a path again. States keep their members sorted; here each keeps its name."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.lines: list[str] = []
        state = web.start()
        self._names = [chr(ord("a") + i) for i in range(len(state) - HEAD)]
        self._state = state

    def tell(self, actions: Iterable[Action], broken: Broken | None = None) -> str:
        """The path as text. The last action may be the one that breaks a law."""
        for action in actions:
            before = self._state
            try:
                after = self.web.apply(before, action)
            except Broken:
                self._line(self._attempt(before, action))
                break
            self._line(self._sentence(before, after, action))
            self._settle(after)
        if broken:
            self.lines.append(f"  broken  {broken}")
        self.lines += self._standing()
        return "\n".join(self.lines)

    def _line(self, text: str) -> None:
        self.lines.append(f"  {len(self.lines) + 1:>4}  {text}")

    def _settle(self, after: State) -> None:
        if not self.web.case.reduce:
            self._state = after
            return
        pairs = sorted(zip(after[HEAD:], self._names, strict=True))
        self._state = (*after[:HEAD], *(row for row, _ in pairs))
        self._names = [name for _, name in pairs]

    # One action.

    def _attempt(self, before: State, action: Action) -> str:
        kind, i, at = action
        who = "the master" if i == MASTER else self._names[i]
        what = f" {self.web.parts.packets[at].number}" if kind in ("receive", "repair") else ""
        return f"{who}: {kind.replace('_', ' ')}{what}"

    def _sentence(self, before: State, after: State, action: Action) -> str:
        kind, i, at = action
        desks, packets = self.web.desks, self.web.parts.packets
        decided = self._decided(desks[before[0]], desks[after[0]])
        if i == MASTER:
            if kind == "empty":
                news = self._header(self.web.news(before[0]))
                return f"the master multicasts an empty packet {news}"
            number = packets[at].number
            if kind == "lose":
                return f"{number} is lost on its way to the master"
            again = " after asking for it again" if kind == "repair" else ""
            return f"the master sees {number}{again}{decided}{self._others(before, after, i)}"
        name, me = self._names[i], self.web.members[before[HEAD + i]]
        then = self.web.members[after[HEAD + i]]
        did = self._did(me, then)
        words = {
            "ask": "{n} asks for a token",
            "again": "{n} asks again",
            "lose_request": "the request of {n} is lost",
            "lose_grant": "the grant to {n} is lost",
            "take": "{n} has its token",
            "grant": "the master grants {token} to {n}",
            "grant_dead": "the master grants {token} to {n}, which is dead",
            "send": "{n} sends {mine}{did}",
            "receive": "{n} receives {packet}{did}",
            "repair": "{n} is sent {packet} again{did}",
            "lose": "{number} is lost on its way to {n}",
            "hear": "{n} hears an empty packet {news}{did}",
            "gossip": "{n} hears a header of {other}{did}",
            "be_told": "{n} asks the master for the status{did}",
            "consume": "the client of {n} goes on{did}",
            "do_without": "{n} goes on without{did}",
            "crash": "{n} crashes{holding}",
            "judge": "the master gives {n} up{decided}",
            "cut": "the master gives {n} up, though it lives{decided}",
            "tell": "{n} is told that it was cut off{again}",
            "rejoin": "{n} has to rejoin{decided}{again}",
        }[kind]
        if then.life == OUT or me.life == then.life == UP:
            again = ", and is out" if then.life == OUT else f", and joins from {then.first} on"
        else:
            again = f", and joins from {then.first} on"
        return words.format(
            n=name,
            did=did,
            decided=decided,
            again=again,
            token=self._header(then.token),
            other=self._names[at] if kind == "gossip" else "",
            mine=packets[me.token].number,
            packet=self._header(at),
            number=packets[at].number,
            news=self._header(self.web.news(before[0])),
            holding=" with its token unused" if me.stage >= UNGRANTED else "",
        ) + self._others(before, after, i)

    def _header(self, at: int) -> str:
        """A packet's number, and its statuses of those before it."""
        packet = self.web.parts.packets[at]
        said = [
            f"{packet.number - k} {MessageStatus(its).name.lower()}"
            for k, its in enumerate(packet.last, 1)
            if packet.number - k > 0
        ]
        return f"{packet.number} ({', '.join(said) or 'nothing before it'})"

    @staticmethod
    def _decided(before: Desk, after: Desk) -> str:
        accepted, rejected = after.accepted & ~before.accepted, after.rejected & ~before.rejected
        said = [f"{n} accepted" for n in bits(accepted)] + [f"{n} rejected" for n in bits(rejected)]
        return f": {', '.join(said)}" if said else ""

    def _did(self, before: Member, after: Member) -> str:
        if before.lives != after.lives or after.life > CUT:
            return ""
        known = before.accepted | before.rejected
        said = [f"learns {n} accepted" for n in bits(after.accepted & ~known)]
        said += [f"learns {n} rejected" for n in bits(after.rejected & ~known)]
        given = dict(after.told)
        for n in range(self._next_out(before), self._next_out(after)):
            said.append(f"delivers {spell([(n, given[n])])}" if n in given else f"skips {n}")
        return f": {', '.join(said)}" if said else ""

    def _next_out(self, me: Member) -> int:
        return int(self.web.parts.consumers.thaw(me.consumer).next_out)

    def _others(self, before: State, after: State, but: int) -> str:
        """What the others learned at once."""
        said = []
        for i, (row, then) in enumerate(zip(before[HEAD:], after[HEAD:], strict=True)):
            did = self._did(self.web.members[row], self.web.members[then])
            if i != but and did:
                said.append(f"; {self._names[i]}{did}")
        return "".join(said)

    # How it stands in the end.

    def _standing(self) -> list[str]:
        desk = self.web.desks[self._state[0]]
        decided = [f"{n} accepted" for n in bits(desk.accepted)]
        decided += [f"{n} rejected" for n in bits(desk.rejected)]
        decided += [f"{n} pending" for n in bits(desk.pending)]
        lines = [f"  master  {', '.join(sorted(decided, key=by_number)) or 'nothing granted'}"]
        for name, row in sorted(zip(self._names, self._state[HEAD:], strict=True)):
            me = self.web.members[row]
            if me.life <= CUT:
                known = [f"{n} accepted" for n in bits(me.accepted)]
                known += [f"{n} rejected" for n in bits(me.rejected)]
                tokens = ", holds a token" if me.stage >= GRANTED else ""
                heard = (
                    f"knows {', '.join(sorted(known, key=by_number))}" if known else "knows nothing"
                )
                lines.append(f"  {name:<6}  delivered {spell(list(me.told))}; {heard}{tokens}")
            else:
                lines.append(f"  {name:<6}  {'out' if me.life == OUT else 'crashed'}")
        return lines


def by_number(text: str) -> int:
    return int(text.split()[0])
