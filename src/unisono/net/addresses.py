"""Parses and resolves addresses; every mistake is a `Misuse` with a remedy."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from unisono.errors import Misuse
from unisono.model import Address

SIOCGIFADDR = 0x8915
IP_MTU, IPV6_MTU = 14, 24
IP_AND_UDP_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}
MTU_WHEN_UNKNOWN = 1500


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a member receives and sends. Either `multicast` or `peers` is given."""

    multicast: Address | None = None
    peers: tuple[Address, ...] = ()
    interface: str = ""
    """The local address, or the name, of the interface that carries the group's traffic."""
    bind: Address | None = None
    """Where the member's own socket is bound; port 0 lets the system choose."""
    advertise: Address | None = None
    """Where others reach the member, if it differs from `bind`; port 0 means the bound one."""
    far: tuple[Address, ...] = ()
    """Members of other clusters: `EVERYONE` does not reach them."""

    def __str__(self) -> str:
        if self.multicast:
            return f"multicast {self.multicast} on {self.interface or 'the default interface'}"
        return "peers " + ",".join(map(str, self.peers))


def host_and_port(text: str, what: str, port: int = 0) -> tuple[str, int]:
    """Split `host:port`, `host`, `[v6]:port` or a bare IPv6 address."""
    host, given = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise Misuse(f"{what} {text!r}: write an IPv6 address as [address]:port")
        given = rest[1:]
    elif text.count(":") == 1:
        host, given = text.split(":")
    if not host:
        raise Misuse(f"{what} {text!r} has no host: write host:port")
    return host, port_in(given, f"{what} {text!r}") if given else port


def port_in(text: str | int, what: str = "") -> int:
    """A port number from 0 to 65535; `what` contains it, for the error message."""
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        head = f"{what}: " if what else ""
        raise Misuse(f"{head}port {text!r} is not a number from 0 to 65535")
    return port


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_wildcard(host: str) -> bool:
    return host in ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    number = in_numbers(host)
    return number is not None and ipaddress.ip_address(without_scope(number)).is_loopback


def check_one_family(at: Addresses) -> None:
    """`Misuse` unless `bind` and `advertise` are of the group's address family."""
    reached = at.multicast or (at.peers[0] if at.peers else at.bind)
    if reached is None:
        return
    family = family_of(reached.host)
    kind = "IPv6" if family == socket.AF_INET6 else "IPv4"
    for name, given in (("bind", at.bind), ("advertise", at.advertise)):
        if given is not None and given.host and family_of(given.host) != family:
            raise Misuse(
                f"{name} {given.host!r} is of the wrong family: the group is at {reached}, so give"
                f" an {kind} address"
            )
    if at.advertise is not None and is_wildcard(without_scope(at.advertise.host)):
        raise Misuse(
            f"advertise {at.advertise.host!r} is a wildcard: give an address at which others"
            " reach this member"
        )


def without_scope(host: str) -> str:
    return host.partition("%")[0]


def is_link_local(host: str) -> bool:
    return host[:4].lower() in ("fe80", "ff02", "ff12")


def in_numbers(host: str) -> str | None:
    """The canonical form of a numeric address; None for a name."""
    try:
        number = ipaddress.ip_address(without_scope(host))
    except ValueError:
        return None
    scope = host.partition("%")[2]
    return f"{number}%{scope}" if scope else str(number)


def numeric(text: str, what: str, port: int = 0) -> Address:
    """A numeric address; `Misuse` for a name."""
    host, port = host_and_port(text, what, port)
    number = in_numbers(host)
    if number is None:
        raise Misuse(f"{what} {host!r} is not an IP address: write one such as 192.168.1.7")
    return Address(number, port)


def multicast_address(text: str, port: int) -> Address:
    address = numeric(text, "multicast", port)
    if not ipaddress.ip_address(without_scope(address.host)).is_multicast:
        raise Misuse(
            f"multicast {address.host!r} is not a multicast address: take one of 239.0.0.0/8 or"
            " ff15::/16, or name the members with peers="
        )
    if not address.port:
        raise Misuse(f"multicast {text!r}: give a port other than 0")
    return address


def resolve(host: str, port: int, family: int = socket.AF_UNSPEC) -> Address:
    """The first address of a host name. Blocks: call it off the event loop."""
    number = in_numbers(host)
    if number is not None:
        return Address(number, port)
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        raise Misuse(f"peer {host!r} cannot be resolved ({reason}): check its spelling") from None
    # IPv4 first where a name has both: `localhost` should mean the same to every member.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return Address(str(found[0][4][0]), port)


def local_address(interface: str, family: int) -> str:
    """The address of an interface given by address or by name."""
    number = in_numbers(interface)
    if number is not None:
        if family_of(number) != family:
            other = "IPv6" if family == socket.AF_INET6 else "IPv4"
            raise Misuse(f"interface {interface!r} is of the wrong family: give an {other} address")
        return number
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise Misuse(
            f"interface {interface!r} does not exist: give an address, or one of {names}"
        ) from None
    host = _address_of(interface, index, family)
    if not host:
        kind = "IPv6" if family == socket.AF_INET6 else "IPv4"
        raise Misuse(f"interface {interface!r} has no {kind} address: give another interface")
    return host


def _address_of(name: str, index: int, family: int) -> str:
    if not sys.platform.startswith("linux"):
        raise Misuse(f"interface {name!r}: give the interface's address instead of its name")
    if family == socket.AF_INET:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                reply = fcntl.ioctl(
                    probe.fileno(), SIOCGIFADDR, name.encode()[:15].ljust(256, b"\0")
                )
            except OSError:
                return ""
        return socket.inet_ntoa(reply[20:24])
    mine = [host for host, at in _ipv6_addresses() if at == index]
    # Global addresses first.
    mine.sort(key=is_link_local)
    return mine[0] if mine else ""


def _ipv6_addresses() -> list[tuple[str, int]]:
    """Each IPv6 address of this machine with the index of its interface."""
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        digits, index, *_ = line.split()
        host = str(ipaddress.IPv6Address(bytes.fromhex(digits)))
        found.append((host, int(index, 16)))
    return found


def index_of(interface: str, host: str) -> int:
    """The number of the interface: from its name, a scope id, or the address it has."""
    scope = interface.partition("%")[2] or host.partition("%")[2]
    try:
        if scope:
            return int(scope) if scope.isdigit() else socket.if_nametoindex(scope)
        if interface and in_numbers(interface) is None:
            return socket.if_nametoindex(interface)
    except OSError:
        raise Misuse(
            f"scope {scope or interface!r} names no interface: write it as fe80::1%eth0"
        ) from None
    plain = without_scope(host)
    if is_link_local(plain):
        raise Misuse(f"{plain} is link-local: add the interface, as {plain}%eth0")
    for address, index in _ipv6_addresses():
        if address == plain:
            return index
    raise Misuse(f"no interface has the address {plain}: give interface= one that has")


def routed_from(target: Address, scope: int = 0) -> tuple[str, int]:
    """The local address from which the system would send to the target, and the path's MTU."""
    family = family_of(target.host)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(sockaddr(Address(target.host, target.port or 9), scope))
        except OSError as error:
            raise Misuse(no_route(target, error)) from None
        return str(probe.getsockname()[0]), mtu_of(probe)


def mtu_of(connected: socket.socket) -> int:
    """The largest IP packet that this connected socket sends unfragmented."""
    if not sys.platform.startswith("linux"):
        return MTU_WHEN_UNKNOWN
    try:
        if connected.family == socket.AF_INET6:
            return connected.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)
        return connected.getsockopt(socket.IPPROTO_IP, IP_MTU)
    except OSError:
        return MTU_WHEN_UNKNOWN


def no_route(target: Address, error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"no route to {target} ({name}): check the address and `ip route get {target.host}`"


def sockaddr(address: Address, scope: int = 0) -> tuple[str, int] | tuple[str, int, int, int]:
    """The form that socket calls take. A link-local address needs our interface's scope."""
    host = without_scope(address.host)
    if ":" in host:
        return host, address.port, 0, scope if is_link_local(host) else 0
    return host, address.port
