"""Frames of the local socket for requests about locks, and their answers."""

from __future__ import annotations

from typing import NamedTuple

from unisono.core import Answer, Cause
from unisono.errors import BadPacket
from unisono.fields import U8, U64, Bit
from unisono.requests import AcquireLock, ReleaseLock


class LockFrame(NamedTuple):
    """A request for one of the group's locks, or its release."""

    key: U64
    """Returned in the answer."""
    number: U8
    release: Bit
    wait: Bit

    @classmethod
    def of(cls, key: int, command: AcquireLock | ReleaseLock) -> LockFrame:
        if isinstance(command, ReleaseLock):
            return cls(key, command.number, True, False)
        return cls(key, command.number, False, command.wait)

    def command(self) -> AcquireLock | ReleaseLock:
        return ReleaseLock(self.number) if self.release else AcquireLock(self.number, self.wait)


class AnswerFrame(NamedTuple):
    key: U64
    what: str
    cause: str
    """Why it was denied; empty if granted."""
    detail: str

    @classmethod
    def of(cls, answer: Answer) -> AnswerFrame:
        cause = answer.cause.value if answer.cause is not None else ""
        return cls(answer.key, answer.what, cause, answer.detail)

    def answer(self) -> Answer:
        try:
            cause = Cause(self.cause) if self.cause else None
        except ValueError:
            raise BadPacket("cause") from None
        return Answer(self.what, cause, self.detail, self.key)
