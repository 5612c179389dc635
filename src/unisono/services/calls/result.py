"""What a call returns: the answer of each member, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from unisono.errors import UnisonoError
from unisono.model import Member


class Answers(Enum):
    """How many members have to answer a call."""

    ONE = "one"
    MAJORITY = "majority"
    """More than half of the view in which the call is delivered."""
    ALL = "all"

    def needed(self, count: int) -> int:
        """Answers needed of this many members."""
        if self is Answers.ONE:
            return 1
        return count // 2 + 1 if self is Answers.MAJORITY else count


class Reason(IntEnum):
    """Why a member gave no answer."""

    LEFT = 1
    FAILED = 2
    """It crashed, or was excluded."""
    RAISED = 3
    """Its handler raised; the text is the exception's."""
    NO_HANDLER = 4
    TOO_LARGE = 5
    """Its answer exceeded the caller's `answer_bytes_max`."""
    BUSY = 6
    """A bound was reached; the text names it."""
    TIMED_OUT = 7
    ABSENT = 8
    """It was not in the view in which the call was delivered."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a member gave no answer."""

    reason: Reason
    text: str = ""

    def __str__(self) -> str:
        name = self.reason.name.lower().replace("_", " ")
        return f"{name}: {self.text}" if self.text else name


@dataclass(frozen=True, slots=True)
class CallResult:
    """The outcome of a call, member by member."""

    wanted: Answers
    members: tuple[Member, ...]
    """The view in which the call was delivered; empty if it is not known here."""
    answers: Mapping[Member, bytes]
    """In the order of arrival."""
    failures: Mapping[Member, CallFailure]

    @property
    def enough(self) -> bool:
        """Whether as many members answered as were asked for."""
        if not self.members:
            return self.wanted is Answers.ONE and bool(self.answers)
        return len(self.answers) >= self.wanted.needed(len(self.members))

    @property
    def pending(self) -> tuple[Member, ...]:
        """Members that had neither answered nor failed when there were enough answers."""
        return tuple(m for m in self.members if m not in self.answers and m not in self.failures)

    @property
    def first(self) -> bytes:
        """The answer that came first."""
        return next(iter(self.answers.values()))

    def by_name(self) -> dict[str, bytes]:
        """The answers by the names of the members."""
        return {member.name: answer for member, answer in self.answers.items()}

    def __str__(self) -> str:
        count = f"{len(self.answers)} of {len(self.members) or '?'} answered"
        failures = "; ".join(f"{member.name} {why}" for member, why in self.failures.items())
        return f"{count}, {self.wanted.value} wanted" + (f" ({failures})" if failures else "")


class TooFewAnswers(UnisonoError):
    """Fewer members answered than the call asked for; `result` has the answers and the failures."""

    def __init__(self, result: CallResult, hint: str = "") -> None:
        super().__init__(f"{result}{hint}")
        self.result = result


class CallInterrupted(UnisonoError):
    """The caller left the group, or was excluded, before the call was complete: members may have
    executed it. `result` has the answers that came before."""

    def __init__(self, result: CallResult, reason: str) -> None:
        super().__init__(f"the caller is no longer in the group ({reason}): {result}")
        self.result = result
        self.reason = reason
