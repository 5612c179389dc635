"""State diagrams as tables of arrows: run, drawn and counted from one source.

Read a row aloud: *in SEEKING, on a Welcome, when it is for me, do enter, to MEMBER.* The first row
that holds wins; each (state, event) ends in a row without a guard; `on=None` is *as soon as*,
followed after each event until none holds. Only the engine assigns the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from unisono.core import Effect, Expired

On: TypeAlias = type | Enum | None
"""An event's class, a timer, or None for *as soon as*."""
Guard: TypeAlias = Callable[[Any, Any], bool]
Action: TypeAlias = Callable[[Any, Any, list[Effect]], None]

SOON_MAX: Final = 100
"""More *as soon as* arrows than this after one event: the figure never settles."""


class Named(Enum):
    """Base of timers and states, which are looked up often."""

    __hash__ = object.__hash__  # Enum's own hashes the name: ten times as slow.


def always(me: Any, event: Any) -> bool:
    """The guard of the last row of each (state, event)."""
    return True


def stay(me: Any, event: Any, out: list[Effect]) -> None:
    """Discards the event; drawn in the figure."""


def impossible(me: Any, event: Any, out: list[Effect]) -> None:
    """Marks an impossible event: following this arrow is a bug of ours."""
    raise AssertionError(f"impossible event: {event!r}")


class Arrow(NamedTuple):
    """One arrow of the figure. `source` may be several states that share it."""

    source: Enum | tuple[Enum, ...]
    on: On
    when: Guard
    do: Action
    to: Enum | None
    """None is *the same state*."""


class Step(NamedTuple):
    """An arrow as it stands in one state."""

    when: Guard
    do: Action
    to: Enum
    name: str


def name_of(on: On) -> str:
    """An event as figures and traces name it."""
    if on is None:
        return "soon"
    return on.name if isinstance(on, Enum) else on.__name__


def discarded(arrows: Sequence[Arrow], states: Iterable[Enum], events: Iterable[On]) -> list[Arrow]:
    """For each state and event that these arrows do not mention, one that discards it."""
    known = {
        (source, arrow.on)
        for arrow in arrows
        for source in (arrow.source if isinstance(arrow.source, tuple) else (arrow.source,))
    }
    rest = ((state, on) for state in states for on in events if (state, on) not in known)
    return [Arrow(state, on, always, stay, None) for state, on in rest]


@dataclass(frozen=True)
class Figure:
    """A state diagram, shared by the machines that run it. `undecided` checks it."""

    name: str
    start: Enum
    arrows: tuple[Arrow, ...]

    def __post_init__(self) -> None:
        index: dict[tuple[Enum, On], list[Step]] = {}
        for arrow in self.arrows:
            sources = arrow.source if isinstance(arrow.source, tuple) else (arrow.source,)
            for source in sources:
                to = source if arrow.to is None else arrow.to
                guard = "" if arrow.when is always else f"[{arrow.when.__name__}]"
                label = (
                    f"{source.name} --{name_of(arrow.on)}{guard}/{arrow.do.__name__}--> {to.name}"
                )
                step = Step(arrow.when, arrow.do, to, label)
                index.setdefault((source, arrow.on), []).append(step)
        rows: dict[Enum, dict[On, list[Step]]] = {state: {} for state in type(self.start)}
        for (state, on), steps in index.items():
            rows[state][on] = steps
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "rows", rows)

    index: Mapping[tuple[Enum, On], list[Step]] = None  # type: ignore[assignment]
    rows: Mapping[Enum, Mapping[On, list[Step]]] = None  # type: ignore[assignment]
    """The same, by state."""

    def states(self) -> list[Enum]:
        return list(type(self.start))

    def events(self) -> list[On]:
        """The events of the figure, in the order of first mention."""
        return list(dict.fromkeys(arrow.on for arrow in self.arrows if arrow.on is not None))

    def names(self) -> list[str]:
        """The names of all arrows."""
        return [step.name for steps in self.index.values() for step in steps]

    def undecided(self) -> list[str]:
        """What is wrong with the figure, in sentences."""
        wrong = []
        for state in self.states():
            for on in self.events():
                steps = self.index.get((state, on), [])
                if not steps or steps[-1].when is not always:
                    wrong.append(f"{self.name}: {state.name} on {name_of(on)} is undecided")
                for step in steps[:-1]:
                    if step.when is always:
                        wrong.append(f"{self.name}: rows after {step.name} are never reached")
            for step in self.index.get((state, None), []):
                if step.when is always:
                    wrong.append(f"{self.name}: {step.name} would never stop")
        reached = {self.start} | {s.to for steps in self.index.values() for s in steps}
        wrong += [
            f"{self.name}: {s.name} is never reached" for s in self.states() if s not in reached
        ]
        return wrong

    def mermaid(self) -> str:
        """The diagram as text that documentation sites draw. What leads from a state to itself is
        listed in the state; discarding is left out."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.start.name}"]
        merged: dict[tuple[str, str], list[str]] = {}
        for (source, on), steps in self.index.items():
            for step in steps:
                if step.do is stay or step.do is impossible:
                    continue
                guard = "" if step.when is always else f" [{step.when.__name__}]"
                words = f"{name_of(on)}{guard} / {step.do.__name__}"
                merged.setdefault((source.name, step.to.name), []).append(words)
        for (source_name, to_name), labels in merged.items():
            if source_name == to_name:
                lines.append(f'    state "{source_name}" as {source_name}')
                lines += [f"    {source_name}: {label}" for label in labels]
            else:
                lines.append(f"    {source_name} --> {to_name}: {'<br/>'.join(labels)}")
        return "\n".join(lines)


class BoundStep(NamedTuple):
    """A step whose guard and action know their part."""

    when: Callable[[Any], bool] | None
    """None is *always*."""
    do: Callable[[Any, list[Effect]], None]
    to: Enum
    name: str


def bound(function: Callable[..., Any], parts: Sequence[Any]) -> Callable[..., Any]:
    """The method of the part whose class the table names; a plain function gets the first part.

    Looked up by name, so that a part may be of a derived class.
    """
    at, name = _owner(function, *map(type, parts))
    method: Callable[..., Any] = getattr(parts[at], name) if name else partial(function, parts[0])
    return method


@cache  # All machines of a figure have parts of the same classes.
def _owner(function: Callable[..., Any], *kinds: type) -> tuple[int, str]:
    """Which part the method belongs to, and its name; no name for a plain function."""
    owner, _, name = function.__qualname__.rpartition(".")
    if not owner or owner.endswith("<locals>"):
        return 0, ""
    for at, kind in enumerate(kinds):
        if any(each.__qualname__ == owner for each in kind.__mro__):
            return at, name
    raise AssertionError(f"{function.__qualname__}: no part is a {owner}")


class Machine:
    """A figure at work for the parts that do what its arrows name: one of each class."""

    __slots__ = (
        "_at",
        "_bound",
        "_parts",
        "_prefix",
        "_rows",
        "_soon",
        "figure",
        "state",
        "walked",
    )

    def __init__(self, figure: Figure, *parts: Any, walked: dict[str, int] | None = None) -> None:
        self.figure = figure
        self.state = figure.start
        self.walked: dict[str, int] = {} if walked is None else walked
        """How often each arrow was taken. The machines of a core may share it: there the name of
        an arrow begins with its figure's."""
        self._prefix = "" if walked is None else f"{figure.name}: "
        self._parts = parts
        self._bound: dict[
            Enum, tuple[dict[On, list[BoundStep]], tuple[Callable[[Any], bool], ...]]
        ] = {}
        self._look_up()

    def _look_up(self) -> None:
        """The rows of the current state, looked up when it changes."""
        self._at = self.state
        try:
            self._rows, self._soon = self._bound[self.state]
        except KeyError:
            self._rows = {}
            never_stops = bound(always, self._parts)
            self._soon = tuple(when or never_stops for when, _, _, _ in self._steps(None))
            self._bound[self.state] = self._rows, self._soon

    def _steps(self, on: On) -> list[BoundStep]:
        """The arrows of the state for this event, bound to their parts at first use."""
        steps = self._rows[on] = [
            BoundStep(
                None if when is always else bound(when, self._parts),
                bound(do, self._parts),
                to,
                self._prefix + name,
            )
            for when, do, to, name in self.figure.rows[self.state].get(on, ())
        ]
        return steps

    def fire(self, event: Any, out: list[Effect]) -> None:
        """Follow the arrow that the event takes, then every *as soon as* that holds."""
        on: On = type(event)
        if on is Expired:
            timer = event.timer
            on = timer[0] if type(timer) is tuple else timer
        self.take(on, event, out)

    def take(self, on: On, event: Any, out: list[Effect]) -> None:
        """As `fire`, for an event that the figure knows under another name."""
        if self.state is not self._at:
            self._look_up()
        rows = self._rows
        for when, do, to, name in rows[on] if on in rows else self._steps(on):
            if when is None or when(event):
                try:
                    self.walked[name] += 1
                except KeyError:
                    self.walked[name] = 1
                do(event, out)
                if to is not self._at:
                    self.state = to
                    self._look_up()
                break
        else:
            raise AssertionError(
                f"{self.figure.name}: {self.state.name} on {name_of(on)} undecided"
            )
        for when in self._soon:
            if when(event):
                self.settle(event, out)
                return

    def settle(self, event: Any, out: list[Effect]) -> None:
        """Follow every *as soon as* that holds."""
        for _ in range(SOON_MAX):
            if self.state is not self._at:
                self._look_up()
            for when, do, to, name in self._rows[None]:
                if when is None or when(event):
                    self.walked[name] = self.walked.get(name, 0) + 1
                    do(event, out)
                    self.state = to
                    break
            else:
                return
        raise AssertionError(f"{self.figure.name}: {self.state.name} never settles")


def unwalked(figure: Figure, walks: Iterable[Mapping[str, int]]) -> list[str]:
    """The arrows that no run followed."""
    seen = {name for walk in walks for name, count in walk.items() if count}
    return [name for name in figure.names() if name not in seen]
