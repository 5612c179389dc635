"""A failure detector: which peers have been silent for too long, measured against usual gaps and
without the time in which this process itself did not run.

*Listening time* passes only while the owner runs. The owner looks at least every `look_us` while it
watches any peer; of a longer absence (the process was stopped, or got no processor) only `look_us`
is counted, so no peer is blamed for a silence in which we could not receive. After such an
absence each one watched has a fresh period, once, until it sends again.

A peer is silent when nothing was received from it for `limit_us` of listening time: at least
the goal `detect_us`, longer where longer gaps have been seen lately (of this peer, or in our own
running, for slow machines are often slow together), and at most `MOST_TIMES` the goal.

The owner may also ask the network about a peer that it doubts (`core.Probe`). When the network has
reported twice that nobody listens at the peer's address, `1/APART_SHARE` of the goal apart, and
nothing was received from it since the first time, its process is dead: no more silence is needed.
One answer is not enough, since it may be late or false, and a peer that is alive sends meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MOST_TIMES: Final = 4
"""The limit is at most this many times the goal."""
GAP_TIMES: Final = 3
"""A silence may last this many times the longest recent gap."""
FADE: Final = 64
"""A gap is forgotten after this many times its own length."""
FRESH_SHARE: Final = 2
"""After an absence of ours, each watched peer gets this share of its limit again."""
ABSENT_TIMES: Final = 2
"""A look that is this many times too late was an absence."""
APART_SHARE: Final = 64
"""Two refusals count as two if at least this share of the goal lies between them."""


class Longest:
    """The longest recent gap: it fades with time, until a longer one occurs."""

    __slots__ = ("_at_us", "_us")

    def __init__(self) -> None:
        self._us = self._at_us = 0

    def note(self, gap_us: int, at_us: int) -> None:
        if gap_us >= self._us - (at_us - self._at_us) // FADE:
            self._us, self._at_us = gap_us, at_us

    def us(self, at_us: int) -> int:
        return max(0, self._us - (at_us - self._at_us) // FADE)


@dataclass(slots=True)
class WatchedPeer:
    """One that is, or was, watched. Times are of listening."""

    heard_us: int
    gaps: Longest
    watched: bool = True
    fresh: bool = True
    """It may still be given a fresh period."""
    refused_us: int | None = None
    """When the network first reported that nobody listens at its address."""
    gone: bool = False
    """The network reported it again, and nothing was received meanwhile."""

    def lives(self) -> None:
        """Withdraw what the network reported."""
        self.refused_us, self.gone = None, False


class Detector(Generic[Key]):
    """Watches peers for one owner, which reports its looks and the packets received."""

    def __init__(self, detect_us: int, look_us: int, peers_max: int = 1024) -> None:
        self.detect_us = detect_us
        self._look_us = max(1, look_us)
        self._peers_max = peers_max
        self._peers: dict[Key, WatchedPeer] = {}
        self._watched = 0
        self._now_us = 0
        self.listened_us = 0
        """Listening time, which passes while any peer is watched."""
        self._late = Longest()

    def look(self, now_us: int) -> int:
        """The owner runs. Returns how long it was absent, 0 if it was not."""
        passed_us = now_us - self._now_us
        if passed_us <= 0:
            return 0
        self._now_us = now_us
        if not self._watched:
            return 0
        late_us = passed_us - self._look_us
        if late_us <= 0:
            self.listened_us += passed_us
            return 0
        self.listened_us += self._look_us
        if passed_us < MOST_TIMES * self.detect_us:
            # A longer absence is a stop, no measure of how slow this machine is.
            self._late.note(late_us, self.listened_us)
        if passed_us <= ABSENT_TIMES * self._look_us:
            return 0
        for key, peer in self._peers.items():
            peer.lives()
            if peer.watched and peer.fresh:
                limit_us = self.limit_us(key)
                latest_us = self.listened_us - limit_us + limit_us // FRESH_SHARE
                peer.fresh = peer.heard_us >= latest_us
                peer.heard_us = max(peer.heard_us, latest_us)
        return late_us

    # -- the peers watched -----------------------------------------------------------------------

    def watch(self, key: Key, now_us: int) -> None:
        """From now on its silence counts; if it is watched already, nothing changes."""
        self.look(now_us)
        peer = self._peers.get(key)
        if peer is None:
            if len(self._peers) >= self._peers_max:
                self._drop_one()
            self._peers[key] = WatchedPeer(self.listened_us, Longest())
        elif not peer.watched:
            peer.watched, peer.fresh, peer.heard_us = True, True, self.listened_us
        else:
            return
        self._watched += 1

    def rest(self, key: Key) -> None:
        """Its silence does not count for now; what was usual is kept."""
        peer = self._peers.get(key)
        if peer is not None and peer.watched:
            peer.watched = False
            peer.lives()
            self._watched -= 1

    def forget(self, key: Key) -> None:
        self.rest(key)
        self._peers.pop(key, None)

    def keep(self, keys: Collection[Key], now_us: int) -> None:
        """Watch these peers, and no others."""
        for key in [key for key in self._peers if key not in keys]:
            self.forget(key)
        for key in keys:
            self.watch(key, now_us)

    def rest_all(self) -> None:
        for key in list(self._peers):
            self.rest(key)

    def _drop_one(self) -> None:
        """The one that was known first and is not watched, or the first."""
        idle = (key for key, peer in self._peers.items() if not peer.watched)
        self.forget(next(idle, next(iter(self._peers))))

    # -- signs of life, and the lack of them -------------------------------------------------------

    def hear(self, key: Key, now_us: int) -> None:
        """Something was received from the peer."""
        peer = self._peers.get(key)
        if peer is None or not peer.watched:
            return
        self.look(now_us)
        peer.gaps.note(self.listened_us - peer.heard_us, self.listened_us)
        peer.heard_us, peer.fresh = self.listened_us, True
        if peer.refused_us is not None:
            peer.lives()

    def refuse(self, key: Key, now_us: int) -> bool:
        """The network reports that nobody listens there; whether that is enough. Any sign of life
        takes it back, and so does an absence of ours."""
        peer = self._peers.get(key)
        if peer is None or not peer.watched:
            return False
        self.look(now_us)
        if peer.refused_us is None:
            peer.refused_us = self.listened_us
        peer.gone |= self.listened_us - peer.refused_us >= max(1, self.detect_us // APART_SHARE)
        return peer.gone

    def is_dead(self, key: Key) -> bool:
        """The network has reported twice that nobody listens there."""
        peer = self._peers.get(key)
        return peer is not None and peer.watched and peer.gone

    def limit_us(self, key: Key) -> int:
        """How long it may be silent."""
        peer = self._peers.get(key)
        if peer is None:
            return self.detect_us
        if peer.gone:
            return 1
        gap_us = max(peer.gaps.us(self.listened_us), self._late.us(self.listened_us))
        return max(self.detect_us, min(GAP_TIMES * gap_us, MOST_TIMES * self.detect_us))

    def silence_us(self, key: Key) -> int:
        """The listening time since something was last received from it."""
        peer = self._peers.get(key)
        return self.listened_us - peer.heard_us if peer is not None and peer.watched else 0

    def is_watched(self, key: Key) -> bool:
        peer = self._peers.get(key)
        return peer is not None and peer.watched

    def is_silent(self, key: Key, share: int = 1) -> bool:
        """Watched, and silent for too long, as of the last look; or for a share of that, where
        there are other signs."""
        peer = self._peers.get(key)
        if peer is None or not peer.watched:
            return False
        silence_us = self.listened_us - peer.heard_us
        if silence_us < self.detect_us // share and not peer.gone:
            return False  # No limit is below the goal.
        return silence_us >= self.limit_us(key) // share
