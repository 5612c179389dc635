"""The `unisono` command. What a command does is in a module of its own, imported when asked for."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from unisono.errors import Stopped, UnisonoError
from unisono.model import shortened

OK: Final = 0
BROKEN: Final = 1
"""A law is broken."""
BAD_INPUT: Final = 2
"""One line on standard error says what to write instead."""
STOPPED: Final = 3
"""The member is no longer in the group, or never came in."""
INTERNAL: Final = 70
"""Our own mistake: a traceback tells where."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""Ended by SIGTERM before its work was done."""
PIPE_CLOSED: Final = 141
"""Nobody reads what is printed: as if ended by SIGPIPE."""
UNWRITABLE: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN)
)
"""What a device answers when it takes no more, or takes nothing at all."""


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; the answer is the exit code."""
    _hold_descriptors()
    if sys.stdout is None:
        return refuse("cannot write the output: standard output is closed; try >/dev/null")
    try:
        from unisono.cli.app import app
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "unisono":
            return _our_mistake()
        return refuse(f"the command needs {missing.name}: pip install 'unisono[cli]'")
    try:
        code = app(list(arguments) or ["--help"], prog_name="unisono", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return pipe_closed()
    except SystemExit as ended:
        # The parser's own answer to a closed pipe would look like a broken law.
        if isinstance(ended.__context__, BrokenPipeError):
            return pipe_closed()
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stop:
        return refuse(stop.reason, STOPPED)
    except UnisonoError as error:
        return refuse(str(error))
    except OSError as error:
        return _unwritten(error)
    except Exception as error:
        # What the parser has against the arguments, whatever its class is called by now.
        if told := getattr(error, "format_message", None):
            return refuse(f"{told().rstrip('.')}: see `{_help_of(error)}`")
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        return _our_mistake()
    return code if isinstance(code, int) else OK


def refuse(why: str, code: int = BAD_INPUT) -> int:
    """Say on one line of standard error why not."""
    print("unisono:", shortened(" ".join(why.split())), file=sys.stderr)
    return code


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM unwinds meanwhile: child processes are ended and what they used is removed."""

    def terminate(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pipe_closed() -> int:
    _let_go()
    return PIPE_CLOSED


def _let_go() -> None:
    # The interpreter flushes once more at its end: let that go nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unwritten(error: OSError) -> int:
    if error.filename is not None:
        return refuse(f"{error.filename}: {error.strerror}")
    if error.errno not in UNWRITABLE:
        return _our_mistake()
    _let_go()
    return refuse(f"cannot write the output: {error.strerror}")


def _our_mistake() -> int:
    import traceback

    traceback.print_exc()
    return INTERNAL


def _hold_descriptors() -> None:
    """A descriptor that came closed would become a socket of ours, and be read or written as
    standard input or error."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _help_of(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context is not None else 'unisono'} --help"
