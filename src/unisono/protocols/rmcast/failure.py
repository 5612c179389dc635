"""Algorithm 2 and the suspicions of Algorithm 3: which members are silent, removed or must stop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from unisono.core import Cause, Effect, Unreachable
from unisono.parts.core_clock import CoreClock
from unisono.parts.detector import Detector
from unisono.protocols.rmcast.ordering import Ordering
from unisono.protocols.rmcast.packets import (
    CLOSED,
    FAILED,
    LEFT,
    MEMBER,
    AckEntry,
    Header,
)
from unisono.protocols.rmcast.parameters import Parameters
from unisono.protocols.rmcast.roster import UNKNOWN, PeerState, Roster

HOLE_TIMES: Final = 4
"""Who claims to have chunks that do not come for this many times `detect_us` is not believed."""
QUIET_BEATS: Final = 3
"""A peer that sent no packet for this many heartbeats is probed."""


@dataclass(eq=False)
class Failures:
    """Suspects members for their silence and by the reports of others, this member included."""

    _parameters: Parameters
    _roster: Roster
    _ordering: Ordering
    _clock: CoreClock

    def __post_init__(self) -> None:
        self._silence: Detector[int] = Detector(
            self._parameters.detect_us, self._parameters.beat_us
        )
        self._looked_us = 0
        self._holes: dict[int, tuple[int, int]] = {}
        """By stream of which something is requested in vain: up to where it is here, and since when
        in listening time."""
        self._gone: set[int] = set()
        """Members whose last header reports that they have left."""
        self.verdict: str | None = None
        """Why this member must stop, if it must."""
        self.cause = Cause.EXCLUDED
        self.expelled: dict[int, int] = {}
        """Removed members that still send, and when they were last informed."""

    def is_doomed(self, event: object) -> bool:
        """This member must stop."""
        return self.verdict is not None

    def hear(self, peer: PeerState, header: Header) -> None:
        """[RMC A3.8-22] Any packet resets its sender's time-out and brings its lists."""
        now_us = self._clock.now_us
        if peer.heard_us != now_us:
            peer.heard_us = now_us
            self._silence.hear(peer.key, now_us)
        entries, roster = header.entries, self._roster
        if not entries:
            return
        if peer.plain and roster.is_at_rest() and entries == peer.row:
            return
        roster.stir()
        peer.report(entries)
        if entries.get(peer.key, UNKNOWN).status is LEFT:
            self._gone.add(peer.key)  # Its last packet.
        peer.plain = True
        for key, entry in entries.items():
            other = roster.peers.get(key)
            if other is None or entry.status is not MEMBER:
                peer.plain = False
            if other is None:
                self._recall(peer, key, entry)
            elif entry.status is FAILED or entry.status is CLOSED:
                if key == roster.key:
                    self.stop(f"{peer.member} holds this member for failed")
                    return
                if other.status is MEMBER:
                    self.suspect(other)
                if entry.status is CLOSED:
                    self._heed_closing(peer, other, entry.delivered)

    def _recall(self, peer: PeerState, key: int, entry: AckEntry) -> None:
        """A member still lists a stream that ended here."""
        final = self._roster.tombs.get(key)
        if final is None:
            return
        if entry.delivered > final:
            self.suspect(peer)  # It has delivered more than we will: one of us has to stop.
        elif entry.status is FAILED or entry.status is LEFT:
            self._roster.recall(key)

    def _heed_closing(self, peer: PeerState, failed: PeerState, final: int) -> None:
        """[RMC A3.20] To have delivered more than the others will is to have to stop."""
        # Deviates [RMC A3.20]: we stop only when another member has closed the failed one's
        # stream below what we delivered; while it is open, the others fetch from us what they lack.
        failed.closed_by.add(peer.key)
        if failed.delivered > final:
            self.stop(
                f"delivered more from {failed.member} ({failed.delivered}) "
                f"than {peer.member} will ({final})"
            )

    def note_expelled(self, key: int) -> None:
        """The process was informed that it was removed."""
        self.expelled[key] = self._clock.now_us

    def look(self) -> None:
        """[RMC A2.4] Remove the members that have been silent for too long."""
        # Deviates [RMC A2.4]: a member that was itself suspended, or that receives nothing at all,
        # does not suspect one after the other; once all are silent it continues alone.
        self._looked_us = now_us = self._clock.now_us
        others = {peer.key: peer for peer in self._roster.others()}
        self._silence.look(now_us)
        self._silence.keep(others, now_us)
        self._gone &= others.keys()
        silent = {key for key in others if self._silence.is_silent(key)}
        if self._is_deaf(others, silent):
            silent.clear()
        for key in sorted(silent | self._gone | self._liars()):
            self.suspect(others[key])
        for key, told_us in list(self.expelled.items()):
            if now_us - told_us > self._parameters.detect_us:
                del self.expelled[key]

    def _liars(self) -> set[int]:
        """Members that state to have more of a stream than ever comes, however often it is
        requested."""
        now_us, before, found = self._silence.listened_us, self._holes, set[int]()
        self._holes = {}
        for key, stream in self._roster.peers.items():
            here = stream.window.received
            if not stream.rounds or key == self._roster.key:
                continue
            at, since_us = before.get(key, (-1, now_us))
            self._holes[key] = here, since_us if at == here else now_us
            if at == here and now_us - since_us >= HOLE_TIMES * self._parameters.detect_us:
                claims = [(p.key, p.row.get(key, UNKNOWN)) for p in self._roster.others()]
                found |= {liar for liar, its in claims if its.received > here}
        return found

    def _is_deaf(self, others: Collection[int], silent: set[int]) -> bool:
        """Nothing was received for some heartbeats, and not all are silent for too long yet."""
        if len(others) < 2 or len(silent) == len(others):
            return False
        return min(map(self._silence.silence_us, others)) > QUIET_BEATS * self._parameters.beat_us

    def quiet(self) -> list[PeerState]:
        """The members that sent nothing for some heartbeats."""
        since_us = self._clock.now_us - QUIET_BEATS * self._parameters.beat_us
        return [peer for peer in self._roster.others() if peer.heard_us < since_us]

    def oldest_present(self) -> PeerState:
        """The oldest member that sent lately: the sponsor, unless it is quiet. If this member was
        suspended, that is not known yet."""
        suspended = self._clock.now_us - self._looked_us > 2 * self._parameters.beat_us
        quiet = [] if suspended else self.quiet()
        return next(peer for peer in self._roster.group() if peer not in quiet)

    def doubt(self, event: Unreachable, out: list[Effect]) -> None:
        """The network reports that no process listens there."""
        gone = [
            self._silence.refuse(peer.key, self._clock.now_us)
            for peer in self._roster.others()
            if peer.member.address == event.address
        ]
        if any(gone):
            self.look()

    def start(self) -> None:
        """From here on silence counts."""
        self._looked_us = self._clock.now_us
        self._silence.keep([peer.key for peer in self._roster.others()], self._clock.now_us)

    def suspect(self, peer: PeerState) -> None:
        """Remove from G. Its messages stay, for the members that need them."""
        # Deviates [RMC A2.5]: it leaves G at once, but the application's view only when all agree
        # on its last message; so no message comes from a process that is not in the view.
        if peer.status is MEMBER:
            if peer.key == self._roster.key:
                self.stop("this member was removed")
                return
            self._roster.mark(peer, FAILED)

    def close(self) -> bool:
        """Settle the last message of failed members: when every member of G has given up on it and
        all have delivered the same, its stream ends there. True when one was settled."""
        closed = False
        if len(self._roster.group()) == len(self._roster.peers):
            return closed
        for peer in list(self._roster.peers.values()):
            if peer.status is FAILED and self._agreed(peer):
                self._roster.mark(peer, CLOSED)
                peer.window.cut(peer.delivered)
                closed = True
            elif peer.status in (CLOSED, LEFT) and self._over(peer):
                if peer not in self._roster.leavers:
                    self._roster.bury(peer)
        return closed

    def drop_silent_leavers(self) -> None:
        since_us = self._clock.now_us - 3 * self._parameters.beat_us
        self._roster.drop_leavers(since_us)

    def _agreed(self, failed: PeerState) -> bool:
        if failed.closed_by and failed.delivered >= self._ordering.needed(failed):
            return True
        for other in self._roster.reporters():
            entry = other.trusted.get(failed.key)
            if entry is None or entry.status is MEMBER:
                return False
            if entry.delivered != failed.delivered:
                return False
            latest = other.row.get(failed.key)
            if latest is not None and latest.delivered != failed.delivered:
                return False
        return True

    def _over(self, ended: PeerState) -> bool:
        """No member will list it again: all others have ended or forgotten it."""
        for other in self._roster.others():
            if other.key in ended.closed_by:
                continue
            entry = other.trusted.get(ended.key)
            if entry is None:
                # An older member may not have delivered its addition yet, and will need it all.
                unheard = other.rank <= ended.rank and ended.key not in other.listed
                if not other.trusted or unheard:
                    return False
            elif ended.status is LEFT:
                if entry.status is not LEFT or entry.delivered < ended.delivered:
                    return False
            elif entry.status is not CLOSED:
                return False
        return True

    def is_recent(self, stamp: int) -> bool:
        """Whether we gave this stamp lately: its echo proves that the other end is alive."""
        age_us = self._clock.now_us - stamp
        return bool(stamp) and 0 <= age_us <= self._parameters.detect_us // 2

    def stop(self, reason: str, cause: Cause = Cause.EXCLUDED) -> None:
        if self.verdict is None:
            self.verdict, self.cause = reason, cause
