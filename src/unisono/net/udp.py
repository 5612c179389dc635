"""The sockets of one member: multicast or a list of peers, behind the same `send`.

It carries packets without inspecting them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from unisono.core import Everyone, Target
from unisono.errors import Misuse
from unisono.model import Address, Packets
from unisono.net import addresses, offload
from unisono.net.address_validation import AddressValidation
from unisono.net.addresses import Addresses
from unisono.net.destinations import Destinations
from unisono.net.mixed_keys import OpenNotice
from unisono.net.prober import Prober
from unisono.net.receive_path import ReceivePath
from unisono.net.send_path import SendPath, SockAddr
from unisono.sealing.seal import Seal

BUFFER_BYTES = 4 << 20
SEND_QUEUE_BYTES_MAX = 8 << 20
IP_MULTICAST_ALL, IPV6_MULTICAST_ALL = 49, 29
TARGETS_KNOWN_MAX = 4096
FIRST_ROUNDS_MAX = 4
"""Reads of the group's socket before one of the member's own."""
COUNTED = tuple(
    f"net.{way}.{what}" for way in ("in", "out") for what in ("calls", "packets", "bytes")
)

log = logging.getLogger("unisono.net")

Receive: TypeAlias = Callable[[list[tuple[Address, Packets]]], bool | None]
"""Whether a reader was woken, who comes before further packets."""
Refused: TypeAlias = Callable[[Address], None]


class Endpoint:
    """Where one member receives and sends. Opening it raises `Misuse` with the remedy."""

    def __init__(
        self,
        at: Addresses,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        send_queue_bytes_max: int = SEND_QUEUE_BYTES_MAX,
        offloads: bool = True,
        group: str = "",
    ) -> None:
        """Challenges are exchanged only between endpoints of the same `group`."""
        self.where = at
        self.counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self.seal: Seal | None = None
        self._unread = ""
        self._woken = self._has_deferred = False
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope = 0
        self._known: dict[Address, SockAddr | None] = {}
        self._prober: Prober | None = None
        addresses.check_one_family(at)
        offload.keep_memory()
        try:
            if at.multicast:
                own, self.path_mtu = self._open_multicast(at, at.multicast)
            elif at.peers or at.bind:
                own, self.path_mtu = self._open_peers(at)
            else:
                raise Misuse("neither multicast= nor peers= is given: give one of them")
            self._own, self.bound = own, _bound(own)
            self.address = self._advertised(at)
            for sock in self._sockets:
                self._prepare(sock, buffer_bytes, offloads)
        except BaseException:
            self.close()
            raise
        self._destinations = Destinations(at.peers, self.address, at.far)
        self._destinations.is_me(self.bound)
        self._validation = AddressValidation(self._destinations, group, self._send_one, self.counts)
        self._notice = OpenNotice(group, self._send_one)
        self._receive_path = ReceivePath(self.counts, self.bound)
        self._send_path = SendPath(own, self.counts, send_queue_bytes_max, offloads)
        self._group = (addresses.sockaddr(at.multicast, self._scope),) if at.multicast else None
        self._prober = Prober(self.bound.host, self.counts)

    @property
    def packet_bytes_max(self) -> int:
        """The largest datagram that leaves here unfragmented."""
        return self.path_mtu - addresses.IP_AND_UDP_BYTES[self._own.family]

    def use(self, seal: Seal) -> None:
        """Seal every packet from now on, and believe no other."""
        self.seal = seal
        self._send_path.use(seal)

    @property
    def is_local(self) -> bool:
        """Whether all its packets stay on this machine."""
        return addresses.is_loopback(self.bound.host)

    @property
    def segments(self) -> bool:
        """Whether bursts leave in one call."""
        return self._send_path.segments

    # -- opening --------------------------------------------------------------------------------

    def _open_multicast(self, at: Addresses, group: Address) -> tuple[socket.socket, int]:
        family = addresses.family_of(group.host)
        default = "127.0.0.1" if family == socket.AF_INET else "::1"
        interface = at.interface or group.host.partition("%")[2] or default
        host = addresses.local_address(interface, family)
        if family == socket.AF_INET6:
            self._scope = addresses.index_of(interface, host)
        group_socket = self._socket(family)
        group_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not offload.LINUX and hasattr(socket, "SO_REUSEPORT"):
            # Other systems need it for several members on one machine; on Linux it would bind the
            # port to one user, and SO_REUSEADDR is enough for multicast.
            group_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Windows cannot bind to a multicast address.
        bound = Address("", group.port) if sys.platform == "win32" else group
        _bind(group_socket, addresses.sockaddr(bound, self._scope), group, "port")
        self._join_multicast(group_socket, group, host, interface)
        own = self._socket(family)
        _send_multicast_via(own, host, self._scope)
        mine = at.bind or Address(host, 0)
        mine = Address(mine.host or host, mine.port)
        _bind(own, addresses.sockaddr(mine, self._scope), mine, "bind")
        if not addresses.is_wildcard(mine.host):
            offload.drop_own_multicasts(group_socket, _bound(own))
        return own, self._multicast_mtu(group, host, interface)

    def _join_multicast(
        self, group_socket: socket.socket, group: Address, host: str, interface: str
    ) -> None:
        address = socket.inet_pton(group_socket.family, addresses.without_scope(group.host))
        try:
            if group_socket.family == socket.AF_INET6:
                level, all_groups = socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL
                group_socket.setsockopt(
                    level, socket.IPV6_JOIN_GROUP, address + struct.pack("@I", self._scope)
                )
            else:
                level, all_groups = socket.IPPROTO_IP, IP_MULTICAST_ALL
                group_socket.setsockopt(
                    level, socket.IP_ADD_MEMBERSHIP, address + socket.inet_aton(host)
                )
        except OSError as error:
            raise Misuse(
                f"interface {interface!r} cannot join {group.host} ({_name(error)}):"
                " give interface= an address of this machine, or use peers="
            ) from None
        if offload.LINUX:
            # Receive this group on this interface only, whatever other processes joined.
            with contextlib.suppress(OSError):
                group_socket.setsockopt(level, all_groups, 0)

    def _multicast_mtu(self, group: Address, host: str, interface: str) -> int:
        """The path's MTU; `Misuse` if there is no route."""
        with socket.socket(addresses.family_of(group.host), socket.SOCK_DGRAM) as probe:
            try:
                _send_multicast_via(probe, host, self._scope)
                probe.connect(addresses.sockaddr(group, self._scope))
            except OSError as error:
                raise Misuse(
                    f"no multicast route to {group.host} on interface {interface!r}"
                    f" ({_name(error)}): give interface= one that carries multicast, or use peers="
                ) from None
            return addresses.mtu_of(probe)

    def _open_peers(self, at: Addresses) -> tuple[socket.socket, int]:
        first = at.peers[0] if at.peers else None
        bind = at.bind or Address("", 0)
        family = addresses.family_of((first or bind).host)
        odd = [peer for peer in at.peers if addresses.family_of(peer.host) != family]
        if odd:
            raise Misuse(f"peers mix IPv4 and IPv6 ({first} and {odd[0]}): give one family")
        interface = at.interface
        if family == socket.AF_INET6 and (interface or "%" in (bind.host + (first or bind).host)):
            self._scope = addresses.index_of(interface, (first or bind).host)
        host, mtu = addresses.routed_from(first, self._scope) if first else (bind.host, 65535)
        if interface:
            host = addresses.local_address(interface, family)
        mine_listed = [peer for peer in at.peers if not interface or peer.host == host]
        if not at.bind and (sock := self._one_of(mine_listed)):
            return sock, mtu
        own = self._socket(family)
        mine = Address(bind.host or host, bind.port)
        _bind(own, addresses.sockaddr(mine, self._scope), mine, "bind" if bind.host else "port")
        return own, mtu

    def _one_of(self, peers: Sequence[Address]) -> socket.socket | None:
        """A socket on the first listed address that is local and free, so that all members can use
        the same list."""
        for peer in peers:
            sock = self._socket(addresses.family_of(peer.host))
            try:
                sock.bind(addresses.sockaddr(peer, self._scope))
                return sock
            except OSError:
                self._sockets.remove(sock)
                sock.close()
        return None

    def _socket(self, family: int) -> socket.socket:
        try:
            sock = socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            kind = "IPv6" if family == socket.AF_INET6 else "IPv4"
            raise Misuse(f"this machine has no {kind} ({_name(error)})") from None
        self._sockets.append(sock)
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return sock

    def _prepare(self, sock: socket.socket, buffer_bytes: int, offloads: bool) -> None:
        offload.enlarge(sock, buffer_bytes, receive=True)
        if sock is self._own:
            offload.enlarge(sock, buffer_bytes, receive=False)
        if offloads:
            offload.coalesce(sock)

    def _advertised(self, at: Addresses) -> Address:
        host, port = self.bound
        if at.advertise:
            return Address(at.advertise.host, at.advertise.port or port)
        if addresses.is_wildcard(host) and at.peers:
            host = addresses.routed_from(at.peers[0], self._scope)[0]
        elif addresses.is_wildcard(host):
            raise Misuse(f"bound to {host}: give advertise= an address at which others reach us")
        return Address(host, port)

    # -- use ------------------------------------------------------------------------------------

    def attach(
        self, loop: asyncio.AbstractEventLoop, received: Receive, refused: Refused | None = None
    ) -> None:
        """Start to receive; `refused` is called with a probed address at which no process
        listens."""
        self._loop, self._received = loop, received
        self._send_path.attach(loop)
        if refused is not None and self._prober is not None:
            self._prober.attach(loop, refused)
        for sock in self._sockets:
            readable = self._own_readable if sock is self._own else self._readable
            loop.add_reader(sock.fileno(), readable, sock)

    def _own_readable(self, own: socket.socket) -> None:
        """A unicast often refers to multicasts sent before it, which wait in the other socket: read
        those first, or they seem lost."""
        for sock in tuple(self._sockets):
            for _ in range(FIRST_ROUNDS_MAX):
                if sock is own or not self._readable(sock):
                    break
        if self._loop is not None:  # Not closed meanwhile.
            self._readable(own)

    def _readable(self, sock: socket.socket) -> bool:
        """Read in two parts: the core may answer the first datagram before the rest is read, while
        its sender works on; and a reader that the first has woken has its turn before the rest."""
        if not self._pass_on(self._receive_path.read(sock, 1)):
            return False
        self._has_deferred = self._woken and not self._has_deferred  # Else packets may pile.
        if self._loop is not None and not self._has_deferred:
            self._pass_on(self._receive_path.read(sock))
        return True

    def _pass_on(self, found: list[tuple[Address, Packets]]) -> bool:
        if not found:
            return False
        if self.seal is not None:
            found = self._unsealed(self.seal, found)
        else:
            self._notice.look(found, _now_us())
        if self._group is None:
            found = self._validation.admit(found, _now_us())
        if found:
            self._woken = bool(self._received(found))
        return True

    def _unsealed(
        self, seal: Seal, found: list[tuple[Address, Packets]]
    ) -> list[tuple[Address, Packets]]:
        found, replies = seal.open(found, _now_us())
        for to, packet in replies:
            if (known := self._sockaddr(to)) is not None:
                self._send_path.send_sealed(known, packet)
        if seal.unread != self._unread:
            self._unread = seal.unread
            log.warning("%s", self._unread)
        return found

    def drain(self, rounds_max: int = 64) -> None:
        """Read what already waits: a late timer must not expire before packets it waited for."""
        read = self._receive_path.read
        for _ in range(rounds_max):
            received = [self._pass_on(read(sock)) for sock in tuple(self._sockets)]
            if not any(received):
                return

    def send(self, to: Target, packets: Packets) -> None:
        """Send each packet to each target, in bursts if possible. Never blocks."""
        if self._loop is None:
            return
        if self._group is None:
            to = self._reached(to, len(packets))
        if isinstance(to, Everyone):
            self._send_path.send(self._group or (), packets)
            return
        targets = []
        for address in to:
            known = self._sockaddr(address)
            if known is None:
                name = "drop.bad_address"
                self.counts[name] = self.counts.get(name, 0) + len(packets)
            else:
                targets.append(known)
        self._send_path.send(targets, packets)

    def _reached(self, to: Target, count: int) -> tuple[Address, ...]:
        """The targets whose addresses are validated; the others are challenged."""
        now_us, destinations = _now_us(), self._destinations
        if isinstance(to, Everyone):
            to, unvalidated = destinations.everyone(now_us), destinations.pending
        elif destinations.reached.issuperset(to):
            unvalidated = ()
        else:
            unvalidated = tuple(address for address in to if address not in destinations.reached)
            to = tuple(address for address in to if address in destinations.reached)
        for address in unvalidated:
            self._validation.ask(address, now_us)
            name = "drop.unproved"
            self.counts[name] = self.counts.get(name, 0) + count
        return to

    def _send_one(self, to: Address, packet: bytes) -> None:
        known = self._sockaddr(to)
        if known is not None and self._loop is not None:
            self._send_path.send([known], [packet])

    def probe(self, to: Sequence[Address]) -> None:
        """Probe whether a process listens at these addresses, if they are validated."""
        for address in to:
            if self._group is None and address not in self._destinations.reached:
                continue
            known = self._sockaddr(address)
            if known is not None and self._prober is not None:
                self._prober.probe(address, known)

    def _sockaddr(self, address: Address) -> SockAddr | None:
        return self._known[address] if address in self._known else self._learn(address)

    def _learn(self, address: Address) -> SockAddr | None:
        """Addresses come from packets and are not trusted: only numeric ones of our family are
        used."""
        if len(self._known) >= TARGETS_KNOWN_MAX:
            self._known.clear()
        host = addresses.in_numbers(address.host)
        good = host and addresses.family_of(host) == self._own.family and 0 < address.port < 65536
        found = (
            addresses.sockaddr(Address(host, address.port), self._scope) if good and host else None
        )
        self._known[address] = found
        return found

    def installed(self, members: Sequence[Address]) -> None:
        """Members of the view are destinations, whether listed as peers or not."""
        now_us = _now_us()
        self._destinations.installed(members, now_us)
        if self._group is None:
            for address in self._destinations.pending:
                self._validation.ask(address, now_us)

    def reach(self, hops: int) -> None:
        """The hop limit of our multicasts; 1 stays on the link."""
        hops = min(max(hops, 0), 255)
        if self._own.family == socket.AF_INET6:
            self._own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        else:
            self._own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)

    def close(self) -> None:
        if self._loop is not None:
            self._send_path.close()
        if self._prober is not None:
            self._prober.close()
        for sock in self._sockets:
            if self._loop is not None:
                self._loop.remove_reader(sock.fileno())
            sock.close()
        self._loop = None
        self._sockets.clear()


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _bound(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return Address(addresses.without_scope(host), port)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def _send_multicast_via(sock: socket.socket, host: str, scope: int) -> None:
    """Send multicast on this interface, and loop it back to members on this machine."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, scope)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        return
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
    except OSError as error:
        raise Misuse(
            f"no interface has the address {host} ({_name(error)}): give interface= one that has"
        ) from None
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)


def _bind(sock: socket.socket, to: SockAddr, what: Address, option: str) -> None:
    """Bind; `Misuse` names the option to change."""
    try:
        sock.bind(to)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"port {what.port} on {what.host} is taken: give another {option}="
        elif error.errno == errno.EADDRNOTAVAIL:
            text = f"{what.host} is not an address of this machine: give interface= or bind= one"
        elif error.errno == errno.EACCES:
            text = f"port {what.port} needs root: give {option}= a port above 1023"
        else:
            text = f"cannot bind to {what} ({_name(error)}): give another bind="
        raise Misuse(text) from None
