"""Access to a feed: a token, and TLS around the connections."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import Final

from unisono.errors import Misuse

TOKEN_CHARS_MIN, TOKEN_CHARS_MAX = 16, 1024
HANDSHAKE_S: Final = 10.0


def token_in(file: Path | str | None) -> str:
    """The token that a file holds; empty without a file."""
    if file is None:
        return ""
    path = Path(file)
    try:
        others = path.stat().st_mode & 0o077
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise Misuse(f"token {str(path)!r}: {reason}: name a file that holds the token") from None
    if others:
        raise Misuse(f"token {str(path)!r}: others may read or change it: chmod 600 {path}")
    if not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX or not token.isprintable():
        raise Misuse(
            f"token {str(path)!r}: write one line of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX}"
            " printable characters, as openssl rand -hex 32 does"
        )
    return token


def server_tls(cert: Path | str | None, key: Path | str | None) -> ssl.SSLContext | None:
    """None without a certificate."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise Misuse("tls_cert= and tls_key= go together: give both files (--tls-cert, --tls-key)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password: a feed starts unattended.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        raise Misuse(f"tls_cert={str(cert)!r}, tls_key={str(key)!r}: {_reason(error)}") from None
    return context


def client_tls(ca: Path | str | None) -> ssl.SSLContext | None:
    """Believes what these authorities signed, for the host that is named; None without them."""
    if ca is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ValueError) as error:
        raise Misuse(f"ca={str(ca)!r}: {_reason(error)}: name a file of certificates") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)


def open_to_all(host: str, token: str, tls: ssl.SSLContext | None) -> str:
    """What to warn of when a feed listens at this host; empty if nothing."""
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost"
    if near or (token and tls):
        return ""
    if token:
        return "without TLS: its token and rows can be read on the way: give tls_cert and tls_key"
    return "without a token: whoever reaches it reads the log and sends to the group: give token"
