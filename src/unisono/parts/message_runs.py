"""Messages on their way to the application that nobody has looked at: not cut apart yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple, overload

from unisono.model import Member, Message, ServiceLevel
from unisono.wire import cut

_message = partial(tuple.__new__, Message)


class MessageRun(NamedTuple):
    """Messages of one sender in a row, not cut apart yet: of one length, or each of its own."""

    sender: Member
    octets: bytes
    start: int
    """Where in the octets the first of them begins; the others follow side by side."""
    length: int
    times: int
    number: int
    """Of the first, as its place."""
    view: str
    seq: int
    service: ServiceLevel
    lengths: tuple[int, ...] = ()
    """Of each, where they differ; `length` is then that of all together."""

    @property
    def size(self) -> int:
        """Of all."""
        return self.length if self.lengths else self.times * self.length

    @staticmethod
    def of(message: Message) -> MessageRun:
        """One message."""
        sender, payload, number, view, seq, service = message
        return MessageRun(sender, payload, 0, len(payload), 1, number, view, seq or 0, service)

    def payloads(self) -> list[bytes]:
        octets, at, length, times = self.octets, self.start, self.length, self.times
        if self.lengths:
            ends = accumulate(self.lengths, initial=at)
            return [octets[start:end] for start, end in pairwise(ends)]
        if not length:
            return [b""] * times
        if times == 1 and length == len(octets):
            return [octets]
        return cut(octets, at, length, times)

    def messages(self) -> Iterator[Message]:
        """Made all at once they cost a third of what one by one would."""
        sender, _, _, _, times, number, view, seq, service, _ = self
        numbers, places = range(number, number + times), range(seq, seq + times)
        rows = zip(repeat(sender), self.payloads(), numbers, repeat(view), places, repeat(service))
        return map(_message, rows)

    def message(self, index: int) -> Message:
        """One of them."""
        alone = self.parted(index)[1].parted(1)[0]
        return next(alone.messages())

    def parted(self, count: int) -> tuple[MessageRun, MessageRun]:
        """The first so many, and the others."""
        lengths, length, octets = self.lengths, self.length, count * self.length
        rest = self._replace(
            times=self.times - count, number=self.number + count, seq=self.seq + count
        )
        if lengths:
            length = octets = sum(lengths[:count])
            rest = rest._replace(length=self.length - octets, lengths=lengths[count:])
        first = self._replace(times=count, length=length, lengths=lengths[:count])
        return first, rest._replace(start=self.start + octets)


class MessageRuns(Sequence[Message]):
    """Messages that are made when somebody looks at them. A protocol so hands over what is to be
    delivered, and the world can send before it delivers."""

    __slots__ = ("_count", "_made", "_spans", "octets")

    def __init__(self, spans: Sequence[MessageRun]) -> None:
        self._spans = spans
        self._made: list[Message] | None = None
        self._count = sum([span.times for span in spans])
        self.octets = sum([span.size for span in spans])
        """Of their payloads."""

    def payloads(self) -> list[bytes]:
        """What they say, without the messages around it."""
        if self._made is not None:
            return [message.payload for message in self._made]
        if len(self._spans) == 1:
            return self._spans[0].payloads()
        return [payload for span in self._spans for payload in span.payloads()]

    def last_place(self) -> int | None:
        if self._made is not None:
            return self._made[-1].seq
        return self._spans[-1].seq + self._spans[-1].times - 1

    def last_number(self, sender: Member | None) -> int:
        """Of the last message of this sender; 0 if there is none."""
        if self._made is not None:
            return next((m.number for m in reversed(self._made) if m.sender == sender), 0)
        last = (s.number + s.times - 1 for s in reversed(self._spans) if s.sender == sender)
        return next(last, 0)

    def of(self, sender: Member | None, numbers: Collection[int]) -> list[Message]:
        """The messages of this sender with these numbers."""
        if self._made is not None:
            return [m for m in self._made if m.sender == sender and m.number in numbers]
        found: list[Message] = []
        for run in self._spans:
            if run.sender == sender:
                row = range(run.number, run.number + run.times)
                some = row if len(row) <= len(numbers) else [n for n in numbers if n in row]
                found += [run.message(n - run.number) for n in some if n in numbers]
        return found

    def parted(self, count: int) -> tuple[MessageRuns, MessageRuns]:
        """The first so many, and the others."""
        if self._made is not None:
            return _looked_at(self._made[:count]), _looked_at(self._made[count:])
        first, rest = list[MessageRun](), list(self._spans)
        while count and count >= rest[0].times:
            first.append(rest.pop(0))
            count -= first[-1].times
        if count:
            part, rest[0] = rest[0].parted(count)
            first.append(part)
        return MessageRuns(first), MessageRuns(rest)

    def _all(self) -> list[Message]:
        if self._made is None:
            self._made = [message for span in self._spans for message in span.messages()]
            self._spans = ()
        return self._made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> list[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | list[Message]:
        return self._all()[at]


def _looked_at(messages: list[Message]) -> MessageRuns:
    return MessageRuns(list(map(MessageRun.of, messages)))
