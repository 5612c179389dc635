"""A core as bytes and back: what a replica needs to go on where another one stands.

Plain structure: numbers, texts, containers, and instances of the tree's own classes. Reading makes
instances of classes below the named modules and nothing else; all else raises `BadPacket`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from random import Random
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias

from unisono.errors import BadPacket

Node: TypeAlias = Any
"""An atom as it is, or a list that begins with one of the kinds."""
PLAIN: Final = (type(None), bool, int, float, str)
BAD: Final = (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError)


def _slots(kind: type) -> list[str]:
    names = [each for base in kind.__mro__ for each in base.__dict__.get("__slots__", ())]
    return [each for each in names if each not in ("__dict__", "__weakref__")]


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


class CoreWriter:
    """Writes one object with all that it refers to; what two refer to is written once."""

    def __init__(self, known: Mapping[str, object]) -> None:
        self._known = {id(each): name for name, each in known.items()}
        self._numbers: dict[int, int] = {}

    def write(self, root: object) -> bytes:
        return json.dumps(self._node(root), separators=(",", ":")).encode()

    def _nodes(self, values: Any) -> list[Node]:
        return [self._node(each) for each in values]

    def _node(self, value: Any) -> Node:
        kind = type(value)
        if kind in PLAIN:
            return value
        if id(value) in self._known:
            return ["known", self._known[id(value)]]
        if kind in (bytes, memoryview):
            return ["bytes", bytes(value).hex()]
        if kind is tuple:
            return ["tuple", self._nodes(value)]
        if kind is frozenset:
            return ["frozenset", self._nodes(value)]
        if isinstance(value, Enum):
            return ["enum", _name(kind), value.name]
        if isinstance(value, type | FunctionType):
            return ["named", _name(value)]
        if kind is MethodType:
            return ["method", self._node(value.__self__), value.__name__]
        if kind is partial:
            return ["partial", self._node(value.func), self._nodes(value.args)]
        if isinstance(value, tuple):
            return ["record", _name(kind), self._nodes(value)]
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._numbers)
        return self._shared(kind, value)

    def _shared(self, kind: type, value: Any) -> Node:
        """What has an identity: two that refer to it go on to share it."""
        if kind is list:
            return ["list", self._nodes(value)]
        if kind in (dict, Counter):
            rows = [[self._node(key), self._node(each)] for key, each in value.items()]
            return [kind.__name__, rows]
        if kind is set:
            return ["set", self._nodes(value)]
        if kind is bytearray:
            return ["bytearray", value.hex()]
        if kind is deque:
            return ["deque", value.maxlen, self._nodes(value)]
        if kind is Random:
            return ["random", self._node(value.getstate())]
        attributes = (
            {name: self._node(each) for name, each in vars(value).items()}
            if hasattr(value, "__dict__")
            else {}
        )
        for name in _slots(kind):
            if hasattr(value, name):
                attributes[name] = self._node(getattr(value, name))
        if isinstance(value, list):
            return ["sequence", _name(kind), attributes, self._nodes(value)]
        return ["object", _name(kind), attributes]


class CoreReader:
    """Makes the object again. Whoever reads states of others has to trust them as far as it trusts
    their packets: a sound state may still be a wrong one."""

    def __init__(self, known: Mapping[str, object], modules: Collection[str]) -> None:
        self._known = known
        self._modules = tuple(modules)
        self._made: list[Any] = []

    def read(self, data: bytes) -> Any:
        try:
            return self._value(json.loads(data))
        except BAD as error:
            raise BadPacket("state") from error

    def _values(self, nodes: list[Node]) -> list[Any]:
        return [self._value(each) for each in nodes]

    def _value(self, node: Node) -> Any:
        if type(node) in PLAIN:
            return node
        read: Callable[..., Any] = getattr(self, f"_read_{node[0]}")
        return read(*node[1:])

    def _find(self, name: str) -> Any:
        module, _, path = name.partition(":")
        if not any(module == each or module.startswith(f"{each}.") for each in self._modules):
            raise ValueError(f"{name} is not of a core")
        found: Any = sys.modules[module]
        for each in path.split("."):
            if each.startswith("__"):
                raise ValueError(name)
            found = getattr(found, each)
        if not isinstance(found, type | FunctionType) or found.__module__ != module:
            raise ValueError(f"{name} is not of a core")
        return found

    def _kind(self, name: str) -> type:
        found = self._find(name)
        if not isinstance(found, type):
            raise ValueError(f"{name} is no class")
        return found

    def _read_known(self, name: str) -> Any:
        return self._known[name]

    def _read_bytes(self, text: str) -> bytes:
        return bytes.fromhex(text)

    def _read_tuple(self, nodes: list[Node]) -> Any:
        return tuple(self._values(nodes))

    def _read_frozenset(self, nodes: list[Node]) -> Any:
        return frozenset(self._values(nodes))

    def _read_enum(self, kind: str, name: str) -> Any:
        found = self._kind(kind)
        if not issubclass(found, Enum):
            raise ValueError(f"{kind} is no enumeration")
        return found[name]

    def _read_named(self, name: str) -> Any:
        return self._find(name)

    def _read_method(self, node: Node, name: str) -> Any:
        owner = self._value(node)
        function = None if name.startswith("__") else getattr(type(owner), name)
        if not isinstance(function, FunctionType) or function.__module__ not in sys.modules:
            raise ValueError(f"{name} is no method of a core")
        self._find(_name(type(owner)))
        return MethodType(function, owner)

    def _read_partial(self, function: Node, arguments: list[Node]) -> Any:
        return partial(self._value(function), *self._values(arguments))

    def _read_record(self, kind: str, nodes: list[Node]) -> Any:
        found = self._kind(kind)
        if not issubclass(found, tuple):
            raise ValueError(f"{kind} is no record")
        return tuple.__new__(found, self._values(nodes))

    def _read_again(self, number: int) -> Any:
        return self._made[number]

    def _share(self, value: Any) -> Any:
        self._made.append(value)
        return value

    def _read_list(self, nodes: list[Node]) -> Any:
        made: list[Any] = self._share([])
        made += self._values(nodes)
        return made

    def _read_dict(self, rows: list[list[Node]]) -> Any:
        return self._filled(self._share({}), rows)

    def _read_Counter(self, rows: list[list[Node]]) -> Any:
        return self._filled(self._share(Counter()), rows)

    def _filled(self, made: Any, rows: list[list[Node]]) -> Any:
        for key, value in rows:
            made[self._value(key)] = self._value(value)
        return made

    def _read_set(self, nodes: list[Node]) -> Any:
        made: set[Any] = self._share(set())
        made.update(self._values(nodes))
        return made

    def _read_bytearray(self, text: str) -> Any:
        return self._share(bytearray.fromhex(text))

    def _read_deque(self, maxlen: int | None, nodes: list[Node]) -> Any:
        made: deque[Any] = self._share(deque(maxlen=maxlen))
        made.extend(self._values(nodes))
        return made

    def _read_random(self, node: Node) -> Any:
        made: Random = self._share(Random(0))
        made.setstate(self._value(node))
        return made

    def _read_object(self, kind: str, attributes: Mapping[str, Node]) -> Any:
        found = self._kind(kind)
        if issubclass(found, tuple | Enum | Exception):
            raise ValueError(f"{kind} is no part of a core")
        return self._furnished(self._share(object.__new__(found)), attributes)

    def _read_sequence(self, kind: str, attributes: Mapping[str, Node], nodes: list[Node]) -> Any:
        found = self._kind(kind)
        if not issubclass(found, list):
            raise ValueError(f"{kind} is no list")
        made = self._furnished(self._share(list.__new__(found)), attributes)
        list.extend(made, self._values(nodes))
        return made

    def _furnished(self, made: Any, attributes: Mapping[str, Node]) -> Any:
        for name, node in attributes.items():
            if name.startswith("__"):
                raise ValueError(name)
            object.__setattr__(made, name, self._value(node))
        return made
