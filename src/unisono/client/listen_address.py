"""Where a daemon listens: a Unix path, or a port of the loopback interface."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from typing import TypeAlias

from unisono.errors import Misuse
from unisono.net.addresses import host_and_port

PATH_BYTES_MAX = 107
"""The most that a socket address holds."""
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


ListenAddress: TypeAlias = Unix | Tcp


def listen_address(text: str | os.PathLike[str]) -> ListenAddress:
    """`unix:/path`, `/path` or `tcp:127.0.0.1:7401`."""
    text = os.fspath(text) if isinstance(text, os.PathLike) else text
    if not isinstance(text, str):
        raise Misuse(f"daemon={text!r}: {WRITE}")
    if text.startswith("tcp:"):
        return _tcp(text)
    path = text.removeprefix("unix:")
    if not path.startswith("/"):
        raise Misuse(f"daemon={text!r}: {WRITE}")
    nbytes = len(path.encode())
    if nbytes > PATH_BYTES_MAX or "\0" in path:
        raise Misuse(f"daemon={text!r}: the path has {nbytes} bytes, give at most {PATH_BYTES_MAX}")
    return Unix(path)


def _tcp(text: str) -> Tcp:
    host, port = host_and_port(text.removeprefix("tcp:"), "daemon")
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise Misuse(f"daemon={text!r}: write the address in numbers, as 127.0.0.1") from None
    if not near:
        raise Misuse(f"daemon={text!r}: clients are local: give 127.0.0.1 or ::1")
    return Tcp(host, port)
