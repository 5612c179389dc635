"""Every way in which three replicas may go through two changes of view, with a crash at any write.

    python -m tests.replication.explorer

All three are together, each with an update of its own. At each change any of them crashes, or none,
with any part of a write on its disk; the others have come as far as they may have, and go on in any
parts; one that has crashed is back, or not. Then all meet. What happens in one view follows from
its messages, so a change of view is named by how far each member has come.
"""

from __future__ import annotations

import argparse
import io
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from tests.replication.world import ReplicaWorld, SimReplica
from unisono.services.replication.effects import RegularView, TransitionalView
from unisono.services.replication.engine import ReplicaEngine
from unisono.services.replication.figure import FIGURE
from unisono.services.replication.records import Update

NAMES: Final = ("a", "b", "c")
CHANGES: Final = 2


class Broken(AssertionError):
    pass


class ModelReplica(SimReplica):
    """It also keeps what it has told, in all its lives."""

    def __init__(self, world: Model, name: str, at: int) -> None:
        super().__init__(world, name, at, list(NAMES))
        self.order: tuple[str, ...] = ()
        """Its green updates."""
        self.reds: tuple[int, ...] = ()
        """The numbers of its own updates that it has reported logged."""
        self.stable = 0


class Model(ReplicaWorld):
    """The world of replicas whose order of events is given."""

    def __init__(self, seed: int, names: str) -> None:
        super().__init__(seed, names)
        self.posts: list[tuple[str, bytes]] = []

    def note(
        self,
        name: str,
        what: str,
        position: int = 0,
        update: Update | None = None,
        members: tuple[str, ...] = (),
    ) -> None:
        replica = self.replicas[name]
        assert isinstance(replica, ModelReplica)
        if what == "green" and update is not None:
            if position != len(replica.order) + 1:
                raise Broken(f"{name}: position {position} after {replica.order}")
            replica.order += (f"{update.submitter}:{update.number}",)
        elif what == "red" and update is not None:
            replica.reds += (update.number,)
        elif what == "stable":
            replica.stable = position
        elif what == "started" and position < len(replica.order):
            raise Broken(f"{name} had told {replica.order}, and has {position} of it")

    def send(self, name: str, payload: bytes) -> None:
        self.posts.append((name, payload))


class _Pickler(pickle.Pickler):
    world: Model

    def persistent_id(self, each: Any) -> str | None:
        return "figure" if each is FIGURE else "world" if each is self.world else None


class _Unpickler(pickle.Unpickler):
    world: Model

    def persistent_load(self, key: str) -> Any:
        return FIGURE if key == "figure" else self.world


class Taken(NamedTuple):
    """A member after an action."""

    state: bytes
    taken: int
    """So many messages of the view it has taken."""
    sent: int
    """So many it has sent."""
    written: tuple[bytes, ...]
    """The records of the write that the action needed."""


class Course(NamedTuple):
    """A view up to its quiet end."""

    names: tuple[str, ...]
    messages: list[tuple[str, bytes]]
    posted: dict[str, list[int]]
    """By member, the places of its messages among all."""
    steps: dict[str, list[Taken]]


class World(NamedTuple):
    """The members at a change of view, by name, and the parts in which they go on."""

    members: tuple[bytes, ...]
    parts: tuple[tuple[str, ...], ...]
    has_crashed: bool = False
    story: tuple[str, ...] = ()
    """How it came to this, in one of all ways."""


class Explorer:
    def __init__(self, thin: int = 1, worlds_max: int = 1 << 30) -> None:
        self._model = Model(0, "")
        self._thin, self._worlds_max = thin, worlds_max
        """Of so many changes of view one is followed, and of the worlds after all of them at most
        so many."""
        self.changes = self.ends = 0
        self._numbers: dict[Any, int] = {}
        """Of the states of members."""

    def explore(self) -> None:
        """`Broken` where a law is."""
        for at, name in enumerate(NAMES, 1):
            replica = self._model.replicas[name] = ModelReplica(self._model, name, at)
            replica.begin()
        worlds = [World(tuple(map(self._packed, NAMES)), (NAMES,))]
        for _ in range(CHANGES):
            after: dict[Any, World] = {}
            for world in worlds:
                self._change(world, after)
            found = list(after.values())
            worlds = found[:: -(-len(found) // self._worlds_max)]
        for world in worlds:
            self.ends += 1
            self._end(world)

    # -- states -----------------------------------------------------------------------------------

    def _packed(self, name: str) -> bytes:
        out = io.BytesIO()
        pickler = _Pickler(out, pickle.HIGHEST_PROTOCOL)
        pickler.world = self._model
        pickler.dump(self._model.replicas[name])
        return out.getvalue()

    def _unpacked(self, packed: bytes) -> ModelReplica:
        unpickler = _Unpickler(io.BytesIO(packed))
        unpickler.world = self._model
        replica: ModelReplica = unpickler.load()
        self._model.replicas[replica.name] = replica
        return replica

    def _replica(self, name: str) -> ModelReplica:
        replica = self._model.replicas[name]
        assert isinstance(replica, ModelReplica)
        return replica

    def _number(self, name: str) -> int:
        """Of its state: the same for states that no future tells apart."""
        replica = self._replica(name)
        again = self._model.engine_of(name, replica.instance, replica.founders)
        again.restore(replica.disk.records)
        state = frozen(replica.engine), frozen(again), replica.order, replica.reds, replica.stable
        return self._numbers.setdefault((name, state), len(self._numbers))

    # -- one view ---------------------------------------------------------------------------------

    def _act(self, name: str, action: Any) -> tuple[bytes, ...]:
        """One action of a member, with all that follows from it. Returns what it wrote."""
        replica = self._replica(name)
        before = len(replica.disk.records)
        if action == "submit":
            replica.submit()
        elif action == "tell":
            replica.tell()
        else:
            replica.stream.append(action)
        self._model.work(name)
        return tuple(replica.disk.records[before:])

    def _course(self, names: tuple[str, ...], view: str, is_last: bool) -> Course:
        """All of the view take its messages in turns, until none is left."""
        posts = self._model.posts
        course = Course(names, [], {name: [] for name in names}, {})
        messages, posted, steps = course.messages, course.posted, course.steps
        for name in names:
            steps[name] = [Taken(self._packed(name), 0, 0, ())]

        def act(name: str, action: Any, taken: int) -> None:
            posts.clear()
            written = self._act(name, action)
            posted[name] += range(len(messages), len(messages) + len(posts))
            messages.extend(posts)
            steps[name].append(Taken(self._packed(name), taken, len(posted[name]), written))

        for name in names:
            act(name, RegularView(view, names), 0)
        for name in () if is_last else sorted({names[0], names[-1]}):
            act(name, "submit", 0)
        at = 0
        while True:
            while at < len(messages):
                for name in names:
                    act(name, messages[at], at + 1)
                at += 1
            telling = [name for name in names if self._replica(name).tells]
            if not (telling and is_last):
                return course
            for name in telling:
                act(name, "tell", at)

    # -- a change of view -------------------------------------------------------------------------

    def _change(self, world: World, after: dict[Any, World]) -> None:
        """All that may follow the views of this world."""
        for packed in world.members:
            self._unpacked(packed)
        depth = len(world.story)
        courses = [self._course(part, f"{depth}-{part[0]}", False) for part in world.parts]
        connected = {name for part in world.parts for name in part}
        down = [name for name in NAMES if name not in connected]
        memo: dict[Any, tuple[int, bytes]] = {}
        for chosen in product(*(self._ends_of(course, world.has_crashed) for course in courses)):
            crashed = [end.crashed for end in chosen if end.crashed]
            if len(crashed) > 1:
                continue
            self.changes += 1
            if self.changes % self._thin:
                continue
            for back in (False, True) if crashed or down else (False,):
                up = [name for name in NAMES if back or not (name in crashed or name in down)]
                for parts in parts_of(up):
                    for lines in product(*(end.lines(parts) for end in chosen)):
                        members = self._members(world, chosen, lines, parts, up, memo)
                        key = (
                            parts,
                            bool(crashed) | world.has_crashed,
                            *(each for each, _ in members),
                        )
                        if key not in after:
                            told = "; ".join(map(ViewEnd.told, chosen, lines))
                            then = " | ".join(map("".join, parts))
                            story = (*world.story, f"{told}; then {then}")
                            states = tuple(state for _, state in members)
                            after[key] = World(states, parts, key[1], story)
                            self._check(after[key])

    def _ends_of(self, course: Course, has_crashed: bool) -> Iterator[ViewEnd]:
        """How far each may have come when the view ends."""
        names = course.names
        for at in product(*(range(len(course.steps[name])) for name in names)):
            steps = {name: course.steps[name][nth] for name, nth in zip(names, at, strict=True)}
            exists = sorted(
                place for name in names for place in course.posted[name][: steps[name].sent]
            )
            most = max(step.taken for step in steps.values())
            if exists[:most] != list(range(most)):
                continue
            end = ViewEnd(course, dict(zip(names, at, strict=True)), tuple(exists), most)
            yield end
            if has_crashed:
                continue
            for crashed, nth in zip(names, at, strict=True):
                yield end._replace(crashed=crashed)
                for writing in course.steps[crashed][nth + 1 : nth + 2]:
                    known = max(most, writing.taken)
                    for count in range(
                        exists[:known] == list(range(known)) and len(writing.written)
                    ):
                        yield end._replace(most=known, crashed=crashed, torn=count + 1)

    def _members(
        self,
        world: World,
        chosen: Sequence[ViewEnd],
        lines: Sequence[dict[str, tuple[int, int]]],
        parts: tuple[tuple[str, ...], ...],
        up: Sequence[str],
        memo: dict[Any, tuple[int, bytes]],
    ) -> list[tuple[int, bytes]]:
        """The numbers and states of all, as they begin the views of these parts."""
        found = []
        for name, packed in zip(NAMES, world.members, strict=True):
            key: Any = name, name in up
            for end, line in zip(chosen, lines, strict=True):
                if name in end.at:
                    key = end.key(name, name in up, line, parts)
            if key not in memo:
                memo[key] = self._after(packed, *key)
            found.append(memo[key])
        return found

    def _after(self, packed: bytes, name: str, is_up: bool, *rest: Any) -> tuple[int, bytes]:
        if not rest:
            replica = self._unpacked(packed)
        elif len(rest) == 3:
            course, nth, torn = rest
            replica = self._unpacked(course.steps[name][nth].state)
            if torn:
                replica.disk.records += course.steps[name][nth + 1].written[:torn]
            replica.crash()
        else:
            course, nth, is_split, regular, transitional = rest
            replica = self._unpacked(course.steps[name][nth].state)
            for place in regular:
                self._act(name, course.messages[place])
            if is_split:
                self._act(name, TransitionalView())
            for place in transitional:
                self._act(name, course.messages[place])
        if is_up and replica.engine is None:
            replica.begin()
        replica.tells = False
        return self._number(name), self._packed(name)

    # -- laws -------------------------------------------------------------------------------------

    def _check(self, world: World) -> None:
        self._check_members([self._unpacked(packed) for packed in world.members], world)

    def _check_members(self, members: Sequence[ModelReplica], world: World) -> None:
        longest = max((each.order for each in members), key=len)
        if len(set(longest)) < len(longest):
            raise Broken(f"an update is there twice: {longest}", world.story)
        for each in members:
            if longest[: len(each.order)] != each.order:
                raise Broken(f"{each.name} has {each.order}, another {longest}", world.story)
            if each.stable > min(len(other.order) for other in members):
                raise Broken(f"{each.name} calls {each.stable} stable", world.story)

    def _end(self, world: World) -> None:
        """The last views, then all together: everything is ordered at all."""
        members = [self._unpacked(packed) for packed in world.members]
        for part in world.parts:
            self._course(part, f"last-{part[0]}", True)
        self._check_members(members, world)
        for each in members:
            if each.engine is None:
                each.begin()
        self._course(NAMES, "all", True)
        self._check_members(members, world)
        logged = {f"{each.name}:{number}" for each in members for number in each.reds}
        for each in members:
            if each.order != members[0].order or not logged <= set(each.order):
                raise Broken(f"{each.name} ends with {each.order} of {logged}", world.story)
            if each.stable < len(each.order):
                raise Broken(f"{each.name} ends with {each.stable} stable", world.story)


class ViewEnd(NamedTuple):
    """One view at its end."""

    course: Course
    at: dict[str, int]
    """By member, how many of its actions it has done."""
    exists: tuple[int, ...]
    """The messages sent, in their order; those that nobody has taken are the last."""
    most: int
    """So many are known to be with all."""
    crashed: str = ""
    torn: int = 0
    """So many records of its next write are on its disk."""

    def told(self, line: dict[str, tuple[int, int]]) -> str:
        steps = [
            f"{name} crashes after action {nth} with {self.torn} records more"
            if name == self.crashed
            else f"{name} after action {nth} gets {line[name][0]}, then {line[name][1]}"
            for name, nth in self.at.items()
        ]
        return f"of {len(self.exists)} messages " + ", ".join(steps)

    def key(
        self, name: str, is_up: bool, line: dict[str, tuple[int, int]], parts: Any
    ) -> tuple[Any, ...]:
        """What a member's state in the next view follows from."""
        nth = self.at[name]
        if name == self.crashed:
            return _Same((name, is_up, self.course, nth, self.torn))
        regular, last = line[name]
        taken = self.course.steps[name][nth].taken
        transitional = self.exists[regular:last]
        regular_ones = self.exists[taken:regular]
        return _Same(
            (name, is_up, self.course, nth, self.is_split(parts), regular_ones, transitional)
        )

    def is_split(self, parts: Sequence[Sequence[str]]) -> bool:
        """Whether not all of it go on together."""
        names = set(self.course.names)
        return bool(self.crashed) or not any(names.issubset(part) for part in parts)

    def lines(self, parts: Sequence[Sequence[str]]) -> Iterator[dict[str, tuple[int, int]]]:
        """By member, up to which message it knows that all have it, and up to which it has them.
        Members that go on together have the same."""
        every, names = len(self.exists), self.course.names
        if not self.is_split(parts):
            yield dict.fromkeys(names, (every, every))
            return
        groups = [
            [name for name in names if name in part and name != self.crashed] for part in parts
        ]
        groups = [group for group in groups if group]
        known = [
            max(self.course.steps[name][self.at[name]].taken for name in group) for group in groups
        ]
        for lasts in product(range(self.most, every + 1), repeat=len(groups)):
            least = min(lasts, default=0)
            for regulars in product(*({low, least} for low in known)):
                yield {
                    name: (regular, last)
                    for group, regular, last in zip(groups, regulars, lasts, strict=True)
                    for name in group
                }


class _Same(tuple[Any, ...]):
    """A key in which a course is itself alone."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(id(each) if isinstance(each, Course) else each for each in self))


def parts_of(names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """All ways to part these."""
    if not names:
        yield ()
        return
    first, *rest = names
    for smaller in parts_of(rest):
        for at, part in enumerate(smaller):
            yield (*smaller[:at], (first, *part), *smaller[at + 1 :])
        yield ((first,), *smaller)


def frozen(each: Any) -> Any:
    """What two equal states have in common: what a component was is forgotten with the next one."""
    if isinstance(each, ReplicaEngine):
        parts = each.order, each.submissions, each.choice, each.lines
        return each.machine.state, each.component.failure, *map(frozen, map(vars, parts))
    if isinstance(each, dict):
        return tuple(sorted((key, frozen(value)) for key, value in each.items()))
    if isinstance(each, deque):
        return tuple(each)
    return each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thin", type=int, default=1, help="follow one change of view of so many")
    parser.add_argument("--worlds", type=int, default=1 << 30, help="follow at most so many worlds")
    asked = parser.parse_args()
    explorer = Explorer(asked.thin, asked.worlds)
    explorer.explore()
    print(f"{explorer.changes:,} changes of view, {explorer.ends:,} different ends: all laws hold")


if __name__ == "__main__":
    main()
