"""What a daemon is to do for its own clients, as the registry decides."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.core import Answer
from unisono.model import Buffer, View


class DeliverBundle(NamedTuple):
    """Hand this bundle to these clients."""

    to: tuple[int, ...]
    sender: bytes
    number: int
    seq: int
    code: int
    k: int
    bundle: Buffer
    messages: int


class InstallView(NamedTuple):
    """Put the view into the streams of these clients; who is new among them needs all of it."""

    to: tuple[int, ...]
    view: View
    new: tuple[int, ...]


class CaptureState(NamedTuple):
    """This client is to give its state as it is here."""

    giver: int
    key: bytes


class HoldBack(NamedTuple):
    """Hold back what comes for this client, from here on, until its state is there. What was held
    before will be in that state."""

    number: int


class AdoptState(NamedTuple):
    """The state is there: it goes before what was held back."""

    number: int
    state: Buffer


class Release(NamedTuple):
    """Nobody is left to give the state: what was held back is all there is."""

    number: int


class Disconnect(NamedTuple):
    """The client is not in a group, or not any more: it is told why."""

    number: int
    reason: str


class Parted(NamedTuple):
    """The client is out, as it asked."""

    number: int


class AnswerClient(NamedTuple):
    """The result of the client's request for a lock."""

    number: int
    answer: Answer


Effect: TypeAlias = (
    DeliverBundle
    | InstallView
    | CaptureState
    | HoldBack
    | AdoptState
    | Release
    | Disconnect
    | Parted
    | AnswerClient
)
