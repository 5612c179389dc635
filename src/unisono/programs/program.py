"""A program for the simulator: its `main`, its state, and what must hold of its members."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from unisono.errors import Misuse
from unisono.programs.environment import simulated
from unisono.sim.programs import Programs

if TYPE_CHECKING:
    from unisono.sim.world import World

TAKES: Final = ("group", "state", "name")
"""The parameters that `main` may have: a joined group, a new state of the annotated class, the name
of the member. Without `group` it joins by itself."""
JUDGES: Final = ("invariant", "converged")

Main = Callable[..., Coroutine[Any, Any, Any]]
Judge = Callable[..., object]


@dataclass(frozen=True, eq=False)
class Program:
    """What each node runs. `invariant` is called whenever a program has run, `converged` once at
    the end, when all has healed and is quiet; either is given the members, and raises or returns
    what is wrong."""

    main: Main
    invariant: Judge | None = None
    converged: Judge | None = None
    name: str = ""
    """As `--app` takes it."""

    def __post_init__(self) -> None:
        if not inspect.iscoroutinefunction(self.main):
            raise Misuse(f"{self.main!r} is not `async def main(group)`: give a coroutine function")
        named = inspect.signature(self.main).parameters.values()
        needed = [each.name for each in named if each.default is each.empty]
        if unknown := sorted({*needed} - {*TAKES}):
            raise Misuse(
                f"main takes {', '.join(unknown)}: a simulated main may take {', '.join(TAKES)}"
            )
        object.__setattr__(self, "takes", tuple(n.name for n in named if n.name in TAKES))
        self.new_state()

    takes: tuple[str, ...] = ()

    def new_state(self) -> Any:
        if "state" not in self.takes:
            return None
        kind = get_type_hints(self.main).get("state")
        if not callable(kind):
            raise Misuse("main takes a state without a class: write `state: YourClass`")
        return kind()

    def begin(self, world: World) -> Programs:
        from unisono.programs.running import WorldPrograms

        return WorldPrograms(self, world)

    def surroundings(self) -> AbstractContextManager[None]:
        return simulated()

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker loads it by its name."""
        if not self.name:
            return object.__reduce__(self)  # type: ignore[return-value]
        return named_program, (self.name,)


def named_program(name: str) -> Program:
    """`module:main`, as found from the current directory; `invariant` and `converged` of the same
    module judge it."""
    module_name, colon, main = name.partition(":")
    if not colon:
        main = "main"
    if not module_name or not main.isidentifier():
        raise Misuse(f"--app {name!r}: write module:function, as counter:main")
    module_name = module_name.removesuffix(".py").replace("/", ".")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with simulated():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise Misuse(f"--app {name!r}: there is no module {error.name!r} here") from None
    if not hasattr(module, main):
        raise Misuse(f"--app {name!r}: {module_name} has no {main}")
    invariant, converged = (getattr(module, each, None) for each in JUDGES)
    return Program(getattr(module, main), invariant, converged, name)
