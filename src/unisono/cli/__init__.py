"""The `unisono` command: exit codes, errors, closed pipes."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from unisono.errors import Stopped, UnisonoError, WrongKey
from unisono.model import shortened

OK: Final = 0
BROKEN: Final = 1
"""A law is broken."""
BAD_INPUT: Final = 2
"""One line on standard error names the remedy."""
STOPPED: Final = 3
"""The member is out of the group, or never joined."""
BLOCKED: Final = 4
"""The group made no progress for longer than the command was to wait."""
INTERNAL: Final = 70
"""An internal error, with a traceback."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""Ended by SIGTERM before its work was done."""
PIPE_CLOSED: Final = 141
"""The reader of the output is gone: as after SIGPIPE."""
UNWRITABLE: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN)
)
"""Errors of a device that accepts no more output."""


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    _hold_descriptors()
    if sys.stdout is None:
        return refuse("cannot write the output: standard output is closed; try >/dev/null")
    try:
        from unisono.cli.app import app
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "unisono":
            return _internal_error()
        return refuse(f"the command needs {missing.name}: pip install 'unisono[cli]'")
    try:
        code = app(list(arguments) or ["--help"], prog_name="unisono", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return pipe_closed()
    except SystemExit as ended:
        # The parser exits with 1 on a closed pipe, which would mean a broken law.
        if isinstance(ended.__context__, BrokenPipeError):
            return pipe_closed()
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stop:
        return refuse(stop.reason, BAD_INPUT if isinstance(stop, WrongKey) else STOPPED)
    except UnisonoError as error:
        return refuse(str(error))
    except OSError as error:
        return _unwritten(error)
    except Exception as error:
        # A usage error of the parser, whatever its class.
        if message := getattr(error, "format_message", None):
            return refuse(f"{message().rstrip('.')}: see `{_help_of(error)}`")
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        return _internal_error()
    return code if isinstance(code, int) else OK


def refuse(reason: str, code: int = BAD_INPUT) -> int:
    """Print the reason as one line on standard error; returns the exit code."""
    print("unisono:", shortened(" ".join(reason.split())), file=sys.stderr)
    return code


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises SystemExit meanwhile, so that child processes are ended."""

    def terminate(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pipe_closed() -> int:
    _discard_output()
    return PIPE_CLOSED


def _discard_output() -> None:
    # The interpreter flushes once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unwritten(error: OSError) -> int:
    if error.filename is not None:
        return refuse(f"{error.filename}: {error.strerror}")
    if error.errno not in UNWRITABLE:
        return _internal_error()
    _discard_output()
    return refuse(f"cannot write the output: {error.strerror}")


def _internal_error() -> int:
    import traceback

    traceback.print_exc()
    return INTERNAL


def _hold_descriptors() -> None:
    """Open closed standard descriptors, or a socket would get their number."""
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
