"""Where a daemon listens: a path of this machine, or a port of its loopback interface."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from typing import TypeAlias

from unisono.errors import Misuse
from unisono.net.addresses import host_and_port

PATH_BYTES_MAX = 107
"""What a socket address holds."""
WRITE = "write unix:/path, /path or tcp:127.0.0.1:7401"


@dataclass(frozen=True, slots=True)
class Unix:
    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class Tcp:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


Door: TypeAlias = Unix | Tcp


def door(text: str | os.PathLike[str]) -> Door:
    """`unix:/path`, `/path` or `tcp:127.0.0.1:7401`."""
    text = os.fspath(text) if isinstance(text, os.PathLike) else text
    if not isinstance(text, str):
        raise Misuse(f"daemon={text!r}: {WRITE}")
    if text.startswith("tcp:"):
        return _tcp(text)
    path = text.removeprefix("unix:")
    if not path.startswith("/"):
        raise Misuse(f"daemon={text!r}: {WRITE}")
    octets = len(path.encode())
    if octets > PATH_BYTES_MAX or "\0" in path:
        raise Misuse(f"daemon={text!r}: the path has {octets} bytes, {PATH_BYTES_MAX} is the most")
    return Unix(path)


def _tcp(text: str) -> Tcp:
    host, port = host_and_port(text.removeprefix("tcp:"), "daemon")
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise Misuse(f"daemon={text!r}: write the address in numbers, as 127.0.0.1") from None
    if not near:
        raise Misuse(f"daemon={text!r}: clients are local: give an address as 127.0.0.1 or ::1")
    return Tcp(host, port)
