"""What a daemon is to do for its own clients, as the registry decides."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from unisono.client.frames import PlacedFrame
from unisono.core import Answer
from unisono.model import Buffer, View


class DeliverBundle(NamedTuple):
    """Deliver this bundle to these clients."""

    to: tuple[int, ...]
    sender: bytes
    number: int
    seq: int
    code: int
    k: int
    bundle: Buffer
    messages: int


class ReportPlace(NamedTuple):
    """Report to this client what became of messages that it sent to other groups."""

    to: int
    placed: PlacedFrame


class InstallView(NamedTuple):
    """Put the view into the streams of these clients; those that are new get all of it."""

    to: tuple[int, ...]
    view: View
    new: tuple[int, ...]


class CaptureState(NamedTuple):
    """Request this client's state as of here."""

    giver: int
    key: bytes


class HoldBack(NamedTuple):
    """Hold back deliveries to this client from here on, until its state has come. What was held
    before will be in that state."""

    number: int


class AdoptState(NamedTuple):
    """The state has come: deliver it before what was held back."""

    number: int
    state: Buffer


class Release(NamedTuple):
    """No client is left that has the state: deliver what was held back."""

    number: int


class Disconnect(NamedTuple):
    """The client is not, or no longer, in a group: report the reason to it."""

    number: int
    reason: str


class Parted(NamedTuple):
    """The client has left, as it requested."""

    number: int


class AnswerClient(NamedTuple):
    """The result of the client's request for a lock."""

    number: int
    answer: Answer


Effect: TypeAlias = (
    DeliverBundle
    | ReportPlace
    | InstallView
    | CaptureState
    | HoldBack
    | AdoptState
    | Release
    | Disconnect
    | Parted
    | AnswerClient
)
