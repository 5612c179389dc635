"""How fast a source sends, and when it repeats: adapted to loss and delay as TCP does [RMP §2.3].

A block counts as acknowledged when an ACK orders it, so the rotation of the token is the clock. The
estimates are those of RFC 6298, the window that of RFC 5681: slow start up to a threshold, then
some packets more a round trip; half of it at the first loss of a round trip, the least after a
time-out.
"""

from __future__ import annotations

from typing import Final

RTO_MIN_US: Final = 20_000
RTO_FIRST_US: Final = 200_000
CLOCK_US: Final = 1_000
"""The least that a deviation adds."""
WINDOW_PACKETS_FIRST: Final = 10
WINDOW_PACKETS_MIN: Final = 2
INCREASE_PACKETS: Final = 16
"""Added a round trip. A block has many packets: one more would not be seen."""
SHARED_PACKETS: Final = 2048
"""Of all sources together: fewer than a socket buffer of 4 MiB holds at full length."""


class RetransmissionTimer:
    """SRTT and RTTVAR of [RFC 6298], with Karn's rule: what was repeated is not measured."""

    __slots__ = ("_backoff", "_max_us", "_srtt_us", "_var_us")

    def __init__(self, max_us: int) -> None:
        self._max_us = max_us
        self._srtt_us = 0
        self._var_us = 0
        self._backoff = 0

    def measure(self, rtt_us: int) -> None:
        """A round trip of what was sent once."""
        if self._srtt_us:
            self._var_us += (abs(self._srtt_us - rtt_us) - self._var_us) // 4
            self._srtt_us += (rtt_us - self._srtt_us) // 8
        else:
            self._srtt_us, self._var_us = max(1, rtt_us), rtt_us // 2
        self._backoff = 0

    def back_off(self) -> None:
        """It expired: the next is twice as long, up to the longest period."""
        if self.period_us() < self._max_us:
            self._backoff += 1

    def period_us(self) -> int:
        if not self._srtt_us:
            period_us = RTO_FIRST_US
        else:
            period_us = self._srtt_us + max(CLOCK_US, 4 * self._var_us)
        return min(max(period_us, RTO_MIN_US) << self._backoff, self._max_us)


class CongestionWindow:
    """Bytes of one source that may be under way: sent, and not named by an ACK."""

    __slots__ = ("_bytes_max", "_max", "_packet", "_recovered", "_threshold", "nbytes")

    def __init__(self, packet_bytes: int, bytes_max: int) -> None:
        self._packet = packet_bytes
        self._bytes_max = self._max = max(bytes_max, WINDOW_PACKETS_MIN * packet_bytes)
        self._threshold = self._max
        self._recovered = 0
        """Losses of blocks up to this number belong to one round trip, and count once."""
        self.nbytes = min(WINDOW_PACKETS_FIRST * packet_bytes, self._max)

    def share(self, sources: int) -> None:
        """So many sources share what a receiver can hold."""
        share = SHARED_PACKETS // sources * self._packet
        self._max = max(min(self._bytes_max, share), self._least)
        self.nbytes = min(self.nbytes, self._max)

    def acknowledged(self, nbytes: int) -> None:
        """Grow: by as much in slow start, else by a few packets a window."""
        if self.nbytes < self._threshold:
            grown = self.nbytes + nbytes
        else:
            grown = self.nbytes + max(1, INCREASE_PACKETS * self._packet * nbytes // self.nbytes)
        self.nbytes = min(grown, self._max)

    def lost(self, block: int, last_sent: int) -> None:
        """A block was asked for again: halve, once for all that was under way then."""
        if block > self._recovered:
            self._recovered = last_sent
            self._threshold = self.nbytes = max(self.nbytes // 2, self._least)

    def timed_out(self, last_sent: int) -> None:
        """Nothing came back in time: begin anew."""
        self._recovered = last_sent
        self._threshold = max(self.nbytes // 2, self._least)
        self.nbytes = self._least

    @property
    def _least(self) -> int:
        return WINDOW_PACKETS_MIN * self._packet
