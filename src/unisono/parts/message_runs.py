"""Messages on their way to the application, not cut apart until they are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import repeat
from typing import NamedTuple, TypeAlias, overload

from unisono.model import Member, Message, ServiceLevel
from unisono.wire import cut

_message = partial(tuple.__new__, Message)

Unread: TypeAlias = tuple[int, Callable[[], Message]]
"""A message's number, and the function that makes the message when it is read."""


class MessageRun(NamedTuple):
    """Messages of one sender in a row, not cut apart yet: of one length, or each of its own."""

    sender: Member
    data: bytes
    start: int
    """Where in `data` the first of them begins; the others follow without gaps."""
    length: int
    times: int
    number: int
    """Of the first, as its sequence number."""
    view: str
    seq: int | None
    """None outside the total order."""
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
        return MessageRun(sender, payload, 0, len(payload), 1, number, view, seq, service)

    def payloads(self) -> list[bytes]:
        data, at, length, times = self.data, self.start, self.length, self.times
        if self.lengths:
            source = BytesIO(data)  # It cuts three times as fast as slices do.
            source.seek(at)
            return list(map(source.read, self.lengths))
        if not length:
            return [b""] * times
        if times == 1 and length == len(data):
            return [data]
        return cut(data, at, length, times)

    def messages(self) -> Iterator[Message]:
        """Made all at once they cost a third of what one by one would."""
        sender, _, _, _, times, number, view, seq, service, _ = self
        numbers = range(number, number + times)
        seqs = repeat(None) if seq is None else range(seq, seq + times)
        rows = zip(repeat(sender), self.payloads(), numbers, repeat(view), seqs, repeat(service))
        return map(_message, rows)

    def message(self, index: int) -> Message:
        """One of them."""
        sender, data, at, length, _, number, view, seq, service, lengths = self
        at += sum(lengths[:index]) if lengths else index * length
        payload = data[at : at + (lengths[index] if lengths else length)]
        place = None if seq is None else seq + index
        return Message(sender, payload, number + index, view, place, service)

    def parted(self, count: int) -> tuple[MessageRun, MessageRun]:
        """The first `count`, and the others."""
        lengths, length, nbytes = self.lengths, self.length, count * self.length
        seq = None if self.seq is None else self.seq + count
        rest = self._replace(times=self.times - count, number=self.number + count, seq=seq)
        if lengths:
            length = nbytes = sum(lengths[:count])
            rest = rest._replace(length=self.length - nbytes, lengths=lengths[count:])
        first = self._replace(times=count, length=length, lengths=lengths[:count])
        return first, rest._replace(start=self.start + nbytes)


class MessageRuns(Sequence[Message]):
    """Messages that are made when they are read. A protocol so hands over what is to be
    delivered, and the world can send before it delivers."""

    __slots__ = ("_count", "_made", "_spans", "nbytes")

    def __init__(self, spans: Sequence[MessageRun]) -> None:
        self._spans = spans
        self._made: list[Message] | None = None
        self._count = self.nbytes = 0
        """Of the messages, and of their payloads."""
        for _, _, _, length, times, _, _, _, _, lengths in spans:
            self._count += times
            self.nbytes += length if lengths else times * length

    def payloads(self) -> list[bytes]:
        """Their payloads, without making messages."""
        if self._made is not None:
            return [message.payload for message in self._made]
        if len(self._spans) == 1:
            return self._spans[0].payloads()
        return [payload for span in self._spans for payload in span.payloads()]

    def last_seq(self) -> int | None:
        if self._made is not None:
            return self._made[-1].seq
        last = self._spans[-1]
        return None if last.seq is None else last.seq + last.times - 1

    def last_number(self, sender: Member | None) -> int:
        """The highest of this sender; 0 if it has none here."""
        if self._made is not None:
            return last_number(self._made, sender)
        return max([s.number + s.times - 1 for s in self._spans if s.sender == sender], default=0)

    def note_last_numbers(self, last: dict[Member, int]) -> None:
        """By sender, the highest number of its messages."""
        if self._made is not None:
            note_last_numbers(self._made, last)
            return
        for sender, _, _, _, times, number, _, _, _, _ in self._spans:
            last[sender] = max(last.get(sender, 0), number + times - 1)

    def numbers_of(self, sender: Member | None) -> list[range]:
        """Those of this sender, as they are delivered."""
        if self._made is not None:
            return own_numbers(self._made, sender)
        return [range(s.number, s.number + s.times) for s in self._spans if s.sender == sender]

    def of(self, sender: Member | None, numbers: Collection[int]) -> list[Unread]:
        """The messages of this sender with these numbers."""
        if self._made is not None:
            return unread(self._made, sender, numbers)
        found: list[Unread] = []
        wanted = sorted(numbers)
        for run in self._spans:
            if run.sender == sender:
                start = bisect_left(wanted, run.number)
                end = bisect_left(wanted, run.number + run.times, start)
                found += [(n, partial(run.message, n - run.number)) for n in wanted[start:end]]
        return found

    def parted(self, count: int) -> tuple[MessageRuns, MessageRuns]:
        """The first `count`, and the others."""
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


def note_last_numbers(messages: Sequence[Message], last: dict[Member, int]) -> None:
    """By sender, the highest number of its messages."""
    if isinstance(messages, MessageRuns):
        messages.note_last_numbers(last)
        return
    for sender, _, number, *_ in messages:
        last[sender] = max(last.get(sender, 0), number)


def own_numbers(messages: Sequence[Message], sender: Member | None) -> list[range]:
    """The numbers of this sender's messages, as they are delivered."""
    if isinstance(messages, MessageRuns):
        return messages.numbers_of(sender)
    return [range(m.number, m.number + 1) for m in messages if m.sender == sender]


def last_number(messages: Sequence[Message], sender: Member | None) -> int:
    """The highest of this sender; 0 if it has none here. It may stand before a lower one, of a
    stronger level, which it overtook."""
    if isinstance(messages, MessageRuns):
        return messages.last_number(sender)
    return max([each.number for each in messages if each.sender == sender], default=0)


def unread(
    messages: Sequence[Message], sender: Member | None, numbers: Collection[int]
) -> list[Unread]:
    """The messages of this sender with these numbers."""
    if isinstance(messages, MessageRuns):
        return messages.of(sender, numbers)
    own = [each for each in messages if each.sender == sender and each.number in numbers]
    return [(each.number, partial(_itself, each)) for each in own]


def _itself(message: Message) -> Message:
    return message
