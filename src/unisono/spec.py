"""The entry of a protocol in the catalogue: all that the rest of the tree knows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from unisono.core import CoreFactory
from unisono.model import Buffer, Service
from unisono.requests import GroupCommand


def no_text(subject: object) -> str:
    """The default label and advice: none. No lambda, so that a spec can be sent to workers."""
    return ""


def _no_quorum(options: Mapping[str, int]) -> int:
    return 0


def _same_options(index: int, count: int, options: Mapping[str, int]) -> Mapping[str, int]:
    return options


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """A process of a partition that never heals."""

    options: Mapping[str, int]
    inside: bool = True
    """It is in the views of its part, does not leave, and was not excluded since the cut."""
    known: bool = True
    """Its name was in a view of the group."""
    durable: bool = True
    """Its records survive a crash."""


def _any_part(part: Sequence[ProcessRole], forgetful: bool) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """All that the rest of the tree knows of a protocol: its entry in the catalogue."""

    name: str
    make: CoreFactory
    title: str
    services: tuple[Service, ...]
    laws: tuple[str, ...]
    options: Mapping[str, int]
    """Its parameters, with their defaults."""
    wire_number: int
    """The protocol number in the envelope of its packets, unique in the catalogue."""
    resilient: bool = False
    """Whether it offers `Resilient(k)`."""
    levels_overtake: bool = False
    """Whether a weaker message may be delivered before an earlier stronger one, so that messages
    below agreed are in no order with those above."""
    one_history_by: tuple[str, ...] = ()
    """Options with which all that are members at a time have one history, though any part of the
    group may go on: members elsewhere come back as newcomers."""
    requests: tuple[type[GroupCommand], ...] = ()
    """The kinds of requests it takes."""
    label: Callable[[Buffer], str] = no_text
    """A sealed packet as a short label for traces, such as `nak 5.2-5.4`. Never raises: empty for
    bytes that are not a packet."""
    assign_roles: Callable[[int, int, Mapping[str, int]], Mapping[str, int]] = _same_options
    """Index of a process, number of processes and shared options to the options of that process,
    where a group is started as a whole and its protocol assigns roles or needs its size."""
    quorum: Callable[[Mapping[str, int]], int] = _no_quorum
    """Options to the minimum size of a view: 1 if one partition continues, however small, and 0 if
    any may."""
    advice: Callable[[Mapping[str, int]], str] = no_text
    """Options to a sentence: what to do when no member admits the process."""
    may_continue: Callable[[Sequence[ProcessRole], bool], bool] = _any_part
    """Whether a partition with these processes must continue without the others. The flag: some
    processes may have restarted without their records."""
    may_operate: Callable[[Sequence[ProcessRole], bool], bool] = _any_part
    """The same for all processes that there are, together: a group that asks for more than that,
    or for their memory, stands."""
    arrows: tuple[str, ...] = ()
    """The arrows of its figures, by name: simulated faults are aimed at them."""
    swarm: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Values of options that a simulated run with faults chooses from."""
    chaos: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """The same for runs with chaos; None leaves the option unset."""
    token_arrow: str = ""
    """A regular expression of the arrows by which a member gets the token, to measure its rotation;
    empty for a protocol without a token."""
    packet_categories: Mapping[str, str] = field(default_factory=dict)
    """By category of `draw.labels`, first words of labels that only this protocol uses."""
    presets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Named sets of options: for a kind of network, or those of the paper."""
    clustered: ProtocolSpec | None = None
    """The same protocol for a group that spans clusters joined by wide links, where it can."""

    @property
    def is_ordered(self) -> bool:
        """Whether it has one order for all."""
        return Service.AGREED in self.services

    @property
    def has_one_order(self) -> bool:
        """Whether the whole group has one order, also when it splits."""
        return self.is_ordered and "one_primary" in self.laws

    def serves_daemons(self, options: Mapping[str, int]) -> bool:
        """Whether all that are members at a time have one history, as daemons need."""
        chosen = any(options.get(name) for name in self.one_history_by)
        return self.has_one_order or (self.is_ordered and chosen)

    @property
    def ordered_from(self) -> Service:
        """The weakest level that is in the one order, where there is one."""
        one = self.is_ordered and not self.levels_overtake
        return Service.UNRELIABLE if one else Service.AGREED
