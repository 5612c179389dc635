"""A session: one incarnation's connection to its group.

It is a member in this process (`group.member`) or a client of the machine's daemon
(`client.session`). A `Group` opens one after the other and is the same over either kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Protocol

from unisono.core import Cause, Request
from unisono.model import Member, Message, ServiceLevel, View
from unisono.net.handle import Placement
from unisono.net.stream import Entry
from unisono.requests import GroupCommand
from unisono.spec import ProtocolSpec


class Session(Protocol):
    """What a group asks of its current session."""

    @property
    def finished(self) -> bool: ...

    @property
    def cause(self) -> Cause | None:
        """Why the protocol stopped it, if it did."""

    @property
    def warning(self) -> str:
        """Why it makes no progress, as in a minority; empty while it does."""

    def start(self) -> None: ...

    def send_credit(self) -> int:
        """How many more bytes may be submitted now; 0 is a full window."""

    def submit(
        self, messages: Sequence[bytes], service: ServiceLevel, groups: tuple[str, ...]
    ) -> None:
        """Multicast these, in this order. No `groups` means the session's own group."""

    def request(self, request: Request) -> None: ...

    def congested(self, on: bool) -> None:
        """The application's queue is full, or is no longer."""

    def leave(self) -> None:
        """Leave cleanly; `ended` reports it."""

    def fail(self, reason: str) -> None:
        """Stop now, for a reason of the application; announce it to the others once."""

    def close(self) -> None:
        """Stop now and report nothing. Idempotent."""

    def counts(self) -> Counter[str]: ...

    def describe(self) -> str:
        """What it has tried to reach the group, for an error message."""


class SessionEvents(Protocol):
    """What a session reports. No call may block; any may call the session."""

    def opened(self, me: Member) -> None:
        """The session has its identity; nothing was sent or received yet."""

    def deliver(self, messages: Sequence[Message]) -> None: ...

    def put(self, entry: Entry) -> None:
        """A notice or a mark, in its order in the stream."""

    def place(self, placed: Placement) -> None:
        """What became of messages to other groups."""

    def adopt(self, state: bytes) -> None: ...

    def install(self, view: View) -> None: ...

    def has_woken(self) -> bool:
        """A reader was woken by a few messages: it comes before what else arrives."""

    def stepped(self) -> None:
        """`send_credit()` may have changed."""

    def ended(self, reason: str | None) -> None:
        """The session is over: cleanly, or for this reason."""


class SessionFactory(Protocol):
    """Opens the sessions of one group, each a new incarnation of the same name."""

    @property
    def name(self) -> str:
        """Of the member."""

    @property
    def spec(self) -> ProtocolSpec:
        """The protocol, as far as it is known before the first session."""

    @property
    def default_level(self) -> ServiceLevel: ...

    @property
    def message_bytes_max(self) -> int:
        """The largest message that a session accepts, including headers if the group is
        replayable. Known once a session is open."""

    @property
    def founds(self) -> bool:
        """Whether a session that finds no members founds the group. Several that start together
        may then each found one; a session that founds none fails if it is not admitted."""

    @property
    def holds(self) -> bool:
        """Whether the members of a view hold its messages. Otherwise their daemons do."""

    def level(self, asked: ServiceLevel | str) -> ServiceLevel:
        """The level of this name. `Misuse` if the protocol does not offer it."""

    def groups(self, to: str | Sequence[str]) -> tuple[str, ...]:
        """The groups a message is addressed to. `Misuse` if the session reaches only its own."""

    @property
    def requests(self) -> tuple[type[GroupCommand], ...]:
        """The kinds of requests that a session takes."""

    def advice(self) -> str:
        """What to do when no member admits the session; may be empty."""

    async def open(self, events: SessionEvents) -> Session:
        """The next incarnation, about to be started."""


SESSIONS: ContextVar[Callable[..., SessionFactory] | None] = ContextVar("SESSIONS", default=None)
"""Opens sessions in another world than that of sockets, in a program that is simulated."""
