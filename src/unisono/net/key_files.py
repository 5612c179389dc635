"""The keys of a member: files that are read again when they change.

Keys of the group are changed without a stop: install the new one in every member's file, use it in
every file, remove the old one from every file. Every step is safe in any order among the members,
since a member opens what any installed key sealed; so it need not be ordered through the group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from string import hexdigits
from typing import Final

from unisono.errors import Misuse
from unisono.sealing.identity import (
    Allowed,
    Identity,
    named_key_text,
    read_allowed,
    read_identity,
)
from unisono.sealing.keys import Keyring, key_of, keyring_text, read_keyring

RELOAD_S: Final = 0.4
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
    advice = f"make one with `unisono key new {path}`"
    return read_keyring(_text_of(path, "keyring", advice, private=True), str(path))


def load_identity(path: Path) -> Identity:
    """`Misuse` if it cannot be read, or if others can read it."""
    advice = f"make one with `unisono key identity {path} NAME`"
    return read_identity(_text_of(path, "identity", advice, private=True), str(path))


def load_allowed(path: Path) -> Allowed:
    """`Misuse` if it cannot be read."""
    advice = "write a line a member, as `unisono key identity` prints it"
    return read_allowed(_text_of(path, "list", advice, private=False), str(path))


def _text_of(path: Path, what: str, advice: str, private: bool) -> str:
    try:
        # A pipe that nobody writes would hold up the member.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise Misuse(f"{what} {path} is not a file; {advice}")
            if private and stat.S_IMODE(mode) & 0o077:
                raise Misuse(f"{what} {path}: others may read it; chmod 600 {path}")
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Misuse(f"{what} {path}: {error.strerror}; {advice}") from None
    if len(data) > FILE_BYTES_MAX:
        raise Misuse(f"{what} {path} is larger than {FILE_BYTES_MAX} bytes: write a key a line")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Misuse(f"{what} {path} is not text: write a key a line") from None


def save_keyring(path: Path, keyring: Keyring, new: bool = False) -> None:
    """Replace the file as a whole; `new` refuses to replace one."""
    advice = "name another file, or install a key in this one" if new else ""
    _save(path, "keyring", keyring_text(keyring), advice)


def save_identity(path: Path, identity: Identity) -> None:
    """Into a new file."""
    _save(path, "identity", named_key_text(*identity), "name another file")


def _save(path: Path, what: str, text: str, new: str) -> None:
    """As a whole, or not at all. `new`: what to do if the file exists; else it is replaced."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)  # Of a process that was killed.
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(beside, path)  # Fails if it exists, even since a moment ago.
        else:
            os.replace(beside, path)
        beside.unlink(missing_ok=True)
    except FileExistsError:
        beside.unlink(missing_ok=True)
        raise Misuse(f"{what} {path} exists: {new}") from None
    except OSError as error:
        raise Misuse(f"{what} {path} cannot be written: {error.strerror}") from None


class KeyFileWatch:
    """Reads files of keys again when they have changed, and are no longer being written. One that
    cannot be read changes nothing."""

    def __init__(self, readers: dict[Path, Callable[[Path], None]]) -> None:
        """What is done with each file; those that are not there are not watched."""
        self._readers = readers
        self._stamps = {path: stamp for path in readers if (stamp := _stamp(path)) is not None}
        self._seen = dict(self._stamps)
        self._alarm: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._stamps:
            self._alarm = loop.call_later(RELOAD_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for path, before in self._stamps.items():
            stamp = _stamp(path)
            if stamp is None or stamp == before:
                continue
            if stamp != self._seen[path]:
                self._seen[path] = stamp  # Half a file may be a keyring, with half the keys.
                continue
            self._stamps[path] = stamp
            try:
                self._readers[path](path)
                log.info("%s was read again", path)
            except Misuse as error:
                log.warning("%s; the keys stay as they are", error)
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
