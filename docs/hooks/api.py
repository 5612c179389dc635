"""Lists every public name with the first sentence of its docstring: docs/API.md.

`pytest tests/docs/test_api.py --rewrite` writes the page; `make docs` renders it afresh.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Coroutine, Iterator
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

MODULES: Final = {
    "unisono": "The group: join it, send to it, read its stream.",
    "unisono.sync": "The group [for threads](PATTERNS.md#threads).",
    "unisono.services.sharing": "[Shared objects](SERVICES.md).",
    "unisono.sync.sharing": "Shared objects [for threads](SERVICES.md#from-threads).",
    "unisono.sync.direct": "Messages to one member [for threads](SERVICES.md#from-threads).",
    "unisono.services.actions": "[Transactions](PATTERNS.md#transactions) among members.",
    "unisono.services.rpc": "[Calls](PATTERNS.md#calls) to all members, with their answers.",
    "unisono.services.direct": "[Messages to one member](SERVICES.md#to-one-member).",
    "unisono.services.merging": "[State on merge](PATTERNS.md#state-on-merge).",
    "unisono.services.replicating": "[A replicated log](PATTERNS.md#durable-replication).",
    "unisono.services.replicated_objects": "[Replicated objects](PATTERNS.md#replicated-object).",
    "unisono.services.sqlite.database": "[A replicated database](PATTERNS.md#replicated-sqlite).",
    "unisono.daemon": "[One member per machine](OPERATIONS.md#the-daemon).",
    "unisono.feed": "A group's messages [in a durable log](OPERATIONS.md#the-feed).",
    "unisono.log": "The durable log, indexed by offset.",
    "unisono.spark": "Groups and traces [as Spark tables and streams](SPARK.md).",
    "unisono.sim": "[Simulated runs](SIMULATION.md) under faults.",
    "unisono.laws": "Guarantees [as functions](CONCEPTS.md#the-laws).",
    "unisono.draw": "[Space-time diagrams](SIMULATION.md#drawing-a-run).",
    "unisono.core": "[The contract](CONTRIBUTING.md#the-contract) of a protocol.",
    "unisono.spec": "The entry of a protocol in the catalogue.",
    "unisono.fsa": "State diagrams as tables of arrows.",
    "unisono.protocols": "The catalogue.",
}
"""The public modules, in the order of the page."""
WITH_METHODS: Final = (
    *(
        "unisono",
        "unisono.sync",
        "unisono.sync.sharing",
        "unisono.sync.direct",
        "unisono.services.sharing",
        "unisono.services.actions",
        "unisono.services.rpc",
        "unisono.services.direct",
        "unisono.services.merging",
    ),
    "unisono.services.replicating",
    "unisono.services.replicated_objects",
    "unisono.services.sqlite.database",
    "unisono.feed",
)
"""Those for applications, whose methods are listed too."""

HEAD: Final = """# API reference

Every public name, by module, with the first sentence of its docstring. The site that `make docs`
builds has the signatures and the rest. `pytest tests/docs/test_api.py --rewrite` writes this page.
"""


def page() -> str:
    parts = [HEAD]
    for name, about in MODULES.items():
        rows = "\n".join(f"| `{entry}` | {text} |" for entry, text in entries(import_module(name)))
        parts.append(f"## {name}\n\n{about}\n\n| name | what |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or what the module itself defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed, key=lambda name: (name.isupper(), name.lower()))
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and not isinstance(value, TypeVar)
    ]


def entries(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Each public name, and where they matter each public method, with its sentence."""
    methods = module.__name__ in WITH_METHODS
    for name in public_names(module):
        value = getattr(module, name)
        yield name, sentence_of(value)
        if methods and inspect.isclass(value) and not issubclass(value, (tuple, dict, Enum)):
            for method in methods_of(value):
                yield f"{name}.{method}", sentence_of(inspect.getattr_static(value, method))


INTERNAL = {
    "Handle": frozenset("wait_in_line withdraw accept refuse deliver stabilize fail".split())
}
"""Methods that only the library calls."""


def methods_of(kind: type) -> list[str]:
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_")
        and name not in INTERNAL.get(kind.__name__, ())
        and not (issubclass(kind, Coroutine) and name in vars(Coroutine))
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
    ]


def sentence_of(value: Any) -> str:
    if isinstance(value, Enum):
        return f"`{type(value).__name__}.{value.name}`"
    documented = inspect.isclass(value) or callable(value) or isinstance(value, property)
    made = r"^\w+\(.*\)$"  # the docstring that a dataclass makes itself
    text = inspect.getdoc(value) if documented else None
    if text is None or re.match(made, text, re.DOTALL):
        return "" if documented else f"`{value!r}`" if len(repr(value)) < 60 else ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].replace("|", "\\|")
