"""What a program finds around it: the clock and the dice of its node, and no way around them."""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from unisono.programs.loop import VirtualLoop

EPOCH_S: Final = 1_700_000_000
"""What `time.time()` shows when a node's clock shows 0."""


class _Turn(threading.local):
    """Whose turn it is in this thread; other threads keep the real clock and dice."""

    loop: VirtualLoop | None = None


_turn = _Turn()

GUARDED: Final = {
    "socket.__new__": "sockets of its own",
    "subprocess.Popen": "other processes",
    "os.system": "other processes",
    "os.fork": "other processes",
    "os.posix_spawn": "other processes",
    "_thread.start_new_thread": "threads",
}
"""Audit events of what cannot be simulated."""

_guard_is_set = False


class Acting:
    """It is the turn of this loop."""

    __slots__ = ("_around", "_before", "_hooks", "_loop")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._before, self._around = _turn.loop, events._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        _turn.loop = self._loop
        events._set_running_loop(self._loop)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._loop.finalize)

    def __exit__(self, *_: object) -> None:
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(self._around)
        _turn.loop = self._before


@contextmanager
def simulated() -> Iterator[None]:
    """While this lasts, programs get time and randomness from their node, everyone else as ever.
    Functions that a module imports meanwhile by name stay so, and stay harmless."""
    global _guard_is_set
    if not _guard_is_set:
        sys.addaudithook(_guard)
        _guard_is_set = True
    replaced = [(owner, name, getattr(owner, name)) for owner, name, _ in _REPLACEMENTS]
    for owner, name, made in _REPLACEMENTS:
        setattr(owner, name, made)
    log = logging.getLogger("unisono")
    level = log.level
    log.setLevel(logging.CRITICAL)  # Stops and rejoins are what a run is about.
    try:
        yield
    finally:
        log.setLevel(level)
        for owner, name, real in replaced:
            setattr(owner, name, real)


def _guard(event: str, _: object) -> None:
    if _turn.loop is not None and event in GUARDED:
        from unisono.programs.loop import refusal

        raise refusal(GUARDED[event])


def _or_real(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def either(*args: Any, **options: Any) -> Any:
        if _turn.loop is None:
            return real(*args, **options)
        return ours(_turn.loop, *args, **options)

    either.__name__ = getattr(real, "__name__", "either")
    return either


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        from unisono.programs.loop import refusal

        raise refusal(what)

    return refuse


def _rolled(name: str) -> Callable[..., Any]:
    def roll(loop: VirtualLoop, *args: Any, **options: Any) -> Any:
        return getattr(loop.dice, name)(*args, **options)

    return roll


def _replacements() -> list[tuple[Any, str, Callable[..., Any]]]:
    ours: dict[tuple[Any, str], Callable[..., Any]] = {
        (time, "time"): lambda loop: EPOCH_S + loop.time(),
        (time, "time_ns"): lambda loop: (EPOCH_S * 1_000_000 + loop.now_us()) * 1000,
        (time, "sleep"): _refuse("blocking sleep (write await asyncio.sleep)"),
        (os, "urandom"): lambda loop, size: loop.dice.randbytes(size),
        (random, "_urandom"): lambda loop, size: loop.dice.randbytes(size),
        (threading.Thread, "start"): _refuse("threads"),
    }
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        ours[time, name] = lambda loop: loop.time()
        ours[time, f"{name}_ns"] = lambda loop: loop.now_us() * 1000
    ours |= {
        (random, name): _rolled(name)
        for name in random.__all__
        if hasattr(random.Random, name) and name not in ("Random", "SystemRandom")
    }
    return [
        (owner, name, _or_real(getattr(owner, name), made)) for (owner, name), made in ours.items()
    ]


_REPLACEMENTS: Final = _replacements()
