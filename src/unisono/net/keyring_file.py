"""The keyring of a member: a key, or a file that is read again when it changes.

Keys are changed without a stop: install the new one in every member's file, use it in every file,
remove the old one from every file. Every step is safe in any order among the members, since a
member opens what any installed key sealed; so it need not be ordered through the group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from pathlib import Path
from string import hexdigits
from typing import Final

from unisono.errors import Misuse
from unisono.sealing.keys import Keyring, key_of, keyring_text, read_keyring
from unisono.sealing.seal import Seal

RELOAD_S: Final = 1.0
FILE_BYTES_MAX: Final = 64 << 10
FileStamp = tuple[int, int, int]

log = logging.getLogger("unisono.net")


def keyring_of(key: str) -> Keyring:
    """Of a key in hexadecimal digits, or of a file."""
    if set(key) <= set(hexdigits) and not os.path.exists(key):
        return Keyring((key_of(key),))
    return load_keyring(Path(key))


def load_keyring(path: Path) -> Keyring:
    """`Misuse` if it cannot be read, or if others can read it."""
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise Misuse(f"keyring {path}: others may read it; chmod 600 {path}")
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Misuse(
            f"keyring {path}: {error.strerror}; make one with `unisono key new {path}`"
        ) from None
    if len(data) > FILE_BYTES_MAX:
        raise Misuse(f"keyring {path} is larger than {FILE_BYTES_MAX} bytes: write a key a line")
    try:
        return read_keyring(data.decode(), str(path))
    except UnicodeDecodeError:
        raise Misuse(f"keyring {path} is not text: write a key a line") from None


def save_keyring(path: Path, keyring: Keyring, new: bool = False) -> None:
    """Replace the file as a whole; `new` refuses to replace one."""
    if new and path.exists():
        raise Misuse(f"keyring {path} exists: name another file, or install a key in this one")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(keyring_text(keyring))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise Misuse(f"keyring {path} cannot be written: {error.strerror}") from None


class KeyringWatch:
    """Gives the seal the keys of a file whenever it changes. A file that cannot be read changes
    nothing."""

    def __init__(self, key: str, seal: Seal) -> None:
        self._path = Path(key)
        self._seal = seal
        self._stamp = _stamp(self._path)
        self._alarm: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._stamp is not None:
            self._alarm = loop.call_later(RELOAD_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        stamp = _stamp(self._path)
        if stamp is not None and stamp != self._stamp:
            try:
                self._seal.rekey(load_keyring(self._path))
                log.info("keyring %s was read again", self._path)
            except Misuse as error:
                log.warning("%s; the keys stay as they are", error)
            self._stamp = stamp
        self._alarm = loop.call_later(RELOAD_S, self._look, loop)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()


def _stamp(path: Path) -> FileStamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
